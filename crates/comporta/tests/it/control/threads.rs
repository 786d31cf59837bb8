//! Every policy on threads: a program with fan-out, fan-in and handlers that fail loses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use comporta::{App, Ended, Error, Out, Plan};

use super::ended;
use super::pairs::choices;
use crate::seen::stage;

/// Each event is `n`, and those that every `every` divides fail: with an error, or a panic.
fn fails(every: u64) -> impl Fn(u64, &mut Out<u64>) -> Result<(), Error> + Clone + Send + Sync {
    move |n, out| {
        out.send(n);
        if n.is_multiple_of(every) {
            assert!(!(n / every).is_multiple_of(50), "a panic was asked for");
            return Err(Error::msg("an error was asked for"));
        }
        Ok(())
    }
}

/// `numbers` -> `split` -> `left` and `right`, a copy each -> `join` -> `sum` and `evens`.
fn program(events: u64, sum: &Arc<AtomicU64>) -> App {
    let app = App::new("threads");
    let numbers = app.source("numbers", move || 1..=events);
    let split = app.process("split", fails(1_000));
    let left = app.process("left", fails(700));
    let right = app.process("right", fails(1_100));
    let join = app.map("join", |n: u64| n);
    let sum = sum.clone();
    let all = app.sink("sum", move |n: u64| _ = sum.fetch_add(n, SeqCst));
    let evens = app
        .sink("evens", |n: u64| if n.is_multiple_of(2) { Ok(()) } else { Err(Error::msg("odd")) });
    app.connect(numbers, split);
    app.connect(split, left);
    app.connect(split, right);
    app.connect(left, join);
    app.connect(right, join);
    app.connect(join, all);
    app.connect(join, evens);
    app
}

#[test]
fn every_policy_loses_nothing() {
    for choice in choices() {
        // Those whose queues hold one or two take a thread's switch for each event.
        let events = if choice.params.is_empty() { 50_000 } else { 5_000 };
        let by = |every: u64, also: u64| events / (every * also / gcd(every, also));
        let of = |every: u64| events / every;
        let sum = Arc::new(AtomicU64::new(0));
        let colors = choice.to_string().contains("colors=a");
        let choice =
            if colors { "color(colors=left=1 right=1 sum=2)".parse().unwrap() } else { choice };
        let plan = Plan::new().threads(2).policy(choice.clone()).stage("left", |s| s.instances(2));
        let summary = ended(program(events, &sum).start(&plan).unwrap(), &choice);
        assert_eq!(summary.ended, Ended::Complete, "{choice}: {summary}");
        assert!(summary.problems.is_empty(), "{choice}: {summary}");
        let snapshot = &summary.snapshot;
        assert!(snapshot.adds_up(), "{choice}: {summary}");
        let counts = |name| {
            let counts = stage(snapshot, name).counts;
            (counts.handled, counts.failed)
        };
        let split = events - of(1_000);
        assert_eq!(counts("split"), (split, of(1_000)), "{choice}");
        let (left, right) = (of(700) - by(700, 1_000), of(1_100) - by(1_100, 1_000));
        assert_eq!(counts("left"), (split - left, left), "{choice}");
        assert_eq!(counts("right"), (split - right, right), "{choice}");
        let joined = 2 * split - left - right;
        assert_eq!(counts("join"), (joined, 0), "{choice}");
        assert_eq!(counts("sum"), (joined, 0), "{choice}");
        let (even, odd) = counts("evens");
        assert_eq!((even + odd, odd), (joined, events), "every odd number came twice: {choice}");
        let missing = |every: u64| (1..=events).filter(|n| n % every == 0).sum::<u64>();
        let lost =
            |every: u64| (1..=events).filter(|n| n % every == 0 && n % 1_000 != 0).sum::<u64>();
        let whole = 2 * (events * (events + 1) / 2 - missing(1_000)) - lost(700) - lost(1_100);
        assert_eq!(sum.load(SeqCst), whole, "{choice}");
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
