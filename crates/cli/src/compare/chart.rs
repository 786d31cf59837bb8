//! The comparison as a picture: for each load a bar for the figure of each row that is compared, with the
//! interval of its median, and beside it how long events were in the program, p50 and p99, on a
//! logarithmic scale. Pure.

use std::fmt::{self, Write};
use std::time::Duration;

use super::Comparison;
use super::child::Numbers;
use super::verdict::{By, ROUNDS_MIN, Ranking, Row, Standing};
use crate::draw::escaped;
use crate::show::table::{clip, width, wrapped};
use crate::show::units::{amount, span};

/// Classes may be restyled by whoever embeds the picture.
const CSS: &str = include_str!("chart.css");

const MARGIN: f64 = 28.0;
const TOP: f64 = 84.0;
const ROW: f64 = 30.0;
const BAR: f64 = 16.0;
/// Above the rows of a load: its heading, the verdict, what the panels show.
const HEAD: f64 = 66.0;
/// From line to line of a verdict that takes several.
const LINE: f64 = 16.0;
/// Below them: the scales.
const FOOT: f64 = 44.0;
const PANEL: f64 = 330.0;
const GAP: f64 = 40.0;
/// Room beside what is drawn, for the numbers of it.
const LABEL: f64 = 58.0;
/// A name is not longer than this.
const NAME_MAX: usize = 36;
const LETTER: f64 = 7.3;
const SMALL_LETTER: f64 = 6.4;

/// The comparison as a self-contained SVG document.
pub(super) fn svg(of: &Comparison) -> String {
    let mut out = String::new();
    write_svg(of, &mut out).expect("writing to a string does not fail");
    out
}

/// Where the panels begin.
struct Frame {
    left: f64,
    right: f64,
    wide: f64,
}

fn write_svg(of: &Comparison, out: &mut String) -> fmt::Result {
    let names = (0..of.combinations.len()).map(|at| width(&name(of, at)));
    let names = names.max().unwrap_or(0) as f64 * LETTER;
    let left = MARGIN + names + 12.0;
    let frame = Frame { left, right: left + PANEL + GAP, wide: left + 2.0 * PANEL + GAP + MARGIN };
    let blocks: Vec<Block<'_>> =
        of.rankings.iter().map(|ranking| Block::new(of, ranking, &frame)).collect();
    let high = TOP + blocks.iter().map(Block::high).sum::<f64>();
    let (wide, title) = (frame.wide, escaped(&of.app));
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{wide:.0}" height="{high:.0}" viewBox="0 0 {wide:.0} {high:.0}">"#
    )?;
    writeln!(out, "<title>{title}: policies compared</title>\n<style>\n{CSS}</style>")?;
    writeln!(out, r#"<rect class="page" width="100%" height="100%" rx="12"/>"#)?;
    writeln!(out, r#"<text class="title" x="{MARGIN}" y="40">{title}</text>"#)?;
    let sure =
        if of.rounds_run() < ROUNDS_MIN { "range of all" } else { "95 % interval of the median" };
    let about = format!("{}; whiskers: {sure}", of.about());
    writeln!(out, r#"<text class="about" x="{MARGIN}" y="62">{}</text>"#, escaped(&about))?;
    let mut top = TOP;
    for block in &blocks {
        write_ranking(of, block, &frame, top, out)?;
        top += block.high();
    }
    writeln!(out, "</svg>")
}

/// One load of the picture.
struct Block<'a> {
    ranking: &'a Ranking,
    /// Its verdict, a line each.
    verdict: Vec<String>,
}

impl<'a> Block<'a> {
    fn new(of: &Comparison, ranking: &'a Ranking, frame: &Frame) -> Self {
        let letters = ((frame.wide - 2.0 * MARGIN) / SMALL_LETTER) as usize;
        Block { ranking, verdict: wrapped(&of.sentence(ranking), letters) }
    }

    fn head(&self) -> f64 {
        HEAD + self.verdict.len().saturating_sub(1) as f64 * LINE
    }

    fn high(&self) -> f64 {
        self.head() + FOOT + self.ranking.rows.len() as f64 * ROW
    }
}

/// What the bars show.
fn figure_name(by: By) -> &'static str {
    match by {
        By::Throughput => "events/s",
        By::Input => "events taken in/s",
        By::Mean => "mean time in the program",
        By::P99 => "p99 of the time in the program",
        By::Cpu => "processor time per event",
    }
}

/// A figure that is compared, with its unit.
fn shown(by: By, value: f64) -> String {
    if by.is_time() { seconds(value) } else { amount(value) }
}

fn name(of: &Comparison, combination: usize) -> String {
    clip(&of.name(combination), NAME_MAX)
}

/// The load, its verdict, and what the panels show.
fn write_heads(
    by: By,
    block: &Block<'_>,
    frame: &Frame,
    top: f64,
    out: &mut String,
) -> fmt::Result {
    let load = block.ranking.load.told();
    writeln!(out, r#"<text class="load" x="{MARGIN}" y="{:.1}">{load}</text>"#, top + 14.0)?;
    for (line, at) in block.verdict.iter().zip(0..) {
        let (line, y) = (escaped(line), top + 33.0 + f64::from(at) * LINE);
        writeln!(out, r#"<text class="verdict" x="{MARGIN}" y="{y:.1}">{line}</text>"#)?;
    }
    let y = top + block.head() - 10.0;
    let times = "time in the program: p50 ○ and p99 ●";
    for (x, what) in [(frame.left, figure_name(by)), (frame.right, times)] {
        writeln!(out, r#"<text class="panel" x="{x:.1}" y="{y:.1}">{what}</text>"#)?;
    }
    Ok(())
}

fn write_ranking(
    of: &Comparison,
    block: &Block<'_>,
    frame: &Frame,
    top: f64,
    out: &mut String,
) -> fmt::Result {
    let ranking = block.ranking;
    let begin = top + block.head();
    let end = begin + ranking.rows.len() as f64 * ROW;
    write_heads(of.by, block, frame, top, out)?;
    let known: Vec<&Numbers> = ranking.rows.iter().filter_map(|row| row.medians.as_ref()).collect();
    let most = ranking.rows.iter().filter(|row| row.medians.is_some()).map(|row| row.interval.1);
    let figure = Linear::upto(most.fold(0.0, f64::max), frame.left);
    let least = known.iter().map(|n| n.p50_s).fold(f64::INFINITY, f64::min);
    let time =
        Logarithmic::over(least, known.iter().map(|n| n.p99_s).fold(0.0, f64::max), frame.right);
    let figures = figure.ticks().into_iter().map(|n| (figure.at(n), shown(of.by, n)));
    let times = time.ticks().into_iter().map(|value| (time.at(value), seconds(value)));
    for (x, text) in figures.chain(times).filter(|_| !known.is_empty()) {
        writeln!(
            out,
            r#"<path class="grid" d="M{x:.1} {begin:.1}V{end:.1}"/><text class="tick" x="{x:.1}" y="{:.1}">{text}</text>"#,
            end + 15.0
        )?;
    }
    for (row, at) in ranking.rows.iter().zip(0..) {
        let y = begin + (f64::from(at) + 0.5) * ROW;
        let class = row.standing.word().replace(' ', "-");
        writeln!(out, r#"<g class="{class}">"#)?;
        let name = escaped(&name(of, row.combination));
        writeln!(
            out,
            r#"<text class="name" x="{:.1}" y="{:.1}">{name}</text>"#,
            frame.left - 12.0,
            y + 4.0
        )?;
        match &row.medians {
            Some(numbers) => {
                // Processor time is not known everywhere.
                if of.by.of(numbers).is_finite() {
                    write_bar(row, of.by, numbers, &figure, y, out)?;
                }
                write_times(numbers, &time, y, out)?;
            }
            None => write_why(row, frame.left + 6.0, y + 4.0, out)?,
        }
        writeln!(out, "</g>")?;
    }
    let x = frame.left;
    writeln!(out, r#"<path class="axis" d="M{x:.1} {begin:.1}V{end:.1}"/>"#)
}

fn write_why(row: &Row, x: f64, y: f64, out: &mut String) -> fmt::Result {
    let reason = row.failed.first().map_or("not run", String::as_str);
    let reason = escaped(&clip(reason.lines().next().unwrap_or_default(), 90));
    writeln!(out, r#"<text class="why" x="{x:.1}" y="{y:.1}">{reason}</text>"#)
}

fn write_bar(
    row: &Row,
    by: By,
    numbers: &Numbers,
    scale: &Linear,
    y: f64,
    out: &mut String,
) -> fmt::Result {
    let value = by.of(numbers);
    let (from, to) = (scale.at(0.0), scale.at(value));
    let (top, wide) = (y - BAR / 2.0, (to - from).max(1.0));
    writeln!(
        out,
        r#"<rect class="bar" x="{from:.1}" y="{top:.1}" width="{wide:.1}" height="{BAR}" rx="2"/>"#
    )?;
    let (low, high) = (scale.at(row.interval.0), scale.at(row.interval.1));
    let (a, b) = (y - 4.0, y + 4.0);
    writeln!(
        out,
        r#"<path class="whisker" d="M{low:.1} {y:.1}H{high:.1}M{low:.1} {a:.1}V{b:.1}M{high:.1} {a:.1}V{b:.1}"/>"#
    )?;
    let mut text = shown(by, value);
    if row.standing == Standing::Failed {
        let _ = write!(text, ", failed {} of {}", row.failed.len(), row.runs);
    } else if row.standing.is_open() {
        let _ = write!(text, " ({})", row.standing.word());
    }
    writeln!(
        out,
        r#"<text class="value" x="{:.1}" y="{:.1}">{text}</text>"#,
        to.max(high) + 7.0,
        y + 4.0
    )
}

fn write_times(numbers: &Numbers, time: &Logarithmic, y: f64, out: &mut String) -> fmt::Result {
    let (p50, p99) = (time.at(numbers.p50_s), time.at(numbers.p99_s));
    writeln!(out, r#"<path class="span" d="M{p50:.1} {y:.1}H{p99:.1}"/>"#)?;
    let texts = (seconds(numbers.p50_s), seconds(numbers.p99_s));
    let first = if texts.0 == texts.1 { "" } else { texts.0.as_str() };
    for (x, class, text, side, anchor) in
        [(p50, "p50", first, -8.0, "end"), (p99, "p99", texts.1.as_str(), 8.0, "start")]
    {
        writeln!(
            out,
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="4.5"/><text class="value" text-anchor="{anchor}" x="{:.1}" y="{:.1}">{text}</text>"#,
            x + side,
            y + 4.0,
        )?;
    }
    Ok(())
}

fn seconds(value: f64) -> String {
    Duration::try_from_secs_f64(value).map_or_else(|_| String::new(), span)
}

/// A scale from 0 up.
struct Linear {
    from: f64,
    most: f64,
}

impl Linear {
    fn upto(most: f64, from: f64) -> Self {
        Linear { from, most: if most > 0.0 { most } else { 1.0 } }
    }

    fn at(&self, value: f64) -> f64 {
        self.from + value / self.most * (PANEL - 2.0 * LABEL)
    }

    /// Some four round numbers.
    fn ticks(&self) -> Vec<f64> {
        let rough = self.most / 4.0;
        let size = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|n| n * size);
        let step = steps.into_iter().find(|step| *step >= rough * 0.75).unwrap_or(rough);
        (0..=6).map(|n| f64::from(n) * step).filter(|value| *value <= self.most * 1.001).collect()
    }
}

/// A scale on which a factor is a length.
struct Logarithmic {
    from: f64,
    least: f64,
    most: f64,
}

impl Logarithmic {
    fn over(least: f64, most: f64, from: f64) -> Self {
        let least = if least.is_finite() { least.max(1e-9) } else { 1e-3 };
        // At least a decade, so that small differences look small.
        let most = most.max(least);
        let missing = (10.0 / (most / least)).max(1.0).sqrt();
        Logarithmic { from, least: least / missing, most: most * missing }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.max(1e-9) / self.least).ln() / (self.most / self.least).ln();
        self.from + LABEL + share * (PANEL - 2.0 * LABEL)
    }

    /// Powers of ten, and of a few of them also what lies between.
    fn ticks(&self) -> Vec<f64> {
        let (first, last) = (self.least.log10().ceil() as i32, self.most.log10().floor() as i32);
        let between: &[f64] = if last - first < 1 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let all = (first - 1..=last)
            .flat_map(|power| between.iter().map(move |n| n * 10_f64.powi(power)));
        all.filter(|value| (self.least..=self.most).contains(value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::runs::{Combination, Load};
    use super::super::verdict::tests::runs;
    use super::*;

    /// Two policies at times that rank them one way, and at rates that rank them the other.
    fn drawn(by: By, cpu: bool) -> String {
        let combination = |policy: &str| Combination {
            policy: policy.to_owned(),
            threads: 2,
            threads_said: true,
            load: Load::Max,
        };
        let mut runs = runs(&[&[100.0; 6], &[50.0; 6]]);
        for run in &mut runs {
            if let Ok(numbers) = &mut run.end {
                numbers.p99_s = if run.combination == 0 { 0.008 } else { 0.002 };
                numbers.p50_s = numbers.p99_s / 2.0;
                numbers.cpu_s = numbers.cpu_s.filter(|_| cpu);
            }
        }
        let names =
            ["single(a=1)", "a-policy-with-a-name-that-takes-the-room-of-many-others-side-by-side"];
        let combinations = names.map(combination).to_vec();
        let (app, cluster) = ("words".to_owned(), "main".to_owned());
        svg(&Comparison::of(app, cluster, by, 6, combinations, runs, None))
    }

    /// The widths of the bars, the best first, and what stands beside them.
    fn bars(svg: &str) -> (Vec<f64>, Vec<String>) {
        let document = roxmltree::Document::parse(svg).unwrap();
        let of = |class: &'static str| {
            let all = document
                .descendants()
                .filter(move |node| node.has_tag_name("rect") || node.has_tag_name("text"));
            all.filter(move |node| node.attribute("class") == Some(class))
        };
        let wide =
            |node: roxmltree::Node<'_, '_>| node.attribute("width").unwrap().parse().unwrap();
        let texts = of("value").chain(of("panel")).chain(of("verdict"));
        let texts = texts.filter_map(|node| node.text().map(str::to_owned)).collect();
        (of("bar").map(wide).collect(), texts)
    }

    #[test]
    fn the_bars_show_the_figure_that_is_compared() {
        let (wide, texts) = bars(&drawn(By::P99, true));
        assert!((wide[1] / wide[0] - 4.0).abs() < 0.01, "8 ms and 2 ms: {wide:?}");
        for text in ["p99 of the time in the program", "2 ms", "8 ms"] {
            assert!(texts.iter().any(|told| told == text), "{text}: {texts:?}");
        }
        let (wide, texts) = bars(&drawn(By::Throughput, true));
        assert!((wide[0] / wide[1] - 2.0).abs() < 0.01, "{wide:?}");
        assert!(texts.iter().any(|told| told == "events/s"), "{texts:?}");
    }

    #[test]
    fn a_figure_that_is_not_known_has_no_bar() {
        let svg = drawn(By::Cpu, false);
        assert!(bars(&svg).0.is_empty() && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn a_verdict_that_takes_several_lines_is_whole() {
        let svg = drawn(By::P99, true);
        let (_, texts) = bars(&svg);
        let said = texts.join(" ");
        assert!(said.contains("has 4.0 times as much (4.0 to 4.0)."), "{said}");
        assert_eq!(svg.matches(r#"class="verdict""#).count(), 2, "{svg}");
    }

    #[test]
    fn a_linear_scale_has_round_ticks_that_fit() {
        assert_eq!(Linear::upto(310.0, 0.0).ticks(), [0.0, 100.0, 200.0, 300.0]);
        assert_eq!(Linear::upto(1.0, 0.0).ticks(), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(Linear::upto(87.0, 0.0).ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(Linear::upto(0.0, 0.0).ticks().len(), 6, "nothing was known");
    }

    #[test]
    fn a_logarithmic_scale_spans_a_decade_and_has_ticks_within() {
        let near = Logarithmic::over(1e-3, 1.1e-3, 0.0);
        assert!(near.most / near.least > 9.9, "{} {}", near.least, near.most);
        assert!(near.ticks().len() >= 2, "{:?}", near.ticks());
        let far = Logarithmic::over(1e-6, 2.0, 0.0);
        assert_eq!(far.ticks().len(), 7);
        assert!(far.at(1e-6) >= LABEL && far.at(2.0) <= PANEL - LABEL + 0.1);
        assert!(Logarithmic::over(f64::INFINITY, 0.0, 0.0).at(0.0).is_finite());
    }
}
