//! The busiest keys of a stage, in its snapshot.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::policy::{Entry, Offer, Policy, PolicyControl, Refused, TimerId};
use comporta::testing::TestRuntime;
use comporta::{
    App, AsyncCx, AsyncKeyedStage, Emissions, Ev, KeyedCx, KeyedStage, Plan, Result, StageSnapshot,
};

/// Key 1 has every other event, 2 every tenth; each of the rest is a key of its own.
fn key(n: u64) -> u64 {
    match n % 10 {
        0 | 2 | 4 | 6 | 8 => 1,
        9 => 2,
        _ => 1_000 + n,
    }
}

fn of<'a>(stage: &'a StageSnapshot, key: &str) -> &'a comporta::KeySnapshot {
    let found = stage.top_keys.iter().find(|known| known.key == key);
    found.unwrap_or_else(|| panic!("no key {key}: {:?}", stage.top_keys))
}

#[test]
fn the_busiest_keys_are_shown_with_exact_counts_among_any_number_of_others() {
    const N: u64 = 20_000;
    let app = App::new("busy");
    let (sender, numbers) = app.input::<u64>("numbers");
    let work = app.sink("work", |_: u64| ()).keyed(|n| key(*n));
    app.connect(numbers, work);
    let plan = Plan::new().stage("work", |work| work.instances(2).capacity(N as usize));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.snapshot().stage("work").unwrap().top_keys.is_empty(), "nobody has asked");
    runtime.control().count_keys("work").unwrap();
    let refused = runtime.control().count_keys("numbers").unwrap_err();
    assert!(refused.to_string().contains("`numbers`"), "{refused}");
    runtime.hold("work");
    for n in 0..N / 2 {
        sender.try_send(n).unwrap();
    }
    let snapshot = runtime.snapshot();
    let work = snapshot.stage("work").unwrap();
    let (one, two) = (of(work, "1"), of(work, "2"));
    assert_eq!((one.queued as u64, one.arrived - one.error), (N / 4, N / 4), "{one:?}");
    assert_eq!((two.queued as u64, two.handled), (N / 20, 0), "{two:?}");
    assert_eq!(work.top_keys[0], *one, "most wait for it");
    runtime.resume("work");
    runtime.run();
    for n in N / 2..N {
        sender.try_send(n).unwrap();
        runtime.run();
    }
    let snapshot = runtime.snapshot();
    let work = snapshot.stage("work").unwrap();
    assert_eq!((of(work, "1").handled, of(work, "1").queued), (N / 2, 0));
    assert_eq!(of(work, "2").handled, N / 10);
    assert!(work.top_keys.len() <= 15, "{:?}", work.top_keys);
}

/// A key that counts how many of it there are.
#[derive(Clone)]
struct Counted(u64, #[expect(dead_code, reason = "it is counted")] Arc<()>);

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for Counted {}
impl std::hash::Hash for Counted {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[derive(Clone)]
struct Named(Arc<()>);

impl KeyedStage for Named {
    type In = u64;
    type Key = Counted;
    type State = ();
    type Ports = ();

    fn key(&self, n: &u64) -> Counted {
        Counted(*n, self.0.clone())
    }

    fn key_name(&self, key: &Counted) -> Option<String> {
        assert!(key.0 != 3, "no name for it");
        Some(format!("key {}", key.0))
    }

    fn handle(
        &mut self,
        (): &mut (),
        _: Ev<'_, u64>,
        (): &mut (),
        _: &KeyedCx<'_, Counted>,
    ) -> Result {
        Ok(())
    }
}

#[test]
fn counting_keeps_few_keys_and_a_name_that_panics_costs_the_name() {
    let there = Arc::new(());
    let app = App::new("named");
    let (sender, numbers) = app.input::<u64>("numbers");
    app.connect(numbers, app.stage("work", Named(there.clone())));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    let before = Arc::strong_count(&there);
    runtime.control().count_keys("work").unwrap();
    for n in [3, 3, 5, 5].into_iter().chain(10..1_000) {
        sender.try_send(n).unwrap();
        runtime.run();
        if n % 100 == 0 || n < 10 {
            let snapshot = runtime.snapshot();
            let names: Vec<_> =
                snapshot.stage("work").unwrap().top_keys.iter().map(|key| &*key.key).collect();
            assert!(names.iter().all(|name| name.starts_with(['k', '#'])), "{names:?}");
            assert!(n != 5 || names.contains(&"key 5"), "{names:?}");
        }
    }
    let left = Arc::strong_count(&there) - before;
    assert!(left <= 64, "{left} keys are left");
}

struct Waits;

impl AsyncKeyedStage for Waits {
    type In = u64;
    type Key = u64;
    type State = ();
    type Ports = ();

    fn key(&self, n: &u64) -> u64 {
        n % 3
    }

    async fn handle(&self, (): &mut (), _: u64, _: &mut Emissions<()>, cx: &AsyncCx) -> Result {
        cx.sleep(Duration::from_millis(1)).await;
        Ok(())
    }
}

#[test]
fn keys_whose_handlers_wait_are_counted_too() {
    let app = App::new("waits");
    let (sender, numbers) = app.input::<u64>("numbers");
    app.connect(numbers, app.stage("work", Waits));
    let mut runtime =
        TestRuntime::new(app, &Plan::new().stage("work", |work| work.instances(8))).unwrap();
    runtime.control().count_keys("work").unwrap();
    for n in 0..30 {
        sender.try_send(n).unwrap();
    }
    for _ in 0..20 {
        runtime.run_until_idle();
        runtime.advance(Duration::from_millis(1));
    }
    let snapshot = runtime.snapshot();
    for key in ["0", "1", "2"] {
        assert_eq!(of(snapshot.stage("work").unwrap(), key).handled, 10);
    }
}

/// Reads what the busiest keys of `work` did, every second: how many came, and were handled.
struct Reader(Readings);

type Readings = Arc<Mutex<Vec<Vec<(u64, u64)>>>>;

impl Reader {
    fn read(&self, control: &mut dyn PolicyControl) -> Result<Vec<(u64, u64)>, Refused> {
        let work = control.stages().iter().find(|stage| stage.name == "work").unwrap().id;
        let loads = control.key_loads(work, 2)?;
        Ok(loads.iter().map(|load| (load.arrived, load.handled)).collect())
    }
}

impl Policy for Reader {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        assert_eq!(self.read(control)?, [], "nothing has come");
        control.add_timer(Duration::from_secs(1)).map(drop)
    }

    fn on_timer(&mut self, _: TimerId, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let read = self.read(control)?;
        self.0.lock().unwrap().push(read);
        Ok(())
    }
}

#[test]
fn a_policy_reads_what_the_busiest_keys_did_since_its_last_reading() {
    let readings = Arc::new(Mutex::new(Vec::new()));
    let into = readings.clone();
    let app = App::new("read");
    let (sender, numbers) = app.input::<u64>("numbers");
    app.connect(numbers, app.sink("work", |_: u64| ()).keyed(|n| key(*n)));
    let about = "reads keys";
    let offer = Offer { name: "reader", aliases: &[], about, cites: "", params: &[] };
    app.register_policy(Entry::new(offer, move |_| Reader(into.clone())));
    let mut runtime = TestRuntime::new(app, &Plan::new().policy("reader")).unwrap();
    for n in 0..100 {
        sender.try_send(n).unwrap();
    }
    let _ = runtime.run_until_idle();
    runtime.advance(Duration::from_secs(1));
    runtime.control().count_keys("work").unwrap(); // takes nothing from the policy
    for n in (0..20).step_by(2) {
        sender.try_send(n).unwrap();
    }
    let _ = runtime.run_until_idle();
    runtime.advance(Duration::from_secs(1));
    let _ = runtime.run_until_idle();
    let mut readings = readings.lock().unwrap().clone();
    readings.retain(|reading| !reading.is_empty());
    assert_eq!(readings, [vec![(50, 50), (10, 10)], vec![(10, 10)]]);
}

/// Sources run before anybody has a handle of the running program.
#[test]
fn keys_can_be_counted_from_the_first_event_on() {
    let app = App::new("counted");
    let numbers = app.source("numbers", || 0..90_u64);
    let work = app.keyed("work", |n: &u64| n % 3, |seen: &mut u64, _: u64, _: &mut ()| *seen += 1);
    app.connect(numbers, work);
    app.count_keys();
    let summary = app.run(&Plan::new()).unwrap();
    let top = &summary.snapshot.stage("work").unwrap().top_keys;
    let mut counts: Vec<_> = top.iter().map(|key| (key.arrived, key.handled)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [(30, 30); 3], "{top:?}");
}
