//! Work that blocks, on threads of its own.

use comporta_scheduler::{Failure, Scheduler, listen, sources, spawn, spawn_blocking, yield_now};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

#[test]
fn blocking_work_runs_elsewhere_while_others_go_on() {
    let mut scheduler = crate::real_scheduler();
    let here = thread::current().id();
    scheduler
        .block_on(move || {
            let (release, blocked) = mpsc::channel();
            let job = spawn_blocking(move || {
                let word: &str = blocked.recv().unwrap();
                (word, thread::current().id())
            })
            .unwrap();
            // It blocks its thread, not ours: another coroutine releases it.
            spawn(move || {
                yield_now();
                release.send("released").unwrap();
            })
            .unwrap();
            let (word, there) = job.join().unwrap();
            assert_eq!(word, "released");
            assert_ne!(there, here);
        })
        .unwrap();
}

#[test]
fn a_panic_of_blocking_work_reaches_whoever_joins_it() {
    let mut scheduler = crate::real_scheduler();
    let joined =
        scheduler.block_on(|| spawn_blocking(|| -> u8 { panic!("in the thread") }).unwrap().join());
    match joined.unwrap() {
        Err(failure @ Failure::Panic(_)) => {
            assert_eq!(failure.to_string(), "the coroutine panicked: in the thread");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn as_many_jobs_run_at_once_as_there_are_threads_and_the_others_wait_their_turn() {
    let mut scheduler = Scheduler::builder().blocking_threads_max(2).build().unwrap();
    let most = scheduler.block_on(|| {
        // Each waits for another that runs at the same time.
        let pair = Arc::new(Barrier::new(2));
        let running = Arc::new(Mutex::new((0, 0)));
        let jobs: Vec<_> = (0..50)
            .map(|n| {
                let (pair, running) = (pair.clone(), running.clone());
                let job = move || {
                    let mut now = running.lock().unwrap();
                    *now = (now.0 + 1, now.1.max(now.0 + 1));
                    drop(now);
                    pair.wait();
                    running.lock().unwrap().0 -= 1;
                    n
                };
                spawn_blocking(job).unwrap()
            })
            .collect();
        for (place, job) in jobs.into_iter().enumerate() {
            assert_eq!(job.join().unwrap(), place);
        }
        running.lock().unwrap().1
    });
    assert_eq!(most.unwrap(), 2);
}

#[test]
fn jobs_beyond_the_bound_are_refused() {
    let mut scheduler = Scheduler::builder().blocking_threads_max(1).build().unwrap();
    scheduler
        .block_on(|| {
            let (release, blocked) = mpsc::channel::<()>();
            let first = spawn_blocking(move || blocked.recv().is_ok()).unwrap();
            let mut waiting = Vec::new();
            let refused = loop {
                match spawn_blocking(|| ()) {
                    Ok(job) => waiting.push(job),
                    Err(error) => break error,
                }
            };
            // The first may or may not have been taken up by its thread yet.
            assert!((4095..=4096).contains(&waiting.len()), "{}", waiting.len());
            assert_eq!(refused.kind(), std::io::ErrorKind::QuotaExceeded);
            release.send(()).unwrap();
            assert!(first.join().unwrap());
            waiting.into_iter().for_each(|job| job.join().unwrap());
        })
        .unwrap();
}

#[test]
fn a_scheduler_that_is_dropped_forgets_jobs_that_have_not_begun() {
    let (release, blocked) = mpsc::channel::<()>();
    let (began, begun) = mpsc::channel();
    let mut scheduler = Scheduler::builder().blocking_threads_max(1).build().unwrap();
    scheduler
        .block_on(move || {
            let first = began.clone();
            drop(spawn_blocking(move || {
                first.send("first").unwrap();
                blocked.recv().unwrap();
            }));
            drop(spawn_blocking(move || began.send("second")));
        })
        .unwrap();
    assert_eq!(begun.recv(), Ok("first"));
    drop(scheduler);
    release.send(()).unwrap();
    assert!(begun.recv().is_err(), "the second was dropped, and its sender with it");
}

#[test]
fn blocking_sources_beyond_the_bound_are_refused_until_a_thread_ends() {
    let mut scheduler = Scheduler::builder().source_threads_max(1).build().unwrap();
    scheduler
        .block_on(|| {
            let (release, blocked) = mpsc::channel::<()>();
            let source = || sources::blocking(|| Ok(None::<()>));
            let first = listen(sources::blocking(move || {
                let _ = blocked.recv();
                Ok(None::<()>)
            }))
            .unwrap();
            let refused = listen(source()).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::QuotaExceeded);
            // The thread outlives the source by the call that is under way.
            drop(first);
            assert!(listen(source()).is_err());
            drop(release);
            loop {
                match listen(source()) {
                    Ok(events) => break assert_eq!(events.next().unwrap(), None),
                    Err(_) => yield_now(),
                }
            }
        })
        .unwrap();
}
