//! The file of `--replay` as lines with their numbers. It is read once for its mistakes, and once for each stage.
//! Bounds: the length of a line; the size of what can be read only once, which is held in memory; and the size that
//! a file has at first, so that what is appended while the program runs is not read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use comporta_model::error::{Error, Result};
use comporta_runtime::sources::LINE_MAX;

use crate::is_stdin;

/// Most bytes of a pipe: more belongs into a file.
const HELD_MAX: usize = 256 << 20;

/// Recorded events, which can be read more than once.
#[derive(Clone)]
pub(crate) struct Recorded {
    /// As messages call it.
    pub(crate) name: Arc<str>,
    text: Text,
}

#[derive(Clone)]
enum Text {
    /// A file, and how much of it is read.
    File(PathBuf, u64),
    Held(Arc<[u8]>),
}

impl Recorded {
    /// A file; a pipe or standard input (`-`), which is read to its end at once.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if is_stdin(path) {
            let name: Arc<str> = "standard input".into();
            let text = Text::Held(held(name.clone(), io::stdin().lock(), HELD_MAX)?);
            return Ok(Recorded { name, text });
        }
        let name: Arc<str> = path.display().to_string().into();
        let file = File::open(path).map_err(|error| named(&name, &error))?;
        let meta = file.metadata().map_err(|error| named(&name, &error))?;
        let text = match meta.len() {
            // A file of 0 bytes may be one of /proc, whose size is not known.
            len if meta.is_file() && len > 0 => Text::File(path.to_owned(), len),
            _ => Text::Held(held(name.clone(), BufReader::new(file), HELD_MAX)?),
        };
        Ok(Recorded { name, text })
    }

    /// Its lines, from the first. An error is the last item.
    pub(crate) fn lines(&self) -> Result<Lines<Box<dyn BufRead + Send>>> {
        let reader: Box<dyn BufRead + Send> = match &self.text {
            Text::Held(bytes) => Box::new(Cursor::new(bytes.clone())),
            Text::File(path, len) => {
                let file = File::open(path).map_err(|error| named(&self.name, &error))?;
                Box::new(BufReader::new(file.take(*len)))
            }
        };
        Ok(Lines::new(self.name.clone(), reader))
    }
}

fn named(name: &str, error: &io::Error) -> Error {
    Error::msg(format!("{name}: {error}"))
}

/// All lines of a reader, which cannot be read again.
fn held(name: Arc<str>, reader: impl BufRead, most: usize) -> Result<Arc<[u8]>> {
    let mut all = Vec::new();
    for line in Lines::new(name.clone(), reader) {
        all.extend(line?.bytes);
        all.push(b'\n');
        if all.len() > most {
            return Err(Error::msg(format!(
                "{name}: there are more than {} MiB, and it cannot be read twice: write it into a file",
                most >> 20
            )));
        }
    }
    Ok(all.into())
}

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    /// From 1.
    pub(crate) number: u64,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct Lines<R> {
    name: Arc<str>,
    reader: R,
    number: u64,
    /// There is no more, or no more can be read.
    over: bool,
}

impl<R: BufRead> Lines<R> {
    fn new(name: Arc<str>, reader: R) -> Self {
        Lines { name, reader, number: 0, over: false }
    }

    fn read(&mut self) -> Result<Option<Numbered>> {
        let mut bytes = Vec::new();
        // One byte more shows that it is too long, or is its end.
        let most = LINE_MAX as u64 + 1;
        let read = self.reader.by_ref().take(most).read_until(b'\n', &mut bytes);
        if read.map_err(|error| named(&self.name, &error))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        } else if bytes.len() > LINE_MAX {
            let (name, number) = (&self.name, self.number);
            let most = LINE_MAX >> 20;
            return Err(Error::msg(format!("{name}:{number}: the line has more than {most} MiB")));
        }
        Ok(Some(Numbered { number: self.number, bytes }))
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Numbered>;

    fn next(&mut self) -> Option<Result<Numbered>> {
        if self.over {
            return None;
        }
        let line = self.read().transpose();
        // What could not be read once is not tried again: it might fail for ever.
        self.over = !matches!(line, Some(Ok(_)));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(reader: impl BufRead) -> Vec<Result<Numbered>> {
        Lines::new("f".into(), reader).take(10).collect()
    }

    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("broken"))
        }
    }

    #[test]
    fn lines_have_numbers_and_the_last_needs_no_end() {
        let read: Vec<_> = lines(&b"a\n\nb"[..]).into_iter().map(|line| line.unwrap()).collect();
        let line = |number, text: &str| Numbered { number, bytes: text.into() };
        assert_eq!(read, [line(1, "a"), line(2, ""), line(3, "b")]);
    }

    #[test]
    fn an_error_is_told_once_and_is_the_end() {
        let read = lines(BufReader::new(Broken));
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].as_ref().unwrap_err().to_string(), "f: broken");
    }

    #[test]
    fn a_line_without_end_is_read_up_to_the_bound() {
        let read = lines(BufReader::new(io::repeat(b'x')));
        assert_eq!(read.len(), 1);
        let error = read[0].as_ref().unwrap_err().to_string();
        assert_eq!(error, "f:1: the line has more than 16 MiB");
        let longest = vec![b'x'; LINE_MAX];
        let read = lines(Cursor::new([&longest[..], b"\ny"].concat()));
        assert_eq!(read.into_iter().map(|line| line.unwrap().number).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn what_can_be_read_only_once_is_held_up_to_a_bound() {
        assert_eq!(*held("p".into(), &b"a\nb"[..], 4).unwrap(), *b"a\nb\n");
        let error = held("p".into(), &b"a\nb\nc\n"[..], 4).unwrap_err().to_string();
        assert!(error.starts_with("p: there are more than"), "{error}");
    }
}
