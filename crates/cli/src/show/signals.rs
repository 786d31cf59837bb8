//! What a signal asks for: the first to drain, the second to stop at once, and one after that to
//! leave without another word. Before the program runs, the second leaves at once.
//! A thread waits for them and passes them on; what they mean is decided in `Listener`.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Two of a kind within this time are one: `timeout` signals its child and then the child's group.
/// A person is not that fast.
const ECHO: Duration = Duration::from_millis(100);

/// What the run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It has come to its end.
    Ended,
    /// Somebody wants it to end.
    Signal(u8),
    /// Somebody wants it to sleep (Ctrl-Z).
    Suspend,
    /// Nobody reads its standard output any more.
    Unread,
}

/// Where the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// Sources are being opened; nobody listens yet.
    Starting,
    /// The run listens.
    Running,
    /// The run is over, and what is left to do is to say so.
    Over,
}

/// What to do about a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// It is the same one again.
    Echo,
    /// The run is told, now or when it listens.
    Tell,
    /// Whoever should be told does not answer: the process ends as if it did not listen.
    Leave,
}

struct Listener {
    stand: Stand,
    heard: u32,
    last: Option<(u8, Instant)>,
}

impl Listener {
    fn hear(&mut self, signal: u8, now: Instant) -> Heard {
        let echo = self.last.is_some_and(|(last, at)| last == signal && now - at < ECHO);
        if echo {
            return Heard::Echo;
        }
        self.last = Some((signal, now));
        self.heard += 1;
        let listens_to = match self.stand {
            Stand::Starting => 1,
            Stand::Running => 2,
            Stand::Over => 0,
        };
        if self.heard <= listens_to { Heard::Tell } else { Heard::Leave }
    }
}

/// Passes signals on until it is dropped.
pub(crate) struct Signals {
    listener: Arc<Mutex<Listener>>,
    #[cfg(unix)]
    handle: Option<signal_hook::iterator::Handle>,
}

impl Signals {
    /// Where the run is now.
    pub(crate) fn stand(&self, stand: Stand) {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).stand = stand;
    }
}

#[cfg(unix)]
mod unix {
    use signal_hook::consts::{SIGINT, SIGTERM, SIGTSTP};
    use signal_hook::low_level::{emulate_default_handler, signal_name};

    use super::*;

    impl Signals {
        /// Begins to listen; to Ctrl-Z too, if there is a picture to take away before.
        pub(crate) fn listen(tell: Sender<Word>, picture: bool) -> Self {
            let listener =
                Arc::new(Mutex::new(Listener { stand: Stand::Starting, heard: 0, last: None }));
            let wanted = [SIGINT, SIGTERM].into_iter().chain(picture.then_some(SIGTSTP));
            // Where signals cannot be had they do what they always do, which is to end the process.
            let Ok(mut signals) = signal_hook::iterator::Signals::new(wanted) else {
                return Signals { listener, handle: None };
            };
            let handle = signals.handle();
            let own = listener.clone();
            let body = move || {
                for signal in signals.forever() {
                    hear(signal, &own, &tell);
                }
            };
            let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(body);
            if thread.is_err() {
                handle.close();
            }
            Signals { listener, handle: Some(handle) }
        }
    }

    fn hear(signal: i32, listener: &Mutex<Listener>, tell: &Sender<Word>) {
        let number = u8::try_from(signal).unwrap_or(u8::MAX);
        let mut listener = listener.lock().unwrap_or_else(PoisonError::into_inner);
        if signal == SIGTSTP {
            if listener.stand != Stand::Running || tell.send(Word::Suspend).is_err() {
                suspend();
            }
            return;
        }
        let heard = match listener.hear(number, crate::show::run::now()) {
            Heard::Tell if tell.send(Word::Signal(number)).is_err() => Heard::Leave,
            heard => heard,
        };
        if heard == Heard::Leave {
            let _ = emulate_default_handler(signal);
        }
        if heard == Heard::Tell && listener.stand == Stand::Starting {
            crate::show::terminal::say("still starting: another one leaves at once\n");
        }
    }

    /// Sleeps until it is told to go on.
    pub(crate) fn suspend() {
        let _ = emulate_default_handler(SIGTSTP);
    }

    /// If standard output is a pipe, tells when its reader has left: `program | head` is to end.
    /// Nothing is polled: the thread sleeps until that happens, or the process ends.
    pub(in super::super) fn watch_reader(tell: Sender<Word>) {
        use rustix::event::{PollFd, PollFlags, poll};
        use rustix::fs::{FileType, fstat};
        let stdout = std::io::stdout();
        let is_pipe = fstat(&stdout)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        if !is_pipe {
            return;
        }
        let body = move || {
            let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
            while let Err(rustix::io::Errno::INTR) = poll(&mut fds, None) {}
            if fds[0].revents().contains(PollFlags::ERR) {
                let _ = tell.send(Word::Unread);
            }
        };
        // Without the thread the program notices nothing, and goes on.
        let _ = std::thread::Builder::new().name("reader".to_owned()).spawn(body);
    }

    /// `SIGTERM`.
    pub(crate) fn name(signal: u8) -> String {
        signal_name(signal.into()).map_or_else(|| format!("signal {signal}"), ToOwned::to_owned)
    }

    /// The thread ends. Signals that come later are swallowed: the process is about to leave.
    impl Drop for Signals {
        fn drop(&mut self) {
            if let Some(handle) = &self.handle {
                handle.close();
            }
        }
    }
}

#[cfg(unix)]
pub(super) use unix::watch_reader;
#[cfg(unix)]
pub(crate) use unix::{name, suspend};

#[cfg(not(unix))]
impl Signals {
    /// Nothing to listen to here: Ctrl-C ends the process.
    pub(crate) fn listen(_: Sender<Word>, _: bool) -> Self {
        let listener = Listener { stand: Stand::Starting, heard: 0, last: None };
        Signals { listener: Arc::new(Mutex::new(listener)) }
    }
}

#[cfg(not(unix))]
pub(crate) fn suspend() {}

#[cfg(not(unix))]
pub(super) fn watch_reader(_: Sender<Word>) {}

#[cfg(not(unix))]
pub(crate) fn name(signal: u8) -> String {
    format!("signal {signal}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(stand: Stand) -> (Listener, Instant) {
        (Listener { stand, heard: 0, last: None }, crate::show::run::now())
    }

    #[test]
    fn two_signals_are_passed_on_and_the_third_leaves() {
        let (mut listener, start) = listener(Stand::Running);
        let mut hear = |signal, ms| listener.hear(signal, start + Duration::from_millis(ms));
        assert_eq!(hear(15, 0), Heard::Tell);
        assert_eq!(hear(15, 1), Heard::Echo, "`timeout` sends two");
        assert_eq!(hear(2, 2), Heard::Tell, "another one is no echo");
        assert_eq!(hear(2, 500), Heard::Leave);
    }

    #[test]
    fn while_it_starts_the_first_is_remembered_and_the_second_leaves() {
        let (mut listener, start) = listener(Stand::Starting);
        assert_eq!(listener.hear(2, start), Heard::Tell);
        assert_eq!(listener.hear(2, start + ECHO), Heard::Leave);
    }

    #[test]
    fn once_it_is_over_any_signal_leaves() {
        let (mut listener, start) = listener(Stand::Over);
        assert_eq!(listener.hear(15, start), Heard::Leave);
    }

    #[cfg(unix)]
    #[test]
    fn signals_have_the_names_people_know() {
        assert_eq!((name(2), name(15)), ("SIGINT".to_owned(), "SIGTERM".to_owned()));
    }
}
