//! What handlers that wait may use of tokio, as `docs/waiting.md` lists it: sockets, timers, channels and
//! tasks, inside of a tokio runtime and without one; and what they may not, with the error it gives.

#![allow(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::{App, Error, Plan, Result, Summary};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{spawn, spawn_blocking};
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
    let summary = app.run(&Plan::new()).unwrap();
    assert_eq!(summary.snapshot.stage("wait").unwrap().counts.handled, 10, "{summary}");
    let (_open, never) = std::sync::mpsc::channel::<()>();
    let gone = (0..BOUND.as_millis()).any(|_| never.recv_timeout(MS).is_err() && reactors() == 0);
    assert!(gone, "the reactor's thread is still there");
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
