//! Models of `sleep`: alone, with the queues it guards, and under a whole program.

use std::sync::Arc;
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::plan::Plan;
use comporta_model::port::Out;
use shuttle::sync::Barrier;
use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use shuttle::thread;

use super::{check, explore, handled, run, run_beside, start, summary};
use crate::app::App;
use crate::core::Core;
use crate::path::ready::{Entry, Local, Task, Token, When};
use crate::path::shared::Shared;
use crate::path::visit_order::Cursor;
use crate::sleep::{Awake, Sleep, Woken};

const TOKEN: Token = Token { stage: 0, task: Task::Any, home: 0 };
const ENTRY: Entry = Entry { token: TOKEN, since: Time::ZERO, pays: true };

/// The queues and sleepers of a pool without a program.
struct Pool {
    sleep: Sleep,
    shared: Shared,
    locals: Vec<Local>,
    left: AtomicUsize,
}

impl Pool {
    fn sees_work(&self) -> bool {
        !self.shared.is_empty() || self.locals.iter().any(|local| local.has_stealable())
    }

    fn take(&self, me: usize) -> bool {
        if self.locals[me].pop(false, Time::ZERO).is_some() {
            if self.locals[me].has_stealable() {
                self.sleep.work_made();
            }
            return true;
        }
        let popped = self.shared.pop(&mut Cursor::default(), 1, 0);
        if popped.token.is_some() {
            if popped.left > 0 {
                self.sleep.work_made();
            }
            return true;
        }
        self.locals.iter().any(|local| local.steal(false, Time::ZERO).is_some())
    }

    /// As `Worker::run`, but that a visit only counts; the first token makes two more.
    fn work(&self, me: usize) {
        let woken = Arc::new(Woken::default());
        let mut searching = false;
        self.sleep.up();
        while self.left.load(SeqCst) > 0 {
            if self.take(me) {
                if std::mem::take(&mut searching) {
                    self.sleep.end_search();
                    if self.sees_work() {
                        self.sleep.work_made();
                    }
                }
                let left = self.left.fetch_sub(1, SeqCst);
                if left == 4 {
                    self.locals[me].push(ENTRY, When::Lifo);
                    self.locals[me].push(ENTRY, When::Fifo);
                } else if left == 1 {
                    self.sleep.wake_all();
                }
                continue;
            }
            if !searching {
                searching = self.sleep.begin_search(self.locals.len());
            }
            self.sleep.announce(&woken, std::mem::take(&mut searching));
            self.sleep.down();
            if self.sees_work() || self.left.load(SeqCst) == 0 {
                searching = self.sleep.cancel(&woken);
            } else {
                self.sleep.commit(&woken);
                searching = true;
            }
            self.sleep.up();
        }
    }
}

fn makers_and_workers(workers: usize, cpus: usize) {
    let pool = Arc::new(Pool {
        sleep: Sleep::new(Arc::new(Awake::new(cpus, Arc::default()))),
        shared: Shared::default(),
        locals: (0..workers).map(|_| Local::default()).collect(),
        left: AtomicUsize::new(4), // two from the makers, two from a worker
    });
    let workers = (0..workers).map(|me| {
        let pool = pool.clone();
        thread::spawn(move || pool.work(me))
    });
    let workers: Vec<_> = workers.collect();
    for _ in 0..2 {
        let pool = pool.clone();
        thread::spawn(move || {
            assert!(pool.shared.push(TOKEN, || Some(0)));
            pool.sleep.work_made();
        });
    }
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

#[test]
fn two_makers_and_two_workers_leave_no_token_behind() {
    explore(|| makers_and_workers(2, usize::MAX));
}

#[test]
fn two_makers_and_three_workers_leave_no_token_behind() {
    explore(|| makers_and_workers(3, usize::MAX));
}

#[test]
fn where_as_many_are_up_as_there_are_processors_nobody_is_woken_and_no_token_left_behind() {
    explore(|| makers_and_workers(2, 1));
    explore(|| makers_and_workers(3, 1));
    explore(|| makers_and_workers(3, 2));
}

#[test]
fn ping_pong_on_two_and_three_workers_always_ends() {
    fn model(threads: usize) {
        let app = App::new("pingpong");
        let less = |n: u32, out: &mut Out<u32>| {
            if n > 0 {
                out.send(n - 1);
            }
        };
        let ping = app.process("ping", less).stateful().autostart(6);
        let pong = app.process("pong", less).stateful();
        app.connect(ping, pong);
        app.connect(pong, ping);
        let summary = summary(app, &Plan::new().threads(threads));
        assert_eq!(handled(&summary, "ping") + handled(&summary, "pong"), 7);
    }
    explore(|| model(2));
    explore(|| model(3));
}

/// Two handlers that wait for each other, which real ones must not: only a pool that never leaves
/// a worker asleep while a token stands comes through.
fn meeting(events: u32) -> App {
    let app = App::new("meeting");
    let source = app.source("source", move || 0..events);
    let fork = app.map("fork", |n: u32| n);
    app.connect(source, fork);
    let barrier = Arc::new(Barrier::new(2));
    for name in ["left", "right"] {
        let barrier = barrier.clone();
        let end = app.sink(name, move |_: u32| {
            barrier.wait();
        });
        app.connect(fork, end);
    }
    app
}

fn meeting_plan(policy: &str) -> Plan {
    Plan::new().threads(2).policy(policy).every(|s| s.batch(1).capacity(1))
}

#[test]
fn of_two_pushes_from_outside_neither_waits_for_the_others_visit() {
    explore(|| {
        let app = App::new("pushed");
        let barrier = Arc::new(Barrier::new(2));
        let pushes = ["left", "right"].map(|name| {
            let (sender, input) = app.input::<u32>(format!("to-{name}"));
            let barrier = barrier.clone();
            let end = app.sink(name, move |_: u32| {
                barrier.wait();
            });
            app.connect(input, end);
            sender
        });
        let (running, _) = start(app, &Plan::new().threads(2));
        pushes.into_iter().for_each(|sender| sender.send(0).unwrap());
        check(&running.wait());
    });
}

#[test]
fn two_workers_make_two_ready_visits_at_once() {
    // How long a visit takes is not known before the first.
    explore(|| run(meeting(1), &meeting_plan("stealing")));
    explore(|| run(meeting(3), &meeting_plan("single")));
}

#[test]
fn a_visit_that_seemed_too_short_to_be_moved_is_when_its_worker_does_not_come_to_it() {
    explore(|| {
        run_beside(meeting(3), &meeting_plan("stealing"), |core| {
            core.clock.advance(Duration::from_millis(1));
            if core.timers.was_hurried() {
                core.look(core.clock.now()); // only if somebody has asked for it
            }
        });
    });
}

#[test]
fn a_worker_that_yields_between_two_visits_keeps_none_from_the_other() {
    fn model(policy: &str, events: u32) {
        // So much time passes that every visit is followed by a yield, the short ones and the long.
        let tick = |core: &Core| core.clock.advance(Duration::from_micros(150));
        run_beside(meeting(events), &meeting_plan(policy), tick);
    }
    explore(|| model("stealing", 1));
    explore(|| model("single", 3));
}
