//! Lines, and windows of them, read once: a text, and for each good line where its fields lie in it. A
//! source reads each line when it comes ([`Record`]); the stage `window` gathers those of one log.
//! Shared as [`Shared`]: the three stages that look at a window look at the same one.

use std::sync::Arc;

use comporta::{Cx, Demand, Error, Ev, Out, Pull, Result, Source, Stage};
use serde::{Deserialize, Serialize};

use crate::parse;

/// A line that was read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    text: String,
    /// Nothing for a line that cannot be read.
    spot: Option<Spot>,
}

impl Record {
    /// Reads a line.
    #[must_use]
    pub fn read(text: String) -> Self {
        let spot = spot(&text);
        Record { text, spot }
    }
}

/// A source that reads the lines of another.
#[derive(Debug)]
pub struct Reader<S> {
    lines: S,
    pulled: Out<String>,
}

impl<S> Reader<S> {
    /// Over the lines of `lines`.
    #[must_use]
    pub fn new(lines: S) -> Self {
        Reader { lines, pulled: Out::default() }
    }
}

impl<S: Source<Item = String>> Source for Reader<S> {
    type Item = Record;

    fn pull(&mut self, out: &mut Out<Record>, demand: Demand) -> Result<Pull> {
        let pull = self.lines.pull(&mut self.pulled, demand);
        self.pulled.drain().for_each(|line| out.send(Record::read(line)));
        pull
    }
}

/// A window that several stages read at once.
pub type Shared = Arc<Batch>;

/// A window of lines.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    /// The number of the log it is of, from 0.
    pub log: usize,
    /// The number of the window, from 0: no other has it, whatever log it is of.
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
    /// The `nth` window of a log, one of so many logs; without any line yet.
    #[must_use]
    pub fn new(log: usize, logs: usize, nth: u64) -> Self {
        Batch { log, number: nth * logs as u64 + log as u64, ..Batch::default() }
    }

    /// Adds a line that was read.
    pub fn add(&mut self, record: &Record) {
        let start = self.text.len();
        self.spots.extend(record.spot.as_ref().and_then(|spot| spot.shifted(start)));
        self.text.push_str(&record.text);
        self.text.push('\n');
        self.lines += 1;
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

/// The stage `window`: takes the lines of one log, sends them in windows of `size`.
#[derive(Clone, Debug)]
pub struct Gather {
    log: usize,
    logs: usize,
    size: usize,
    sent: u64,
    batch: Batch,
}

impl Gather {
    /// For one of so many logs.
    #[must_use]
    pub fn new(log: usize, logs: usize, size: usize) -> Self {
        Gather { log, logs, size, sent: 0, batch: Batch::new(log, logs, 0) }
    }

    fn send(&mut self, out: &mut Out<Shared>) {
        self.sent += 1;
        let next = Batch::new(self.log, self.logs, self.sent);
        // The next window will need about as much.
        let (text, spots) = (self.batch.text.len(), self.batch.spots.len());
        let full = std::mem::replace(&mut self.batch, next);
        self.batch.text.reserve(text);
        self.batch.spots.reserve(spots);
        out.send(Arc::new(full));
    }
}

impl Stage for Gather {
    type In = Record;
    type Ports = Out<Shared>;
    const STATEFUL: bool = true;

    fn init(&mut self, _: &Cx) -> Result {
        match self.size {
            0 => Err(Error::msg("a window of 0 events holds nothing")),
            _ => Ok(()),
        }
    }

    fn handle(&mut self, record: Ev<'_, Record>, out: &mut Out<Shared>, _: &Cx) -> Result {
        self.batch.add(&record);
        if self.batch.lines >= self.size as u64 {
            self.send(out);
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Out<Shared>, _: &Cx) -> Result {
        if self.batch.lines > 0 {
            self.send(out);
        }
        Ok(())
    }
}

impl Spot {
    /// Where it lies when its line is put at `start`. Nothing beyond 4 GiB: then it is no line of a log.
    fn shifted(&self, start: usize) -> Option<Spot> {
        let start = u32::try_from(start).ok()?;
        let shift =
            |(from, to): (u32, u32)| Some((from.checked_add(start)?, to.checked_add(start)?));
        let (line, client, path) = (shift(self.line)?, shift(self.client)?, shift(self.path)?);
        Some(Spot { line, client, path, ..*self })
    }
}

/// Where the fields of a line lie in it. Nothing for a line that cannot be read, or of more than 4 GiB.
fn spot(line: &str) -> Option<Spot> {
    let told = parse::line(line)?;
    let place = |part: &str| {
        let from = part.as_ptr() as usize - line.as_ptr() as usize;
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
    use comporta::testing::StageTester;

    #[test]
    fn entries_are_the_good_lines_and_the_text_is_all_of_them() {
        let good =
            |n| format!(r#"h{n} - - [01/Jan/1970:00:00:0{n} +0000] "GET /{n} HTTP/1.1" 200 {n}"#);
        let events = vec![good(1), "rubbish".to_owned(), good(2)];
        let mut gather = StageTester::new(Gather::new(1, 2, 3));
        events.iter().for_each(|line| gather.send(Record::read(line.clone())).unwrap());
        gather.send(Record::read(good(3))).unwrap();
        gather.finish().unwrap();
        let batches: Vec<Shared> = gather.out.drain().collect();
        let numbers: Vec<_> = batches.iter().map(|b| (b.log, b.number, b.lines)).collect();
        assert_eq!(numbers, [(1, 1, 3), (1, 3, 1)], "those of the other log are even");
        let batch = &batches[0];
        assert_eq!(batch.malformed(), 1);
        assert_eq!(batch.text.lines().collect::<Vec<_>>(), events);
        let told: Vec<_> = batch
            .entries()
            .map(|e| (e.line, e.client, e.path, e.time, e.bytes, e.status))
            .collect();
        assert_eq!(told, [(&*good(1), "h1", "/1", 1, 1, 200), (&*good(2), "h2", "/2", 2, 2, 200)]);
    }
}
