//! What a suspended coroutine holds: resident bytes of `MANY` that suspended ten calls deep, once as they
//! are, and once after their stacks were 256 KiB deep; measured when the scheduler has been idle long
//! enough to give back what is not used. The heap is part of it.
//! Taken once: it repeats to within a page in a hundred.

use crate::report::{Report, Table};
use comporta_scheduler::{Scheduler, Step, sleep};
use std::fs;
use std::hint::black_box;
use std::time::Duration;

const MANY: usize = 10_000;
const DEEP: usize = 256 * 1024;
const CALLS: usize = 10;
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(3600);
/// Long enough for the scheduler to have been idle, and to have swept `MANY` stacks.
const IDLE: Duration = Duration::from_secs(1);

pub(super) fn run(report: &mut Report) {
    let (plain, before) = each(0);
    let (deep, at_depth) = each(DEEP);
    println!("\nmemory: resident bytes of each of {MANY} coroutines suspended {CALLS} calls deep");
    let mut table = Table::new(&["its stack was", "at first", "when idle"]);
    let bytes = |figure: f64| format!("{figure:.0}");
    table.row(["never deeper".into(), bytes(before), bytes(plain)]);
    table.row(["once 256 KiB deep".into(), bytes(at_depth), bytes(deep)]);
    table.print();
    report.figure("bytes_suspended", deep.max(plain));
    report.figure("bytes_suspended_plain", plain);
    report.figure("bytes_suspended_once_deep", deep);
}

/// Resident bytes of each when the scheduler has been idle, and before that.
fn each(deep: usize) -> (f64, f64) {
    let mut scheduler = Scheduler::new().expect("the system has descriptors");
    let before = resident_bytes();
    for _ in 0..MANY {
        let body = move || {
            black_box(descend(deep));
            suspended_below(CALLS);
        };
        scheduler.spawn(body).expect("the default limit is above this");
        let step = scheduler.step().expect("epoll works");
        assert!(matches!(step, Step::Resumed));
    }
    let at_first = (resident_bytes() - before) / MANY as f64;
    let step = scheduler.step_within(IDLE).expect("epoll works");
    assert!(matches!(step, Step::Idle));
    ((resident_bytes() - before) / MANY as f64, at_first)
}

/// Uses so much stack, and returns.
#[inline(never)]
fn descend(bytes: usize) -> usize {
    const FRAME: usize = 1024;
    if bytes < FRAME {
        return 0;
    }
    let frame = black_box([1_u8; FRAME]);
    descend(bytes - FRAME) + usize::from(black_box(&frame)[9])
}

#[inline(never)]
fn suspended_below(calls: usize) -> usize {
    let frame = black_box([calls; 8]);
    if calls == 0 {
        sleep(LONG);
    } else {
        suspended_below(calls - 1);
    }
    black_box(frame)[0]
}

/// NaN where `/proc` is absent.
fn resident_bytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").ok();
    let kib = status.as_deref().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.parse::<f64>().ok()
    });
    kib.map_or(f64::NAN, |kib| kib * 1024.0)
}
