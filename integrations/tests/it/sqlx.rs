//! sqlx with SQLite: a pool of a few connections, which 200 handlers share.

use std::path::PathBuf;
use std::time::Duration;

use ::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use comporta::{App, Plan, Resource, Result};

use crate::program::{BOUND, all_come_through, threads, until, waiting};

/// A database in a file of its own, which is removed at the end of the test.
struct Database(PathBuf);

impl Database {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("comporta-{name}-{}.db", std::process::id()));
        Database(path)
    }

    fn options(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new()
            .filename(&self.0)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(BOUND)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        for more in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{more}", self.0.display()));
        }
    }
}

/// A pool as a resource: its connections are made when they are needed.
fn pool(app: &App, database: &Database) -> Resource<SqlitePool> {
    let options = database.options();
    let open = move || {
        Ok(SqlitePoolOptions::new()
            .max_connections(5)
            .acquire_timeout(BOUND)
            .connect_lazy_with(options))
    };
    app.resource("pool", open, drop)
}

async fn insert(pool: Resource<SqlitePool>, n: u64) -> Result<u64> {
    let pool = pool.get();
    let n = i64::try_from(n)?;
    ::sqlx::query("create table if not exists numbers (n integer)").execute(&*pool).await?;
    let mut all = pool.begin().await?;
    ::sqlx::query("insert into numbers values (?)").bind(n).execute(&mut *all).await?;
    let found: i64 = ::sqlx::query_scalar("select n from numbers where n = ?")
        .bind(n)
        .fetch_one(&mut *all)
        .await?;
    all.commit().await?;
    Ok(found.try_into()?)
}

#[test]
fn two_hundred_handlers_share_a_pool_of_five_connections() {
    let database = Database::new("shared");
    let app = App::new("rows");
    let pool = pool(&app, &database);
    all_come_through(waiting(app, 1_000, 200, move |n| insert(pool.clone(), n)), 1_000);
    until("its threads are gone", || threads("sqlx-sqlite-wor") == 0);
}

#[test]
fn a_stop_in_the_middle_leaves_no_connection_behind() {
    let database = Database::new("stopped");
    let app = App::new("rows");
    let pool = pool(&app, &database);
    let (running, seen) = waiting(app, u64::MAX, 200, move |n| insert(pool.clone(), n));
    until("some rows", || !seen.lock().unwrap().is_empty());
    let summary = running.stop();
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert!(summary.problems.is_empty(), "{summary}");
}

#[test]
fn a_handler_that_is_dropped_gives_its_connection_back() {
    let database = Database::new("dropped");
    let app = App::new("rows");
    let pool = pool(&app, &database);
    let numbers = app.source("numbers", || 0..40_u64);
    // Every other one holds its connection for ever, until its time is up.
    let hold = app.sink_async("hold", move |n: u64| {
        let pool = pool.clone();
        async move {
            let pool = pool.get();
            let connection = pool.acquire().await?;
            if n.is_multiple_of(2) {
                std::future::pending::<()>().await;
            }
            drop(connection);
            Ok::<(), comporta::Error>(())
        }
    });
    app.connect(numbers, hold);
    let limit = Duration::from_millis(200);
    let plan = Plan::new().stage("hold", |hold| hold.instances(2).timeout(limit));
    let summary = crate::program::ends(app.start(&plan).unwrap());
    let counts = summary.snapshot.stage("hold").unwrap().counts;
    assert_eq!((counts.handled, counts.failed), (20, 20), "{summary}");
}
