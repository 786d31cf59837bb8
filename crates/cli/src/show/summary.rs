//! The report as text, for people.

use anstyle::{AnsiColor, Style};
use comporta_plan::escaped;
use comporta_runtime::{Decision, Ended, Shed, StageSnapshot};

use super::pace::per_second;
use super::report::{Asked, Decisions, Failed, Report, gateway, held_or_cancelled};
use super::table::{Cell, Column, clip, paint, table};
use super::units::{amount, events, span, thousands};

/// Reasons told per stage; the rest is counted.
const REASONS_MAX: usize = 3;

/// The most columns of a reason, so that one does not fill the screen.
const REASON_MAX: usize = 200;

/// The most characters of a key.
const KEY_MAX: usize = 24;

/// The whole summary, a line each.
pub(super) fn summary(report: &Report, wide: usize, colour: bool) -> String {
    let style = |style: Style| if colour { style } else { Style::new() };
    let app = paint(&report.snapshot.app, style(Style::new().bold()));
    let mut lines = vec![format!("{app}: {}", how(report)), through(report)];
    lines.extend(taken(report));
    let rows: Vec<_> = report.snapshot.stages.iter().map(|stage| row(stage, &style)).collect();
    lines.extend(table(&columns(), &rows, style(Style::new().dimmed()), wide));
    lines.extend(gateways(report));
    lines.extend(busiest_keys(report, wide));
    lines.extend(unrouted(report).map(|line| paint(&line, style(AnsiColor::Yellow.on_default()))));
    lines.extend(shed(report).map(|line| paint(&line, style(AnsiColor::Yellow.on_default()))));
    let red = style(AnsiColor::Red.on_default());
    lines.extend(report.failed.iter().flat_map(failed).map(|line| paint(&line, red)));
    lines.extend(kept(report).iter().map(|line| paint(line, Style::new())));
    lines.extend(troubles(report).map(|line| paint(&line, red)));
    lines.join("\n") + "\n"
}

/// What the policies did, a line each.
pub(super) fn decisions(report: &Report) -> String {
    let Decisions { last, forgotten } = &report.decisions;
    let line = |(cluster, decision): &(String, Decision)| {
        escaped(&format!("{cluster}: {decision}")).into_owned() + "\n"
    };
    let lines: String = last.iter().map(line).collect();
    match (last.len() as u64, *forgotten) {
        (0, 0) => "the policy changed nothing\n".to_owned(),
        (_, 0) => lines,
        (n, before) => {
            let all = thousands(n + before);
            format!("the last {} of {all} decisions:\n{lines}", thousands(n))
        }
    }
}

/// Only what went wrong: what is told when all else is to be quiet.
pub(super) fn complaints(report: &Report) -> String {
    let app = &report.snapshot.app;
    let end = (report.ended == Ended::TimedOut).then(|| how(report));
    let failures = report.failed.iter().flat_map(failed);
    let all = end.into_iter().chain(failures).chain(troubles(report));
    all.map(|line| format!("{app}: {}\n", escaped(&line))).collect()
}

/// How it ended, and after how long.
fn how(report: &Report) -> String {
    let asked = match (report.ended, report.asked) {
        (Ended::Drained | Ended::TimedOut | Ended::Stopped, Some(asked @ Asked::Signal(_))) => {
            format!(" on {}", asked.name())
        }
        (Ended::Drained | Ended::TimedOut, Some(Asked::Limit(limit))) => {
            format!(" (--for {})", span(limit))
        }
        _ => String::new(),
    };
    let end = match report.ended {
        Ended::Complete => "complete",
        Ended::SourceFailed => "ended by a source that failed",
        Ended::Quit => "quit",
        Ended::Drained => "drained",
        Ended::TimedOut => "not drained in time",
        Ended::Stopped => "stopped",
        _ => "ended",
    };
    format!("{end}{asked} after {}", span(report.snapshot.elapsed))
}

/// How much has passed through it.
fn through(report: &Report) -> String {
    let rate = |n| amount(per_second(n, report.snapshot.elapsed));
    let (into, out) = (report.entered, report.left);
    format!("{} in ({}/s), {} out ({}/s)", events(into), rate(into), thousands(out), rate(out))
}

/// How long it took, if anything has left the program.
fn taken(report: &Report) -> Option<String> {
    let latency = report.snapshot.latency();
    let quantile = |share| span(latency.quantile(share));
    (latency.count() > 0).then(|| {
        let (p50, p99, max) = (quantile(0.5), quantile(0.99), span(latency.max()));
        format!("time in the program: p50 {p50}, p99 {p99}, max {max}")
    })
}

fn columns() -> [Column; 8] {
    let right = |head, rank| Column { head, right: true, least: 0, rank };
    [
        Column { head: "stage", right: false, least: 0, rank: 0 },
        right("arrived", 5),
        right("handled", 1),
        right("emitted", 6),
        right("shed", 4),
        right("failed", 2),
        right("left", 3),
        right("service", 7),
    ]
}

fn row(stage: &StageSnapshot, style: &dyn Fn(Style) -> Style) -> Vec<Cell> {
    let counts = &stage.counts;
    let number = |n: u64| Cell::from(thousands(n));
    let trouble = |n: u64, colour: AnsiColor| {
        let plain = if n == 0 { Style::new().dimmed() } else { colour.on_default() };
        Cell::styled(thousands(n), style(plain))
    };
    let blank = || Cell::default();
    let service = stage.service();
    let service = if service.is_zero() { String::new() } else { span(service) };
    let wait = stage.wait();
    let service = if wait.is_zero() { service } else { format!("{service} + {} wait", span(wait)) };
    let shed = counts.shed_on_entry() + counts.shed_later();
    // Where events enter there is no queue, so nothing arrives.
    let queue = stage.capacity > 0;
    vec![
        Cell::from(stage.name.clone()),
        if queue { number(counts.arrived) } else { blank() },
        if queue { number(counts.handled) } else { blank() },
        number(counts.emitted),
        if queue { trouble(shed, AnsiColor::Yellow) } else { blank() },
        if queue { trouble(counts.failed, AnsiColor::Red) } else { blank() },
        if queue { trouble(held_or_cancelled(stage), AnsiColor::Yellow) } else { blank() },
        Cell::from(service),
    ]
}

/// `gateway `prices`: 1,204 requests, 1,200 replied, 3 expired, 1 given up; 7 given back`.
fn gateways(report: &Report) -> impl Iterator<Item = String> {
    report.snapshot.stages.iter().filter_map(|stage| {
        let of = gateway(stage)?;
        let outcomes = [
            (of.replied, "replied"),
            (of.expired, "expired"),
            (of.failed, "failed"),
            (of.shed, "shed"),
            (of.no_reply, "without reply"),
            (of.cancelled, "cancelled"),
            (of.abandoned, "given up"),
            (of.in_flight as u64, "in flight"),
        ];
        let told = |(n, how): &(u64, &str)| format!(", {} {how}", thousands(*n));
        let outcomes: String = outcomes.iter().filter(|(n, _)| *n > 0).map(told).collect();
        let others = [(of.rejected, "given back"), (of.unclaimed, "replies to nobody")];
        let told = |(n, what): &(u64, &str)| format!("; {} {what}", thousands(*n));
        let others: String = others.iter().filter(|(n, _)| *n > 0).map(told).collect();
        let n = thousands(of.requests);
        Some(format!("gateway `{}`: {n} requests{outcomes}{others}", stage.name))
    })
}

/// The busiest keys of each keyed stage, if they were counted.
fn busiest_keys(report: &Report, wide: usize) -> impl Iterator<Item = String> {
    let stages = report.snapshot.stages.iter().filter(|stage| !stage.top_keys.is_empty());
    stages.map(move |stage| {
        let mut keys: Vec<_> = stage.top_keys.iter().collect();
        keys.sort_by_key(|key| std::cmp::Reverse(key.handled));
        let keys = keys.into_iter().map(|key| (&*key.key, key.handled, key.queued));
        keys_line(&stage.name, keys, wide)
    })
}

/// Keys with what was handled and what waits, as many as a line holds; the first in any case.
fn keys_line<'a>(
    stage: &str,
    keys: impl Iterator<Item = (&'a str, u64, usize)>,
    wide: usize,
) -> String {
    let mut line = format!("busiest keys of `{stage}`:");
    for (place, (key, handled, queued)) in keys.enumerate() {
        let mut name: String = key.chars().take(KEY_MAX).flat_map(char::escape_debug).collect();
        if key.chars().count() > KEY_MAX {
            name.push_str("...");
        }
        let waits = match queued {
            0 => String::new(),
            n => format!(" ({} waiting)", thousands(n as u64)),
        };
        let comma = if place == 0 { " " } else { ", " };
        let more = format!("{comma}{name} {}{waits}", thousands(handled));
        if place > 0 && line.chars().count() + more.chars().count() > wide {
            break;
        }
        line.push_str(&more);
    }
    line
}

/// What was sent through ports that lead nowhere.
fn unrouted(report: &Report) -> impl Iterator<Item = String> {
    let lost = report.snapshot.stages.iter().filter(|stage| stage.counts.unrouted > 0);
    lost.map(|stage| {
        let n = thousands(stage.counts.unrouted);
        format!("discarded at `{}`: {n} sent through a port that is not connected", stage.name)
    })
}

/// `shed: log: 1,204 drop-oldest, 3 rejected`.
fn shed(report: &Report) -> impl Iterator<Item = String> {
    report.snapshot.stages.iter().filter_map(|stage| {
        let reasons = Shed::ALL.map(|reason| (stage.counts.shed(reason), reason.name()));
        let told: Vec<_> = reasons
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, name)| format!("{} {name}", thousands(*n)))
            .collect();
        (!told.is_empty()).then(|| format!("shed at `{}`: {}", stage.name, told.join(", ")))
    })
}

fn failed(failed: &Failed) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (reason, count) in failed.reasons.iter().take(REASONS_MAX) {
        // A reason may have many lines; the first says what it is.
        let reason = clip(&escaped(reason.lines().next().unwrap_or_default()), REASON_MAX);
        lines.push(format!("failed at `{}`: {} × {reason}", failed.stage, thousands(*count)));
    }
    let other: u64 = failed.reasons.iter().skip(REASONS_MAX).map(|(_, count)| count).sum();
    if other + failed.forgotten > 0 {
        let more = events(other + failed.forgotten);
        let why = if other == 0 { "whose reasons were not kept" } else { "with other reasons" };
        lines.push(format!("failed at `{}`: {more} {why}", failed.stage));
    }
    lines
}

/// Where the failed events are, and where not, and why.
fn kept(report: &Report) -> Vec<String> {
    if report.failed.is_empty() {
        return Vec::new();
    }
    let Some(kept) = &report.kept else {
        if report.failed.iter().all(|failed| failed.sent_on) {
            return Vec::new();
        }
        return vec!["failed events are kept by `--failures FILE`".to_owned()];
    };
    let path = &kept.path;
    let n = events(kept.written);
    let mut lines = Vec::new();
    if kept.written > 0 {
        lines.push(format!("{n} that failed: in {path}, for `--replay`"));
    }
    lines.extend(kept.missing.iter().map(|(stage, why, n)| {
        format!("without the event: {} of `{stage}`: {why}", thousands(*n))
    }));
    lines
}

fn troubles(report: &Report) -> impl Iterator<Item = String> {
    let problems = report.problems.iter().map(|problem| format!("problem: {problem}"));
    let mut stuck: Vec<&String> = report.stuck.iter().collect();
    stuck.dedup();
    let told = stuck.into_iter().map(|stage| {
        let times = report.stuck.iter().filter(|other| *other == stage).count();
        match times {
            1 => format!("stuck: a handler of `{stage}` has not returned"),
            n => format!("stuck: {n} handlers of `{stage}` have not returned"),
        }
    });
    problems.chain(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::samples;

    #[test]
    fn a_summary_says_how_it_ended_and_what_every_stage_did() {
        assert_eq!(
            summary(&samples::report(), usize::MAX, false),
            "\
sample: drained on SIGTERM after 2 s
1,250,000 events in (625 k/s), 1,240,000 out (620 k/s)
stage      arrived    handled    emitted  shed  failed  left  service
numbers                        1,250,000
work     1,250,000  1,250,000  1,250,000     0       0     0  1.25 µs
show     1,240,000  1,240,000  1,240,000     0       0     0
"
        );
    }

    #[test]
    fn a_gateway_says_what_became_of_its_requests() {
        let text = summary(&samples::asked_report(), usize::MAX, false);
        let line =
            "gateway `prices`: 4 requests, 1 replied, 1 failed, 1 without reply, 1 given up\n";
        assert_eq!(text.matches(line).count(), 1, "{text}");
    }

    #[test]
    fn time_waiting_and_time_working_are_told_apart() {
        let mut report = samples::report();
        report.snapshot.stages[1].waited = std::time::Duration::from_millis(2) * 1_250_000;
        let text = summary(&report, usize::MAX, false);
        assert!(text.contains("1.25 µs + 2 ms wait\n"), "{text}");
    }

    #[test]
    fn a_summary_fits_eighty_columns_whatever_its_names_and_numbers() {
        let mut report = samples::report();
        let many = 9_999_999_999_999;
        (report.entered, report.left) = (many, many);
        for stage in &mut report.snapshot.stages {
            stage.name = "解析".repeat(20);
            stage.latency = samples::lossy().2.stages[2].latency.clone();
            (stage.counts.arrived, stage.counts.handled) = (many, many);
        }
        let text = summary(&report, 80, false);
        assert!(text.contains("time in the program: "), "{text}");
        assert!(text.lines().all(|line| crate::show::table::width(line) <= 80), "{text}");
    }

    #[test]
    fn what_is_forgotten_of_decisions_is_told() {
        let mut report = samples::report();
        assert_eq!(decisions(&report), "the policy changed nothing\n");
        report.decisions.forgotten = 1_000;
        assert_eq!(decisions(&report), "the last 0 of 1,000 decisions:\n");
    }

    #[test]
    fn a_run_that_had_its_time_says_how_long_that_was() {
        let limit = std::time::Duration::from_millis(1_500);
        let report = Report { asked: Some(Asked::Limit(limit)), ..samples::report() };
        assert_eq!(how(&report), "drained (--for 1.5 s) after 2 s");
    }

    #[test]
    fn what_was_shed_and_what_failed_is_told_with_reasons_and_problems_come_last() {
        let report = samples::lossy_report();
        let text = summary(&report, usize::MAX, false);
        let lines: Vec<_> = text.lines().skip(6).collect();
        assert_eq!(
            lines,
            [
                "parse         10        2        0     6       2     0",
                "shed at `parse`: 6 drop-oldest",
                "failed at `parse`: 2 × invalid digit found in string",
                "failed events are kept by `--failures FILE`",
                "problem: `numbers`: the disk is full",
                "stuck: a handler of `parse` has not returned",
            ]
        );
    }

    #[test]
    fn what_events_say_is_shown_without_commands_to_the_terminal_and_not_without_end() {
        let mut report = samples::lossy_report();
        report.failed[0].reasons =
            vec![("\u{1b}[2J\r\u{7}\0é".to_owned(), 1), ("解".repeat(500), 1)];
        report.problems = vec!["`a\u{1b}c`".to_owned()];
        let told = summary(&report, 80, true) + &complaints(&report);
        assert_eq!(told.matches("1 × \\u{1b}[2J\\r\\u{7}\\0é").count(), 2, "{told}");
        assert_eq!(told.matches("problem: `a\\u{1b}c`").count(), 2, "{told}");
        let ours = told.replace("\u{1b}[", ""); // colours
        assert!(!ours.replace('\n', "").contains(char::is_control), "{told:?}");
        let lines = failed(&report.failed[0]);
        assert_eq!(lines[1], format!("failed at `parse`: 1 × {}…", "解".repeat(99)));
    }

    #[test]
    fn only_the_first_few_reasons_are_told_and_the_rest_is_counted() {
        let reasons = ["a\nat length", "b", "c", "d", "e"].map(|reason| (reason.to_owned(), 1_000));
        let mut stage = Failed {
            stage: "s".to_owned(),
            reasons: reasons.to_vec(),
            forgotten: 7,
            sent_on: false,
        };
        let told = failed(&stage);
        assert_eq!((told.len(), told[0].as_str()), (4, "failed at `s`: 1,000 × a"));
        assert_eq!(told[3], "failed at `s`: 2,007 events with other reasons");
        stage.reasons.truncate(1);
        assert_eq!(failed(&stage)[1], "failed at `s`: 7 events whose reasons were not kept");
    }

    #[test]
    fn a_narrow_summary_keeps_what_was_handled_failed_and_left() {
        let text = summary(&samples::report(), 40, false);
        let heads: Vec<_> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(heads, ["stage", "handled", "shed", "failed", "left"]);
    }

    #[test]
    fn the_busiest_keys_fit_a_line() {
        let keys = [("ann", 12_345, 7), ("a\nb", 99, 0)];
        assert_eq!(
            keys_line("count", keys.into_iter(), 80),
            "busiest keys of `count`: ann 12,345 (7 waiting), a\\nb 99"
        );
        let long = "x".repeat(1_000);
        let line = keys_line("count", (0..9).map(|n| (&*long, n, 0)), 100);
        assert!(line.len() <= 100 && line.contains("xxx... 0, "), "{line}");
        assert!(line.ends_with("xxx... 1"), "{line}");
    }

    #[test]
    fn when_quiet_only_what_went_wrong_is_told() {
        assert_eq!(complaints(&samples::report()), "");
        assert_eq!(
            complaints(&samples::lossy_report()),
            "lossy: failed at `parse`: 2 × invalid digit found in string\n\
             lossy: problem: `numbers`: the disk is full\n\
             lossy: stuck: a handler of `parse` has not returned\n"
        );
    }
}
