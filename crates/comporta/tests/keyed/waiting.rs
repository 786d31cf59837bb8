//! Handlers that wait, in the lanes of their keys.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, AsyncCx, AsyncKeyedStage, AsyncStage, Emissions, Error, Out, Plan, Result};

use crate::bounded::run;
use crate::lanes::Watch;

const KEYS: u64 = 5;

/// Waits in the middle of each event, and fails once on some.
struct Slow {
    watch: Watch,
    failed: Mutex<HashSet<u64>>,
}

impl AsyncStage for Slow {
    type In = u64;
    type Ports = Out<u64>;

    async fn handle(&self, n: u64, out: &mut Emissions<Out<u64>>, cx: &AsyncCx) -> Result {
        self.watch.enter(n % KEYS);
        cx.sleep(Duration::from_micros(n % 3 * 40)).await;
        let fails = n % 11 == 5 && self.failed.lock().unwrap().insert(n);
        self.watch.leave(n % KEYS, (!fails).then_some(n));
        if fails {
            return Err(Error::msg("once"));
        }
        out.send(n);
        Ok(())
    }
}

#[test]
fn a_key_keeps_its_order_across_awaits_and_retries() {
    const N: u64 = 500;
    for (threads, instances) in [(1, 8), (2, 3), (4, 64)] {
        let (watch, end) = (Watch::default(), Watch::default());
        let (of, at_end) = (watch.clone(), end.clone());
        let app = App::new("waiting");
        let numbers = app.source("numbers", || 0..N);
        let slow = app.stage("slow", Slow { watch: of, failed: Mutex::default() });
        let sink = app.sink("end", move |n: u64| {
            at_end.enter(n % KEYS);
            at_end.leave(n % KEYS, Some(n));
        });
        app.connect(numbers, slow.retain().keyed(|n| n % KEYS));
        app.connect(slow, sink);
        let plan = Plan::new().threads(threads);
        let plan = plan.stage("slow", |slow| slow.instances(instances).tries(3));
        let summary = run(app, &plan);
        let slow = summary.snapshot.stage("slow").unwrap();
        assert_eq!((slow.counts.handled, slow.counts.failed), (N, 0), "{summary}");
        watch.assert_in_order(N, KEYS);
        end.assert_in_order(N, KEYS);
    }
}

#[test]
fn keys_wait_side_by_side() {
    let inside = Arc::new(Mutex::new(0));
    let (all, open) = (inside.clone(), Arc::new(tokio_free::Gate::default()));
    let gate = open.clone();
    let app = App::new("side-by-side");
    let numbers = app.source("numbers", || 0..KEYS);
    let wait = app.sink_async("wait", move |_: u64| {
        let (all, gate) = (all.clone(), gate.clone());
        async move {
            *all.lock().unwrap() += 1;
            if *all.lock().unwrap() == KEYS {
                gate.open();
            }
            gate.wait().await;
        }
    });
    app.connect(numbers, wait.keyed(|n| *n));
    let _ = run(app, &Plan::new().threads(1).stage("wait", |wait| wait.instances(64)));
    assert_eq!(*inside.lock().unwrap(), KEYS);
}

mod tokio_free {
    //! A gate that futures wait at until it is open.

    use std::future::poll_fn;
    use std::sync::Mutex;
    use std::task::{Poll, Waker};

    #[derive(Default)]
    pub(crate) struct Gate(Mutex<(bool, Vec<Waker>)>);

    impl Gate {
        pub(crate) fn open(&self) {
            let wakers = {
                let mut gate = self.0.lock().unwrap();
                gate.0 = true;
                std::mem::take(&mut gate.1)
            };
            wakers.into_iter().for_each(Waker::wake);
        }

        pub(crate) async fn wait(&self) {
            poll_fn(|cx| {
                let mut gate = self.0.lock().unwrap();
                if gate.0 {
                    return Poll::Ready(());
                }
                gate.1.push(cx.waker().clone());
                Poll::Pending
            })
            .await;
        }
    }
}

/// Counts the events of each key across an await, and fails once on some.
struct Counting {
    watch: Watch,
    failed: Mutex<HashSet<u64>>,
}

impl AsyncKeyedStage for Counting {
    type In = u64;
    type Key = u64;
    type State = u64;
    type Ports = Out<(u64, u64)>;

    fn key(&self, n: &u64) -> u64 {
        n % KEYS
    }

    async fn handle(
        &self,
        count: &mut u64,
        n: u64,
        out: &mut Emissions<Self::Ports>,
        cx: &AsyncCx,
    ) -> Result {
        self.watch.enter(n % KEYS);
        let before = *count;
        cx.sleep(Duration::from_micros(n % 3 * 30)).await;
        let fails = n % 13 == 4 && self.failed.lock().unwrap().insert(n);
        self.watch.leave(n % KEYS, (!fails).then_some(n));
        if fails {
            return Err(Error::msg("once"));
        }
        *count = before + 1; // another event of this key in between would be forgotten
        out.send((n % KEYS, *count));
        Ok(())
    }
}

#[test]
fn a_handler_that_waits_has_the_state_of_its_key_to_itself() {
    const N: u64 = 500;
    for threads in [1, 2, 4] {
        let (watch, last) = (Watch::default(), Arc::new(Mutex::new([0; KEYS as usize])));
        let into = last.clone();
        let app = App::new("counting");
        let numbers = app.source("numbers", || 0..N);
        let counting = Counting { watch: watch.clone(), failed: Mutex::default() };
        let count = app.stage("count", counting).retain();
        let keep = app.sink("keep", move |(key, count): (u64, u64)| {
            into.lock().unwrap()[key as usize] = count;
        });
        app.connect(numbers, count);
        app.connect(count, keep.keyed(|(key, _)| *key));
        let plan = Plan::new().threads(threads).stage("count", |s| s.instances(32).tries(2));
        let summary = run(app, &plan);
        assert_eq!(summary.snapshot.stage("count").unwrap().counts.handled, N, "{summary}");
        assert_eq!(*last.lock().unwrap(), [N / KEYS; KEYS as usize]);
        watch.assert_in_order(N, KEYS);
    }
}

/// Fails on the first key: at once on even numbers, and after a wait on odd ones.
struct Failing(Arc<Mutex<Vec<u64>>>);

impl AsyncKeyedStage for Failing {
    type In = u64;
    type Key = u64;
    type State = ();
    type Ports = ();

    fn key(&self, n: &u64) -> u64 {
        n / 10
    }

    async fn handle(&self, (): &mut (), n: u64, _: &mut Emissions<()>, cx: &AsyncCx) -> Result {
        if n % 2 == 1 {
            cx.sleep(Duration::from_millis(1)).await;
        }
        if n < 10 && cx.attempt() == 1 {
            return Err(Error::msg("not yet"));
        }
        self.0.lock().unwrap().push(n);
        Ok(())
    }
}

#[test]
fn a_key_that_waits_to_try_again_holds_up_no_other_where_one_event_is_in_flight_at_a_time() {
    for first in [0, 1] {
        let seen = Arc::<Mutex<Vec<u64>>>::default();
        let app = App::new("backoff");
        let (sender, numbers) = app.input::<u64>("numbers");
        let work = app.stage("work", Failing(seen.clone()));
        app.connect(numbers, work.retain());
        let hour = Duration::from_secs(3_600);
        let plan = Plan::new().stage("work", |work| work.instances(1).tries(2).backoff(hour));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        for n in [first, 4, 20, 30, 21] {
            sender.try_send(n).unwrap();
        }
        for _ in 0..10 {
            runtime.run_until_idle();
            runtime.advance(Duration::from_millis(1));
        }
        assert_eq!(*seen.lock().unwrap(), [20, 30, 21], "the others wait for the first key");
        for _ in 0..3 {
            runtime.advance(hour);
            runtime.run_until_idle();
        }
        assert_eq!(*seen.lock().unwrap(), [20, 30, 21, first, 4]);
        let counts = runtime.snapshot().stage("work").unwrap().counts;
        assert_eq!((counts.handled, counts.retried, counts.failed), (5, 2, 0));
    }
}
