//! DS2 for one stage (Kalavri et al., *Three steps is all you need*, OSDI 2018): what a thread could handle is known from its
//! useful time, the time spent in visits, whether it was busy all the time or not. So the number of threads that a
//! rate of input needs follows from one look, and is reached in one step.
//!
//! `demand` is input a second times useful time an event, in threads; a queue adds what it takes to work it off by the
//! deadline. If the threads there are cannot do that, there are `demand / utilization` from then on; if fewer would have done at
//! that utilization for a whole deadline, at its peak too, and the queue is short, the others go. Between the two nothing
//! changes, so that load that varies by less than the reserve changes nothing. With `energy`, the reserve is the rest of the last thread only.
//!
//! Defined here: before anything came out, useful time is not known, and nothing is decided. A full
//! queue keeps input outside, so demand is at least what the threads can do, if they are busy: each step then adds the reserve,
//! one thread at least. After a change, threads are measured anew; one that the system refused is tried again after that.

use std::collections::VecDeque;
use std::time::Duration;

use comporta_model::event::Time;

use super::sample::{Grown, Rules, Sample, Verdict, truncated};

/// Samples after which threads are added: DS2 is published with one; three, as the published controller waits, so
/// that one odd sample decides nothing.
const MEASURED: usize = 3;
/// Handlers have become slower if so many events in the last samples took so many times as long as those before: more than
/// chance makes of as many.
const SLOWER_EVENTS: u64 = 20;
const SLOWER_TIMES: f64 = 2.0;
/// The part of their time that threads are busy at least if theirs is what a full queue waits for.
const BUSY: f64 = 0.8;
/// Samples kept at most: those of a deadline, where it does not have more.
const KEPT: usize = 600;

pub(super) struct TrueRates {
    deadline: Duration,
    utilization: f64,
    /// Since the last change, the latest last; those of the last deadline.
    samples: VecDeque<Sample>,
    /// Useful time an event, as last measured: a stage without events still has it.
    secs: Option<f64>,
}

/// What a stage needs, in threads.
struct Demand {
    input: f64,
    secs: f64,
    /// For what comes.
    steady: f64,
    /// For what waits, by the deadline.
    backlog: f64,
}

impl TrueRates {
    pub(super) fn new(deadline: Duration, utilization: f64, energy: bool) -> Self {
        let utilization = if energy { 1.0 } else { utilization };
        TrueRates { deadline, utilization, samples: VecDeque::new(), secs: None }
    }

    /// Useful time is that of all samples, since it does not depend on the load; of the last, where handlers have become
    /// slower.
    fn measure(&mut self) {
        let before = self.samples.len().saturating_sub(MEASURED);
        let (all, lately) = (useful(self.samples.iter()), useful(self.samples.iter().skip(before)));
        if let (Some((_, all)), Some((events, lately))) = (all, lately)
            && events >= SLOWER_EVENTS
            && lately > SLOWER_TIMES * all
        {
            self.samples.drain(..before);
        }
        if let Some((_, secs)) = useful(self.samples.iter()) {
            self.secs = Some(secs);
        }
    }

    /// What part of their time threads are busy lately.
    fn busy(&self) -> f64 {
        let (mut busy, mut secs) = (0.0, 0.0);
        for sample in self.samples.iter().rev().take(MEASURED) {
            busy += sample.busy.as_secs_f64();
            secs += sample.elapsed.as_secs_f64() * sample.threads as f64;
        }
        busy / secs
    }

    /// What comes lately, in events a second.
    fn input(&self) -> f64 {
        mean_input(self.samples.iter().rev().take(MEASURED))
    }

    /// The most that came in any three samples that follow each other.
    fn peak_input(&self) -> f64 {
        let firsts = 0..self.samples.len().saturating_sub(MEASURED - 1);
        let peaks = firsts.map(|first| mean_input(self.samples.iter().skip(first).take(MEASURED)));
        peaks.fold(0.0, f64::max)
    }

    fn demand(&self, input: f64, queue: usize) -> Option<Demand> {
        let secs = self.secs?;
        let backlog = queue as f64 * secs / self.deadline.as_secs_f64();
        Some(Demand { input, secs, steady: input * secs, backlog })
    }

    fn threads_for(&self, demand: f64) -> usize {
        if self.utilization < 1.0 {
            truncated((demand / self.utilization).ceil())
        } else {
            truncated(demand + 1.0)
        }
    }

    fn forget_old(&mut self, now: Time) {
        let old = |second: &Sample| now.duration_since(second.at) >= self.deadline;
        while self.samples.len() > KEPT || self.samples.get(1).is_some_and(old) {
            self.samples.pop_front();
        }
    }

    /// Whether a deadline has passed since the last change.
    fn long_enough(&self, now: Time) -> bool {
        let first = self.samples.front();
        let covered = first.map(|first| now.duration_since(first.at) + first.elapsed);
        self.samples.len() == KEPT || covered.is_some_and(|covered| covered >= self.deadline)
    }
}

/// Events that came out in these samples, and the useful time of each; nothing where it is not known.
fn useful<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<(u64, f64)> {
    let (mut events, mut busy) = (0_u64, 0.0);
    for sample in samples {
        events = events.saturating_add(sample.output);
        busy += sample.busy.as_secs_f64();
    }
    (events > 0 && busy > 0.0).then(|| (events, busy / events as f64))
}

/// Events a second, in these samples.
fn mean_input<'a>(samples: impl Iterator<Item = &'a Sample>) -> f64 {
    let (mut input, mut secs) = (0.0, 0.0);
    for sample in samples {
        input += sample.input as f64;
        secs += sample.elapsed.as_secs_f64();
    }
    input / secs
}

impl Rules for TrueRates {
    fn judge(&mut self, sample: &Sample) -> Verdict {
        // Bounds are measured since growth began, or the last change.
        let begins = self.samples.is_empty() || !sample.grows();
        let unchanged = if begins { Verdict::Watch } else { Verdict::Keep };
        self.samples.push_back(*sample);
        self.forget_old(sample.at);
        self.measure();
        if self.samples.len() < MEASURED {
            return unchanged;
        }
        let threads = sample.threads as f64;
        let Some(lately) = self.demand(self.input(), sample.queue) else { return unchanged };
        let Demand { input, secs, steady, backlog } = lately;
        let full = sample.full && self.busy() >= self.utilization.min(BUSY);
        let steady = if full { steady.max(threads) } else { steady };
        if steady + backlog > threads || full {
            let total = self.threads_for(steady + backlog).max(sample.threads + 1);
            let why = format!(
                "{input:.2}/s in at {secs:.6} s each is the work of {steady:.2} threads, and queue {} that of {backlog:.2} by the \
                 deadline: more than {threads}, so {total} threads",
                sample.queue,
            );
            self.samples.clear();
            return Verdict::Grow { total, why };
        }
        let short = (sample.queue as f64) < input / 2.0 || sample.queue == 0;
        if !self.long_enough(sample.at) || !short {
            return unchanged;
        }
        let peak = self.demand(self.peak_input(), sample.queue);
        let Some(Demand { input, secs, steady, backlog }) = peak else { return unchanged };
        let total = self.threads_for(steady + backlog).max(1);
        if total >= sample.threads {
            return unchanged;
        }
        let why = format!(
            "at most {input:.2}/s in at {secs:.6} s each is the work of {steady:.2} threads: {total} of {threads} are \
             enough"
        );
        self.samples.clear();
        Verdict::Shrink { by: sample.threads - total, why }
    }

    fn grew(&mut self, _: Grown, _: Time) {}

    fn forget(&mut self) {
        self.samples.clear(); // useful time is as before
    }
}
