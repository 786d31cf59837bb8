//! Gradient: bounds how many events are in the stage by the slope of the response time. While the
//! mean of the latest window stays near the long mean, the bound grows by a few; when it rises,
//! the bound shrinks by their ratio. As `Gradient2Limit` of concurrency-limits has it, with its
//! defaults, but that a window is a number of completions and not a second. The response time is that
//! of this stage: what an event took on its way here is not in it.

use std::time::Duration;

use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use super::gate::ns;
use super::{Admission, Ask, Done, Entry};

/// A bound on what is inside, by the slope of the response time.
#[derive(Clone, Copy, Debug)]
pub struct Gradient {
    min: f64,
    max: f64,
    smoothing: f64,
    queue: f64,
    tolerance: f64,
    window: usize,
    limit: f64,
    long: LongMean,
    /// Response times of this window, added up, and how many they are.
    sum: f64,
    sampled: usize,
    /// The most that were inside in this window.
    peak: usize,
    short: f64,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "gradient",
        aliases: &["gradient2"],
        about: "bounds the events in the stage by the slope of the response time",
        cites: "Landau, Thurston & Bozarth, Performance Under Load, Netflix 2018 (concurrency-limits, Gradient2)",
        params: PARAMS,
    };
    Entry::new(offer, Gradient::new)
}

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "min",
        about: "the least bound, with which it starts",
        kind: ParamKind::Count(1, usize::MAX),
        default: "20",
    },
    ParamSpec {
        name: "max",
        about: "the greatest bound; no less than the least",
        kind: ParamKind::Count(1, usize::MAX),
        default: "200",
    },
    ParamSpec {
        name: "window",
        about: "completions after which the bound is adjusted",
        kind: ParamKind::Count(1, usize::MAX),
        default: "100",
    },
    ParamSpec {
        name: "long",
        about: "windows over which the long mean is taken",
        kind: ParamKind::Count(1, usize::MAX),
        default: "600",
    },
    ParamSpec {
        name: "tolerance",
        about: "how much longer than the long mean a response may take",
        kind: ParamKind::Number(1.0, 100.0),
        default: "1.5",
    },
    ParamSpec {
        name: "queue",
        about: "by how many the bound grows",
        kind: ParamKind::Number(0.0, f64::INFINITY),
        default: "4",
    },
    ParamSpec {
        name: "smoothing",
        about: "the share of each adjustment that is made",
        kind: ParamKind::Number(0.001, 1.0),
        default: "0.2",
    },
];

/// A mean that forgets slowly; of the first ten, a plain one.
#[derive(Clone, Copy, Debug)]
struct LongMean {
    windows: f64,
    seen: u32,
    value: f64,
}

const WARM_UP: u32 = 10;

impl LongMean {
    fn add(&mut self, sample: f64) -> f64 {
        self.seen = self.seen.saturating_add(1);
        let weight = if self.seen <= WARM_UP {
            1.0 / f64::from(self.seen)
        } else {
            2.0 / (self.windows + 1.0)
        };
        self.value += (sample - self.value) * weight;
        self.value
    }
}

impl Gradient {
    fn new(choice: &Choice) -> Self {
        let min = choice.number("min");
        Gradient {
            min,
            max: choice.number("max").max(min),
            smoothing: choice.number("smoothing"),
            queue: choice.number("queue"),
            tolerance: choice.number("tolerance"),
            window: choice.count("window"),
            limit: min,
            long: LongMean { windows: choice.number("long"), seen: 0, value: 0.0 },
            sum: 0.0,
            sampled: 0,
            peak: 0,
            short: 0.0,
        }
    }

    fn move_limit(&mut self, short: f64, inside: usize) {
        self.short = short;
        let long = self.long.add(short);
        if long > 2.0 * short {
            self.long.value *= 0.95; // it was loaded for long, and is no more
        }
        if (inside as f64) < self.limit / 2.0 {
            return; // too few came to know
        }
        let gradient = (self.tolerance * long / short).clamp(0.5, 1.0);
        let wanted = self.limit * gradient + self.queue;
        self.limit += (wanted - self.limit) * self.smoothing;
        self.limit = self.limit.clamp(self.min, self.max);
    }
}

impl Admission for Gradient {
    fn admit(&mut self, ask: &Ask) -> usize {
        ask.n.min((self.limit as usize).saturating_sub(ask.inside()))
    }

    fn entered(&mut self, ask: &Ask, n: usize) {
        self.peak = self.peak.max(ask.inside() + n);
    }

    fn settled(&mut self, done: &Done) {
        self.sum += ns(done.response) * done.n as f64;
        self.sampled += done.n;
        if self.sampled >= self.window {
            let short = (self.sum / self.sampled as f64).max(1.0);
            let inside = std::mem::take(&mut self.peak);
            (self.sum, self.sampled) = (0.0, 0);
            self.move_limit(short, inside);
        }
    }

    fn describe(&self) -> String {
        let [short, long] =
            [self.short, self.long.value].map(|mean| Duration::from_nanos(mean as u64));
        format!("{} may be inside; {short:.1?} against {long:.1?}", self.limit as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::gate::tests::ASK;
    use crate::admission::sim::{SIM, made};

    fn gradient(text: &str) -> Gradient {
        let choice: Choice = text.parse().unwrap();
        Gradient::new(&entry().offer.validate(&choice, "admission").unwrap())
    }

    #[test]
    fn the_bound_grows_while_responses_stay_and_shrinks_by_their_ratio() {
        let mut gate = gradient("gradient");
        gate.move_limit(1e6, 20);
        assert!((gate.limit - 20.8).abs() < 1e-9, "a fifth of 4 more: {}", gate.limit);
        gate.limit = 100.0;
        gate.long = LongMean { windows: 600.0, seen: 100, value: 1e6 };
        gate.move_limit(3e6, 100); // long is 1.0067 ms: half of it is left, and 4
        let gradient = 1.5 * (1e6 + 2e6 * 2.0 / 601.0) / 3e6;
        assert!((gate.limit - (80.0 + 0.2 * (100.0 * gradient + 4.0))).abs() < 1e-9);
        gate.limit = 100.0;
        gate.move_limit(1e9, 100);
        assert!((gate.limit - 90.8).abs() < 1e-9, "never by more than half: {}", gate.limit);
    }

    #[test]
    fn a_bound_that_is_not_reached_stays() {
        let mut gate = gradient("gradient(min=50)");
        gate.move_limit(1e6, 24);
        assert!((gate.limit - 50.0).abs() < 1e-9);
    }

    #[test]
    fn a_long_mean_from_loaded_times_is_brought_down_sooner_than_it_would_forget() {
        let mut gate = gradient("gradient");
        gate.long = LongMean { windows: 600.0, seen: 100, value: 100e6 };
        (0..60).for_each(|_| gate.move_limit(1e6, 20));
        assert!(gate.long.value < 6e6, "{}", gate.long.value);
    }

    #[test]
    fn a_window_is_so_many_completions_and_remembers_the_most_inside() {
        let mut gate = gradient("gradient(window=10)");
        let response = Duration::from_millis(1);
        let done = Done { now: ASK.now, n: 5, response, service: response };
        gate.entered(&Ask { queued: 15, ..ASK }, 1);
        gate.settled(&done);
        assert!((gate.limit - 20.0).abs() < 1e-9, "half a window: {}", gate.limit);
        gate.settled(&done);
        assert!((gate.limit - 20.8).abs() < 1e-9, "{}", gate.limit);
        (0..2).for_each(|_| gate.settled(&done));
        assert!((gate.limit - 20.8).abs() < 1e-9, "nobody came: {}", gate.limit);
    }

    #[test]
    fn what_waits_and_what_is_handled_count_as_inside() {
        let mut gate = gradient("gradient(min=20)");
        assert_eq!(gate.admit(&Ask { n: 9, queued: 12, in_flight: 3, ..ASK }), 5);
        assert_eq!(gate.admit(&Ask { n: 9, queued: 30, ..ASK }), 0);
    }

    #[test]
    fn overload_is_kept_within_the_bound_and_light_load_is_let_in() {
        for (load, shed) in [(0.5, 0.0), (1.1, 0.09), (3.0, 0.66)] {
            let report = SIM.run(&mut *made("gradient"), load);
            assert!((report.shed() - shed).abs() < 0.02, "{load}: {}", report.shed());
            assert!(report.goodput() > load.min(1.0) - 0.02, "{load}: {}", report.goodput());
            // 200 inside at a millisecond each, by two.
            assert!(report.response(0.99) < Duration::from_millis(120), "{load}");
        }
    }
}
