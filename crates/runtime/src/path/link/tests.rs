//! Two programs, and a link between them that loses and breaks.

use std::collections::BTreeMap;
use std::sync::mpsc;

use comporta_model::ack::Settled;
use comporta_model::error;
use comporta_model::plan::Plan;
use comporta_model::port::{AsInput, Out};
use comporta_model::source::{Demand, Pull, Source};

use super::far::{Ends, Far, Weather};
use super::*;
use crate::app::App;
use crate::running::{Ended, Running};

const BOUND: Duration = Duration::from_secs(60);
const NUMBERS: u64 = 1_000;

/// Counts, and hears how each pull ended.
struct Counting {
    next: u64,
    /// The last number of each pull.
    pulls: BTreeMap<u64, u64>,
    handled: Arc<Mutex<Vec<u64>>>,
    /// Whether each pull it heard of had been handled, in the other program.
    told: Arc<Mutex<Vec<bool>>>,
}

impl Source for Counting {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;

    fn pull(&mut self, out: &mut Out<u64>, demand: Demand) -> error::Result<Pull> {
        let until = NUMBERS.min(self.next + demand.events as u64);
        (self.next..until).for_each(|n| out.send(n));
        self.next = until;
        if let Some(last) = until.checked_sub(1) {
            self.pulls.insert(demand.group, last);
        }
        Ok(if until == NUMBERS { Pull::End } else { Pull::More })
    }

    fn settled(&mut self, settled: Settled) {
        let last = self.pulls[&settled.group];
        let handled = self.handled.lock().contains(&last);
        self.told.lock().push(settled.is_clean() && handled);
    }
}

/// The program that sends, the one that receives, and what the latter handled.
struct Two {
    near: Running,
    far: Running,
    link: Arc<Near<u64>>,
    handled: Arc<Mutex<Vec<u64>>>,
    told: Arc<Mutex<Vec<bool>>>,
}

fn two(weather: Weather, first: impl FnOnce() + Send + 'static) -> Two {
    let (to_far, inbox) = mpsc::channel();
    let (to_near, from_far) = mpsc::channel();
    let handled = Arc::<Mutex<Vec<u64>>>::default();
    let told = Arc::<Mutex<Vec<bool>>>::default();

    let app = App::new("far");
    let numbers = app.source("numbers", std::iter::empty::<u64>);
    let see = handled.clone();
    let first = Arc::new(Mutex::new(Some(first)));
    let work = app.sink("work", move |n: u64| {
        let first = first.lock().take();
        first.into_iter().for_each(|first| first());
        see.lock().push(n);
    });
    app.connect(numbers, work);
    let own = to_far.clone();
    app.put_node(numbers.of, move |_, id| {
        let ends = Mutex::new(Some(Ends { inbox, to_near }));
        Arc::new(Far { id, inbox: own, ends, weather, state: Arc::default() })
    });
    let plan = Plan::new().threads(2).stage("work", |work| work.capacity(8));
    let far = app.start(&plan).expect("the plan fits");

    let app = App::new("near");
    let (of, tells) = (handled.clone(), told.clone());
    let numbers = app.source("numbers", move || Counting {
        next: 0,
        pulls: BTreeMap::new(),
        handled: of,
        told: tells,
    });
    let pass = app.map("pass", |n: u64| n);
    let work = app.sink("work", |_: u64| -> () { unreachable!("it is in the other program") });
    app.connect(numbers, pass);
    app.connect(pass, work);
    let (give, made) = mpsc::channel();
    app.put_node(work.as_input(), move |core, id| {
        let near = Near::new(core, id, to_far, from_far);
        let _ = give.send(near.clone());
        near
    });
    let near = app.start(&Plan::new().threads(2)).expect("the plan fits");
    let link = made.recv().expect("the node was made");
    Two { near, far, link, handled, told }
}

#[test]
fn a_link_that_loses_and_breaks_brings_each_event_once_in_order_and_then_the_end() {
    for seed in 0..4 {
        let weather = Weather { lost: 5, breaks: 100, seed };
        let Two { near, far, link, handled, told } = two(weather, || ());
        let near = near.wait_for(BOUND).unwrap_or_else(|near| panic!("{}", near.snapshot()));
        let far = far.wait_for(BOUND).unwrap_or_else(|far| panic!("{}", far.snapshot()));
        for summary in [&near, &far] {
            assert_eq!(summary.ended, Ended::Complete, "seed {seed}");
            assert!(summary.snapshot.adds_up(), "seed {seed}: {summary}");
        }
        assert!(handled.lock().iter().copied().eq(0..NUMBERS), "seed {seed}");
        let state = link.state.lock();
        assert_eq!(state.most, WINDOW, "the window was used, and held");
        assert_eq!(state.incarnation, 1 + (NUMBERS / 100) as u32);
        drop(state);
        let told = told.lock();
        assert!(!told.is_empty() && told.iter().all(|told| *told), "seed {seed}");
    }
}

#[test]
fn a_receiver_that_does_not_go_on_holds_the_sender_back() {
    let (go, wait) = mpsc::channel::<()>();
    let weather = Weather { lost: 5, breaks: 100, seed: 9 };
    let two = two(weather, move || assert!(wait.recv().is_err()));
    let waits = || two.near.snapshot().stage("work").is_some_and(|work| work.outboxed > 0);
    while !waits() {
        std::thread::yield_now();
    }
    let far = two.far.snapshot();
    let work = far.stage("work").unwrap();
    assert!(far.adds_up() && work.queued <= work.capacity, "{far}");
    let offered = two.near.snapshot().stage("work").unwrap().counts.offered;
    assert!(offered < NUMBERS, "{offered}");
    drop(go);
    assert!(two.near.wait_for(BOUND).is_ok() && two.far.wait_for(BOUND).is_ok());
    assert!(two.handled.lock().iter().copied().eq(0..NUMBERS));
}

#[test]
fn a_stop_of_the_sender_ends_the_receiver_and_all_is_accounted_for() {
    let (go, wait) = mpsc::channel::<()>();
    let weather = Weather { lost: 5, breaks: 100, seed: 3 };
    let Two { near, far, handled, .. } = two(weather, move || assert!(wait.recv().is_err()));
    while near.snapshot().stage("work").is_none_or(|work| work.outboxed == 0) {
        std::thread::yield_now();
    }
    let near = near.stop();
    assert!(near.snapshot.adds_up(), "{near}");
    assert!(near.snapshot.stage("work").unwrap().counts.cancelled > 0, "{near}");
    drop(go);
    let far = far.wait_for(BOUND).unwrap_or_else(|far| panic!("{}", far.snapshot()));
    assert!(far.snapshot.adds_up(), "{far}");
    let handled = handled.lock();
    assert!(handled.iter().copied().eq(0..handled.len() as u64), "no prefix");
}
