//! What is found, for people: a table that is drawn anew where it stands, if standard output is a terminal; a line for
//! each window if not. If asked to, it then compares all of it with what one plain loop finds.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use comporta::{Cx, Error, Ev, Result, Stage, Time};

use crate::generate::item;
use crate::plain::{self, ByEnd};
use crate::program::{Hottest, Settings, TOP, Top};

/// Prints the hottest auctions of each window.
#[derive(Clone, Debug)]
pub struct Show {
    verify: Option<Settings>,
    table: bool,
    drawn: bool,
    shown: ByEnd,
}

impl Show {
    /// With what to compare, if it is to; and whether a table can be drawn.
    #[must_use]
    pub fn new(verify: Option<Settings>, table: bool) -> Self {
        Show { verify, table, drawn: false, shown: ByEnd::new() }
    }
}

impl Stage for Show {
    type In = Hottest;
    type Ports = ();
    const STATEFUL: bool = true;

    fn handle(&mut self, hottest: Ev<'_, Self::In>, (): &mut (), _: &Cx) -> Result {
        let (end, top) = hottest.take().value;
        let text = if self.table { table(end, &top, self.drawn) } else { line(end, &top) };
        io::stdout().lock().write_all(text.as_bytes())?;
        self.drawn = true;
        if self.verify.is_some() {
            self.shown.insert(end, top);
        }
        Ok(())
    }

    fn finish(&mut self, (): &mut (), _: &Cx) -> Result {
        let Some(settings) = &self.verify else { return Ok(()) };
        let plain = plain::hottest(settings);
        let wrong = plain.iter().find(|(end, top)| self.shown.get(end) != Some(*top));
        if let Some((end, top)) = wrong {
            let shown = self.shown.get(end);
            let end = seconds(*end);
            return Err(Error::msg(format!(
                "the window to {end} s: {shown:?} was shown, and not {top:?}"
            )));
        }
        if plain.len() != self.shown.len() {
            return Err(Error::msg(format!(
                "{} windows were shown, and not {}",
                self.shown.len(),
                plain.len()
            )));
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "verified: a plain loop finds the same in all {} windows", plain.len())?;
        Ok(())
    }
}

fn seconds(time: Time) -> u64 {
    time.as_millis() / 1_000
}

/// A window in a line.
fn line(end: Time, Top(top): &Top) -> String {
    let mut text = format!("{:>5} s ", seconds(end));
    for (bids, auction) in top {
        let _ = write!(text, "  {auction} {}: {bids}", item(*auction));
    }
    text.push('\n');
    text
}

/// So wide is the bar of the hottest auction.
const WIDE: u64 = 40;

/// A window in a table, which takes the place of the one before.
fn table(end: Time, Top(top): &Top, again: bool) -> String {
    let mut text = String::new();
    if again {
        let _ = write!(text, "\x1b[{}A", TOP + 2);
    }
    let _ = writeln!(text, "\x1b[2K\x1b[1mhottest auctions, {} s\x1b[0m", seconds(end));
    let _ = writeln!(text, "\x1b[2K auction  item               bids");
    let most = top.first().map_or(1, |(bids, _)| *bids).max(1);
    for at in 0..TOP {
        text.push_str("\x1b[2K");
        if let Some((bids, auction)) = top.get(at) {
            let bar = "█".repeat(usize::try_from((bids * WIDE).div_ceil(most)).unwrap_or(0));
            let _ = write!(
                text,
                "{auction:>8}  {:<16} {bids:>6}  \x1b[33m{bar}\x1b[0m",
                item(*auction)
            );
        }
        text.push('\n');
    }
    text
}
