//! Secrets: which keys name them, and where they stand in a text, so that no message shows them.

use std::ops::Range;

use crate::tree::{Node, Table, Value};

/// Returns `true` if a key names a secret.
pub(crate) fn is_secret(key: &str) -> bool {
    // `api_key`, `api-key` and `apiKey` are the same to whoever reads them.
    let mut key: String = key.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).collect();
    key.make_ascii_lowercase();
    ["password", "passwd", "secret", "token", "credential", "apikey", "privatekey"]
        .iter()
        .any(|word| key.contains(word))
}

/// Notes where secrets stand, in whatever section: a slip may have put them there.
pub(crate) fn hide_secrets(text: &str, table: &Table, hidden: &mut Vec<Range<usize>>) {
    fn within(text: &str, node: &Node, hidden: &mut Vec<Range<usize>>) {
        match &node.value {
            Value::Table(inner) => hide_secrets(text, inner, hidden),
            Value::List(items) => items.iter().for_each(|item| within(text, item, hidden)),
            Value::Text(..) => hide_in_string(text, &node.span.range, hidden),
            _ => {}
        }
    }
    for entry in table {
        match &entry.node.value {
            // Its place is that of its header; its settings have their own.
            Value::Table(inner) if is_secret(&entry.key) => hide_all(inner, hidden),
            _ if is_secret(&entry.key) => hidden.push(entry.node.span.range.clone()),
            _ => within(text, &entry.node, hidden),
        }
    }
}

/// A string may hold settings: a flag whose value is no TOML is taken as a string.
fn hide_in_string(text: &str, range: &Range<usize>, hidden: &mut Vec<Range<usize>>) {
    let string = text.get(range.clone()).unwrap_or_default();
    if let Some(from) = named_by_secret(string, true) {
        hidden.push(range.start + from..range.end);
        return;
    }
    hidden.extend(
        in_address(string).into_iter().map(|at| range.start + at.start..range.start + at.end),
    );
}

/// Where secrets stand in what may be an address: between `:` and `@` in `scheme://user:secret@host`, and
/// after the name of a secret in `?token=secret&...`. In order.
pub(crate) fn in_address(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("://").map(|at| from + at + 3) {
        let rest = &text[at..];
        let end = at
            + rest.find(|c: char| c.is_whitespace() || "\"'<>".contains(c)).unwrap_or(rest.len());
        let host_end = at + text[at..end].find(['/', '?', '#']).unwrap_or(end - at);
        // A secret may hold an `@` that nobody has escaped: the last one ends it.
        if let Some(host) = text[at..host_end].rfind('@').map(|host| at + host)
            && let Some(colon) = text[at..host].find(':').map(|colon| at + colon + 1)
            && colon < host
        {
            found.push(colon..host);
        }
        let mut part = host_end;
        for piece in text[host_end..end].split_inclusive(['?', '&', '#', ';']) {
            if let Some((name, said)) = piece.split_once('=') {
                let said = said.trim_end_matches(['&', '#', ';']);
                if is_secret(name) && !said.is_empty() {
                    let start = part + name.len() + 1;
                    found.push(start..start + said.len());
                }
            }
            part += piece.len();
        }
        from = end;
    }
    // A variable is no secret: it names one.
    found.retain(|range| !text[range.clone()].starts_with("${"));
    found
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

/// Where a text could not be read, it is not known where what a key says begins and ends. When in
/// doubt it is hidden: after the name of a secret, to the end of the line in which it may end.
/// What is hidden comes in order.
pub(crate) fn hidden_unread(text: &str) -> Vec<Range<usize>> {
    let mut hidden: Vec<Range<usize>> = Vec::new();
    let (mut start, mut secret_section) = (0, false);
    for line in text.split_inclusive('\n') {
        let (at, end) = (start, start + line.len());
        start = end;
        if hidden.last().is_some_and(|last| at < last.end) {
            continue;
        }
        let header = line.trim_start().starts_with('[');
        let from = match secret_section && !header {
            true => words(line).find(|word| !word.is_empty()).map(|word| after(line, &word)),
            false => named_by_secret(line, false),
        };
        if header {
            secret_section = from.is_some();
        }
        let Some(from) = from else { continue };
        let to = if header { end } else { at + from + value_end(&text[at + from..]) };
        hidden.push(at + from..to);
    }
    hidden
}

/// Takes what only seems to be a key out of a table that was read in spite of mistakes: it may be a
/// secret, and messages name keys.
pub(crate) fn without_hidden_keys(table: &mut Table, hidden: &[Range<usize>]) {
    table.retain_mut(|entry| {
        if let Value::Table(inner) = &mut entry.node.value {
            without_hidden_keys(inner, hidden);
        }
        let start = entry.key_span.range.start;
        let next = hidden.partition_point(|range| range.end <= start);
        hidden.get(next).is_none_or(|range| start < range.start)
    });
}

/// What keys are made of, and words beside them.
fn words(text: &str) -> impl Iterator<Item = Range<usize>> {
    let ends = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    let mut start = 0;
    text.split_inclusive(ends).map(move |piece| {
        let at = start;
        start += piece.len();
        at..at + piece.trim_end_matches(ends).len()
    })
}

const QUOTES: [char; 2] = ['"', '\''];
const BLANKS_AND_QUOTES: [char; 5] = [' ', '\t', '\\', '"', '\''];

/// Where that begins which the name of a secret stands before, if there is such a name. A word that is
/// itself said of something is none; `assigned`: nor is one that nothing is said of.
fn named_by_secret(text: &str, assigned: bool) -> Option<usize> {
    let found = words(text).find(|word| {
        let says = text[word.end..].trim_start_matches(BLANKS_AND_QUOTES).starts_with(['=', ':']);
        let said = text[..word.start].trim_end_matches(BLANKS_AND_QUOTES).ends_with(['=', ':']);
        (says || !(assigned || said)) && is_secret(&text[word.clone()])
    });
    found.map(|word| after(text, &word))
}

/// Where what a key says begins.
fn after(text: &str, key: &Range<usize>) -> usize {
    let mut rest = &text[key.end..];
    if text[..key.start].ends_with(QUOTES) {
        let closed = rest.trim_start_matches('\\');
        rest = closed.strip_prefix(QUOTES).unwrap_or(rest);
    }
    text.len() - rest.trim_start_matches([' ', '\t', '=', ':', ']']).len()
}

/// The end of the line in which a value may end: the value may begin in the next line, and go on as
/// long as a quote or a bracket is open.
fn value_end(text: &str) -> usize {
    let mut at = text.len() - text.trim_start().len();
    let mut open = 0_usize;
    while let Some(c) = text[at..].chars().next() {
        at += c.len_utf8();
        match c {
            '"' | '\'' => {
                let long = if c == '"' { "\"\"\"" } else { "'''" };
                let (quote, from) = match text[at - 1..].starts_with(long) {
                    true => (long, at + 2),
                    false => (&long[..1], at),
                };
                let Some(closed) = text[from..].find(quote) else { return text.len() };
                let string = &text[from..from + closed];
                at = from + closed + quote.len();
                if quote.len() == 1 && string.contains('\n') {
                    break; // it was left open, and what closes it may as well have opened another
                }
            }
            '[' | '{' => open += 1,
            ']' | '}' => open = open.saturating_sub(1),
            '\n' if open == 0 => return at,
            _ => {}
        }
    }
    at + text[at..].find('\n').map_or(text.len() - at, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        for range in hidden_unread(text) {
            bytes[range].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b'*');
        }
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_follows_the_name_of_a_secret_is_hidden_as_far_as_it_may_reach() {
        assert_eq!(shown("password: \"a\"\nb = 1"), "password: ***\nb = 1");
        assert_eq!(shown("password \"a\"\nb = 1"), "password ***\nb = 1");
        assert_eq!(shown("password =\n\n  a\nb = 1"), "password =\n\n***\nb = 1");
        assert_eq!(shown("\"api-key\" = 'a'\nb = 1"), "\"api-key\" = ***\nb = 1");
        assert_eq!(shown("x = { token = [\n 'a',\n] y }\nb"), "x = { token = *\n*****\n*****\nb");
        assert_eq!(shown("token = '''\na\n''' c\nb"), "token = ***\n*\n*****\nb");
        assert_eq!(shown("token = \"a\nc\" d\nb"), "token = **\n****\nb");
        assert_eq!(shown("[app.secrets]\nu: é\n[b]\nc: 1"), "[app.secrets]\nu: **\n[b]\nc: 1");
    }

    #[test]
    fn secrets_in_addresses_are_found() {
        let hidden = |text: &str| -> Vec<String> {
            in_address(text).into_iter().map(|range| text[range].to_owned()).collect()
        };
        assert_eq!(hidden("postgres://me:hunter2@db.example/words?ssl=on"), ["hunter2"]);
        assert_eq!(hidden("amqp://me:p@ss@host"), ["p@ss"]);
        assert_eq!(hidden("https://h/x?api_key=abc&n=1&token=d#e"), ["abc", "d"]);
        assert_eq!(hidden("a redis://:one@h, then http://u:two@h"), ["one", "two"]);
        for text in ["https://example.com:8080/a@b", "http://me@host", "a:b@c", "x://u:${PW}@h"] {
            assert_eq!(hidden(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn what_is_no_secret_is_shown() {
        for text in ["admission = \"token-bucket\"\nb =", "a = 1\nb: 2\n[c", "# a word\n="] {
            assert_eq!(shown(text), text);
        }
    }
}
