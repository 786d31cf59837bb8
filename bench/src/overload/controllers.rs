//! The admission controllers, with parameters for a service time.
//!
//! One rule for all: whoever is let in should wait two or three service times, and five at most. At
//! 0.7 load, from which the step starts, that is the wait without any controller, and one that lets
//! the wait grow to more than twice that can never be "back". It costs: at 0.9, a tenth and more is
//! shed that a longer queue would have served. Where a controller has parameters of time or number, they are in service times as published ones were
//! in the service times or round trips of their papers; where a parameter has no unit, it is the
//! published one unless it says why below.

use comporta::{Choice, Sender};
use std::time::Duration;

/// How the stage is guarded.
pub(crate) struct Controller {
    pub(crate) name: &'static str,
    /// For a mean service time and a capacity in events a second.
    choice: fn(Duration, f64) -> Choice,
    with: With,
}

/// What events say of themselves.
enum With {
    Nothing,
    /// Every other one matters more.
    TwoTiers,
    /// They are of use for so many service times.
    Deadline(u32),
}

fn span(mean: Duration, times: u32) -> String {
    format!("{}us", (mean * times).as_micros())
}

#[rustfmt::skip]
pub(crate) const CONTROLLERS: [Controller; 9] = [
    Controller { name: "none", choice: |_, _| "none".into(), with: With::Nothing },
    Controller { name: "capacity", choice: capacity, with: With::Nothing },
    Controller { name: "token-bucket", choice: token_bucket, with: With::Nothing },
    Controller { name: "codel", choice: codel, with: With::Nothing },
    Controller { name: "seda", choice: seda, with: With::Nothing },
    Controller { name: "gradient", choice: gradient, with: With::Nothing },
    Controller { name: "breakwater", choice: breakwater, with: With::Nothing },
    Controller { name: "tiers", choice: tiers, with: With::TwoTiers },
    Controller { name: "deadline", choice: |_, _| "deadline".into(), with: With::Deadline(5) },
];

/// Three wait at most; five where a service takes less than to wake a worker, which then is most of
/// the wait whatever the load.
fn capacity(mean: Duration, _: f64) -> Choice {
    let max = if mean < Duration::from_micros(100) { 5 } else { 3 };
    Choice::new("capacity").with("max", max)
}

/// A rate that does not look at the queue must leave some: at capacity itself, the wait of random
/// arrivals has no bound.
fn token_bucket(_: Duration, capacity: f64) -> Choice {
    Choice::new("token-bucket").with("rate", (capacity * 0.95).round()).with("burst", 4)
}

/// Sheds what waited for twice the target. The interval is twenty targets, as published.
fn codel(mean: Duration, _: f64) -> Choice {
    Choice::new("codel").with("target", span(mean, 2)).with("interval", span(mean, 40))
}

/// The paper's targets were a hundred of its service times and more. Fifty here: ten would be
/// exceeded by chance under 0.7 load already, over and over, and the rate fall for good. Rates are
/// to the capacity as the paper's were to that of its server, about 1,000 a second: the greatest
/// five times as much, a step a five-hundredth.
fn seda(mean: Duration, capacity: f64) -> Choice {
    Choice::new("seda")
        .with("target", span(mean, 50))
        .with("rate_max", (capacity * 5.0).round())
        .with("adj_i", (capacity / 500.0).ceil())
        .with("rate_min", 0.05)
}

/// The published bounds, 20 and 200, are for servers that do as much at once; here it is one.
fn gradient(_: Duration, _: f64) -> Choice {
    Choice::new("gradient").with("min", 2).with("max", 20).with("queue", 1)
}

/// Credits of one worker are a handful, not the hundreds of the paper: one more is a lot, and a
/// fiftieth less is nothing. So they grow by a tenth of one, and shrink by a fifth.
fn breakwater(mean: Duration, _: f64) -> Choice {
    Choice::new("breakwater")
        .with("target", span(mean, 4))
        .with("every", span(mean, 1))
        .with("grow", 0.1)
        .with("shrink", 0.2)
}

fn tiers(mean: Duration, _: f64) -> Choice {
    Choice::new("tiers")
        .with("target", span(mean, 4))
        .with("window", 200)
        .with("every", span(mean, 1000))
}

impl Controller {
    pub(crate) fn choice(&self, mean: Duration, capacity: f64) -> Choice {
        (self.choice)(mean, capacity)
    }

    /// The handles that events are pushed through in turn.
    pub(crate) fn senders<T: Send + 'static>(
        &self,
        sender: Sender<T>,
        mean: Duration,
    ) -> Vec<Sender<T>> {
        match self.with {
            With::Nothing => vec![sender],
            With::TwoTiers => vec![sender.clone().tier(1), sender.tier(0)],
            With::Deadline(times) => vec![sender.within(mean * times)],
        }
    }

    /// The controller with its parameters, as a plan would say it.
    pub(crate) fn shown(&self, mean: Duration, capacity: f64) -> String {
        let choice = self.choice(mean, capacity);
        match self.with {
            With::Nothing => choice.to_string(),
            With::TwoTiers => format!("{choice}, two tiers"),
            With::Deadline(times) => format!("{choice}, within {:?}", mean * times),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comporta::policy::admission::Registry;

    #[test]
    fn no_controller_is_left_out_and_every_parameter_is_one_it_has() {
        for offer in Registry::new().offers() {
            let row = CONTROLLERS.iter().find(|row| row.name == offer.name).expect(offer.name);
            for (mean, capacity) in [(10, 9e4), (1000, 990.0)] {
                let choice = row.choice(Duration::from_micros(mean), capacity);
                offer.validate(&choice, "admission").unwrap();
            }
        }
    }
}
