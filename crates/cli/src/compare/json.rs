//! The comparison as one line of JSON, for programs: every run, and what they come to. Names do
//! not change, new ones may be added. Times are in seconds; a load of `null` is as fast as it goes.

use serde::Serialize;

use super::Comparison;
use super::child::Numbers;
use super::runs::Load;
use super::verdict::{Row, Standing, Versus};
use crate::show::Exit;

#[derive(Serialize)]
struct All<'a> {
    app: &'a str,
    ranked_by: &'a str,
    rounds: usize,
    /// Of these, in which all was run.
    rounds_run: usize,
    /// A signal ended it before its time.
    stopped: bool,
    exit_code: u8,
    loads: Vec<Ranked<'a>>,
    runs: Vec<One<'a>>,
}

#[derive(Serialize)]
struct Ranked<'a> {
    load: Option<f64>,
    verdict: String,
    /// The plan of the best.
    plan: Vec<String>,
    /// From best to worst.
    rows: Vec<Ranking<'a>>,
}

#[derive(Serialize)]
struct Ranking<'a> {
    policy: &'a str,
    threads: usize,
    /// `best`, `not_proven` (too few rounds to know), `tie` (it cannot be told from the best), `worse`
    /// or `failed`.
    standing: String,
    /// Its figure as a share of the best one's, and the interval of that at 95 %.
    ratio: Option<f64>,
    ratio_low: Option<f64>,
    ratio_high: Option<f64>,
    runs: usize,
    failed: usize,
    medians: Option<&'a Numbers>,
}

#[derive(Serialize)]
struct One<'a> {
    round: usize,
    policy: &'a str,
    threads: usize,
    load: Option<f64>,
    /// Why it failed.
    failed: Option<&'a str>,
    numbers: Option<&'a Numbers>,
}

/// The line, with its end.
pub(super) fn json(of: &Comparison, exit: Exit) -> String {
    let rate = |load| match load {
        Load::Max => None,
        Load::Rate(rate) => Some(rate),
    };
    let ranked = of.rankings.iter().map(|ranking| Ranked {
        load: rate(ranking.load),
        verdict: of.sentence(ranking),
        plan: ranking.best().map_or_else(Vec::new, |best| of.plan_lines(best.combination)),
        rows: ranking.rows.iter().map(|row| ranking_of(of, row)).collect(),
    });
    let one = of.runs.iter().map(|run| {
        let combination = &of.combinations[run.combination];
        One {
            round: run.round + 1,
            policy: &combination.policy,
            threads: combination.threads,
            load: rate(combination.load),
            failed: run.end.as_ref().err().map(String::as_str),
            numbers: run.end.as_ref().ok(),
        }
    });
    let all = All {
        app: &of.app,
        ranked_by: of.by.word(),
        rounds: of.rounds,
        rounds_run: of.rounds_run(),
        stopped: of.stopped.is_some(),
        exit_code: exit.code(),
        loads: ranked.collect(),
        runs: one.collect(),
    };
    let text = serde_json::to_string(&all);
    text.expect("a struct of numbers, texts and lists has a JSON form") + "\n"
}

fn ranking_of<'a>(of: &'a Comparison, row: &'a Row) -> Ranking<'a> {
    let combination = &of.combinations[row.combination];
    let versus = match row.standing {
        Standing::Best => Some(Versus { ratio: 1.0, interval: None }),
        standing => standing.versus(),
    };
    let interval = versus.and_then(|versus| versus.interval);
    Ranking {
        policy: &combination.policy,
        threads: combination.threads,
        standing: row.standing.word().replace(' ', "_"),
        ratio: versus.map(|versus| versus.ratio),
        ratio_low: interval.map(|(low, _)| low),
        ratio_high: interval.map(|(_, high)| high),
        runs: row.runs,
        failed: row.failed.len(),
        medians: row.medians.as_ref(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::runs::Combination;
    use super::super::verdict::By;
    use super::super::verdict::tests::runs;
    use super::*;

    #[test]
    fn a_comparison_is_one_line_with_the_verdict_of_each_load_and_every_run() {
        let of = |policy: &str, load| Combination {
            policy: policy.to_owned(),
            threads: 2,
            threads_said: false,
            load,
        };
        let combinations = vec![of("single", Load::Max), of("srpt", Load::Rate(5.0))];
        let mut runs = runs(&[&[1000.0; 6], &[500.0; 6]]);
        runs[0].end = Err("gone".to_owned());
        let (app, cluster) = ("words".to_owned(), "main".to_owned());
        let all = Comparison::of(app, cluster, By::P99, 6, combinations, runs, None);
        let text = json(&all, Exit::Problems);
        assert_eq!(text.matches('\n').count(), 1);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let say = |path: &str| {
            json.pointer(path).unwrap_or_else(|| panic!("{path}: {json:#}")).to_string()
        };
        assert_eq!((say("/ranked_by"), say("/exit_code")), ("\"p99\"".to_owned(), "1".to_owned()));
        assert_eq!(say("/loads/0/rows/0/standing"), "\"failed\"");
        assert_eq!(say("/loads/0/plan"), "[]");
        assert_eq!(
            (say("/loads/0/load"), say("/loads/1/load")),
            ("null".to_owned(), "5.0".to_owned())
        );
        assert_eq!(say("/loads/1/rows/0/standing"), "\"best\"");
        assert_eq!(say("/loads/1/rows/0/medians/events_in"), "10000");
        assert_eq!(say("/loads/1/plan/0"), r#""cluster.main.policy = \"srpt\"""#);
        assert_eq!(
            (say("/runs/0/round"), say("/runs/0/failed")),
            ("1".to_owned(), "\"gone\"".to_owned())
        );
        assert_eq!(say("/runs/6/numbers/p99_s"), "0.01");
        assert_eq!(json["runs"].as_array().unwrap().len(), 12);
    }
}
