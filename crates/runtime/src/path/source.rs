//! Hop 1, source: pulls a source for as many events as there seems to be room for, and sends them.
//! After: `emit`.
//! A source is like an instance without a queue: ready, running, in line for room, asleep until a
//! time, or awaiting an acknowledgement. It ends when it says so, fails, or the program drains.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::Duration;

use comporta_model::ack::{AckGroup, Awaits, Fate, Settled};
use comporta_model::column::Duty;
use comporta_model::error::{Error, Result};
use comporta_model::event::{Meta, Time};
use comporta_model::port::{Out, Ports};
use comporta_model::source::{Demand, Pull, Source};

use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::failure::Failure;
use crate::node::{Node, Reading};
use crate::path::emit::{InLine, Links};
use crate::path::line::Place;
use crate::path::moving::{VisitTime, move_ns};
use crate::path::outlet::Sent;
use crate::path::pull_size::PullSize;
use crate::path::ready::{Task, Token};
use crate::path::schedule::Schedule;
use crate::snapshot::{Counts, StageSnapshot};
use crate::stage::pace::Pace;
use crate::sync::{Arc, CachePadded, Mutex};
use crate::user;

/// Opens a source when the program starts.
pub(crate) type Opener<S> = Box<dyn FnOnce() -> Result<S> + Send>;

pub(crate) struct SourceNode<S: Source> {
    id: u32,
    name: Arc<str>,
    limits: SourceLimits,
    me: Weak<SourceNode<S>>,
    opener: Mutex<Option<Opener<S>>>,
    state: CachePadded<Mutex<State<S>>>,
}

/// What a plan says of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceLimits {
    /// The most events of one pull.
    pub(crate) batch: usize,
    /// Events a second at most, if there is a bound.
    pub(crate) rate: Option<f64>,
    pub(crate) tier: u8,
    /// Within which time what it sends should be done.
    pub(crate) within: Option<Duration>,
}

struct State<S: Source> {
    /// Taken out while it runs.
    task: Option<Box<SourceTask<S>>>,
    phase: Phase,
    /// It is to end: the program drains.
    stop: bool,
    /// What is still to be reported to it.
    settled: Vec<Settled>,
    /// Groups not yet settled, by their numbers.
    groups: BTreeSet<u64>,
    /// The edges were closed; only acknowledgements are awaited.
    closed: bool,
    /// A drain went on without it, and it has not returned since.
    left: bool,
    /// The run is over: whatever settles from now on has been reported as cancelled.
    over: bool,
    counts: Counts,
    busy_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Ready,
    Running,
    InLine,
    Asleep,
    AwaitsAck,
    /// It has ended, or the program goes on, or stops, without it.
    Ended,
}

#[repr(align(128))] // as `sync::CachePadded`: what it changes with every event is its own
struct SourceTask<S: Source> {
    source: S,
    out: Out<S::Item>,
    links: Links,
    group: u64,
    /// What the last pull sent, not yet counted.
    uncounted: Option<Sent>,
    /// What the last pull left behind, and until when there is nothing.
    left: Pull,
    due: Option<Time>,
    pull_size: PullSize,
    /// How long pulls take, and the time spent in them that is not yet counted.
    pace: Pace,
    /// When events are due, if the plan gives the source a rate.
    schedule: Option<Schedule>,
}

impl<S: Source> SourceNode<S> {
    pub(crate) fn new(
        id: u32,
        name: Arc<str>,
        limits: SourceLimits,
        opener: Opener<S>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| SourceNode {
            id,
            name,
            limits,
            me: me.clone(),
            opener: Mutex::new(Some(opener)),
            state: CachePadded::new(Mutex::new(State {
                task: None,
                phase: Phase::Ready,
                stop: false,
                settled: Vec::new(),
                groups: BTreeSet::new(),
                closed: false,
                left: false,
                over: false,
                counts: Counts::default(),
                busy_ns: 0,
            })),
        })
    }

    fn token(&self) -> Token {
        Token::new(self.id, Task::Any)
    }

    fn pull(&self, core: &Arc<Core>, mut task: Box<SourceTask<S>>, visit: &mut Visit) {
        task.due = None;
        let mut most = visit.at_most(self.limits.batch).min(task.pull_size.events());
        let mut ingress = visit.start;
        if let Some(schedule) = &mut task.schedule {
            // Not the time the visit began, as in `turn`.
            match schedule.due(core.clock.now()) {
                Ok((since, events)) => (ingress, most) = (since, events.min(most)),
                Err(wait) => {
                    task.left = Pull::After(wait);
                    return self.place(core, task, InLine::No, visit);
                }
            }
        }
        task.group += 1;
        let group = S::ACKNOWLEDGED.then(|| self.open_group(core, task.group));
        let mut meta = Meta {
            ingress,
            enqueued: visit.start,
            duty: Duty {
                deadline: self.limits.within.map(|within| ingress + within),
                ack: group.clone(),
            },
            tier: self.limits.tier,
            home: visit.home,
        };
        visit.effects.hand_over(core);
        let SourceTask { source, out, links, group: number, .. } = &mut *task;
        links.look_for_room(core, out, &meta, usize::MAX);
        // One more than there is room for: it waits, and the source with it, as in a handler.
        let events = out.allowance().saturating_add(1).min(most);
        let demand = Demand::new(events, visit.start, *number);
        let pulled = user::try_call(|| source.pull(out, demand));
        task.left = pulled.unwrap_or_else(|message| {
            core.source_failed(&self.name, &message);
            Pull::End
        });
        let end = core.clock.now();
        visit.end = Some(end);
        let took = end.duration_since(visit.start);
        meta.enqueued = end;
        let sent = task.links.flush(core, &mut task.out, &meta, true, visit);
        visit.done = sent.emitted;
        let waited = task.pull_size.note(sent.emitted, took);
        task.pace.note(took, sent.emitted);
        let takes_ns = if waited { u64::MAX } else { task.pace.usual_of(sent.emitted) };
        let (events, event_ns) = (sent.emitted, move_ns::<S::Item>());
        let time = VisitTime { takes_ns, side_by_side: 1, events, event_ns, keys_ns: 0 };
        core.set_visit_time(self.id, time);
        if let Some(schedule) = &mut task.schedule {
            let idle = waited || matches!(task.left, Pull::After(_) | Pull::AfterAck);
            schedule.sent(sent.emitted, idle);
        }
        task.uncounted = Some(sent);
        match group {
            // A group of no events is not reported: its source would be pulled again for it at once,
            // and so for ever.
            Some(_) if sent.emitted == 0 => drop(self.state.lock().groups.remove(&task.group)),
            Some(group) => group.settle(1, Fate::Handled), // what is left are its events
            None => {}
        }
        let in_line = task.links.in_line();
        self.place(core, task, in_line, visit);
    }

    fn open_group(&self, core: &Arc<Core>, number: u64) -> Arc<AckGroup> {
        self.state.lock().groups.insert(number);
        AckGroup::open(number, Group { source: self.me.clone(), core: Arc::downgrade(core) })
    }

    /// Decides what the source does next.
    fn place(&self, core: &Core, mut task: Box<SourceTask<S>>, in_line: InLine, visit: &mut Visit) {
        let mut state = self.state.lock();
        if let Some(sent) = task.uncounted.take() {
            state.counts.visits += 1;
            state.counts.emitted += sent.emitted as u64;
            state.counts.unrouted += sent.unrouted as u64;
            state.counts.lost += sent.lost as u64;
            state.busy_ns += task.pace.take_busy_ns();
        }
        if state.phase == Phase::Ended {
            // The program went on without it, or was stopped: nobody waits for what it brought.
            let left = std::mem::take(&mut state.left);
            drop(state);
            if left {
                core.run_state().left -= 1;
            }
            task.links.give_up(core, &mut visit.effects);
            let mut state = self.state.lock();
            if state.over {
                drop(state);
                self.part_with(core, task, &mut visit.effects);
            } else {
                state.task = Some(task);
            }
            return;
        }
        if in_line != InLine::No {
            state.phase = Phase::InLine;
            let place = task.links.place().clone();
            state.task = Some(task);
            if place.park() {
                visit.effects.tokens.extend(place.token()); // room was granted meanwhile
            }
            return;
        }
        let (phase, token) = self.next_phase(core, &mut state, &mut task);
        state.phase = phase;
        if token {
            visit.effects.tokens.push(self.token());
        }
        let closes = task.left == Pull::End && !state.closed;
        state.closed |= closes;
        state.task = Some(task);
        let ended = state.task.take_if(|_| phase == Phase::Ended);
        drop(state);
        if let Some(ended) = ended {
            visit.effects.discard(ended);
        }
        if closes {
            core.close_edges(self.id, &mut visit.effects);
        }
        if phase == Phase::Ended {
            core.stage_gone(&mut visit.effects);
        }
    }

    /// What comes after a pull whose events have all been delivered, and whether a token is due.
    fn next_phase(
        &self,
        core: &Core,
        state: &mut State<S>,
        task: &mut SourceTask<S>,
    ) -> (Phase, bool) {
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
        match task.left {
            _ if !state.settled.is_empty() => (Phase::Ready, true),
            Pull::End if state.groups.is_empty() => (Phase::Ended, false),
            Pull::AfterAck if state.groups.is_empty() => (Phase::Ready, true), // nothing to wait for
            Pull::End | Pull::AfterAck => (Phase::AwaitsAck, false),
            Pull::More => (Phase::Ready, true),
            // The timer may have fired while the source heard what had settled.
            Pull::After(_) if task.due.is_some_and(|due| due <= now) => (Phase::Ready, true),
            Pull::After(_) => (Phase::Asleep, false),
        }
    }

    fn settled(&self, core: &Core, settled: Settled) {
        let mut state = self.state.lock();
        if !state.groups.remove(&settled.group) {
            return; // the run is over, and it was reported
        }
        state.settled.push(settled);
        if matches!(state.phase, Phase::AwaitsAck | Phase::Asleep) {
            state.phase = Phase::Ready;
            drop(state);
            core.make_ready(self.token());
        }
    }

    /// Reports to the source what has settled.
    fn tell(
        &self,
        core: &Core,
        task: &mut SourceTask<S>,
        settled: impl IntoIterator<Item = Settled>,
    ) {
        for settled in settled {
            if let Err(reason) = user::call(|| task.source.settled(settled)) {
                core.report(format!("the source `{}` failed: {reason}", self.name));
                task.left = Pull::End;
            }
        }
    }

    /// The run is over: reports what has settled, and what has not as cancelled, and lets the source go.
    fn part_with(&self, core: &Core, mut task: Box<SourceTask<S>>, effects: &mut Effects) {
        let (settled, open) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.settled), std::mem::take(&mut state.groups))
        };
        effects.hand_over(core);
        let cut_off = open.into_iter().map(Settled::cut_off);
        self.tell(core, &mut task, settled.into_iter().chain(cut_off));
        effects.discard(task);
    }

    /// The source takes a turn: hears what has settled, and is pulled.
    fn turn(&self, core: &Arc<Core>, visit: &mut Visit) {
        let (mut task, settled, stop) = {
            let mut state = self.state.lock();
            if !matches!(state.phase, Phase::Ready | Phase::Asleep) {
                return; // a timer from before it was closed
            }
            let Some(task) = state.task.take() else { return };
            state.phase = Phase::Running;
            (task, std::mem::take(&mut state.settled), state.stop)
        };
        if !settled.is_empty() {
            visit.effects.hand_over(core);
            self.tell(core, &mut task, settled);
        }
        // Not the time the visit began: that may lie before the timer that asked for it.
        let sleeps = task.due.is_some_and(|due| core.clock.now() < due);
        if stop || sleeps || task.left == Pull::End {
            self.place(core, task, InLine::No, visit);
        } else {
            self.pull(core, task, visit);
        }
    }

    /// Room was granted.
    fn resume(&self, core: &Arc<Core>, visit: &mut Visit) {
        let (mut task, hears) = {
            let mut state = self.state.lock();
            if state.phase != Phase::InLine {
                return; // the program was stopped
            }
            let Some(task) = state.task.take() else { return };
            state.phase = Phase::Running;
            (task, state.stop || !state.settled.is_empty())
        };
        let in_line = task.links.resume(core, visit);
        // A source that is always in line is to hear what has settled all the same.
        let goes_on = in_line == InLine::No && task.left == Pull::More && !hears;
        if goes_on && task.schedule.is_none() {
            self.pull(core, task, visit);
        } else {
            self.place(core, task, in_line, visit);
        }
    }
}

/// A source that waits for the events of one pull.
struct Group<S: Source> {
    source: Weak<SourceNode<S>>,
    core: Weak<Core>,
}

impl<S: Source> Awaits for Group<S> {
    fn settled(&self, settled: Settled) {
        if let (Some(source), Some(core)) = (self.source.upgrade(), self.core.upgrade()) {
            source.settled(&core, settled);
        }
    }

    fn is_stopped(&self) -> bool {
        self.core.upgrade().is_none_or(|core| core.is_stopped())
    }
}

impl<S: Source> Node for SourceNode<S> {
    fn visit(&self, core: &Arc<Core>, task: Task, visit: &mut Visit) {
        match task {
            Task::Resume { .. } => self.resume(core, visit),
            _ => self.turn(core, visit),
        }
    }

    fn start(&self, core: &Arc<Core>, effects: &mut Effects) -> std::result::Result<(), String> {
        let opener = self.opener.lock().take();
        let Some(opener) = opener else { return Ok(()) };
        let source = user::try_call(opener)?;
        let mut out = <Out<S::Item> as Ports>::new();
        let place = Place::of_task(Token::new(self.id, Task::Resume { instance: 0 }));
        let links = Links::new(core, self.id, &mut out, false, place);
        let task = SourceTask {
            source,
            out,
            links,
            group: 0,
            uncounted: None,
            left: Pull::More,
            due: None,
            pace: Pace::default(),
            pull_size: if core.is_tested() { PullSize::unbounded() } else { PullSize::new() },
            schedule: self.limits.rate.map(Schedule::new),
        };
        self.state.lock().task = Some(Box::new(task));
        effects.tokens.push(self.token());
        Ok(())
    }

    fn close(&self, _: &Core, effects: &mut Effects) {
        let mut state = self.state.lock();
        state.stop = true;
        if matches!(state.phase, Phase::Asleep | Phase::AwaitsAck) {
            state.phase = Phase::Ready;
            effects.tokens.push(self.token());
        }
    }

    fn leave(&self, core: &Core, effects: &mut Effects) -> bool {
        let mut state = self.state.lock();
        if !state.stop || state.phase != Phase::Running {
            return false;
        }
        state.phase = Phase::Ended; // what the pull brings still is counted where it arrives
        state.left = true;
        let closes = !std::mem::replace(&mut state.closed, true);
        drop(state);
        if closes {
            core.close_edges(self.id, effects);
        }
        core.stage_gone(effects);
        true
    }

    fn cancel(&self, _: &mut Effects) {
        self.state.lock().phase = Phase::Ended;
    }

    fn farewell(&self, core: &Core, effects: &mut Effects) {
        let task = {
            let mut state = self.state.lock();
            state.over = true; // a pull that has not returned parts with the source when it does
            state.task.take()
        };
        let Some(mut task) = task else { return };
        task.links.give_up(core, effects); // what it had in outboxes settles with this
        self.part_with(core, task, effects);
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
