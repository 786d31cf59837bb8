//! Queues, threads and CPU against time, one above the other, as SVG: the figures of the dissertation's chapter 5.

use std::fmt::Write as _;

use crate::program::CONSUMERS;
use crate::watch::Sample;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 96.0;
const PANEL: f64 = 170.0;
const GAP: f64 = 46.0;
/// One for each consumer, told apart also by those who see no red or no green; and one for CPU.
const COLOURS: [&str; 4] = ["#d55e00", "#0072b2", "#009e73", "#b28a00"];
const CPU_COLOUR: &str = "#444444";
/// A line is drawn through no more points than it has pixels.
const POINTS_MAX: usize = 1_600;

/// A line: its colour, and its points.
type Line = (&'static str, Vec<(f64, f64)>);

/// A panel: its title, and its lines.
struct Panel {
    title: &'static str,
    lines: Vec<Line>,
    /// Whether values hold until the next, as numbers of threads do.
    steps: bool,
    /// The least that the axis reaches to.
    least: f64,
}

/// Draws what was seen.
#[must_use]
pub fn draw(title: &str, samples: &[Sample]) -> String {
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let every = samples.len().div_ceil(POINTS_MAX).max(1);
    let of = |at_first: f64, value: &dyn Fn(&Sample) -> f64| {
        let thinned = samples.iter().step_by(every).chain(samples.last());
        std::iter::once((0.0, at_first))
            .chain(thinned.map(|sample| (sample.at, value(sample))))
            .collect::<Vec<_>>()
    };
    let first = samples.first().copied().unwrap_or_default(); // threads and CPU were no different before
    let panels = [
        Panel {
            title: "packets that wait",
            lines: each(|i| of(0.0, &|sample| sample.consumers[i].queue as f64)),
            steps: false,
            least: 10.0,
        },
        Panel {
            title: "threads",
            lines: each(|i| {
                let threads = |sample: &Sample| sample.consumers[i].threads as f64;
                of(threads(&first), &threads)
            }),
            steps: true,
            least: 4.0,
        },
        Panel {
            title: "CPU, percent",
            lines: vec![(CPU_COLOUR, of(first.cpu, &|sample| sample.cpu))],
            steps: false,
            least: 10.0,
        },
    ];
    let height = TOP + panels.len() as f64 * (PANEL + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n<title>{title}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"28\" font-size=\"18\">{title}</text>\n"
    );
    legend(&mut svg);
    let until = samples.last().map_or(1.0, |sample| sample.at).max(1.0);
    for (i, panel) in panels.iter().enumerate() {
        panel.draw(&mut svg, TOP + i as f64 * (PANEL + GAP), until);
    }
    svg += "</svg>\n";
    svg
}

/// A line for each consumer.
fn each(points: impl Fn(usize) -> Vec<(f64, f64)>) -> Vec<Line> {
    COLOURS.into_iter().enumerate().map(|(i, colour)| (colour, points(i))).collect()
}

fn legend(svg: &mut String) {
    for (i, consumer) in CONSUMERS.iter().enumerate() {
        let (x, y) = (LEFT + 110.0 * i as f64, 48.0);
        let _ = writeln!(
            svg,
            "<path d=\"M{x} {y}h22\" stroke=\"{}\" stroke-width=\"3\"/><text x=\"{}\" y=\"{}\">{}</text>",
            COLOURS[i],
            x + 28.0,
            y + 5.0,
            consumer.name
        );
    }
}

impl Panel {
    fn draw(&self, svg: &mut String, top: f64, until: f64) {
        let values = self.lines.iter().flat_map(|(_, points)| points.iter().map(|(_, y)| *y));
        let step = tick(values.fold(self.least, f64::max), 4.0);
        let most = (self.lines.iter().flat_map(|(_, points)| points.iter()))
            .fold(self.least, |most, (_, y)| most.max(*y));
        let most = (most / step).ceil() * step;
        let (bottom, right) = (top + PANEL, WIDTH - RIGHT);
        let x = |at: f64| LEFT + at / until * (right - LEFT);
        let y = |value: f64| bottom - value / most * PANEL;
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\">{}</text>", top - 8.0, self.title);
        for i in 0..=(most / step).round() as u32 {
            let value = f64::from(i) * step;
            let at = y(value);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                at + 4.0,
                number(value)
            );
        }
        let across = tick(until, 8.0);
        for i in 0..=(until / across).floor() as u32 {
            let at = x(f64::from(i) * across);
            let _ = writeln!(
                svg,
                "<path d=\"M{at:.1} {bottom}v5\" stroke=\"#888\"/><text x=\"{at:.1}\" y=\"{}\" \
                 text-anchor=\"middle\">{}{}</text>",
                bottom + 19.0,
                number(f64::from(i) * across),
                if i == 0 { " s" } else { "" }
            );
        }
        let _ = writeln!(svg, "<path d=\"M{LEFT} {bottom}H{right}\" stroke=\"#888\"/>");
        for (colour, points) in &self.lines {
            let mut path = String::new();
            for (i, (at, value)) in points.iter().enumerate() {
                let (px, py) = (x(*at), y(*value));
                let _ = match (i, self.steps) {
                    (0, _) => write!(path, "M{px:.1} {py:.1}"),
                    (_, true) => write!(path, "H{px:.1}V{py:.1}"),
                    (_, false) => write!(path, "L{px:.1} {py:.1}"),
                };
            }
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" stroke-linejoin=\"round\"/>"
            );
        }
    }
}

/// A round step, of which about `ticks` reach to `most`.
fn tick(most: f64, ticks: f64) -> f64 {
    let rough = most / ticks;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough).unwrap_or(10.0);
    (step * power).max(1.0)
}

/// With commas between thousands.
fn number(value: f64) -> String {
    let digits = (value.round() as u64).to_string();
    let comma = |i: usize| i > 0 && (digits.len() - i).is_multiple_of(3);
    let parts = digits.char_indices();
    parts.flat_map(|(i, digit)| comma(i).then_some(',').into_iter().chain([digit])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_about_as_many_as_asked_for() {
        for (most, step) in
            [(10.0, 5.0), (7.0, 2.0), (24_000.0, 10_000.0), (3.0, 1.0), (240.0, 100.0)]
        {
            assert_eq!(tick(most, 4.0), step, "{most}");
        }
        assert_eq!(number(24_000.0), "24,000");
        assert_eq!((&*number(999.0), &*number(1_234_567.0)), ("999", "1,234,567"));
    }

    #[test]
    fn a_drawing_of_nothing_is_a_drawing() {
        let svg = draw("nothing <&", &[]);
        assert!(
            svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"),
            "{svg}"
        );
        assert!(svg.contains("<title>nothing &lt;&amp;</title>"), "{svg}");
    }
}
