//! The program on virtual time, with a made-up directory in the place of the service: nothing here waits for real.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::{TestRuntime, replace_resource};
use comporta::{App, Error, Plan, Retry, Snapshot};

use crate::directory::{Answer, Directory};
use crate::program::{self, Limits, Line};
use crate::service::Faults;
use crate::visits::{Visit, generate};

const SECOND: Duration = Duration::from_secs(1);

/// What a made-up directory does when it is asked for the n-th time, from 1.
type Says = fn(Ipv4Addr, u32) -> Answer<'static>;
type Asked = Arc<Mutex<HashMap<Ipv4Addr, u32>>>;

struct MadeUp {
    asked: Asked,
    says: Says,
}

impl Directory for MadeUp {
    fn country(&self, address: Ipv4Addr) -> Answer<'_> {
        let mut asked = self.asked.lock().unwrap();
        let times = asked.entry(address).or_default();
        *times += 1;
        (self.says)(address, *times)
    }
}

fn country(name: &str) -> Answer<'static> {
    let name = name.to_owned();
    Box::pin(async { Ok(name) })
}

/// A visit from each of these, by their last byte.
fn visits(from: &[u8]) -> Vec<Visit> {
    let address = |last: &u8| Ipv4Addr::new(198, 18, 0, *last);
    from.iter().map(|last| Visit { address: address(last), bytes: 1 }).collect()
}

fn app(visits: Vec<Visit>, rate: f64, says: Says) -> (App, Asked, Arc<Mutex<Vec<Line>>>) {
    let limits = Limits { rate, ..Limits::default() };
    let faults = Faults { slow: 0.0, delay: Duration::ZERO, failing: 0.0, unknown: 0.0, limit: 1 };
    let (asked, lines) = (Asked::default(), Arc::new(Mutex::new(Vec::new())));
    let into = lines.clone();
    let app = program::app(visits.into_iter(), &limits, faults, move |line| {
        into.lock().unwrap().push(line);
    });
    let made_up = MadeUp { asked: asked.clone(), says };
    replace_resource(&app, "directory", move || Ok(Box::new(made_up) as Box<dyn Directory>));
    (app, asked, lines)
}

fn plan() -> Plan {
    let retry = Retry::new(3, SECOND).jitter(false);
    Plan::new().stage("locate", |locate| locate.instances(8).timeout(5 * SECOND).retry(retry))
}

fn handled(snapshot: &Snapshot) -> u64 {
    snapshot.stage("locate").unwrap().counts.handled
}

#[test]
fn visits_from_one_address_ask_once_also_while_the_answer_is_on_its_way() {
    let slow: Says = |_, _| {
        Box::pin(async {
            std::future::poll_fn(yielded()).await; // not at once
            Ok("PT".to_owned())
        })
    };
    let (app, asked, lines) = app(visits(&[7; 20]), 1e9, slow);
    let mut runtime = TestRuntime::new(app, &plan()).unwrap();
    assert!(runtime.run());
    assert!(asked.lock().unwrap().values().eq([&1]));
    let expected = Line::Country { name: "PT".to_owned(), visits: 20, bytes: 20 };
    assert_eq!(*lines.lock().unwrap(), [expected, Line::Cache { asked: 1, hits: 19 }]);
}

/// Waits the first time it is polled.
fn yielded() -> impl FnMut(&mut std::task::Context<'_>) -> std::task::Poll<()> {
    let mut polled = false;
    move |cx| {
        if std::mem::replace(&mut polled, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    }
}

#[test]
fn questions_are_asked_no_faster_than_the_rate_allows() {
    let from: Vec<u8> = (0..20).collect();
    let (app, asked, _) = app(visits(&from), 2.0, |_, _| country("FR"));
    let mut runtime = TestRuntime::new(app, &plan()).unwrap();
    for second in 0..9 {
        runtime.run_until_idle();
        // One at once, and two in every second.
        assert_eq!(asked.lock().unwrap().len(), 1 + 2 * second);
        runtime.advance(SECOND);
    }
    assert!(runtime.run());
    assert_eq!(handled(&runtime.snapshot()), 20);
}

#[test]
fn an_answer_that_does_not_come_in_time_is_asked_for_again() {
    let never: Says = |_, times| match times {
        1 => Box::pin(std::future::pending()),
        _ => country("JP"),
    };
    let (app, asked, _) = app(visits(&[1]), 1e9, never);
    let mut runtime = TestRuntime::new(app, &plan()).unwrap();
    runtime.advance(5 * SECOND); // the time limit
    assert_eq!(handled(&runtime.snapshot()), 0);
    runtime.advance(SECOND); // the wait before the second try
    assert_eq!(handled(&runtime.snapshot()), 1);
    assert!(asked.lock().unwrap().values().eq([&2]));
}

#[test]
fn the_directory_says_when_to_ask_again_and_when_not_to() {
    let busy: Says = |address, times| match (address.octets()[3], times) {
        (1, _) => Box::pin(async { Err(Error::permanent(Error::msg("unknown"))) }),
        (2, 1) => Box::pin(async { Err(Error::retry_after(Error::msg("busy"), 30 * SECOND)) }),
        _ => country("DE"),
    };
    let (app, asked, lines) = app(visits(&[1, 2, 3]), 1e9, busy);
    let mut runtime = TestRuntime::new(app, &plan()).unwrap();
    runtime.advance(29 * SECOND);
    assert_eq!(handled(&runtime.snapshot()), 1);
    assert!(runtime.run());
    let counts = runtime.snapshot().stage("locate").unwrap().counts;
    assert_eq!((counts.handled, counts.failed, counts.retried), (2, 1, 1));
    let times = |last| asked.lock().unwrap()[&Ipv4Addr::new(198, 18, 0, last)];
    assert_eq!((times(1), times(2), times(3)), (1, 2, 1));
    let expected = Line::Country { name: "DE".to_owned(), visits: 2, bytes: 2 };
    assert_eq!(lines.lock().unwrap()[0], expected);
}

#[test]
fn a_full_cache_forgets_and_asks_again() {
    let limits = Limits { rate: 1e9, cache: 2 };
    limits.check().unwrap();
    let cache = crate::cache::Cache::new(limits.cache);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    for visit in visits(&[1, 2, 1, 3, 1]) {
        let got = std::pin::pin!(cache.get(visit.address, country("ES"))).poll(&mut cx);
        assert!(matches!(got, std::task::Poll::Ready(Ok(country)) if country == "ES"));
    }
    assert_eq!(cache.asked_and_hits(), (4, 1));
}

#[test]
fn one_seed_gives_the_same_visits() {
    let some = |seed| generate(seed, 100).take(50).collect::<Vec<_>>();
    assert_eq!(some(1), some(1));
    assert_ne!(some(1), some(2));
}
