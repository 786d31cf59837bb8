//! The picture in a real pseudo-terminal, as a terminal would show it.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Stdio};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::started::{command, signal};

/// A terminal in which the program runs.
struct Terminal {
    child: Child,
    keys: File,
    screen: vt100::Parser,
    wide: u16,
}

impl Terminal {
    fn start(args: &[&str], high: u16, wide: u16) -> Self {
        Self::start_in(("TERM", "xterm"), args, high, wide)
    }

    fn start_in(env: (&str, &str), args: &[&str], high: u16, wide: u16) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let size = Winsize { ws_row: high, ws_col: wide, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&keys, size).unwrap();
        let path = ptsname(&keys, Vec::new()).unwrap();
        let side = || {
            let flags = OFlags::RDWR | OFlags::NOCTTY;
            Stdio::from(open(path.as_c_str(), flags, Mode::empty()).unwrap())
        };
        let mut command = command(args);
        command.env("TERM", "xterm").env_remove("NO_COLOR").env(env.0, env.1);
        let child = command.stdout(side()).stderr(side()).spawn().unwrap();
        Terminal { child, keys: keys.into(), screen: vt100::Parser::new(high, wide, 0), wide }
    }

    fn rows(&self) -> Vec<String> {
        let rows = self.screen.screen().rows(0, self.wide);
        rows.map(|row| row.trim_end().to_owned()).collect()
    }

    /// Reads what the program writes; returns whether there was any.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        // When the last who could write has gone, Linux says so with an error.
        match self.keys.read(&mut bytes) {
            Ok(0) | Err(_) => false,
            Ok(n) => {
                self.screen.process(&bytes[..n]);
                true
            }
        }
    }

    /// Reads until the screen shows what is wanted.
    fn until(&mut self, shows: impl Fn(&[String]) -> bool) -> Vec<String> {
        loop {
            let rows = self.rows();
            if shows(&rows) {
                return rows;
            }
            assert!(self.read(), "it ended before: {rows:#?}");
        }
    }

    fn resize(&mut self, high: u16, wide: u16) {
        let size = Winsize { ws_row: high, ws_col: wide, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keys, size).unwrap();
        self.screen.screen_mut().set_size(high, wide);
        self.wide = wide;
    }

    /// Ends the program and reads the rest.
    fn end(mut self) -> (Option<i32>, Vec<String>) {
        signal(&self.child, Signal::TERM);
        while self.read() {}
        (self.child.wait().unwrap().code(), self.rows())
    }
}

fn pictures(rows: &[String]) -> usize {
    rows.iter().filter(|row| row.starts_with("stage ")).count()
}

#[test]
fn the_picture_stands_below_what_the_program_prints_and_is_gone_at_the_end() {
    for wide in [40, 80, 200] {
        let mut terminal = Terminal::start(&["flow"], 24, wide);
        let rows = terminal
            .until(|rows| rows[0] == "flows" && rows.last().is_some_and(|last| !last.is_empty()));
        assert!(rows[18].starts_with("shown  "), "{rows:#?}");
        assert!(rows[19].starts_with("stage    events/s  queue"), "{rows:#?}");
        assert!(["numbers", "pass", "show"].iter().zip(&rows[20..]).all(|(n, r)| r.starts_with(n)));
        let (code, rows) = terminal.end();
        assert_eq!(code, Some(0));
        assert_eq!(rows[0], "flows");
        assert!(rows[1].starts_with("shown: asked by SIGTERM: draining"), "{rows:#?}");
        assert!(rows.iter().any(|row| row.starts_with("shown: drained on SIGTERM")), "{rows:#?}");
        assert_eq!(pictures(&rows), 1, "only the summary has a table: {rows:#?}");
        assert!(!rows.iter().any(|row| row.contains("events/s")), "{rows:#?}");
    }
}

#[test]
fn a_resized_terminal_shows_one_picture_at_its_bottom() {
    let mut terminal = Terminal::start(&["flow"], 24, 80);
    let drawn = |rows: &[String]| rows.last().is_some_and(|last| last.contains("queue"));
    terminal.until(drawn);
    for (high, wide) in [(40, 120), (12, 40)] {
        terminal.resize(high, wide);
        let at = usize::from(high) - 6;
        let rows = terminal.until(|rows| drawn(rows) && rows[at].starts_with("shown  "));
        assert_eq!(pictures(&rows), 1, "{rows:#?}");
    }
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn colours_are_used_unless_they_are_refused() {
    for (env, bold) in [(("NO_COLOR", "1"), false), (("NO_COLOR", ""), true)] {
        let mut terminal = Terminal::start_in(env, &["flow"], 24, 80);
        terminal.until(|rows| rows[18].starts_with("shown  "));
        assert_eq!(terminal.screen.screen().cell(18, 0).unwrap().bold(), bold);
        assert_eq!(terminal.end().0, Some(0));
    }
}

#[test]
fn nothing_is_drawn_where_it_is_not_wanted_or_cannot_be() {
    let xterm = ("TERM", "xterm");
    let plain: &[&str] = &[];
    for (env, options) in [
        (xterm, ["--never"].as_slice()),
        (xterm, &["--quiet"]),
        (xterm, &["--json"]),
        (("TERM", "dumb"), plain),
    ] {
        // Long enough for several pictures.
        let args = [["flow", "--for", "500"].as_slice(), options].concat();
        let mut terminal = Terminal::start_in(env, &args, 24, 80);
        while terminal.read() {
            let rows = terminal.rows();
            assert!(!rows.iter().any(|row| row.contains("events/s")), "{rows:#?}");
        }
        assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    }
}
