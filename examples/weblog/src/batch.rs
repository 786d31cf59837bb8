//! A window of lines, read once: one text, and for each good line where its fields lie in it.
//! Shared as [`Shared`]: the three stages that look at a window look at the same one.

use std::sync::Arc;

use comporta::windows::Window;
use serde::{Deserialize, Serialize};

use crate::parse;

/// A window that several stages read at once.
pub type Shared = Arc<Batch>;

/// A window of lines.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    /// The number of the window, from 0.
    pub number: u64,
    /// How many lines it has.
    pub lines: u64,
    /// Its lines, each with its end.
    pub text: String,
    spots: Vec<Spot>,
}

/// Where a good line and its fields lie in the text.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Spot {
    line: (u32, u32),
    client: (u32, u32),
    path: (u32, u32),
    time: i64,
    bytes: u64,
    status: u16,
}

/// A good line of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The whole line.
    pub line: &'a str,
    /// Who asked.
    pub client: &'a str,
    /// For what.
    pub path: &'a str,
    /// When, in seconds since 1970.
    pub time: i64,
    /// How much was sent.
    pub bytes: u64,
    /// The answer.
    pub status: u16,
}

impl Batch {
    /// Reads a window of `size` lines.
    #[must_use]
    pub fn read(window: &Window<String>, size: usize) -> Self {
        let length = window.events.iter().map(|line| line.len() + 1).sum();
        let mut batch = Batch {
            number: window.start.unsigned_abs() / size.max(1) as u64,
            lines: window.events.len() as u64,
            text: String::with_capacity(length),
            spots: Vec::with_capacity(window.events.len()),
        };
        for line in &window.events {
            batch.spots.extend(spot(line, batch.text.len()));
            batch.text.push_str(line);
            batch.text.push('\n');
        }
        batch
    }

    /// Lines that could not be read.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.lines - self.spots.len() as u64
    }

    /// The good lines, in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let text = |(from, to): (u32, u32)| &self.text[from as usize..to as usize];
        self.spots.iter().map(move |spot| Entry {
            line: text(spot.line),
            client: text(spot.client),
            path: text(spot.path),
            time: spot.time,
            bytes: spot.bytes,
            status: spot.status,
        })
    }
}

/// Where the line and its fields will lie when the line is put at `start`. Nothing for a line that
/// cannot be read, or that lies beyond 4 GiB: then it is no line of a log.
fn spot(line: &str, start: usize) -> Option<Spot> {
    let told = parse::line(line)?;
    let place = |part: &str| {
        let from = start + (part.as_ptr() as usize - line.as_ptr() as usize);
        Some((u32::try_from(from).ok()?, u32::try_from(from + part.len()).ok()?))
    };
    Some(Spot {
        line: place(line)?,
        client: place(told.client)?,
        path: place(told.path)?,
        time: told.time,
        bytes: told.bytes,
        status: told.status,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_the_good_lines_and_the_text_is_all_of_them() {
        let good =
            |n| format!(r#"h{n} - - [01/Jan/1970:00:00:0{n} +0000] "GET /{n} HTTP/1.1" 200 {n}"#);
        let events = vec![good(1), "rubbish".to_owned(), good(2)];
        let window = Window { start: 3_000, end: 3_003, events: events.clone() };
        let batch = Batch::read(&window, 1_000);
        assert_eq!((batch.number, batch.lines, batch.malformed()), (3, 3, 1));
        assert_eq!(batch.text.lines().collect::<Vec<_>>(), events);
        let told: Vec<_> = batch
            .entries()
            .map(|e| (e.line, e.client, e.path, e.time, e.bytes, e.status))
            .collect();
        assert_eq!(told, [(&*good(1), "h1", "/1", 1, 1, 200), (&*good(2), "h2", "/2", 2, 2, 200)]);
    }
}
