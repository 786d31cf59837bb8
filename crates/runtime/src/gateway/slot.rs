//! What a request waits in, until it ends: shared by its client, its group, and the open requests.
//! Before: `Client::request`. After: `replies`, or `requests`, which ends it.

use std::any::Any;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use comporta_model::ack::{AckGroup, Awaits, Because, Fate, Settled};
use comporta_model::event::Time;

use super::Refusal;
use super::requests::{AnySlot, Requests, Shut, wake};
use crate::core::Core;
use crate::snapshot::GatewaySnapshot;
use crate::stage::permits::Shed;
use crate::sync::{Acquire, Arc, AtomicBool, Mutex, Release};
use crate::user;

/// How a request ended.
pub(super) enum End<R> {
    Reply(R),
    Refused(Why),
}

/// Why a request that was begun has no reply.
pub(super) enum Why {
    Shed { stage: String, reason: Shed },
    Failed { stage: Option<String>, reason: String },
    NoReply,
    Deadline,
    Cancelled,
}

/// What a request waits in.
pub(super) struct Slot<R> {
    pub(super) requests: Arc<Requests>,
    number: u64,
    deadline: Option<Time>,
    /// Nobody waits for a reply any more, and there was none.
    over: AtomicBool,
    state: Mutex<SlotState<R>>,
}

enum SlotState<R> {
    Open(Open),
    Ended(End<R>),
    /// The client has the reply, or has gone.
    Gone,
}

/// A request that has not ended.
#[derive(Default)]
struct Open {
    waker: Option<Waker>,
    /// Why events that it led to failed or were shed: the first of each.
    failed: Option<Why>,
    shed: Option<Why>,
}

impl<R> Slot<R> {
    /// Ends the request, if it has not ended. Returns whom to wake.
    fn end(&self, end: impl FnOnce(&mut Open) -> End<R>) -> Result<Option<Waker>, Ended> {
        let mut state = self.state.lock();
        let SlotState::Open(open) = &mut *state else { return Err(Ended) };
        let waker = open.waker.take();
        let end = end(open);
        *state = SlotState::Ended(end);
        Ok(waker)
    }

    /// Whether it has ended; if not, who asks is woken when it does.
    pub(super) fn is_ended(&self, cx: &Context<'_>) -> bool {
        let fresh = cx.waker().clone(); // user code: not under the lock
        let mut state = self.state.lock();
        let (ended, spare) = match &mut *state {
            SlotState::Open(open) => (false, open.waker.replace(fresh)),
            _ => (true, Some(fresh)),
        };
        drop(state);
        user::discard(spare);
        ended
    }

    /// Takes how it ended.
    fn poll(&self, cx: &Context<'_>) -> Poll<End<R>> {
        if !self.is_ended(cx) {
            return Poll::Pending;
        }
        match std::mem::replace(&mut *self.state.lock(), SlotState::Gone) {
            SlotState::Ended(end) => Poll::Ready(end),
            // Only the client takes it, and once.
            _ => Poll::Ready(End::Refused(Why::Cancelled)),
        }
    }

    /// Whether its deadline has passed, be its alarm before us or behind.
    fn is_late(&self) -> bool {
        self.deadline.zip(self.requests.core()).is_some_and(|(due, core)| due <= core.clock.now())
    }

    /// Whether a reply would still be the first.
    pub(super) fn is_open(&self) -> bool {
        matches!(*self.state.lock(), SlotState::Open(_))
    }

    /// The first reply ends the request, and wakes its client: no lock is held. Returns whether it was first.
    pub(super) fn reply(&self, reply: R) -> bool {
        let mut reply = Some(reply);
        let waker = self.end(|_| match reply.take() {
            Some(reply) => End::Reply(reply),
            None => End::Refused(Why::NoReply),
        });
        let Ok(waker) = waker else { return false };
        self.requests.close(self.number, self.deadline, |counts| counts.replied += 1);
        wake(waker);
        true
    }
}

/// It had ended before.
pub(super) struct Ended;

impl<R: Send> AnySlot for Slot<R> {
    fn refuse(&self, why: Why) -> Result<Option<Waker>, Ended> {
        let waker = self.end(|_| End::Refused(why))?;
        self.over.store(true, Release);
        Ok(waker)
    }
}

/// The slot as whoever waits for the group.
pub(super) struct Waits<R>(pub(super) Arc<Slot<R>>);

impl<R: Send + 'static> Awaits for Waits<R> {
    fn settled(&self, settled: Settled) {
        let slot = &self.0;
        let late = slot.is_late();
        let mut count: fn(&mut GatewaySnapshot) = |counts| counts.no_reply += 1;
        let waker = slot.end(|open| {
            End::Refused(if late {
                count = |counts| counts.expired += 1;
                Why::Deadline // that it was given up, or dropped, for this is not the client's doing
            } else if settled.failed > 0 {
                count = |counts| counts.failed += 1;
                let dropped = "what was owed for it was dropped".to_owned();
                let unknown = Why::Failed { stage: None, reason: dropped };
                open.failed.take().unwrap_or(unknown)
            } else if settled.shed > 0 {
                count = |counts| counts.shed += 1;
                let unknown = Why::Shed { stage: String::new(), reason: Shed::Ended };
                open.shed.take().unwrap_or(unknown)
            } else if settled.cancelled > 0 {
                count = |counts| counts.cancelled += 1;
                Why::Cancelled
            } else {
                Why::NoReply
            })
        });
        if let Ok(waker) = waker {
            slot.requests.close(slot.number, slot.deadline, count);
            slot.requests.wake_later(waker);
        }
    }

    fn is_stopped(&self) -> bool {
        self.0.requests.core().is_none_or(|core| core.is_stopped())
    }

    fn because(&self, because: &Because<'_>) {
        let mut state = self.0.state.lock();
        let SlotState::Open(open) = &mut *state else { return };
        match because {
            Because::Failed { stage, reason } => {
                open.failed.get_or_insert_with(|| Why::Failed {
                    stage: Some((*stage).to_owned()),
                    reason: reason.to_string(),
                });
            }
            Because::Shed { stage, reason } => {
                open.shed.get_or_insert_with(|| Why::Shed {
                    stage: (*stage).to_owned(),
                    reason: Shed::named(reason).unwrap_or(Shed::Admission),
                });
            }
        }
    }

    fn is_over(&self, now: Time) -> bool {
        let slot = &self.0;
        let late = slot.deadline.is_some_and(|deadline| deadline <= now);
        slot.over.load(Acquire) || (late && slot.is_open())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// A request as its client holds it. Dropped before its end, it is given up.
pub(super) struct Asked<R: Send + 'static> {
    pub(super) slot: Arc<Slot<R>>,
    /// Held open until the request has been sent.
    pub(super) group: Option<Arc<AckGroup>>,
}

impl<R: Send + 'static> Asked<R> {
    pub(super) fn open(
        requests: &Arc<Requests>,
        core: &Core,
        deadline: Option<Time>,
    ) -> Result<Self, Shut> {
        let slot = requests.open(core, deadline, |number| {
            Arc::new(Slot {
                requests: requests.clone(),
                number,
                deadline,
                over: AtomicBool::new(false),
                state: Mutex::new(SlotState::Open(Open::default())),
            })
        })?;
        let group = Some(AckGroup::open(0, Waits(slot.clone())));
        Ok(Asked { slot, group })
    }

    /// The request has been sent: waits for its end.
    pub(super) async fn reply<Q>(mut self) -> Result<R, Refusal<Q>> {
        self.let_go();
        match poll_fn(|cx| self.slot.poll(cx)).await {
            End::Reply(reply) => Ok(reply),
            End::Refused(why) => Err(why.into()),
        }
    }

    /// The request was not begun.
    pub(super) fn withdraw(self) {
        self.part(|counts| {
            counts.requests -= 1;
            counts.rejected += 1;
        });
    }

    /// The program was stopped while the request waited for room.
    pub(super) fn cancel(self) {
        self.part(|counts| counts.cancelled += 1);
    }

    /// The client goes; `count` counts it, if the request has not ended.
    fn part(&self, count: impl FnOnce(&mut GatewaySnapshot)) {
        let slot = &self.slot;
        let before = std::mem::replace(&mut *slot.state.lock(), SlotState::Gone);
        if let SlotState::Open(_) = &before {
            slot.over.store(true, Release);
            slot.requests.close(slot.number, slot.deadline, count);
        }
        user::discard(before); // a reply that nobody took, or a waker
    }

    fn let_go(&mut self) {
        if let Some(group) = self.group.take() {
            group.settle(1, Fate::Handled); // what is left are its events
        }
    }
}

impl<R: Send + 'static> Drop for Asked<R> {
    fn drop(&mut self) {
        self.part(|counts| counts.abandoned += 1);
        self.let_go();
    }
}
