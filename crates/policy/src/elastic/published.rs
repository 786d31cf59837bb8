//! The published controller: Algorithms 1, 2, 8 and 9 of the thesis on the IOD middleware, sample by sample, with their
//! names beside ours. The bounds of its Algorithms 3 and 4 are in `bounds`.
//!
//! As printed: averages begin with the first growing sample and again after a scale-up; `firstQueueSize`, against which the
//! queue must have doubled, is the queue at the first growing sample, also for the first scale-up; one sample
//! that does not grow clears it; the wait after a scale-up counts growing samples only; `hSTART` stays until it is
//! older than the deadline; a first growing sample above the entry point leads to a measurement of a tenth of
//! the deadline; threads are removed once after a scale-up, below half the average input or at an empty queue.
//!
//! Left undefined there, and defined here:
//! - *Output 0*: a sample counts as if one event had come out (`Sample::ratio`). While the average output is 0, or after
//!   three samples without output, what a thread does is not known, and no thread is added: a group may gather, or what it sends find no room. Nothing in and nothing out since the scale-up: all threads but one
//!   go, and the least stay.
//! - *Scale-up from several threads*: the ratio is that of the threads there are, so the threads that contain the burst are
//!   `threads x avgIO`; from one thread that is the printed `avgIO`. The sum is the total, as from one thread.
//! - *No time left* until the deadline: one sample's time is left, instead of a division by zero.
//! - *A full queue*: senders wait outside, so input falls to output and the queue cannot double. Full, it counts as
//!   growing, as above the entry point and as doubled.
//! - *`schTIME10`* is set aside when the queue is no longer above the entry point; in print it stays for ever, and the next
//!   burst would be answered without a measurement. Without growth and without a scale-up, the mean restarts each
//!   deadline, so that an hour without events does not count against the next minute.
//! - *A scale-up that makes no thread*: bounded, it waits as after one that did; refused by the system, it is tried
//!   again after the wait, without a doubling.
//! - *A clock that jumps*: `stage` calls `forget`, and the measurement begins again.
//!
//! `energy` is not of the thesis, which asks for it: a scale-up makes the fewest threads that keep the deadline, and threads that
//! the deadline does not need go while the queue is still worked off, and after every lull.

use std::time::Duration;

use comporta_model::event::Time;

use super::averages::{Average, Averages};
use super::sample::{Grown, Rules, Sample, Verdict, truncated};

/// Growing samples that pass after a scale-up before the next: `wait`.
const WAIT: u32 = 3;
/// Samples without output after which the average says nothing of what a thread does.
const SILENT: u32 = 3;
/// The part of the deadline for which a queue that is above the entry point from the start is measured.
const MEASURED_PART: u32 = 10;

/// What is kept from sample to sample.
pub(super) struct Published {
    deadline: Duration,
    energy: bool,
    averages: Averages,
    /// When the average began.
    averages_from: Option<Time>,
    /// `isGrowing`.
    growing: bool,
    /// `hSTART`.
    start: Option<Time>,
    /// `firstQueueSize`, where there is one.
    first_queue: Option<usize>,
    /// `schTIME10`: when the measurement is over.
    measured_at: Option<Time>,
    /// `scaledUp`.
    scaled_up: bool,
    wait: u32,
    /// Samples in a row in which nothing came out.
    silent: u32,
}

impl Published {
    pub(super) fn new(deadline: Duration, average: Average, energy: bool) -> Self {
        Published {
            deadline,
            energy,
            averages: Averages::new(average),
            averages_from: None,
            growing: false,
            start: None,
            first_queue: None,
            measured_at: None,
            scaled_up: false,
            wait: 0,
            silent: 0,
        }
    }

    fn restart_averages(&mut self) {
        self.averages.restart();
        self.averages_from = None;
    }

    /// Algorithm 8: more came than went.
    fn growing(&mut self, sample: &Sample) -> Verdict {
        if self.wait > 0 {
            self.wait -= 1;
            return Verdict::Keep;
        }
        let begins = !std::mem::replace(&mut self.growing, true);
        let unchanged = if begins { Verdict::Watch } else { Verdict::Keep };
        let old = |start: Time| sample.at.duration_since(start) > self.deadline;
        if self.start.is_none_or(old) {
            self.start = Some(sample.at);
            // Averages since the scale-up describe the threads there are.
            if !self.scaled_up {
                self.restart_averages();
                self.note(sample);
            }
        }
        let entry_point = self.entry_point(sample);
        let is_first = self.first_queue.is_none();
        if is_first && sample.queue > 0 {
            self.first_queue = Some(sample.queue);
        }
        let above = sample.queue as f64 > entry_point || sample.full;
        if !above {
            self.measured_at = None;
            return unchanged;
        }
        if self.measured_at.is_some_and(|at| sample.at >= at) {
            return self.scale_up(sample, entry_point);
        }
        if is_first {
            self.measured_at = Some(sample.at + self.deadline / MEASURED_PART);
            return unchanged;
        }
        let doubled = self.first_queue.is_some_and(|first| sample.queue > first.saturating_mul(2));
        if doubled || sample.full { self.scale_up(sample, entry_point) } else { unchanged }
    }

    /// Algorithm 9: as much went as came, or more.
    fn not_growing(&mut self, sample: &Sample) -> Verdict {
        (self.growing, self.first_queue) = (false, None);
        if self.scaled_up {
            let exit_point = self.averages.input() / 2.0;
            if (sample.queue as f64) < exit_point || sample.queue == 0 {
                return self.scale_down(sample, exit_point);
            }
            return self.spare(sample);
        }
        let entry_point = self.averages.output() * self.deadline.as_secs_f64();
        if entry_point == 0.0 || sample.queue as f64 <= entry_point {
            self.measured_at = None;
            return self.spare(sample);
        }
        match self.measured_at {
            None => {
                self.measured_at = Some(sample.at + self.deadline / MEASURED_PART);
                Verdict::Watch
            }
            Some(at) if sample.at < at => Verdict::Keep,
            Some(_) if self.wait > 0 => {
                self.wait -= 1; // the system has refused threads
                Verdict::Keep
            }
            Some(_) => {
                self.start = Some(sample.at);
                self.scale_up(sample, entry_point)
            }
        }
    }

    /// The time that is left until the deadline, in seconds; that of a sample where none is.
    fn left(&self, sample: &Sample) -> f64 {
        let gone = self.start.map_or(Duration::ZERO, |start| sample.at.duration_since(start));
        let left = self.deadline.saturating_sub(gone);
        if left.is_zero() { sample.elapsed.as_secs_f64() } else { left.as_secs_f64() }
    }

    fn entry_point(&self, sample: &Sample) -> f64 {
        let gone = self.start.map_or(Duration::ZERO, |start| sample.at.duration_since(start));
        self.averages.output() * self.deadline.saturating_sub(gone).as_secs_f64()
    }

    /// Algorithm 1.
    fn scale_up(&mut self, sample: &Sample, entry_point: f64) -> Verdict {
        let (left, threads) = (self.left(sample), sample.threads as f64);
        let output = self.averages.output();
        if output == 0.0 || self.silent >= SILENT {
            return Verdict::Keep; // what a thread does is not known yet, or not any more
        }
        let contention = self.averages.ratio() * threads;
        let zero = sample.queue as f64 / left / (output / threads);
        let mut total = truncated(contention + zero + 1.0);
        let mut why = format!(
            "queue {} > entry point {entry_point:.0} ({output:.3}/s, {left:.0} s left): {contention:.5} contention \
             + {zero:.5} zero + 1 = {total} threads",
            sample.queue,
        );
        if sample.full {
            why = format!(
                "queue {} is full: {contention:.5} contention + {zero:.5} zero + 1 = {total} threads",
                sample.queue
            );
        }
        if self.energy {
            let fewest = truncated(
                (self.averages.input() + sample.queue as f64 / left) / (output / threads) + 1.0,
            );
            if fewest < total {
                total = fewest;
                why += &format!(", of which {total} keep the deadline");
            }
        }
        self.wait = WAIT;
        self.first_queue = Some(sample.queue).filter(|queue| *queue > 0);
        self.measured_at = None;
        self.restart_averages();
        Verdict::Grow { total, why }
    }

    /// Algorithm 2.
    fn scale_down(&mut self, sample: &Sample, exit_point: f64) -> Verdict {
        let threads = sample.threads as f64;
        let (input, output) = (self.averages.input(), self.averages.output());
        let by = match (input, output) {
            (0.0, 0.0) => threads - 1.0,
            (_, 0.0) => 0.0,
            _ => threads - input / (output / threads) - 1.0,
        };
        let by = truncated(by);
        let why = format!(
            "queue {} < exit point {exit_point:.1}: {threads} threads - {input:.2}/s in / ({output:.2}/s out / {threads}) - 1: \
             {by} fewer",
            sample.queue,
        );
        // `ZeroSchedule`.
        (self.scaled_up, self.start, self.measured_at, self.wait) = (false, None, None, 0);
        self.restart_averages();
        if by == 0 { Verdict::Keep } else { Verdict::Shrink { by, why } }
    }

    /// Threads that the deadline does not need, where energy counts: by the time that visits took, since threads
    /// without work put out no more than comes in.
    fn spare(&mut self, sample: &Sample) -> Verdict {
        let long_enough = self
            .averages_from
            .is_some_and(|from| sample.at.duration_since(from) >= self.deadline / MEASURED_PART);
        if !self.energy || !long_enough || self.averages.samples() <= WAIT {
            return Verdict::Keep;
        }
        let Some(secs) = self.averages.useful_secs_per_event() else { return Verdict::Keep };
        let (input, left) = (self.averages.input(), self.left(sample));
        let needed = truncated((input + sample.queue as f64 / left) * secs + 1.0);
        if needed >= sample.threads {
            return Verdict::Keep;
        }
        let why = format!(
            "{input:.2}/s in and queue {} in {left:.0} s at {secs:.6} s each keep {needed} threads busy: the others are \
             spared",
            sample.queue,
        );
        self.restart_averages();
        Verdict::Shrink { by: sample.threads - needed, why }
    }

    fn note(&mut self, sample: &Sample) {
        self.averages_from.get_or_insert(sample.at);
        self.averages.note(sample);
    }
}

impl Rules for Published {
    fn judge(&mut self, sample: &Sample) -> Verdict {
        let old = |from: Time| sample.at.duration_since(from) > self.deadline;
        if !self.scaled_up && !self.growing && self.averages_from.is_some_and(old) {
            self.restart_averages();
        }
        self.note(sample);
        self.silent = if sample.output == 0 { self.silent.saturating_add(1) } else { 0 };
        if sample.grows() { self.growing(sample) } else { self.not_growing(sample) }
    }

    fn grew(&mut self, outcome: Grown, at: Time) {
        match outcome {
            Grown::Made => self.scaled_up = true,
            Grown::Bounded => {}
            Grown::Refused => self.measured_at = Some(at),
        }
    }

    fn forget(&mut self) {
        (self.growing, self.start, self.first_queue, self.measured_at) = (false, None, None, None);
        self.restart_averages();
    }
}
