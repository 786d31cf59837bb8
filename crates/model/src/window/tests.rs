//! Windows against a naive model: every window of the whole stream worked out by itself, from the
//! definition, without a watermark that moves. Then the boundaries, one by one.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::event::{Ev, Time};
use crate::port::Ports;
use crate::stage::{Cx, Host, Stage};

struct Nobody;
impl Host for Nobody {
    fn now(&self) -> Time {
        Time::ZERO
    }
    fn quit(&self, _: Box<dyn Any + Send>) {}
    fn wake_at(&self, _: crate::event::Time, _: std::task::Waker) -> u64 {
        0
    }
    fn forget_timer(&self, _: crate::event::Time, _: u64) {}
    fn report(&self, _: String) {}
}

/// A stage by itself.
struct Driven<S: Stage> {
    stage: S,
    out: S::Ports,
    cx: Cx,
}

impl<S: Stage> Driven<S> {
    fn new(mut stage: S) -> Result<Self, String> {
        let cx = Cx::new("window".into(), 0, Arc::new(Nobody));
        stage.init(&cx).map_err(|error| error.to_string())?;
        Ok(Driven { stage, out: S::Ports::new(), cx })
    }

    fn push(&mut self, event: S::In) -> Result<(), String> {
        let called = self.stage.handle(Ev::lend(&mut Some(event)), &mut self.out, &self.cx);
        called.map_err(|error| error.to_string())
    }

    fn finish(&mut self) {
        self.stage.finish(&mut self.out, &self.cx).unwrap();
    }
}

/// When it left (after the event of this number; the last of all is the end), and what.
type Left = (usize, Window<(i64, usize)>);

fn window<T>(start: i64, end: i64, events: impl IntoIterator<Item = T>) -> Window<T> {
    Window { start, end, events: events.into_iter().collect() }
}

fn ms(ms: i64) -> Duration {
    Duration::from_millis(ms.try_into().unwrap())
}

// ------------------------------------------------------------------------------- by count

fn counted(events: usize, size: usize, step: usize) -> Vec<(usize, Window<usize>)> {
    let mut counting = Driven::new(by_count(size).sliding(step)).unwrap();
    let mut left = Vec::new();
    for n in 0..events {
        counting.push(n).unwrap();
        left.extend(counting.out.drain().map(|window| (n, window)));
    }
    counting.finish();
    left.extend(counting.out.drain().map(|window| (events, window)));
    left
}

fn counted_naively(events: usize, size: usize, step: usize) -> Vec<(usize, Window<usize>)> {
    let starts = (0..events).step_by(step);
    let windows = starts.map(|start| {
        let end = (start + size).min(events);
        let last = start + size - 1;
        (last.min(events), window(start as i64, end as i64, start..end))
    });
    windows.collect()
}

proptest! {
    #[test]
    fn windows_by_count_are_those_of_the_definition(
        (events, size, step) in (0..200_usize, 1..40_usize)
            .prop_flat_map(|(events, size)| (Just(events), Just(size), 1..=size)),
    ) {
        prop_assert_eq!(counted(events, size, step), counted_naively(events, size, step));
    }
}

#[test]
fn windows_by_count_tumble_and_the_rest_leaves_at_the_end() {
    let mut counting = Driven::new(by_count(3)).unwrap();
    (0..7).for_each(|n| counting.push(n).unwrap());
    let left: Vec<_> = counting.out.drain().collect();
    assert_eq!(left, [window(0, 3, 0..3), window(3, 6, 3..6)]);
    counting.finish();
    assert_eq!(counting.out.drain().collect::<Vec<_>>(), [window(6, 7, 6..7)]);
}

#[test]
fn a_stream_of_whole_windows_ends_without_an_empty_one() {
    assert_eq!(counted(6, 3, 3).len(), 2);
    assert_eq!(counted(0, 3, 1), []);
}

#[test]
fn what_tumbles_need_not_be_copied() {
    struct Once;
    let mut counting = Driven::new(by_count(1)).unwrap();
    counting.push(Once).unwrap();
    assert_eq!(counting.out.drain().count(), 1);
    let mut timing = Driven::new(by_time(|_: &Once| 0, ms(1))).unwrap();
    timing.push(Once).unwrap();
    timing.finish();
    assert_eq!(timing.out.windows.drain().count(), 1);
}

// -------------------------------------------------------------------------------- by time

#[derive(Clone, Copy, Debug)]
struct Shape {
    size: i64,
    step: i64,
    lateness: i64,
}

type Timing = Driven<ByTime<(i64, usize), fn(&(i64, usize)) -> i64>>;

fn timing(shape: Shape) -> Timing {
    let time: fn(&(i64, usize)) -> i64 = |event| event.0;
    let windows = by_time(time, ms(shape.size)).sliding(ms(shape.step));
    Driven::new(windows.lateness(ms(shape.lateness))).unwrap()
}

fn timed(times: &[i64], shape: Shape) -> (Vec<Left>, Vec<(i64, usize)>) {
    let mut timing = timing(shape);
    let mut left = Vec::new();
    for (n, time) in times.iter().enumerate() {
        timing.push((*time, n)).unwrap();
        left.extend(timing.out.windows.drain().map(|window| (n, window)));
    }
    timing.finish();
    left.extend(timing.out.windows.drain().map(|window| (times.len(), window)));
    (left, timing.out.late.drain().collect())
}

fn timed_naively(times: &[i64], shape: Shape) -> (Vec<Left>, Vec<(i64, usize)>) {
    let Shape { size, step, lateness } = shape;
    let watermark = |n: usize| times[..=n].iter().max().unwrap() - lateness;
    let all = times.iter().enumerate().map(|(n, time)| (*time, n));
    let last_end = |time: i64| time.div_euclid(step) * step + size;
    let (late, mut kept): (Vec<_>, Vec<_>) =
        all.partition(|(time, n)| last_end(*time) <= watermark(*n));
    kept.sort_unstable();
    // An event is in the windows around it that had not ended when it came.
    let is_in = |(time, n): (i64, usize), start: i64| {
        (start..start + size).contains(&time) && start + size > watermark(n)
    };
    let starts: BTreeSet<i64> = kept
        .iter()
        .flat_map(|event| (event.0 - size + 1..=event.0).filter(|start| is_in(*event, *start)))
        .filter(|start| start.rem_euclid(step) == 0)
        .collect();
    let windows = starts.into_iter().map(|start| {
        let end = start + size;
        let when = (0..times.len()).find(|n| watermark(*n) >= end).unwrap_or(times.len());
        let inside = kept.iter().filter(|event| is_in(**event, start));
        (when, window(start, end, inside.copied()))
    });
    (windows.collect(), late)
}

/// A stream that moves on, now by little, now by a jump, with some of its events behind.
fn disorder() -> impl Strategy<Value = Vec<i64>> {
    let moves = prop_oneof![8 => 0..3_i64, 2 => 0..40_i64, 1 => 0..400_i64];
    (-300..300_i64, prop::collection::vec((moves, 0..25_i64), 0..120)).prop_map(|(start, moves)| {
        let mut now = start;
        let mut next = |(by, behind): (i64, i64)| {
            now += by;
            now - behind
        };
        moves.into_iter().map(&mut next).collect()
    })
}

fn shapes() -> impl Strategy<Value = Shape> {
    (1..30_i64, 0..30_i64)
        .prop_flat_map(|(size, lateness)| (Just(size), 1..=size, Just(lateness)))
        .prop_map(|(size, step, lateness)| Shape { size, step, lateness })
}

proptest! {
    #[test]
    fn windows_by_time_are_those_of_the_definition(times in disorder(), shape in shapes()) {
        prop_assert_eq!(timed(&times, shape), timed_naively(&times, shape));
    }

    #[test]
    fn every_event_is_in_its_windows_or_late(times in disorder(), shape in shapes()) {
        let shape = Shape { step: shape.size, ..shape }; // tumbling: in one window each
        let (left, late) = timed(&times, shape);
        let mut seen: Vec<_> = left.into_iter().flat_map(|(_, window)| window.events).collect();
        seen.extend(late);
        seen.sort_unstable_by_key(|(_, n)| *n);
        let all: Vec<_> = times.iter().enumerate().map(|(n, time)| (*time, n)).collect();
        prop_assert_eq!(seen, all);
    }
}

const TENS: Shape = Shape { size: 10, step: 10, lateness: 0 };

#[test]
fn an_event_on_a_boundary_belongs_to_the_window_that_begins() {
    let (left, late) = timed(&[0, 9, 10], TENS);
    assert_eq!(left, [(2, window(0, 10, [(0, 0), (9, 1)])), (3, window(10, 20, [(10, 2)]))]);
    assert_eq!(late, []);
}

#[test]
fn a_straggler_counts_until_its_window_has_waited_long_enough() {
    let shape = Shape { lateness: 5, ..TENS };
    let (left, late) = timed(&[14, 3, 15, 4], shape);
    assert_eq!(left, [(2, window(0, 10, [(3, 1)])), (4, window(10, 20, [(14, 0), (15, 2)]))]);
    assert_eq!(late, [(4, 3)]);
}

#[test]
fn a_window_leaves_when_the_watermark_reaches_its_end() {
    let (left, _) = timed(&[3, 14, 15], Shape { lateness: 5, ..TENS });
    assert_eq!(left[0], (2, window(0, 10, [(3, 0)])));
}

#[test]
fn an_event_out_of_order_is_not_late_while_its_window_is_open() {
    let (left, late) = timed(&[5, 4], TENS);
    assert_eq!((left, late), (vec![(2, window(0, 10, [(4, 1), (5, 0)]))], vec![]));
}

#[test]
fn an_event_is_not_in_a_window_that_ended_before_it_came() {
    let (left, late) = timed(&[12, 8], Shape { size: 10, step: 5, lateness: 0 });
    assert_eq!(left[0], (2, window(5, 15, [(8, 1), (12, 0)])));
    assert_eq!((left.len(), late), (2, vec![]));
}

#[test]
fn times_before_zero_fall_into_windows_like_all_others() {
    let (left, _) = timed(&[-11, -10, -1, 0], TENS);
    let starts: Vec<_> = left.iter().map(|(_, window)| (window.start, window.end)).collect();
    assert_eq!(starts, [(-20, -10), (-10, 0), (0, 10)]);
}

#[test]
fn a_jump_to_the_end_of_time_closes_what_is_open_and_sends_no_empty_windows() {
    let shape = Shape { size: 10, step: 1, lateness: 3 };
    let (left, late) = timed(&[i64::MIN, 0, i64::MAX, 1], shape);
    assert_eq!(left.len(), 30);
    assert_eq!(late, [(1, 3)]);
}

#[test]
fn more_than_may_be_held_fails_and_leaves_everything_as_it_was() {
    let windows = by_time(|time: &i64| *time, ms(10)).held_max(2);
    let mut timing = Driven::new(windows).unwrap();
    timing.push(1).unwrap();
    timing.push(2).unwrap();
    assert_eq!(timing.push(9).unwrap_err(), "2 events are held already (`held_max`)");
    timing.push(2).unwrap_err(); // the one that failed did not move time on: not late
    timing.push(10).unwrap(); // closes a window, and so makes room
    timing.push(11).unwrap();
    timing.finish();
    let left: Vec<_> = timing.out.windows.drain().collect();
    assert_eq!(left, [window(0, 10, [1, 2]), window(10, 20, [10, 11])]);
    assert!(timing.out.late.is_empty());
}

// ------------------------------------------------------------------- what makes no sense

#[test]
fn sizes_and_steps_that_make_no_sense_are_refused_with_what_would_do() {
    let count = |size, step| Driven::new(by_count::<u64>(size).sliding(step)).err().unwrap();
    assert_eq!(count(0, 1), "a window of 0 events holds nothing: use at least 1");
    assert_eq!(count(5, 0), "a step of 0 events never moves on: use 1 to 5");
    assert!(count(5, 6).contains("between two windows would be lost"), "{}", count(5, 6));
    assert!(count(2_000_000, 1).contains("use at most 1000000"), "{}", count(2_000_000, 1));

    let time = |size, step, lateness| {
        let windows = by_time(|time: &i64| *time, size).sliding(step).lateness(lateness);
        Driven::new(windows).err().unwrap()
    };
    let zero = Duration::ZERO;
    assert_eq!(time(zero, ms(1), zero), "a window of 0 ms holds nothing: use at least 1");
    assert_eq!(time(ms(5), zero, zero), "a step of 0 ms never moves on: use 1 to 5");
    assert!(time(ms(5), ms(6), zero).contains("would be lost"));
    assert!(time(Duration::from_micros(1_500), ms(1), zero).contains("a window of 1.5ms"));
    assert!(time(ms(5), Duration::from_micros(500), zero).contains("a step of 500µs"));
    assert!(time(Duration::from_secs(u64::MAX), ms(1), zero).contains("use at most"));
    assert!(time(ms(10), ms(1), ms(1_000_000)).contains("1000011 open at once"));
    let nothing = by_time(|time: &i64| *time, ms(1)).held_max(0);
    assert!(Driven::new(nothing).err().unwrap().contains("may hold 0 events"));
}
