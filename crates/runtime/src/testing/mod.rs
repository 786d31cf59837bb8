//! The test runtime: a stage, or a whole graph, run step by step on virtual time.
//!
//! 1. `stage_tester`: [`StageTester`] runs one stage by itself; [`KeyedTester`] (`keyed_tester`) a keyed one
//! 2. `recorder`: [`record`] keeps copies of what a port sends
//! 3. `test_runtime`: [`TestRuntime`] runs a graph with the code that runs in production, one visit at a time; a seed
//!    chooses the worker that makes it, and only the test moves the clock
//! 4. `service_time`: [`ServiceTime`], how long a handler takes on virtual time
//! 5. `virtual_workers`: which worker acts next, and how time passes while handlers take theirs
//! 6. `hooks`: what the path of events asks a test

mod stage_tester;
mod recorder;
mod test_runtime;
mod service_time;
mod virtual_workers;
mod hooks;

use crate::app::App;

pub use crate::keyed_tester::KeyedTester;
pub(crate) use hooks::Hooks;
pub use recorder::{Recorder, record};
pub use service_time::{Dice, ServiceTime};
pub use stage_tester::StageTester;
pub(crate) use stage_tester::TesterHost;
pub use test_runtime::TestRuntime;
pub(crate) use virtual_workers::VirtualWorkers;

/// Has a resource be opened by `open` in place of what the program says, and dropped at the end. Before the app
/// is made a [`TestRuntime`], or started.
///
/// ```
/// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::{App, testing}; }
/// use comporta::testing::{TestRuntime, record, replace_resource};
/// use comporta::{App, Plan};
///
/// fn program() -> App {
///     let app = App::new("prices");
///     let rate = app.resource("rate", || Ok(std::fs::read("rate.txt")?.len() as u64), drop);
///     let euros = app.source("euros", || [1, 2].into_iter());
///     let cents = app.map("cents", move |euros: u64| euros * *rate.get());
///     app.connect(euros, cents);
///     app.connect(cents, app.sink("show", |cents: u64| println!("{cents}")));
///     app
/// }
///
/// let app = program();
/// replace_resource(&app, "rate", || Ok(100_u64));
/// let mut runtime = TestRuntime::new(app, &Plan::new())?;
/// assert!(runtime.run());
/// # assert_eq!(runtime.snapshot().stage("show").unwrap().counts.handled, 2);
/// # Ok::<(), comporta_runtime::StartError>(())
/// ```
///
/// # Panics
/// If the program has no such resource, or it is of another type.
#[track_caller]
pub fn replace_resource<R: Send + Sync + 'static>(
    app: &App,
    name: &str,
    open: impl FnOnce() -> comporta_model::error::Result<R> + Send + 'static,
) {
    let replaced = app.replace_resource(name, open);
    let of = std::any::type_name::<R>();
    assert!(replaced, "the program has no resource `{name}` of the type `{of}`");
}
