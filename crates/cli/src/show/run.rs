//! The life of a run, from its start to its exit. It waits at one place for all that may happen:
//! the end, a signal, the end of its time, the next picture.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use comporta_model::plan::{Plan, defaults};
use comporta_plan::{escaped, escaped_lines};
use comporta_runtime::{App, Running, StartError, Summary};

use super::exit::Exit;
use super::failures::FailureFile;
use super::pace::{Pace, Shape};
use super::progress::{Phase, line, picture};
use super::report::{self, Asked, Report};
use super::signals::{self, Signals, Stand, Word};
use super::terminal::{self, Terminal, say};
use super::units::span;
use super::{Options, When, json, summary};

/// From picture to picture, and from the start to the first: often enough to look alive, seldom
/// enough to be read, and nothing flashes up for a program that is over at once.
const FRAME: Duration = Duration::from_millis(125);
/// From line to line where there is no terminal.
const LINE: Duration = Duration::from_secs(5);

/// What ends a process whose output nobody reads.
const SIGPIPE: u8 = 13;

/// The time: what is shown follows the clock on the wall, whatever clock the program has.
#[expect(clippy::disallowed_methods, reason = "the one place the command line has time from")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Starts `app` under `plan`, shows its progress on standard error, obeys signals and prints a summary.
///
/// The first SIGINT (Ctrl-C), SIGTERM or SIGHUP, or the end of `options.limit`, drains the program for at most the
/// plan's `drain`; a signal during the drain stops it at once.
///
/// ```
/// use comporta_cli::show::{Exit, Options, run};
/// use comporta_model::plan::Plan;
/// use comporta_runtime::App;
///
/// let app = App::new("squares");
/// let numbers = app.source("numbers", || 1..=10_u64);
/// let show = app.sink("show", |n: u64| println!("{}", n * n));
/// app.connect(numbers, show);
/// let exit = run(app, &Plan::new(), &Options::default()); // `main` returns it
/// assert_eq!(exit, Exit::Done);
/// ```
pub fn run(app: App, plan: &Plan, options: &Options) -> Exit {
    let shape = Shape::of(&app.graph(), &plan.clone().over(&app.plan()));
    let name = app.graph().name.to_string();
    if options.keys {
        app.count_keys();
    }
    let failures = match open_failures(&app, options) {
        Ok(file) => file,
        Err(problem) => return refuse(&name, vec![problem], Exit::Problems, options),
    };
    let view = View::choose(options);
    let (tell, told) = mpsc::channel();
    let signals = Signals::listen(tell.clone(), matches!(view, View::Picture(_)));
    let running = match app.start(plan) {
        Ok(running) => running,
        Err(error) => return refuse_start(&name, &error, options),
    };
    signals.stand(Stand::Running);
    signals::watch_reader(tell.clone());
    running.on_end(move || {
        let _ = tell.send(Word::Ended);
    });

    let (control, start) = (running.control(), now());
    let first = running.snapshot();
    let stuck_after = plan.stuck_after.unwrap_or(defaults::STUCK_AFTER);
    let mut life = Life {
        told,
        options,
        name,
        drain: plan.drain.unwrap_or(defaults::DRAIN),
        ends: options.limit.and_then(|limit| start.checked_add(limit)),
        draining: None,
        asked: None,
        stuck_after,
        look: start,
        stuck: Vec::new(),
        shown: Shown { view, shape, pace: Pace::from(first.clone()), next: start + FRAME },
    };
    let (mut summary, stopped) = life.live(running, &signals);

    // It may have ended of it: what it could not print has failed.
    if life.told.try_iter().any(|word| word == Word::Unread) {
        life.asked = Some(Asked::Unread);
    }
    let stopped = if life.asked == Some(Asked::Unread) { Some(SIGPIPE) } else { stopped };
    let kept = failures.map(|file| {
        let (kept, problem) = file.end();
        summary.problems.extend(problem);
        kept
    });
    let shape = &life.shown.shape;
    let decisions = report::decisions(&first, &control);
    let report = Report {
        ended: summary.ended,
        asked: life.asked,
        exit: report::exit(&summary, shape, stopped),
        first,
        entered: shape.entered(&summary.snapshot),
        left: shape.left(&summary.snapshot),
        cpu: report::cpu_time(),
        failed: report::failed(&summary.snapshot, shape, &control),
        kept,
        decisions,
        snapshot: summary.snapshot,
        problems: summary.problems,
        stuck: summary.stuck,
    };
    tell_end(&report, options)
}

/// Opens the file of `--failures`, if it is asked for.
fn open_failures(app: &App, options: &Options) -> Result<Option<Arc<FailureFile>>, String> {
    let Some(path) = &options.failures else { return Ok(None) };
    let file = FailureFile::open(path, app);
    file.map(Some).map_err(|error| format!("`--failures {}`: {error}", path.display()))
}

/// Tells how it went, and how the process leaves then.
fn tell_end(report: &Report, options: &Options) -> Exit {
    if report.asked == Some(Asked::Unread) {
        return report.exit; // as those do who are ended by the signal for it
    }
    if options.quiet || options.json {
        say(&summary::complaints(report));
    } else {
        say(&summary::summary(report, terminal::wide(), terminal::colours()));
    }
    if options.explain && !options.json {
        say(&summary::decisions(report));
    }
    match options.json {
        true => print_last(&json::json(report), report.exit),
        false => report.exit,
    }
}

fn refuse_start(name: &str, error: &StartError, options: &Options) -> Exit {
    let (problems, exit): (Vec<String>, _) = match error {
        StartError::Graph(faults) => {
            (faults.iter().map(ToString::to_string).collect(), Exit::Refused)
        }
        StartError::Plan(faults) => {
            (faults.iter().map(ToString::to_string).collect(), Exit::Refused)
        }
        other => (vec![other.to_string()], Exit::Problems),
    };
    say(&format!("{name}: {}\n", escaped_lines(&error.to_string())));
    refusal(name, problems, exit, options)
}

fn refuse(name: &str, problems: Vec<String>, exit: Exit, options: &Options) -> Exit {
    problems.iter().for_each(|problem| say(&format!("{name}: {}\n", escaped(problem))));
    refusal(name, problems, exit, options)
}

fn refusal(name: &str, problems: Vec<String>, exit: Exit, options: &Options) -> Exit {
    match options.json {
        true => print_last(&json::refused(name, problems, exit), exit),
        false => exit,
    }
}

/// The line of JSON of a program that was refused before it was there.
pub(crate) fn refused(problems: Vec<String>, exit: Exit) -> Exit {
    print_last(&json::refused("", problems, exit), exit)
}

/// Prints what a process says last, before it leaves with `exit`. A result that could not be written
/// is no success; an exit that tells of something worse stays as it is.
pub(crate) fn print_last(text: &str, exit: Exit) -> Exit {
    let Err(error) = print(text) else { return exit };
    let instead = match error.kind() {
        io::ErrorKind::BrokenPipe => Exit::Stopped(SIGPIPE), // as `watch_reader` would have it
        _ => {
            say(&format!("error: {}\n", unwritten(&error)));
            Exit::Problems
        }
    };
    if exit == Exit::Done { instead } else { exit }
}

/// Writes to standard output, to its end.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// What to say if that failed.
pub(crate) fn unwritten(error: &io::Error) -> String {
    format!("standard output cannot be written: {error}")
}

/// A run between its start and its end.
struct Life<'a> {
    told: Receiver<Word>,
    options: &'a Options,
    name: String,
    /// How long a drain may take.
    drain: Duration,
    /// When it is drained by itself.
    ends: Option<Instant>,
    /// When its drain is given up.
    draining: Option<Instant>,
    /// Who asked it to end.
    asked: Option<Asked>,
    stuck_after: Duration,
    /// When it is looked next whether a handler is stuck.
    look: Instant,
    /// Stages whose handlers were told to be stuck.
    stuck: Vec<String>,
    shown: Shown,
}

/// How a run is brought to its end.
enum Last {
    /// It is there.
    Wait,
    /// The time of its drain is up.
    GiveUp,
    /// A signal during its drain.
    Stop(u8),
}

impl Life<'_> {
    /// Lives until the end; says which signal stopped it at once, if one did.
    fn live(&mut self, running: Running, signals: &Signals) -> (Summary, Option<u8>) {
        let last = self.until_last(&running, signals);
        signals.stand(Stand::Over); // nobody waits for a word any more: the next signal leaves
        self.shown.clear(); // before the wait for handlers that do not return
        match last {
            Last::Wait => (running.wait(), None),
            Last::GiveUp => (running.drain_within(Duration::ZERO), None),
            Last::Stop(signal) => {
                self.asked = Some(Asked::Signal(signal));
                say(self.fresh_line());
                (running.stop(), Some(signal))
            }
        }
    }

    fn until_last(&mut self, running: &Running, signals: &Signals) -> Last {
        loop {
            let word = self.wait();
            if let Some(Word::Signal(_)) = word {
                signals.taken();
            }
            match word {
                Some(Word::Ended) => return Last::Wait,
                Some(Word::Signal(signal)) if self.draining.is_some() => return Last::Stop(signal),
                Some(Word::Signal(signal)) => self.begin_drain(running, Asked::Signal(signal)),
                Some(Word::Unread) if self.draining.is_none() => {
                    self.begin_drain(running, Asked::Unread);
                }
                Some(Word::Unread) => {}
                Some(Word::Suspend) => {
                    self.shown.clear();
                    signals::suspend();
                }
                None => {}
            }
            let now = now();
            if self.draining.is_some_and(|end| end <= now) {
                return Last::GiveUp;
            }
            if let Some(limit) = self.limit_at(now) {
                self.begin_drain(running, Asked::Limit(limit));
            }
            self.look_for_stuck(running, now);
            self.shown.look(running, self.phase(now), now);
        }
    }

    /// Names a stage whose handler does not return, once.
    fn look_for_stuck(&mut self, running: &Running, now: Instant) {
        if now < self.look {
            return;
        }
        let every = (self.stuck_after / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        self.look = now + every;
        for stage in running.stuck() {
            if !self.stuck.contains(&stage) {
                self.shown.clear();
                let (name, bound) = (&self.name, span(self.stuck_after));
                say(&format!(
                    "{name}: a handler of `{stage}` has not returned for {bound}; another worker stands in\n"
                ));
                self.stuck.push(stage);
            }
        }
    }

    /// Waits for a word, or until there is something to do. The run itself holds an end of the
    /// channel until it has ended and said so, so that there is always somebody to wait for.
    fn wait(&self) -> Option<Word> {
        let ends = self.ends.filter(|_| self.draining.is_none());
        let look = Some(self.look);
        let next = [ends, self.draining, look, self.shown.next()].into_iter().flatten().min();
        match next {
            None => self.told.recv().ok(),
            Some(next) => self.told.recv_timeout(next.saturating_duration_since(now())).ok(),
        }
    }

    /// The limit, if it has come to it.
    fn limit_at(&self, now: Instant) -> Option<Duration> {
        let over = self.draining.is_none() && self.ends.is_some_and(|end| end <= now);
        self.options.limit.filter(|_| over)
    }

    fn begin_drain(&mut self, running: &Running, asked: Asked) {
        running.close();
        let now = now();
        // A drain of any length fits into what clocks can say, but for those meant as "for ever".
        let for_ever = now + Duration::from_secs(365 * 24 * 3600);
        self.draining = Some(now.checked_add(self.drain).unwrap_or(for_ever));
        self.asked = Some(asked);
        if self.options.quiet {
            return;
        }
        let (why, next) = match asked {
            Asked::Signal(2) => ("asked by Ctrl-C".to_owned(), "another Ctrl-C"),
            Asked::Signal(_) => (format!("asked by {}", asked.name()), "a second one"),
            Asked::Limit(limit) => (format!("its time of {} is over", span(limit)), "Ctrl-C"),
            Asked::Unread => return,
        };
        let (fresh, name, bound) = (self.fresh_line(), &self.name, span(self.drain));
        say(&format!("{fresh}{name}: {why}: draining for at most {bound}; {next} stops at once\n"));
    }

    /// A terminal has just shown `^C`: what is said next begins on a line of its own.
    fn fresh_line(&self) -> &'static str {
        if self.asked == Some(Asked::Signal(2)) && self.shown.is_picture() { "\n" } else { "" }
    }

    fn phase(&self, now: Instant) -> Phase {
        match (self.draining, self.ends) {
            (Some(end), _) => Phase::Draining(end.saturating_duration_since(now)),
            (None, ends) => Phase::Running(ends.map(|end| end.saturating_duration_since(now))),
        }
    }
}

/// Where progress is shown.
enum View {
    None,
    /// A line now and then.
    Lines,
    /// A picture at the bottom of the terminal.
    Picture(Terminal),
}

impl View {
    fn choose(options: &Options) -> Self {
        let asked = match options.progress {
            When::Auto => !options.quiet && !options.json,
            When::Always => true,
            When::Never => false,
        };
        match (asked, options.progress) {
            (false, _) => View::None,
            (true, When::Always) => Terminal::find().map_or(View::Lines, View::Picture),
            (true, _) => Terminal::find().map_or(View::None, View::Picture),
        }
    }
}

/// What has been shown of a run, and when there will be more.
struct Shown {
    view: View,
    shape: Shape,
    pace: Pace,
    next: Instant,
}

impl Shown {
    fn next(&self) -> Option<Instant> {
        (!matches!(self.view, View::None)).then_some(self.next)
    }

    fn is_picture(&self) -> bool {
        matches!(self.view, View::Picture(_))
    }

    /// Shows the run as it is now, if it is time.
    fn look(&mut self, running: &Running, phase: Phase, now: Instant) {
        if matches!(self.view, View::None) || now < self.next {
            return;
        }
        self.pace.see(running.snapshot());
        let (pace, shape) = (&self.pace, &self.shape);
        match &mut self.view {
            View::None => {}
            View::Lines => {
                self.next = now + LINE;
                say(&(line(pace, shape, phase) + "\n"));
            }
            View::Picture(terminal) => {
                self.next = now + FRAME;
                terminal.draw(|room| picture(pace, shape, phase, room));
            }
        }
    }

    fn clear(&mut self) {
        if let View::Picture(terminal) = &mut self.view {
            terminal.clear();
        }
    }
}
