//! What handlers that wait may use of tokio, as `docs/waiting.md` lists it: sockets, timers, channels and
//! tasks, inside of a tokio runtime and without one; and what they may not, with the error it gives.

#![allow(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::{App, AsyncCx, AsyncStageMut, Cx, Emissions, Error, Plan, Result, Running, Summary};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, Semaphore, mpsc, oneshot, watch};
use tokio::task::{JoinSet, spawn, spawn_blocking, yield_now};
use tokio::time::{sleep, timeout};

const BOUND: Duration = Duration::from_secs(30);
const MS: Duration = Duration::from_millis(1);

/// Sends `0..events` through a stage that waits, ten in flight; returns what came out, sorted.
fn through<F, Fut>(events: u64, call: F) -> (Vec<u64>, Summary)
where
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u64>> + Send + 'static,
{
    let app = App::new("waiting");
    let numbers = app.source("numbers", move || 0..events);
    let wait = app.try_map_async("wait", call);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let see = seen.clone();
    app.connect(numbers, wait);
    app.connect(wait, app.sink("end", move |n: u64| see.lock().unwrap().push(n)));
    let plan = Plan::new().threads(2).stage("wait", |wait| wait.instances(10));
    let running = app.start(&plan).unwrap();
    let Ok(summary) = running.wait_for(BOUND) else { panic!("no end after {BOUND:?}") };
    assert!(summary.snapshot.adds_up(), "{summary}");
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    (seen, summary)
}

/// Waits until it holds, and no longer than the bound.
#[track_caller]
fn until(mut holds: impl FnMut() -> bool) {
    let (_open, never) = std::sync::mpsc::channel::<()>();
    let held = (0..BOUND.as_millis()).any(|_| holds() || never.recv_timeout(MS).is_ok());
    assert!(held, "not within {BOUND:?}");
}

fn all_come_through<F, Fut>(call: F)
where
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u64>> + Send + 'static,
{
    let (seen, summary) = through(100, call);
    assert!(seen.into_iter().eq(0..100), "{summary}");
}

/// The reasons for which all events failed.
fn all_fail<F, Fut>(call: F) -> String
where
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u64>> + Send + 'static,
{
    let (seen, summary) = through(20, call);
    assert!(seen.is_empty(), "{summary}");
    assert_eq!(summary.snapshot.stage("wait").unwrap().counts.failed, 20);
    summary.to_string()
}

#[test]
fn timers() {
    all_come_through(|n| async move {
        sleep(MS).await;
        let late = timeout(MS, std::future::pending::<()>()).await;
        late.map_or(Ok(n), |()| Err(Error::msg("it is not late")))
    });
}

#[test]
fn sockets() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    server.set_nonblocking(true).unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(async move {
        let server = TcpListener::from_std(server).unwrap();
        while let Ok((mut stream, _)) = server.accept().await {
            tokio::spawn(async move {
                let n = stream.read_u64().await?;
                stream.write_u64(n).await
            });
        }
    });
    all_come_through(move |n| async move {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_u64(n).await?;
        Ok(stream.read_u64().await?)
    });
}

#[test]
fn channels_tasks_and_threads() {
    let permits = Arc::new(Semaphore::new(2));
    all_come_through(move |n| {
        let permits = permits.clone();
        async move {
            let _permit = permits.acquire().await?;
            let (sender, receiver) = oneshot::channel();
            let task = spawn(async move {
                sleep(MS).await;
                let _ = sender.send(n);
            });
            let (ask, mut asked) = mpsc::channel(1);
            let thread = spawn_blocking(move || ask.blocking_send(receiver.blocking_recv()));
            let answer = tokio::select! {
                answer = asked.recv() => answer,
                () = sleep(BOUND) => None,
            };
            task.await?;
            thread.await??;
            Ok(answer.ok_or_else(|| Error::msg("no answer"))??)
        }
    });
}

#[test]
fn inside_of_a_runtime_its_reactor_is_used() {
    let threads = Arc::new(Mutex::new(0));
    let count = threads.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .on_thread_start(move || *count.lock().unwrap() += 1)
        .build()
        .unwrap();
    let _inside = runtime.enter();
    all_come_through(|n| async move {
        // Spawned here, it runs on a thread of the runtime that the program was started in.
        let name = spawn(async { std::thread::current().name().map(str::to_owned) }).await?;
        assert_ne!(name.as_deref(), Some("waiting-reactor"));
        Ok(n)
    });
    assert!(*threads.lock().unwrap() >= 1);
}

#[test]
fn a_program_without_a_runtime_has_one_of_its_own_and_leaves_nothing_behind() {
    fn reactors() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.starts_with("leaving-reactor")).count()
    }
    let app = App::new("leaving");
    let numbers = app.source("numbers", || 0..10_u64);
    let wait = app.sink_async("wait", |_: u64| async {
        let name = spawn(async { std::thread::current().name().map(str::to_owned) }).await;
        assert_eq!(name.unwrap().as_deref(), Some("leaving-reactor"));
    });
    app.connect(numbers, wait);
    let Ok(summary) = app.start(&Plan::new()).unwrap().wait_for(BOUND) else {
        panic!("no end after {BOUND:?}")
    };
    assert_eq!(summary.snapshot.stage("wait").unwrap().counts.handled, 10, "{summary}");
    until(|| reactors() == 0);
}

#[test]
fn a_runtime_of_one_thread_is_not_relied_upon() {
    // Its thread may be the one that starts the program and waits for it: nobody would drive its timers.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        all_come_through(|n| async move {
            let name = spawn(async { std::thread::current().name().map(str::to_owned) }).await?;
            assert_eq!(name.as_deref(), Some("waiting-reactor"));
            sleep(MS).await;
            Ok(n)
        });
    });
}

#[test]
fn sets_of_tasks_streams_of_ticks_and_yields() {
    all_come_through(|n| async move {
        let mut set = JoinSet::new();
        (0..4).for_each(|part| drop(set.spawn(async move { n * part })));
        let mut ticks = tokio::time::interval(MS);
        while let Some(part) = set.join_next().await {
            assert!(part? <= 3 * n);
            ticks.tick().await;
            yield_now().await;
        }
        Ok(n)
    });
}

#[test]
fn locks_signals_and_cells_are_shared_by_handlers() {
    let sum = Arc::new(tokio::sync::Mutex::new(0_u64));
    let (changed, watched) = watch::channel(0_u64);
    let (changed, once) = (Arc::new(changed), Arc::new(OnceCell::new()));
    let of_all = sum.clone();
    all_come_through(move |n| {
        let (sum, once, changed) = (sum.clone(), once.clone(), changed.clone());
        let mut watched = watched.clone();
        async move {
            once.get_or_init(|| sleep(MS)).await;
            let mut sum = sum.lock().await;
            yield_now().await; // held across an await
            *sum += 1;
            changed.send_replace(*sum);
            drop(sum);
            watched.wait_for(|sum| *sum >= 1).await?;
            Ok(n)
        }
    });
    assert_eq!(*of_all.blocking_lock(), 100);
}

/// Notes whether tokio is there when it is dropped, as connections of a pool need it.
struct NeedsTokio(Arc<Mutex<Vec<bool>>>);

impl Drop for NeedsTokio {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(Handle::try_current().is_ok());
    }
}

#[test]
fn futures_are_dropped_where_tokio_is_however_they_end() {
    let found = Arc::new(Mutex::new(Vec::new()));
    let app = App::new("dropping");
    let numbers = app.source("numbers", || 0..8_u64);
    let note = found.clone();
    let wait = app.sink_async("wait", move |n: u64| {
        let guard = NeedsTokio(note.clone());
        async move {
            let _guard = guard;
            sleep(MS).await;
            match n {
                0 => Ok(()),
                1 => Err(Error::msg("no")),
                2 => panic!("ouch"),
                _ => std::future::pending().await, // four time out, four are stopped
            }
        }
    });
    app.connect(numbers, wait);
    let plan = Plan::new().threads(2).stage("wait", |wait| wait.instances(4).timeout(50 * MS));
    let running = app.start(&plan).unwrap();
    let failed = |running: &Running| running.snapshot().stage("wait").unwrap().counts.failed;
    until(|| failed(&running) >= 4);
    let summary = running.stop();
    assert!(summary.snapshot.adds_up(), "{summary}");
    let found = found.lock().unwrap().clone();
    assert!(found.len() >= 6 && found.iter().all(|there| *there), "{found:?}");
}

#[test]
fn resources_and_stages_are_made_and_closed_where_tokio_is() {
    let found = Arc::new(Mutex::new(Vec::new()));
    let app = App::new("opening");
    let (opened, closed, made) = (found.clone(), found.clone(), found.clone());
    let note = |found: &Arc<Mutex<Vec<bool>>>| {
        found.lock().unwrap().push(Handle::try_current().is_ok());
    };
    let connection = app.resource(
        "connection",
        move || {
            note(&opened);
            // As pools do that look after their connections.
            Ok(spawn(std::future::pending::<()>()))
        },
        move |task| {
            note(&closed);
            task.abort();
        },
    );
    let numbers = app.source("numbers", move || {
        note(&made);
        0..10_u64
    });
    let wait = app.sink_async("wait", move |_: u64| {
        let connection = connection.clone();
        async move { assert!(!connection.get().is_finished()) }
    });
    app.connect(numbers, wait);
    let summary = app.run(&Plan::new()).unwrap();
    assert!(summary.problems.is_empty(), "{summary}");
    assert_eq!(summary.snapshot.stage("wait").unwrap().counts.handled, 10, "{summary}");
    assert_eq!(*found.lock().unwrap(), [true; 3]);
}

/// Says whether tokio is there when it finishes.
struct Finishes(mpsc::UnboundedSender<bool>);

impl AsyncStageMut for Finishes {
    type In = u64;
    type Ports = ();
    async fn handle(&mut self, _: u64, _: &mut Emissions<()>, _: &AsyncCx) -> Result {
        Ok(())
    }
    fn finish(&mut self, (): &mut (), _: &Cx) -> Result {
        self.0.send(Handle::try_current().is_ok())?;
        Ok(())
    }
}

#[test]
fn a_stage_that_waits_finishes_where_tokio_is() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let app = App::new("finishing");
    let numbers = app.source("numbers", || 0..10_u64);
    app.connect(numbers, app.stage("finishes", Finishes(tell)));
    let summary = app.run(&Plan::new()).unwrap();
    assert_eq!(told.try_recv(), Ok(true), "{summary}");
}

/// Where a program's own reactor is found, another that is started would use it, and lose it with that program's end.
#[test]
fn a_program_that_another_one_starts_outlives_it() {
    let inner = Arc::new(Mutex::new(Vec::new()));
    let started = inner.clone();
    let (_, outer) = through(2, move |n| {
        let started = started.clone();
        async move {
            let start = move || {
                let app = App::new("inner");
                let numbers = app.source("numbers", || 0..10_u64);
                let wait = app.sink_async("wait", |_: u64| sleep(20 * MS));
                app.connect(numbers, wait);
                started.lock().unwrap().push(app.start(&Plan::new()).unwrap());
            };
            // On a worker, and on a thread of the reactor.
            if n == 0 {
                start();
            } else {
                spawn(async move { start() }).await?;
            }
            Ok(n)
        }
    });
    assert!(outer.failures.is_empty(), "{outer}");
    for running in std::mem::take(&mut *inner.lock().unwrap()) {
        let Ok(summary) = running.wait_for(BOUND) else { panic!("no end after {BOUND:?}") };
        assert_eq!(summary.snapshot.stage("wait").unwrap().counts.handled, 10, "{summary}");
    }
}

// --- what does not work costs the event, with a reason

#[test]
fn tasks_that_stay_on_their_thread_are_refused() {
    let reason = all_fail(|n| async move {
        tokio::task::spawn_local(async {}).await?;
        Ok(n)
    });
    assert!(reason.contains("LocalSet"), "{reason}");
}

#[test]
fn a_handler_is_no_task() {
    let reason = all_fail(|n| async move {
        let _ = tokio::task::id();
        Ok(n)
    });
    assert!(reason.contains("task"), "{reason}");
}

#[test]
fn a_handler_that_blocks_holds_its_worker_and_nothing_else() {
    // It is no task of tokio's, so tokio does not refuse it.
    let (seen, summary) = through(4, |n| async move {
        Handle::current().block_on(sleep(MS));
        tokio::task::block_in_place(|| ());
        Ok(n)
    });
    assert_eq!(seen, [0, 1, 2, 3], "{summary}");
}

#[test]
fn without_a_stage_that_waits_there_is_no_tokio() {
    let app = App::new("plain");
    let numbers = app.source("numbers", || 0..10_u64);
    let plain = app.sink("plain", |_: u64| drop(spawn(async {})));
    app.connect(numbers, plain);
    let summary = app.run(&Plan::new()).unwrap();
    assert_eq!(summary.snapshot.stage("plain").unwrap().counts.failed, 10);
    assert!(summary.to_string().contains("there is no reactor running"), "{summary}");
}
