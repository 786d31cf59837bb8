//! **Write a program once, as stages; decide afterwards how it runs.**
//!
//! ```
//! use comporta::{App, Plan};
//!
//! let app = App::new("squares");
//! let numbers = app.source("numbers", || 1..=10_u64);
//! let square = app.map("square", |n: u64| n * n);
//! let show = app.sink("show", |n: u64| println!("{n}"));
//! app.connect(numbers, square);
//! app.connect(square, show);
//!
//! let summary = app.run(&Plan::new())?;
//! assert_eq!(summary.snapshot.stage("show").unwrap().counts.handled, 10);
//! # Ok::<(), comporta::StartError>(())
//! ```
//!
//! A program is an [`App`]: named stages, joined by connectors. A [`Plan`] sets how it runs: threads,
//! instances, queue limits, priorities, policy. Most of these can be changed while it runs, through
//! [`Control`].
//!
//! | to | see |
//! |---|---|
//! | write a stage | [Stages](#stages), [`Stage`], [`Out`], `#[derive(Ports)]` |
//! | handle events in order by key, with state and timers | [`StageRef::keyed`], [`KeyedStage`], [`EventTime`] |
//! | gather events | [Windows](#windows), [`windows`], [`App::window`], [`batched`], [`Held`] |
//! | bring events in | [Sources and inputs](#sources-and-inputs), [`sources`], [`Source`], [`Sender`] |
//! | wait inside a handler without a thread | [`AsyncStage`], [`App::map_async`], `docs/waiting.md` in the repository |
//! | answer requests from outside | [`App::gateway`], [`Client`], [`Refusal`] |
//! | share a connection, a pool or a client among handlers | [`App::resource`], [`Resource`] |
//! | run handlers that wait on threads of their own | [`StageRef::blocking`] |
//! | join stages | [Connectors](#connectors), [`App::connect`] |
//! | choose or write a policy | [Policies](#policies), [`policy`] |
//! | control overload | [Admission](#admission), [`policy::admission`] |
//! | wait inside a handler that reads like sequential code | feature `scheduler`: `App::stage_coroutine`, `sources::scheduler` |
//! | set how it runs | [Plans](#plans), [`Plan`], [`Choice`], [`WhenFull`] |
//! | give it a command line | [The command line](#the-command-line) |
//! | watch and change it | [While it runs](#while-it-runs), [`Running`], [`Snapshot`], [`Control`] |
//! | deal with failures | [Failures](#failures), [`Failure`], [`Retry`] |
//! | test it | [Tests](#tests), [`testing`] |
//!
//! # Stages
//!
//! A stage is a closure or a type with [`Stage`].
//!
//! | verb | the closure | sends |
//! |---|---|---|
//! | [`map`](App::map), [`try_map`](App::try_map) | takes an event | its return value |
//! | [`filter`](App::filter) | borrows an event | the event, if it returns `true` |
//! | [`filter_map`](App::filter_map) | takes an event | its return value, if it is `Some` |
//! | [`flat_map`](App::flat_map), [`try_flat_map`](App::try_flat_map) | takes an event | every item of its return value |
//! | [`inspect`](App::inspect), [`map_in_place`](App::map_in_place) | borrows an event; changes it | the event |
//! | [`process`](App::process) | takes an event and a port | whatever it sends through the port |
//! | [`sink`](App::sink) | takes an event | nothing |
//!
//! The `try_` verbs fail an event whose closure returns an error; in them `?` needs no annotation.
//!
//! A type may keep state, and is called when an instance starts and ends. It borrows each event as an
//! [`Ev`], which it can read, take, or [hold](Ev::hold) beyond the call together with its obligation to a
//! source that waits for acknowledgement.
//!
//! ```
//! use comporta::{App, Cx, Ev, Out, Plan, Ports, Result, Stage};
//!
//! /// Where `Parse` sends: each field is a port.
//! #[derive(Ports)]
//! struct Parsed {
//!     number: Out<u64>,
//!     other: Out<String>,
//! }
//!
//! #[derive(Clone)]
//! struct Parse;
//!
//! impl Stage for Parse {
//!     type In = String;
//!     type Ports = Parsed;
//!     fn handle(&mut self, text: Ev<'_, String>, out: &mut Parsed, _: &Cx) -> Result {
//!         match text.parse() {
//!             Ok(number) => out.number.send(number),
//!             Err(_) => out.other.send(text.take()),
//!         }
//!         Ok(())
//!     }
//! }
//!
//! /// Adds up, and sends the sum after the last number.
//! #[derive(Clone)]
//! struct Sum(u64);
//!
//! impl Stage for Sum {
//!     type In = u64;
//!     type Ports = Out<u64>;
//!     fn handle(&mut self, number: Ev<'_, u64>, _: &mut Out<u64>, _: &Cx) -> Result {
//!         self.0 += *number;
//!         Ok(())
//!     }
//!     fn finish(&mut self, out: &mut Out<u64>, _: &Cx) -> Result {
//!         out.send(self.0);
//!         Ok(())
//!     }
//! }
//!
//! let app = App::new("sums");
//! let texts = app.source("texts", || ["4", "five", "6"].map(String::from).into_iter());
//! let parse = app.stage("parse", Parse);
//! let sum = app.stage("sum", Sum(0)).stateful(); // one instance, whatever the plan says
//! let show = app.sink("show", |sum: u64| assert_eq!(sum, 10));
//! let complain = app.sink("complain", |text: String| assert_eq!(text, "five"));
//! app.connect(texts, parse);
//! app.connect(parse.number, sum);
//! app.connect(parse.other, complain);
//! app.connect(sum, show);
//! let summary = app.run(&Plan::new())?;
//! assert_eq!(summary.snapshot.stage("show").unwrap().counts.handled, 1);
//! # Ok::<(), comporta::StartError>(())
//! ```
//!
//! A stage declares properties that hold under every plan: [`stateful`](StageRef::stateful),
//! [`ordered`](StageRef::ordered), [`retain`](StageRef::retain), [`autostart`](StageRef::autostart),
//! [`effects`](StageRef::effects).
//! A type that must never have two instances declares it itself ([`Stage::STATEFUL`]).
//! [`batched`] makes a stage that handles its events in groups.
//!
//! # Windows
//!
//! [`windows`] are stages that gather the events of a stream, by count or by event time. Windows tumble,
//! or slide and overlap. An event that is too late for its window leaves through a separate port.
//! [`App::window`] gathers the events of each key by itself and sends what an aggregate makes of them; see `docs/keys.md`.
//!
//! ```
//! use std::time::Duration;
//! use comporta::windows::{self, Window};
//! use comporta::{App, Plan};
//!
//! let app = App::new("speeds");
//! // When, in milliseconds, and how fast. The third comes a second late, the last far too late.
//! let speeds = app.source("speeds", || {
//!     [(1_000, 50_u64), (61_000, 80), (60_000, 70), (125_000, 90), (2_000, 50)].into_iter()
//! });
//! let minute = app.stage(
//!     "minute",
//!     windows::by_time(|speed: &(i64, u64)| speed.0, Duration::from_secs(60))
//!         .lateness(Duration::from_secs(2)),
//! );
//! let mean = app.map("mean", |minute: Window<(i64, u64)>| {
//!     let sum: u64 = minute.events.iter().map(|(_, speed)| speed).sum();
//!     (minute.start, sum / minute.events.len() as u64)
//! });
//! let late = app.sink("late", |speed: (i64, u64)| assert_eq!(speed.0, 2_000));
//! let pairs = app.stage("pairs", windows::by_count(2).sliding(1)); // each mean and the next
//! let rise = app.sink("rise", |pair: Window<(i64, u64)>| println!("{:?}", pair.events));
//! app.connect(speeds, minute);
//! app.connect(minute.windows, mean);
//! app.connect(minute.late, late);
//! app.connect(mean, pairs);
//! app.connect(pairs, rise);
//! let summary = app.run(&Plan::new())?;
//! assert_eq!(summary.snapshot.stage("mean").unwrap().counts.handled, 3); // minutes 0, 1 and 2
//! assert_eq!(summary.snapshot.stage("late").unwrap().counts.handled, 1);
//! # Ok::<(), comporta::StartError>(())
//! ```
//!
//! # Sources and inputs
//!
//! A source is pulled when there is room for its events: any iterator, one of [`sources`], or your
//! own [`Source`]. An input is fed by a [`Sender`], a handle for threads and tasks outside the
//! program; a send waits for room, or returns the event.
//!
//! ```
//! use comporta::{App, Ended, Plan};
//!
//! let app = App::new("doubles");
//! let (sender, numbers) = app.input::<u64>("numbers");
//! let double = app.map("double", |n: u64| n * 2);
//! let show = app.sink("show", |n: u64| println!("{n}"));
//! app.connect(numbers, double);
//! app.connect(double, show);
//!
//! let running = app.start(&Plan::new())?;
//! sender.send(20)?; // waits for room; see also `try_send`, `send_timeout` and `send_async`
//! sender.send(21)?;
//! drop(sender); // no more handles: the input ends, and after it the program
//! let summary = running.wait();
//! assert_eq!(summary.ended, Ended::Complete);
//! assert_eq!(summary.snapshot.stage("show").unwrap().counts.handled, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Connectors
//!
//! [`App::connect`] joins a port to a stage; a port joined twice sends a copy to each.
//! [`App::round_robin`] and [`App::by_key`] choose one of several stages. Their events can be copied
//! and serialised ([`Event`]), so that a plan may put the two stages apart; the `_local` variants take
//! any type that is `Send`. Types that do not match do not compile:
//!
//! ```compile_fail
//! # let app = comporta::App::new("misfit");
//! let numbers = app.source("numbers", || 0..10_u64);
//! let shout = app.map("shout", |text: String| text.to_uppercase());
//! app.connect(numbers, shout); // `Port<u64>` does not send `String`
//! ```
//!
//! # Plans
//!
//! Every setting of a plan is optional. A plan is checked against the graph before anything runs, and
//! all mistakes are reported at once.
//!
//! ```
//! use std::time::Duration;
//! use comporta::{App, Plan, Retry, WhenFull};
//!
//! # let app = App::new("planned");
//! # let numbers = app.source("numbers", || 0..10_u64);
//! # let work = app.map("work", |n: u64| n);
//! # let store = app.sink("store", |_: u64| ());
//! # app.connect(numbers, work);
//! # app.connect(work, store);
//! let plan = Plan::new()
//!     .threads(2)
//!     .policy("srpt")
//!     .every(|stage| stage.capacity(10_000))
//!     .stage("work", |work| work.instances(4).when_full(WhenFull::DropOldest))
//!     .stage("store", |store| store.retry(Retry::new(3, Duration::from_millis(50))))
//!     .cluster("disk", |disk| disk.threads(1).stages("store".into()));
//! app.run(&plan)?;
//!
//! let app = App::new("mistaken");
//! # let numbers = app.source("numbers", || 0..10_u64);
//! let work = app.sink("work", |_: u64| ());
//! # app.connect(numbers, work);
//! let mistake = app.run(&Plan::new().stage("wrok", |work| work.instances(4))).unwrap_err();
//! assert_eq!(
//!     mistake.to_string(),
//!     "the plan: the program has no stage `wrok`: did you mean `work`?"
//! );
//! # Ok::<(), comporta::StartError>(())
//! ```
//!
//! Clusters are sets of stages with their own threads; sets have an algebra ([`StageSet`]). What happens at
//! a full queue can also be set for one connector. Plan files have the same settings in TOML (feature
//! `plan`); see `docs/plans.md` in the repository.
//!
//! # Policies
//!
//! A policy decides what the threads of a cluster do next. It is chosen by name, with parameters or
//! without: `plan.policy("srpt")`, `plan.policy(Choice::new("seda").with("threads", 4))`. It can be
//! replaced while events flow ([`Control::set_policy`]). [`policy::policies`] lists all policies; a new
//! one is a small type written against [`policy::PolicyControl`] and registered with
//! [`App::register_policy`]. See `docs/writing-a-policy.md` in the repository.
//!
//! # Admission
//!
//! Under overload the queue of a stage fills, and an event that still enters waits for all of it. An
//! admission controller admits fewer events: by queue length, rate, waiting time, response time, tier or
//! deadline. A plan chooses one for a stage by name; it can be replaced while events flow
//! ([`Control::set_admission`]). Events that it sheds are counted under its name ([`Shed`]), or returned
//! to the sender. [`policy::admission`] lists all controllers; a program registers its own with
//! [`App::register_admission`].
//!
//! ```
//! use std::time::Duration;
//! use comporta::{App, Choice, Plan, SendError, Shed};
//!
//! let app = App::new("quotes");
//! let (sender, asked) = app.input::<u32>("asked");
//! let quote = app.sink("quote", |_: u32| ());
//! app.connect(asked, quote);
//! let plan = Plan::new()
//!     .stage("asked", |asked| asked.deadline(Duration::from_millis(50)))
//!     .stage("quote", |quote| quote.admission(Choice::new("token-bucket").with("burst", 1).with("rate", 0.1)));
//! let running = app.start(&plan)?;
//! sender.send(1)?;
//! let urgent = sender.clone().tier(9).within(Duration::from_millis(5));
//! assert_eq!(urgent.send(2), Err(SendError::Refused(2, Shed::TokenBucket)));
//! # drop((sender, urgent));
//! # running.wait();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The command line
//!
//! With the feature `cli`, `comporta::main(build)` makes a command of a program: `run`, with live
//! progress and a summary, `check`, `graph`, `plan`, `compare`, `policies`, `admissions`,
//! `completions`, beside its own arguments. `compare` runs the program under several policies, thread
//! counts and loads, and reports which is best; it repeats side effects of stages marked
//! [`effects`](StageRef::effects) only if that is allowed. `build` takes no argument, or the program's own
//! arguments (`clap::Args`), or these and the program's own section of the plan (`serde::Deserialize`); it
//! returns an [`App`] or a `Result` of one. A program sets defaults of its own with [`App::set_plan`]; files
//! and flags override them. If the program has an option of the same name, that name means the program's
//! option, and Comporta's is called `--comporta-NAME`.
//!
//! ```no_run
//! # #[cfg(feature = "cli")] mod program {
//! use comporta::{App, Exit};
//!
//! fn build() -> App {
//!     let app = App::new("squares");
//!     let numbers = app.source("numbers", || 1..=10_u64);
//!     let show = app.sink("show", |n: u64| println!("{}", n * n));
//!     app.connect(numbers, show);
//!     app
//! }
//!
//! fn main() -> Exit {
//!     comporta::main(build)
//! }
//! # }
//! ```
//!
//! # While it runs
//!
//! [`App::start`] returns a [`Running`], which takes [`Snapshot`]s, ends the program
//! ([`wait`](Running::wait), [`drain`](Running::drain), [`stop`](Running::stop)), and returns a
//! [`Control`], which changes how it runs. Inside an async runtime, await
//! [`ended`](Running::ended) before `wait`. A change that is refused changes nothing.
//!
//! ```
//! use comporta::{App, Ended, Plan};
//!
//! # let app = App::new("live");
//! # let (sender, numbers) = app.input::<u64>("numbers");
//! # let work = app.sink("work", |_: u64| ());
//! # app.connect(numbers, work);
//! let running = app.start(&Plan::new().threads(1))?;
//! let control = running.control();
//! control.set_threads("main", 4)?;
//! control.set_instances("work", 3)?;
//! control.set_capacity("work", 50_000)?;
//! control.set_policy("main", "single")?;
//! assert!(control.set_capacity("wrok", 1).is_err());
//!
//! # (0..100).try_for_each(|n| sender.send(n))?;
//! let snapshot = running.snapshot();
//! assert!(snapshot.adds_up()); // every event is accounted for, at any moment
//! assert_eq!(snapshot.stage("work").unwrap().instances, 3);
//!
//! let summary = running.drain(); // closes the sources, handles the events in the program, and ends
//! assert_eq!(summary.ended, Ended::Drained);
//! println!("{summary}");
//! # assert_eq!(summary.snapshot.stage("work").unwrap().counts.handled, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Failures
//!
//! A handler that panics or returns an error costs one event: what the handler sent for it is withdrawn,
//! the event is retried as the plan's [`Retry`] says, and then kept with its [`Reason`] until it is
//! [taken](Control::take_failures) or [replayed](Control::replay). An event that the handler took
//! can be retried and replayed only if its stage is declared with [`retain`](StageRef::retain). A verb
//! whose closure takes its event keeps a copy if the plan retries and the events can be copied (not
//! behind a local connector). An error may be permanent ([`Error::permanent`]), or set the wait before
//! the next try ([`Error::retry_after`]).
//!
//! [`App::on_failure`] sets a callback for every event that fails while the program runs. With the feature
//! `cli`, `run --failures FILE` writes failed events to a file, a line of JSON each, and `run --replay FILE`
//! feeds them back to their stages in a later run. A stage whose [error port](StageRef::errors) is connected sends
//! its failed events on through the graph instead, each as a [`Failed`]: `app.connect(parse.errors(), dead_letters)`.
//!
//! ```
//! use comporta::{App, Error, Plan};
//!
//! let app = App::new("picky");
//! let numbers = app.source("numbers", || 0..10_u64);
//! let check = app.process("check", |n: u64, out| match n {
//!     7 => Err(Error::msg("no sevens")),
//!     n => {
//!         out.send(n);
//!         Ok(())
//!     }
//! });
//! let show = app.sink("show", |n: u64| println!("{n}")); // may return a `Result`, too
//! app.connect(numbers, check);
//! app.connect(check, show);
//! let running = app.start(&Plan::new().stage("check", |check| check.tries(3)))?;
//! let control = running.control();
//! let counts = running.wait().snapshot.stage("check").unwrap().counts;
//! assert_eq!((counts.handled, counts.failed, counts.retried), (9, 1, 2));
//! assert_eq!(control.failures("check").unwrap()[0].reason.to_string(), "no sevens");
//! # Ok::<(), comporta::StartError>(())
//! ```
//!
//! # Tests
//!
//! [`testing`] runs one stage ([`StageTester`](testing::StageTester)) or a whole graph
//! ([`TestRuntime`](testing::TestRuntime)) on the thread of the test, step by step, on virtual time.
//! [`service_time`](testing::TestRuntime::service_time) gives handlers some of it, so that queues grow and policies act.
//!
//! ```
//! use std::time::Duration;
//! use comporta::testing::{TestRuntime, record};
//! use comporta::{App, Plan, Retry, sources};
//!
//! let app = App::new("clockwork");
//! let ticks = app.source("ticks", || sources::every(Duration::from_secs(3600)));
//! let count = app.map("count", |tick: u64| tick + 1).retain();
//! app.connect(ticks, count);
//! let counted = record(&app, count);
//!
//! let plan = Plan::new().stage("count", |s| s.retry(Retry::new(2, Duration::from_secs(60))));
//! let mut runtime = TestRuntime::new(app, &plan)?.seeded(7); // the same seed, the same run
//! runtime.fail_next("count", "out of ink");
//! runtime.advance(Duration::from_secs(3600));
//! assert!(counted.take().is_empty()); // it failed, and waits for its second try
//! runtime.advance(Duration::from_secs(2 * 3600));
//! assert_eq!(counted.take(), [1, 2, 3]);
//! assert_eq!(runtime.snapshot().stage("count").unwrap().counts.retried, 1);
//! # Ok::<(), comporta::StartError>(())
//! ```

#[cfg(feature = "cli")]
pub use comporta_cli::{Build, Exit, IntoApp, main};
pub use comporta_derive::Ports;
pub use comporta_model::ack::{Obligation, Settled};
pub use comporta_model::async_stage::{
    AsyncCx, AsyncKeyedStage, AsyncStage, AsyncStageMut, Emissions,
};
pub use comporta_model::error::{Advice, Error, Outcome, Result};
pub use comporta_model::event::{Ev, Event, Held, Time};
pub use comporta_model::failed::Failed;
pub use comporta_model::graph::{self, GraphFault, GraphWarning};
pub use comporta_model::keyed::{EventTime, KeyedCx, KeyedStage, Prepared};
pub use comporta_model::plan::{
    Choice, ClusterPlan, ConnectorPlan, OnFailure, OnPanic, Plan, PlanFault, Retry, SetFault,
    StagePlan, StageSet, WhenFull,
};
pub use comporta_model::port::{AsInput, AsPort, Out, Port};
pub use comporta_model::replicas::Part;
pub use comporta_model::source::{Demand, IntoSource, Pull, Source};
pub use comporta_model::stage::{Cx, IntoStage, Stage, batched};
pub use comporta_model::window as windows;
#[cfg(feature = "json")]
pub use comporta_runtime::ReplayError;
pub use comporta_runtime::{
    AdmissionSnapshot, App, Client, Control, ControlError, Counts, Decision, Ended,
    EventTimeSnapshot, FailedEvent, Failure, Gateway, GatewaySnapshot, KeySnapshot, Latency,
    Opened, PolicyWarning, PoolSnapshot, PreparedRef, Reason, Refusal, Resource, Running,
    SendError, Sender, Shed, Snapshot, StageFailures, StageOf, StageRef, StageSnapshot, StartError,
    Summary, sources, testing,
};

pub use comporta_policy as policy;
/// Sockets, timers, callbacks and blocking calls that read like sequential code (feature `scheduler`), for the
/// handlers of [`App::stage_coroutine`] and [`sources::scheduler`].
#[cfg(feature = "scheduler")]
pub use comporta_scheduler as scheduler;

/// Plans as files (feature `plan`): read, checked, shown and compared.
#[cfg(feature = "plan")]
pub mod plan {
    pub use comporta_plan::{Difference, Effective, Mistake, PlanSpec, Report, keys};
}

/// The trait that `#[derive(Ports)]` implements, and the names that its code uses.
pub mod ports {
    #[doc(hidden)]
    pub use comporta_model::port::in_turn;
    pub use comporta_model::port::{Out, Port, PortVisitor, Ports, StageKey, Turns};
}

/// The code blocks of `README.md`, compiled and run with the doc-tests.
#[cfg(all(doctest, feature = "cli"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The code blocks of `docs/writing-a-policy.md`, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/writing-a-policy.md")]
struct WritingAPolicy;

/// The code blocks of `docs/waiting.md`, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/waiting.md")]
struct WaitingWithoutThreads;

/// The code blocks of `docs/keys.md`, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/keys.md")]
struct Keys;

/// The code blocks of `docs/event-scheduler.md`, likewise.
#[cfg(all(doctest, feature = "scheduler"))]
#[doc = include_str!("../../../docs/event-scheduler.md")]
struct EventScheduler;
