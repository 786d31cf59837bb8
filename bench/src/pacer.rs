//! The open-loop load: events fall due on a schedule, whether or not the program keeps up.
//! One pacer for every peer, on an OS thread outside the peer's runtime.
//!
//! Events fall due in clumps, one clump a tick, as packets do from a network card. Evenly spaced
//! single events at several 100,000 a second could only be paced by spinning, and a spinning
//! thread is half of a two-core machine. The pacer sleeps up to `SPIN_MARGIN` before the tick and
//! spins the rest. (Measured here: a sleep of 200 µs overshoots by 35 to 55 µs with the timer
//! slack at 1 ns, by 80 to 100 µs with the default.)
//!
//! Invariant: an event's latency counts from its *scheduled* time. A pacer held up by a full queue
//! or by the machine hands late events over at once, with the time they should have had; nothing
//! is left out (no coordinated omission).

use crate::load::{BenchEvent, Event64};
use hdrhistogram::Histogram;
use std::fs;
use std::time::{Duration, Instant};

/// Time between two clumps.
const TICK: Duration = Duration::from_micros(250);
/// The last stretch before a tick, which is spun rather than slept.
const SPIN_MARGIN: Duration = Duration::from_micros(30);
/// From the making of the pacer to the first tick: the peer starts its threads meanwhile.
const LEAD_IN: Duration = Duration::from_millis(5);
/// Events due before this are not judged: threads find their processors, and the program its pace.
const WARM_UP: Duration = Duration::from_micros(31_250);
/// Latencies above are counted as this: a minute means the program was overrun anyway.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// When events fall due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    events: u64,
    /// `None`: all at once (closed loop: the queue's bound is the only brake).
    per_second: Option<f64>,
}

impl Schedule {
    pub(crate) fn closed(events: u64) -> Schedule {
        Schedule { events, per_second: None }
    }

    /// So many a second, judged for so long.
    pub(crate) fn open(per_second: f64, lasting: Duration) -> Schedule {
        let events = (per_second * (WARM_UP + lasting).as_secs_f64()).ceil() as u64;
        Schedule { events: events.max(1), per_second: Some(per_second) }
    }

    /// Events that are judged.
    #[cfg(test)]
    pub(crate) fn judged(&self) -> u64 {
        let ticks = WARM_UP.as_micros() / TICK.as_micros();
        let before = self.per_second.map_or(0, |_| self.due_by(ticks as u32 - 1));
        self.events - before
    }

    /// The scheduled time from which on events are judged.
    fn judged_from(&self) -> Duration {
        LEAD_IN + self.per_second.map_or(Duration::ZERO, |_| WARM_UP)
    }

    /// Time of the tick `number` after the start.
    fn tick(&self, number: u32) -> Duration {
        self.per_second.map_or(Duration::ZERO, |_| TICK * number)
    }

    /// How many events have fallen due by the tick `number`, that tick included.
    fn due_by(&self, number: u32) -> u64 {
        self.per_second.map_or(self.events, |per_second| {
            let due = per_second * (TICK * (number + 1)).as_secs_f64();
            ((due + 1e-6) as u64).min(self.events) // 4.999999 of an event is five
        })
    }
}

pub(crate) struct Pacer {
    schedule: Schedule,
    epoch: Instant,
}

impl Pacer {
    /// The clock starts now, the first tick comes after a short lead-in.
    pub(crate) fn new(schedule: Schedule) -> Pacer {
        Pacer { schedule, epoch: Instant::now() }
    }

    /// The sink that judges this pacer's events.
    pub(crate) fn sink(&self) -> LatencySink {
        LatencySink {
            epoch: self.epoch,
            next: 0,
            events: self.schedule.events,
            judged_from_ns: self.schedule.judged_from().as_nanos() as u64,
            latencies: histogram(),
            finished: None,
        }
    }

    /// Hands every clump to `push` when it is due. Runs on the calling thread, to the end.
    /// `push` must take the whole clump and may block; what it blocks counts as latency.
    pub(crate) fn run(self, mut push: impl FnMut(Clump)) -> Pace {
        tighten_timer_slack();
        let mut late = histogram();
        let mut sent = 0;
        let started = self.epoch + LEAD_IN;
        for number in 0.. {
            let end = self.schedule.due_by(number);
            if end > sent {
                let due = LEAD_IN + self.schedule.tick(number);
                wait_until(self.epoch + due);
                late.saturating_record((self.epoch.elapsed() - due).as_nanos() as u64);
                push(Clump { next: sent, end, scheduled_ns: due.as_nanos() as u64 });
                sent = end;
            }
            if sent == self.schedule.events {
                break;
            }
        }
        Pace { started, late }
    }
}

/// What is known of a pacer's run once it ended.
pub(crate) struct Pace {
    pub(crate) started: Instant,
    /// How late clumps were handed over: the floor below which no peer's latency can fall.
    pub(crate) late: Histogram<u64>,
}

/// The events of one tick, made as they are drawn.
pub(crate) struct Clump {
    next: u64,
    end: u64,
    scheduled_ns: u64,
}

impl Iterator for Clump {
    type Item = Event64;
    fn next(&mut self) -> Option<Event64> {
        (self.next < self.end).then(|| {
            let mut event = Event64::make(self.next);
            event.payload[0] = self.scheduled_ns;
            self.next += 1;
            event
        })
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.end - self.next) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Clump {}

/// The end of the line: asserts the order and records each event's latency.
pub(crate) struct LatencySink {
    epoch: Instant,
    next: u64,
    events: u64,
    judged_from_ns: u64,
    pub(crate) latencies: Histogram<u64>,
    finished: Option<Instant>,
}

impl LatencySink {
    #[inline(never)]
    pub(crate) fn accept(&mut self, event: &Event64) {
        assert_eq!(event.seq, self.next, "events must come in order");
        let now_ns = self.epoch.elapsed().as_nanos() as u64;
        if event.payload[0] >= self.judged_from_ns {
            self.latencies.saturating_record(now_ns.saturating_sub(event.payload[0]));
        }
        self.next += 1;
        if self.next == self.events {
            self.finished = Some(Instant::now());
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.finished.is_some()
    }

    /// When the last event came; panics if one is missing.
    pub(crate) fn finished(&self) -> Instant {
        self.finished.unwrap_or_else(|| panic!("only {} of {} events came", self.next, self.events))
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
        .expect("1 ns to a minute in 3 digits is a valid range")
}

fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if left > SPIN_MARGIN {
        std::thread::sleep(left - SPIN_MARGIN);
    }
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}

/// Lets this thread's sleeps end within microseconds of their time instead of the default 50 µs.
/// Best effort: without it the pacer is later, equally for all peers, and `Pace::late` shows it.
fn tighten_timer_slack() {
    let thread = fs::read_link("/proc/thread-self").ok();
    if let Some(id) = thread.as_deref().and_then(|link| link.file_name()?.to_str()) {
        let _ = fs::write(format!("/proc/{id}/timerslack_ns"), "1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_offers_the_rate_and_every_event() {
        let schedule = Schedule::open(100_000.0, Duration::from_secs(1));
        assert_eq!((schedule.events, schedule.judged()), (103_125, 100_000));
        assert_eq!(schedule.due_by(0), 25);
        assert_eq!(schedule.due_by(3), 100);
        assert_eq!(schedule.due_by(4124), 103_125);
        assert_eq!(schedule.due_by(9999), 103_125);
    }

    #[test]
    fn slow_schedule_has_ticks_without_events() {
        let schedule = Schedule::open(1000.0, Duration::from_secs(1));
        assert_eq!((0..4).map(|tick| schedule.due_by(tick)).collect::<Vec<_>>(), [0, 0, 0, 1]);
    }

    #[test]
    fn closed_schedule_is_due_at_once() {
        let schedule = Schedule::closed(500);
        assert_eq!((schedule.due_by(0), schedule.tick(0)), (500, Duration::ZERO));
    }

    #[test]
    fn every_event_carries_the_time_of_its_tick_even_when_the_push_stalls() {
        let pacer = Pacer::new(Schedule::open(20_000.0, WARM_UP));
        let mut scheduled = Vec::new();
        pacer.run(|clump| {
            scheduled.extend(clump.map(|event| (event.seq, event.payload[0])));
            // Stalls past several ticks, as a full queue would.
            std::thread::sleep(TICK * 3);
        });
        let expected: Vec<(u64, u64)> = (0..1250)
            .map(|seq| (seq, (LEAD_IN + TICK * (seq / 5) as u32).as_nanos() as u64))
            .collect();
        assert_eq!(scheduled, expected);
    }
}
