//! Outcomes as text in columns.

use crate::outcome::{Latency, Outcome};

/// Columns that are as wide as their widest cell: the first to the left, the others to the right.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn ms(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{:.2} s", v / 1000.0),
        v if v >= 100.0 => format!("{v:.0} ms"),
        v => format!("{v:.1} ms"),
    }
}

/// Runs, a line each: latencies, events, migrations, nodes.
#[must_use]
pub fn summary(outcomes: &[Outcome]) -> String {
    let head = [
        "strategy",
        "seed",
        "fast mean",
        "p99",
        "slow mean",
        "p99",
        "processed",
        "of offered",
        "migrations",
        "nodes",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for outcome in outcomes {
        let latency = |latency: &Latency| {
            let none = latency.count == 0;
            [latency.mean_ms, latency.p99_ms].map(|v| if none { "-".to_owned() } else { ms(v) })
        };
        let ([fast, fast_p99], [slow, slow_p99]) = (latency(&outcome.fast), latency(&outcome.slow));
        let share = 100.0 * outcome.processed as f64 / (outcome.offered as f64).max(1.0);
        rows.push(vec![
            outcome.strategy.clone(),
            outcome.seed.to_string(),
            fast,
            fast_p99,
            slow,
            slow_p99,
            outcome.processed.to_string(),
            format!("{share:.2} %"),
            outcome.migrations.len().to_string(),
            format!("{:.1}", outcome.node_seconds / outcome.duration_s),
        ]);
    }
    columns(&rows)
}

/// Migrations and changes of nodes, a line each, with their reasons.
#[must_use]
pub fn migrations(outcome: &Outcome) -> String {
    let mut lines: Vec<(f64, String)> = Vec::new();
    for record in &outcome.migrations {
        let took = match record.ended_s {
            Some(ended) => format!("{:.2} s", ended - record.at_s),
            None => "unfinished".to_owned(),
        };
        let what = format!("{} {} -> {} ({took})", record.replica, record.from, record.to);
        lines.push((record.at_s, format!("{what}: {}", record.reason)));
    }
    for change in &outcome.node_changes {
        let what = if change.added { "asked for" } else { "released" };
        lines.push((change.at_s, format!("{} {what}: {}", change.node, change.reason)));
    }
    lines.sort_by(|a, b| a.0.total_cmp(&b.0));
    lines.iter().map(|(at, line)| format!("{at:7.1} s  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_whatever_their_cells() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(
            columns(&[row(["a", "100"]), row(["längst", "7"])]),
            "a       100\nlängst    7\n"
        );
        assert_eq!(columns(&[]), "");
    }

    #[test]
    fn latencies_have_three_digits_or_so() {
        assert_eq!(
            [ms(0.25), ms(12.34), ms(123.4), ms(12_345.0)].join(" "),
            "0.2 ms 12.3 ms 123 ms 12.35 s"
        );
    }
}
