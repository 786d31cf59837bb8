//! Snapshots: the counts and contents of a program at one moment. Every view is made from these types.

use std::fmt;
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::plan::Choice;

use crate::latency::Latency;
use crate::stage::permits::Shed;

/// How many events came to a queue, and how they ended. Counts never decrease.
///
/// At rest, and in every [`StageSnapshot`], which is taken under the queue's lock:
/// `offered = refused + shed on entry + arrived` and
/// `arrived = handled + shed later + failed + cancelled + queued + in_flight + outboxed`.
///
/// A copy counts where it arrives. A retry is not a new arrival. A replay is: it counts as offered and
/// arrived again, and the failure that it replays stays counted. An event returned by `Out::try_send`
/// was never offered. At rest, the events offered to a stage are those that others sent it
/// ([`StageSnapshot::sent`]), those refused or replayed, and those that were there at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Events offered to the queue.
    pub offered: u64,
    /// Events returned to a `Sender`.
    pub refused: u64,
    /// Events that entered the queue, or wait for it in an outbox.
    pub arrived: u64,
    /// Events handled.
    pub handled: u64,
    /// Events that failed for good.
    pub failed: u64,
    /// Events cancelled by a stop.
    pub cancelled: u64,
    /// Tries beyond the first.
    pub retried: u64,
    /// Failed events put back into the queue.
    pub replayed: u64,
    /// Events sent by this stage.
    pub emitted: u64,
    /// Events sent by this stage through a port that is not connected.
    pub unrouted: u64,
    /// Copies, or events, that were not sent on because a `Clone` or a key function panicked.
    pub lost: u64,
    /// Events put into the queue when the program started.
    pub started: u64,
    /// Visits to the stage.
    pub visits: u64,
    pub(crate) shed: [u64; Shed::ALL.len()],
    /// Of these, after they arrived.
    pub(crate) shed_late: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        let Counts { offered, refused, arrived, handled, failed, cancelled, retried, .. } = other;
        self.offered += offered;
        self.refused += refused;
        self.arrived += arrived;
        self.handled += handled;
        self.failed += failed;
        self.cancelled += cancelled;
        self.retried += retried;
        let Counts { replayed, emitted, unrouted, lost, started, visits, shed, shed_late, .. } =
            other;
        self.replayed += replayed;
        self.emitted += emitted;
        self.unrouted += unrouted;
        self.lost += lost;
        self.started += started;
        self.visits += visits;
        self.shed.iter_mut().zip(shed).for_each(|(own, its)| *own += its);
        self.shed_late += shed_late;
    }

    /// Returns how many events were shed for this reason.
    #[must_use]
    pub fn shed(&self, reason: Shed) -> u64 {
        self.shed[reason as usize]
    }

    /// Returns how many events were shed before they arrived.
    #[must_use]
    pub fn shed_on_entry(&self) -> u64 {
        self.shed.iter().sum::<u64>() - self.shed_late
    }

    /// Returns how many events were shed after they arrived.
    #[must_use]
    pub fn shed_later(&self) -> u64 {
        self.shed_late
    }
}

/// The word for the reason.
impl fmt::Display for Shed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The most keys that are shown of a stage: five by events that wait, by events handled and by time.
const TOP_KEYS_MAX: usize = 15;

/// A stage at one moment; all of its replicas together.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StageSnapshot {
    /// Its name.
    pub name: String,
    /// How many events came, and how they ended.
    pub counts: Counts,
    /// Events in its queue.
    pub queued: usize,
    /// Events being handled or waiting for another try.
    pub in_flight: usize,
    /// Events that wait for its queue in the outboxes of their senders.
    pub outboxed: usize,
    /// The capacity of its queue.
    pub capacity: usize,
    /// The number of its instances; for a stage whose handlers wait, the most events in flight.
    pub instances: usize,
    /// The number of its idle instances.
    pub idle: usize,
    /// The number of its replicas. Capacity, instances and what it holds are those of all of them.
    pub replicas: usize,
    /// Its priority.
    pub priority: i32,
    /// Its admission controller, if it has one; that of its first replica.
    pub admission: Option<AdmissionSnapshot>,
    /// For a gateway and its reply stage, what became of its requests.
    pub gateway: Option<GatewaySnapshot>,
    /// Events in flight whose handlers wait: for a socket, a timer, another try.
    pub waiting: usize,
    /// How long events have waited in its handlers, all together.
    pub waited: Duration,
    /// How far event time has come, and how many events were late, if the stage has event time.
    pub event_time: Option<EventTimeSnapshot>,
    /// Its busiest keys, if it is keyed and they are counted (`Control::count_keys`): the first five by events that wait,
    /// by events handled and by time, those with most waiting first. A key that more than one in 64 of all events
    /// belong to is found, however many keys there are.
    pub top_keys: Vec<KeySnapshot>,
    /// Time spent in its handler, by all instances together; for a source, in its pulls.
    pub busy: Duration,
    /// How long the events that it handled had been in the program, if the stage leads nowhere; empty
    /// for other stages.
    pub latency: Latency,
    /// Failed events kept for inspection.
    pub failures_kept: usize,
    /// Failed events that are no longer kept.
    pub failures_forgotten: u64,
    /// Whether the stage has ended.
    pub ended: bool,
    /// The number of events sent to each stage that it leads to, by name.
    pub sent: Vec<(String, u64)>,
}

/// How far event time has come in a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventTimeSnapshot {
    /// Its watermark: events of earlier times are not expected any more.
    pub watermark: Time,
    /// Events that arrived with a time before the watermark.
    pub late: u64,
}

/// A busy key of a keyed stage.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeySnapshot {
    /// What people call it ([`KeyedStage::key_name`](comporta_model::keyed::KeyedStage::key_name)), or a number.
    pub key: String,
    /// Its events that wait in the queue.
    pub queued: usize,
    /// Events of it that were sent to the stage since keys are counted, at most; the number is too high by
    /// `error` at most, which is no more than one in 64 of all events.
    pub arrived: u64,
    /// By how much `arrived` may be too high.
    pub error: u64,
    /// Since when it has been among the busiest.
    pub since: Time,
    /// Its events that were handled, or failed, since then.
    pub handled: u64,
    /// Time spent on these. Events that are handled in one visit share its time; handlers that take longer than 20 µs
    /// have a visit for each event. Zero where handlers wait.
    pub busy: Duration,
}

impl StageSnapshot {
    /// Of a stage without a queue.
    pub(crate) fn blank(name: &str, priority: i32) -> Self {
        StageSnapshot {
            name: name.to_owned(),
            counts: Counts::default(),
            queued: 0,
            in_flight: 0,
            outboxed: 0,
            capacity: 0,
            instances: 0,
            idle: 0,
            replicas: 1,
            priority,
            admission: None,
            waiting: 0,
            waited: Duration::ZERO,
            gateway: None,
            event_time: None,
            top_keys: Vec::new(),
            busy: Duration::ZERO,
            latency: Latency::default(),
            failures_kept: 0,
            failures_forgotten: 0,
            ended: false,
            sent: Vec::new(),
        }
    }

    /// Adds what another replica of the stage has done. A stage with event time has one.
    pub(crate) fn add(&mut self, other: StageSnapshot) {
        self.counts.add(&other.counts);
        self.queued += other.queued;
        self.in_flight += other.in_flight;
        self.outboxed += other.outboxed;
        self.capacity = self.capacity.saturating_add(other.capacity);
        self.instances += other.instances;
        self.idle += other.idle;
        self.replicas += other.replicas;
        self.waiting += other.waiting;
        self.waited += other.waited;
        self.top_keys.extend(other.top_keys);
        self.top_keys.sort_by_key(|key| std::cmp::Reverse((key.queued, key.handled)));
        self.top_keys.truncate(TOP_KEYS_MAX);
        self.busy += other.busy;
        self.latency.add(&other.latency);
        self.failures_kept += other.failures_kept;
        self.failures_forgotten += other.failures_forgotten;
        self.ended &= other.ended;
        for (to, events) in other.sent {
            match self.sent.iter_mut().find(|(known, _)| *known == to) {
                Some((_, all)) => *all += events,
                None => self.sent.push((to, events)),
            }
        }
    }

    /// Returns the mean time that the handler took for an event; for a source, the mean time of a pull
    /// per event sent.
    #[must_use]
    pub fn service(&self) -> Duration {
        let c = &self.counts;
        let events = if self.capacity == 0 { c.emitted } else { c.handled + c.failed + c.retried };
        let mean = self.busy.as_nanos().checked_div(u128::from(events)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// Returns the mean time that an event waited in the handler, for a socket, a timer or another try; zero if the
    /// handlers of the stage do not wait.
    #[must_use]
    pub fn wait(&self) -> Duration {
        let events = self.counts.handled + self.counts.failed + self.counts.cancelled;
        let mean = self.waited.as_nanos().checked_div(u128::from(events)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// Returns `true` if every event is accounted for.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let c = &self.counts;
        let held = (self.queued + self.in_flight + self.outboxed) as u64;
        c.offered == c.refused + c.shed_on_entry() + c.arrived
            && c.arrived == c.handled + c.shed_later() + c.failed + c.cancelled + held
    }
}

/// An admission controller at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdmissionSnapshot {
    /// Its name, with all parameters.
    pub choice: Choice,
    /// What it admits now, in a few words.
    pub allows: String,
}

/// The requests of a gateway at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GatewaySnapshot {
    /// Requests that were begun.
    pub requests: u64,
    /// Of these, those that have not ended.
    pub in_flight: usize,
    /// Those that were answered.
    pub replied: u64,
    /// Those that had no reply by their deadline.
    pub expired: u64,
    /// Those that failed: a handler did, or dropped what was owed for them.
    pub failed: u64,
    /// Those that were shed on their way.
    pub shed: u64,
    /// Those that were handled, and led to no reply.
    pub no_reply: u64,
    /// Those that a stop cancelled.
    pub cancelled: u64,
    /// Those whose client went before their end.
    pub abandoned: u64,
    /// Requests given back: there was no room, too many were in flight, or the gateway was closed.
    pub rejected: u64,
    /// Replies that nobody waited for: another was first, or the request had ended.
    pub unclaimed: u64,
}

impl GatewaySnapshot {
    /// Returns `true` if every request that was begun is accounted for: each has one outcome, or is in flight.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let refused = self.expired + self.failed + self.shed + self.no_reply + self.cancelled;
        self.requests == self.replied + refused + self.abandoned + self.in_flight as u64
    }
}

/// A pool at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolSnapshot {
    /// Its name, which is that of its cluster unless a policy made the pool.
    pub name: String,
    /// The stages it runs.
    pub stages: Vec<String>,
    /// Their cluster.
    pub cluster: String,
    /// The number of its threads.
    pub threads: usize,
    /// The policy of its cluster.
    pub policy: Choice,
}

/// A program at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// The name of the program.
    pub app: String,
    /// How long the program has run.
    pub elapsed: Duration,
    /// Its stages, in the order declared.
    pub stages: Vec<StageSnapshot>,
    /// Its pools, the main one first.
    pub pools: Vec<PoolSnapshot>,
}

impl Snapshot {
    /// Returns the stage with this name.
    #[must_use]
    pub fn stage(&self, name: &str) -> Option<&StageSnapshot> {
        self.stages.iter().find(|stage| stage.name == name)
    }

    /// Returns how long events were in the program, over all stages that lead nowhere. Events that travel
    /// together count as the oldest of them, which is at most 0.1 ms older.
    #[must_use]
    pub fn latency(&self) -> Latency {
        let mut all = Latency::default();
        self.stages.iter().for_each(|stage| all.add(&stage.latency));
        all
    }

    /// Returns `true` if every event of every stage, and every request of every gateway, is accounted for and, once all stages have ended, each
    /// stage was offered the events that the others sent it.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let at_rest = self.stages.iter().all(|stage| stage.ended);
        let gateways = self.stages.iter().filter_map(|stage| stage.gateway.as_ref());
        self.stages.iter().all(StageSnapshot::adds_up)
            && gateways.into_iter().all(GatewaySnapshot::adds_up)
            && (!at_rest || self.flows_add_up())
    }

    /// Whether each stage was offered what the others have sent it; while events flow, some are on their
    /// way.
    fn flows_add_up(&self) -> bool {
        let sent_to = |name: &str| {
            let sent = self.stages.iter().flat_map(|stage| &stage.sent);
            sent.filter(|(to, _)| to == name).map(|(_, events)| events).sum::<u64>()
        };
        let queues = self.stages.iter().filter(|stage| stage.capacity > 0);
        queues.into_iter().all(|stage| {
            let c = &stage.counts;
            c.offered == sent_to(&stage.name) + c.refused + c.replayed + c.started
        })
    }
}

impl fmt::Display for Snapshot {
    /// A table with a line for each stage.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["stage", "arrived", "handled", "emitted", "shed", "failed", "left", "service"];
        let row = |stage: &StageSnapshot| {
            let c = &stage.counts;
            let left = c.cancelled + (stage.queued + stage.in_flight + stage.outboxed) as u64;
            let shed = c.shed_on_entry() + c.shed_later();
            let numbers = [c.arrived, c.handled, c.emitted, shed, c.failed, left];
            let [arrived, handled, emitted, shed, failed, left] = numbers.map(|n| n.to_string());
            let service = format!("{:.3?}", stage.service());
            [clipped(&stage.name), arrived, handled, emitted, shed, failed, left, service]
        };
        let rows: Vec<_> =
            std::iter::once(heads.map(str::to_owned)).chain(self.stages.iter().map(row)).collect();
        let wide: [usize; 8] =
            std::array::from_fn(|at| rows.iter().map(|row| columns(&row[at])).max().unwrap_or(0));
        for row in &rows {
            let mut line = String::new();
            for (at, (text, wide)) in row.iter().zip(wide).enumerate() {
                let pad = " ".repeat(wide - columns(text));
                match at {
                    0 => line += &format!("{text}{pad}"),
                    _ => line += &format!("  {pad}{text}"),
                }
            }
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

/// The most columns of a name in a table.
const NAME_MAX: usize = 40;

/// A name, cut where it is too long for a table.
fn clipped(name: &str) -> String {
    if name.chars().count() <= NAME_MAX && columns(name) <= NAME_MAX {
        return name.to_owned();
    }
    let mut left = NAME_MAX - 1;
    let fits = |c: &char| {
        let wide = column(*c);
        let fits = wide <= left;
        left = left.saturating_sub(wide);
        fits
    };
    name.chars().take(NAME_MAX).take_while(fits).collect::<String>() + "…"
}

/// How many columns of a terminal a text takes.
fn columns(text: &str) -> usize {
    text.chars().map(column).sum()
}

/// Those of East Asian scripts, and pictures, take two; marks that are set on others take none. A
/// table of the ranges that matter for names: not worth a dependency.
fn column(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff => 2,
        0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 => 2,
        0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(names: &[&str]) -> Vec<String> {
        let snapshot = Snapshot {
            app: "shown".to_owned(),
            elapsed: Duration::ZERO,
            stages: names.iter().map(|name| StageSnapshot::blank(name, 0)).collect(),
            pools: Vec::new(),
        };
        snapshot.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_table_is_aligned_by_columns_of_the_terminal_and_fits_eighty_of_them() {
        let lines = shown(&["解析器", "b"]);
        assert_eq!(lines[1], "解析器        0        0        0     0       0     0  0.000ns");
        assert_eq!(lines[2], "b             0        0        0     0       0     0  0.000ns");
        assert!(lines.iter().all(|line| columns(line) <= 80), "{lines:#?}");
    }

    #[test]
    fn a_name_of_any_length_is_shown_cut() {
        for name in ["x".repeat(100_000), "解".repeat(100_000), "e\u{301}".repeat(50_000)] {
            let lines = shown(&[&name]);
            assert!(lines[1].contains('…') && columns(&lines[1]) <= 100, "{}", lines[1].len());
        }
    }
}
