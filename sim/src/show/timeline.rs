//! A run as a picture: latency of the fast and the slow replica, and the loads of nodes, over time. Migrations
//! are marked where they were decided; point at one to read why.

use super::sheet::{MARGIN, Scale, Sheet, ms};
use crate::outcome::{Moment, Outcome};

const LEFT: f64 = 84.0;
const WIDE: f64 = 900.0;
const TOP: f64 = 108.0;
const HIGH: f64 = 210.0;
const GAP: f64 = 84.0;
/// So many nodes have a line each; more are a band from the least to the most loaded.
const LINES_MAX: usize = 12;

/// The run as a self-contained SVG document.
#[must_use]
pub fn timeline(of: &Outcome) -> String {
    let about = format!(
        "{}, seed {}: {} migrations, {} events at sinks of {} sent; fast mean {} and p99 {}, slow mean {} and p99 {}",
        of.strategy,
        of.seed,
        of.migrations.len(),
        of.processed,
        of.offered,
        ms(of.fast.mean_ms),
        ms(of.fast.p99_ms),
        ms(of.slow.mean_ms),
        ms(of.slow.p99_ms),
    );
    let high = TOP + 2.0 * HIGH + GAP + 56.0;
    let mut sheet = Sheet::new(LEFT + WIDE + MARGIN + 12.0, high, &of.scenario, &about);
    latencies(of, &mut sheet, TOP);
    loads(of, &mut sheet, TOP + HIGH + GAP);
    sheet.finish()
}

fn x(of: &Outcome, second: f64) -> f64 {
    LEFT + second / of.duration_s * WIDE
}

fn axes(of: &Outcome, sheet: &mut Sheet, top: f64, scale: &Scale, label: impl Fn(f64) -> String) {
    for tick in scale.ticks() {
        let y = top + HIGH * (1.0 - scale.share(tick));
        sheet.path("grid", &format!("M{LEFT:.1} {y:.1}H{:.1}", LEFT + WIDE));
        sheet.text("tick end", LEFT - 8.0, y + 4.0, &label(tick));
    }
    for step in 0..=10 {
        let second = of.duration_s * f64::from(step) / 10.0;
        let x = x(of, second);
        sheet.path("axis", &format!("M{x:.1} {:.1}v5", top + HIGH));
        let digits = if of.duration_s < 10.0 { 2 } else { 0 };
        sheet.text("tick mid", x, top + HIGH + 18.0, &format!("{second:.digits$} s"));
    }
    sheet.path("axis", &format!("M{LEFT:.1} {top:.1}v{HIGH}H{:.1}", LEFT + WIDE));
}

fn latencies(of: &Outcome, sheet: &mut Sheet, top: f64) {
    let all = || of.moments.iter().flat_map(|moment| [moment.fast_ms, moment.slow_ms]).flatten();
    let scale = Scale::logarithmic(all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    sheet.text("panel", LEFT, top - 14.0, "mean latency of each second");
    legend(
        sheet,
        top - 14.0,
        &[("fast", "fast replica"), ("slow", "slow replica"), ("migration", "migration")],
    );
    axes(of, sheet, top, &scale, ms);
    for record in &of.migrations {
        let x = x(of, record.at_s);
        let note =
            format!("{}: {} -> {}. {}", record.replica, record.from, record.to, record.reason);
        sheet.noted("migration", &format!("M{x:.1} {top:.1}v{HIGH}"), &note);
        sheet.noted("migrationfill", &format!("M{x:.1} {top:.1}l-4 -7h8z"), &note);
    }
    let y = |value: f64| top + HIGH * (1.0 - scale.share(value));
    let point = |moment: &Moment, value: Option<f64>| Some((x(of, moment.second), y(value?)));
    sheet.line("line slow", of.moments.iter().map(|moment| point(moment, moment.slow_ms)));
    sheet.line("line fast", of.moments.iter().map(|moment| point(moment, moment.fast_ms)));
}

fn loads(of: &Outcome, sheet: &mut Sheet, top: f64) {
    let scale = Scale::Linear { most: 1.0 };
    let y = |share: f64| top + HIGH * (1.0 - scale.share(share));
    let many = of.nodes.len() > LINES_MAX;
    let what = if many {
        "CPU of nodes: from the least to the most loaded, and their mean"
    } else {
        "CPU of each node"
    };
    sheet.text("panel", LEFT, top - 14.0, what);
    axes(of, sheet, top, &scale, |share| format!("{:.0} %", share * 100.0));
    for change in &of.node_changes {
        let x = x(of, change.at_s);
        let what = if change.added { "asked for" } else { "released" };
        let note = format!("{} {what}. {}", change.node, change.reason);
        sheet.noted("node", &format!("M{x:.1} {top:.1}v{HIGH}"), &note);
    }
    let mut lines = if many {
        vec![("hottest", "mean")]
    } else {
        vec![("load", "a node"), ("hottest", "the most loaded")]
    };
    if !of.node_changes.is_empty() {
        lines.push(("node", "a node comes or goes"));
    }
    legend(sheet, top - 14.0, &lines);
    if many {
        band(of, sheet, &y);
        return;
    }
    for node in 0..of.nodes.len() {
        let load = |moment: &Moment| moment.loads.get(node).copied().flatten();
        if of.moments.iter().filter_map(load).all(|share| share == 0.0) {
            continue; // sources and sinks cost nothing
        }
        let point = |moment: &Moment| Some((x(of, moment.second), y(f64::from(load(moment)?))));
        sheet.line("line load", of.moments.iter().map(point));
    }
    let hottest = |moment: &Moment| {
        let most = moment.loads.iter().flatten().copied().reduce(f32::max)?;
        Some((x(of, moment.second), y(f64::from(most))))
    };
    sheet.line("line hottest", of.moments.iter().map(hottest));
}

fn band(of: &Outcome, sheet: &mut Sheet, y: &dyn Fn(f64) -> f64) {
    let busy = |moment: &Moment| -> Vec<f64> {
        moment.loads.iter().flatten().map(|share| f64::from(*share)).filter(|s| *s > 0.0).collect()
    };
    let edge = |pick: fn(f64, f64) -> f64, start: f64| {
        move |moment: &Moment| {
            let all = busy(moment);
            (!all.is_empty()).then(|| (x(of, moment.second), y(all.into_iter().fold(start, pick))))
        }
    };
    let (low, high) = (edge(f64::min, 1.0), edge(f64::max, 0.0));
    let there = of.moments.iter().filter_map(&high);
    let back: Vec<_> = of.moments.iter().filter_map(&low).collect();
    let outline: Vec<String> =
        there.chain(back.into_iter().rev()).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    if !outline.is_empty() {
        sheet.path("band", &format!("M{}Z", outline.join("L")));
    }
    let mean = |moment: &Moment| {
        let all = busy(moment);
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        (!all.is_empty()).then(|| (x(of, moment.second), y(mean)))
    };
    sheet.line("line hottest", of.moments.iter().map(mean));
}

/// Names of lines, at the right of a panel's heading.
fn legend(sheet: &mut Sheet, y: f64, lines: &[(&str, &str)]) {
    let mut x = LEFT + WIDE;
    for (class, name) in lines.iter().rev() {
        sheet.text("end", x, y, name);
        x -= name.chars().count() as f64 * 6.0 + 16.0;
        sheet.path(&format!("line {class}"), &format!("M{:.1} {:.1}h20", x - 20.0, y - 4.0));
        x -= 38.0;
    }
}
