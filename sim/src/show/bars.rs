//! Latencies of several strategies as bars, p99 and mean side by side on a logarithmic scale, with the
//! interval over the seeds; what was published is marked beside.

use super::sheet::{MARGIN, Scale, Sheet, ms};

const LEFT: f64 = 84.0;
const TOP: f64 = 112.0;
const HIGH: f64 = 300.0;
const GROUP: f64 = 80.0;
const BAR: f64 = 34.0;
const PANEL_GAP: f64 = 70.0;

/// One bar: the figure of a strategy.
#[derive(Clone, Debug)]
pub struct Group {
    /// The strategy, in a word or two.
    pub name: String,
    /// Ours: it is coloured.
    pub ours: bool,
    /// Median, and the least and the most of all seeds.
    pub figure_ms: (f64, f64, f64),
    /// What was published, if it was.
    pub published_ms: Option<f64>,
}

/// A picture of two panels.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Heading.
    pub title: String,
    /// What it shows, in a line.
    pub about: String,
    /// Panels: a heading and its bars.
    pub panels: [(String, Vec<Group>); 2],
}

/// The picture as a self-contained SVG document.
#[must_use]
pub fn bars(of: &Bars) -> String {
    let width = |groups: &[Group]| groups.len() as f64 * GROUP;
    let wide = LEFT + of.panels.iter().map(|(_, groups)| width(groups) + PANEL_GAP).sum::<f64>();
    let mut sheet = Sheet::new(wide - PANEL_GAP + MARGIN, TOP + HIGH + 64.0, &of.title, &of.about);
    let all = || {
        let groups = of.panels.iter().flat_map(|(_, groups)| groups);
        groups.flat_map(|g| [Some(g.figure_ms.1), Some(g.figure_ms.2), g.published_ms]).flatten()
    };
    let scale = Scale::logarithmic(all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let y = |value: f64| TOP + HIGH * (1.0 - scale.share(value));
    let mut left = LEFT;
    for (heading, groups) in &of.panels {
        let right = left + width(groups);
        sheet.text("panel", left, TOP - 16.0, heading);
        for tick in scale.ticks() {
            sheet.path("grid", &format!("M{left:.1} {:.1}H{right:.1}", y(tick)));
            sheet.text("tick end", left - 8.0, y(tick) + 4.0, &ms(tick));
        }
        for (at, group) in groups.iter().enumerate() {
            let middle = left + (at as f64 + 0.5) * GROUP;
            let (median, low, high) = group.figure_ms;
            let class = if group.ours { "ours" } else { "bar" };
            sheet.rect(class, middle - BAR / 2.0, y(median), BAR, TOP + HIGH - y(median));
            let whisker = format!(
                "M{middle:.1} {:.1}V{:.1}m-5 0h10M{:.1} {:.1}h10",
                y(low),
                y(high),
                middle - 5.0,
                y(low)
            );
            sheet.path("whisker", &whisker);
            // Above the whisker, and above the mark of what was published where that is in the way.
            let near = |published: &f64| (0.0..24.0).contains(&(y(high) - y(*published)));
            let above = y(group.published_ms.filter(near).unwrap_or(high)) - 8.0;
            sheet.text("value mid", middle, above, &ms(median));
            if let Some(published) = group.published_ms {
                sheet.noted(
                    "published",
                    &format!(
                        "M{:.1} {:.1}h{:.1}",
                        middle - BAR / 2.0 - 7.0,
                        y(published),
                        BAR + 14.0
                    ),
                    &format!("published: {}", ms(published)),
                );
            }
            let mut line = TOP + HIGH + 18.0;
            for word in group.name.split('|') {
                sheet.text("tick mid", middle, line, word);
                line += 14.0;
            }
        }
        sheet.path("axis", &format!("M{left:.1} {:.1}H{right:.1}", TOP + HIGH));
        left = right + PANEL_GAP;
    }
    sheet.finish()
}
