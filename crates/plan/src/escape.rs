//! Texts of others as they may be shown: names, reasons and values may hold what a terminal takes for a command.

use std::borrow::Cow;

/// Returns `text` with its control characters escaped (`\u{1b}`, `\n`), and all others as they are.
///
/// ```
/// assert_eq!(comporta_plan::escaped("a\u{1b}[2J\r\u{7}é"), "a\\u{1b}[2J\\r\\u{7}é");
/// ```
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_debug()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Returns what [`escaped`] does, but leaves the ends of lines as they are.
#[must_use]
pub fn escaped_lines(text: &str) -> String {
    text.lines().map(escaped).collect::<Vec<_>>().join("\n")
}
