//! The picture of a moment, as lines: how long, how fast, how full, and one sentence that names the
//! fullest queue. It has the same number of lines for the same room, so that nothing jumps.

use std::time::Duration;

use anstyle::{AnsiColor, Style};
use comporta_runtime::StageSnapshot;

use super::pace::{Pace, Shape, fill, is_nearly_full, sheds};
use super::table::{Cell, Column, clip, paint, table, width};
use super::units::{amount, clock, events, thousands};

/// The headline, the heads of the table and the sentence.
const AROUND: usize = 3;
/// A bar is this wide where there is room.
const BAR: usize = 12;
const BAR_NARROW: usize = 6;
/// Below this width, the narrow one.
const NARROW: usize = 60;

/// How much room there is, and whether colours may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) wide: usize,
    pub(crate) high: usize,
    pub(crate) colour: bool,
}

/// What the run is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It runs; with `--for`, for this much longer.
    Running(Option<Duration>),
    /// It drains, and has this much time left.
    Draining(Duration),
}

/// The picture: at most `room.high` lines, none wider than `room.wide`.
pub(super) fn picture(pace: &Pace, shape: &Shape, phase: Phase, room: Room) -> Vec<String> {
    let stages = room.high.saturating_sub(AROUND);
    if stages == 0 {
        return vec![headline(pace, shape, phase, room)];
    }
    let mut lines = vec![headline(pace, shape, phase, room)];
    let shown = chosen(pace, shape, stages);
    let style = room.style(Style::new().dimmed());
    let rows: Vec<_> = shown.iter().map(|at| row(pace, shape, *at, room)).collect();
    lines.extend(table(&columns(pace, room), &rows, style, room.wide));
    let hidden = pace.now().stages.len() - shown.len();
    lines.push(paint(&sentence(pace, shape, hidden, room.wide), room.style(Style::new().bold())));
    lines
}

/// The picture in one line, for where lines stay.
pub(super) fn line(pace: &Pace, shape: &Shape, phase: Phase) -> String {
    let room = Room { wide: usize::MAX, high: 1, colour: false };
    format!("{}; {}", headline(pace, shape, phase, room), sentence(pace, shape, 0, usize::MAX))
}

impl Room {
    pub(crate) fn style(self, style: Style) -> Style {
        if self.colour { style } else { Style::new() }
    }
}

fn headline(pace: &Pace, shape: &Shape, phase: Phase, room: Room) -> String {
    let now = pace.now();
    let held: usize = now.stages.iter().map(held).sum();
    let inside = match phase {
        Phase::Running(_) => format!("{} inside", thousands(held as u64)),
        Phase::Draining(_) => format!("{} to go", events(held as u64)),
    };
    let time = match phase {
        Phase::Running(None) => clock(now.elapsed),
        Phase::Running(Some(left)) => format!("{}, {} left", clock(now.elapsed), clock(left)),
        Phase::Draining(left) => format!("draining, {} left", clock(left)),
    };
    let into = format!("in {}/s", amount(pace.rate(|snapshot| shape.entered(snapshot))));
    let out = format!("out {}/s", amount(pace.rate(|snapshot| shape.left(snapshot))));
    let app = clip(&now.app, room.wide / 3);
    // What is told first is what is kept in a narrow place.
    let mut text = app.clone();
    for part in [time, into, out, inside] {
        if width(&text).saturating_add(2 + width(&part)) <= room.wide {
            text = format!("{text}  {part}");
        }
    }
    let rest = text.split_off(app.len());
    format!("{}{rest}", paint(&app, room.style(Style::new().bold())))
}

fn columns(pace: &Pace, room: Room) -> [Column; 6] {
    let stages = &pace.now().stages;
    let widest = stages.iter().map(|s| 2 * width(&thousands(s.capacity as u64)) + 1).max();
    let bar = if room.wide < NARROW { BAR_NARROW } else { BAR };
    let column = |head, right, least, rank| Column { head, right, least, rank };
    [
        column("stage", false, 0, 0),
        column("events/s", true, 8, 1),
        column("queue", false, bar, 2),
        column("", true, widest.unwrap_or(0), 4),
        column("busy", true, 0, 5),
        column("", false, 0, 3),
    ]
}

fn row(pace: &Pace, shape: &Shape, at: usize, room: Room) -> Vec<Cell> {
    let stage = &pace.now().stages[at];
    let ended = room.style(if stage.ended { Style::new().dimmed() } else { Style::new() });
    let rate = amount(pace.stage_rate(shape, at));
    let busy = pace.busy(at);
    let (bar, queue) = match stage.capacity {
        0 => (Cell::default(), Cell::default()),
        capacity => {
            let full = fill(stage);
            let colour = if full >= 0.8 { AnsiColor::Yellow } else { AnsiColor::Green };
            let wide = if room.wide < NARROW { BAR_NARROW } else { BAR };
            let text = format!("{}/{}", thousands(stage.queued as u64), thousands(capacity as u64));
            (Cell::styled(bar(full, wide), room.style(colour.on_default())), text.into())
        }
    };
    let busy = match stage.instances {
        0 => String::new(),
        n => format!("{busy}/{n}"),
    };
    vec![
        Cell::styled(stage.name.clone(), ended),
        rate.into(),
        bar,
        queue,
        busy.into(),
        trouble(stage, room),
    ]
}

fn trouble(stage: &StageSnapshot, room: Room) -> Cell {
    let counts = &stage.counts;
    let shed = counts.shed_on_entry() + counts.shed_later();
    let told = [(counts.failed, "failed"), (shed, "shed")];
    let told: Vec<_> = told.iter().filter(|(n, _)| *n > 0).collect();
    let text = told.iter().map(|(n, what)| format!("{} {what}", thousands(*n)));
    Cell::styled(text.collect::<Vec<_>>().join(", "), room.style(AnsiColor::Red.on_default()))
}

/// A bar so full, with a track so that its end can be seen.
pub(crate) fn bar(full: f64, wide: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (full.clamp(0.0, 1.0) * (wide * 8) as f64).round() as usize;
    // Something is not nothing.
    let eighths = if full > 0.0 { eighths.max(1) } else { 0 };
    let filled = format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8]);
    let rest = wide - width(&filled);
    format!("{filled}{}", "·".repeat(rest))
}

fn held(stage: &StageSnapshot) -> usize {
    stage.queued + stage.in_flight + stage.outboxed
}

/// All stages, or the busiest if there is no room for all; in the order declared, which is steady.
fn chosen(pace: &Pace, shape: &Shape, room: usize) -> Vec<usize> {
    let stages = &pace.now().stages;
    let mut chosen: Vec<usize> = (0..stages.len()).collect();
    if stages.len() > room {
        let named = pace.bottleneck(shape).or_else(|| pace.fullest());
        let rates: Vec<f64> = chosen.iter().map(|at| pace.stage_rate(shape, *at)).collect();
        chosen.sort_by(|a, b| {
            let first = |at: &usize| named == Some(*at);
            first(b).cmp(&first(a)).then(rates[*b].total_cmp(&rates[*a]))
        });
        chosen.truncate(room);
        chosen.sort_unstable();
    }
    chosen
}

/// Where it jams, as fully as there is room to say it.
fn sentence(pace: &Pace, shape: &Shape, hidden: usize, room: usize) -> String {
    let now = pace.now();
    let more = match hidden {
        0 => String::new(),
        1 => " (1 stage not shown)".to_owned(),
        n => format!(" ({n} stages not shown)"),
    };
    let ways = if let Some(at) = pace.bottleneck(shape) {
        let stage = &now.stages[at];
        let name = &stage.name;
        let after = if shape.is_last(at) { "" } else { ", what it sends is taken at once" };
        let busy = match (stage.instances, stage.idle) {
            // Nearly all wait for something else: more of them in flight would wait side by side.
            (n, 0) if stage.waiting * 10 >= n * 9 => {
                ", too few in flight for its waiting (`instances`)"
            }
            _ if stage.waiting * 2 > stage.in_flight => ", it waits for its service",
            (1, 0) => ", its one instance is busy",
            (_, 0) => ", all its instances are busy",
            _ => "",
        };
        let why = match stage {
            _ if stage.queued >= stage.capacity => "its queue is full",
            _ if stage.outboxed > 0 => "its senders wait for room",
            _ => "its queue is nearly full",
        };
        let full = format!("`{name}` is the bottleneck: {why}");
        vec![
            format!("{full}{after}{busy}"),
            format!("{full}{after}"),
            full,
            format!("`{name}` is the bottleneck"),
        ]
    } else if let Some(at) = pace.fullest() {
        let stage = &now.stages[at];
        let percent = (fill(stage) * 100.0).round();
        let sheds = match sheds(stage) {
            true => ", and it sheds",
            false if is_nearly_full(stage) && pace.busy(at) == 0 => ", and it waits for a thread",
            false => "",
        };
        vec![
            format!("the fullest queue is that of `{}`: {percent} %{sheds}", stage.name),
            format!("fullest queue: `{}`, {percent} %", stage.name),
            format!("fullest: `{}`, {percent} %", stage.name),
        ]
    } else {
        vec!["all queues are empty".to_owned()]
    };
    let with_more = format!("{}{more}", ways[0]);
    if width(&with_more) <= room {
        return with_more;
    }
    let fits = ways.iter().find(|way| width(way) <= room);
    fits.cloned().unwrap_or_else(|| clip(&ways[ways.len() - 1], room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::samples;

    fn pace() -> (Shape, Pace) {
        let (shape, first) = samples::pipeline();
        let mut pace = Pace::from(samples::queued(&first, &[0, 95, 3]));
        pace.see(samples::queued(
            &samples::at(&first, 2_000, &[250_000, 248_000, 2_480]),
            &[0, 98, 4],
        ));
        (shape, pace)
    }

    fn plain(wide: usize, high: usize) -> Vec<String> {
        let (shape, pace) = pace();
        picture(&pace, &shape, Phase::Running(None), Room { wide, high, colour: false })
    }

    #[test]
    fn the_bottleneck_of_handlers_that_wait_is_what_they_wait_for() {
        let (shape, first) = samples::pipeline();
        let told = |instances: usize, in_flight: usize, waiting: usize| {
            let mut snapshot = samples::queued(&first, &[0, 100, 3]);
            let work = &mut snapshot.stages[1];
            (work.instances, work.idle) = (instances, instances - in_flight);
            (work.in_flight, work.waiting) = (in_flight, waiting);
            sentence(&Pace::from(snapshot), &shape, 0, 200)
        };
        let few = told(100, 100, 95);
        assert!(few.ends_with("too few in flight for its waiting (`instances`)"), "{few}");
        let service = told(100, 80, 60);
        assert!(service.ends_with("it waits for its service"), "{service}");
        let busy = told(100, 100, 10);
        assert!(busy.ends_with("all its instances are busy"), "{busy}");
    }

    #[test]
    fn the_picture_shows_each_stage_and_names_the_bottleneck() {
        assert_eq!(
            plain(120, 24),
            [
                "sample  2.0 s  in 125 k/s  out 1.24 k/s  102 inside",
                "stage    events/s  queue                  busy",
                "numbers     125 k                          1/1",
                "work        124 k  ███████████▊   98/100   2/2",
                "show       1.24 k  ▌···········    4/100   1/1",
                "`work` is the bottleneck: its queue is nearly full, what it sends is taken at once, all its instances are busy",
            ]
        );
    }

    #[test]
    fn a_full_queue_is_told_only_of_one_that_is_full() {
        let (shape, first) = samples::pipeline();
        let mut snapshot = samples::queued(&first, &[0, 27, 0]);
        snapshot.stages[1].outboxed = 5;
        let told = |snapshot| sentence(&Pace::from(snapshot), &shape, 0, usize::MAX);
        assert!(
            told(snapshot.clone())
                .starts_with("`work` is the bottleneck: its senders wait for room, "),
            "{}",
            told(snapshot)
        );
        let mut idle = samples::queued(&first, &[0, 100, 0]);
        idle.stages[1].idle = idle.stages[1].instances;
        assert_eq!(
            told(idle),
            "the fullest queue is that of `work`: 100 %, and it waits for a thread"
        );
    }

    #[test]
    fn a_narrow_picture_leaves_out_what_matters_least() {
        assert_eq!(
            plain(36, 24),
            [
                "sample  2.0 s  in 125 k/s",
                "stage    events/s  queue",
                "numbers     125 k",
                "work        124 k  █████▉   98/100",
                "show       1.24 k  ▎·····    4/100",
                "`work` is the bottleneck",
            ]
        );
    }

    #[test]
    fn no_line_is_too_wide_and_there_are_never_too_many() {
        for wide in 1..120 {
            for high in 1..9 {
                let lines = plain(wide, high);
                assert!(lines.len() <= high, "{high}");
                assert!(lines.iter().all(|line| width(line) <= wide), "{wide}: {lines:#?}");
            }
        }
    }

    #[test]
    fn where_not_all_stages_fit_the_busiest_and_the_one_that_is_named_do() {
        let lines = plain(100, AROUND + 1);
        assert!(lines[2].starts_with("work "), "{lines:#?}");
        let lines = plain(200, AROUND + 2);
        assert!(lines[2].starts_with("numbers ") && lines[3].starts_with("work "), "{lines:#?}");
        assert!(lines[4].ends_with("(1 stage not shown)"), "{lines:#?}");
    }

    #[test]
    fn a_drain_says_how_much_is_left_of_it() {
        let (shape, pace) = pace();
        let phase = Phase::Draining(Duration::from_millis(9_300));
        let room = Room { wide: 80, high: 9, colour: false };
        let lines = picture(&pace, &shape, phase, room);
        assert_eq!(
            lines[0],
            "sample  draining, 9.3 s left  in 125 k/s  out 1.24 k/s  102 events to go"
        );
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let (shape, pace) = pace();
        let room = Room { wide: 80, high: 9, colour: true };
        let lines = picture(&pace, &shape, Phase::Running(None), room);
        let mut screen = vt100::Parser::new(9, 80, 0);
        screen.process(lines.join("\r\n").as_bytes());
        let shown: Vec<_> =
            screen.screen().rows(0, 80).map(|row| row.trim_end().to_owned()).collect();
        assert_eq!(shown[..6], plain(80, 9));
        assert!(lines[0].starts_with("\x1b[1m"), "{lines:?}");
    }

    #[test]
    fn trouble_is_told_beside_its_stage() {
        let (shape, _, snapshot) = samples::lossy();
        let room = Room { wide: 80, high: 9, colour: false };
        let lines = picture(&Pace::from(snapshot), &shape, Phase::Running(None), room);
        assert!(
            lines[4].starts_with("parse ") && lines[4].ends_with("2 failed, 6 shed"),
            "{lines:#?}"
        );
        assert_eq!(lines[5], "all queues are empty");
    }

    #[test]
    fn a_bar_shows_something_for_something_and_is_never_too_wide() {
        assert_eq!(bar(0.0, 4), "····");
        assert_eq!(bar(0.001, 4), "▏···");
        assert_eq!(bar(0.5, 4), "██··");
        assert_eq!((bar(1.0, 4), bar(7.0, 4)), ("████".to_owned(), "████".to_owned()));
    }
}
