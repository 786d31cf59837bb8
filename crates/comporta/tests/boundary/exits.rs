//! The ways out of a visit, a push and a call of a policy: whichever is taken, nothing is left behind
//! that another waits for.

use crate::bounded::{Gate, STUCK_AFTER, comes_true, ends, stage, until, watched};
use comporta::testing::TestRuntime;
use comporta::{
    App, Demand, Out, Plan, Pull, Result, SendError, Settled, Source, WhenFull, batched,
};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

struct Ignores;
impl Wake for Ignores {
    fn wake(self: Arc<Self>) {}
}

#[derive(Debug)]
struct Bad;
impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bad")
    }
}
impl std::error::Error for Bad {}
impl Drop for Bad {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "error dropped");
    }
}

#[test]
fn an_error_whose_drop_panics_costs_one_event() {
    watched("r1", || {
        let app = App::new("r1");
        let numbers = app.source("numbers", || 0..100_u64);
        let work = app.sink("work", |n: u64| if n == 50 { Err(Bad) } else { Ok(()) });
        app.connect(numbers, work);
        let summary = ends("r1", app.start(&Plan::new().threads(2)).unwrap());
        assert_eq!(stage(&summary.snapshot, "work").counts.handled, 99, "{summary}");
    });
}

#[test]
fn a_push_that_was_given_up_leaves_its_room_to_others() {
    watched("r2", || {
        let app = App::new("r2");
        let (sender, port) = app.input::<u64>("in");
        app.connect(port, app.sink("sink", |_: u64| ()));
        let mut runtime =
            TestRuntime::new(app, &Plan::new().stage("sink", |s| s.capacity(16).batch(1))).unwrap();
        (0..16).for_each(|n| sender.try_send(n).unwrap());
        let waker = Waker::from(Arc::new(Ignores));
        {
            let mut waits = Box::pin(sender.send_async(99));
            assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            for _ in 0..3 {
                assert!(runtime.step());
            }
        }
        runtime.run_until_idle();
        assert_eq!(stage(&runtime.snapshot(), "sink").queued, 0);
        runtime.hold("sink");
        let fit = (0..100).take_while(|n| sender.try_send(*n).is_ok()).count();
        assert_eq!(fit, 16, "an empty queue of 16 places takes so many");
    });
}

/// Remembers that it was woken.
#[derive(Default)]
struct Remembers(AtomicBool);
impl Wake for Remembers {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_send_that_was_granted_room_before_a_stop_and_goes_on_after_it_is_cancelled() {
    watched("granted", || {
        let app = App::new("granted");
        let (sender, port) = app.input::<u64>("in");
        let gate = Gate::default();
        let way = gate.way();
        app.connect(port, app.sink("sink", move |_: u64| way.pass()));
        let plan = Plan::new().threads(1).stage("sink", |s| s.capacity(1).batch(1));
        let running = app.start(&plan).unwrap();
        sender.send(0).unwrap();
        gate.wait_for(1, "the first is handled");
        sender.send(1).unwrap();
        let woken = Arc::new(Remembers::default());
        let waker = Waker::from(woken.clone());
        let mut waits = Box::pin(sender.send_async(2));
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        gate.open();
        until("room is granted", || woken.0.load(SeqCst));
        let summary = running.stop();
        let result = waits.as_mut().poll(&mut Context::from_waker(&waker));
        assert_eq!(result, std::task::Poll::Ready(Err(SendError::Cancelled)), "{summary}");
    });
}

struct Acked {
    groups: VecDeque<Vec<u64>>,
    told: Arc<Mutex<Vec<Settled>>>,
}
impl Source for Acked {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        let Some(group) = self.groups.pop_front() else { return Ok(Pull::End) };
        group.into_iter().for_each(|n| out.send(n));
        Ok(Pull::More)
    }
    fn settled(&mut self, settled: Settled) {
        self.told.lock().unwrap().push(settled);
    }
}

#[test]
fn an_event_that_could_not_be_sent_on_is_not_acknowledged_as_handled() {
    watched("r3", || {
        let app = App::new("r3");
        let told = Arc::<Mutex<Vec<Settled>>>::default();
        let source = Acked { groups: [vec![1, 2, 3]].into(), told: told.clone() };
        let s = app.source("acked", move || source);
        app.by_key(
            s,
            |n: &u64| {
                assert!(*n != 2);
                *n
            },
            [app.sink("one", |_: u64| ()), app.sink("two", |_: u64| ())],
        );
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        assert!(runtime.run());
        let told = told.lock().unwrap();
        assert!(!told[0].is_clean(), "one of three events was lost: {told:?}");
    });
}

#[test]
fn pushes_take_turns_among_ends_also_while_one_is_full() {
    watched("r4", || {
        let gate = Gate::default();
        let way = gate.way();
        let app = App::new("r4");
        let (sender, port) = app.input::<u64>("in");
        let a = app.sink("a", |_: u64| ());
        let b = app.sink("b", move |_: u64| way.pass());
        app.round_robin(port, [a, b]);
        let running = app.start(&Plan::new().threads(4).every(|s| s.capacity(4).batch(1))).unwrap();
        // async pushes with a time limit, as a server would: each given up after one poll
        let waker = Waker::from(Arc::new(Ignores));
        for n in 0..100 {
            let mut p = Box::pin(sender.send_async(n));
            let _ = p.as_mut().poll(&mut Context::from_waker(&waker));
        }
        let snapshot = running.snapshot();
        let offered = ["a", "b"].map(|name| stage(&snapshot, name).counts.offered);
        gate.open();
        drop(running);
        assert!(offered.iter().all(|offered| *offered >= 45), "{offered:?}");
    });
}

#[test]
fn a_push_that_finds_no_room_is_not_charged_by_the_controller() {
    watched("r5", || {
        let app = App::new("r5");
        let (sender, port) = app.input::<u64>("in");
        app.connect(port, app.sink("sink", |_: u64| ()));
        let plan = Plan::new().stage("sink", |s| {
            s.capacity(1).admission(
                "token-bucket(rate=0.001, burst=10)".parse::<comporta::policy::Choice>().unwrap(),
            )
        });
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.hold("sink");
        sender.try_send(0).unwrap();
        for n in 0..20 {
            assert!(sender.try_send(n).is_err());
        }
        runtime.resume("sink");
        runtime.run_until_idle();
        let r = sender.try_send(1);
        assert!(r.is_ok(), "one of ten tokens was used: {r:?}");
    });
}

struct Sticky(Arc<Mutex<Option<crate::bounded::Way>>>, bool);
impl Drop for Sticky {
    fn drop(&mut self) {
        if self.1 {
            let w = self.0.lock().unwrap().clone();
            if let Some(w) = w {
                w.pass();
            }
        }
    }
}

#[test]
fn a_drop_that_does_not_return_leaves_the_rest_to_a_stand_in() {
    watched("r6", || {
        let gate = Gate::default();
        let way = Arc::new(Mutex::new(Some(gate.way())));
        let app = App::new("r6");
        let shed = app.sink("shed", |_: Sticky| ());
        let (sender, port) = app.input::<u64>("in");
        let w2 = way.clone();
        let mk = app.stage("mk", Mk(w2));
        app.connect(port, mk);
        app.connect_local(mk, shed);
        let (other, oport) = app.input::<u64>("other");
        app.connect(oport, app.sink("work", |_: u64| ()));
        let plan = Plan::new()
            .threads(1)
            .stuck_after(STUCK_AFTER)
            .stage("shed", |s| s.capacity(1).when_full(WhenFull::DropOldest));
        let running = app.start(&plan).unwrap();
        sender.send(0).unwrap();
        gate.wait_for(1, "a drop is under way");
        for n in 0..10 {
            other.send(n).unwrap();
        }
        let ok = comes_true(|| stage(&running.snapshot(), "work").counts.handled == 10);
        let stuck = running.stuck();
        gate.open();
        drop(running);
        assert!(ok, "nobody stands in for a worker in a Drop; stuck() = {stuck:?}");
    });
}
#[derive(Clone)]
struct Mk(Arc<Mutex<Option<crate::bounded::Way>>>);
impl comporta::Stage for Mk {
    type In = u64;
    type Ports = Out<Sticky>;
    fn handle(
        &mut self,
        _: comporta::Ev<'_, u64>,
        out: &mut Out<Sticky>,
        _: &comporta::Cx,
    ) -> Result {
        out.send(Sticky(self.0.clone(), true));
        out.send(Sticky(self.0.clone(), false));
        Ok(())
    }
}

#[test]
fn a_group_that_is_due_takes_no_other_with_it() {
    watched("r7", || {
        let app = App::new("r7");
        let groups = Arc::<Mutex<Vec<usize>>>::default();
        let (sender, port) = app.input::<u64>("in");
        let g = groups.clone();
        let work = app.stage(
            "work",
            batched(10, Duration::from_secs(1), move |group: Vec<u64>, _: &mut Out<u64>| {
                g.lock().unwrap().push(group.len());
            }),
        );
        app.connect(port, work);
        let mut runtime =
            TestRuntime::new(app, &Plan::new().threads(1).stage("work", |s| s.instances(2)))
                .unwrap();
        (0..3).for_each(|n| sender.send(n).unwrap());
        runtime.hold("work");
        runtime.advance(Duration::from_secs(1)); // the flush is held
        (0..1).for_each(|n| sender.send(n).unwrap());
        runtime.resume("work");
        // flush runs, then 8 more come before the visit
        runtime.step();
        (0..8).for_each(|n| sender.send(n).unwrap());
        runtime.run_until_idle();
        assert_eq!(*groups.lock().unwrap(), [10], "2 have only just come");
        let _ = AtomicU64::new(0).load(SeqCst);
    });
}

use comporta::policy::{Choice, Entry, Offer, Policy, PolicyControl, Refused, TimerId};
type Answer = std::result::Result<(), Refused>;
#[derive(Clone)]
struct Blocking {
    way: crate::bounded::Way,
    armed: Arc<std::sync::atomic::AtomicBool>,
}
impl Policy for Blocking {
    fn start(&mut self, c: &mut dyn PolicyControl) -> Answer {
        c.use_per_stage_queues()?;
        c.set_fire_last_focused(true)
    }
    fn on_last_focused(&mut self, _: &mut dyn PolicyControl) -> Answer {
        if self.armed.swap(false, SeqCst) {
            self.way.pass();
        }
        Ok(())
    }
}
#[test]
fn a_policy_that_does_not_return_holds_no_event_back() {
    watched("r8", || {
        let mut stalls = 0;
        for _ in 0..20 {
            let gate = Gate::default();
            let armed = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let app = App::new("r8");
            let made = Blocking { way: gate.way(), armed: armed.clone() };
            let offer = Offer { name: "blocking", aliases: &[], about: "", cites: "", params: &[] };
            app.register_policy(Entry::new(offer, move |_: &Choice| made.clone()));
            let (sender, port) = app.input::<u64>("in");
            app.connect(port, app.sink("work", |_: u64| ()));
            let running = app.start(&Plan::new().policy("blocking").threads(2)).unwrap();
            sender.send(0).unwrap();
            assert!(comes_true(|| stage(&running.snapshot(), "work").counts.handled == 1));
            std::thread::park_timeout(Duration::from_millis(5));
            armed.store(true, SeqCst);
            sender.send(1).unwrap();
            gate.wait_for(1, "policy is called");
            let handled = || stage(&running.snapshot(), "work").counts.handled == 2;
            stalls += usize::from(!comes_true(handled));
            gate.open();
            drop(running);
        }
        assert_eq!(stalls, 0, "of 20 runs, the pushed event waited for the policy in so many");
    });
}

#[derive(Clone)]
struct DropsBadly(Arc<AtomicU64>);
impl Drop for DropsBadly {
    fn drop(&mut self) {
        if self.0.load(SeqCst) > 0 {
            assert!(std::thread::panicking(), "handler dropped");
        }
    }
}
impl comporta::Stage for DropsBadly {
    type In = u64;
    type Ports = ();
    fn handle(&mut self, _: comporta::Ev<'_, u64>, _: &mut (), _: &comporta::Cx) -> Result {
        Ok(())
    }
}
#[test]
fn instances_made_in_vain_are_dropped_where_a_panic_costs_nothing() {
    watched("r9", || {
        let app = App::new("r9");
        let (sender, port) = app.input::<u64>("in");
        let made = Arc::new(AtomicU64::new(0));
        let m = made.clone();
        let work = app.stage_with("work", move |_| {
            if m.fetch_add(1, SeqCst) >= 2 {
                return Err(comporta::Error::msg("no more"));
            }
            Ok(DropsBadly(Arc::new(AtomicU64::new(1))))
        });
        app.connect(port, work);
        let running = app.start(&Plan::new().threads(1)).unwrap();
        let control = running.control();
        let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            control.set_instances("work", 3).map_err(|e| e.to_string())
        }));
        drop(sender);
        assert!(
            matches!(r, Ok(Err(_))),
            "a Drop of the program's panicked through set_instances: {}",
            r.is_err()
        );
    });
}

struct Quits {
    control: Arc<Mutex<Option<comporta::Control>>>,
}
impl Drop for Quits {
    fn drop(&mut self) {
        if let Some(c) = self.control.lock().unwrap().take()
            && std::env::var_os("R11").is_some()
        {
            let _ = c.set_threads("main", 2);
        }
    }
}
impl Policy for Quits {
    fn start(&mut self, c: &mut dyn PolicyControl) -> Answer {
        c.add_timer(Duration::from_millis(20)).map(drop)
    }
    fn on_timer(&mut self, _: TimerId, _: &mut dyn PolicyControl) -> Answer {
        if self.control.lock().unwrap().is_some() {
            panic!("failed")
        }
        Ok(())
    }
}
#[test]
fn a_failed_policy_may_call_its_program_when_it_is_dropped() {
    watched("r11", || {
        let slot = Arc::<Mutex<Option<comporta::Control>>>::default();
        let app = App::new("r11");
        let s = slot.clone();
        let offer = Offer { name: "quits", aliases: &[], about: "", cites: "", params: &[] };
        app.register_policy(Entry::new(offer, move |_: &Choice| Quits { control: s.clone() }));
        let (sender, port) = app.input::<u64>("in");
        app.connect(port, app.sink("work", |_: u64| ()));
        let running = app.start(&Plan::new().policy("quits").threads(1)).unwrap();
        *slot.lock().unwrap() = Some(running.control());
        let fell = {
            let mut n = 0;
            loop {
                let p = running.snapshot().pools[0].policy.name.clone();
                if p == "stealing" {
                    break true;
                }
                n += 1;
                if n > 5000 {
                    break false;
                }
                std::thread::park_timeout(Duration::from_millis(1));
            }
        };
        drop(sender);
        if !fell {
            std::mem::forget(running);
        }
        assert!(fell, "the clock thread waits for itself");
    });
}

#[test]
fn what_came_with_an_event_that_is_tried_later_goes_to_an_idle_instance() {
    watched("r12", || {
        let app = App::new("r12");
        let port = app.source("in", || 0..10_u64);
        let work =
            app.sink(
                "work",
                |n: u64| if n == 0 { Err(comporta::Error::msg("later")) } else { Ok(()) },
            );
        app.connect(port, work);
        let plan = Plan::new().threads(2).stage("work", |s| {
            s.instances(2).retry(comporta::Retry::new(2, Duration::from_secs(3600)))
        });
        let mut runtime = TestRuntime::new(app, &plan).unwrap();

        runtime.hold("work");
        runtime.run_until_idle();
        runtime.resume("work");
        runtime.run_until_idle();
        let s = runtime.snapshot();
        let w = stage(&s, "work");
        assert_eq!(
            (w.counts.handled, w.queued, w.idle),
            (9, 0, 1),
            "handled, queued, idle instances"
        );
    });
}

#[test]
fn what_came_with_an_event_that_waits_for_room_goes_to_an_idle_instance() {
    watched("r13", || {
        let app = App::new("r13");
        let port = app.source("in", || 0..20_u64);
        let split = app.map("split", |n: u64| n);
        let a = app.sink("a", |_: u64| ());
        let b = app.sink("b", |_: u64| ());
        app.connect(port, split);
        app.by_key(split, |n: &u64| *n % 5, [a, b]);
        let plan =
            Plan::new().threads(2).stage("split", |s| s.instances(2)).stage("a", |s| s.capacity(1));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.hold("a");
        runtime.hold("split");
        runtime.run_until_idle();
        runtime.resume("split");
        runtime.run_until_idle();
        let s = runtime.snapshot();
        let w = stage(&s, "split");
        assert!(w.queued == 0 || w.idle == 0, "queued {}, idle {}", w.queued, w.idle);
    });
}
