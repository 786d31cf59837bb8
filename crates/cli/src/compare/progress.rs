//! What is shown while runs go on: which it is, how many there are, how long it will take. Pure.

use std::time::Duration;

use anstyle::{AnsiColor, Style};

use super::runs::{Combination, Load};
use crate::show::progress::{Room, bar};
use crate::show::table::{clip, paint, width};
use crate::show::units::{clock, span};

/// A bar is this wide where there is room.
const BAR: usize = 40;
/// After so long, a run that has no time of its own is taken for one that never ends.
const ENDLESS: Duration = Duration::from_secs(60);

/// A moment of a comparison.
pub(super) struct Moment<'a> {
    pub(super) app: &'a str,
    pub(super) what: &'a Combination,
    /// Nothing while the machine is warmed up.
    pub(super) round: Option<usize>,
    pub(super) rounds: usize,
    pub(super) run: usize,
    pub(super) runs: usize,
    pub(super) running: Duration,
    pub(super) left: Option<Duration>,
    /// Runs have no `--for`.
    pub(super) endless: bool,
}

/// How long it will still take: as long as the same combinations took before, or as runs took at
/// all, or as they are given.
pub(super) fn left(
    before: &[(usize, Duration)],
    after: &[usize],
    running: Duration,
    limit: Option<Duration>,
) -> Option<Duration> {
    let mean = |of: Vec<Duration>| {
        let n = u32::try_from(of.len()).ok().filter(|n| *n > 0)?;
        Some(of.iter().sum::<Duration>() / n)
    };
    let any = mean(before.iter().map(|(_, took)| *took).collect()).or(limit)?;
    let each = |which: &usize| {
        let same = before.iter().filter(|(other, _)| other == which);
        mean(same.map(|(_, took)| *took).collect()).unwrap_or(any)
    };
    let now = after.first().map(each)?.saturating_sub(running);
    Some(now + after[1..].iter().map(each).sum::<Duration>())
}

/// In two lines: what is run, and how far it is.
pub(super) fn picture(of: &Moment<'_>, room: Room) -> Vec<String> {
    let app = clip(of.app, room.wide / 3);
    let mut text = app.clone();
    for part in [what(of), clock(of.running)] {
        if width(&text) + 2 + width(&part) <= room.wide {
            text = format!("{text}  {part}");
        }
    }
    let rest = text.split_off(app.len());
    let head = format!("{}{rest}", paint(&app, room.style(Style::new().bold())));
    let share = (of.run - 1) as f64 / of.runs as f64;
    let wide = BAR.min(room.wide / 2);
    let drawn = paint(&bar(share, wide), room.style(AnsiColor::Green.on_default()));
    let tail = clip(&format!("  {}", how_far(of)), room.wide - wide);
    let mut lines = vec![head, format!("{drawn}{tail}")];
    if of.endless && of.running > ENDLESS {
        let hint = "if the program never ends by itself, give each run a time: `--for 10s`";
        lines.push(clip(hint, room.wide));
    }
    lines.truncate(room.high);
    lines
}

/// In one line, for where lines stay.
pub(super) fn line(of: &Moment<'_>) -> String {
    format!("{}: {}: {}", of.app, what(of), how_far(of))
}

fn what(of: &Moment<'_>) -> String {
    let load = match of.what.load {
        Load::Max => String::new(),
        load => format!(", {}", load.told()),
    };
    match of.round {
        None => format!("warming up with {}{load}", of.what.name()),
        Some(round) => format!("round {round} of {}: {}{load}", of.rounds, of.what.name()),
    }
}

fn how_far(of: &Moment<'_>) -> String {
    let left = of.left.map(|left| format!(", {} left", span(whole(left)))).unwrap_or_default();
    format!("run {} of {}{left}", of.run, of.runs)
}

/// Whole seconds, so that it does not flicker.
fn whole(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn what_is_left_goes_by_what_the_same_took_before() {
        assert_eq!(left(&[], &[0, 1], s(0), None), None, "nobody knows");
        assert_eq!(left(&[], &[0, 1], s(3), Some(s(10))), Some(s(17)));
        assert_eq!(left(&[(0, s(4))], &[1, 0], s(1), None), Some(s(7)));
        let before = [(0, s(4)), (1, s(10)), (0, s(6))];
        assert_eq!(left(&before, &[0, 1, 1], s(2), Some(s(99))), Some(s(23)));
        assert_eq!(left(&before, &[0], s(60), None), Some(s(0)), "it takes longer than before");
    }

    fn moment<'a>(what: &'a Combination, running: Duration) -> Moment<'a> {
        Moment {
            app: "words",
            what,
            round: Some(2),
            rounds: 6,
            run: 10,
            runs: 19,
            running,
            left: Some(Duration::from_millis(80_300)),
            endless: true,
        }
    }

    #[test]
    fn the_picture_says_what_runs_and_how_long_it_will_take() {
        let what = Combination {
            policy: "srpt".to_owned(),
            threads: 2,
            threads_said: true,
            load: Load::Rate(5e3),
        };
        let room = Room { wide: 90, high: 9, colour: false };
        assert_eq!(
            picture(&moment(&what, s(1)), room),
            [
                "words  round 2 of 6: srpt, 2 threads, at 5 k/s  1.0 s",
                "███████████████████·····················  run 10 of 19, 1 min 21 s left",
            ]
        );
        let long = picture(&moment(&what, s(61)), room);
        assert!(long[2].contains("`--for 10s`"), "{long:?}");
        let first = Moment { round: None, left: None, ..moment(&what, s(1)) };
        assert_eq!(line(&first), "words: warming up with srpt, 2 threads, at 5 k/s: run 10 of 19");
        for wide in 20..90 {
            let lines = picture(&moment(&what, s(70)), Room { wide, ..room });
            assert!(lines.iter().all(|line| width(line) <= wide), "{wide}: {lines:#?}");
        }
    }
}
