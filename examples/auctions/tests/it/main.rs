//! What `auctions` promises: under every plan, what a plain loop finds; and a command that says so.

#![allow(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

use std::process::Command;
use std::time::Duration;

use auctions::program::{Settings, app};
use auctions::show::Show;
use comporta::{Ended, Plan};

fn settings(seed: u64, size: u64, step: u64) -> Settings {
    let window = (Duration::from_millis(size), Duration::from_millis(step));
    Settings { bids: 20_000, per_second: 2_000, seed, pace: false, window }
}

#[test]
fn every_plan_shows_what_a_plain_loop_finds() {
    for (seed, size, step) in [(1, 4_000, 1_000), (2, 3_000, 2_000), (3, 500, 500)] {
        let settings = settings(seed, size, step);
        for (threads, instances, capacity) in [(1, 1, 1_024), (2, 4, 16), (3, 3, 1_024)] {
            let plan = Plan::new().threads(threads).every(|stage| stage.capacity(capacity));
            let plan = plan.stage("count", |count| count.instances(instances));
            let plan = plan.stage("hottest", |hottest| hottest.instances(instances));
            let summary = app(settings, Show::new(Some(settings), false)).run(&plan).unwrap();
            assert_eq!(summary.ended, Ended::Complete);
            assert!(summary.problems.is_empty() && summary.snapshot.adds_up(), "{summary}");
            let late = summary.snapshot.stage("hottest").unwrap().event_time.unwrap().late;
            assert_eq!(late, 0);
        }
    }
}

#[test]
fn the_command_prints_a_line_for_each_window_and_verifies_them() {
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/auctions.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_auctions"))
        .args(["run", "--bids", "50000", "--verify", "--plan", plan])
        .output()
        .unwrap();
    let (out, errors) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert_eq!(output.status.code(), Some(0), "{errors:?}");
    let out = out.unwrap();
    let (last, lines) =
        out.trim_end().rsplit_once('\n').map(|(lines, last)| (last, lines)).unwrap();
    assert!(last.starts_with("verified: a plain loop finds the same in all "), "{out}");
    assert!(lines.lines().all(|line| line.contains(" s ")), "{out}");
}
