//! What a signal asks for: the first to drain, the second to stop at once, and one after that to
//! leave without another word. Before the program runs, and where the run has not taken up the first,
//! the second leaves at once.
//! A thread waits for them and passes them on; what they mean is decided in `Listener`.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The second of two signals of a kind that other processes send within this time is its echo:
/// `timeout` signals its child and then the child's group. There is one echo at most, and none of a
/// key that is pressed.
const ECHO: Duration = Duration::from_millis(20);
/// How long the run may take to hear of a signal. It cannot while it writes to a pipe that nobody
/// reads, or to a terminal that is stopped.
const UNHEARD: Duration = Duration::from_secs(1);

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

/// Who sent a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// A key of the terminal, or the terminal itself.
    Terminal,
    /// A process.
    Process,
}

struct Listener {
    stand: Stand,
    heard: u32,
    /// Signals that the run has taken up.
    taken: u32,
    /// The last one, and whether it was an echo.
    last: Option<(u8, Instant)>,
    echoed: bool,
}

impl Listener {
    fn new(stand: Stand) -> Self {
        Listener { stand, heard: 0, taken: 0, last: None, echoed: false }
    }

    fn hear(&mut self, signal: u8, from: From, now: Instant) -> Heard {
        let same = self.last.is_some_and(|(last, at)| last == signal && now - at < ECHO);
        if same && from == From::Process && !std::mem::replace(&mut self.echoed, true) {
            return Heard::Echo;
        }
        let unheard = self.last.is_some_and(|(_, at)| self.taken == 0 && now - at >= UNHEARD);
        self.last = Some((signal, now));
        self.heard += 1;
        let listens_to = match self.stand {
            Stand::Starting => 1,
            Stand::Running if unheard => 0,
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

    /// The run has taken up a signal.
    pub(crate) fn taken(&self) {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).taken += 1;
    }
}

#[cfg(unix)]
mod unix {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
    use signal_hook::iterator::SignalsInfo;
    use signal_hook::iterator::exfiltrator::WithRawSiginfo;
    use signal_hook::low_level::{emulate_default_handler, signal_name};

    use super::*;

    impl Signals {
        /// Begins to listen; to Ctrl-Z too, if there is a picture to take away before.
        pub(crate) fn listen(tell: Sender<Word>, picture: bool) -> Self {
            let listener = Arc::new(Mutex::new(Listener::new(Stand::Starting)));
            let wanted = [SIGINT, SIGTERM].into_iter();
            let wanted = wanted.chain(hears_hangup().then_some(SIGHUP));
            let wanted = wanted.chain(picture.then_some(SIGTSTP));
            // Where signals cannot be had they do what they always do, which is to end the process.
            let Ok(mut signals) = SignalsInfo::<WithRawSiginfo>::new(wanted) else {
                return Signals { listener, handle: None };
            };
            let handle = signals.handle();
            let own = listener.clone();
            let body = move || {
                for info in signals.forever() {
                    // What processes send has codes up to zero.
                    let from = if info.si_code > 0 { From::Terminal } else { From::Process };
                    hear(info.si_signo, from, &own, &tell);
                }
            };
            let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(body);
            if thread.is_err() {
                handle.close();
            }
            Signals { listener, handle: Some(handle) }
        }
    }

    /// Whether a hangup is to be listened to: `nohup` has it ignored, and that must stay so. Where the
    /// system does not say, it does what it always does.
    fn hears_hangup() -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        ignored.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) == 0)
    }

    fn hear(signal: i32, from: From, listener: &Mutex<Listener>, tell: &Sender<Word>) {
        let number = u8::try_from(signal).unwrap_or(u8::MAX);
        let mut listener = listener.lock().unwrap_or_else(PoisonError::into_inner);
        if signal == SIGTSTP {
            if listener.stand != Stand::Running || tell.send(Word::Suspend).is_err() {
                suspend();
            }
            return;
        }
        let heard = match listener.hear(number, from, crate::show::run::now()) {
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
        use std::fs::File;
        use std::os::fd::AsFd;
        use std::os::unix::fs::FileTypeExt;
        let stdout = std::io::stdout();
        let copy = stdout.as_fd().try_clone_to_owned().map(File::from);
        let is_pipe =
            copy.and_then(|copy| copy.metadata()).is_ok_and(|file| file.file_type().is_fifo());
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
        Signals { listener: Arc::new(Mutex::new(Listener::new(Stand::Starting))) }
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
        (Listener::new(stand), crate::show::run::now())
    }

    #[test]
    fn two_signals_are_passed_on_and_the_third_leaves() {
        let (mut listener, start) = listener(Stand::Running);
        let mut hear =
            |signal, ms| listener.hear(signal, From::Process, start + Duration::from_millis(ms));
        assert_eq!(hear(15, 0), Heard::Tell);
        assert_eq!(hear(15, 1), Heard::Echo, "`timeout` sends two");
        assert_eq!(hear(2, 2), Heard::Tell, "another one is no echo");
        assert_eq!(hear(2, 3), Heard::Leave, "`timeout` sends no third");
    }

    #[test]
    fn a_key_pressed_twice_is_two_signals_however_fast() {
        let (mut listener, start) = listener(Stand::Running);
        assert_eq!(listener.hear(2, From::Terminal, start), Heard::Tell);
        assert_eq!(listener.hear(2, From::Terminal, start), Heard::Tell);
        assert_eq!(listener.hear(2, From::Terminal, start), Heard::Leave);
    }

    #[test]
    fn where_the_run_does_not_take_up_the_first_signal_the_second_leaves() {
        let (mut listener, start) = listener(Stand::Running);
        assert_eq!(listener.hear(15, From::Process, start), Heard::Tell);
        assert_eq!(listener.hear(15, From::Process, start + UNHEARD), Heard::Leave);
    }

    #[test]
    fn while_it_starts_the_first_is_remembered_and_the_second_leaves() {
        let (mut listener, start) = listener(Stand::Starting);
        assert_eq!(listener.hear(2, From::Process, start), Heard::Tell);
        assert_eq!(listener.hear(2, From::Process, start + ECHO), Heard::Leave);
    }

    #[test]
    fn once_it_is_over_any_signal_leaves() {
        let (mut listener, start) = listener(Stand::Over);
        assert_eq!(listener.hear(15, From::Process, start), Heard::Leave);
    }

    #[cfg(unix)]
    #[test]
    fn signals_have_the_names_people_know() {
        assert_eq!((name(2), name(15)), ("SIGINT".to_owned(), "SIGTERM".to_owned()));
    }
}
