//! The lines of a file, or of any reader. `Line` is shared with `follow`.
//! Bound: the length of a line; a longer one is an error, is cut or is skipped.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use comporta_model::error::{Error, Result};
use comporta_model::port::Out;
use comporta_model::source::{Demand, Pull, Source};

/// The default bound of the length of a line, in bytes: 16 MiB.
pub const LINE_MAX: usize = 1 << 24;

/// What happens to a line that is longer than the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LongLine {
    /// The source fails; the error names the line.
    #[default]
    Fail,
    /// The line is cut at the bound.
    Cut,
    /// The line is skipped.
    Skip,
}

/// Returns a source of the lines of a file, without their ends. Bytes that are not UTF-8 are replaced, so
/// that one of them does not end a long run. Lines that have been read are sent before the source waits for
/// more, so that lines of a pipe or a terminal are handled as they come.
///
/// A line has at most [`LINE_MAX`] bytes; see [`Lines::max_len`].
///
/// # Errors
/// Returns an error, which names the file, if it cannot be opened.
pub fn lines(path: impl AsRef<Path>) -> Result<Lines<File>> {
    let path = path.as_ref();
    let file =
        File::open(path).map_err(|error| Error::msg(format!("{}: {error}", path.display())))?;
    Ok(lines_of(path, file))
}

/// Returns a source of the lines of a reader: standard input, a socket, bytes in memory. Errors call the
/// reader `name`.
pub fn lines_of<R: Read + Send + 'static>(name: impl Into<PathBuf>, reader: R) -> Lines<R> {
    let reader = BufReader::with_capacity(1 << 16, reader);
    Lines { reader, line: Line::new(name.into()) }
}

/// A source of lines; see [`lines`].
#[must_use = "a source gives nothing until a program pulls it: `app.source(name, || source)`"]
pub struct Lines<R> {
    reader: BufReader<R>,
    line: Line,
}

impl<R> Lines<R> {
    /// Sets the most bytes of a line, without its end, and what happens to a longer one.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::{App, sources}; }
    /// use comporta::sources::{self, LongLine};
    /// use comporta::{App, Plan};
    ///
    /// let app = App::new("short");
    /// let text = "short\nfar too long\nagain\n";
    /// let lines = app.source("lines", || {
    ///     sources::lines_of("text", text.as_bytes()).max_len(5, LongLine::Skip)
    /// });
    /// app.connect(lines, app.sink("end", |line: String| assert_eq!(line.len(), 5)));
    /// let summary = app.run(&Plan::new())?;
    /// assert_eq!(summary.snapshot.stage("end").unwrap().counts.handled, 2);
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn max_len(mut self, bytes: usize, long: LongLine) -> Self {
        (self.line.max, self.line.long) = (bytes, long);
        self
    }
}

impl<R: Read + Send + 'static> Source for Lines<R> {
    type Item = String;

    fn pull(&mut self, out: &mut Out<String>, demand: Demand) -> Result<Pull> {
        let mut sent = 0;
        while sent < demand.events {
            if sent > 0 && !self.reader.buffer().contains(&b'\n') {
                break; // to read on may take long, and nobody has seen what was sent yet
            }
            let bytes = match self.reader.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.line.error(error)),
            };
            if bytes.is_empty() {
                if self.line.is_begun()
                    && let Some(text) = self.line.finish()?
                {
                    out.send(text);
                }
                return Ok(Pull::End);
            }
            let (used, text) = self.line.take(bytes)?;
            self.reader.consume(used);
            if let Some(text) = text {
                out.send(text);
                sent += 1;
            }
        }
        Ok(Pull::More)
    }
}

impl<R> fmt::Debug for Lines<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("name", &self.line.name).finish_non_exhaustive()
    }
}

/// The line that is being read.
pub(super) struct Line {
    name: PathBuf,
    /// What there is of it; at most one byte more than is allowed and its end.
    bytes: Vec<u8>,
    number: u64,
    max: usize,
    long: LongLine,
}

impl Line {
    pub(super) fn new(name: PathBuf) -> Self {
        Line { name, bytes: Vec::new(), number: 1, max: LINE_MAX, long: LongLine::default() }
    }

    pub(super) fn set_max(&mut self, bytes: usize, long: LongLine) {
        (self.max, self.long) = (bytes, long);
    }

    pub(super) fn name(&self) -> &Path {
        &self.name
    }

    /// Takes bytes up to the end of the line. Returns how many, and the line if it is over and is sent.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<String>)> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(bytes.len(), |end| end + 1);
        let rest = &bytes[..end.unwrap_or(bytes.len())];
        // One byte more shows that it is too long, and another may be the `\r` of its end.
        let room = self.max.saturating_add(2).saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&rest[..rest.len().min(room)]);
        match end {
            Some(_) => Ok((used, self.finish()?)),
            // So long, and no end yet: it is reported without reading on.
            None if self.bytes.len() > self.max.saturating_add(1)
                && self.long == LongLine::Fail =>
            {
                self.finish().map(|text| (used, text))
            }
            None => Ok((used, None)),
        }
    }

    /// The line is over. Returns it if it is sent.
    pub(super) fn finish(&mut self) -> Result<Option<String>> {
        let bytes = self.bytes.strip_suffix(b"\r").unwrap_or(&self.bytes);
        let text = match self.long {
            _ if bytes.len() <= self.max => Some(bytes),
            LongLine::Cut => Some(&bytes[..self.max]),
            LongLine::Skip => None,
            LongLine::Fail => {
                let (name, number, max) = (self.name.display(), self.number, self.max);
                return Err(Error::msg(format!(
                    "{name}: line {number} is longer than {max} bytes"
                )));
            }
        };
        let text = text.map(|text| String::from_utf8_lossy(text).into_owned());
        self.number += 1;
        self.bytes.clear();
        Ok(text)
    }

    /// Whether there is a part of a line.
    pub(super) fn is_begun(&self) -> bool {
        !self.bytes.is_empty()
    }

    pub(super) fn error(&self, error: impl fmt::Display) -> Error {
        Error::msg(format!("{}: {error}", self.name.display()))
    }
}
