//! What is said on a connection: frames, a line of JSON each. Both ends may call; a reply names the
//! call it answers.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read};
use thiserror::Error;

/// The longest frame; a longer one is an error, and ends the connection.
pub const FRAME_MAX: usize = 64 * 1024;
/// Calls of one connection that are served at once; another is refused.
pub const CALLS_MAX: usize = 16;
/// Frames of one connection that wait to be written.
pub const OUTGOING_MAX: usize = 4;

/// What one end may ask of the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// Asked of the shop: what all this costs.
    Total {
        /// The basket.
        items: Vec<String>,
    },
    /// Asked of a client: what this costs.
    Price {
        /// One of them.
        item: String,
    },
}

/// What a call comes to, or why it was refused.
pub type Reply = Result<u64, String>;

/// What is sent at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// A call, numbered by its caller.
    Call {
        /// Its number.
        id: u32,
        /// What is asked.
        call: Call,
    },
    /// The answer to a call of the other end.
    Reply {
        /// The number of that call.
        id: u32,
        /// The answer.
        reply: Reply,
    },
}

/// Why a call has no value.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CallError {
    /// The other end refused it.
    #[error("refused: {0}")]
    Refused(String),
    /// The other end is gone.
    #[error("the other end is gone")]
    Gone,
}

/// A frame as a line.
#[must_use]
pub fn encode(frame: &Frame) -> Vec<u8> {
    let mut line =
        serde_json::to_vec(frame).expect("a frame has no maps with keys that are no text");
    line.push(b'\n');
    line
}

/// A line as a frame.
///
/// # Errors
/// If it is none.
pub fn decode(line: &[u8]) -> io::Result<Frame> {
    serde_json::from_slice(line).map_err(io::Error::from)
}

/// Reads the next frame; `None` at the end.
///
/// # Errors
/// If it is longer than a frame may be, cut off, or no frame at all.
pub fn read(from: &mut impl BufRead) -> io::Result<Option<Frame>> {
    let mut line = Vec::new();
    from.by_ref().take(FRAME_MAX as u64).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => decode(&line).map(Some),
        Some(_) if line.len() + 1 == FRAME_MAX => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the frame is too long"))
        }
        Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_wire_and_rubbish_is_refused() {
        let frames = [
            Frame::Call { id: 1, call: Call::Total { items: vec!["a\nb".to_owned()] } },
            Frame::Reply { id: 2, reply: Err("no \"such\" item".to_owned()) },
        ];
        let wire: Vec<u8> = frames.iter().flat_map(encode).collect();
        let mut from = wire.as_slice();
        for frame in frames {
            assert_eq!(read(&mut from).unwrap(), Some(frame));
        }
        assert_eq!(read(&mut from).unwrap(), None);
        assert!(read(&mut &b"rubbish\n"[..]).is_err());
        assert_eq!(read(&mut &wire[..9]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let endless = vec![b'x'; 2 * FRAME_MAX];
        assert_eq!(read(&mut &endless[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
