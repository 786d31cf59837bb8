//! An event scheduler on a thread of its own, as a node of the graph. It is an input whose handle the loop has.
//! Before: `App` declares it. After: `path::sender`, with what the coroutines send.
//!
//! Invariants: the thread is started with the program, and the input ends after it, however it ends: what coroutines
//! have begun to send is sent. A drain stops the loop; a stop ends it at once.

use std::any::Any;
use std::future::Future;
use std::pin::pin;
use std::sync::{OnceLock, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use comporta_model::graph::Kind;
use comporta_model::port::StageKey;
use comporta_scheduler::{Failure as Ended, Handle, Notifier, Scheduler, listen, sources};

use crate::app::App;
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::failure::Failure;
use crate::node::{Node, Reading};
use crate::path::ready::Task;
use crate::path::sender::{InputNode, Sender};
use crate::snapshot::StageSnapshot;
use crate::sync::{Arc, Mutex};

/// Runs a scheduler on the loop's thread, until it is stopped or has nothing more to do.
type Body = Box<dyn FnOnce(&mut Scheduler, &Arc<Core>) + Send>;

pub(super) struct LoopNode {
    input: Arc<InputNode>,
    name: String,
    body: Mutex<Option<Body>>,
    /// Called at a stop.
    on_stop: Box<dyn Fn() + Send + Sync>,
    handle: OnceLock<Handle>,
}

impl App {
    /// Declares a loop; `body` is handed what sends its events.
    pub(super) fn add_loop<T: Send + 'static>(
        &self,
        name: String,
        on_stop: impl Fn() + Send + Sync + 'static,
        body: impl FnOnce(Sender<T>, &mut Scheduler, &Arc<Core>) + Send + 'static,
    ) -> StageKey {
        self.add(name.clone(), Kind::Input, "()", &["out"], move |site| {
            let input = InputNode::new(site.id, None);
            let sender = Sender::new(input.clone());
            let body: Body = Box::new(move |scheduler, core| body(sender, scheduler, core));
            Arc::new(LoopNode {
                input,
                name,
                body: Mutex::new(Some(body)),
                on_stop: Box::new(on_stop),
                handle: OnceLock::new(),
            })
        })
    }
}

impl LoopNode {
    fn stop(&self) {
        if let Some(handle) = self.handle.get() {
            handle.stop();
        }
    }
}

impl Node for LoopNode {
    fn visit(&self, _: &Arc<Core>, _: Task, _: &mut Visit) {}

    fn start(&self, core: &Arc<Core>, effects: &mut Effects) -> Result<(), String> {
        if core.is_tested() {
            return Err("an event loop has a thread of its own and cannot be stepped".to_owned());
        }
        self.input.start(core, effects)?;
        let body = self.body.lock().take().ok_or("it was started already")?;
        let (began, begun) = mpsc::channel();
        let thread = format!("{}-{}", core.graph.name, self.name);
        let spawned = core.spawn(thread, move |core| match Scheduler::new() {
            Err(error) => drop(began.send(Err(error))),
            Ok(mut scheduler) => {
                let _ = began.send(Ok(scheduler.handle()));
                body(&mut scheduler, core);
            }
        });
        let begun = spawned.and_then(|()| begun.recv().unwrap_or_else(|_| Err(broken())));
        let handle = begun.map_err(|error| format!("no event loop: {error}"))?;
        let _ = self.handle.set(handle);
        Ok(())
    }

    fn inlet(self: Arc<Self>) -> Box<dyn Any> {
        self.input.clone().inlet()
    }

    fn close(&self, _: &Core, _: &mut Effects) {
        self.stop();
    }

    fn cancel(&self, effects: &mut Effects) {
        self.input.cancel(effects);
        (self.on_stop)();
        self.stop();
    }

    fn snapshot(&self, name: &str, priority: i32) -> StageSnapshot {
        self.input.snapshot(name, priority)
    }

    fn reading(&self) -> Reading {
        self.input.reading()
    }

    fn failures(&self) -> Vec<Failure> {
        self.input.failures()
    }
}

fn broken() -> std::io::Error {
    std::io::Error::other("its thread ended before it began")
}

/// Reports a failure of a coroutine that costs no event.
pub(super) fn report(core: &Core, name: &str, failure: &Ended) {
    if !matches!(failure, Ended::Cancelled) {
        core.report(format!("the event loop `{name}`: {failure}"));
    }
}

/// Suspends the coroutine until a future is ready. `None` if the coroutine is unwinding and would have to wait.
pub(super) fn wait_for<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    // Mostly there is room, and nothing to wait for.
    let mut context = Context::from_waker(Waker::noop());
    if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
        return Some(output);
    }
    let mut woken = None;
    let source = sources::callback(|notifier| {
        woken = Some(Waker::from(Arc::new(Woken(notifier))));
        Ok(())
    });
    let wakes = listen(source).ok()?;
    let waker = woken?;
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        wakes.next().ok()?;
    }
}

/// Wakes the coroutine that waits for a future, from any thread.
struct Woken(Notifier<()>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // A full mailbox holds a wake-up that was not seen; if the future is gone, it is not listened to.
        let _ = self.0.notify(());
    }
}
