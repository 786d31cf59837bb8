//! Draws the picture in place, at the bottom of the terminal, below what the program prints.
//!
//! The lines of the picture are taken out of the part of the screen that scrolls (DECSTBM), and the
//! cursor stays where the program left it: whatever it prints scrolls above the picture, whole. A
//! frame is one write, which overwrites what is there, so nothing flickers; and everything of ours
//! lies below the cursor, so that one "erase below" removes it, also when the terminal has been
//! resized and what it shows has moved.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

use super::progress::Room;

/// Lines that are left to the program.
const KEEP: usize = 4;
/// Nothing is drawn in a terminal that is narrower or lower.
const WIDE_MIN: usize = 20;
const HIGH_MIN: usize = KEEP + 1;

/// Width and height of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) wide: usize,
    pub(super) high: usize,
}

/// Standard error, if it is a terminal that pictures can be drawn on.
pub(crate) struct Terminal {
    colour: bool,
    place: Place,
}

impl Terminal {
    /// What standard error is; nothing if no picture can be drawn on it.
    pub(crate) fn find() -> Option<Self> {
        let drawable = io::stderr().is_terminal() && !is_dumb() && size().is_some();
        drawable.then(|| Terminal { colour: colours(), place: Place::default() })
    }

    /// Draws what `picture` makes of the room there is, in place of what was drawn before.
    pub(crate) fn draw(&mut self, picture: impl FnOnce(Room) -> Vec<String>) {
        let Some(size) = size().filter(|_| in_foreground()) else {
            self.place = Place::default(); // the screen is another's now
            return;
        };
        let roomy = size.wide >= WIDE_MIN && size.high >= HIGH_MIN;
        let lines = if roomy {
            // The last column stays free: some terminals wrap as soon as it is written.
            let room = Room { wide: size.wide - 1, high: size.high - KEEP, colour: self.colour };
            picture(room)
        } else {
            Vec::new()
        };
        say(&self.place.frame(size, &lines));
    }

    /// Takes the picture away, and leaves the terminal as it was.
    pub(crate) fn clear(&mut self) {
        say(&self.place.clear());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Writes to standard error at once. If nobody can read it, there is nobody to tell.
pub(crate) fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Whether colours are welcome on standard error.
pub(crate) fn colours() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !refused && !is_dumb()
}

/// How wide a line on standard error may be.
pub(crate) fn wide() -> usize {
    size().filter(|_| io::stderr().is_terminal()).map_or(usize::MAX, |size| size.wide)
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

#[cfg(unix)]
fn size() -> Option<Size> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    let size = Size { wide: size.ws_col.into(), high: size.ws_row.into() };
    (size.wide > 0 && size.high > 0).then_some(size)
}

/// Whether the terminal is ours: a program sent to the background does not draw into its shell.
#[cfg(unix)]
fn in_foreground() -> bool {
    let owner = rustix::termios::tcgetpgrp(std::io::stderr());
    // Not the controlling terminal: nobody else's either.
    owner.map_or(true, |owner| owner == rustix::process::getpgrp())
}

#[cfg(not(unix))]
fn size() -> Option<Size> {
    None
}

#[cfg(not(unix))]
fn in_foreground() -> bool {
    true
}

/// What has been drawn, and where: everything here is only text.
#[derive(Default)]
struct Place {
    drawn: Option<(Size, usize)>,
}

impl Place {
    /// The text that shows these lines, at most `size.high - KEEP` of them.
    fn frame(&mut self, size: Size, lines: &[String]) -> String {
        let mut text = String::new();
        if self.drawn != Some((size, lines.len())) {
            text += &self.clear();
            if lines.is_empty() {
                return text;
            }
            self.drawn = Some((size, lines.len()));
            text += &make_room(size, lines.len());
        }
        // Save the cursor, no wrapping; write each line over what is there; put all back.
        text += "\x1b7\x1b[?7l";
        for (line, row) in lines.iter().zip(size.high - lines.len() + 1..) {
            let _ = write!(text, "\x1b[{row};1H{line}\x1b[K");
        }
        text += "\x1b[?7h\x1b8";
        text
    }

    /// The text that removes what was drawn.
    fn clear(&mut self) -> String {
        match self.drawn.take() {
            // Setting the part that scrolls moves the cursor.
            Some(_) => "\x1b7\x1b[r\x1b8\x1b[J".to_owned(),
            None => String::new(),
        }
    }
}

/// Moves what is on the screen up as far as needed, and lets only what is above scroll. Vertical
/// tabs go down and scroll as newlines do, but stay in their column.
fn make_room(size: Size, lines: usize) -> String {
    let down = "\x0b".repeat(lines);
    format!("{down}\x1b[{lines}A\x1b7\x1b[1;{}r\x1b8", size.high - lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { wide: 30, high: 8 };

    /// A terminal in which a program prints while pictures are drawn.
    struct Screen {
        of: vt100::Parser,
        place: Place,
        size: Size,
    }

    impl Screen {
        fn new() -> Self {
            let of = vt100::Parser::new(8, 30, 100);
            Screen { of, place: Place::default(), size: SIZE }
        }

        fn print(&mut self, text: &str) {
            self.of.process(text.replace('\n', "\r\n").as_bytes());
        }

        fn draw(&mut self, lines: &[&str]) {
            let lines: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
            let frame = self.place.frame(self.size, &lines);
            self.of.process(frame.as_bytes());
        }

        fn clear(&mut self) {
            let text = self.place.clear();
            self.of.process(text.as_bytes());
        }

        fn rows(&self) -> Vec<String> {
            let wide = u16::try_from(self.size.wide).unwrap();
            self.of.screen().rows(0, wide).map(|row| row.trim_end().to_owned()).collect()
        }
    }

    #[test]
    fn what_the_program_prints_stays_whole_above_the_picture() {
        let mut screen = Screen::new();
        screen.print("$ words\n");
        screen.draw(&["one", "two", "three"]);
        assert_eq!(screen.rows(), ["$ words", "", "", "", "", "one", "two", "three"]);
        for n in 1..=6 {
            screen.print(&format!("line {n}\n"));
        }
        screen.print("and a ha");
        screen.draw(&["ONE", "2", "three"]);
        screen.print("lf");
        assert_eq!(
            screen.rows(),
            ["line 3", "line 4", "line 5", "line 6", "and a half", "ONE", "2", "three"]
        );
        screen.clear();
        screen.print("\nend\n");
        assert_eq!(
            screen.rows(),
            ["line 3", "line 4", "line 5", "line 6", "and a half", "end", "", ""]
        );
        screen.print("1\n2\n3\n4");
        assert_eq!(screen.rows()[7], "4", "the whole screen scrolls again");
    }

    #[test]
    fn at_the_bottom_of_a_full_screen_room_is_made() {
        let mut screen = Screen::new();
        screen.print("a\nb\nc\nd\ne\nf\ng\nhalf");
        screen.draw(&["one", "two"]);
        assert_eq!(screen.rows(), ["c", "d", "e", "f", "g", "half", "one", "two"]);
        screen.print(" whole\nnext");
        assert_eq!(screen.rows(), ["d", "e", "f", "g", "half whole", "next", "one", "two"]);
    }

    #[test]
    fn a_resized_terminal_has_one_picture_at_its_new_bottom() {
        let mut screen = Screen::new();
        screen.print("a\nb\n");
        screen.draw(&["one", "two"]);
        for (high, wide) in [(12, 40), (7, 24), (9, 30)] {
            screen.of.screen_mut().set_size(high, wide);
            screen.size = Size { wide: wide.into(), high: high.into() };
            screen.draw(&["one", "two"]);
            let rows = screen.rows();
            assert_eq!(rows[..2], ["a", "b"]);
            assert_eq!(rows[usize::from(high) - 2..], ["one", "two"]);
            assert_eq!(rows.iter().filter(|row| !row.is_empty()).count(), 4, "{rows:?}");
        }
    }

    #[test]
    fn the_same_picture_again_clears_nothing_and_cannot_wrap() {
        let mut place = Place::default();
        let lines = ["one".to_owned()];
        place.frame(SIZE, &lines);
        let frame = place.frame(SIZE, &lines);
        assert_eq!(frame, "\x1b7\x1b[?7l\x1b[8;1Hone\x1b[K\x1b[?7h\x1b8");
        assert_eq!(place.frame(SIZE, &[]), "\x1b7\x1b[r\x1b8\x1b[J");
        assert_eq!(place.clear(), "", "what is not there need not be removed");
    }
}
