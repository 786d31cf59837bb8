//! Hop 1, source: pulls a source for as many events as there is room for, and sends them.
//! After: `admit`.
//! A source is like an instance without a queue: ready, running, in line for room, asleep until a
//! time, or awaiting an acknowledgement. It ends when it says so, fails, or the program drains.

use std::any::Any;
use std::sync::Weak;
use std::time::Duration;

use comporta_model::error::{Error, Result};
use comporta_model::event::{AckGroup, Fate, Meta, Settled, Time};
use comporta_model::port::{Out, Ports};
use comporta_model::source::{Demand, Pull, Source};

use crate::core::{Core, Node, Reading};
use crate::failure::{Failure, guard};
use crate::path::admit::{Wakes, Who};
use crate::path::emit::{Drawing, Line, Links, Sending};
use crate::path::pull_size::PullSize;
use crate::path::ready::{Task, Token};
use crate::path::schedule::Schedule;
use crate::snapshot::{Counts, StageSnapshot};
use crate::sync::{Arc, CachePadded, Mutex};

/// A source stops where the stage it leads to has gathered enough, but is not pulled for less than
/// this: a pull and a visit would then cost more than events that are in another worker's cache.
const GATHERED_MIN: usize = 128;

/// Opens a source when the program starts.
pub(crate) type Opener<S> = Box<dyn FnOnce() -> Result<S> + Send>;

pub(crate) struct SourceNode<S: Source> {
    pub(crate) id: u32,
    pub(crate) name: Arc<str>,
    pub(crate) batch: usize,
    /// Events a second at most.
    pub(crate) rate: f64,
    pub(crate) tier: u8,
    /// Within which time what it sends should be done.
    pub(crate) within: Option<Duration>,
    pub(crate) me: Weak<SourceNode<S>>,
    pub(crate) opener: Mutex<Option<Opener<S>>>,
    pub(crate) state: CachePadded<Mutex<SourceState<S>>>,
}

pub(crate) struct SourceState<S: Source> {
    task: Option<Box<SourceTask<S>>>,
    phase: Phase,
    stop: bool,
    early: Option<usize>,
    settled: Vec<Settled>,
    /// Groups not yet settled.
    groups: usize,
    /// The edges were closed; only acknowledgements are awaited.
    closed: bool,
    counts: Counts,
    busy_ns: u64,
}

impl<S: Source> Default for SourceState<S> {
    fn default() -> Self {
        SourceState {
            task: None,
            phase: Phase::Ready,
            stop: false,
            early: None,
            settled: Vec::new(),
            groups: 0,
            closed: false,
            counts: Counts::default(),
            busy_ns: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Ready,
    Running,
    InLine,
    Asleep,
    AwaitsAck,
    Ended,
}

#[repr(align(128))] // apart, as in `sync::CachePadded`: what it changes with every event is its own
struct SourceTask<S: Source> {
    source: S,
    out: Out<S::Item>,
    links: Links,
    group: u64,
    /// What the last pull sent, and sent nowhere, not yet counted.
    unseen: Option<(u64, u64)>,
    /// Time spent in pulls, not yet counted.
    busy_ns: u64,
    /// What the last pull left behind, and until when there is nothing.
    left: Pull,
    due: Option<Time>,
    pull_size: PullSize,
    /// When events are due, if the plan gives the source a rate.
    schedule: Option<Schedule>,
}

impl<S: Source> SourceNode<S> {
    fn token(&self) -> Token {
        Token::new(self.id, Task::Any)
    }

    fn pull(&self, core: &Arc<Core>, mut task: Box<SourceTask<S>>, now: Time, wakes: &mut Wakes) {
        let who = Who::Instance { stage: self.id, instance: 0 };
        task.due = None;
        let most = if wakes.limit == 0 { self.batch } else { self.batch.min(wakes.limit) };
        let (mut ingress, mut most) = (now, most.min(task.pull_size.events()));
        if let Some(schedule) = &mut task.schedule {
            // Not the time the visit began, as in `turn`.
            match schedule.due(core.clock.now()) {
                Ok((since, events)) => (ingress, most) = (since, events.min(most)),
                Err(wait) => {
                    task.left = Pull::After(wait);
                    return self.place(core, task, Line::No, wakes);
                }
            }
        }
        // Where the next stage sends something: what comes after is for whoever pulls next.
        let gathers = core.gathers_behind(self.id);
        if gathers >= GATHERED_MIN {
            most = most.min(gathers);
        }
        let mut meta = Meta {
            ingress,
            deadline: self.within.map(|within| ingress + within),
            tier: self.tier,
            ack: None,
            home: wakes.home,
        };
        let by = Drawing { core, who: &who, alone: true, meta: &meta };
        task.links.draw(&mut task.out, most, usize::MAX, by);
        // One more than there is room for: it waits, and the source with it, as in a handler.
        let events = task.out.allowance().saturating_add(1).min(most);
        task.group += 1;
        let group = S::ACKNOWLEDGED.then(|| {
            self.state.lock().groups += 1;
            let me = self.me.clone();
            let core = Arc::downgrade(core);
            AckGroup::open(task.group, move |settled| {
                if let (Some(me), Some(core)) = (me.upgrade(), core.upgrade()) {
                    me.settled(&core, settled);
                }
            })
        });
        let demand = Demand::new(events, now, task.group);
        let SourceTask { source, out, .. } = &mut *task;
        let pulled = guard(|| source.pull(out, demand));
        let failure = match pulled {
            Ok(Ok(left)) => {
                task.left = left;
                None
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(reason) => Some(reason.to_string()),
        };
        if let Some(message) = failure {
            core.report(format!("the source `{}` failed: {message}", self.name));
            task.left = Pull::End;
        }
        meta.ack = group.clone();
        let mut sending = Sending {
            core,
            meta: &meta,
            who: &who,
            wakes,
            fills: true,
            line: Line::No,
            emitted: 0,
            unrouted: 0,
        };
        let SourceTask { links, out, .. } = &mut *task;
        links.flush(out, &mut sending);
        let (line, emitted, unrouted) = (sending.line, sending.emitted, sending.unrouted);
        wakes.done = emitted;
        let end = core.clock.now();
        wakes.now = Some(end);
        let took = end.since(now);
        task.pull_size.note(emitted, took);
        if let Some(schedule) = &mut task.schedule {
            let idle = emitted < events || matches!(task.left, Pull::After(_) | Pull::AfterAck);
            schedule.sent(emitted, idle);
        }
        task.unseen = Some((emitted as u64, unrouted as u64));
        task.busy_ns += took.as_nanos() as u64;
        match group {
            // Nobody is told of nothing: it would be pulled again for it at once, and so for ever.
            Some(_) if emitted == 0 => self.state.lock().groups -= 1,
            Some(group) => group.settle(1, Fate::Handled), // what is left are its events
            None => {}
        }
        self.place(core, task, line, wakes);
    }

    /// Says what the source does next.
    fn place(&self, core: &Core, mut task: Box<SourceTask<S>>, line: Line, wakes: &mut Wakes) {
        let mut state = self.state.lock();
        if let Some((emitted, unrouted)) = task.unseen.take() {
            state.counts.visits += 1;
            state.counts.emitted += emitted;
            state.counts.unrouted += unrouted;
            state.busy_ns += std::mem::take(&mut task.busy_ns);
        }
        if state.phase == Phase::Ended {
            wakes.trash.push(Box::new(task.source)); // stopped meanwhile
            return;
        }
        if line != Line::No {
            state.phase = Phase::InLine;
            state.task = Some(task);
            if let Some(room) = state.early.take() {
                let task = Task::Resume { instance: 0, room: room as u32 };
                wakes.tokens.push(Token::new(self.id, task));
            }
            return;
        }
        if state.stop {
            task.left = Pull::End;
        }
        let at_once = task.left == Pull::More && task.schedule.is_none();
        let now = if at_once { Time::ZERO } else { core.clock.now() };
        if let (Pull::More, Some(schedule)) = (task.left, &task.schedule) {
            task.left = schedule.wait(now).map_or(Pull::More, Pull::After);
        }
        if let (Pull::After(wait), None) = (task.left, task.due) {
            task.due = Some(now + wait);
            core.timers.add(now + wait, self.token());
        }
        let (phase, token) = match task.left {
            _ if !state.settled.is_empty() => (Phase::Ready, true),
            Pull::End if state.groups == 0 => (Phase::Ended, false),
            Pull::AfterAck if state.groups == 0 => (Phase::Ready, true), // nothing to wait for
            Pull::End | Pull::AfterAck => (Phase::AwaitsAck, false),
            Pull::More => (Phase::Ready, true),
            // The timer may have fired while the source heard what had settled.
            Pull::After(_) if task.due.is_some_and(|due| due <= now) => (Phase::Ready, true),
            Pull::After(_) => (Phase::Asleep, false),
        };
        state.phase = phase;
        if token {
            wakes.tokens.push(self.token());
        }
        let closes = task.left == Pull::End && !state.closed;
        state.closed |= closes;
        if phase == Phase::Ended {
            wakes.trash.push(Box::new(task.source));
        } else {
            state.task = Some(task);
        }
        drop(state);
        if closes {
            core.close_edges(self.id, wakes);
        }
        if phase == Phase::Ended {
            core.stage_gone();
        }
    }

    fn settled(&self, core: &Core, settled: Settled) {
        let mut state = self.state.lock();
        state.groups -= 1;
        state.settled.push(settled);
        if matches!(state.phase, Phase::AwaitsAck | Phase::Asleep) {
            state.phase = Phase::Ready;
            drop(state);
            core.make_ready(self.token());
        }
    }

    /// The source takes a turn: hears what has settled, and is pulled.
    fn turn(&self, core: &Arc<Core>, now: Time, wakes: &mut Wakes) {
        let (mut task, settled, stop) = {
            let mut state = self.state.lock();
            if !matches!(state.phase, Phase::Ready | Phase::Asleep) {
                return; // a timer from before it was closed
            }
            let Some(task) = state.task.take() else { return };
            state.phase = Phase::Running;
            (task, std::mem::take(&mut state.settled), state.stop)
        };
        for settled in settled {
            let told = guard(|| task.source.settled(settled));
            if let Err(reason) = told {
                core.report(format!("the source `{}` failed: {reason}", self.name));
                task.left = Pull::End;
            }
        }
        // Not the time the visit began: that may lie before the timer that asked for it.
        let sleeps = task.due.is_some_and(|due| core.clock.now() < due);
        if stop || sleeps || task.left == Pull::End {
            self.place(core, task, Line::No, wakes);
        } else {
            self.pull(core, task, now, wakes);
        }
    }
}

impl<S: Source> Node for SourceNode<S> {
    fn visit(&self, core: &Arc<Core>, task: Task, now: Time, wakes: &mut Wakes) {
        match task {
            Task::Resume { room, .. } => {
                let (mut task, stop) = {
                    let mut state = self.state.lock();
                    let in_line = state.phase == Phase::InLine;
                    match state.task.take_if(|_| in_line) {
                        Some(task) => {
                            state.phase = Phase::Running;
                            (task, state.stop)
                        }
                        None => {
                            state.early = Some(room as usize);
                            return;
                        }
                    }
                };
                let who = Who::Instance { stage: self.id, instance: 0 };
                let line = task.links.resume(core, room as usize, &who, wakes);
                let goes_on = line == Line::No && task.left == Pull::More && !stop;
                if goes_on && task.schedule.is_none() {
                    self.pull(core, task, now, wakes);
                } else {
                    self.place(core, task, line, wakes);
                }
            }
            _ => self.turn(core, now, wakes),
        }
    }

    fn start(&self, core: &Arc<Core>, wakes: &mut Wakes) -> std::result::Result<(), String> {
        let Some(opener) = self.opener.lock().take() else { return Ok(()) };
        let source = match guard(opener) {
            Ok(Ok(source)) => source,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(reason) => return Err(reason.to_string()),
        };
        let mut out = <Out<S::Item> as Ports>::new();
        let links = Links::new(core, self.id, &mut out, false);
        let task = SourceTask {
            source,
            out,
            links,
            group: 0,
            unseen: None,
            busy_ns: 0,
            left: Pull::More,
            due: None,
            pull_size: if core.is_tested() { PullSize::unbounded() } else { PullSize::new() },
            schedule: self.rate.is_finite().then(|| Schedule::new(self.rate)),
        };
        self.state.lock().task = Some(Box::new(task));
        wakes.tokens.push(self.token());
        Ok(())
    }

    fn close(&self, _: &Core, wakes: &mut Wakes) {
        let mut state = self.state.lock();
        state.stop = true;
        if matches!(state.phase, Phase::Asleep | Phase::AwaitsAck) {
            state.phase = Phase::Ready;
            wakes.tokens.push(self.token());
        }
    }

    fn leave(&self, core: &Core, wakes: &mut Wakes) -> bool {
        let mut state = self.state.lock();
        if !state.stop || state.phase != Phase::Running {
            return false;
        }
        state.phase = Phase::Ended; // what the pull brings still is counted where it arrives
        let closes = !std::mem::replace(&mut state.closed, true);
        drop(state);
        if closes {
            core.close_edges(self.id, wakes);
        }
        core.stage_gone();
        true
    }

    fn cancel(&self) {
        let task = {
            let mut state = self.state.lock();
            state.phase = Phase::Ended;
            state.task.take()
        };
        drop(task);
    }

    fn snapshot(&self, name: &str, priority: i32) -> StageSnapshot {
        let state = self.state.lock();
        StageSnapshot {
            counts: state.counts,
            instances: 1,
            idle: usize::from(!matches!(state.phase, Phase::Running | Phase::Ready)),
            busy: Duration::from_nanos(state.busy_ns),
            ended: state.phase == Phase::Ended,
            ..StageSnapshot::blank(name, priority)
        }
    }

    fn reading(&self) -> Reading {
        let state = self.state.lock();
        let sent = state.counts.emitted;
        let free = usize::from(state.phase != Phase::Running);
        Reading { arrived: sent, processed: sent, instances: 1, free, ..Reading::default() }
    }

    fn failures(&self) -> Vec<Failure> {
        Vec::new()
    }

    fn inlet(self: Arc<Self>) -> Box<dyn Any> {
        Box::new(Error::msg("a source has no queue"))
    }
}
