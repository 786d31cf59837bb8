//! Which policies a case runs under, and with what parameters.

use std::time::Duration;

use comporta::Choice;

use crate::dice::Dice;

/// Chooses policies: all there are, with parameters; or the first three that there were, for cases
/// that are older than the others. It has dice of its own, so that those stay what they were.
pub(crate) struct Chooser {
    dice: Dice,
    all: bool,
}

const FIRST: [&str; 3] = ["stealing", "single", "srpt"];
const ALL: [&str; 15] = [
    "stealing",
    "single",
    "srpt",
    "color",
    "master-worker",
    "seda",
    "seda-dynamic",
    "thread-stealing",
    "cohort",
    "cohort-bounded",
    "lrb",
    "dbr",
    "srpt-private",
    "elastic",
    "ds2",
];
/// The queues of stages under `seda` hold so many at most.
pub(crate) const SEDA_CAPACITY: usize = 100;

impl Chooser {
    pub(crate) fn new(seed: u64, all: bool) -> Self {
        Chooser { dice: Dice::new(seed), all }
    }

    pub(crate) fn choose(&mut self, dice: &mut Dice) -> Choice {
        let first = dice.pick(&FIRST);
        if !self.all {
            return Choice::new(first);
        }
        let dice = &mut self.dice;
        let name = dice.pick(&ALL);
        let seldom = [1, 1, 3, 2000].map(Duration::from_millis);
        let counts: &[(&str, &[usize])] = match name {
            "master-worker" => &[("masters", &[1, 2, 3])],
            "seda" => &[("threads", &[1, 2, 3]), ("capacity", &[1, 7, SEDA_CAPACITY])],
            "seda-dynamic" => &[
                ("threads_min", &[1, 2]),
                ("threads_max", &[2, 3]),
                ("above", &[0, 1, 5]),
                ("capacity", &[1, 7]),
            ],
            "thread-stealing" => &[("threads", &[1, 2, 3])],
            "cohort-bounded" => &[("events", &[1, 2, 7])],
            "srpt-private" => &[("events", &[0, 1, 3])],
            "elastic" | "ds2" => &[("threads_min", &[1, 2]), ("threads_max", &[2, 3])],
            "lrb" => &[("slots_per_stage", &[2, 5])],
            _ => &[],
        };
        let mut choice = Choice::new(name);
        for (param, values) in counts {
            if dice.chance(50) {
                choice = choice.with(*param, dice.pick(values));
            }
        }
        if matches!(name, "seda-dynamic" | "thread-stealing") {
            choice = choice.with("every", dice.pick(&seldom));
        }
        if matches!(name, "elastic" | "ds2") {
            let sample = dice.pick(&seldom);
            choice = choice.with("sample", sample).with("deadline", sample * 10);
        }
        choice
    }
}

/// The first serves the newest first, at times.
pub(crate) const ADMISSIONS: [&str; 11] = [
    "codel(target=5us, interval=20us)",
    "codel(target=5us, interval=20us, lifo=false)",
    "codel(target=5us, interval=20us, paced=true, lifo=false)",
    "capacity(max=2)",
    "token-bucket(rate=50000, burst=3)",
    "seda(target=5us, nreq=5, rate_max=100000)",
    "gradient(min=1, max=9, window=3)",
    "breakwater(target=5us, every=1us)",
    "tiers(target=5us, window=5)",
    "deadline",
    "none",
];
