//! How far a stage may grow, whichever controller asks: by the CPU time that is left (Algorithm 3 of the thesis), by
//! the keys that can use a thread (Algorithm 4, and the form of the annexed article), and by whether the threads there are
//! have work, which is ours. Measured since growth began.
//!
//! CPU figures are percent of the whole host. In print `n` threads are to start from one, and one of them is there already, so the
//! printed rule is one thread cautious; from several threads, those there are but one count as paid for, which
//! from one thread is what is printed. A stage whose CPU time is not known, or is 0, has no bound by it.
//!
//! Skew: the keys whose average is above a multiple of the standard deviation of all keys that did anything; where no key is, there
//! is no bound. Without deviation every key is above it, so the bound is the number of keys: more threads
//! than keys would wait. Print knows all keys, and the runtime only those that stay among the busiest: the others count as keys with one event
//! each; where those that are known had less than half of what came and of what went, there is no bound either. Keys that bounded a scale-up,
//! and have a thread each, are remembered, and do not cause another, until threads are removed; print does not
//! say until when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::sample::truncated;
use crate::control::KeyLoad;

/// How many keys are measured at most, the hottest of each sample; there are not more threads than this.
pub(super) const KEYS_MAX: usize = 1_024;

/// Threads that were busy for a smaller part of their time wait for something else. Busy threads whose visits take as long
/// as they were measured, or less, show at least a half.
const BUSY_LEAST: f64 = 0.5;

/// Which keys count as hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skew {
    /// Those whose output is above twice the deviation: the thesis.
    Output,
    /// Those whose input is above three times the deviation: the article.
    Input,
    /// There is no such bound.
    None,
}

impl Skew {
    fn of(self, arrived: u64, handled: u64) -> f64 {
        match self {
            Skew::Input => arrived as f64,
            Skew::Output | Skew::None => handled as f64,
        }
    }

    fn times(self) -> f64 {
        match self {
            Skew::Output => 2.0,
            Skew::Input => 3.0,
            Skew::None => f64::INFINITY,
        }
    }
}

/// What is measured while a stage grows, and which keys have bounded it.
#[derive(Debug)]
pub(super) struct Monitor {
    /// The most of the host that may be used, in percent.
    cpu_max: f64,
    skew: Skew,
    /// Seconds of CPUs that visits took, seconds that they took, and that threads were there.
    cpu_secs: f64,
    busy_secs: f64,
    thread_secs: f64,
    /// Percent of the host that was used, weighted by time.
    host: f64,
    host_secs: f64,
    /// Events of all keys, and of those that are known.
    input: u64,
    output: u64,
    keys: BTreeMap<u64, KeyLoad>,
    /// Keys that bound the scale-up that is being decided, and those that bounded one before.
    bounding: Vec<u64>,
    remembered: BTreeSet<u64>,
}

/// What was measured from one sample to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) elapsed: Duration,
    pub(super) threads: usize,
    /// Events that came, and that were handled.
    pub(super) input: u64,
    pub(super) output: u64,
    /// Time and CPU time of visits.
    pub(super) busy: Duration,
    pub(super) cpu: Duration,
    /// Percent of the host, by whoever.
    pub(super) host: u32,
}

/// How many threads a bound allows, and the reason.
#[derive(Debug, PartialEq)]
pub(super) struct Allowed {
    pub(super) total: usize,
    pub(super) why: String,
}

impl Monitor {
    pub(super) fn new(cpu_max: f64, skew: Skew) -> Self {
        Monitor {
            cpu_max,
            skew,
            cpu_secs: 0.0,
            busy_secs: 0.0,
            thread_secs: 0.0,
            host: 0.0,
            host_secs: 0.0,
            input: 0,
            output: 0,
            keys: BTreeMap::new(),
            bounding: Vec::new(),
            remembered: BTreeSet::new(),
        }
    }

    /// Measures from now on.
    pub(super) fn restart(&mut self) {
        let (bounding, remembered) =
            (std::mem::take(&mut self.bounding), std::mem::take(&mut self.remembered));
        *self = Monitor { bounding, remembered, ..Monitor::new(self.cpu_max, self.skew) };
    }

    /// Whether keys are to be measured.
    pub(super) fn wants_keys(&self) -> bool {
        self.skew != Skew::None
    }

    pub(super) fn note(&mut self, usage: &Usage, keys: &[KeyLoad]) {
        let secs = usage.elapsed.as_secs_f64();
        self.cpu_secs += usage.cpu.as_secs_f64();
        self.busy_secs += usage.busy.as_secs_f64();
        self.thread_secs += secs * usage.threads as f64;
        self.host += f64::from(usage.host) * secs;
        self.host_secs += secs;
        self.input = self.input.saturating_add(usage.input);
        self.output = self.output.saturating_add(usage.output);
        for load in keys {
            let new = KeyLoad { key: load.key, arrived: 0, handled: 0 };
            if self.keys.len() == KEYS_MAX && !self.keys.contains_key(&load.key) {
                continue; // the hottest came first
            }
            let sum = self.keys.entry(load.key).or_insert(new);
            sum.arrived = sum.arrived.saturating_add(load.arrived);
            sum.handled = sum.handled.saturating_add(load.handled);
        }
    }

    /// There are so many threads after a scale-up: keys that bounded it are remembered if there is one for each.
    pub(super) fn grew(&mut self, threads: usize) {
        let keys = std::mem::take(&mut self.bounding);
        if keys.len() <= threads {
            let room = KEYS_MAX.saturating_sub(self.remembered.len());
            self.remembered.extend(keys.into_iter().take(room));
        }
    }

    /// Threads are removed: what bounded them may do so again.
    pub(super) fn forget_keys(&mut self) {
        self.remembered.clear();
    }

    /// Percent of the host that a thread of the stage uses.
    fn thread_cpu(&self, cpus: usize) -> f64 {
        100.0 * self.cpu_secs / (self.thread_secs * cpus.max(1) as f64)
    }

    /// Algorithm 3: as many threads as the CPU that is left has room for, if they are fewer than `total`.
    pub(super) fn by_cpu(&self, total: usize, threads: usize, cpus: usize) -> Option<Allowed> {
        let each = self.thread_cpu(cpus);
        if !(each.is_finite() && each > 0.0) {
            return None;
        }
        let host = if self.host_secs > 0.0 { self.host / self.host_secs } else { 0.0 };
        let left = self.cpu_max - host;
        cpu_bound(total, threads, each, left)
    }

    /// No thread more, if those there are were idle for most of the time: their stage waits for room behind it, for a key that
    /// is held, for a group to gather. Not known while no visit has ended.
    pub(super) fn by_use(&self, threads: usize) -> Option<Allowed> {
        let busy = self.busy_secs / self.thread_secs;
        let idle = busy > 0.0 && busy < BUSY_LEAST;
        idle.then(|| {
            let percent = 100.0 * busy;
            let why = format!(
                "threads were busy for {percent:.0} % of the time: it waits for something else"
            );
            Allowed { total: threads, why }
        })
    }

    /// Algorithm 4: as many threads as there are hot keys, if they are fewer than `total`; none more if all of them have
    /// bounded a scale-up before.
    pub(super) fn by_keys(&mut self, total: usize, threads: usize) -> Option<Allowed> {
        let loads: Vec<(u64, f64)> = self
            .keys
            .values()
            .map(|load| (load.key, self.skew.of(load.arrived, load.handled)))
            .filter(|(_, load)| *load > 0.0)
            .collect();
        // Fair rounds let a hot key out as slowly as the others: it has most of the events by what came, at least.
        let is_most = [Skew::Input, Skew::Output].into_iter().any(|by| {
            let known: f64 = self.keys.values().map(|load| by.of(load.arrived, load.handled)).sum();
            let all = by.of(self.input, self.output);
            all > 0.0 && known >= all / 2.0
        });
        let known: f64 = loads.iter().map(|(_, load)| load).sum();
        let others = (self.skew.of(self.input, self.output) - known).max(0.0);
        let hot = hot_keys(&loads, others, self.skew.times());
        self.bounding.clear();
        if !is_most || hot.is_empty() || hot.len() >= total {
            return None;
        }
        let known = hot.iter().all(|key| self.remembered.contains(key));
        let keys = hot.len();
        let s = if keys == 1 { "" } else { "s" };
        if known {
            let why = format!("the {keys} hot key{s} had their threads already");
            return Some(Allowed { total: threads, why });
        }
        self.bounding = hot;
        let why = format!("{keys} hot key{s} can use no more than {keys} thread{s}");
        Some(Allowed { total: keys.max(threads), why })
    }
}

/// The bound by CPU, from the figures of the host: what a thread uses, and what is left.
fn cpu_bound(total: usize, threads: usize, each: f64, left: f64) -> Option<Allowed> {
    let paid = threads.saturating_sub(1);
    let new = total.saturating_sub(paid);
    if new as f64 * each <= left {
        return None;
    }
    let allowed = paid.saturating_add(truncated(left / each));
    let why = format!(
        "each thread uses {each:.4} % of the host, and {left:.2} % is left: {allowed} of {total} threads"
    );
    Some(Allowed { total: allowed, why })
}

/// The keys that are above so many standard deviations of all. There are `others` events of keys that are not known, each
/// of which counts as one of another key.
fn hot_keys(loads: &[(u64, f64)], others: f64, times: f64) -> Vec<u64> {
    let n = (loads.len() as f64 + others).max(1.0);
    let mean = (loads.iter().map(|(_, load)| load).sum::<f64>() + others) / n;
    let squares = loads.iter().map(|(_, load)| (load - mean).powi(2)).sum::<f64>();
    let variance = (squares + others * (1.0 - mean).powi(2)) / n;
    let above = times * variance.sqrt();
    loads.iter().filter(|(_, load)| *load > above).map(|(key, _)| *key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_5_6_and_5_7_eight_are_wanted_and_six_fit() {
        let allowed = cpu_bound(8, 1, 11.3088, 73.89).unwrap();
        assert_eq!(allowed.total, 6);
        assert_eq!(
            allowed.why,
            "each thread uses 11.3088 % of the host, and 73.89 % is left: 6 of 8 threads"
        );
        // Table 5.9: seven threads need 0.728 % of 99.57 %.
        assert_eq!(cpu_bound(7, 1, 0.104_032, 99.5709), None);
    }

    #[test]
    fn threads_that_are_there_are_paid_for_but_one() {
        assert_eq!(cpu_bound(8, 3, 10.0, 60.0), None);
        assert_eq!(cpu_bound(9, 3, 10.0, 60.0).unwrap().total, 8);
        assert_eq!(cpu_bound(9, 3, 10.0, -5.0).unwrap().total, 2, "the caller keeps what there is");
    }

    fn monitor(skew: Skew, keys: &[(u64, u64)]) -> Monitor {
        let mut monitor = Monitor::new(100.0, skew);
        let loads: Vec<_> =
            keys.iter().map(|(key, n)| KeyLoad { key: *key, arrived: *n, handled: *n }).collect();
        monitor.note(&usage(keys.iter().map(|(_, n)| n).sum()), &loads);
        monitor
    }

    /// A second in which so many events came and were handled.
    fn usage(events: u64) -> Usage {
        let (elapsed, busy, cpu) = (Duration::from_secs(1), Duration::ZERO, Duration::ZERO);
        Usage { elapsed, threads: 1, input: events, output: events, busy, cpu, host: 0 }
    }

    #[test]
    fn keys_with_less_than_half_of_the_events_bound_nothing() {
        let mut monitor = monitor(Skew::Output, &[(1, 5), (2, 5)]);
        monitor.note(&usage(10), &[]);
        assert_eq!(monitor.by_keys(7, 1).unwrap().total, 2, "half of 20");
        monitor.note(&usage(1), &[]);
        assert_eq!(monitor.by_keys(7, 1), None);
    }

    #[test]
    fn a_hot_key_that_fair_rounds_let_out_as_slowly_as_the_others_bounds_all_the_same() {
        // Of 60 events that went, 29 were of the hot key, and of 300 that came, 270; the others had one each.
        for (skew, others) in [(Skew::Output, 0), (Skew::Input, 0), (Skew::Input, 5)] {
            let mut monitor = Monitor::new(100.0, skew);
            let one = |key| KeyLoad { key, arrived: 1, handled: 1 };
            let mut keys = vec![KeyLoad { key: 0, arrived: 270, handled: 29 }];
            keys.extend((1..=others).map(one));
            monitor.note(&Usage { input: 300, ..usage(60) }, &keys);
            assert_eq!(monitor.by_keys(7, 1).unwrap().total, 1, "{skew:?} {others}");
        }
    }

    #[test]
    fn three_hot_keys_among_many_bound_it_to_three_and_not_again() {
        let mut keys: Vec<_> = (0..500).map(|key| (key, 1)).collect();
        keys.extend([(900, 90), (901, 80), (902, 85)]);
        let mut monitor = monitor(Skew::Output, &keys);
        assert_eq!(monitor.by_keys(7, 1).unwrap().total, 3);
        monitor.grew(2);
        assert_eq!(monitor.by_keys(7, 2).unwrap().total, 3, "one has no thread yet");
        monitor.grew(3);
        assert_eq!(monitor.by_keys(7, 2).unwrap().total, 2, "remembered");
        monitor.forget_keys();
        assert_eq!(monitor.by_keys(7, 2).unwrap().total, 3);
    }

    #[test]
    fn without_deviation_the_bound_is_the_number_of_keys() {
        assert_eq!(
            monitor(Skew::Output, &[(1, 5), (2, 5), (3, 5)]).by_keys(7, 1).unwrap().total,
            3
        );
        assert_eq!(monitor(Skew::Output, &[(1, 5)]).by_keys(7, 1).unwrap().total, 1);
        assert_eq!(monitor(Skew::Output, &[]).by_keys(7, 1), None, "no key is known");
    }

    #[test]
    fn where_no_key_is_above_the_deviation_there_is_no_bound() {
        // Of two keys with 1 and 9 the deviation is 4: 9 is above twice it, but not above three times.
        assert_eq!(monitor(Skew::Output, &[(1, 1), (2, 9)]).by_keys(7, 1).unwrap().total, 1);
        assert_eq!(monitor(Skew::Input, &[(1, 1), (2, 9)]).by_keys(7, 1), None);
        assert_eq!(monitor(Skew::None, &[(1, 1), (2, 9)]).by_keys(7, 1), None);
    }

    #[test]
    fn a_host_that_says_nothing_of_cpu_time_bounds_nothing() {
        assert_eq!(Monitor::new(100.0, Skew::Output).by_cpu(9, 1, 4), None);
        assert_eq!(monitor(Skew::Output, &[]).by_cpu(9, 1, 4), None);
    }

    #[test]
    fn threads_that_are_idle_for_most_of_the_time_bound_it() {
        let mut monitor = Monitor::new(100.0, Skew::None);
        assert_eq!(monitor.by_use(4), None, "nothing is known");
        let secs = Duration::from_secs;
        monitor.note(&Usage { threads: 4, busy: secs(2), ..usage(9) }, &[]);
        assert_eq!(monitor.by_use(4), None, "half of the time");
        monitor.note(&Usage { threads: 4, busy: Duration::from_millis(1_900), ..usage(9) }, &[]);
        assert_eq!(monitor.by_use(4).unwrap().total, 4);
        monitor.restart();
        monitor.note(&Usage { threads: 4, ..usage(9) }, &[]);
        assert_eq!(monitor.by_use(4), None, "no visit has ended");
    }
}
