//! What is kept for each key, and when it goes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use comporta::testing::{KeyedTester, TestRuntime, record};
use comporta::{App, Ev, KeyedCx, KeyedStage, Out, Plan, Result};

use crate::bounded::run;

#[test]
fn each_key_has_its_own_state() {
    let sums = Arc::new(Mutex::new(BTreeMap::new()));
    let into = sums.clone();
    let app = App::new("sums");
    let numbers = app.source("numbers", || 0..10_000_u64);
    let sum = app.keyed(
        "sum",
        |n: &u64| n % 13,
        |sum: &mut u64, n: u64, out: &mut Out<(u64, u64)>| {
            *sum += n;
            out.send((n % 13, *sum));
        },
    );
    let keep = app.sink("keep", move |(key, sum): (u64, u64)| {
        into.lock().unwrap().insert(key, sum);
    });
    app.connect(numbers, sum);
    app.connect(sum, keep.keyed(|(key, _)| *key));
    let plan = Plan::new().threads(4).stage("sum", |sum| sum.instances(4));
    let _ = run(app, &plan.stage("keep", |keep| keep.instances(2)));
    let wanted: BTreeMap<u64, u64> =
        (0..13).map(|key| (key, (0..10_000).filter(|n| n % 13 == key).sum())).collect();
    assert_eq!(*sums.lock().unwrap(), wanted);
}

/// Sends the sum of each key at the end.
#[derive(Clone)]
struct Totals;

impl KeyedStage for Totals {
    type In = u64;
    type Key = u64;
    type State = u64;
    type Ports = Out<(u64, u64)>;

    fn key(&self, n: &u64) -> u64 {
        n % 1_000
    }

    fn handle(
        &mut self,
        sum: &mut u64,
        n: Ev<'_, u64>,
        _: &mut Self::Ports,
        _: &KeyedCx<'_, u64>,
    ) -> Result {
        *sum += *n;
        Ok(())
    }

    fn finish(&mut self, sum: u64, out: &mut Self::Ports, cx: &KeyedCx<'_, u64>) -> Result {
        if *cx.key() == 7 {
            out.send((0, 0));
            panic!("the key 7 cannot finish");
        }
        out.send((*cx.key(), sum));
        Ok(())
    }
}

#[test]
fn the_state_of_each_key_is_finished_once_and_one_that_fails_costs_no_other() {
    let sums = Arc::new(Mutex::new(BTreeMap::new()));
    let into = sums.clone();
    let app = App::new("totals");
    let numbers = app.source("numbers", || 0..20_000_u64);
    let totals = app.stage("totals", Totals);
    let keep = app.sink("keep", move |(key, sum): (u64, u64)| {
        assert!(into.lock().unwrap().insert(key, sum).is_none(), "{key} is finished twice");
    });
    app.connect(numbers, totals);
    app.connect(totals, keep);
    let summary = run(app, &Plan::new().threads(2).stage("totals", |totals| totals.instances(3)));
    assert_eq!(sums.lock().unwrap().len(), 999);
    assert!(
        sums.lock()
            .unwrap()
            .iter()
            .all(|(key, sum)| *sum == (0..20).map(|n| n * 1_000 + key).sum::<u64>())
    );
    assert!(summary.problems[0].contains("the key 7 cannot finish"), "{:?}", summary.problems);
}

/// Tests are run again to find out why they failed.
#[test]
fn on_virtual_time_the_keys_are_finished_in_the_same_order_in_every_run() {
    let run = || {
        let app = App::new("totals");
        let numbers = app.source("numbers", || 0..20_000_u64);
        let totals = app.stage("totals", Totals);
        app.connect(numbers, totals);
        let sums = record(&app, totals);
        let plan = Plan::new().threads(2).stage("totals", |totals| totals.instances(3));
        assert!(TestRuntime::new(app, &plan).unwrap().seeded(5).run());
        sums.take()
    };
    assert_eq!(run(), run());
    let finished = || {
        let mut tester = KeyedTester::new(Totals);
        (0..1_000).filter(|n| *n != 7).for_each(|n| tester.send(n).unwrap());
        tester.finish().unwrap();
        tester.out.drain().collect::<Vec<_>>()
    };
    assert_eq!(finished(), finished());
}
