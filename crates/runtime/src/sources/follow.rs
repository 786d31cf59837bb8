//! Following a file that grows, as `tail -F` does: at its end the source waits a while and looks again.
//! If the file was replaced (another file has its name), it is read to its end first, and then the new one
//! from its beginning. A truncated file is read from its beginning again. If there is no file, the source
//! waits for one.
//! Invariant: a line is sent once its end has been written, or its file has been replaced.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use comporta_model::error::Result;
use comporta_model::port::Out;
use comporta_model::source::{Demand, Pull, Source};

use super::lines::{Line, LongLine};

/// How long it waits at the end of the file before it looks again.
const LOOK: Duration = Duration::from_millis(200);
/// How much is read at once.
const READ: usize = 1 << 16;

/// Returns a source of the lines of a growing file, from its beginning. It ends only with the program: by a
/// drain, a stop or `quit`.
///
/// ```no_run
/// # mod comporta { pub use comporta_runtime::{App, sources}; }
/// use comporta::{App, sources};
///
/// let app = App::new("watch");
/// let lines = app.source("log", || sources::follow("/var/log/access.log").from_end());
/// app.connect(lines, app.sink("show", |line: String| println!("{line}")));
/// ```
pub fn follow(path: impl AsRef<Path>) -> Follow {
    let path = path.as_ref().to_owned();
    Follow {
        line: Line::new(path.clone()),
        path,
        open: None,
        bytes: Vec::new(),
        used: 0,
        from_end: false,
        every: LOOK,
    }
}

/// See [`follow`].
#[must_use = "a source gives nothing until a program pulls it: `app.source(name, || source)`"]
pub struct Follow {
    path: PathBuf,
    open: Option<Open>,
    line: Line,
    /// What was read; before `used` it has been split into lines.
    bytes: Vec<u8>,
    used: usize,
    from_end: bool,
    every: Duration,
}

/// The file that is read.
struct Open {
    file: File,
    /// How far it has been read.
    at: u64,
    identity: Identity,
    /// Another has its name: it is read to its end, and let go.
    replaced: bool,
}

impl Follow {
    /// Starts at the end of the file, if it exists: lines that are already in it are skipped.
    pub fn from_end(mut self) -> Self {
        self.from_end = true;
        self
    }

    /// Sets how long the source waits at the end of the file before it looks again. The default is 200 ms.
    pub fn look_every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Sets the most bytes of a line, without its end, and what happens to a longer one.
    pub fn max_len(mut self, bytes: usize, long: LongLine) -> Self {
        self.line.set_max(bytes, long);
        self
    }

    /// Reads more. Returns `false` if there is nothing more now.
    fn read(&mut self) -> Result<bool> {
        let from_end = std::mem::take(&mut self.from_end); // only of the first file
        let open = match &mut self.open {
            Some(open) => open,
            none => match Open::new(&self.path, from_end) {
                Ok(open) => none.insert(open),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(self.line.error(error)),
            },
        };
        self.bytes.resize(READ, 0);
        let read = loop {
            match open.file.read(&mut self.bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.map_err(|error| self.line.error(error))?,
            }
        };
        self.bytes.truncate(read);
        (self.used, open.at) = (0, open.at + read as u64);
        Ok(read > 0)
    }

    /// At the end of what there is: returns whether there is something to read after all. A file that
    /// was replaced is read once more, since its writer may have added something after the last read.
    fn turned_over(&mut self) -> Result<bool> {
        let Some(open) = &mut self.open else { return Ok(false) };
        if open.replaced {
            self.open = None;
            return Ok(true);
        }
        let named = match std::fs::metadata(&self.path) {
            Ok(named) => named,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false), // renamed, so far
            Err(error) => return Err(self.line.error(error)),
        };
        if Identity::of(&named) != open.identity {
            open.replaced = true;
            return Ok(true);
        }
        if named.len() < open.at {
            open.file.seek(SeekFrom::Start(0)).map_err(|error| self.line.error(error))?;
            open.at = 0;
            return Ok(true);
        }
        Ok(false)
    }
}

impl Source for Follow {
    type Item = String;

    fn pull(&mut self, out: &mut Out<String>, demand: Demand) -> Result<Pull> {
        let mut sent = 0;
        while sent < demand.events {
            if self.used == self.bytes.len() {
                if self.read()? {
                    continue;
                }
                if !self.turned_over()? {
                    return Ok(Pull::After(self.every));
                }
                let goes_on = self.open.as_ref().is_some_and(|open| open.replaced);
                if !goes_on
                    && self.line.is_begun()
                    && let Some(text) = self.line.finish()?
                {
                    out.send(text);
                    sent += 1;
                }
                continue;
            }
            let (used, text) = self.line.take(&self.bytes[self.used..])?;
            self.used += used;
            if let Some(text) = text {
                out.send(text);
                sent += 1;
            }
        }
        Ok(Pull::More)
    }
}

impl Open {
    fn new(path: &Path, from_end: bool) -> std::io::Result<Self> {
        let mut file = File::open(path)?;
        let identity = Identity::of(&file.metadata()?);
        let at = if from_end { file.seek(SeekFrom::End(0))? } else { 0 };
        Ok(Open { file, at, identity, replaced: false })
    }
}

/// What tells a file from another of the same name.
#[derive(PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    #[cfg(unix)]
    fn of(file: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Identity(file.dev(), file.ino())
    }

    /// When it was made, where the system has no number for it.
    #[cfg(not(unix))]
    fn of(file: &Metadata) -> Self {
        let since = |time: std::time::SystemTime| time.duration_since(std::time::UNIX_EPOCH).ok();
        let made = file.created().ok().and_then(since).unwrap_or_default();
        Identity(made.as_secs(), u64::from(made.subsec_nanos()))
    }
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow").field("path", &self.line.name()).finish_non_exhaustive()
    }
}
