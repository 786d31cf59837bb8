//! Text becomes values that know where they stand. `${NAME}` and `${NAME:-default}` in a string
//! stand for a variable of the environment; `$${` is a `${` that does not.
//! A string that held one may also be read as a number or a truth value: what comes from the
//! environment is always text.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::report::{Mistake, Span};

/// The title of a slip in the text itself.
pub(crate) const NOT_TOML: &str = "this is not TOML";

/// Looks up a variable of the environment.
pub(crate) type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// With the text before variables were filled in, if there were any.
    Text(String, Option<String>),
    Integer(i64),
    Float(f64),
    Bool(bool),
    Datetime(String),
    List(Vec<Node>),
    Table(Table),
}

pub(crate) type Table = Vec<Entry>;

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) node: Node,
}

impl Node {
    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Text(..) => "a string",
            Value::Integer(_) => "a whole number",
            Value::Float(_) => "a number with a fraction",
            Value::Bool(_) => "true or false",
            Value::Datetime(_) => "a date",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// As a message shows it: itself where it is short, else what it is.
    pub(crate) fn shown(&self) -> String {
        match &self.value {
            Value::Integer(n) => format!("`{n}`"),
            Value::Float(x) => format!("`{x:?}`"),
            Value::Bool(truth) => format!("`{truth}`"),
            Value::Text(text, None) if text.len() <= 40 => format!("`{text}`"),
            _ => self.kind().to_owned(),
        }
    }

    /// Whether this place is in it.
    pub(crate) fn holds(&self, at: &Span) -> bool {
        let within = at.text == self.span.text
            && self.span.range.start <= at.range.start
            && at.range.end <= self.span.range.end;
        within
            || match &self.value {
                Value::Table(entries) => entries.iter().any(|entry| entry.node.holds(at)),
                Value::List(items) => items.iter().any(|item| item.holds(at)),
                _ => false,
            }
    }

    /// The text of a variable that was filled in, which may stand for another kind of value.
    pub(crate) fn variable(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text, Some(_)) => Some(text.trim()),
            _ => None,
        }
    }
}

/// Reads one text: its top-level table, as far as it could be read, and every mistake.
pub(crate) fn read(number: usize, text: &str, env: &Env<'_>, wrong: &mut Vec<Mistake>) -> Table {
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().map(|range| Span { text: number, range });
        wrong.push(Mistake::new(NOT_TOML, at).label(one_line(error.message())));
    }
    let mut reader = Reader { number, text, env, wrong };
    reader.table(document.get_ref())
}

/// A number with its thousands apart.
fn set_apart(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut text = String::from(if n < 0 { "-" } else { "" });
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

struct Reader<'a, 'b> {
    number: usize,
    text: &'a str,
    env: &'a Env<'b>,
    wrong: &'a mut Vec<Mistake>,
}

impl Reader<'_, '_> {
    fn table(&mut self, table: &DeTable<'_>) -> Table {
        let mut entries: Table = table
            .iter()
            .map(|(key, value)| Entry {
                key: key.get_ref().to_string(),
                key_span: self.span(key.span()),
                node: self.node(value.get_ref(), value.span()),
            })
            .collect();
        entries.sort_by_key(|entry| entry.key_span.range.start); // as written
        entries
    }

    fn span(&self, range: Range<usize>) -> Span {
        Span { text: self.number, range }
    }

    fn node(&mut self, value: &DeValue<'_>, range: Range<usize>) -> Node {
        let span = self.span(range);
        let value = match value {
            DeValue::String(text) => self.string(text, &span),
            DeValue::Integer(integer) => {
                match i64::from_str_radix(integer.as_str(), integer.radix()) {
                    Ok(integer) => Value::Integer(integer),
                    Err(_) => {
                        let large = Mistake::new("this number is out of range", span.clone());
                        self.wrong.push(large.label(format!(
                            "expected a whole number from {} to {}",
                            set_apart(i64::MIN),
                            set_apart(i64::MAX)
                        )));
                        Value::Text(String::new(), Some(integer.as_str().to_owned()))
                    }
                }
            }
            DeValue::Float(float) => Value::Float(float.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(truth) => Value::Bool(*truth),
            DeValue::Datetime(time) => Value::Datetime(time.to_string()),
            DeValue::Array(list) => Value::List(
                list.iter().map(|item| self.node(item.get_ref(), item.span())).collect(),
            ),
            DeValue::Table(table) => Value::Table(self.table(table)),
        };
        Node { value, span }
    }

    fn string(&mut self, raw: &str, span: &Span) -> Value {
        match fill_in(raw, self.env) {
            Ok(None) => Value::Text(raw.to_owned(), None),
            Ok(Some(text)) => Value::Text(text, Some(raw.to_owned())),
            Err(Unfilled { message, label, at }) => {
                let at = inside(self.text, span, raw, at);
                self.wrong.push(Mistake::new(message, at).label(label));
                // Taken for one that was filled in, so that nothing else is said of it.
                Value::Text(String::new(), Some(raw.to_owned()))
            }
        }
    }
}

/// The place of a part of a string, if the text says it letter for letter; else all of it.
pub(crate) fn inside(text: &str, span: &Span, string: &str, part: Range<usize>) -> Span {
    let (start, end) = (span.range.start + 1, span.range.end.saturating_sub(1));
    let same = text.get(start..end) == Some(string);
    let range = if same { start + part.start..start + part.end } else { span.range.clone() };
    Span { text: span.text, range }
}

struct Unfilled {
    message: String,
    label: String,
    at: Range<usize>,
}

/// The string with its variables filled in, or nothing if it has none.
fn fill_in(raw: &str, env: &Env<'_>) -> Result<Option<String>, Unfilled> {
    if !raw.contains("${") {
        return Ok(None);
    }
    let (mut text, mut rest, mut at) = (String::new(), raw, 0);
    while let Some(open) = rest.find("${") {
        if rest[..open].ends_with('$') {
            text += &rest[..open - 1];
            text += "${";
            (rest, at) = (&rest[open + 2..], at + open + 2);
            continue;
        }
        text += &rest[..open];
        let Some(close) = rest[open..].find('}') else {
            return Err(Unfilled {
                message: "`${` is not closed".to_owned(),
                label: "expected `${NAME}` or `${NAME:-default}`".to_owned(),
                at: at + open..raw.len(),
            });
        };
        let inner = &rest[open + 2..open + close];
        let whole = at + open..at + open + close + 1;
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let named = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !named {
            return Err(Unfilled {
                message: format!("`{name}` is no name of a variable"),
                label: "expected letters, digits and `_`".to_owned(),
                at: whole,
            });
        }
        match env(name).or_else(|| default.map(str::to_owned)) {
            Some(value) => text += &value,
            None => {
                return Err(Unfilled {
                    message: format!("the variable `{name}` is not set"),
                    label: format!("set it, or give a default: `${{{name}:-...}}`"),
                    at: whole,
                });
            }
        }
        (rest, at) = (&rest[open + close + 1..], at + open + close + 1);
    }
    text += rest;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(raw: &str) -> Result<Option<String>, String> {
        let env = |name: &str| (name == "HOME").then(|| "/h".to_owned());
        fill_in(raw, &env).map_err(|unfilled| format!("{} {:?}", unfilled.message, unfilled.at))
    }

    #[test]
    fn variables_are_filled_in_and_defaults_used_where_they_are_missing() {
        assert_eq!(filled("plain $HOME"), Ok(None));
        assert_eq!(filled("${HOME}/x"), Ok(Some("/h/x".to_owned())));
        assert_eq!(filled("${NONE:-a:-b}-${HOME}"), Ok(Some("a:-b-/h".to_owned())));
        assert_eq!(filled("${NONE:-}"), Ok(Some(String::new())));
        assert_eq!(filled("$${HOME} ${HOME}"), Ok(Some("${HOME} /h".to_owned())));
    }

    #[test]
    fn what_cannot_be_filled_in_is_told_with_its_place() {
        assert_eq!(filled("a ${NONE}"), Err("the variable `NONE` is not set 2..9".to_owned()));
        assert_eq!(filled("ä ${HOME"), Err("`${` is not closed 3..9".to_owned()));
        assert_eq!(filled("${a b}"), Err("`a b` is no name of a variable 0..6".to_owned()));
        assert_eq!(filled("${}"), Err("`` is no name of a variable 0..3".to_owned()));
    }
}
