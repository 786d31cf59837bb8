//! The short way of an event: the only report, for the only handler that waits for it, resumes that handler without
//! the ready queue. It is taken while there are no timers and time is the system's, by `step` and `run`; whether
//! it is taken makes no difference to what happens.

use crate::{Checked, Log};
use comporta_scheduler::{Events, JoinHandle, Ready, Step, Wait, listen, sources};
use proptest::prelude::*;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// A scheduler that is stopped after half a minute, so that a step that waits in vain fails its test.
fn bounded() -> (Checked, Sender<()>) {
    let scheduler = crate::real_scheduler();
    let (handle, (alive, dropped)) = (scheduler.handle(), mpsc::channel::<()>());
    let stops = move || {
        if dropped.recv_timeout(Duration::from_secs(30)) == Err(RecvTimeoutError::Timeout) {
            handle.stop();
        }
    };
    drop(thread::Builder::new().spawn(stops).unwrap());
    (scheduler, alive)
}

#[track_caller]
fn resumed(scheduler: &mut Checked, times: usize) {
    for _ in 0..times {
        let step = scheduler.step().unwrap();
        assert!(matches!(step, Step::Resumed), "{step:?}");
    }
}

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

fn drain(mut stream: &UnixStream) -> usize {
    let mut bytes = Vec::new();
    let error = stream.read_to_end(&mut bytes).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    bytes.len()
}

/// A source whose handler logs its name at each event.
struct Source {
    theirs: UnixStream,
    handler: JoinHandle<()>,
}

impl Source {
    fn new(scheduler: &mut Checked, name: usize, log: &Log) -> Source {
        let (ours, theirs) = pair();
        let (readable, log) = (sources::readable(ours.try_clone().unwrap()), log.clone());
        let handler = scheduler.register_source(readable, move |ready: Ready| {
            assert!(ready.readable && drain(&ours) == 1);
            log.add(name.to_string());
        });
        resumed(scheduler, 1); // it waits for its first event
        Source { theirs, handler: handler.unwrap() }
    }

    fn report(&mut self) {
        self.theirs.write_all(&[0]).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Round {
    /// These sources report at once.
    Report(Vec<usize>),
    /// The handler is cancelled, and a source is registered anew in its place.
    Replace(usize),
}

const SOURCES: usize = 4;

fn round() -> impl Strategy<Value = Round> {
    let names: Vec<usize> = (0..SOURCES).collect();
    prop_oneof![
        8 => prop::sample::subsequence(names, 1..=SOURCES).prop_map(Round::Report),
        1 => (0..SOURCES).prop_map(Round::Replace),
    ]
}

proptest! {
    // A case that fails may take half a minute.
    #![proptest_config(ProptestConfig { cases: 32, max_shrink_iters: 4, ..ProptestConfig::default() })]
    #[test]
    fn each_report_resumes_its_handler_once_alone_or_among_others(rounds in prop::collection::vec(round(), 1..100)) {
        let ((mut scheduler, _alive), log) = (bounded(), Log::default());
        let mut all: Vec<Source> =
            (0..SOURCES).map(|name| Source::new(&mut scheduler, name, &log)).collect();
        for round in rounds {
            match round {
                Round::Report(names) => {
                    names.iter().for_each(|name| all[*name].report());
                    resumed(&mut scheduler, names.len());
                    let mut lines = log.0.take();
                    lines.sort();
                    prop_assert_eq!(lines, names.iter().map(ToString::to_string).collect::<Vec<_>>());
                }
                Round::Replace(name) => {
                    all[name].handler.cancel();
                    resumed(&mut scheduler, 1);
                    prop_assert!(all[name].handler.is_finished());
                    all[name] = Source::new(&mut scheduler, name, &log);
                }
            }
        }
    }
}

#[test]
fn of_two_that_wait_for_one_source_each_is_woken_and_one_has_the_event() {
    let ((mut scheduler, _alive), log) = (bounded(), Log::default());
    let (ours, mut theirs) = pair();
    let source = sources::readable(ours.try_clone().unwrap());
    let events: Rc<Events<Ready>> =
        Rc::new(scheduler.block_on(|| listen(source)).unwrap().unwrap());
    for name in ["first", "second"] {
        let (events, log, ours) = (events.clone(), log.clone(), ours.try_clone().unwrap());
        let takes = move || {
            while events.next().unwrap().is_some() {
                drain(&ours);
                log.add(name.to_string());
            }
        };
        drop(scheduler.spawn(takes).unwrap());
    }
    resumed(&mut scheduler, 2);
    for events in 1..=4 {
        theirs.write_all(&[0]).unwrap();
        resumed(&mut scheduler, 2);
        assert_eq!(log.lines().len(), events);
    }
}

#[test]
fn a_wait_for_two_sources_takes_from_whichever_reports() {
    let ((mut scheduler, _alive), log) = (bounded(), Log::default());
    let ((a, to_a), (b, to_b), seen) = (pair(), pair(), log.clone());
    let waits = move || -> io::Result<()> {
        let on_a = listen(sources::readable(a.try_clone()?))?;
        let on_b = listen(sources::readable(b.try_clone()?))?;
        loop {
            let woken = Wait::new().on(&on_a, |_| ("a", &a)).on(&on_b, |_| ("b", &b)).suspend()?;
            let (name, stream) = woken.unwrap();
            drain(stream);
            seen.add(name);
        }
    };
    drop(scheduler.spawn(waits).unwrap());
    resumed(&mut scheduler, 1);
    for mut to in [&to_a, &to_b, &to_b, &to_a] {
        to.write_all(&[0]).unwrap();
        resumed(&mut scheduler, 1);
    }
    assert_eq!(log.lines(), ["a", "b", "b", "a"]);
}

#[test]
fn a_stop_comes_before_an_event() {
    let ((mut scheduler, _alive), log) = (bounded(), Log::default());
    let mut source = Source::new(&mut scheduler, 0, &log);
    source.report();
    scheduler.handle().stop();
    assert!(matches!(scheduler.step().unwrap(), Step::Stopped));
    assert_eq!(log.lines(), [""; 0]);
    resumed(&mut scheduler, 1);
    assert_eq!(log.lines(), ["0"]);
}

#[test]
fn a_failure_reaches_the_caller_and_the_end_of_the_last_handler_is_seen() {
    for panics in [false, true] {
        let (scheduler, _alive) = bounded();
        let mut scheduler = scheduler.unchecked();
        let (ours, mut theirs) = pair();
        let fails = move |_| if panics { panic!("on purpose") } else { Err("on purpose") };
        drop(scheduler.register_source(sources::readable(ours), fails).unwrap());
        resumed(&mut scheduler, 1);
        theirs.write_all(&[0]).unwrap();
        match scheduler.step().unwrap() {
            Step::Failed(failure) => assert!(failure.to_string().ends_with("on purpose")),
            other => panic!("{other:?}"),
        }
        assert!(matches!(scheduler.step().unwrap(), Step::Complete));
    }
}
