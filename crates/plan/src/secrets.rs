//! What is nobody's business: which keys name secrets, and where they stand in a text, so that no
//! message shows them.

use std::ops::Range;

use crate::tree::{Node, Table, Value};

/// Whether a key names something that is nobody's business.
pub(crate) fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["password", "passwd", "secret", "token", "credential", "api_key", "apikey", "private_key"]
        .iter()
        .any(|word| key.contains(word))
}

/// Notes where secrets stand, in whatever section: a slip may have put them there.
pub(crate) fn hide_secrets(table: &Table, hidden: &mut Vec<Range<usize>>) {
    fn within(node: &Node, hidden: &mut Vec<Range<usize>>) {
        match &node.value {
            Value::Table(inner) => hide_secrets(inner, hidden),
            Value::List(items) => items.iter().for_each(|item| within(item, hidden)),
            _ => {}
        }
    }
    for entry in table {
        match &entry.node.value {
            // Its place is that of its header; its settings have their own.
            Value::Table(inner) if is_secret(&entry.key) => hide_all(inner, hidden),
            _ if is_secret(&entry.key) => hidden.push(entry.node.span.range.clone()),
            _ => within(&entry.node, hidden),
        }
    }
}

/// Everything in a table whose name says that it is secret.
fn hide_all(table: &Table, hidden: &mut Vec<Range<usize>>) {
    for entry in table {
        match &entry.node.value {
            Value::Table(inner) => hide_all(inner, hidden),
            _ => hidden.push(entry.node.span.range.clone()),
        }
    }
}

/// Where a text could not be read, what follows the name of a secret in its line is hidden.
pub(crate) fn hide_unread_secrets(text: &str, hidden: &mut Vec<Range<usize>>) {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let secret = line.match_indices('=').find(|(at, _)| {
            let key = line[..*at].trim_end().rsplit([',', '{', ' ', '\t']).next();
            key.is_some_and(is_secret)
        });
        if let Some((at, _)) = secret {
            let said = line[at + 1..].trim();
            let from = start + line.len() - line[at + 1..].trim_start().len();
            hidden.push(from..from + said.len());
        }
        start += line.len();
    }
}
