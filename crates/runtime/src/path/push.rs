//! Hop 1 for events from outside: a handle that pushes straight into the queues an input leads to.
//! After: `admit`. A pusher that finds no room is told, waits on its thread, or waits as a future;
//! in line it is served like everybody else, first in first out.
//! Invariant: an input ends when it is closed (or its last handle is gone) and no push is under way.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use comporta_model::event::{Meta, Time};
use comporta_model::port::Out;
use comporta_model::port::Ports;

use crate::core::{Core, Node, Reading};
use crate::failure::Failure;
use crate::path::admit::{Shed, Wakes, Who};
use crate::path::caller::Caller;
use crate::path::emit::{Drawing, Line, Links, Sending};
use crate::path::ready::Task;
use crate::path::work;
use crate::snapshot::{Counts, StageSnapshot};
use crate::sync::{AcqRel, Acquire, Arc, AtomicUsize, Mutex};

/// Why an event was not taken, with the event.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError<T> {
    /// A queue it goes to is full.
    Full(T),
    /// A queue it goes to is full, and waiting here would hold a worker: use `try_push` or
    /// `push_async` in handlers.
    WouldBlock(T),
    /// The admission controller of a stage it goes to did not let it in: for this reason.
    Refused(T, Shed),
    /// The program has not been started.
    NotStarted(T),
    /// The input was closed, or the program drains or has ended.
    Closed(T),
    /// The program stopped while the event waited for room; it counts as cancelled.
    Cancelled,
}

impl<T> PushError<T> {
    /// The event, where it was given back.
    #[must_use]
    pub fn into_event(self) -> Option<T> {
        match self {
            PushError::Full(event)
            | PushError::WouldBlock(event)
            | PushError::Refused(event, _)
            | PushError::NotStarted(event)
            | PushError::Closed(event) => Some(event),
            PushError::Cancelled => None,
        }
    }
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PushError::Refused(_, by) => {
                return write!(f, "the admission controller `{}` refused it", by.name());
            }
            PushError::Full(_) => "a queue it goes to is full",
            PushError::WouldBlock(_) => "a queue it goes to is full, and a worker must not wait",
            PushError::NotStarted(_) => "the program has not been started",
            PushError::Closed(_) => "the input is closed",
            PushError::Cancelled => "the program stopped while the event waited",
        })
    }
}

impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PushError({self})")
    }
}

impl<T> std::error::Error for PushError<T> {}

/// A handle that pushes events into a running program. Clone it for more threads; the input ends
/// when all clones are dropped, or one of them calls [`close`](Self::close).
///
/// ```
/// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::{App, PushError}; }
/// use comporta::{App, Plan, PushError};
///
/// let app = App::new("orders");
/// let (push, orders) = app.input::<u32>("orders");
/// let fill = app.sink("fill", |order: u32| println!("order {order}"));
/// app.connect(orders, fill);
///
/// assert_eq!(push.try_push(0), Err(PushError::NotStarted(0)));
/// let running = app.start(&Plan::new())?;
/// push.push(1)?; // waits for room
/// if let Err(refused) = push.try_push(2) {
///     println!("{refused}: {:?}", refused.into_event()); // no room: the event comes back
/// }
/// push.close();
/// assert_eq!(push.push(3), Err(PushError::Closed(3)));
/// let summary = running.wait();
/// # assert_eq!(summary.snapshot.stage("fill").unwrap().counts.handled, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Push<T: Send + 'static> {
    input: Arc<InputNode>,
    door: Mutex<Option<Door<T>>>,
    /// What it says of what it pushes, where that is not as the plan has it.
    tier: Option<u8>,
    within: Option<Duration>,
}

struct Door<T: Send + 'static> {
    out: Out<T>,
    links: Links,
    who: Who,
}

/// The input, as part of the graph.
pub(crate) struct InputNode {
    id: u32,
    /// Weak, for the core owns its nodes.
    core: OnceLock<Weak<Core>>,
    /// Pushes under way, and whether it is closed or has ended.
    pushing: AtomicUsize,
    handles: AtomicUsize,
    counts: Mutex<Counts>,
}

const CLOSED: usize = 1 << 62;
const ENDED: usize = 1 << 63;

impl InputNode {
    pub(crate) fn new(id: u32) -> Arc<Self> {
        Arc::new(InputNode {
            id,
            core: OnceLock::new(),
            pushing: AtomicUsize::new(0),
            handles: AtomicUsize::new(0),
            counts: Mutex::default(),
        })
    }

    fn end_push(&self, core: &Core) {
        if self.pushing.fetch_sub(1, AcqRel) == CLOSED + 1 {
            self.end(core);
        }
    }

    fn end(&self, core: &Core) {
        if self.pushing.compare_exchange(CLOSED, CLOSED | ENDED, AcqRel, Acquire).is_ok() {
            let mut wakes = Wakes::default();
            core.stage_ended(self.id, &mut wakes);
            core.dispatch(wakes);
        }
    }

    fn shut(&self) {
        // Before the start it is only marked: `start` then ends it.
        if self.pushing.fetch_or(CLOSED, AcqRel) == 0
            && let Some(core) = self.core.get().and_then(Weak::upgrade)
        {
            self.end(&core);
        }
    }
}

impl<T: Send + 'static> Push<T> {
    pub(crate) fn new(input: Arc<InputNode>) -> Self {
        input.handles.fetch_add(1, AcqRel);
        Push { input, door: Mutex::new(None), tier: None, within: None }
    }

    /// How much what this handle pushes matters to admission, whatever the plan says of the input:
    /// the higher, the longer it is let in.
    ///
    /// ```
    /// # let app = comporta_runtime::App::new("orders");
    /// # let (push, orders) = app.input::<u32>("orders");
    /// # let fill = app.sink("fill", |_: u32| ());
    /// # app.connect(orders, fill);
    /// use std::time::Duration;
    ///
    /// let express = push.clone().tier(9).within(Duration::from_millis(50));
    /// # let running = app.start(&comporta_model::plan::Plan::new())?;
    /// express.push(1)?;
    /// push.push(2)?;
    /// # push.close();
    /// # running.wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn tier(mut self, tier: u8) -> Self {
        self.tier = Some(tier);
        self
    }

    /// Within which time what this handle pushes, and all it leads to, should be done, whatever
    /// the plan says of the input. Handlers see it as their
    /// [`deadline`](comporta_model::stage::Cx::deadline), and the admission controller `deadline`
    /// sheds what would be late.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.within = Some(within);
        self
    }

    /// Pushes if there is room now.
    ///
    /// # Errors
    /// The event, when a queue it goes to is full or the input is closed.
    pub fn try_push(&self, event: T) -> Result<(), PushError<T>> {
        self.with_input(event, |core, event| match self.enter(core, event) {
            Ok(()) => Ok(()),
            Err(full) => Err(self.refuse(full)),
        })
    }

    /// Pushes, waiting for room on this thread. In a handler, which must not hold its worker, it
    /// gives the event back instead.
    ///
    /// # Errors
    /// The event, when the input is closed, a `reject` queue is full, or this is a worker.
    pub fn push(&self, event: T) -> Result<(), PushError<T>> {
        self.with_input(event, |core, event| {
            let event = match self.enter(core, event) {
                Ok(()) => return Ok(()),
                Err(full) if full.rejects => return Err(self.refuse(full)),
                Err(full) if work::is_worker() => {
                    self.count_refusal();
                    return Err(PushError::WouldBlock(full.event));
                }
                Err(full) => full.event,
            };
            let (caller, mut door) = self.stand_in_line(core, event);
            loop {
                let Some(room) = caller.wait() else { return Err(PushError::Cancelled) };
                if door.go_on(core, room) {
                    return Ok(());
                }
            }
        })
    }

    /// Pushes, waiting for room as a future. Dropping the future while it waits cancels the event.
    ///
    /// # Errors
    /// The event, when the input is closed or a `reject` queue is full.
    pub async fn push_async(&self, event: T) -> Result<(), PushError<T>> {
        let mut line = None;
        self.with_input(event, |core, event| match self.enter(core, event) {
            Ok(()) => Ok(()),
            Err(full) if full.rejects => Err(self.refuse(full)),
            Err(full) => {
                // Under way for as long as it waits, so that the input does not end before.
                self.input.pushing.fetch_add(1, AcqRel);
                let (caller, door) = self.stand_in_line(core, full.event);
                let (core, input) = (core.clone(), self.input.clone());
                line = Some(Waiting { core, caller, door, input });
                Ok(())
            }
        })?;
        let Some(mut waiting) = line else { return Ok(()) };
        loop {
            let granted = poll_fn(|cx| waiting.caller.poll(cx.waker())).await;
            let Some(room) = granted else { return Err(PushError::Cancelled) };
            if waiting.door.go_on(&waiting.core, room) {
                return Ok(());
            }
        }
    }

    /// Nothing more will be pushed, by any handle: the input ends once pushes under way have.
    pub fn close(&self) {
        self.input.shut();
    }

    /// Calls `body` with the input held open.
    fn with_input(
        &self,
        event: T,
        body: impl FnOnce(&Arc<Core>, T) -> Result<(), PushError<T>>,
    ) -> Result<(), PushError<T>> {
        let Some(core) = self.input.core.get() else { return Err(PushError::NotStarted(event)) };
        let Some(core) = core.upgrade() else { return Err(PushError::Closed(event)) };
        let open = self.input.pushing.fetch_add(1, AcqRel) & (CLOSED | ENDED) == 0;
        let result = if open { body(&core, event) } else { Err(PushError::Closed(event)) };
        self.input.end_push(&core);
        result
    }

    /// Hands the event over if every queue it goes to has room.
    fn enter(&self, core: &Arc<Core>, event: T) -> Result<(), Full<T>> {
        let mut wakes = Wakes::default();
        let mut slot = self.door.lock();
        let door = slot.get_or_insert_with(|| Door::new(core, self.input.id, Caller::new()));
        let meta = self.meta(core);
        let by = Drawing { core, who: &door.who, alone: false, meta: &meta };
        door.links.draw(&mut door.out, 1, usize::MAX, by);
        let result = match door.out.try_send(event) {
            Ok(()) => {
                let sent = door.flush(core, &meta, &mut wakes);
                self.count(&sent);
                Ok(())
            }
            Err(event) => {
                door.links.release(&mut wakes);
                Err(Full { event, rejects: door.links.rejects(), by: door.links.refused() })
            }
        };
        drop(slot);
        core.dispatch(wakes);
        result
    }

    /// Counts an event that is given back with the queues that had no room for it.
    fn count_refusal(&self) {
        if let Some(door) = &mut *self.door.lock() {
            door.links.refuse();
        }
    }

    fn refuse(&self, full: Full<T>) -> PushError<T> {
        self.count_refusal();
        match full.by {
            Some(by) => PushError::Refused(full.event, by),
            None => PushError::Full(full.event),
        }
    }

    /// What travels with an event that is pushed now.
    fn meta(&self, core: &Core) -> Meta {
        let said = &core.settings.stages[self.input.id as usize];
        let now = core.clock.now();
        let deadline = self.within.or(said.deadline).map(|within| now + within);
        Meta { ingress: now, deadline, tier: self.tier.unwrap_or(said.tier), ..Meta::default() }
    }

    fn stand_in_line(&self, core: &Arc<Core>, event: T) -> (Arc<Caller>, Door<T>) {
        let caller = Caller::new();
        let mut door = Door::new(core, self.input.id, caller.clone());
        let mut wakes = Wakes::default();
        door.out.send(event);
        let sent = door.flush(core, &self.meta(core), &mut wakes);
        if sent.line == Line::No {
            caller.grant(0); // there was room after all
        }
        self.count(&sent);
        core.dispatch(wakes);
        (caller, door)
    }

    fn count(&self, sent: &Entered) {
        let mut counts = self.input.counts.lock();
        counts.emitted += sent.emitted as u64;
        counts.unrouted += sent.unrouted as u64;
    }
}

/// An event that found no room, whether a queue it goes to rejects, and the admission controller
/// that would not have it, if it was one.
struct Full<T> {
    event: T,
    rejects: bool,
    by: Option<Shed>,
}

struct Entered {
    line: Line,
    emitted: usize,
    unrouted: usize,
}

impl<T: Send + 'static> Door<T> {
    fn new(core: &Core, id: u32, caller: Arc<Caller>) -> Self {
        let mut out = <Out<T> as Ports>::new();
        let links = Links::new(core, id, &mut out, false);
        Door { out, links, who: Who::Caller(caller) }
    }

    fn flush(&mut self, core: &Core, meta: &Meta, wakes: &mut Wakes) -> Entered {
        let mut sending = Sending {
            core,
            meta,
            who: &self.who,
            wakes,
            fills: true,
            line: Line::No,
            emitted: 0,
            unrouted: 0,
        };
        self.links.flush(&mut self.out, &mut sending);
        Entered { line: sending.line, emitted: sending.emitted, unrouted: sending.unrouted }
    }

    /// Goes on with `room` more places; says whether all has entered.
    fn go_on(&mut self, core: &Core, room: usize) -> bool {
        let mut wakes = Wakes::default();
        let line = self.links.resume(core, room, &self.who, &mut wakes);
        core.dispatch(wakes);
        line == Line::No
    }
}

/// A future that waits for room. Dropped while it waits, it leaves the line and its event counts
/// as cancelled.
struct Waiting<T: Send + 'static> {
    core: Arc<Core>,
    caller: Arc<Caller>,
    door: Door<T>,
    input: Arc<InputNode>,
}

impl<T: Send + 'static> Drop for Waiting<T> {
    fn drop(&mut self) {
        let room = self.caller.leave();
        let mut wakes = Wakes::default();
        self.door.links.abandon(room, &mut wakes);
        self.core.dispatch(wakes);
        self.input.end_push(&self.core);
    }
}

impl<T: Send + 'static> Clone for Push<T> {
    fn clone(&self) -> Self {
        let mut more = Push::new(self.input.clone());
        (more.tier, more.within) = (self.tier, self.within);
        more
    }
}

impl<T: Send + 'static> Drop for Push<T> {
    fn drop(&mut self) {
        if self.input.handles.fetch_sub(1, AcqRel) == 1 {
            self.input.shut();
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Push<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").field("input", &self.input.id).finish_non_exhaustive()
    }
}

impl Node for InputNode {
    fn visit(&self, _: &Arc<Core>, _: Task, _: Time, _: &mut Wakes) {}

    fn start(&self, core: &Arc<Core>, wakes: &mut Wakes) -> Result<(), String> {
        let _ = self.core.set(Arc::downgrade(core));
        // Closed, or every handle dropped, before the start.
        if self.pushing.compare_exchange(CLOSED, CLOSED | ENDED, AcqRel, Acquire).is_ok() {
            core.stage_ended(self.id, wakes);
        }
        Ok(())
    }

    fn close(&self, _: &Core, _: &mut Wakes) {
        self.shut();
    }

    fn cancel(&self) {
        self.pushing.fetch_or(CLOSED | ENDED, AcqRel);
    }

    fn snapshot(&self, name: &str, priority: i32) -> StageSnapshot {
        StageSnapshot {
            counts: *self.counts.lock(),
            ended: self.pushing.load(Acquire) & ENDED != 0,
            ..StageSnapshot::blank(name, priority)
        }
    }

    fn reading(&self) -> Reading {
        Reading { instances: 1, ..Reading::default() } // what it sends is counted where it goes
    }

    fn failures(&self) -> Vec<Failure> {
        Vec::new()
    }

    fn inlet(self: Arc<Self>) -> Box<dyn Any> {
        Box::new(())
    }
}
