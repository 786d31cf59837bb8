//! Takes the peers in turn: in every round each runs once, in an order shuffled by the seed, so
//! that a noisy neighbour, a warm cache or a slow minute hits all alike.
//! Also the progress line, which is stderr's and only a terminal's.

use crate::cpu::Cpu;
use crate::stalls::Watch;
use crate::stats::Dice;
use std::io::{IsTerminal, Write};

/// All rounds of one peer.
pub(crate) struct Series<S> {
    pub(crate) samples: Vec<S>,
    /// Share of the whole machine that other processes used while this peer ran, in percent.
    pub(crate) others_cpu_percent: f64,
    /// Processor time that a run of this peer took on average, threads added up: what other
    /// processes disturb least.
    pub(crate) own_cpu_ms: f64,
}

impl<S> Series<S> {
    pub(crate) fn figures(&self, figure: impl Fn(&S) -> f64) -> Vec<f64> {
        self.samples.iter().map(figure).collect()
    }
}

/// Runs every peer once per round, with the number of the round; the result is indexed as `peers`
/// is, samples as rounds are. A run in which the machine stalled is made again.
pub(crate) fn interleave<P, S>(
    peers: &[P],
    rounds: usize,
    seed: u64,
    label: &str,
    mut run: impl FnMut(&P, usize) -> S,
) -> Vec<Series<S>> {
    let watch = Watch::new();
    in_turn(peers, rounds, seed, label, |peer, round| {
        watch.undisturbed(|| {
            let before = Cpu::now();
            (run(peer, round), Cpu::now() - before)
        })
    })
}

/// As `interleave`, but nobody watches for stalls. Where a program is to be idle, a thread that
/// looks every millisecond is a disturbance itself; and where there are many rounds, stalls are the
/// same for all.
pub(crate) fn interleave_unwatched<P, S>(
    peers: &[P],
    rounds: usize,
    seed: u64,
    label: &str,
    mut run: impl FnMut(&P, usize) -> S,
) -> Vec<Series<S>> {
    in_turn(peers, rounds, seed, label, |peer, round| {
        let before = Cpu::now();
        (run(peer, round), Cpu::now() - before)
    })
}

fn in_turn<P, S>(
    peers: &[P],
    rounds: usize,
    seed: u64,
    label: &str,
    mut run: impl FnMut(&P, usize) -> (S, Cpu),
) -> Vec<Series<S>> {
    let mut dice = Dice::new(seed);
    let mut samples: Vec<Vec<S>> = peers.iter().map(|_| Vec::with_capacity(rounds)).collect();
    let mut cpu: Vec<Cpu> = peers.iter().map(|_| Cpu::default()).collect();
    let mut order: Vec<usize> = (0..peers.len()).collect();
    let progress = Progress::new(label, rounds * peers.len());
    for round in 0..rounds {
        dice.shuffle(&mut order);
        for (done, &peer) in order.iter().enumerate() {
            progress.show(round * peers.len() + done);
            let (sample, spent) = run(&peers[peer], round);
            samples[peer].push(sample);
            cpu[peer] += spent;
        }
    }
    samples
        .into_iter()
        .zip(cpu)
        .map(|(samples, cpu)| Series {
            others_cpu_percent: cpu.others_percent(),
            own_cpu_ms: cpu.own_ms() / samples.len() as f64,
            samples,
        })
        .collect()
}

/// `label  12/150`, rewritten in place; a plain file gets one line per label instead.
struct Progress<'a> {
    label: &'a str,
    total: usize,
    live: bool,
}

impl<'a> Progress<'a> {
    fn new(label: &'a str, total: usize) -> Self {
        let live = std::io::stderr().is_terminal();
        if !live {
            eprintln!("{label}: {total} runs");
        }
        Progress { label, total, live }
    }

    fn show(&self, done: usize) {
        if self.live {
            eprint!("\r\x1b[K{}  {}/{}", self.label, done + 1, self.total);
            // A progress line that cannot be shown is no reason to stop measuring.
            let _ = std::io::stderr().flush();
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.live {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Nobody watches: a run that is made again, because the machine stalled, would be one too many.

    #[test]
    fn every_peer_runs_once_in_every_round() {
        let mut calls = Vec::new();
        let series = interleave_unwatched(&["a", "b", "c"], 4, 1, "test", |peer, _| {
            calls.push(*peer);
            calls.len()
        });
        assert!(series.iter().all(|one| one.samples.len() == 4));
        for round in calls.chunks(3) {
            let mut names = round.to_vec();
            names.sort_unstable();
            assert_eq!(names, ["a", "b", "c"]);
        }
    }

    #[test]
    fn order_changes_between_rounds_and_repeats_with_the_seed() {
        let order = |seed| {
            let mut calls = Vec::new();
            interleave_unwatched(&[0, 1, 2, 3], 6, seed, "test", |peer, _| calls.push(*peer));
            calls
        };
        assert_eq!(order(5), order(5));
        let calls = order(5);
        assert!(calls.chunks(4).any(|round| round != &calls[..4]));
    }
}
