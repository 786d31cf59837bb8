//! Nobody starves: handlers that are always ready beside one that becomes ready once, in every mixture.
//! The bound is exact, in steps: whoever is ready is resumed after those in the ready queue, and the
//! sources are asked at least every 64 handlers.

use crate::scheduler;
use comporta_scheduler::net::UnixStream;
use comporta_scheduler::{
    EventSource, Notifier, Registration, Scheduler, Step, channel, listen, register_source,
    sources, yield_now,
};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::Duration;

/// Handlers resumed at most before the observer is asked (`ASK_EVERY` in `core.rs`).
const ASK_EVERY: usize = 64;

/// A handler, or two, for which there is always something to do.
#[derive(Clone, Copy, Debug)]
enum Greedy {
    /// Yields, and is ready again.
    Yields,
    /// Two that answer each other.
    Channel,
    /// Reads from a socket that always has something.
    Socket,
    /// A synchronous source that always has an event.
    Polled,
    /// A callback that is called by its own handler.
    Callback,
    /// A timer that is always due.
    Timer,
}

/// What becomes ready once.
#[derive(Clone, Copy, Debug)]
enum Once {
    Callback,
    Polled,
    Socket,
    Timer,
}

/// How often a handler had its turn.
type Turns = Rc<Cell<u64>>;

fn count(turns: &Turns) {
    turns.set(turns.get() + 1);
}

/// A source whose notifier is kept outside.
struct Kept(Rc<RefCell<Option<Notifier<()>>>>);

impl EventSource for Kept {
    type Event = ();
    fn attach(self, to: Registration<'_, ()>) -> io::Result<()> {
        self.0.replace(Some(to.notifier()));
        Ok(())
    }
}

fn start(greedy: Greedy, scheduler: &mut Scheduler) -> Turns {
    let turns = Turns::default();
    let own = turns.clone();
    match greedy {
        Greedy::Yields => drop(scheduler.spawn(move || {
            loop {
                count(&own);
                yield_now();
            }
        })),
        Greedy::Channel => {
            let ((to, from), (back, returned)) = (channel(1), channel(1));
            scheduler.spawn(move || from.iter().for_each(|()| back.send(()).unwrap())).unwrap();
            drop(scheduler.spawn(move || {
                loop {
                    count(&own);
                    to.send(()).unwrap();
                    returned.recv().unwrap();
                }
            }));
        }
        Greedy::Socket => {
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            drop(scheduler.spawn(move || {
                loop {
                    count(&own);
                    theirs.write_all(&[0; 2]).unwrap();
                    ours.read_exact(&mut [0; 2]).unwrap();
                }
            }));
        }
        Greedy::Polled => {
            let source = sources::polled(|_| Ok(Some(())));
            drop(scheduler.register_source(source, move |()| count(&own)));
        }
        Greedy::Callback => {
            let notifier = Rc::new(RefCell::new(None));
            let again = notifier.clone();
            let handler = move |()| {
                count(&own);
                let notifier = again.borrow();
                let notifier: &Notifier<()> = notifier.as_ref().unwrap();
                notifier.notify(()).unwrap();
            };
            drop(scheduler.register_source(Kept(notifier.clone()), handler));
            notifier.borrow().as_ref().unwrap().notify(()).unwrap();
        }
        Greedy::Timer => {
            drop(scheduler.register_source(sources::every(Duration::ZERO), move |_| count(&own)));
        }
    }
    turns
}

/// Starts a handler of something that is not ready; the result makes it ready.
fn start_once(once: Once, scheduler: &mut Scheduler, turns: Turns) -> Box<dyn FnOnce()> {
    let handler = move || count(&turns);
    match once {
        Once::Callback => {
            let notifier = Rc::new(RefCell::new(None));
            scheduler.register_source(Kept(notifier.clone()), move |()| handler()).unwrap();
            Box::new(move || notifier.borrow().as_ref().unwrap().notify(()).unwrap())
        }
        Once::Polled => {
            let ready = Rc::new(Cell::new(None));
            let source = ready.clone();
            let source = sources::polled(move |_| Ok(source.take()));
            scheduler.register_source(source, move |()| handler()).unwrap();
            Box::new(move || ready.set(Some(())))
        }
        Once::Socket => {
            let (mut ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let source = sources::readable(std::os::fd::OwnedFd::from(ours.try_clone().unwrap()));
            ours.set_nonblocking(true).unwrap();
            scheduler
                .register_source(source, move |_| {
                    ours.read_exact(&mut [0]).unwrap();
                    handler();
                })
                .unwrap();
            Box::new(move || theirs.write_all(&[0]).unwrap())
        }
        Once::Timer => {
            // The callback is taken at once (it is tested above); then the timer is due.
            let set = Rc::new(RefCell::new(None));
            let kept = set.clone();
            scheduler
                .spawn(move || {
                    let begin = listen(Kept(kept)).unwrap();
                    begin.next().unwrap();
                    register_source(sources::after(Duration::ZERO), move |_| handler()).unwrap();
                })
                .unwrap();
            Box::new(move || {
                let notifier: Notifier<()> = set.take().unwrap();
                notifier.notify(()).unwrap();
            })
        }
    }
}

fn greedy() -> impl Strategy<Value = Greedy> {
    prop_oneof![
        Just(Greedy::Yields),
        Just(Greedy::Channel),
        Just(Greedy::Socket),
        Just(Greedy::Polled),
        Just(Greedy::Callback),
        Just(Greedy::Timer),
    ]
}

fn once() -> impl Strategy<Value = Once> {
    prop_oneof![Just(Once::Callback), Just(Once::Polled), Just(Once::Socket), Just(Once::Timer)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_becomes_ready_once_is_handled_within_a_bound_whatever_else_is_always_ready(
        kinds in prop::collection::vec(greedy(), 1..12),
        once in once(),
        before in 0_usize..200,
    ) {
        let mut scheduler = crate::real_scheduler();
        let turns: Vec<Turns> = kinds.iter().map(|kind| start(*kind, &mut scheduler)).collect();
        let handled = Turns::default();
        let make_ready = start_once(once, &mut scheduler, handled.clone());
        let mut step = || assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
        // Everybody has begun and waits for something.
        (0..200 + before).for_each(|_| step());
        make_ready();
        let handlers = 2 * kinds.len() + 2;
        let asks = if matches!(once, Once::Timer) { 2 } else { 1 };
        let bound = asks * (ASK_EVERY + handlers) + 1;
        let steps = (0..bound).take_while(|_| handled.get() == 0).map(|_| step()).count();
        prop_assert_eq!(handled.get(), 1, "after {} steps", steps);
        // And all of those that are always ready go on.
        let so_far: Vec<u64> = turns.iter().map(|turns| turns.get()).collect();
        (0..2 * (ASK_EVERY + handlers)).for_each(|_| step());
        for (turns, before) in turns.iter().zip(so_far) {
            prop_assert!(turns.get() > before);
        }
    }
}

#[test]
fn handlers_that_are_always_ready_have_as_many_turns_each() {
    let mut scheduler = scheduler();
    let turns: Vec<Turns> = (0..10).map(|_| start(Greedy::Yields, &mut scheduler)).collect();
    (0..1000).for_each(|_| assert!(matches!(scheduler.step().unwrap(), Step::Resumed)));
    assert!(turns.iter().all(|turns| turns.get() == 100));
}

#[test]
fn synchronous_sources_that_are_always_ready_have_as_many_turns_each() {
    let mut scheduler = scheduler();
    let turns: Vec<Turns> = (0..5).map(|_| start(Greedy::Polled, &mut scheduler)).collect();
    (0..1000).for_each(|_| assert!(matches!(scheduler.step().unwrap(), Step::Resumed)));
    let turns: Vec<u64> = turns.iter().map(|turns| turns.get()).collect();
    assert!(turns.iter().max().unwrap() - turns.iter().min().unwrap() <= 2, "{turns:?}");
}
