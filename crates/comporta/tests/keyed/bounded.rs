//! Waits that end: a program that does not come to its end in time has stalled, and the test fails.

use std::time::Duration;

use comporta::{App, Ended, Plan, Running, Summary};

/// How long a test waits for what must happen.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// Waits for the end of a program, which must be complete, with all events accounted for.
pub(crate) fn complete(running: Running) -> Summary {
    let summary = running
        .wait_for(BOUND)
        .unwrap_or_else(|running| panic!("stalled: {:?}", running.snapshot().stages));
    assert_eq!(summary.ended, Ended::Complete, "{summary}");
    assert!(summary.snapshot.adds_up(), "{summary}");
    summary
}

/// Runs a program to its end.
pub(crate) fn run(app: App, plan: &Plan) -> Summary {
    complete(app.start(plan).unwrap())
}
