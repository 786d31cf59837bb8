//! Suspension until one of several things happens, with the parameters registered for it.

use crate::scheduler;
use comporta_scheduler::{
    EventSource, Notifier, Step, Wait, channel, listen, now, on_end, sleep, sources, spawn, stop,
    yield_now,
};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq)]
enum Woken {
    Number(u32),
    Word(&'static str, u8),
    Tick(Duration),
    Late,
}

fn kept<E: 'static>() -> (Rc<RefCell<Option<Notifier<E>>>>, impl EventSource<Event = E>) {
    let kept = Rc::new(RefCell::new(None));
    let to = kept.clone();
    let source = sources::callback(move |notifier| {
        to.replace(Some(notifier));
        Ok(())
    });
    (kept, source)
}

#[test]
fn the_coroutine_is_given_the_parameters_of_what_woke_it() {
    let woken = scheduler().block_on(|| {
        let began = now();
        let ticks = listen(sources::every(4 * SECOND)).unwrap();
        let (sender, words) = channel(1);
        spawn(move || {
            sleep(5 * SECOND);
            sender.send("word").unwrap();
        })
        .unwrap();
        let mut woken = Vec::new();
        for parameter in 0..4 {
            let wait = Wait::new()
                .on(&ticks, |at| Woken::Tick(at - began))
                .on(&words, move |word| Woken::Word(word, parameter))
                .after(3 * SECOND, Woken::Late);
            woken.push(wait.suspend().unwrap().unwrap());
        }
        woken
    });
    let expected =
        [Woken::Late, Woken::Tick(4 * SECOND), Woken::Word("word", 2), Woken::Tick(8 * SECOND)];
    assert_eq!(woken.unwrap(), expected);
}

#[test]
fn sources_finalizers_and_wakeups_are_registered_while_the_handler_runs() {
    let ended = Rc::new(RefCell::new(Vec::new()));
    let log = ended.clone();
    let mut scheduler = scheduler();
    scheduler
        .register_source(sources::after(SECOND), move |_| {
            let log = log.clone();
            on_end(move |end| log.borrow_mut().push(end.is_ok()));
            let (kept, source) = kept();
            let numbers = listen(source).unwrap();
            spawn(move || kept.borrow().as_ref().unwrap().notify(7).unwrap()).unwrap();
            let wait = Wait::new().on(&numbers, Woken::Number).after(SECOND, Woken::Late);
            assert_eq!(wait.suspend().unwrap(), Some(Woken::Number(7)));
            stop();
        })
        .unwrap();
    assert!(scheduler.run().unwrap().stopped);
    assert!(!scheduler.run().unwrap().stopped);
    assert_eq!(*ended.borrow(), [true]);
}

#[test]
fn a_wait_outlives_sources_that_end_and_ends_with_the_last() {
    scheduler()
        .block_on(|| {
            let once = listen(sources::after(SECOND)).unwrap();
            let (sender, words) = channel(1);
            let wait = || Wait::new().on(&once, |_| "once").on(&words, |word| word).suspend();
            assert_eq!(wait().unwrap(), Some("once"));
            sender.send("word").unwrap();
            assert_eq!(wait().unwrap(), Some("word"));
            drop(sender);
            assert_eq!(wait().unwrap(), None);
            assert_eq!(Wait::<()>::new().suspend().unwrap(), None);
        })
        .unwrap();
}

#[test]
fn a_source_that_fails_fails_the_wait() {
    scheduler()
        .block_on(|| {
            let source =
                sources::polled(|_| -> io::Result<Option<()>> { Err(io::Error::other("no")) });
            let failing = listen(source).unwrap();
            let wait = Wait::new().on(&failing, |()| ()).after(SECOND, ());
            assert_eq!(wait.suspend().unwrap_err().to_string(), "no");
        })
        .unwrap();
}

#[test]
fn of_several_that_are_always_ready_each_has_its_turn() {
    let woken = scheduler().block_on(|| {
        let ends = [1, 2].map(|which| {
            let (sender, receiver) = channel(50);
            (0..50).for_each(|_| sender.send(which).unwrap());
            receiver
        });
        let mut woken = [0; 3];
        for _ in 0..50 {
            let wait = Wait::new().on(&ends[0], |n: usize| n).on(&ends[1], |n| n);
            woken[wait.suspend().unwrap().unwrap()] += 1;
        }
        woken
    });
    assert_eq!(woken.unwrap(), [0, 25, 25]);
}

#[test]
fn a_limit_that_was_not_needed_does_not_wake_a_later_wait() {
    let slept = scheduler().block_on(|| {
        let (sender, receiver) = channel(1);
        for _ in 0..3 {
            let sender = sender.clone();
            spawn(move || sender.send(()).unwrap()).unwrap();
            receiver.recv_timeout(SECOND).unwrap();
        }
        let began = now();
        sleep(5 * SECOND);
        now() - began
    });
    assert_eq!(slept.unwrap(), 5 * SECOND);
}

#[test]
fn a_wakeup_that_a_wait_does_not_use_goes_to_the_next() {
    scheduler()
        .block_on(|| {
            let (first_sender, first) = channel(1);
            let (second_sender, second) = channel(1);
            let second = Rc::new(second);
            let (wait_second, plain_second) = (second.clone(), second);
            let selecting = spawn(move || {
                Wait::new().on(&first, |n| n).on(&*wait_second, |n| n).suspend().unwrap()
            });
            yield_now();
            let plain = spawn(move || plain_second.recv_timeout(SECOND));
            yield_now();
            // Both lists would wake the one that selects; it can use only one of the items.
            first_sender.send(1).unwrap();
            second_sender.send(2).unwrap();
            let selected = selecting.unwrap().join().unwrap();
            let received = plain.unwrap().join().unwrap();
            assert_eq!((selected, received), (Some(1), Ok(2)));
        })
        .unwrap();
}

#[test]
fn of_waits_that_alternate_no_source_starves() {
    let received = scheduler().block_on(|| {
        let ends = [0, 1, 2, 3].map(|which| {
            let (sender, receiver) = channel(100);
            (0..100).for_each(|_| sender.send(which).unwrap());
            receiver
        });
        let mut received = [0; 4];
        for _ in 0..50 {
            for pair in ends.chunks(2) {
                let wait = Wait::new().on(&pair[0], |n: usize| n).on(&pair[1], |n| n);
                received[wait.suspend().unwrap().unwrap()] += 1;
            }
        }
        received
    });
    assert_eq!(received.unwrap(), [25; 4]);
}

#[test]
fn a_source_that_is_always_ready_does_not_keep_another_of_the_same_wait_from_its_turn() {
    let turns = scheduler().block_on(|| {
        let (sender, busy) = channel(2);
        let (quiet_sender, quiet) = channel(1);
        sender.send("busy").unwrap();
        let mut turns = Vec::new();
        for turn in 0..6 {
            sender.send("busy").unwrap();
            if turn == 3 {
                quiet_sender.send("quiet").unwrap();
            }
            let wait = Wait::new().on(&busy, |word| word).on(&quiet, |word| word);
            turns.push(wait.suspend().unwrap().unwrap());
            if turns.last() == Some(&"quiet") {
                busy.recv().unwrap();
            }
        }
        turns
    });
    assert_eq!(turns.unwrap(), ["busy", "busy", "busy", "quiet", "busy", "busy"]);
}

#[test]
fn coroutines_that_wait_for_the_same_source_among_others_come_to_rest() {
    // Each is woken by what the first takes; one that finds nothing must not wake the others for it.
    let mut scheduler = scheduler();
    let (notifier, source) = kept::<u32>();
    let taken = Rc::new(RefCell::new(Vec::new()));
    let (sender, receiver) = channel::<u32>(8);
    let receiver = Rc::new(receiver);
    let all = taken.clone();
    scheduler
        .spawn(move || {
            let events = Rc::new(listen(source).unwrap());
            for _ in 0..3 {
                let (events, receiver, taken) = (events.clone(), receiver.clone(), all.clone());
                spawn(move || {
                    while let Some(number) =
                        Wait::new().on(&*events, |n| n).on(&*receiver, |n| n).suspend().unwrap()
                    {
                        taken.borrow_mut().push(number);
                    }
                })
                .unwrap();
            }
        })
        .unwrap();
    let mut rest = || {
        let step = || scheduler.step_within(Duration::ZERO).unwrap();
        let steps = std::iter::repeat_with(step).take(100);
        assert!(steps.take_while(|step| matches!(step, Step::Resumed)).count() < 100);
    };
    rest();
    sender.try_send(1).unwrap();
    rest();
    notifier.borrow().as_ref().unwrap().notify(2).unwrap();
    rest();
    assert_eq!(*taken.borrow(), [1, 2]);
}

#[test]
fn a_wake_up_for_another_source_than_the_one_taken_goes_to_the_next_that_waits() {
    // The first is woken by an item of `items`, but takes a word that came meanwhile: the second has the item.
    let got = scheduler().block_on(|| {
        let (items, item) = channel::<u32>(8);
        let (words, word) = channel::<u32>(8);
        let item = Rc::new(item);
        let (got, second) = (Rc::new(RefCell::new(Vec::new())), item.clone());
        let (first_got, second_got) = (got.clone(), got.clone());
        let first = spawn(move || {
            let wait = Wait::new().on(&word, |n| n).on(&*item, |n| n);
            let number = wait.suspend().unwrap().unwrap();
            first_got.borrow_mut().push(("first", number));
        });
        let second = spawn(move || {
            let number = second.recv().unwrap();
            second_got.borrow_mut().push(("second", number));
        });
        yield_now();
        items.send(1).unwrap();
        words.send(2).unwrap();
        first.unwrap().join().unwrap();
        second.unwrap().join_timeout(SECOND).unwrap().unwrap();
        got.take()
    });
    assert_eq!(got.unwrap(), [("first", 2), ("second", 1)]);
}
