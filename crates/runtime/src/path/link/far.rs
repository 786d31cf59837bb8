//! The end of the link in the program that receives: a node where the sender would be, and a thread that is
//! the rest of the other process, with the bad weather between the two.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use comporta_model::ack::{AckGroup, Fate};
use comporta_model::column::{Duty, Id};
use comporta_model::event::Meta;
use comporta_model::port::{Out, Ports};

use super::{ToFar, ToNear};
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::failure::Failure;
use crate::node::{Node, Reading};
use crate::path::emit::{InLine, Links};
use crate::path::line::Place;
use crate::path::ready::Task;
use crate::snapshot::{Counts, StageSnapshot};
use crate::sync::{Arc, Mutex, spawn};

/// The end in the program that receives.
pub(super) struct Far<T> {
    pub(super) id: u32,
    pub(super) inbox: Sender<ToFar<T>>,
    /// What its thread begins with.
    pub(super) ends: Mutex<Option<Ends<T>>>,
    pub(super) weather: Weather,
    pub(super) state: Arc<Mutex<FarState>>,
}

/// Where its thread hears of the near end, and speaks to it.
pub(super) struct Ends<T> {
    pub(super) inbox: Receiver<ToFar<T>>,
    pub(super) to_near: Sender<ToNear>,
}

#[derive(Default)]
pub(super) struct FarState {
    counts: Counts,
    over: bool,
}

/// How bad the link is.
#[derive(Clone, Copy)]
pub(super) struct Weather {
    /// One message in so many is lost, either way.
    pub(super) lost: u64,
    /// It breaks whenever so many more events have come.
    pub(super) breaks: u64,
    pub(super) seed: u64,
}

/// The thread that is the other process, as far as the link is concerned.
struct FarThread<T: Send + 'static> {
    id: u32,
    core: Arc<Core>,
    inbox: Sender<ToFar<T>>,
    to_near: Sender<ToNear>,
    weather: Weather,
    state: Arc<Mutex<FarState>>,
    out: Out<T>,
    links: Links,
    received: Option<Id>,
    /// What has come and not settled, in order, and whether each has.
    open: VecDeque<(Id, bool)>,
    settled: Option<Id>,
    events: u64,
    ended: bool,
}

impl<T: Send + 'static> FarThread<T> {
    /// Whether fate strikes, once in `n`.
    fn strikes(&mut self, n: u64) -> bool {
        let seed = &mut self.weather.seed;
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33).is_multiple_of(n)
    }

    fn run(mut self, inbox: &Receiver<ToFar<T>>) {
        while let Ok(message) = inbox.recv() {
            if self.strikes(4) {
                std::thread::park_timeout(Duration::from_micros(50)); // the way is long
            }
            match message {
                ToFar::Settled(id) => {
                    self.open
                        .iter_mut()
                        .filter(|(open, _)| *open == id)
                        .for_each(|(_, done)| *done = true);
                    while let Some((id, _)) = self.open.pop_front_if(|(_, done)| *done) {
                        self.settled = Some(id);
                    }
                }
                ToFar::Bye => break,
                _ if self.strikes(self.weather.lost) => continue,
                ToFar::Event { after, id, event } => {
                    // Else it has come already, or the one before it has not.
                    if after == self.received {
                        if !self.pass_on(id, event) {
                            break; // the program has stopped
                        }
                        if self.events.is_multiple_of(self.weather.breaks) {
                            self.break_off(inbox);
                        }
                    }
                }
                ToFar::End { after } => {
                    if after == self.received && !std::mem::replace(&mut self.ended, true) {
                        self.end();
                    }
                }
            }
            self.report();
        }
        if !self.ended {
            self.end();
        }
    }

    fn report(&mut self) {
        let FarThread { received, settled, ended, .. } = *self;
        if !self.strikes(self.weather.lost) {
            let _ = self.to_near.send(ToNear::Report { received, settled, ended });
        }
    }

    /// All that is under way is lost, but for what this program itself has to say.
    fn break_off(&mut self, inbox: &Receiver<ToFar<T>>) {
        while let Ok(message) = inbox.try_recv() {
            if matches!(message, ToFar::Settled(_) | ToFar::Bye) {
                let _ = self.inbox.send(message);
                break; // what comes after it may be of the next connection
            }
        }
        let _ = self.to_near.send(ToNear::Broke);
    }

    /// Hands an event to the queue it is for, and waits for room there.
    fn pass_on(&mut self, id: Id, event: T) -> bool {
        let inbox = self.inbox.clone();
        let group = AckGroup::open(id.seq, move |_| drop(inbox.send(ToFar::Settled(id))));
        let now = self.core.clock.now();
        let duty = Duty { deadline: None, ack: Some(group) };
        let meta = Meta { ingress: now, enqueued: now, duty, ..Meta::default() };
        self.received = Some(id);
        self.open.push_back((id, false));
        self.events += 1;
        self.out.send(event);
        let mut visit = Visit::new(0, None);
        let sent = self.links.flush(&self.core, &mut self.out, &meta, true, &mut visit);
        self.state.lock().counts.emitted += sent.emitted as u64;
        self.core.dispatch(visit.effects);
        meta.duty.settle(1, Fate::Handled); // the link lets go: it has joined those it went to
        while self.links.in_line() != InLine::No {
            if !self.links.place().wait() {
                return false;
            }
            let mut visit = Visit::new(0, None);
            self.links.resume(&self.core, &mut visit);
            self.core.dispatch(visit.effects);
        }
        true
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.state.lock().over, true) {
            let mut effects = Effects::default();
            self.core.stage_ended(self.id, &mut effects);
            self.core.dispatch(effects);
        }
    }
}

impl<T: Send + 'static> Node for Far<T> {
    fn visit(&self, _: &Arc<Core>, _: Task, _: &mut Visit) {}

    fn start(&self, core: &Arc<Core>, _: &mut Effects) -> Result<(), String> {
        let Some(Ends { inbox, to_near }) = self.ends.lock().take() else { return Ok(()) };
        let mut out = <Out<T> as Ports>::new();
        let links = Links::new(core, self.id, &mut out, false, Place::of_caller());
        let thread = FarThread {
            id: self.id,
            core: core.clone(),
            inbox: self.inbox.clone(),
            to_near,
            weather: self.weather,
            state: self.state.clone(),
            out,
            links,
            received: None,
            open: VecDeque::new(),
            settled: None,
            events: 0,
            ended: false,
        };
        let spawned = spawn("far".to_owned(), move || thread.run(&inbox));
        spawned.map(drop).map_err(|error| error.to_string())
    }

    fn inlet(self: Arc<Self>) -> Box<dyn Any> {
        Box::new(())
    }

    fn cancel(&self, _: &mut Effects) {
        self.state.lock().over = true;
        let _ = self.inbox.send(ToFar::Bye);
    }

    fn snapshot(&self, name: &str, priority: i32) -> StageSnapshot {
        let state = self.state.lock();
        let (counts, ended) = (state.counts, state.over);
        StageSnapshot { counts, ended, ..StageSnapshot::blank(name, priority) }
    }

    fn reading(&self) -> Reading {
        Reading::default()
    }

    fn failures(&self) -> Vec<Failure> {
        Vec::new()
    }
}
