//! The running averages of input, output and their ratio, in the two forms that were published: the first run has each new
//! value count as much as all before it, the later one is the mean.

use super::sample::Sample;

/// Which average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Average {
    /// The mean of all samples since it began.
    Mean,
    /// `(average + new) / 2`.
    Halving,
}

/// Averages since they were last begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Averages {
    form: Average,
    samples: u32,
    input: f64,
    output: f64,
    ratio: f64,
    useful_secs: f64,
    handled: u64,
}

impl Averages {
    pub(super) fn new(form: Average) -> Self {
        let (samples, input, output, ratio, useful_secs, handled) = (0, 0.0, 0.0, 0.0, 0.0, 0);
        Averages { form, samples, input, output, ratio, useful_secs, handled }
    }

    /// Begins again: the next sample is the first.
    pub(super) fn restart(&mut self) {
        *self = Averages::new(self.form);
    }

    pub(super) fn note(&mut self, sample: &Sample) {
        self.samples = self.samples.saturating_add(1);
        self.useful_secs += sample.busy.as_secs_f64();
        self.handled = self.handled.saturating_add(sample.output);
        let (n, form) = (f64::from(self.samples), self.form);
        let next = |average: f64, new: f64| match form {
            Average::Halving if n > 1.0 => f64::midpoint(average, new),
            Average::Halving => new,
            Average::Mean => average + (new - average) / n,
        };
        self.input = next(self.input, sample.input_rate());
        self.output = next(self.output, sample.output_rate());
        self.ratio = next(self.ratio, sample.ratio());
    }

    /// How many samples there are.
    pub(super) fn samples(&self) -> u32 {
        self.samples
    }

    /// `avgTIN`: events in, a second.
    pub(super) fn input(&self) -> f64 {
        self.input
    }

    /// `avgTOUT`: events out, a second.
    pub(super) fn output(&self) -> f64 {
        self.output
    }

    /// `avgIO`: events in for each out.
    pub(super) fn ratio(&self) -> f64 {
        self.ratio
    }

    /// Seconds of a thread that an event takes, by the time spent in visits; none where that is not known.
    pub(super) fn useful_secs_per_event(&self) -> Option<f64> {
        let known = self.useful_secs > 0.0 && self.handled > 0;
        known.then(|| self.useful_secs / self.handled as f64)
    }
}
