//! Ready-made sources. Any iterator is a source too: `app.source("n", || 0..10)`.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use comporta_model::error::{Error, Result};
use comporta_model::event::Time;
use comporta_model::port::Out;
use comporta_model::source::{Demand, Pull, Source};

#[cfg(feature = "scheduler")]
pub use crate::coroutine::{Emitter, scheduler};

/// The lines of a file, without their ends. Text that is no UTF-8 has its bad bytes replaced, so
/// that one of them does not end a long run. What has been read is handed on before more is waited
/// for, so that lines of a pipe or a terminal are handled when they come.
///
/// # Errors
/// When the file cannot be opened; the message names it.
pub fn lines(path: impl AsRef<Path>) -> Result<Lines<File>> {
    let path = path.as_ref();
    let file =
        File::open(path).map_err(|error| Error::msg(format!("{}: {error}", path.display())))?;
    Ok(Lines {
        reader: BufReader::with_capacity(1 << 16, file),
        name: path.to_owned(),
        line: Vec::new(),
    })
}

/// The lines of whatever can be read: standard input, a socket, bytes in memory.
pub fn lines_of<R: Read + Send + 'static>(name: impl Into<PathBuf>, reader: R) -> Lines<R> {
    Lines { reader: BufReader::with_capacity(1 << 16, reader), name: name.into(), line: Vec::new() }
}

/// See [`lines`].
pub struct Lines<R> {
    reader: BufReader<R>,
    name: PathBuf,
    line: Vec<u8>,
}

impl<R: Read + Send + 'static> Source for Lines<R> {
    type Item = String;

    fn pull(&mut self, out: &mut Out<String>, demand: Demand) -> Result<Pull> {
        for n in 0..demand.events {
            if n > 0 && !self.reader.buffer().contains(&b'\n') {
                break; // to read on may take long, and nobody has seen what was sent yet
            }
            self.line.clear();
            let read = self.reader.read_until(b'\n', &mut self.line);
            let read = read.map_err(|e| Error::msg(format!("{}: {e}", self.name.display())))?;
            if read == 0 {
                return Ok(Pull::End);
            }
            let text = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            out.send(String::from_utf8_lossy(text).into_owned());
        }
        Ok(Pull::More)
    }
}

impl<R> fmt::Debug for Lines<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The events of an iterator, `per_second` of them on average: each is sent when its time has
/// come, and one that is late is sent at once, so that the mean rate holds.
pub fn paced<I: Iterator>(per_second: f64, events: I) -> Paced<I> {
    Paced { events, gap_ns: 1e9 / per_second, start: None, sent: 0 }
}

/// See [`paced`].
#[derive(Debug)]
pub struct Paced<I> {
    events: I,
    gap_ns: f64,
    start: Option<Time>,
    sent: u64,
}

impl<I> Source for Paced<I>
where
    I: Iterator + Send + 'static,
    I::Item: Send + 'static,
{
    type Item = I::Item;

    fn pull(&mut self, out: &mut Out<I::Item>, demand: Demand) -> Result<Pull> {
        if !(self.gap_ns.is_finite() && self.gap_ns > 0.0) {
            return Err(Error::msg("a paced source needs a rate above zero"));
        }
        let start = *self.start.get_or_insert(demand.now);
        for _ in 0..demand.events {
            let due = start + Duration::from_nanos((self.sent as f64 * self.gap_ns) as u64);
            if due > demand.now {
                return Ok(Pull::After(due.since(demand.now)));
            }
            match self.events.next() {
                Some(event) => out.send(event),
                None => return Ok(Pull::End),
            }
            self.sent += 1;
        }
        Ok(Pull::More)
    }
}

/// The numbers 0, 1, 2, ... one every `gap`, the first after one gap. A tick that could not be sent
/// in time is skipped, not sent late: the number says how many gaps have passed.
pub fn every(gap: Duration) -> Ticks {
    Ticks { gap, start: None, next: 0 }
}

/// See [`every`].
#[derive(Debug)]
pub struct Ticks {
    gap: Duration,
    start: Option<Time>,
    next: u64,
}

impl Source for Ticks {
    type Item = u64;

    fn pull(&mut self, out: &mut Out<u64>, demand: Demand) -> Result<Pull> {
        let gap = u64::try_from(self.gap.as_nanos()).unwrap_or(u64::MAX);
        if gap == 0 {
            return Err(Error::msg("a timer needs a gap above zero"));
        }
        let start = *self.start.get_or_insert(demand.now);
        let passed = demand.now.since(start).as_nanos() as u64 / gap;
        if passed > self.next {
            out.send(passed - 1);
            self.next = passed;
        }
        let due = start + Duration::from_nanos(gap.saturating_mul(self.next + 1));
        Ok(Pull::After(due.since(demand.now)))
    }
}
