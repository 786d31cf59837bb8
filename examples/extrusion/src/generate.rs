//! Makes up a riser in a storm: a catenary from the seabed to a platform that the waves move, bowed
//! by a current. Each step is reckoned from its time alone, so that any number of them takes the
//! memory of one. The same seed gives the same storm.
//!
//! The catenary is solved anew in each step: the pipe has one length, so the point where it leaves
//! the seabed, its shape and its tension follow from where the platform is.

use std::f64::consts::{PI, TAU};

use glam::DVec3;

use crate::riser::{Node, Scene, Step};

/// Metres of pipe, and how far from its anchor and how high above the seabed the platform holds
/// it in calm water.
const LENGTH: f64 = 760.0;
const REACH: f64 = 560.0;
const HEIGHT: f64 = 388.0;
/// What a metre of pipe weighs in water, in kilonewtons.
const WEIGHT: f64 = 1.2;
/// Seconds from step to step.
const TICK: f64 = 0.25;

/// What holds for all generated steps.
pub const SCENE: Scene = Scene {
    radius: 0.25,
    sea: [0.0, 400.0],
    tension: [150.0, 900.0],
    space: [DVec3::new(-20.0, -10.0, -90.0), DVec3::new(640.0, 450.0, 90.0)],
};

/// One wave of the storm.
#[derive(Clone, Copy, Debug)]
struct Wave {
    height: f64,
    period: f64,
    phase: f64,
}

impl Wave {
    fn at(&self, time: f64) -> f64 {
        self.height * (TAU * time / self.period + self.phase).sin()
    }
}

/// The steps of a made-up storm; an iterator.
#[derive(Clone, Debug)]
pub struct Storm {
    segments: usize,
    steps: std::ops::Range<u64>,
    swell: [Wave; 5],
    drift: [Wave; 2],
}

impl Storm {
    /// So many steps of so many segments.
    pub fn new(steps: u64, segments: usize, seed: u64) -> Self {
        let mut dice = Dice(seed);
        let mut wave = |height: f64, period: f64| Wave {
            height: height * (0.7 + 0.6 * dice.roll()),
            period: period * (0.85 + 0.3 * dice.roll()),
            phase: TAU * dice.roll(),
        };
        let swell = [(1.2, 7.0), (2.0, 9.5), (2.6, 12.0), (1.8, 14.5), (0.8, 5.5)];
        let drift = [(14.0, 90.0), (26.0, 64.0)];
        Storm {
            segments,
            steps: 0..steps,
            swell: swell.map(|(height, period)| wave(height, period)),
            drift: drift.map(|(height, period)| wave(height, period)),
        }
    }

    fn step(&self, number: u64) -> Step {
        let time = number as f64 * TICK;
        let heave: f64 = self.swell.iter().map(|wave| wave.at(time)).sum();
        let surge: f64 =
            self.swell.iter().map(|wave| 0.8 * wave.at(time - wave.period / 4.0)).sum();
        let [away, bow] = self.drift.map(|wave| wave.at(time));
        let height = HEIGHT + heave;
        let shape = solve(REACH + surge + away, height);
        let hanging = (height * height + 2.0 * shape * height).sqrt();
        let on_bed = LENGTH - hanging;

        let node = |i: usize| {
            let up = LENGTH * i as f64 / self.segments as f64 - on_bed; // pipe above the seabed
            let share = (up / hanging).max(0.0);
            let ripple = (9.0 * PI * share - TAU * time / 6.0).sin() * (PI * share).sin();
            let (x, y, pull) = if up <= 0.0 {
                (on_bed + up, 0.0, shape)
            } else {
                let pull = shape.hypot(up);
                (on_bed + shape * (up / shape).asinh(), pull - shape, pull)
            };
            let z = bow * (PI * share).sin() + 4.0 * ripple;
            let tension = WEIGHT * pull * (1.0 + 0.05 * ripple + 0.004 * heave * share);
            Node { at: DVec3::new(x, y, z).map(thousandths), tension: thousandths(tension) }
        };
        Step { number, time: thousandths(time), nodes: (0..=self.segments).map(node).collect() }
    }
}

impl Iterator for Storm {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.steps.next().map(|number| self.step(number))
    }
}

/// The catenary parameter, tension at the bottom by weight, of a pipe held there.
/// The higher it is, the further the pipe reaches: halving finds it.
fn solve(reach: f64, height: f64) -> f64 {
    let (mut low, mut high) = (1.0, 1e5);
    for _ in 0..60 {
        let shape = f64::midpoint(low, high);
        let hanging = (height * height + 2.0 * shape * height).sqrt();
        let reached = LENGTH - hanging + shape * (1.0 + height / shape).acosh();
        if reached < reach { low = shape } else { high = shape }
    }
    low
}

/// As a file says it, so that a file and the storm it was written from are drawn alike.
fn thousandths(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0 + 0.0 // and no minus zero
}

/// Splitmix64: small, and good enough for waves.
struct Dice(u64);

impl Dice {
    /// A number from 0 to 1.
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_storm_and_another_seed_another() {
        let storm = |seed| Storm::new(20, 10, seed).collect::<Vec<_>>();
        assert_eq!(storm(1), storm(1));
        assert_ne!(storm(1), storm(2));
    }

    #[test]
    fn the_pipe_keeps_its_place_its_length_and_its_tension() {
        for seed in 0..20 {
            for step in Storm::new(2_000, 200, seed).step_by(50) {
                let [low, high] = SCENE.space;
                for node in &step.nodes {
                    assert!(node.at.cmpge(low).all() && node.at.cmple(high).all(), "{node:?}");
                    let [least, greatest] = SCENE.tension;
                    assert!((least..greatest).contains(&node.tension), "{node:?}");
                }
                assert_eq!(step.nodes[0].at.y, 0.0, "anchored");
                // The current's bow stretches it a little.
                let length: f64 = step.nodes.windows(2).map(|w| w[0].at.distance(w[1].at)).sum();
                assert!((LENGTH - 1.0..LENGTH * 1.03).contains(&length), "{length}");
            }
        }
    }
}
