//! Hop 1 for events from outside: a handle that sends straight into the queues an input leads to.
//! After: `emit`. A caller that finds no room gets its event back, waits on its thread, or waits as a future;
//! in line it is served like everybody else, first in first out.
//! Invariant: an input ends when it is closed (or its last handle is gone) and no send is under way.
//! A send is under way for as long as its [`SendGuard`] lives, however it ends.
//! Long because the four ways to send are documented beside what they share.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use comporta_model::column::Duty;
use comporta_model::event::Meta;
use comporta_model::port::{Out, Ports};

use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::failure::Failure;
use crate::gateway::Requests;
use crate::node::{Node, Reading};
use crate::path::emit::{InLine, Links};
use crate::path::line::Place;
use crate::path::outlet::{Refusal, Sent};
use crate::path::ready::Task;
use crate::path::work;
use crate::snapshot::{Counts, StageSnapshot};
use crate::stage::permits::Shed;
use crate::sync::{AcqRel, Acquire, Arc, AtomicUsize, Mutex};

/// Why an event was not taken, with the event.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError<T> {
    /// A queue it goes to is full.
    Full(T),
    /// A queue it goes to is full, and waiting here would hold a worker: use `try_send` or
    /// `send_async` in handlers.
    WouldBlock(T),
    /// The admission controller of a stage it goes to did not let it in: for this reason.
    Refused(T, Shed),
    /// The program has not been started.
    NotStarted(T),
    /// The input was closed, or the program drains or has ended.
    Closed(T),
    /// The program stopped while the event waited for room; it counts as cancelled.
    Cancelled,
    /// There was no room in time; the event is shed as [`Abandoned`](crate::Shed::Abandoned).
    TimedOut,
}

impl<T> SendError<T> {
    /// The event, where it was given back.
    #[must_use]
    pub fn into_event(self) -> Option<T> {
        match self {
            SendError::Full(event)
            | SendError::WouldBlock(event)
            | SendError::Refused(event, _)
            | SendError::NotStarted(event)
            | SendError::Closed(event) => Some(event),
            SendError::Cancelled | SendError::TimedOut => None,
        }
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Refused(_, by) => {
                return write!(f, "the admission controller `{}` refused it", by.name());
            }
            SendError::Full(_) => "a queue it goes to is full",
            SendError::WouldBlock(_) => "a queue it goes to is full, and a worker must not wait",
            SendError::NotStarted(_) => "the program has not been started",
            SendError::Closed(_) => "the input is closed",
            SendError::Cancelled => "the program stopped while the event waited",
            SendError::TimedOut => "a queue it goes to was full until the time was up",
        })
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendError({self})")
    }
}

impl<T> std::error::Error for SendError<T> {}

/// A handle that sends events into a running program. Clone it for more threads; the input ends
/// when all clones are dropped, or one of them calls [`close`](Self::close).
///
/// ```
/// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::{App, SendError}; }
/// use comporta::{App, Plan, SendError};
///
/// let app = App::new("orders");
/// let (sender, orders) = app.input::<u32>("orders");
/// let fill = app.sink("fill", |order: u32| println!("order {order}"));
/// app.connect(orders, fill);
///
/// assert_eq!(sender.try_send(0), Err(SendError::NotStarted(0)));
/// let running = app.start(&Plan::new())?;
/// sender.send(1)?; // waits for room
/// if let Err(refused) = sender.try_send(2) {
///     println!("{refused}: {:?}", refused.into_event()); // no room: the event comes back
/// }
/// sender.close();
/// assert_eq!(sender.send(3), Err(SendError::Closed(3)));
/// let summary = running.wait();
/// # assert_eq!(summary.snapshot.stage("fill").unwrap().counts.handled, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sender<T: Send + 'static> {
    input: Arc<InputNode>,
    /// Links to the queues it leads to, kept for the next send.
    spare: Mutex<Vec<Links>>,
    /// What it says of what it sends, where that is not as the plan has it.
    tier: Option<u8>,
    within: Option<Duration>,
    takes: std::marker::PhantomData<fn(T)>,
}

/// Threads that send through one handle at once, and still find links that were kept.
const SPARE_MAX: usize = 4;

/// The input, as part of the graph.
pub(crate) struct InputNode {
    id: u32,
    /// Weak, for the core owns its nodes.
    core: OnceLock<Weak<Core>>,
    /// Sends under way, and whether it is closed or has ended.
    sending: AtomicUsize,
    handles: AtomicUsize,
    counts: Mutex<Counts>,
    /// What waits for replies, if it is a gateway.
    requests: Option<Arc<Requests>>,
}

const CLOSED: usize = 1 << 62;
const ENDED: usize = 1 << 63;

impl InputNode {
    pub(crate) fn new(id: u32, requests: Option<Arc<Requests>>) -> Arc<Self> {
        Arc::new(InputNode {
            id,
            core: OnceLock::new(),
            sending: AtomicUsize::new(0),
            handles: AtomicUsize::new(0),
            counts: Mutex::default(),
            requests,
        })
    }

    fn end(&self, core: &Core) {
        if self.sending.compare_exchange(CLOSED, CLOSED | ENDED, AcqRel, Acquire).is_ok() {
            let mut effects = Effects::default();
            core.stage_ended(self.id, &mut effects);
            core.dispatch(effects);
        }
    }

    fn shut(&self) {
        // Before the start it is only marked: `start` then ends it.
        if self.sending.fetch_or(CLOSED, AcqRel) == 0
            && let Some(core) = self.core.get().and_then(Weak::upgrade)
        {
            self.end(&core);
        }
    }

    /// What travels with an event that is sent now.
    fn meta(&self, core: &Core, tier: Option<u8>, within: Option<Duration>) -> Meta {
        let said = &core.settings.stages[self.id as usize];
        let now = core.clock.now();
        let deadline = within.or(said.deadline).map(|within| now + within);
        let tier = tier.unwrap_or(said.tier);
        let duty = Duty { deadline, ack: None };
        Meta { ingress: now, enqueued: now, duty, tier, ..Meta::default() }
    }

    fn links<T: Send + 'static>(&self, core: &Arc<Core>) -> Links {
        let mut out = <Out<T> as Ports>::new();
        Links::new(core, self.id, &mut out, false, Place::of_caller())
    }
}

/// A send that is under way: while there is one, its input does not end.
pub(crate) struct SendGuard {
    pub(crate) core: Arc<Core>,
    input: Arc<InputNode>,
}

impl SendGuard {
    /// Begins a send; gives the event back if that is too early or too late.
    pub(crate) fn begin<T>(input: &Arc<InputNode>, event: T) -> Result<(Self, T), SendError<T>> {
        let Some(core) = input.core.get() else { return Err(SendError::NotStarted(event)) };
        let Some(core) = core.upgrade() else { return Err(SendError::Closed(event)) };
        // First without a mark: those who come late do not seem to be under way.
        if input.sending.load(Acquire) & (CLOSED | ENDED) != 0 {
            return Err(SendError::Closed(event));
        }
        let before = input.sending.fetch_add(1, AcqRel);
        let sending = SendGuard { core, input: input.clone() };
        if before & (CLOSED | ENDED) == 0 {
            Ok((sending, event))
        } else {
            Err(SendError::Closed(event))
        }
    }

    fn count(&self, sent: Sent) {
        let mut counts = self.input.counts.lock();
        counts.emitted += sent.emitted as u64;
        counts.unrouted += sent.unrouted as u64;
    }
}

impl Drop for SendGuard {
    fn drop(&mut self) {
        if self.input.sending.fetch_sub(1, AcqRel) == CLOSED + 1 {
            self.input.end(&self.core);
        }
    }
}

impl<T: Send + 'static> Sender<T> {
    pub(crate) fn new(input: Arc<InputNode>) -> Self {
        input.handles.fetch_add(1, AcqRel);
        let takes = std::marker::PhantomData;
        Sender { input, spare: Mutex::default(), tier: None, within: None, takes }
    }

    /// How much what this handle sends matters to admission, whatever the plan says of the input:
    /// the higher, the longer it is let in.
    ///
    /// ```
    /// # let app = comporta_runtime::App::new("orders");
    /// # let (sender, orders) = app.input::<u32>("orders");
    /// # let fill = app.sink("fill", |_: u32| ());
    /// # app.connect(orders, fill);
    /// use std::time::Duration;
    ///
    /// let express = sender.clone().tier(9).within(Duration::from_millis(50));
    /// # let running = app.start(&comporta_model::plan::Plan::new())?;
    /// express.send(1)?;
    /// sender.send(2)?;
    /// # sender.close();
    /// # running.wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn tier(mut self, tier: u8) -> Self {
        self.tier = Some(tier);
        self
    }

    /// Within which time what this handle sends, and all it leads to, should be done, whatever
    /// the plan says of the input. Handlers see it as their
    /// [`deadline`](comporta_model::stage::Cx::deadline), and the admission controller `deadline`
    /// sheds what would be late.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.within = Some(within);
        self
    }

    /// Sends an event if there is room now.
    ///
    /// # Errors
    /// The event, when a queue it goes to is full or the input is closed.
    pub fn try_send(&self, event: T) -> Result<(), SendError<T>> {
        let (sending, event) = SendGuard::begin(&self.input, event)?;
        let meta = self.meta(&sending.core);
        self.enter(sending, event, Full::GivenBack, &meta).map(drop)
    }

    /// Sends an event, waiting for room on this thread. In a handler, which must not hold its worker, it
    /// gives the event back instead.
    ///
    /// # Errors
    /// The event, when the input is closed, a `reject` queue is full, or this is a worker.
    pub fn send(&self, event: T) -> Result<(), SendError<T>> {
        let (sending, event) = SendGuard::begin(&self.input, event)?;
        let may_wait = !work::must_not_wait() && !sending.core.is_tested();
        let full = if may_wait { Full::Waits } else { Full::WouldBlock };
        let meta = self.meta(&sending.core);
        let Some(mut waiting) = self.enter(sending, event, full, &meta)? else { return Ok(()) };
        while !waiting.is_done() {
            if !waiting.links.place().wait() || !waiting.go_on() {
                return Err(SendError::Cancelled);
            }
        }
        self.keep(waiting.links);
        Ok(())
    }

    /// Sends an event, waiting for room on this thread for at most `timeout`. In a handler it gives
    /// the event back instead of waiting, as [`send`](Self::send) does.
    ///
    /// # Errors
    /// The event, when the input is closed, a `reject` queue is full, or this is a worker.
    /// [`SendError::TimedOut`] when there was no room in time: the event stood in line until then, some
    /// of several queues may have got their copy, and what was left is shed as
    /// [`Abandoned`](crate::Shed::Abandoned).
    pub fn send_timeout(&self, event: T, timeout: Duration) -> Result<(), SendError<T>> {
        let (sending, event) = SendGuard::begin(&self.input, event)?;
        let may_wait = !work::must_not_wait() && !sending.core.is_tested();
        let full = if may_wait { Full::Waits } else { Full::WouldBlock };
        let core = sending.core.clone();
        let due = core.clock.now() + timeout;
        let meta = self.meta(&core);
        let Some(mut waiting) = self.enter(sending, event, full, &meta)? else { return Ok(()) };
        while !waiting.is_done() {
            let granted = waiting.links.place().wait_until(&core.clock, due);
            match granted {
                Some(true) if waiting.go_on() => {}
                Some(_) => return Err(SendError::Cancelled),
                None => return Err(SendError::TimedOut),
            }
        }
        self.keep(waiting.links);
        Ok(())
    }

    /// Sends an event, waiting for room as a future. If the future is dropped while it waits, the
    /// event is shed as [`Abandoned`](crate::Shed::Abandoned).
    ///
    /// # Errors
    /// The event, when the input is closed or a `reject` queue is full.
    pub async fn send_async(&self, event: T) -> Result<(), SendError<T>> {
        let (sending, event) = SendGuard::begin(&self.input, event)?;
        let meta = self.meta(&sending.core);
        let entered = self.enter(sending, event, Full::Waits, &meta)?;
        drop(meta);
        let Some(mut waiting) = entered else { return Ok(()) };
        let place = waiting.links.place().clone();
        while !waiting.is_done() {
            if !poll_fn(|cx| place.poll(cx.waker())).await || !waiting.go_on() {
                return Err(SendError::Cancelled);
            }
        }
        self.keep(waiting.links);
        Ok(())
    }

    /// Closes the input: no handle can send any more. It ends once the sends under way have.
    pub fn close(&self) {
        self.input.shut();
    }

    /// Hands the event over if every queue it goes to has room; if not, does as `full` says.
    pub(crate) fn enter(
        &self,
        sending: SendGuard,
        event: T,
        full: Full,
        meta: &Meta,
    ) -> Result<Option<Waiting>, SendError<T>> {
        let core = &sending.core;
        let spare = self.spare.lock().pop();
        let mut links = spare.unwrap_or_else(|| self.input.links::<T>(core));
        let counts_a_panic = CountsPanic(&self.input);
        links.address(event);
        std::mem::forget(counts_a_panic);
        let mut visit = Visit::new(0, None);
        if let Err(refused) = links.reserve::<T>(core, meta, &mut visit)
            && (refused.refusal != Refusal::Full || full != Full::Waits)
        {
            let event = links.take_back::<T>(&refused, &mut visit.effects);
            core.dispatch(visit.effects);
            self.keep(links);
            return Err(match refused.refusal {
                Refusal::Admission(by) => SendError::Refused(event, by),
                Refusal::Full if full == Full::WouldBlock => SendError::WouldBlock(event),
                Refusal::Full | Refusal::Rejected => SendError::Full(event),
            });
        }
        let sent = links.send::<T>(core, meta, &mut visit);
        core.dispatch(visit.effects);
        sending.count(sent);
        if links.in_line() == InLine::No {
            self.keep(links);
            return Ok(None);
        }
        if full == Full::Waits {
            return Ok(Some(Waiting { links, sending }));
        }
        // The queue changed its ways after a place was reserved: dropping the links gives the event up.
        Err(SendError::Cancelled)
    }

    pub(crate) fn input(&self) -> &Arc<InputNode> {
        &self.input
    }

    /// What travels with an event that is sent now.
    pub(crate) fn meta(&self, core: &Core) -> Meta {
        self.input.meta(core, self.tier, self.within)
    }

    /// Keeps links for the next send.
    pub(crate) fn keep(&self, links: Links) {
        let mut spare = self.spare.lock();
        let surplus = if spare.len() < SPARE_MAX {
            spare.push(links);
            None
        } else {
            Some(links)
        };
        drop(spare);
        drop(surplus);
    }
}

/// Counts an event as lost whose key function or `Clone` panics; the panic goes on to the caller.
struct CountsPanic<'a>(&'a InputNode);

impl Drop for CountsPanic<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().lost += 1;
    }
}

/// What becomes of an event that finds no room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    GivenBack,
    /// It is given back, and would have had to wait.
    WouldBlock,
    Waits,
}

/// A send that waits for room. Dropped while it waits, it leaves the line and its event is shed as abandoned, or
/// cancelled if the program has stopped; then the send is over.
pub(crate) struct Waiting {
    pub(crate) links: Links,
    sending: SendGuard,
}

impl Waiting {
    pub(crate) fn is_done(&self) -> bool {
        self.links.in_line() == InLine::No
    }

    /// Goes on with the room that was granted. Returns `false` if the program was stopped meanwhile.
    #[must_use]
    pub(crate) fn go_on(&mut self) -> bool {
        let mut visit = Visit::new(0, None);
        self.links.resume(&self.sending.core, &mut visit);
        self.sending.core.dispatch(visit.effects);
        !self.links.place().is_closed()
    }
}

impl<T: Send + 'static> Clone for Sender<T> {
    fn clone(&self) -> Self {
        let mut more = Sender::new(self.input.clone());
        (more.tier, more.within) = (self.tier, self.within);
        more
    }
}

impl<T: Send + 'static> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.input.handles.fetch_sub(1, AcqRel) == 1 {
            self.input.shut();
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("input", &self.input.id).finish_non_exhaustive()
    }
}

impl Node for InputNode {
    fn visit(&self, _: &Arc<Core>, _: Task, _: &mut Visit) {}

    fn start(&self, core: &Arc<Core>, effects: &mut Effects) -> Result<(), String> {
        self.requests.iter().for_each(|requests| requests.start(core)); // before requests are taken
        let _ = self.core.set(Arc::downgrade(core));
        // Closed, or every handle dropped, before the start.
        if self.sending.compare_exchange(CLOSED, CLOSED | ENDED, AcqRel, Acquire).is_ok() {
            core.stage_ended(self.id, effects);
        }
        Ok(())
    }

    fn close(&self, _: &Core, _: &mut Effects) {
        self.shut();
    }

    fn cancel(&self, effects: &mut Effects) {
        self.sending.fetch_or(CLOSED | ENDED, AcqRel);
        self.requests.iter().for_each(|requests| requests.cancel(effects));
    }

    fn alarm(&self, core: &Arc<Core>) {
        self.requests.iter().for_each(|requests| requests.alarm(core));
    }

    fn gateway(&self) -> Option<&Arc<Requests>> {
        self.requests.as_ref()
    }

    fn snapshot(&self, name: &str, priority: i32) -> StageSnapshot {
        StageSnapshot {
            counts: *self.counts.lock(),
            // Not while somebody sends who began before a stop: what is sent then is yet to be counted.
            ended: self.sending.load(Acquire) == CLOSED | ENDED,
            ..StageSnapshot::blank(name, priority)
        }
    }

    fn reading(&self) -> Reading {
        Reading { instances: 1, free: 1, ..Reading::default() } // what it sends is counted where it goes
    }

    fn failures(&self) -> Vec<Failure> {
        Vec::new()
    }

    fn inlet(self: Arc<Self>) -> Box<dyn Any> {
        Box::new(())
    }
}
