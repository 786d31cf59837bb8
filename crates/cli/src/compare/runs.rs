//! What is compared: lists as they are given on the command line, what they combine to, and the
//! order of the runs. The only file of the comparison that knows what a policy is.

use comporta_model::plan::{Choice, Offer, validate_choice};
use comporta_stats::Dice;

use crate::show::units::amount;

/// What the order of the runs is shuffled by: the same for every comparison.
const SEED: u64 = 0x00c0_4007_a5ee_d000;

/// The policies to compare, each as `--policy` takes it, or `all`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policies(Vec<String>);

impl Policies {
    /// Each policy once, by its first name: which there are is for the program to say.
    pub(crate) fn of(&self, offers: &[Offer]) -> Result<Vec<String>, String> {
        let mut names: Vec<String> = Vec::new();
        for said in &self.0 {
            match said.as_str() {
                "all" => names.extend(offers.iter().map(|offer| offer.name.to_owned())),
                said => names.push(policy(said, offers)?),
            }
        }
        Ok(once(names))
    }
}

/// The numbers of threads to compare.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Threads(pub(crate) Vec<usize>);

/// The loads to compare.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Loads(pub(crate) Vec<Load>);

/// How fast all sources together send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// As fast as it goes.
    Max,
    /// So many events a second.
    Rate(f64),
}

impl Load {
    /// In a heading.
    pub(super) fn told(self) -> String {
        match self {
            Load::Max => "as fast as it goes".to_owned(),
            Load::Rate(rate) => format!("at {}/s", amount(rate)),
        }
    }
}

/// What one run is run with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Combination {
    pub(crate) policy: String,
    /// As many as it has; nothing is said on the command line if this is what the plan has.
    pub(crate) threads: usize,
    pub(crate) threads_said: bool,
    pub(crate) load: Load,
}

impl Combination {
    /// `srpt, 2 threads`, or `srpt` if `threads` are the same for all.
    pub(super) fn name(&self) -> String {
        match (self.threads_said, self.threads) {
            (false, _) => self.policy.clone(),
            (true, 1) => format!("{}, 1 thread", self.policy),
            (true, n) => format!("{}, {n} threads", self.policy),
        }
    }
}

/// Reads `--policies`: names with commas between, where those in parentheses belong to a policy.
pub(crate) fn policies(text: &str) -> Result<Policies, String> {
    Ok(Policies(split(text)?.into_iter().map(str::to_owned).collect()))
}

/// A policy as `--policy` takes it, by its first name.
fn policy(text: &str, offers: &[Offer]) -> Result<String, String> {
    let mut choice: Choice = text.parse().map_err(|fault| format!("{fault}"))?;
    let validated = validate_choice("policy", offers, &choice, "policy");
    let validated = validated
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    choice.name = validated.name; // only what was said of its parameters
    Ok(choice.to_string())
}

/// Reads `--threads`.
pub(crate) fn threads(text: &str) -> Result<Threads, String> {
    let number = |part: &str| part.parse().map_err(|_| format!("`{part}` is no number of threads"));
    let numbers = split(text)?.into_iter().map(number).collect::<Result<Vec<usize>, _>>()?;
    Ok(Threads(once(numbers)))
}

/// Reads `--load`.
pub(crate) fn loads(text: &str) -> Result<Loads, String> {
    let loads = split(text)?.into_iter().map(load).collect::<Result<Vec<_>, _>>()?;
    Ok(Loads(once(loads)))
}

fn load(text: &str) -> Result<Load, String> {
    if text == "max" {
        return Ok(Load::Max);
    }
    let (digits, size) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1e3),
        Some(b'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let rate = digits.trim().replace('_', "").parse().ok().map(|rate: f64| rate * size);
    rate.filter(|rate| rate.is_finite() && *rate > 0.0).map(Load::Rate).ok_or_else(|| {
        format!("`{text}` is no load: use `max` or events a second, as in `5000` or `5k`")
    })
}

/// The parts of a list, without blanks around them.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut depth, mut from, mut parts) = (0_usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Err("a `)` closes nothing".to_owned()),
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[from..].trim());
    match parts.iter().any(|part| part.is_empty()) {
        _ if depth > 0 => Err("a `(` is not closed".to_owned()),
        true => Err("nothing stands between two commas, or there is nothing at all".to_owned()),
        false => Ok(parts),
    }
}

/// Each of them once, in the order first named.
fn once<T: PartialEq>(items: Vec<T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::with_capacity(items.len());
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

/// In which order `n` combinations are run, round by round: each once in every round, shuffled, so
/// that a slow minute of the machine and what ran just before hit all alike.
pub(super) fn order(n: usize, rounds: usize) -> Vec<Vec<usize>> {
    let mut dice = Dice::new(SEED);
    let mut order: Vec<usize> = (0..n).collect();
    let round = |_| {
        dice.shuffle(&mut order);
        order.clone()
    };
    (0..rounds).map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_in_parentheses_belongs_to_the_policy() {
        let parts = split("seda(threads=4, every=1s), cohort ,a(b(c,d),e)");
        assert_eq!(parts, Ok(vec!["seda(threads=4, every=1s)", "cohort", "a(b(c,d),e)"]));
        for (text, why) in [
            ("a,,b", "nothing"),
            ("", "nothing"),
            ("a(b,c", "not closed"),
            ("a)", "closes nothing"),
        ] {
            assert!(split(text).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn a_policy_is_known_by_all_its_names_and_compared_once() {
        let offers = comporta_policy::Registry::new().offers();
        let names = |text| policies(text).unwrap().of(&offers).unwrap();
        assert_eq!(names("srpt, fifo,single"), ["srpt", "single"]);
        assert!(names("all").len() >= 3);
        assert_eq!(names("srpt,all")[0], "srpt");
        assert_eq!(names("srpt,all").len(), names("all").len());
        assert_eq!(names("seda(threads=4, capacity=9),fifo")[0], "seda(capacity=9, threads=4)");
        let slip = policies("single,sprt").unwrap().of(&offers).unwrap_err();
        assert_eq!(slip, "there is no policy `sprt`: did you mean `srpt`?");
    }

    #[test]
    fn threads_and_loads_are_lists() {
        assert_eq!(threads("1, 2,4,2").unwrap().0, [1, 2, 4]);
        assert_eq!(threads("two").unwrap_err(), "`two` is no number of threads");
        let rates = loads("max,1_000,5k, 0.5M,2.5").unwrap().0;
        let expected =
            [Load::Max, Load::Rate(1e3), Load::Rate(5e3), Load::Rate(5e5), Load::Rate(2.5)];
        assert_eq!(rates, expected);
        for bad in ["0", "-1", "fast", "k", "nan", "inf"] {
            assert!(loads(bad).unwrap_err().starts_with(&format!("`{bad}` is no load")), "{bad}");
        }
    }

    #[test]
    fn every_round_has_every_combination_once_and_the_order_changes() {
        let rounds = order(5, 6);
        assert_eq!(rounds.len(), 6);
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
        }
        assert!(rounds.iter().any(|round| *round != rounds[0]));
        assert_eq!(order(5, 6), rounds, "the same each time");
    }
}
