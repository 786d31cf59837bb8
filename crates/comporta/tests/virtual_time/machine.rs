//! What the runtime does around handlers that take virtual time.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::policy::{Entry, Offer, Policy, PolicyControl, Refused, TimerId};
use comporta::testing::{ServiceTime, TestRuntime};
use comporta::{App, Plan, StageSet};

use crate::{Bench, ms, us};

#[test]
fn threads_come_and_go_while_handlers_take_their_time() {
    let mut bench = Bench::under(1, true, ServiceTime::waiting(ms(50)), |plan| {
        plan.stage("work", |work| work.instances(64))
    });
    bench.send((0..100_000).map(|i| (i % 1_000, i)));
    let mut before = 0;
    for threads in [1, 4, 64, 3, 1, 2] {
        bench.runtime.control().set_threads("main", threads).unwrap();
        // Those that leave do so when their visit has ended.
        bench.runtime.advance(ms(50));
        before += bench.handled() - before;
        bench.runtime.advance(ms(1_000));
        assert_eq!(bench.handled() - before, 20 * threads, "{threads} threads");
        before = bench.handled();
    }
}

#[test]
fn another_worker_stands_in_for_one_that_does_not_return() {
    let app = App::new("stuck");
    let (slow, slows) = app.input::<u64>("slows");
    let (quick, quicks) = app.input::<u64>("quicks");
    app.connect(slows, app.sink("slow", |_: u64| ()));
    let handled = Arc::new(Mutex::new(Vec::new()));
    let into = handled.clone();
    app.connect(quicks, app.sink("quick", move |n: u64| into.lock().unwrap().push(n)));
    let plan = Plan::new().threads(1).stuck_after(ms(1_000));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.service_time("slow", ServiceTime::busy(ms(30_000)));
    slow.try_send(0).unwrap();
    runtime.run_until_idle();
    quick.try_send(7).unwrap();
    runtime.advance(ms(1_000));
    assert!(handled.lock().unwrap().is_empty(), "the only worker is away");
    runtime.advance(ms(250)); // it is looked for one every quarter of that time
    assert_eq!(*handled.lock().unwrap(), [7]);
    assert_eq!(runtime.snapshot().stage("slow").unwrap().counts.handled, 0);
    slow.close();
    quick.close();
    assert!(runtime.run());
    assert_eq!(runtime.now().as_millis(), 30_000);
}

#[test]
fn others_take_over_what_a_slow_visit_has_not_begun() {
    // Quick at first, so that visits take many events; then one takes a second.
    let mut drawn = 0;
    let time = ServiceTime::busy_with(move |_| {
        drawn += 1;
        if drawn == 1_001 { ms(1_000) } else { us(1) }
    });
    let mut bench = Bench::new(2, false, time);
    bench.send((0..1_000).map(|n| (0, n)));
    bench.runtime.advance(ms(100));
    assert_eq!(bench.handled(), 1_000);
    bench.send((0..50).map(|n| (1, n)));
    bench.runtime.advance(ms(10));
    assert_eq!(bench.handled(), 1_049, "all but the one that takes long");
    bench.runtime.advance(ms(1_000));
    assert_eq!(bench.handled(), 1_050);
}

/// Notes how busy the processors are, once a second.
#[derive(Clone, Default)]
struct Looking(Arc<Mutex<Vec<(usize, u32)>>>);
impl Policy for Looking {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        control.add_timer(ms(1_000)).map(drop)
    }
    fn on_timer(&mut self, _: TimerId, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let seen = (control.cpus(), control.cpu_usage());
        self.0.lock().unwrap().push(seen);
        Ok(())
    }
}

#[test]
fn policies_see_the_cpu_that_busy_handlers_use() {
    for (time, usage) in [
        (ServiceTime::busy(ms(300)), 50), // parts of visits count, too
        (ServiceTime::waiting(ms(300)), 0),
    ] {
        let app = App::new("cpu");
        let (sender, input) = app.input::<u64>("in");
        app.connect(input, app.sink("work", |_: u64| ()));
        let looking = Looking::default();
        let seen = looking.0.clone();
        let offer = Offer { name: "looking", aliases: &[], about: "", cites: "", params: &[] };
        app.register_policy(Entry::new(offer, move |_| looking.clone()));
        let plan = Plan::new().threads(2).policy("looking");
        let plan = plan.stage("work", |work| work.instances(2));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.set_cpus(NonZeroUsize::new(4).unwrap());
        runtime.service_time("work", time);
        (0..100).for_each(|n| sender.try_send(n).unwrap());
        runtime.advance(ms(2_500));
        runtime.set_cpu_usage(20);
        runtime.advance(ms(1_000));
        assert_eq!(*seen.lock().unwrap(), [(4, usage), (4, usage), (4, usage + 20)]);
    }
}

/// Notes the CPU time of `work`, once a second.
#[derive(Clone, Default)]
struct Sampling(Arc<Mutex<Vec<Option<Duration>>>>);
impl Policy for Sampling {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        control.add_timer(ms(1_000)).map(drop)
    }
    fn on_timer(&mut self, _: TimerId, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let work = control.stages().iter().find(|stage| stage.name == "work").unwrap().id;
        let cpu = control.sample(work)?.cpu;
        self.0.lock().unwrap().push(cpu);
        Ok(())
    }
}

#[test]
fn cpu_time_is_measured_also_where_there_is_one_pool() {
    let app = App::new("one-pool");
    let (sender, input) = app.input::<u64>("in");
    app.connect(input, app.sink("work", |_: u64| ()));
    let sampling = Sampling::default();
    let seen = sampling.0.clone();
    let offer = Offer { name: "sampling", aliases: &[], about: "", cites: "", params: &[] };
    app.register_policy(Entry::new(offer, move |_| sampling.clone()));
    let mut runtime = TestRuntime::new(app, &Plan::new().threads(1).policy("sampling")).unwrap();
    runtime.service_time("work", ServiceTime::busy(ms(100)));
    (0..100).for_each(|n| sender.try_send(n).unwrap());
    runtime.advance(ms(2_500));
    assert_eq!(*seen.lock().unwrap(), [None, Some(ms(2_000))], "measured since the first reading");
}

#[test]
fn a_policy_sees_what_ended_at_the_same_instant_and_not_what_comes_then() {
    // An event every 10 ms from 0 on, 50 ms each: after a second, 100 have come and 20 are done.
    #[derive(Clone, Default)]
    struct Counting(Arc<Mutex<Vec<(u64, u64)>>>);
    impl Policy for Counting {
        fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
            control.add_timer(ms(1_000)).map(drop)
        }
        fn on_timer(&mut self, _: TimerId, control: &mut dyn PolicyControl) -> Result<(), Refused> {
            let stage = control.stages().iter().find(|stage| stage.name == "work").unwrap().id;
            let seen = (control.input_count(stage)?, control.processed_count(stage)?);
            self.0.lock().unwrap().push(seen);
            Ok(())
        }
    }
    let app = App::new("instant");
    let ticks = app.source("ticks", || comporta::sources::paced(100.0, 0_u64..));
    let work = app.sink("work", |_: u64| ());
    app.connect(ticks, work);
    let counting = Counting::default();
    let seen = counting.0.clone();
    let offer = Offer { name: "counting", aliases: &[], about: "", cites: "", params: &[] };
    app.register_policy(Entry::new(offer, move |_| counting.clone()));
    let plan = Plan::new()
        .cluster("work", |work| work.stages(StageSet::of(["work"])).threads(1).policy("counting"));
    let plan = plan.stage("work", |work| work.capacity(10_000));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.service_time("work", ServiceTime::waiting(ms(50)));
    runtime.advance(ms(3_000));
    assert_eq!(*seen.lock().unwrap(), [(100, 20), (200, 40), (300, 60)]);
}
