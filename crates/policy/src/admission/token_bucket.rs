//! Token bucket: admits events at a steady rate, and a burst after a lull.

use comporta_model::event::Time;
use comporta_model::plan::{Offer, ParamKind, ParamSpec};

use super::gate::ns;
use super::{Admission, Ask, Entry};

/// A steady rate.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    bucket: Bucket,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "token-bucket",
        aliases: &["rate"],
        about: "admits events at a steady rate",
        cites: "Turner, New directions in communications (or which way to the information age?), IEEE Communications 1986",
        params: &[
            ParamSpec {
                name: "rate",
                about: "events per second",
                kind: ParamKind::Number(0.001, f64::INFINITY),
                default: "1000",
            },
            ParamSpec {
                name: "burst",
                about: "the most events admitted at once after a lull",
                kind: ParamKind::Count(1, usize::MAX),
                default: "100",
            },
        ],
    };
    Entry::new(offer, |choice| TokenBucket {
        bucket: Bucket::new(choice.number("rate"), choice.count("burst")),
    })
}

/// Tokens that come at a rate, up to so many; full at first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Tokens a second.
    pub(super) rate: f64,
    burst: f64,
    tokens: f64,
    filled: Time,
}

impl Bucket {
    pub(super) fn new(rate: f64, burst: usize) -> Self {
        let burst = burst as f64;
        Bucket { rate, burst, tokens: burst, filled: Time::ZERO }
    }

    /// Tokens there are.
    pub(super) fn tokens(&mut self, now: Time) -> usize {
        let came = ns(now.duration_since(self.filled)) * self.rate / 1e9;
        self.tokens = (self.tokens + came).min(self.burst);
        self.filled = self.filled.max(now);
        self.tokens as usize
    }

    pub(super) fn take(&mut self, n: usize) {
        self.tokens = (self.tokens - n as f64).max(0.0);
    }
}

impl Admission for TokenBucket {
    fn admit(&mut self, ask: &Ask) -> usize {
        ask.n.min(self.bucket.tokens(ask.now))
    }

    fn entered(&mut self, _: &Ask, n: usize) {
        self.bucket.take(n);
    }

    fn describe(&self) -> String {
        format!("{} events a second", self.bucket.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::gate::tests::{ASK, at};
    use crate::admission::sim::{SIM, made};

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut gate = made("token-bucket(rate=1000, burst=5)");
        let many = Ask { n: 100, ..ASK };
        assert_eq!(gate.admit(&many), 5);
        assert_eq!(gate.admit(&many), 5, "to ask costs nothing");
        gate.entered(&many, 5);
        assert_eq!(gate.admit(&many), 0);
        assert_eq!(gate.admit(&Ask { now: at(3), ..many }), 3);
        assert_eq!(gate.admit(&Ask { now: at(60_000), ..many }), 5, "no more is saved up");
    }

    #[test]
    fn a_rate_slower_than_the_questions_come_is_kept() {
        let mut gate = made("token-bucket(rate=0.5, burst=1)");
        let mut entered = 0;
        for millis in 0..20_000 {
            let ask = Ask { now: at(millis), ..ASK };
            let n = gate.admit(&ask);
            gate.entered(&ask, n);
            entered += n;
        }
        assert_eq!(entered, 10);
    }

    #[test]
    fn what_enters_is_the_rate_and_no_more() {
        // Two servers of a millisecond can do 2,000 a second.
        for (load, shed) in [(0.5, 0.0), (1.1, 0.182), (3.0, 0.7)] {
            let report = SIM.run(&mut *made("token-bucket(rate=1800, burst=50)"), load);
            assert!((report.shed() - shed).abs() < 0.02, "{load}: {}", report.shed());
        }
    }
}
