//! Tables for people, one JSON object for scripts, and the bars both are judged by.
//! Invariant: a bar is judged by the pessimistic end of a ratio's interval, and by nothing else.

use crate::cpu::Cpu;
use crate::options::Options;
use crate::stalls::TALLY;
use crate::stats::Ratio;
use serde_json::{Map, Value, json};

/// A promise about a figure.
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) limit: Limit,
    pub(crate) about: &'static str,
}

#[derive(Clone, Copy)]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
    Exactly(f64),
    Between(f64, f64),
}

impl Limit {
    pub(crate) fn holds(self, figure: f64) -> bool {
        match self {
            Limit::AtLeast(least) => figure >= least,
            Limit::AtMost(most) => figure <= most,
            Limit::Exactly(exact) => figure == exact,
            Limit::Between(least, most) => (least..=most).contains(&figure),
        }
    }

    fn show(self) -> String {
        match self {
            Limit::AtLeast(least) => format!(">= {least}"),
            Limit::AtMost(most) => format!("<= {most}"),
            Limit::Exactly(exact) => format!("= {exact}"),
            Limit::Between(least, most) => format!("{least} to {most}"),
        }
    }
}

/// Which way a ratio is good, hence which end of its interval is the figure.
#[derive(Clone, Copy)]
pub(crate) enum Better {
    More,
    Less,
}

/// What a bench found.
pub(crate) struct Report {
    fields: Map<String, Value>,
    bars: &'static [Bar],
    began: Cpu,
}

impl Report {
    pub(crate) fn new(bench: &str, options: &Options, bars: &'static [Bar]) -> Report {
        let mut fields = Map::new();
        fields.insert("bench".into(), json!(bench));
        fields.insert("quick".into(), json!(options.quick));
        fields.insert("rounds".into(), json!(options.rounds));
        fields.insert("threads".into(), json!(options.threads));
        fields.insert("ours".into(), json!(options.ours));
        Report { fields, bars, began: Cpu::now() }
    }

    pub(crate) fn figure(&mut self, name: impl Into<String>, figure: f64) {
        self.fields.insert(name.into(), json!(rounded(figure)));
    }

    /// A figure of several runs: the greatest of them.
    pub(crate) fn most(&mut self, name: &str, figure: f64) {
        let before = self.fields.get(name).and_then(Value::as_f64);
        self.figure(name, before.map_or(figure, |before| before.max(figure)));
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.fields.insert(name.into(), json!(text));
    }

    /// `name` is the pessimistic bound; `name_median` and `name_rounds` stand beside it.
    pub(crate) fn ratio(&mut self, name: &str, ratio: &Ratio, better: Better) {
        let bound = match better {
            Better::More => ratio.low,
            Better::Less => ratio.high,
        };
        self.figure(name, bound);
        self.figure(format!("{name}_median"), ratio.median);
        let rounds: Vec<f64> = ratio.rounds.iter().copied().map(rounded).collect();
        self.fields.insert(format!("{name}_rounds"), json!(rounds));
    }

    /// A group of figures of one peer under one case: `cases.<case>.<peer>.<figure>`.
    pub(crate) fn detail(&mut self, case: &str, peer: &str, figures: &[(&str, f64)]) {
        let figures: Map<String, Value> = figures
            .iter()
            .map(|(name, figure)| ((*name).into(), json!(rounded(*figure))))
            .collect();
        let cases = self.fields.entry("cases").or_insert_with(|| json!({}));
        cases[case][peer] = Value::Object(figures);
    }

    /// Closes the run: what other processes used of the machine from beginning to end.
    pub(crate) fn close(&mut self) {
        let others = (Cpu::now() - self.began).others_percent();
        self.figure("others_cpu_percent", others);
        println!("\nOthers used {others:.1} % of the machine during this run.");
        if let Some(told) = TALLY.tell() {
            println!("{told}");
        }
    }

    /// What was found, for people: a line for each figure that matters, and nothing to pass or miss.
    pub(crate) fn print_verdict(&self) {
        self.verdict().iter().for_each(|line| println!("{line}"));
    }

    fn verdict(&self) -> Vec<String> {
        let figure = |name: &str| self.fields.get(name).and_then(Value::as_f64);
        let mut lines = Vec::new();
        for bar in self.bars {
            let Some(bound) = figure(bar.name) else { continue };
            let (side, about) = match bar.limit {
                Limit::AtLeast(_) => ("at least", bar.about),
                Limit::AtMost(_) | Limit::Exactly(_) | Limit::Between(..) => ("at most", bar.about),
            };
            lines.push(match figure(&format!("{}_median", bar.name)) {
                Some(median) => format!("- {about}: {median:.2}, and {side} {bound:.2} at 95 %."),
                None => format!("- {about}: {bound:.3}."),
            });
        }
        if !lines.is_empty() {
            let head = "In short, each as ours over the other's unless it says otherwise:";
            lines.insert(0, format!("\n{head}"));
            let quick = self.fields.get("quick").and_then(Value::as_bool) == Some(true);
            lines.extend(quick.then(|| "This was a quick run: it decides nothing.".to_owned()));
        }
        lines
    }

    pub(crate) fn print_bars(&self) {
        println!();
        let mut table = Table::new(&["bar", "limit", "figure", "verdict", "meaning"]);
        for bar in self.bars {
            let (figure, verdict) = match self.fields.get(bar.name).and_then(Value::as_f64) {
                Some(figure) if bar.limit.holds(figure) => (format!("{figure:.3}"), "pass"),
                Some(figure) => (format!("{figure:.3}"), "MISS"),
                None => ("-".into(), "not run"),
            };
            table.row([
                bar.name.into(),
                bar.limit.show(),
                figure,
                verdict.into(),
                bar.about.into(),
            ]);
        }
        table.print();
    }

    pub(crate) fn print_json(&self) {
        let bars: Vec<Value> = self
            .bars
            .iter()
            .map(|bar| {
                let figure = self.fields.get(bar.name).and_then(Value::as_f64);
                let pass = figure.map(|figure| bar.limit.holds(figure));
                json!({"name": bar.name, "limit": bar.limit.show(), "figure": figure, "pass": pass})
            })
            .collect();
        let mut fields = self.fields.clone();
        fields.insert("bars".into(), json!(bars));
        println!("{}", Value::Object(fields));
    }
}

/// Five significant digits: what a noisy machine can honestly carry.
fn rounded(figure: f64) -> f64 {
    format!("{figure:.4e}").parse().unwrap_or(figure)
}

pub(crate) fn show_ratio(ratio: &Ratio) -> String {
    format!("{:.2} [{:.2} .. {:.2}]", ratio.median, ratio.low, ratio.high)
}

/// Aligned columns: the first to the left, the rest to the right, a closing text column left.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Table {
        Table { rows: vec![head.iter().map(|&word| word.to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn print(&self) {
        for line in self.lines() {
            println!("{line}");
        }
    }

    fn lines(&self) -> Vec<String> {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let align = |row: &Vec<String>| {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, &width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ if self.rows[0][column] == "meaning" => cell.clone(),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            cells.join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(align).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_at_their_edge() {
        assert!(Limit::AtLeast(1.4).holds(1.4) && !Limit::AtLeast(1.4).holds(1.39));
        assert!(Limit::AtMost(1.0).holds(1.0) && !Limit::AtMost(1.0).holds(1.01));
        assert!(!Limit::AtLeast(1.0).holds(f64::NAN));
        assert!(Limit::Exactly(7.0).holds(7.0) && !Limit::Exactly(7.0).holds(6.0));
        let between = Limit::Between(16.0, 17.0);
        assert!(between.holds(16.0) && between.holds(17.0) && !between.holds(18.0));
    }

    #[test]
    fn the_most_of_several_runs_is_reported() {
        let crate::options::Parsed { options, .. } =
            crate::options::parse(["bench".into(), "elastic".into()]).unwrap();
        let mut report = Report::new("test", &options, &[]);
        [0.0, 2.0, 1.0].into_iter().for_each(|figure| report.most("changes", figure));
        assert_eq!(report.fields["changes"], json!(2.0));
    }

    #[test]
    fn ratio_is_reported_by_its_pessimistic_end() {
        let crate::options::Parsed { options, .. } =
            crate::options::parse(["bench".into(), "pipeline".into()]).unwrap();
        let ratio = Ratio { rounds: vec![2.0], median: 2.0, low: 1.5, high: 2.5 };
        let mut report = Report::new("test", &options, &[]);
        report.ratio("more", &ratio, Better::More);
        report.ratio("less", &ratio, Better::Less);
        assert_eq!(report.fields["more"], json!(1.5));
        assert_eq!(report.fields["less"], json!(2.5));
        assert_eq!(report.fields["less_median"], json!(2.0));
        assert_eq!(report.fields["more_rounds"], json!([2.0]));
    }

    #[test]
    fn a_verdict_is_told_in_sentences_and_a_bar_that_was_not_run_is_not() {
        let crate::options::Parsed { options, .. } =
            crate::options::parse(["bench".into(), "pipeline".into()]).unwrap();
        const BARS: &[Bar] = &[
            Bar { name: "more", limit: Limit::AtLeast(9.0), about: "events a second, against tea" },
            Bar { name: "plain", limit: Limit::AtMost(1.0), about: "megabytes" },
            Bar { name: "absent", limit: Limit::AtMost(1.0), about: "what was not run" },
        ];
        let ratio = Ratio { rounds: vec![2.0], median: 2.0, low: 1.5, high: 2.5 };
        let mut report = Report::new("test", &options, BARS);
        report.ratio("more", &ratio, Better::More);
        report.figure("plain", 3.0);
        assert_eq!(
            report.verdict()[1..],
            [
                "- events a second, against tea: 2.00, and at least 1.50 at 95 %.",
                "- megabytes: 3.000.",
            ]
        );
    }

    #[test]
    fn figures_that_do_not_exist_are_null() {
        assert_eq!(json!(rounded(f64::NAN)), Value::Null);
        assert_eq!(rounded(123.456_789), 123.46);
    }

    #[test]
    fn columns_align() {
        let mut table = Table::new(&["peer", "ns"]);
        table.row(["a".into(), "100".into()]);
        table.row(["longer".into(), "7".into()]);
        assert_eq!(table.lines(), ["peer     ns", "a       100", "longer    7"]);
    }
}
