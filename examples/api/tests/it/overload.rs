//! Three times as many requests as the supplier can serve: those that would wait too long are refused at once, and
//! the supplier is never idle. Over sockets, step by step; and on virtual time, at a steady rate.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use api::program;
use api::quotes::{self, Answer, Order, Price, Supplier};
use comporta::testing::TestRuntime;
use comporta::{App, AsyncCx, Choice, Plan, Refusal, WhenFull};
use tokio::sync::Semaphore;

use crate::client::{all, quotes, until};
use crate::responses::{served, supplied};

/// Serves as many as the test lets it.
struct Gate {
    begun: Arc<AtomicUsize>,
    permits: Arc<Semaphore>,
}

impl Supplier for Gate {
    fn price<'a>(&'a self, _: &'a str, _: &'a AsyncCx) -> Price<'a> {
        Box::pin(async {
            self.begun.fetch_add(1, SeqCst);
            self.permits.acquire().await?.forget();
            Ok(Some(100))
        })
    }
}

/// How many requests are with the supplier, and how many wait for it.
const SERVED: usize = 4;
const QUEUED: usize = 8;
const CAPACITY: usize = SERVED + QUEUED;

const ROUNDS: usize = 5;

/// Offers three times the capacity, round by round.
fn at_three_times_its_capacity(plan: &Plan) {
    let (begun, permits) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (app, address) = served();
    supplied(&app, Gate { begun: begun.clone(), permits: permits.clone() });
    let hour = Duration::from_secs(3600);
    let plan = plan
        .clone()
        .stage("quotes", |quotes| quotes.deadline(hour))
        .stage("price", |price| price.instances(SERVED).timeout(hour));
    let running = app.start(&plan).unwrap();
    for round in 0..ROUNDS {
        let mut accepted = quotes(address, SERVED);
        until("all with the supplier", || begun.load(SeqCst) == round * CAPACITY + SERVED);
        accepted.extend(quotes(address, QUEUED));
        until("all queued", || running.snapshot().stage("price").unwrap().queued == QUEUED);
        for refused in all(quotes(address, 2 * CAPACITY)) {
            assert_eq!(refused.status, 503, "{refused:?}");
            assert_eq!(refused.header("retry-after"), Some("1"), "{refused:?}");
        }
        permits.add_permits(CAPACITY);
        for answered in all(accepted) {
            assert_eq!(answered.status, 200, "{answered:?}");
        }
    }
    let summary = running.drain();
    let replies = summary.snapshot.stage("quotes-replies").unwrap();
    assert_eq!(replies.counts.handled, (ROUNDS * CAPACITY) as u64, "{summary}");
    assert!(summary.snapshot.adds_up(), "{summary}");
}

#[test]
fn a_full_queue_refuses_what_is_too_much_and_the_rest_is_answered() {
    at_three_times_its_capacity(&Plan::new().stage("price", |price| {
        price.capacity(QUEUED).when_full(WhenFull::Reject).admission(Choice::new("none"))
    }));
}

#[test]
fn an_admission_controller_refuses_what_is_too_much_and_the_rest_is_answered() {
    at_three_times_its_capacity(&Plan::new().stage("price", |price| {
        price.capacity(1_000).admission(Choice::new("capacity").with("max", QUEUED as i64))
    }));
}

type Asked<'a> = Pin<Box<dyn Future<Output = Result<Answer, Refusal<Order>>> + 'a>>;

/// What became of requests that came at a steady rate.
#[derive(Debug, Default)]
struct Outcomes {
    answered: usize,
    refused: usize,
    late: usize,
}

/// The graph under its own plan, for so many seconds of virtual time.
fn at_a_rate(per_second: u32, seconds: u32, plan: &Plan) -> Outcomes {
    let app = App::new("load");
    let client = quotes::graph(&app, TAKES);
    app.set_plan(program::plan());
    let mut runtime = TestRuntime::new(app, plan).unwrap();
    let mut outcomes = Outcomes::default();
    let mut asked: Vec<Asked<'_>> = Vec::new();
    let tick = Duration::from_secs(1) / per_second;
    let ticks = seconds * per_second;
    for n in 0..ticks + 2 * per_second {
        if n < ticks {
            let order = Order { item: "tea".to_owned(), quantity: 1 };
            asked.push(Box::pin(client.request(order)));
        }
        runtime.run_until_idle();
        asked.retain_mut(|request| {
            let Poll::Ready(outcome) =
                request.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            else {
                return true;
            };
            match outcome {
                Ok(_) => outcomes.answered += 1,
                Err(Refusal::Rejected(_) | Refusal::Refused(..) | Refusal::Shed { .. }) => {
                    outcomes.refused += 1;
                }
                Err(Refusal::Deadline) => outcomes.late += 1,
                Err(other) => panic!("{other}"),
            }
            false
        });
        runtime.advance(tick);
    }
    assert!(asked.is_empty(), "{} requests have no outcome", asked.len());
    outcomes
}

/// How long the supplier takes, and so how many it serves in a second: eight at once.
const TAKES: Duration = Duration::from_millis(20);
const PER_SECOND: u32 = 400;

#[test]
fn below_its_capacity_every_request_is_answered() {
    let outcomes = at_a_rate(PER_SECOND * 9 / 10, 3, &Plan::new());
    assert_eq!(outcomes.answered, PER_SECOND as usize * 9 / 10 * 3, "{outcomes:?}");
}

#[test]
fn at_three_times_its_capacity_goodput_is_held_and_nobody_waits_in_vain() {
    for admission in ["codel", "deadline", "none"] {
        let plan = Plan::new().stage("price", |price| price.admission(Choice::new(admission)));
        let outcomes = at_a_rate(3 * PER_SECOND, 3, &plan);
        let capacity = 3 * PER_SECOND as usize;
        assert!(outcomes.answered * 100 >= capacity * 95, "{admission}: {outcomes:?}");
        assert_eq!(outcomes.late, 0, "{admission}: {outcomes:?}");
    }
}
