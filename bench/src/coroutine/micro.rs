//! Single operations in nanoseconds, each with a loop that can be run any number of times. The loops
//! are also what `instructions` counts.

use crate::instructions::Operation;
use crate::options::Options;
use crate::report::{Report, Table, show_ratio};
use crate::rounds::interleave_unwatched;
use crate::stats::{Ratio, median};
use comporta_scheduler::{Scheduler, Step, sources, yield_now};
use corosensei::Coroutine;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

pub(super) const OPERATIONS: [Operation; 7] = [
    Operation { name: "write", about: "what makes a descriptor ready: a write", run: write },
    Operation { name: "bare", about: "write; epoll; corosensei's switch and back", run: bare },
    Operation { name: "step", about: "write; a step of the scheduler", run: step },
    Operation { name: "bare_switch", about: "corosensei: resume and suspend", run: bare_switch },
    Operation { name: "switch", about: "a step whose handler only yields", run: switch },
    Operation {
        name: "bare_create",
        about: "corosensei: on a new stack, to its end",
        run: bare_create,
    },
    Operation { name: "create", about: "spawn from the pool, to its end", run: create },
];

const RUN_TARGET: Duration = Duration::from_millis(20);

pub(super) fn run(options: &Options, report: &mut Report) {
    let series =
        interleave_unwatched(&OPERATIONS, options.rounds, options.seed, "micro", |operation, _| {
            ns_each(operation.run)
        });
    let figures: Vec<Vec<f64>> = series.iter().map(|series| series.samples.clone()).collect();
    println!("\nmicro: ns of one operation, median of {} rounds", options.rounds);
    let mut table = Table::new(&["operation", "ns", "meaning"]);
    for (operation, ns) in OPERATIONS.iter().zip(&figures) {
        table.row([
            operation.name.to_owned(),
            format!("{:.1}", median(ns)),
            operation.about.to_owned(),
        ]);
        report.figure(format!("{}_ns", operation.name), median(ns));
    }
    table.print();
    let ns = |name: &str| {
        let place = OPERATIONS.iter().position(|operation| operation.name == name);
        &figures[place.expect("it is one of the operations")]
    };
    let less_write = |name: &str| -> Vec<f64> {
        ns(name).iter().zip(ns("write")).map(|(all, write)| all - write).collect()
    };
    let ratio = Ratio::paired(&less_write("step"), &less_write("bare"), options.seed);
    println!("step over bare, without the write: {}", show_ratio(&ratio));
    report.figure("step_time_vs_bare", ratio.median);
}

fn ns_each(run: fn(u64)) -> f64 {
    let mut times = 1_000;
    loop {
        let began = Instant::now();
        run(times);
        let took = began.elapsed();
        if took >= RUN_TARGET / 2 || times >= TIMES_MAX {
            return took.as_nanos() as f64 / times as f64;
        }
        times = (times * 4).min(TIMES_MAX);
    }
}

const TIMES_MAX: u64 = 4_000_000;

/// A counter of the system's, which is reported anew at every write.
struct Ready(File);

impl Ready {
    fn new() -> Ready {
        let descriptor = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        Ready(File::from(descriptor.expect("the system has descriptors")))
    }

    fn report(&mut self) {
        self.0.write_all(&1_u64.to_ne_bytes()).expect("a counter of 64 bits does not overflow");
    }
}

fn write(times: u64) {
    let mut ready = Ready::new();
    (0..times).for_each(|_| ready.report());
}

fn suspending() -> Coroutine<(), (), ()> {
    Coroutine::new(|yielder, ()| {
        loop {
            yielder.suspend(());
        }
    })
}

fn bare(times: u64) {
    let mut ready = Ready::new();
    let mut poll = Poll::new().expect("the system has descriptors");
    let mut events = Events::with_capacity(1024);
    poll.registry()
        .register(&mut SourceFd(&ready.0.as_raw_fd()), Token(0), Interest::READABLE)
        .expect("it can be polled");
    let mut coroutine = suspending();
    for _ in 0..times {
        ready.report();
        poll.poll(&mut events, None).expect("epoll works");
        for event in &events {
            assert_eq!(black_box(event).token(), Token(0));
            coroutine.resume(());
        }
    }
}

fn step(times: u64) {
    let mut ready = Ready::new();
    let mut scheduler = Scheduler::new().expect("the system has descriptors");
    let descriptor = ready.0.try_clone().expect("the system has descriptors");
    scheduler
        .register_source(sources::readable(descriptor), |ready| {
            black_box(ready);
        })
        .expect("it can be polled");
    let resumed = |step: Step| assert!(matches!(step, Step::Resumed));
    resumed(scheduler.step().expect("epoll works")); // it waits for its first event
    for _ in 0..times {
        ready.report();
        resumed(scheduler.step().expect("epoll works"));
    }
}

fn bare_switch(times: u64) {
    let mut coroutine = suspending();
    for _ in 0..times {
        black_box(coroutine.resume(()));
    }
}

fn switch(times: u64) {
    let mut scheduler = Scheduler::new().expect("the system has descriptors");
    let yields = || -> () {
        loop {
            yield_now();
        }
    };
    scheduler.spawn(yields).expect("it is the first coroutine");
    for _ in 0..times {
        let step = scheduler.step().expect("epoll works");
        assert!(matches!(step, Step::Resumed));
    }
}

fn bare_create(times: u64) {
    for _ in 0..times {
        let mut coroutine = Coroutine::<(), (), u8>::new(|_, ()| 1);
        black_box(coroutine.resume(()));
    }
}

fn create(times: u64) {
    let mut scheduler = Scheduler::new().expect("the system has descriptors");
    for _ in 0..times {
        scheduler.spawn(|| black_box(1)).expect("there is one at a time");
        let step = scheduler.step().expect("epoll works");
        assert!(matches!(step, Step::Resumed));
    }
}
