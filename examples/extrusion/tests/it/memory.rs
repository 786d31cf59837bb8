//! Ten times the input, the same memory: within 10 %.

use crate::command::{extrusion, text};
use crate::folder;

/// The least of some runs: how threads happen to meet adds a little, and never takes away.
fn peak_kb(steps: &str) -> Option<u64> {
    let out = folder("memory");
    let run = |_| {
        let line =
            ["--segments", "30", "--every", "3", "--ahead", "4", "--stats", "--threads", "2"];
        let output = extrusion(&out, &[&["--steps", steps], &line[..]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = text(&output.stdout);
        let peak = said.lines().find_map(|line| line.strip_prefix("most memory: "));
        peak.expect("--stats was given").strip_suffix(" kB")?.parse::<u64>().ok()
    };
    (0..3).filter_map(run).min()
}

#[test]
fn ten_times_the_steps_take_the_same_memory() {
    let (Some(some), Some(many)) = (peak_kb("300"), peak_kb("3000")) else {
        return; // this system does not say
    };
    assert!(many * 10 <= some * 11, "{some} kB for 300 steps, {many} kB for 3,000");
}
