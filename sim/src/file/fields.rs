//! The fields of a table. Every key that may be there is asked for, once; what was never asked for is
//! a mistake, reported with the nearest that was.

use std::ops::Range;

use comporta_model::plan::{nearest, parse_duration};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistakes::Mistakes;

/// A table that is being read.
pub(super) struct Fields<'t> {
    what: &'static str,
    table: &'t DeTable<'t>,
    /// Where the table is named.
    pub(super) at: Range<usize>,
    asked: Vec<&'static str>,
}

/// A table and what it is called.
pub(super) struct Named<'t> {
    pub(super) name: String,
    pub(super) fields: Fields<'t>,
}

type Value<'t> = Spanned<DeValue<'t>>;

impl<'t> Fields<'t> {
    pub(super) fn new(what: &'static str, table: &'t DeTable<'t>, at: Range<usize>) -> Self {
        Fields { what, table, at, asked: Vec::new() }
    }

    fn ask(&mut self, key: &'static str) -> Option<&'t Value<'t>> {
        self.asked.push(key);
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    /// Returns `true` if the table has this key, without asking for it.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.iter().any(|(name, _)| name.get_ref() == key)
    }

    /// Returns `true` if the value of this key is a table.
    pub(super) fn has_table(&self, key: &str) -> bool {
        let mut all = self.table.iter();
        all.any(|(name, value)| {
            name.get_ref() == key && matches!(value.get_ref(), DeValue::Table(_))
        })
    }

    pub(super) fn text(
        &mut self,
        key: &'static str,
        mistakes: &mut Mistakes,
    ) -> Option<(String, Range<usize>)> {
        let value = self.ask(key)?;
        match value.get_ref() {
            DeValue::String(text) => Some((text.to_string(), value.span())),
            _ => wrong(key, value, "a string", mistakes),
        }
    }

    /// Names: one, or a list of them.
    pub(super) fn names(
        &mut self,
        key: &'static str,
        mistakes: &mut Mistakes,
    ) -> Vec<(String, Range<usize>)> {
        let Some(value) = self.ask(key) else { return Vec::new() };
        let one = |value: &Value<'t>| match value.get_ref() {
            DeValue::String(text) => Some((text.to_string(), value.span())),
            _ => None,
        };
        let all = match value.get_ref() {
            DeValue::Array(list) => list.iter().map(one).collect(),
            _ => one(value).map(|name| vec![name]),
        };
        all.or_else(|| wrong(key, value, "a name, or a list of names", mistakes))
            .unwrap_or_default()
    }

    pub(super) fn flag(&mut self, key: &'static str, place: &mut bool, mistakes: &mut Mistakes) {
        let Some(value) = self.ask(key) else { return };
        match value.get_ref() {
            DeValue::Boolean(truth) => *place = *truth,
            _ => wrong(key, value, "true or false", mistakes).unwrap_or(()),
        }
    }

    pub(super) fn count(
        &mut self,
        key: &'static str,
        least: usize,
        most: usize,
        mistakes: &mut Mistakes,
    ) -> Option<usize> {
        let value = self.ask(key)?;
        let whole = match value.get_ref() {
            DeValue::Integer(number) => usize::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let fits = whole.filter(|number| (least..=most).contains(number));
        let expected = format!("a whole number from {least} to {most}");
        fits.or_else(|| wrong(key, value, &expected, mistakes))
    }

    /// A number that is not negative.
    pub(super) fn number(&mut self, key: &'static str, mistakes: &mut Mistakes) -> Option<f64> {
        let value = self.ask(key)?;
        let fits = number(value);
        fits.or_else(|| wrong(key, value, "a number that is not negative", mistakes))
    }

    pub(super) fn numbers(
        &mut self,
        key: &'static str,
        mistakes: &mut Mistakes,
    ) -> Option<Vec<f64>> {
        let value = self.ask(key)?;
        let all = match value.get_ref() {
            DeValue::Array(list) => list.iter().map(number).collect::<Option<Vec<f64>>>(),
            _ => None,
        };
        let expected = "a list of at least one number, not negative";
        all.filter(|all| !all.is_empty()).or_else(|| wrong(key, value, expected, mistakes))
    }

    /// Seconds, written as a duration.
    pub(super) fn seconds(&mut self, key: &'static str, mistakes: &mut Mistakes) -> Option<f64> {
        let value = self.ask(key)?;
        let time = match value.get_ref() {
            DeValue::String(text) => duration_s(text),
            _ => None,
        };
        let expected = "a duration such as \"1.5ms\", \"10s\" or \"2m\"";
        time.or_else(|| wrong(key, value, expected, mistakes))
    }

    /// As [`seconds`](Self::seconds), into a place that has a default.
    pub(super) fn time(&mut self, key: &'static str, place: &mut f64, mistakes: &mut Mistakes) {
        *place = self.seconds(key, mistakes).unwrap_or(*place);
    }

    /// Bytes: a number, or written with a unit.
    pub(super) fn size(&mut self, key: &'static str, mistakes: &mut Mistakes) -> Option<f64> {
        let value = self.ask(key)?;
        let bytes = match value.get_ref() {
            DeValue::String(text) => bytes(text),
            _ => number(value),
        };
        let expected = "bytes such as 200, \"4KB\", \"10MB\" or \"2GB\"";
        bytes.or_else(|| wrong(key, value, expected, mistakes))
    }

    /// As [`size`](Self::size), into a place that has a default.
    pub(super) fn bytes(&mut self, key: &'static str, place: &mut f64, mistakes: &mut Mistakes) {
        *place = self.size(key, mistakes).unwrap_or(*place);
    }

    pub(super) fn table(
        &mut self,
        key: &'static str,
        what: &'static str,
        mistakes: &mut Mistakes,
    ) -> Option<Fields<'t>> {
        let value = self.ask(key)?;
        match value.get_ref() {
            DeValue::Table(table) => Some(Fields::new(what, table, value.span())),
            _ => wrong(key, value, what, mistakes),
        }
    }

    /// The tables of a table, as they were written.
    pub(super) fn tables(&mut self, key: &'static str, mistakes: &mut Mistakes) -> Vec<Named<'t>> {
        let what = if key == "nodes" { "a group of nodes" } else { "a group of operators" };
        let Some(value) = self.ask(key) else { return Vec::new() };
        let DeValue::Table(table) = value.get_ref() else {
            let expected = if key == "nodes" {
                "tables such as [nodes.a]"
            } else {
                "tables such as [operators.a]"
            };
            return wrong(key, value, expected, mistakes).unwrap_or_default();
        };
        let mut all = Vec::new();
        for (name, value) in table {
            match value.get_ref() {
                DeValue::Table(table) => {
                    let fields = Fields::new(what, table, name.span());
                    all.push(Named { name: name.get_ref().to_string(), fields });
                }
                _ => wrong(key, value, what, mistakes).unwrap_or(()),
            }
        }
        all.sort_by_key(|named| named.fields.at.start);
        all
    }

    /// What was never asked for is a mistake.
    pub(super) fn finish(self, mistakes: &mut Mistakes) {
        for (name, _) in self.table {
            let key = name.get_ref().as_ref();
            if self.asked.contains(&key) {
                continue;
            }
            let label = match nearest(key, self.asked.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it may have: {}", self.asked.join(", ")),
            };
            mistakes.label(format!("{} has no `{key}`", self.what), name.span(), label);
        }
    }
}

fn wrong<T>(key: &str, value: &Value<'_>, expected: &str, mistakes: &mut Mistakes) -> Option<T> {
    let title = format!("this does not fit `{key}`");
    mistakes.label(title, value.span(), format!("expected {expected}"));
    None
}

fn number(value: &Value<'_>) -> Option<f64> {
    let number = match value.get_ref() {
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok()? as f64
        }
        DeValue::Float(number) => number.as_str().replace('_', "").parse().ok()?,
        _ => return None,
    };
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// Seconds of a duration. A fraction of one unit, such as `1.5ms`, is read without rounding it to nanoseconds.
fn duration_s(text: &str) -> Option<f64> {
    let text = text.trim();
    // How many of a unit a second has: dividing keeps 200us at 0.0002.
    let units = [("us", 1e6), ("ms", 1e3), ("s", 1.0), ("m", 1.0 / 60.0), ("h", 1.0 / 3600.0)];
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let simple = units.iter().find(|(unit, _)| *unit == text[split..].trim());
    if let Some((_, of_a_second)) = simple {
        let number: f64 = text[..split].parse().ok()?;
        return Some(number / of_a_second).filter(|time| time.is_finite());
    }
    parse_duration(text).map(|time| time.as_secs_f64())
}

fn bytes(text: &str) -> Option<f64> {
    let text = text.trim();
    let units = [("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12), ("B", 1.0)];
    let (unit, factor) = units.into_iter().find(|(unit, _)| text.ends_with(unit))?;
    let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_bytes_are_read_with_their_units() {
        let times = ["1.5ms", "200us", "10s", "2m", "1h 1s", "0s"].map(duration_s);
        assert_eq!(times, [0.0015, 0.0002, 10.0, 120.0, 3601.0, 0.0].map(Some));
        assert_eq!(["5", "", "ms", "-1s", "1.2.3s"].map(duration_s), [None; 5]);
        assert_eq!(duration_s(&format!("{}ms", "9".repeat(400))), None, "that is no number");
        let sizes = ["200B", "4KB", "1.5 MB", "2GB"].map(bytes);
        assert_eq!(sizes, [200.0, 4e3, 1.5e6, 2e9].map(Some));
        assert_eq!(["4", "GB", "-4KB", "4kb"].map(bytes), [None; 4]);
    }
}
