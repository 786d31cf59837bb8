//! A frame carried along a line in space without turning about it, so that the faces of a prism
//! meet those of the next. Carrying is the one thing in this program that needs the nodes of a
//! step in order; the reader does it, so that a segment can be extruded without its neighbours.
//!
//! Method: two reflections a node (Wang, Jüttler, Zheng, Liu: Computation of Rotation Minimizing
//! Frames, ACM Transactions on Graphics 27, 2008).

use glam::DVec3;
use serde::{Deserialize, Serialize};

/// A place on the line, its direction, and a direction across it. Both have length 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// The place.
    pub at: DVec3,
    /// The direction of the line.
    pub along: DVec3,
    /// A direction across.
    pub across: DVec3,
}

impl Frame {
    /// The first frame of a line. It depends on the direction smoothly, so that what is drawn from
    /// step to step does not jump.
    pub fn first(at: DVec3, along: DVec3) -> Self {
        let side = if along.z.abs() < 0.9 { DVec3::Z } else { DVec3::X };
        Frame { at, along, across: side.reject_from_normalized(along).normalize() }
    }

    /// The frame at the next place, turned no more than the line turns.
    pub fn carry(&self, at: DVec3, along: DVec3) -> Self {
        let way = at - self.at;
        let (across, was_along) = (reflect(self.across, way), reflect(self.along, way));
        let across = reflect(across, along - was_along);
        // Rounding adds up over many nodes; this takes it away.
        let across = across.reject_from_normalized(along).normalize_or(self.across);
        Frame { at, along, across }
    }

    /// The direction that stands on both others.
    pub fn third(&self) -> DVec3 {
        self.along.cross(self.across)
    }

    /// The directions from the line to the corners of a ring of `sides`.
    pub fn spokes(&self, sides: usize) -> impl Iterator<Item = DVec3> {
        let (across, third) = (self.across, self.third());
        (0..sides).map(move |corner| {
            let (sin, cos) = (std::f64::consts::TAU * corner as f64 / sides as f64).sin_cos();
            across * cos + third * sin
        })
    }
}

/// Mirrors `v` in the plane that `normal` stands on; a normal without length mirrors nothing.
fn reflect(v: DVec3, normal: DVec3) -> DVec3 {
    let square = normal.length_squared();
    if square < 1e-18 { v } else { v - normal * (2.0 * normal.dot(v) / square) }
}

/// The frames of a line through these places. No two neighbours are the same place.
pub fn frames(places: impl ExactSizeIterator<Item = DVec3> + Clone) -> Vec<Frame> {
    let mut frames = Vec::<Frame>::with_capacity(places.len());
    let mut ahead = places.clone().skip(1);
    let mut before = None;
    for at in places {
        let after = ahead.next().map(|next| (next - at).normalize());
        // At a bend, the direction half-way; where the line turns back, the one it came from.
        let along = match (before, after) {
            (Some(before), Some(after)) => DVec3::normalize_or(before + after, before),
            (one, other) => one.or(other).unwrap_or(DVec3::Y),
        };
        frames.push(match frames.last() {
            None => Frame::first(at, along),
            Some(last) => last.carry(at, along),
        });
        before = after;
    }
    frames
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assert_orthonormal(frame: &Frame) {
        for (value, expected) in [
            (frame.along.length(), 1.0),
            (frame.across.length(), 1.0),
            (frame.third().length(), 1.0),
            (frame.along.dot(frame.across), 0.0),
        ] {
            assert!((value - expected).abs() < 1e-9, "{value} is not {expected}: {frame:?}");
        }
    }

    proptest! {
        #[test]
        fn frames_of_any_line_are_orthonormal(
            moves in prop::collection::vec((-5.0..5.0, -5.0..5.0, -5.0..5.0f64), 1..60)
        ) {
            let mut at = DVec3::ZERO;
            let places: Vec<_> = moves.iter().map(|(x, y, z)| {
                at += DVec3::new(*x, *y, *z) + DVec3::splat(0.01);
                at
            }).collect();
            prop_assume!(places.windows(2).all(|pair| pair[0].distance(pair[1]) > 1e-3));
            let frames = frames(places.iter().copied());
            prop_assert_eq!(frames.len(), places.len());
            frames.iter().for_each(assert_orthonormal);
        }

        #[test]
        fn a_line_in_a_plane_does_not_twist(turns in prop::collection::vec(-1.5..1.5f64, 2..80)) {
            let (mut at, mut angle) = (DVec3::ZERO, 0.3f64);
            let places: Vec<_> = turns.iter().map(|turn| {
                angle += turn;
                at += DVec3::new(angle.cos(), angle.sin(), 0.0);
                at
            }).collect();
            // Whichever way it is tilted at first: the tilt out of the plane stays.
            let frames = frames(places.iter().copied());
            let mut tilted = Frame { across: frames[0].across.lerp(frames[0].third(), 0.4), ..frames[0] };
            tilted.across = tilted.across.normalize();
            let tilt = tilted.across.z;
            for frame in frames {
                prop_assert!(frame.across.distance(DVec3::Z) < 1e-9, "{:?}", frame);
                tilted = tilted.carry(frame.at, frame.along);
                prop_assert!((tilted.across.z - tilt).abs() < 1e-9, "{:?}, not {}", tilted, tilt);
            }
        }
    }

    #[test]
    fn a_line_that_turns_back_still_has_frames() {
        let places = [DVec3::ZERO, DVec3::X, DVec3::ZERO, DVec3::Y, DVec3::Y + DVec3::Z];
        frames(places.into_iter()).iter().for_each(assert_orthonormal);
    }

    /// Round a helix a frame turns about its line by the torsion, however fine the nodes: the frame
    /// of Frenet turns back with the helix, a frame without twist does not.
    #[test]
    fn along_a_helix_the_frame_turns_by_its_torsion() {
        let (radius, rise) = (2.0, 1.0f64); // a turn lifts by τ times the rise
        let nodes = 4_000;
        let place = |i: usize| {
            let angle = std::f64::consts::TAU * i as f64 / nodes as f64;
            DVec3::new(radius * angle.cos(), radius * angle.sin(), rise * angle)
        };
        let frames = frames((0..nodes + 1).map(place));
        let inward = |frame: &Frame| {
            let to_axis = DVec3::new(-frame.at.x, -frame.at.y, 0.0).normalize();
            let inward = to_axis.reject_from_normalized(frame.along).normalize();
            f64::atan2(frame.across.cross(inward).dot(frame.along), frame.across.dot(inward))
        };
        let (start, end) = (inward(&frames[1]), inward(&frames[nodes - 1]));
        // Torsion of a helix: rise / (radius² + rise²); length of a turn: τ √(radius² + rise²).
        let square = radius * radius + rise * rise;
        let expected = std::f64::consts::TAU * rise / square.sqrt();
        let turned = (end - start - expected).rem_euclid(std::f64::consts::TAU);
        let off = turned.min(std::f64::consts::TAU - turned);
        assert!(off < 0.01, "{off} too far");
    }

    #[test]
    fn spokes_have_length_one_and_stand_on_the_line() {
        let frame = Frame::first(DVec3::ONE, DVec3::new(1.0, 2.0, -2.0) / 3.0);
        let spokes: Vec<_> = frame.spokes(7).collect();
        assert_eq!(spokes.len(), 7);
        let mut last = spokes[6];
        for spoke in spokes {
            assert!((spoke.length() - 1.0).abs() < 1e-12);
            assert!(spoke.dot(frame.along).abs() < 1e-12);
            let angle = last.angle_between(spoke);
            assert!((angle - std::f64::consts::TAU / 7.0).abs() < 1e-9, "{angle}");
            last = spoke;
        }
    }
}
