//! The bounds: coroutines, stacks, descriptors. What ends the process, or takes something from all of
//! it, happens in a process of its own: this test binary, asked for one ignored test.

use crate::scheduler;
use comporta_scheduler::net::{TcpListener, TcpStream};
use comporta_scheduler::{Scheduler, Step, sleep, sources, spawn};
use std::cell::RefCell;
use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::rc::Rc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const KIB: usize = 1024;

fn in_a_process(test: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads", "1"])
        .output()
        .unwrap()
}

/// Uses so much stack.
#[inline(never)]
fn deep(bytes: usize) -> usize {
    let frame = std::hint::black_box([0xA5_u8; KIB]);
    let below = if bytes > KIB { deep(bytes - KIB) } else { 0 };
    below + usize::from(std::hint::black_box(&frame)[7])
}

#[test]
fn more_coroutines_than_the_limit_are_refused_until_one_ends() {
    let mut scheduler = Scheduler::builder().coroutines_max(2).virtual_time().build().unwrap();
    let first = scheduler.spawn(|| sleep(SECOND)).unwrap();
    scheduler.spawn(|| sleep(2 * SECOND)).unwrap();
    let refused = scheduler.spawn(|| ()).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::QuotaExceeded);
    while !first.is_finished() {
        assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
    }
    scheduler.spawn(|| ()).unwrap();
}

#[test]
fn a_stack_overflow_ends_the_process_at_the_guard_page() {
    let output = in_a_process("limits::overflows");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("about to overflow"), "{output:?}");
    assert!(!said.contains("survived"), "{output:?}");
    const SIGSEGV: i32 = 11;
    const SIGBUS: i32 = 7;
    assert!(matches!(output.status.signal(), Some(SIGSEGV | SIGBUS)), "{output:?}");
}

#[test]
#[ignore = "ends its process: run by a_stack_overflow_ends_the_process_at_the_guard_page"]
fn overflows() {
    let mut scheduler = Scheduler::builder().stack_size(64 * KIB).build().unwrap();
    // A neighbour above and below, whose stacks an overflow must not reach.
    scheduler.spawn(|| sleep(Duration::from_secs(3600))).unwrap();
    let done = scheduler.block_on(|| {
        println!("about to overflow");
        deep(1024 * KIB)
    });
    println!("survived: {done:?}");
}

#[test]
fn without_descriptors_accept_fails_others_go_on_and_it_works_again() {
    let output = in_a_process("limits::exhausts_descriptors");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

#[test]
#[ignore = "takes its process's descriptors: run by without_descriptors_accept_fails_..."]
fn exhausts_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const EMFILE: i32 = 24;
    let mut scheduler = crate::real_scheduler();
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum }).unwrap();
    scheduler
        .block_on(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            // Waits in the backlog for a descriptor on this side.
            let client = TcpStream::connect(address).unwrap();
            let mut hoard = Vec::new();
            let full = loop {
                match TcpStream::connect(address) {
                    Ok(stream) => hoard.push(stream),
                    Err(error) => break error,
                }
            };
            assert_eq!(full.raw_os_error(), Some(EMFILE));
            assert!(Scheduler::new().is_err());
            // A server that tries again and again does not keep another from closing one.
            let accepting = spawn(move || {
                let mut refused = 0;
                loop {
                    match listener.accept() {
                        Err(error) if error.raw_os_error() == Some(EMFILE) => refused += 1,
                        accepted => return accepted.map(|_| refused),
                    }
                }
            })
            .unwrap();
            spawn(move || drop(hoard)).unwrap();
            let refused = accepting.join().unwrap().unwrap();
            assert!((1..=2).contains(&refused), "{refused}");
            drop(client);
        })
        .unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn a_suspended_coroutine_keeps_no_pages_that_it_does_not_use() {
    for test in ["when_idle", "beside_a_polled_source", "beside_a_fast_timer"] {
        let output = in_a_process(&format!("limits::trims_{test}"));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{test}: {said}");
    }
}

const DEEP: usize = 500;

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * KIB
}

/// Has many coroutines go deep and suspend, and steps until they hold no more than they use; `step` does not
/// wait for time. Trimming is due at once, so that it depends on none.
fn assert_trims(start: impl FnOnce(&mut Scheduler), steps: usize) {
    let mut scheduler = Scheduler::builder().trim_after(Duration::ZERO).build().unwrap();
    let before = resident();
    for _ in 0..DEEP {
        scheduler
            .spawn(|| {
                assert!(deep(256 * KIB) > 0);
                sleep(Duration::from_secs(3600));
            })
            .unwrap();
    }
    for begun in 1..=DEEP {
        assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
        // Later, the first ones are trimmed while others begin.
        if begun == 50 {
            let deep_each = (resident() - before) / begun;
            assert!(deep_each > 200 * KIB, "it was deep: {deep_each}");
        }
    }
    start(&mut scheduler);
    for _ in 0..steps {
        let step = scheduler.step_within(Duration::from_millis(1)).unwrap();
        assert!(matches!(step, Step::Idle | Step::Resumed), "{step:?}");
    }
    let each = resident().saturating_sub(before) / DEEP;
    assert!(each <= 16 * KIB, "{each}");
}

#[test]
#[ignore = "measures its process: run by a_suspended_coroutine_keeps_no_pages_that_it_does_not_use"]
fn trims_when_idle() {
    assert_trims(|_| (), DEEP.div_ceil(256));
}

#[test]
#[ignore = "measures its process: run by a_suspended_coroutine_keeps_no_pages_that_it_does_not_use"]
fn trims_beside_a_polled_source() {
    let source = sources::polled(|_| Ok(Some(())));
    let start = |scheduler: &mut Scheduler| drop(scheduler.register_source(source, |()| ()));
    assert_trims(start, 1000);
}

#[test]
#[ignore = "measures its process: run by a_suspended_coroutine_keeps_no_pages_that_it_does_not_use"]
fn trims_beside_a_fast_timer() {
    let source = sources::every(Duration::from_nanos(1));
    let start = |scheduler: &mut Scheduler| drop(scheduler.register_source(source, |_| ()));
    assert_trims(start, 1000);
}

#[test]
fn stacks_are_used_again() {
    let mut scheduler = scheduler();
    let stacks = Rc::new(RefCell::new(HashSet::new()));
    for _ in 0..100 {
        for _ in 0..1000 {
            let stacks = stacks.clone();
            scheduler
                .spawn(move || {
                    let local = 0_u8;
                    stacks.borrow_mut().insert((&raw const local).addr());
                })
                .unwrap();
        }
        assert_eq!(scheduler.run().unwrap().failed, 0);
    }
    assert_eq!(stacks.borrow().len(), 1000, "the local lies at one place of each stack");
}

#[test]
fn a_coroutine_captures_as_much_as_its_stack_has_room_for() {
    let mut scheduler = scheduler();
    let captured = [7_u8; 4 * KIB];
    let sum = scheduler.block_on(move || captured.iter().map(|n| usize::from(*n)).sum::<usize>());
    assert_eq!(sum.unwrap(), 7 * 4 * KIB);
}

#[test]
fn a_stack_beyond_all_memory_is_refused() {
    for size in [usize::MAX, usize::MAX / 2] {
        let mut scheduler = Scheduler::builder().stack_size(size).build().unwrap();
        assert!(scheduler.spawn(|| ()).is_err());
    }
}
