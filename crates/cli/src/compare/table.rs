//! The comparison as text: a table for each load, a sentence below it, and at the end the plan of
//! the best. Pure.

use std::time::Duration;

use anstyle::{AnsiColor, Style};

use super::Comparison;
use super::child::Numbers;
use super::runs::Combination;
use super::verdict::{By, Ranking, Row, Standing};
use crate::show::table::{Cell, Column, paint, table};
use crate::show::units::{amount, span, thousands};

/// If only one in so many events that come in goes out, that is worth a word.
const FEW: u64 = 100;

/// All of it, a line each.
pub(super) fn text(of: &Comparison, wide: usize, colour: bool) -> String {
    let style = |style: Style| if colour { style } else { Style::new() };
    let app = paint(&of.app, style(Style::new().bold()));
    let mut lines = vec![format!("{app}: {}", of.about())];
    for ranking in &of.rankings {
        lines.push(String::new());
        if of.rankings.len() > 1 || ranking.load != super::runs::Load::Max {
            lines.push(paint(&ranking.load.told(), style(Style::new().bold())));
        }
        let rows: Vec<_> = ranking.rows.iter().map(|row| cells(row, of, &style)).collect();
        lines.extend(table(&columns(), &rows, style(Style::new().dimmed()), wide));
        let red = style(AnsiColor::Red.on_default());
        lines.extend(failures(ranking, of).iter().map(|line| paint(line, red)));
        lines.push(paint(&of.sentence(ranking), style(Style::new().bold())));
    }
    lines.extend(hint(of));
    if let Some(plan) = plan(of) {
        lines.push(String::new());
        lines.push(plan);
    }
    lines.join("\n") + "\n"
}

fn columns() -> [Column; 12] {
    let right = |head, rank| Column { head, right: true, least: 0, rank };
    [
        Column { head: "policy", right: false, least: 0, rank: 0 },
        right("threads", 1),
        right("events/s", 0),
        Column { head: "against the best", right: false, least: 0, rank: 0 },
        right("taken in/s", 9),
        right("mean", 5),
        right("p50", 4),
        right("p99", 2),
        right("max", 6),
        right("deviation", 8),
        right("shed", 3),
        right("CPU/event", 7),
    ]
}

fn cells(row: &Row, of: &Comparison, style: &impl Fn(Style) -> Style) -> Vec<Cell> {
    let Combination { policy, threads, .. } = &of.combinations[row.combination];
    let standing = match row.standing {
        Standing::Best => Cell::styled("the best", style(AnsiColor::Green.on_default())),
        Standing::NotProven(versus) | Standing::Tie(versus) => {
            Cell::from(format!("{}: {}", row.standing.word(), versus.short()))
        }
        Standing::Worse(versus) => Cell::from(versus.short()),
        Standing::Failed if row.failed.is_empty() => Cell::from("not run to its end"),
        Standing::Failed => {
            let told = format!("failed {} of {}", row.failed.len(), row.runs);
            Cell::styled(told, style(AnsiColor::Red.on_default()))
        }
    };
    let figure = |figure: &dyn Fn(&Numbers) -> String| {
        Cell::from(row.medians.as_ref().map(figure).unwrap_or_default())
    };
    vec![
        Cell::from(policy.clone()),
        Cell::from(threads.to_string()),
        figure(&|n| amount(n.events_per_s)),
        standing,
        figure(&|n| amount(n.input_per_s())),
        figure(&|n| time(n.mean_s)),
        figure(&|n| time(n.p50_s)),
        figure(&|n| time(n.p99_s)),
        figure(&|n| time(n.max_s)),
        figure(&|n| time(n.deviation_s)),
        figure(&|n| match n.shed {
            0 => String::new(),
            _ => format!("{:.1} %", n.shed_share() * 100.0),
        }),
        figure(&|n| n.cpu_s.map_or_else(String::new, |_| time(n.cpu_per_event_s()))),
    ]
}

fn time(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| String::new(), span)
}

/// `srpt, 2 threads failed: exit code 1: ...`, once for all that failed alike.
fn failures(ranking: &Ranking, of: &Comparison) -> Vec<String> {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for row in &ranking.rows {
        let mut reasons: Vec<&str> =
            row.failed.iter().map(|reason| reason.lines().next().unwrap_or_default()).collect();
        reasons.sort_unstable();
        reasons.dedup();
        for reason in reasons {
            let name = of.name(row.combination);
            match groups.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, names)) => names.push(name),
                None => groups.push((reason, vec![name])),
            }
        }
    }
    let line = |(reason, names): (&str, Vec<String>)| match names.len() {
        all if all > 1 && all == ranking.rows.len() => format!("all failed: {reason}"),
        _ => format!("{} failed: {reason}", names.join("; ")),
    };
    groups.into_iter().map(line).collect()
}

/// A program that gathers lets few events out, and their number says little of how fast it is.
fn hint(of: &Comparison) -> Option<String> {
    let numbers = of.rankings.iter().find_map(|ranking| ranking.best()?.medians.as_ref())?;
    let few = of.by == By::Throughput && numbers.events_out < numbers.events_in / FEW;
    few.then(|| {
        let (out, into) = (thousands(numbers.events_out), thousands(numbers.events_in));
        format!("(Of {into} events that come in, {out} go out: `--by input` ranks by the former.)")
    })
}

/// The plan of the best of each load, to be pasted.
fn plan(of: &Comparison) -> Option<String> {
    let mut parts: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for ranking in &of.rankings {
        let Some(best) = ranking.best() else { continue };
        let lines = of.plan_lines(best.combination);
        match parts.iter_mut().find(|(known, _)| *known == lines) {
            Some((_, loads)) => loads.push(ranking.load.told()),
            None => parts.push((lines, vec![ranking.load.told()])),
        }
    }
    let alone = parts.len() == 1;
    let part = |(lines, loads): (Vec<String>, Vec<String>)| {
        let best =
            if alone { "the best".to_owned() } else { format!("the best {}", loads.join(", ")) };
        format!("# {best}, for a plan:\n{}", lines.join("\n"))
    };
    (!parts.is_empty()).then(|| parts.into_iter().map(part).collect::<Vec<_>>().join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::super::runs::Load;
    use super::super::verdict::tests::{run, runs};
    use super::super::verdict::{By, Run};
    use super::*;

    fn combination(policy: &str, load: Load) -> Combination {
        Combination { policy: policy.to_owned(), threads: 2, threads_said: true, load }
    }

    fn comparison(combinations: Vec<Combination>, runs: Vec<Run>) -> Comparison {
        let (app, cluster) = ("words".to_owned(), "main".to_owned());
        Comparison::of(app, cluster, By::Throughput, 6, combinations, runs, None)
    }

    const A: [f64; 6] = [1000.0, 1010.0, 990.0, 1005.0, 995.0, 1000.0];

    #[test]
    fn a_table_ranks_says_what_failed_and_ends_with_a_plan_to_paste() {
        let policies = ["single", "srpt", "seda(threads=4)"];
        let combinations = policies.map(|policy| combination(policy, Load::Max)).to_vec();
        let mut runs = runs(&[&A.map(|n| n * 0.8), &A, &A.map(|n| n * 0.9)]);
        if let Ok(numbers) = &mut runs[0].end {
            numbers.shed = 100;
        }
        for run in runs.iter_mut().skip(13) {
            run.end = Err("exit code 1: the disk is full\nat length".to_owned());
        }
        let text = text(&comparison(combinations, runs), usize::MAX, false);
        assert_eq!(
            text,
            "\
words: medians of 6 rounds, ranked by throughput

policy           threads  events/s  against the best    taken in/s     mean      p50      p99      max  deviation  CPU/event
srpt                   2       291  the best                   5 k  3.51 ms  3.15 ms  17.5 ms  31.5 ms    1.75 ms    3.51 ms
single                 2       232  -20 % (-20 to -20)         5 k  4.38 ms  3.94 ms  21.9 ms  39.4 ms    2.19 ms    4.38 ms
seda(threads=4)        2       900  failed 5 of 6              5 k  1.11 ms     1 ms  5.56 ms    10 ms     556 µs    1.11 ms
seda(threads=4), 2 threads failed: exit code 1: the disk is full
`srpt, 2 threads` is the best; the next, `single, 2 threads`, has 20 % less (20 % to 20 %).

# the best, for a plan:
cluster.main.policy = \"srpt\"
cluster.main.threads = 2
"
        );
    }

    #[test]
    fn each_load_has_a_table_and_the_best_of_each_is_told() {
        let loads = [Load::Max, Load::Rate(5e3)];
        let combinations = loads
            .iter()
            .flat_map(|load| ["single", "srpt"].map(|policy| combination(policy, *load)));
        let figures = [A, A.map(|n| n * 0.5), A.map(|n| n * 0.7), A];
        let figures: Vec<&[f64]> = figures.iter().map(<[f64; 6]>::as_slice).collect();
        let text = text(&comparison(combinations.collect(), runs(&figures)), 60, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[2], lines[8]), ("as fast as it goes", "at 5 k/s"));
        assert!(lines.iter().all(|line| line.starts_with('`') || line.chars().count() <= 60));
        assert!(text.ends_with(
            "\
# the best as fast as it goes, for a plan:
cluster.main.policy = \"single\"
cluster.main.threads = 2

# the best at 5 k/s, for a plan:
cluster.main.policy = \"srpt\"
cluster.main.threads = 2
"
        ));
    }

    #[test]
    fn what_was_shed_and_that_few_events_leave_is_told() {
        let combinations = vec![combination("single", Load::Max), combination("srpt", Load::Max)];
        let mut runs: Vec<Run> =
            (0..6).flat_map(|round| [run(0, round, 10.0), run(1, round, 9.0)]).collect();
        for run in &mut runs {
            if let Ok(numbers) = &mut run.end {
                (numbers.events_out, numbers.shed) = (30, 10);
            }
        }
        let text = text(&comparison(combinations, runs), usize::MAX, false);
        assert!(text.contains("  shed  ") && text.contains("  25.0 %"), "{text}");
        let hint = "(Of 10,000 events that come in, 30 go out: `--by input` ranks by the former.)";
        assert!(text.contains(hint), "{text}");
    }

    #[test]
    fn why_all_failed_is_told_once() {
        let combinations = vec![combination("single", Load::Max), combination("srpt", Load::Max)];
        let mut runs = runs(&[&A, &A]);
        runs.iter_mut().for_each(|run| run.end = Err("exit code 1: no such file".to_owned()));
        runs[3].end = Err("ended by SIGABRT".to_owned());
        let text = text(&comparison(combinations, runs), usize::MAX, false);
        let lines: Vec<&str> = text.lines().skip(5).collect();
        assert_eq!(
            lines,
            [
                "single, 2 threads failed: ended by SIGABRT",
                "all failed: exit code 1: no such file",
                "Nothing came through every round: there is no best.",
            ],
        );
    }

    #[test]
    fn a_comparison_that_was_stopped_before_anything_ran_says_so() {
        let combinations = vec![combination("single", Load::Max)];
        let stopped = Comparison { stopped: Some(2), ..comparison(combinations, Vec::new()) };
        let text = text(&stopped, usize::MAX, false);
        assert!(text.starts_with("words: medians of 0 of 6 rounds, ranked by"), "{text}");
        assert!(text.contains("not run to its end") && text.contains("there is no best"), "{text}");
    }
}
