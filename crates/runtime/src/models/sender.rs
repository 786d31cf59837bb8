//! Models of `Sender`: callers outside who wait for room, give up, or meet the end.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use comporta_model::plan::Plan;
use shuttle::thread::{self, Thread};

use super::{Seen, check, explore, handled, in_order, start};
use crate::app::App;
use crate::path::sender::{SendError, Sender};
use crate::stage::permits::Shed;

/// One input, one place.
fn input_of(seen: &Seen<u32>) -> (App, Sender<u32>) {
    let app = App::new("input");
    let see = seen.clone();
    let (sender, input) = app.input("input");
    let end = app.sink("end", move |n: u32| see.see(n));
    app.connect(input, end);
    (app, sender)
}

fn plan() -> Plan {
    Plan::new().threads(1).every(|s| s.capacity(1).batch(1))
}

#[test]
fn pushes_that_wait_for_one_place_all_get_in_and_in_order() {
    explore(|| {
        let seen = Seen::new();
        let (app, sender) = input_of(&seen);
        let (running, _) = start(app, &plan());
        let other = sender.clone();
        thread::spawn(move || (10..13).for_each(|n| other.send(n).unwrap()));
        (0..3).for_each(|n| sender.send(n).unwrap());
        drop(sender);
        check(&running.wait());
        in_order(&seen.all(), &[0, 10], 3);
    });
}

#[test]
fn a_close_lets_waiting_pushes_in_and_turns_later_ones_away() {
    explore(|| {
        let seen = Seen::new();
        let (app, sender) = input_of(&seen);
        let (running, _) = start(app, &plan());
        let pushers = [0, 10].map(|base| {
            let sender = sender.clone();
            thread::spawn(move || {
                let taken = (base..base + 2).take_while(|n| match sender.send(*n) {
                    Ok(()) => true,
                    Err(SendError::Closed(given_back)) => {
                        assert_eq!(given_back, *n);
                        false
                    }
                    Err(error) => panic!("{error}"),
                });
                taken.count() as u64
            })
        });
        sender.close();
        let summary = running.wait();
        check(&summary);
        let taken: u64 = pushers.into_iter().map(|pusher| pusher.join().unwrap()).sum();
        assert_eq!(handled(&summary, "end"), taken);
    });
}

struct Unpark(Thread);
impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn a_future_dropped_while_it_waits_takes_nobodys_place_with_it() {
    explore(|| {
        let seen = Seen::new();
        let (app, sender) = input_of(&seen);
        let (running, _) = start(app, &plan());
        let giver_up = sender.clone();
        let giver_up = thread::spawn(move || {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            let mut context = Context::from_waker(&waker);
            giver_up.send(0).unwrap();
            let mut waiting = pin!(giver_up.send_async(1));
            let first = waiting.as_mut().poll(&mut context);
            if first.is_pending() {
                thread::yield_now(); // it may be granted a place now, and leaves all the same
            }
            u64::from(first.is_pending())
        });
        (10..13).for_each(|n| sender.send(n).unwrap());
        drop(sender);
        let summary = running.wait();
        let dropped = giver_up.join().unwrap();
        assert!(summary.snapshot.adds_up(), "{summary}");
        let end = summary.snapshot.stages.iter().find(|s| s.name == "end").unwrap();
        let abandoned = end.counts.shed(Shed::Abandoned);
        assert_eq!((abandoned, end.counts.handled), (dropped, 5 - dropped), "{summary}");
    });
}

#[test]
fn a_future_that_waits_is_woken_for_every_place() {
    explore(|| {
        let seen = Seen::new();
        let (app, sender) = input_of(&seen);
        let (running, _) = start(app, &plan());
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        for n in 0..3 {
            let mut pushing = pin!(sender.send_async(n));
            while pushing.as_mut().poll(&mut context).is_pending() {
                thread::park();
            }
        }
        drop(sender);
        check(&running.wait());
        in_order(&seen.all(), &[0], 3);
    });
}
