//! Event schedulers as sources, and stages of coroutines (feature `scheduler`): what they promise, with threads.
//! Nothing here waits for time to pass: coroutines wait for what others send them.

#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

mod stages;

use comporta::scheduler::net::{TcpListener, TcpStream};
use comporta::scheduler::{sleep, spawn};
use comporta::testing::TestRuntime;
use comporta::{App, Ended, Out, Plan, Running, Summary, sources};
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);
/// How long anything is waited for. Nothing that works takes a tenth of it.
const BOUND: Duration = Duration::from_secs(30);

/// What comes next.
#[track_caller]
fn next<T>(from: &mpsc::Receiver<T>) -> T {
    from.recv_timeout(BOUND).unwrap()
}

/// Runs a program to its end.
#[track_caller]
fn run(app: App, plan: &Plan) -> Summary {
    ends(app.start(plan).unwrap())
}

/// Waits for the end of a program.
#[track_caller]
fn ends(running: Running) -> Summary {
    let ended = running.wait_for(BOUND);
    ended.unwrap_or_else(|running| panic!("no end after {BOUND:?}\n{}", running.snapshot()))
}

/// What a sink has seen.
#[derive(Clone)]
struct Seen<T>(Arc<Mutex<Vec<T>>>);

impl<T: Send + Ord + Clone + 'static> Seen<T> {
    fn new() -> Seen<T> {
        Seen(Arc::default())
    }

    fn see(&self) -> impl FnMut(T) + Clone + Send + Sync + 'static {
        let seen = self.0.clone();
        move |event| seen.lock().unwrap().push(event)
    }

    fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }

    fn sorted(&self) -> Vec<T> {
        let mut all = self.all();
        all.sort();
        all
    }
}

/// Every event is accounted for, and nothing is left.
fn check(summary: &Summary, ended: Ended) {
    assert_eq!(summary.ended, ended, "{summary}");
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert!(summary.problems.is_empty(), "{summary}");
}

fn handled(summary: &Summary, stage: &str) -> u64 {
    summary.snapshot.stage(stage).unwrap().counts.handled
}

/// Threads, and room in queues.
fn plans() -> Vec<Plan> {
    let plan = |threads, capacity| Plan::new().threads(threads).every(|s| s.capacity(capacity));
    vec![plan(1, 1), plan(1, 1024), plan(2, 1), plan(4, 16), plan(8, 1024)]
}

#[test]
fn what_coroutines_of_a_source_send_is_handled_in_order_whatever_the_room() {
    for plan in plans() {
        let (app, seen) = (App::new("numbers"), Seen::new());
        let numbers = sources::scheduler(&app, "numbers", |out| {
            for n in 0..300_u32 {
                out.send(n).unwrap();
            }
        });
        app.connect(numbers, app.sink("sink", seen.see()));
        check(&run(app, &plan), Ended::Complete);
        assert_eq!(seen.all(), (0..300).collect::<Vec<_>>());
    }
}

#[test]
fn a_source_goes_on_until_its_last_coroutine_ends() {
    let (app, seen) = (App::new("echo"), Seen::new());
    let words = sources::scheduler(&app, "words", |out| -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        for n in 0..10_u8 {
            spawn(move || TcpStream::connect(address)?.write_all(&[n]))?;
        }
        for _ in 0..10 {
            let (mut stream, _) = listener.accept()?;
            let out = out.clone();
            spawn(move || {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                out.send(byte[0]).unwrap();
            })?;
        }
        Ok(())
    });
    app.connect(words, app.sink("sink", seen.see()));
    check(&run(app, &Plan::new()), Ended::Complete);
    assert_eq!(seen.sorted(), (0..10).collect::<Vec<_>>());
}

#[test]
fn an_error_and_a_panic_in_a_source_are_problems_of_the_run() {
    let app = App::new("faulty");
    let numbers = sources::scheduler(&app, "numbers", |out| -> io::Result<()> {
        out.send(1_u8).unwrap();
        drop(spawn(|| panic!("on purpose"))?);
        Err(io::Error::other("no good"))
    });
    app.connect(numbers, app.sink("sink", |_: u8| ()));
    let summary = run(app, &Plan::new());
    assert_eq!((summary.ended, handled(&summary, "sink")), (Ended::Complete, 1));
    let mut problems = summary.problems.clone();
    problems.sort();
    let expected = [
        "the event loop `numbers`: the coroutine panicked: on purpose",
        "the event loop `numbers`: the handler failed: no good",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn a_drain_ends_a_source_that_waits_and_keeps_what_it_was_sending() {
    let (app, seen) = (App::new("full"), Seen::new());
    let (entered, in_handler) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (sending, sends) = mpsc::channel();
    let numbers = sources::scheduler(&app, "numbers", move |out| {
        let idle = out.clone();
        drop(spawn(move || {
            sleep(LONG);
            idle.send(99)
        }));
        for n in 0..3_u8 {
            sending.send(n).unwrap();
            out.send(n).unwrap();
        }
        sleep(LONG);
    });
    let (released, mut see) = (Arc::new(Mutex::new(released)), seen.see());
    let sink = app.sink("sink", move |n: u8| {
        let _ = entered.send(());
        let _ = released.lock().unwrap().recv_timeout(BOUND);
        see(n);
    });
    app.connect(numbers, sink);
    let plan = Plan::new().threads(1).every(|s| s.capacity(1).batch(1));
    let running = app.start(&plan).unwrap();
    next(&in_handler);
    // The first is in the handler, the second in the queue; the third waits for room, or is about to.
    while next(&sends) < 2 {}
    running.close();
    drop(release);
    let summary = ends(running);
    check(&summary, Ended::Drained);
    let all = seen.all();
    assert!(all == [0, 1] || all == [0, 1, 2], "{all:?}");
}

#[test]
fn a_drain_ends_a_source_whose_coroutines_send_without_end() {
    let app = App::new("endless");
    let (tell, told) = mpsc::channel();
    let numbers = sources::scheduler(&app, "numbers", |out| {
        for _ in 0..3 {
            let out = out.clone();
            drop(spawn(move || while out.send(1_u8).is_ok() {}));
        }
    });
    let sink = app.sink("sink", move |_: u8| {
        let _ = tell.send(());
    });
    app.connect(numbers, sink);
    let running = app.start(&Plan::new().threads(1).every(|s| s.capacity(1).batch(1))).unwrap();
    (0..10).for_each(|_| next(&told));
    check(&running.drain_within(Duration::from_secs(20)), Ended::Drained);
}

#[test]
fn a_stop_unwinds_the_coroutines_of_a_source() {
    struct Dropped(mpsc::Sender<&'static str>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.send("dropped").unwrap();
        }
    }
    let app = App::new("sleepy");
    let (tell, told) = mpsc::channel();
    let never = sources::scheduler(&app, "never", move |_: sources::Emitter<u8>| {
        tell.send("began").unwrap();
        let _held = Dropped(tell);
        sleep(LONG);
    });
    app.connect(never, app.sink("sink", |_: u8| ()));
    let running = app.start(&Plan::new()).unwrap();
    assert_eq!(next(&told), "began");
    assert_eq!(running.stop().ended, Ended::Stopped);
    assert_eq!(next(&told), "dropped");
}

#[test]
fn a_loop_cannot_be_stepped_and_says_so() {
    let app = App::new("stepped");
    let none = sources::scheduler(&app, "idle", |_: sources::Emitter<u8>| ());
    app.connect(none, app.sink("sink", |_: u8| ()));
    let refused = TestRuntime::new(app, &Plan::new()).unwrap_err();
    assert!(refused.to_string().contains("cannot be stepped"), "{refused}");

    let app = App::new("stepped");
    let numbers = app.source("numbers", || 0..3_u8);
    let wait = app.stage_coroutine("wait", |n: u8, out: &mut Out<u8>| out.send(n));
    app.connect(numbers, wait);
    let refused = TestRuntime::new(app, &Plan::new()).unwrap_err();
    let expected = "the resource `wait (event loop)` could not be opened: an event loop has a thread of its own \
                    and cannot be stepped";
    assert_eq!(refused.to_string(), expected);
}
