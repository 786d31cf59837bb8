//! What pictures share: the page, scales, axes. Writing to a string does not fail.

use std::fmt::Write;

const CSS: &str = include_str!("sheet.css");
pub(super) const MARGIN: f64 = 24.0;

/// What a letter of a line is wide, on average and not too little.
const LETTER: f64 = 6.4;
/// The same of a title.
const TITLE_LETTER: f64 = 11.0;

/// A text in two lines at most, broken after a `;` where it is too long for one, and cut off where it is for two.
fn lines(text: &str, letters: usize) -> Vec<String> {
    let cut = |line: &str| match line.char_indices().nth(letters) {
        None => line.to_owned(),
        Some(_) => line.chars().take(letters.saturating_sub(1)).chain(['…']).collect(),
    };
    if text.chars().count() <= letters {
        return vec![text.to_owned()];
    }
    let (first, second) = text.split_once("; ").unwrap_or((text, ""));
    [first, second].into_iter().filter(|line| !line.is_empty()).map(cut).collect()
}

/// A page that is drawn on.
pub(super) struct Sheet {
    out: String,
}

/// Text that may stand in a document.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Sheet {
    pub(super) fn new(wide: f64, high: f64, title: &str, about: &str) -> Self {
        let title = lines(title, ((wide - 2.0 * MARGIN) / TITLE_LETTER) as usize);
        let title = escaped(title.first().map_or("", String::as_str));
        let about: String = lines(about, ((wide - 2.0 * MARGIN) / LETTER) as usize)
            .iter()
            .zip([60, 76])
            .map(|(line, y)| {
                let line = escaped(line);
                format!("<text class=\"about\" x=\"{MARGIN}\" y=\"{y}\">{line}</text>\n")
            })
            .collect();
        let out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{wide:.0}\" height=\"{high:.0}\" \
             viewBox=\"0 0 {wide:.0} {high:.0}\">\n<title>{title}</title>\n<style>\n{CSS}</style>\n\
             <rect class=\"page\" width=\"100%\" height=\"100%\" rx=\"12\"/>\n\
             <text class=\"title\" x=\"{MARGIN}\" y=\"38\">{title}</text>\n\
             {about}"
        );
        Sheet { out }
    }

    pub(super) fn finish(mut self) -> String {
        self.out += "</svg>\n";
        self.out
    }

    pub(super) fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let text = escaped(text);
        let _ = writeln!(self.out, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{text}</text>"#);
    }

    pub(super) fn rect(&mut self, class: &str, x: f64, y: f64, wide: f64, high: f64) {
        let _ = writeln!(
            self.out,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{wide:.1}" height="{high:.1}"/>"#
        );
    }

    pub(super) fn path(&mut self, class: &str, path: &str) {
        let _ = writeln!(self.out, r#"<path class="{class}" d="{path}"/>"#);
    }

    /// A mark with words that show when it is pointed at.
    pub(super) fn noted(&mut self, class: &str, path: &str, note: &str) {
        let note = escaped(note);
        let _ =
            writeln!(self.out, r#"<path class="{class}" d="{path}"><title>{note}</title></path>"#);
    }

    /// A line through points, broken where there is none.
    pub(super) fn line(&mut self, class: &str, points: impl Iterator<Item = Option<(f64, f64)>>) {
        let (mut path, mut up) = (String::new(), true);
        for point in points {
            match point {
                Some((x, y)) => {
                    let _ = write!(path, "{}{x:.1} {y:.1}", if up { 'M' } else { 'L' });
                    up = false;
                }
                None => up = true,
            }
        }
        if !path.is_empty() {
            self.path(class, &path);
        }
    }
}

/// A scale from one end of an axis to the other.
pub(super) enum Scale {
    /// From 0 up.
    Linear { most: f64 },
    /// A factor is a length.
    Logarithmic { least: f64, most: f64 },
}

impl Scale {
    /// Whole decades around these.
    pub(super) fn logarithmic(least: f64, most: f64) -> Self {
        let least = if least.is_finite() && least > 0.0 { least } else { 1.0 };
        let most = most.max(least * 10.0);
        let decade = |value: f64| 10_f64.powf(value);
        Scale::Logarithmic {
            least: decade(least.log10().floor()),
            most: decade(most.log10().ceil()),
        }
    }

    /// Where a value is, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = match *self {
            Scale::Linear { most } => value / most,
            Scale::Logarithmic { least, most } => {
                (value.max(least) / least).ln() / (most / least).ln()
            }
        };
        share.clamp(0.0, 1.0)
    }

    /// Values that are written at the axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        match *self {
            Scale::Linear { most } => (0..=4).map(|n| most * f64::from(n) / 4.0).collect(),
            Scale::Logarithmic { least, most } => {
                let (first, last) = (least.log10().round() as i32, most.log10().round() as i32);
                let step = ((last - first) / 6 + 1) as usize;
                (first..=last).step_by(step).map(|power| 10_f64.powi(power)).collect()
            }
        }
    }
}

/// Milliseconds as people write them.
pub(super) fn ms(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{} s", short(v / 1000.0)),
        v => format!("{} ms", short(v)),
    }
}

fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 || v.fract().abs() < 1e-9 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_hold_what_they_are_made_for() {
        let scale = Scale::Linear { most: 2.0 };
        assert_eq!(scale.ticks(), [0.0, 0.5, 1.0, 1.5, 2.0]);
        assert_eq!((scale.share(1.0), scale.share(9.0), scale.share(-1.0)), (0.5, 1.0, 0.0));
        let scale = Scale::logarithmic(2.1, 4819.0);
        assert_eq!(scale.ticks(), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!((scale.share(1.0), scale.share(0.0), scale.share(1e9)), (0.0, 0.0, 1.0));
    }

    #[test]
    fn a_text_that_is_too_long_has_two_lines_and_no_more() {
        assert_eq!(lines("short; enough", 20), ["short; enough"]);
        assert_eq!(lines("a strategy; its figures", 15), ["a strategy", "its figures"]);
        assert_eq!(lines("äöüäöü", 4), ["äöü…"]);
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a<b & \"c\">"), "a&lt;b &amp; &quot;c&quot;&gt;");
    }
}
