//! How far a run has come, on a terminal's standard error: nothing is written where nobody looks.

use std::io::{IsTerminal, Write};

use comporta_sim::Progress;

const WIDE: usize = 30;

pub(super) struct Bar {
    shows: bool,
    /// What was shown last, in hundredths.
    last: Option<u32>,
}

impl Bar {
    pub(super) fn new(quiet: bool) -> Self {
        Bar { shows: !quiet && std::io::stderr().is_terminal(), last: None }
    }

    pub(super) fn show(&mut self, progress: Progress) {
        let hundredths = (100.0 * progress.second / progress.of) as u32;
        if self.shows && self.last != Some(hundredths) {
            self.last = Some(hundredths);
            let _ = write!(std::io::stderr(), "\r{}", line(progress));
        }
    }

    pub(super) fn clear(&self) {
        if self.last.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(progress: Progress) -> String {
    let share = (progress.second / progress.of).clamp(0.0, 1.0);
    let full = (share * WIDE as f64) as usize;
    let (second, of, events) = (progress.second, progress.of, progress.events as f64 / 1e6);
    let (done, left) = ("#".repeat(full), ".".repeat(WIDE - full));
    format!("[{done}{left}] {second:.0} of {of:.0} s, {events:.1} million events")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_at_the_end_and_never_longer() {
        let at = |second| line(Progress { second, of: 10.0, events: 2_000_000 });
        assert!(at(5.0).starts_with(&format!("[{}{}]", "#".repeat(15), ".".repeat(15))));
        assert!(at(10.0).starts_with(&format!("[{}]", "#".repeat(30))));
        assert!(at(12.0).contains(&format!("[{}]", "#".repeat(30))));
    }
}
