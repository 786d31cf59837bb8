//! `wake`: from a push into an idle program to the start of its handler, and what an idle program
//! costs. The push comes from an OS thread outside the program, at least `IDLE_MIN` after the last
//! event was handled, one event at a time.

use crate::cpu;
use crate::options::Options;
use crate::peers::{self, WakePeer};
use crate::report::{Bar, Better, Limit, Report, Table, show_ratio};
use crate::rounds::{Series, interleave_unwatched};
use crate::stats::{Dice, Ratio, median, quantile};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const ABOUT: &str =
    "time from a push into an idle program to its handler; cost of idling";

const BARS: &[Bar] = &[
    Bar {
        name: "p50_vs_tokio",
        limit: Limit::AtMost(1.0),
        about: "median wake, against a tokio task waiting on mpsc",
    },
    Bar {
        name: "idle_cpu_percent",
        limit: Limit::AtMost(0.5),
        about: "percent of one core used by the idle program",
    },
];

const PUSHES: u64 = 200;
const PUSHES_QUICK: u64 = 60;
/// The program has been idle this long before each push.
const IDLE_MIN: Duration = Duration::from_millis(1);
/// Added to it at random, so that pushes keep no step with a timer of the program.
const IDLE_JITTER_US: usize = 300;
const IDLE_WATCH: Duration = Duration::from_secs(5);
const IDLE_WATCH_QUICK: Duration = Duration::from_secs(1);
/// A wake that takes longer is a lost one.
const WAKE_MAX: Duration = Duration::from_secs(10);

/// What the handler under test reports to.
pub(crate) struct Probe {
    epoch: Instant,
    handled: AtomicU64,
    wake_ns: AtomicU64,
}

impl Probe {
    fn new() -> Arc<Probe> {
        Arc::new(Probe {
            epoch: Instant::now(),
            handled: AtomicU64::new(0),
            wake_ns: AtomicU64::new(0),
        })
    }

    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// The handler's first act, with the event it was given.
    pub(crate) fn handled(&self, pushed_ns: u64) {
        self.wake_ns.store(self.now_ns().saturating_sub(pushed_ns), Ordering::Relaxed);
        self.handled.fetch_add(1, Ordering::Release);
    }

    /// Waits, without spinning, for the handler's answer to push number `count`.
    fn wait_for(&self, count: u64) -> Duration {
        let asked = Instant::now();
        while self.handled.load(Ordering::Acquire) < count {
            assert!(asked.elapsed() < WAKE_MAX, "push {count} woke nobody");
            thread::sleep(Duration::from_micros(200));
        }
        Duration::from_nanos(self.wake_ns.load(Ordering::Relaxed))
    }
}

/// A program that idles until something is pushed. Dropping it takes it down.
pub(crate) trait Program {
    /// Pushes one event, the time of its push, from outside the program.
    fn push(&mut self, pushed_ns: u64);
}

pub(crate) struct Wakes {
    pub(crate) p50_us: f64,
    p99_us: f64,
}

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("wake", options, BARS);
    let pushes = if options.quick { PUSHES_QUICK } else { PUSHES };
    println!("wake: {} rounds of {pushes} pushes, {} threads", options.rounds, options.threads);
    let entrants: Vec<&WakePeer> =
        peers::WAKE.iter().filter(|peer| options.takes_peer(peer.name)).collect();
    let series =
        interleave_unwatched(&entrants, options.rounds, options.seed, "wake", |peer, _| {
            wakes(peer, pushes, options)
        });
    let watch = if options.quick { IDLE_WATCH_QUICK } else { IDLE_WATCH };
    let idle: Vec<f64> =
        entrants.iter().map(|peer| idle_cpu_percent(peer, watch, options)).collect();
    tell(&entrants, &series, &idle, options, &mut report);
    report.close();
    report
}

pub(crate) fn wakes(peer: &WakePeer, pushes: u64, options: &Options) -> Wakes {
    let probe = Probe::new();
    let mut program = (peer.up)(options.threads, Arc::clone(&probe));
    let mut dice = Dice::new(options.seed);
    let wakes_us: Vec<f64> = (1..=pushes)
        .map(|count| {
            let jitter = Duration::from_micros(dice.below(IDLE_JITTER_US) as u64);
            thread::sleep(IDLE_MIN + jitter);
            program.push(probe.now_ns());
            probe.wait_for(count).as_nanos() as f64 / 1e3
        })
        .collect();
    Wakes { p50_us: median(&wakes_us), p99_us: quantile(&wakes_us, 0.99) }
}

/// Percent of one core the whole process uses while the program is up and has nothing to do.
fn idle_cpu_percent(peer: &WakePeer, watch: Duration, options: &Options) -> f64 {
    let probe = Probe::new();
    let mut program = (peer.up)(options.threads, Arc::clone(&probe));
    // One event first: a program that never ran may idle differently.
    program.push(probe.now_ns());
    probe.wait_for(1);
    thread::sleep(Duration::from_millis(100));
    let (began, before) = (Instant::now(), cpu::live_threads_time());
    thread::sleep(watch);
    let after = cpu::live_threads_time();
    before.zip(after).map_or(f64::NAN, |(before, after)| {
        100.0 * after.saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64()
    })
}

fn tell(
    entrants: &[&WakePeer],
    series: &[Series<Wakes>],
    idle: &[f64],
    options: &Options,
    report: &mut Report,
) {
    let ours = entrants.iter().position(|peer| peer.name == options.ours);
    let mut table = Table::new(&[
        "peer",
        "p50 µs",
        "p10 .. p90",
        "p99 µs",
        "ours/peer p50",
        "ours/peer p99",
        "idle CPU",
        "others",
    ]);
    for (place, (peer, samples)) in entrants.iter().zip(series).enumerate() {
        let p50 = samples.figures(|wakes| wakes.p50_us);
        let p99 = samples.figures(|wakes| wakes.p99_us);
        let mut ratios = Vec::new();
        if let Some(ours) = ours.filter(|&ours| ours != place) {
            let over = &series[ours];
            let mine = [over.figures(|wakes| wakes.p50_us), over.figures(|wakes| wakes.p99_us)];
            for ((name, mine), theirs) in ["p50", "p99"].iter().zip(&mine).zip([&p50, &p99]) {
                let ratio = Ratio::paired(mine, theirs, options.seed);
                report.ratio(&format!("{name}_vs_{}", peer.name), &ratio, Better::Less);
                ratios.push(show_ratio(&ratio));
            }
        }
        ratios.resize(2, "-".into());
        let suffix = if ours == Some(place) { String::new() } else { format!("_{}", peer.name) };
        report.figure(format!("idle_cpu_percent{suffix}"), idle[place]);
        report.detail("wake", peer.name, &[("p50_us", median(&p50)), ("p99_us", median(&p99))]);
        table.row([
            peer.name.to_owned(),
            format!("{:.1}", median(&p50)),
            format!("{:.1} .. {:.1}", quantile(&p50, 0.1), quantile(&p50, 0.9)),
            format!("{:.1}", median(&p99)),
            ratios[0].clone(),
            ratios[1].clone(),
            format!("{:.3} %", idle[place]),
            format!("{:.0} %", samples.others_cpu_percent),
        ]);
    }
    println!();
    table.print();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wake_peer_answers_each_push() {
        for peer in peers::WAKE {
            let probe = Probe::new();
            let mut program = (peer.up)(2, Arc::clone(&probe));
            for count in 1..=20 {
                program.push(probe.now_ns());
                probe.wait_for(count);
            }
        }
    }
}
