//! All runs, one after the other, a round at a time. It waits at one place for all that may happen
//! meanwhile: the end of a run, a signal, the next picture.
//! The first run of all warms the machine up and is not counted.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use super::Asked;
use super::child::{Child, NO_INPUT, Numbers};
use super::progress::{self, Moment};
use super::runs::order;
use super::verdict::Run;
use crate::show::signals::{Signals, Stand, Word, suspend};
use crate::show::terminal::{Terminal, say};
use crate::show::units::span;
use crate::show::{When, now};

/// From picture to picture.
const FRAME: Duration = Duration::from_millis(125);

/// What was run.
pub(super) struct Ran {
    pub(super) runs: Vec<Run>,
    /// The signal that ended it before its time.
    pub(super) stopped: Option<u8>,
}

/// How a run ended.
enum End {
    Ended(Result<Numbers, String>),
    /// A signal came, and it was ended.
    Stopped(u8),
}

/// Runs all.
///
/// # Errors
/// If nothing can be told of any run, as the first shows.
pub(super) fn all(asked: &Asked) -> Result<Ran, String> {
    let view = View::choose(asked);
    let (tell, told) = mpsc::channel();
    let signals = Signals::listen(tell.clone(), matches!(view, View::Picture(_)));
    signals.stand(Stand::Running);
    let mut todo: Vec<(Option<usize>, usize)> = Vec::new();
    for (round, order) in order(asked.combinations.len(), asked.rounds).into_iter().enumerate() {
        if round == 0 {
            todo.extend(order.first().map(|first| (None, *first)));
        }
        todo.extend(order.into_iter().map(|combination| (Some(round), combination)));
    }
    let mut life = Life { asked, tell, told, view, todo, done: Vec::new() };
    let mut ran = Ran { runs: Vec::new(), stopped: None };
    for at in 0..life.todo.len() {
        let (round, combination) = life.todo[at];
        match life.one(at) {
            End::Ended(Err(why)) if round.is_none() && why == NO_INPUT => {
                life.view.clear();
                return Err(why);
            }
            End::Ended(end) => {
                if let Some(round) = round {
                    ran.runs.push(Run { combination, round, end });
                }
            }
            End::Stopped(signal) => {
                ran.stopped = Some(signal);
                break;
            }
        }
    }
    signals.stand(Stand::Over);
    life.view.clear();
    Ok(ran)
}

struct Life<'a> {
    asked: &'a Asked,
    tell: Sender<Word>,
    told: Receiver<Word>,
    view: View,
    /// The round, but for the first of all, and the combination.
    todo: Vec<(Option<usize>, usize)>,
    /// How long runs took.
    done: Vec<Duration>,
}

impl<'a> Life<'a> {
    fn one(&mut self, at: usize) -> End {
        let begin = now();
        let combination = &self.asked.combinations[self.todo[at].1];
        let args = self.asked.line.args(combination, &self.asked.common());
        let moment = self.moment(at, Duration::ZERO);
        self.view.begin(&moment);
        let child = match Child::start(&args, self.tell.clone()) {
            Ok(child) => child,
            Err(error) => return End::Ended(Err(format!("it could not be started: {error}"))),
        };
        let last = loop {
            match self.told.recv_timeout(FRAME) {
                Ok(Word::Ended) => break None,
                Ok(Word::Signal(signal)) => break Some(Err(signal)),
                Ok(Word::Suspend) => {
                    self.view.clear();
                    suspend();
                }
                Ok(Word::Unread) | Err(_) => {}
            }
            if self.asked.patience.is_some_and(|patience| since(begin) > patience) {
                break Some(Ok(since(begin)));
            }
            let moment = self.moment(at, since(begin));
            self.view.look(&moment);
        };
        let end = match last {
            None => End::Ended(child.end()),
            Some(Ok(after)) => {
                child.kill();
                End::Ended(Err(format!("it did not end, and was stopped after {}", span(after))))
            }
            Some(Err(signal)) => {
                child.kill();
                End::Stopped(signal)
            }
        };
        self.done.push(since(begin));
        match self.told.try_iter().find_map(|word| match word {
            Word::Signal(signal) => Some(signal),
            _ => None,
        }) {
            Some(signal) => End::Stopped(signal),
            None => end,
        }
    }

    fn moment(&self, at: usize, running: Duration) -> Moment<'a> {
        let (round, combination) = self.todo[at];
        let before = self.todo.iter().zip(&self.done).map(|((_, which), took)| (*which, *took));
        let after: Vec<usize> = self.todo[at..].iter().map(|(_, which)| *which).collect();
        Moment {
            app: &self.asked.app,
            what: &self.asked.combinations[combination],
            round: round.map(|round| round + 1),
            rounds: self.asked.rounds,
            run: at + 1,
            runs: self.todo.len(),
            running,
            left: progress::left(&before.collect::<Vec<_>>(), &after, running, self.asked.limit),
            endless: self.asked.limit.is_none(),
        }
    }
}

/// Where progress is shown.
enum View {
    None,
    /// A line for each run.
    Lines,
    Picture(Terminal),
}

impl View {
    fn choose(asked: &Asked) -> Self {
        match asked.progress {
            When::Never => View::None,
            // It takes minutes: where there is no terminal, a line for each run tells that it goes on.
            When::Always | When::Auto => Terminal::find().map_or(View::Lines, View::Picture),
        }
    }

    fn begin(&mut self, moment: &Moment<'_>) {
        match self {
            View::Lines => say(&(progress::line(moment) + "\n")),
            _ => self.look(moment),
        }
    }

    fn look(&mut self, moment: &Moment<'_>) {
        if let View::Picture(terminal) = self {
            terminal.draw(|room| progress::picture(moment, room));
        }
    }

    fn clear(&mut self) {
        if let View::Picture(terminal) = self {
            terminal.clear();
        }
    }
}

/// Time since an instant, by the one clock the command line has.
fn since(begin: Instant) -> Duration {
    now().saturating_duration_since(begin)
}
