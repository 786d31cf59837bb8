//! SEDA's adaptive admission: keeps the 90th percentile of the response times near a target by
//! moving the rate of a token bucket, up by a step and down by a factor.
//! The names and defaults of the parameters are those of the paper, but for `rate_max`, which is
//! 5,000 there and is where the rate begins. Response times are of this stage, from its queue to its
//! end, as the paper measures them at each stage. It wants a queue whose whole length is not many
//! times the target: while a longer one drains, the rate goes on falling.

use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use super::gate::ns;
use super::token_bucket::Bucket;
use super::{Admission, Ask, Done, Entry};

/// A rate that keeps a response time.
#[derive(Clone, Debug)]
pub struct Seda {
    params: Params,
    bucket: Bucket,
    /// Response times since the rate was last looked at, and how many had each.
    samples: Vec<(Duration, usize)>,
    sampled: usize,
    looked: Time,
    /// The 90th percentile, smoothed.
    current: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Params {
    target: Duration,
    nreq: usize,
    timeout: Duration,
    alpha: f64,
    err_i: f64,
    err_d: f64,
    adj_i: f64,
    adj_d: f64,
    c_i: f64,
    rate_min: f64,
    rate_max: f64,
}

/// The bucket of the paper holds some; how many is not said.
const BURST: usize = 10;

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "seda",
        aliases: &["response-time"],
        about: "admits events at a rate that keeps the 90th percentile of response times",
        cites: "Welsh & Culler, Adaptive Overload Control for Busy Internet Servers, USITS 2003",
        params: PARAMS,
    };
    Entry::new(offer, Seda::new)
}

const fn number(
    name: &'static str,
    about: &'static str,
    (min, max): (f64, f64),
    default: &'static str,
) -> ParamSpec {
    ParamSpec { name, about, kind: ParamKind::Number(min, max), default }
}

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "target",
        about: "the 90th percentile of response times to keep",
        kind: ParamKind::Span,
        default: "100ms",
    },
    ParamSpec {
        name: "nreq",
        about: "completions after which the rate is adjusted",
        kind: ParamKind::Count(1, 10_000),
        default: "100",
    },
    ParamSpec {
        name: "timeout",
        about: "time after which it is adjusted, if there were fewer",
        kind: ParamKind::Span,
        default: "1s",
    },
    number("alpha", "how much of the past the smoothed percentile keeps", (0.0, 1.0), "0.7"),
    number("err_i", "the error under which the rate goes up", (-1.0, 1.0), "-0.5"),
    number("err_d", "the error over which the rate goes down", (-1.0, 100.0), "0"),
    number("adj_i", "the step by which it goes up", (0.0, f64::INFINITY), "2"),
    number("adj_d", "the factor by which it goes down", (1.0, f64::INFINITY), "1.2"),
    number("c_i", "weighs the step by the error", (-1.0, 1.0), "-0.1"),
    number("rate_min", "the least rate, a second", (0.001, f64::INFINITY), "0.05"),
    number("rate_max", "the greatest rate, and the first", (0.001, f64::INFINITY), "1000000"),
];

impl Seda {
    fn new(choice: &Choice) -> Self {
        let params = Params {
            target: choice.span("target"),
            nreq: choice.count("nreq"),
            timeout: choice.span("timeout"),
            alpha: choice.number("alpha"),
            err_i: choice.number("err_i"),
            err_d: choice.number("err_d"),
            adj_i: choice.number("adj_i"),
            adj_d: choice.number("adj_d"),
            c_i: choice.number("c_i"),
            rate_min: choice.number("rate_min"),
            rate_max: choice.number("rate_max"),
        };
        Seda {
            params,
            bucket: Bucket::new(params.rate_max, BURST),
            samples: Vec::with_capacity(params.nreq),
            sampled: 0,
            looked: Time::ZERO,
            current: None,
        }
    }

    fn look_if_due(&mut self, now: Time) {
        let due = now.duration_since(self.looked) >= self.params.timeout;
        if self.sampled >= self.params.nreq || due {
            self.looked = now;
            self.move_rate(now);
        }
    }

    fn move_rate(&mut self, now: Time) {
        let Some(sample) = self.percentile() else { return };
        let p = &self.params;
        let current = self.current.map_or(sample, |old| p.alpha * old + (1.0 - p.alpha) * sample);
        self.current = Some(current);
        let error = (current - ns(p.target)) / ns(p.target);
        self.bucket.tokens(now); // what came at the old rate
        let rate = if error > p.err_d {
            self.bucket.rate / p.adj_d
        } else if error < p.err_i {
            self.bucket.rate - (error - p.c_i) * p.adj_i
        } else {
            self.bucket.rate
        };
        self.bucket.rate = rate.max(p.rate_min).min(p.rate_max);
    }

    /// The 90th percentile of the samples, which are spent.
    fn percentile(&mut self) -> Option<f64> {
        self.samples.sort_unstable();
        let mut beyond = self.sampled / 10;
        self.sampled = 0;
        let at = self.samples.iter().rev().find(|(_, n)| {
            let found = beyond < *n;
            beyond = beyond.saturating_sub(*n);
            found
        });
        let found = at.map(|(response, _)| ns(*response));
        self.samples.clear();
        found
    }
}

impl Admission for Seda {
    fn admit(&mut self, ask: &Ask) -> usize {
        self.look_if_due(ask.now);
        ask.n.min(self.bucket.tokens(ask.now))
    }

    fn entered(&mut self, _: &Ask, n: usize) {
        self.bucket.take(n);
    }

    fn settled(&mut self, done: &Done) {
        self.samples.push((done.response, done.n));
        self.sampled += done.n;
        self.look_if_due(done.now);
    }

    fn describe(&self) -> String {
        let current = Duration::from_nanos(self.current.unwrap_or(0.0) as u64);
        format!(
            "{:.1} events a second, at {current:.1?} of {:?}",
            self.bucket.rate, self.params.target
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::gate::tests::{ASK, at};
    use crate::admission::sim::{SIM, Sim, made};

    fn seda(text: &str) -> Seda {
        let choice: Choice = text.parse().unwrap();
        Seda::new(&entry().offer.validate(&choice, "admission").unwrap())
    }

    fn done(millis: u64, n: usize) -> Done {
        let span = Duration::from_millis(millis);
        Done { now: Time::ZERO, n, response: span, service: span }
    }

    #[test]
    fn the_rate_goes_down_by_a_factor_and_up_by_a_weighed_step() {
        let mut gate = seda("seda(target=100ms, rate_max=1000)");
        gate.settled(&done(150, 100)); // the first sample is taken whole: an error of 0.5
        assert!((gate.bucket.rate - 1000.0 / 1.2).abs() < 1e-6);
        gate.settled(&done(10, 100)); // 0.7 of 150 and 0.3 of 10: 108, an error of 0.08
        gate.settled(&done(10, 100)); // 78.6: an error of -0.214, between the two
        let kept = gate.bucket.rate;
        gate.settled(&done(10, 100)); // 58.02
        assert!((gate.bucket.rate - kept).abs() < 1e-6);
        gate.settled(&done(10, 100)); // 43.614: an error of -0.56386
        assert!((gate.bucket.rate - kept - 2.0 * (0.56386 - 0.1)).abs() < 1e-6);
    }

    #[test]
    fn the_percentile_counts_each_event_of_a_batch() {
        let mut gate = seda("seda(nreq=1000)");
        gate.settled(&done(1, 85));
        gate.settled(&done(3, 10));
        gate.settled(&done(2, 5));
        assert_eq!(gate.percentile(), Some(2e6));
        gate.settled(&done(1, 89));
        gate.settled(&done(3, 11));
        assert_eq!(gate.percentile(), Some(3e6));
        gate.settled(&done(1, 91));
        gate.settled(&done(3, 9));
        assert_eq!(gate.percentile(), Some(1e6));
        assert_eq!(gate.percentile(), None);
    }

    #[test]
    fn a_timeout_moves_the_rate_where_completions_are_few() {
        let mut gate = seda("seda(target=100ms, rate_max=1000, timeout=1s)");
        gate.settled(&done(500, 3));
        gate.admit(&Ask { now: at(999), ..ASK });
        assert!(gate.bucket.rate > 999.0);
        gate.admit(&Ask { now: at(1000), ..ASK });
        assert!(gate.bucket.rate < 999.0);
    }

    #[test]
    fn overload_is_brought_near_the_target_and_light_load_is_let_in() {
        // As in the paper, hundreds a second: the steps are made for them.
        let service = Duration::from_millis(10);
        let sim = Sim { service, capacity: 200, events: 200_000, ..SIM };
        for (load, shed) in [(0.5, 0.0), (1.1, 0.3), (3.0, 0.74)] {
            let report = sim.run(&mut *made("seda(target=200ms, rate_max=5000)"), load);
            assert!((report.shed() - shed).abs() < 0.1, "{load}: {}", report.shed());
            assert!(report.response(0.9) < Duration::from_millis(400), "{load}");
            assert!(report.goodput() > load.min(0.75) - 0.02, "{load}: {}", report.goodput());
        }
    }
}
