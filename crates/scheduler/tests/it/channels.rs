//! Channels between coroutines, held against a plain queue.

use crate::{Log, scheduler};
use comporta_scheduler::{channel, sleep, spawn, yield_now};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError, TrySendError};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_sender_is_suspended_while_the_channel_is_full() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let (sender, receiver) = channel(2);
    let inner = log.clone();
    scheduler
        .spawn(move || {
            for n in 1..=4 {
                sender.send(n).unwrap();
                inner.add(format!("sent {n}"));
            }
        })
        .unwrap();
    let inner = log.clone();
    scheduler.spawn(move || receiver.iter().for_each(|n| inner.add(format!("got {n}")))).unwrap();
    scheduler.run().unwrap();
    assert_eq!(
        log.lines(),
        ["sent 1", "sent 2", "got 1", "got 2", "sent 3", "sent 4", "got 3", "got 4"]
    );
}

#[test]
fn an_item_without_receiver_is_given_back() {
    let mut scheduler = scheduler();
    scheduler
        .block_on(|| {
            let (sender, receiver) = channel(1);
            sender.send("kept").unwrap();
            let blocked = {
                let sender = sender.clone();
                spawn(move || sender.send("blocked")).unwrap()
            };
            yield_now();
            drop(receiver);
            assert_eq!(blocked.join().unwrap().unwrap_err().0, "blocked");
            assert_eq!(sender.send("late").unwrap_err().0, "late");
            assert_eq!(sender.try_send("late"), Err(TrySendError::Disconnected("late")));
        })
        .unwrap();
}

#[test]
fn a_receiver_waits_no_longer_than_its_limit_and_hears_of_the_end() {
    let mut scheduler = scheduler();
    scheduler
        .block_on(|| {
            let (sender, receiver) = channel(1);
            assert_eq!(receiver.recv_timeout(SECOND), Err(RecvTimeoutError::Timeout));
            let late = spawn(move || {
                sleep(SECOND);
                sender.send(1).unwrap();
            });
            assert_eq!(receiver.recv_timeout(2 * SECOND), Ok(1));
            late.unwrap().join().unwrap();
            assert_eq!(receiver.recv_timeout(SECOND), Err(RecvTimeoutError::Disconnected));
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
            assert!(receiver.recv().is_err());
        })
        .unwrap();
}

#[test]
fn room_goes_to_whoever_waited_longest_and_newcomers_go_behind() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let inner = log.clone();
    scheduler
        .block_on(move || {
            let (sender, receiver) = channel(1);
            sender.send(0).unwrap();
            for n in 1..=3 {
                let sender = sender.clone();
                spawn(move || sender.send(n).unwrap()).unwrap();
            }
            yield_now(); // all three wait
            assert_eq!(receiver.recv(), Ok(0)); // wakes 1, which has not run yet
            assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)));
            let newcomer = sender.clone();
            spawn(move || newcomer.send(4).unwrap()).unwrap();
            drop(sender);
            receiver.iter().for_each(|n| inner.add(n.to_string()));
        })
        .unwrap();
    assert_eq!(log.lines(), ["1", "2", "3", "4"]);
}

#[test]
fn a_wakeup_of_a_cancelled_sender_goes_to_the_next() {
    let mut scheduler = scheduler();
    let got = scheduler.block_on(|| {
        let (sender, receiver) = channel(1);
        sender.send(0).unwrap();
        let mut waiting = Vec::new();
        for n in 1..=2 {
            let sender = sender.clone();
            waiting.push(spawn(move || sender.send(n).unwrap()).unwrap());
        }
        yield_now();
        assert_eq!(receiver.recv(), Ok(0)); // wakes the first
        waiting[0].cancel(); // before it runs
        drop(sender);
        receiver.recv_timeout(SECOND)
    });
    assert_eq!(got.unwrap(), Ok(2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the capacity, the senders and who yields when: nothing is lost, nothing is doubled,
    /// each sender's items stay in order, and the channel never holds more than its capacity.
    #[test]
    fn channels_behave_like_a_bounded_queue(
        capacity in 1_usize..4,
        senders in prop::collection::vec(prop::collection::vec(0_u8..4, 0..20), 1..5),
        pauses in prop::collection::vec(0_u8..4, 1..20),
    ) {
        let mut scheduler = scheduler();
        let model = Rc::new(RefCell::new(VecDeque::new()));
        let (sender, receiver) = channel(capacity);
        for (number, items) in senders.iter().cloned().enumerate() {
            let (sender, model) = (sender.clone(), model.clone());
            scheduler.spawn(move || {
                for (place, yields) in items.into_iter().enumerate() {
                    (0..yields).for_each(|_| yield_now());
                    sender.send((number, place)).unwrap();
                    model.borrow_mut().push_back((number, place));
                    assert!(model.borrow().len() <= capacity);
                }
            }).unwrap();
        }
        drop(sender);
        let all = scheduler.block_on(move || {
            let mut all = Vec::new();
            for pause in pauses.into_iter().cycle() {
                (0..pause).for_each(|_| yield_now());
                let Ok(item) = receiver.recv() else { break };
                assert_eq!(model.borrow_mut().pop_front(), Some(item));
                all.push(item);
            }
            all
        });
        let all = all.unwrap();
        prop_assert_eq!(all.len(), senders.iter().map(Vec::len).sum::<usize>());
        for (number, items) in senders.iter().enumerate() {
            let places = all.iter().filter(|(from, _)| *from == number).map(|(_, place)| *place);
            prop_assert!(places.eq(0..items.len()));
        }
    }
}
