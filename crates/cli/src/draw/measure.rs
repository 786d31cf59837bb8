//! Text in a bounded number of terminal columns.

use unicode_width::UnicodeWidthChar;

/// The columns a text takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// The columns a character takes; 0 for one that joins the one before.
pub(super) fn columns(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// A text without control characters, which would move the cursor.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A text in at most `max` columns: what is too much is cut out of its middle, because names
/// often differ at their ends.
pub(super) fn shorten(text: &str, max: usize, ascii: bool) -> String {
    if width(text) <= max {
        return text.to_owned();
    }
    let room = max.saturating_sub(1);
    let head = take(text.chars(), room.div_ceil(2));
    let tail = take(text.chars().rev(), room - width(&head));
    let tail: String = tail.chars().rev().collect();
    let mark = if ascii { "~" } else { "…" };
    format!("{head}{}{tail}", if max == 0 { "" } else { mark })
}

fn take(chars: impl Iterator<Item = char>, max: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|&c| {
            used += columns(c);
            used <= max
        })
        .collect()
}

/// Words joined by `between`, in lines of at most `max` columns where a word is not longer.
pub(super) fn fill(words: &[String], between: &str, max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if width(line) + width(between) + width(word) <= max => {
                line.push_str(between);
                line.push_str(word);
            }
            _ => lines.push(word.clone()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_loses_its_middle() {
        assert_eq!(shorten("orders", 6, false), "orders");
        assert_eq!(shorten("orders-of-europe-1", 9, false), "orde…pe-1");
        assert_eq!(shorten("orders-of-europe-1", 9, true), "orde~pe-1");
        assert_eq!(shorten("orders", 1, false), "…");
        assert_eq!(shorten("orders", 0, false), "");
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(width("日本"), 4);
        assert_eq!(shorten("日本日本", 6, false), "日…本");
    }

    #[test]
    fn words_fill_lines() {
        let words = ["one", "two", "three"].map(str::to_owned);
        assert_eq!(fill(&words, ", ", 8), ["one, two", "three"]);
    }
}
