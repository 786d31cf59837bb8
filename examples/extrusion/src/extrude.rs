//! The parallel stage: a segment of the centre line becomes the faces of a prism, as the camera
//! sees them. It needs nothing but the segment, so any number of instances may do it, in any order.

use std::sync::Arc;

use comporta::{Cx, Ev, Out, Result, Stage};
use glam::DVec3;
use serde::{Deserialize, Serialize};

use crate::camera::{Camera, Face, scale};
use crate::frame::Frame;
use crate::riser::Scene;

/// Which part of which step something is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Counts the steps that are drawn, from 0: their order.
    pub turn: u64,
    /// The number of the step.
    pub step: u64,
    /// Its time in seconds.
    pub time: f64,
    /// The number of the segment, from 0.
    pub index: u32,
    /// How many segments the step has.
    pub of: u32,
    /// What holds for all steps; shared, because thousands of parts are under way.
    pub scene: Arc<Scene>,
}

/// A piece of the centre line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Which.
    pub part: Part,
    /// The frames at its ends.
    pub ends: [Frame; 2],
    /// The tension at its ends, in kilonewtons.
    pub tension: [f64; 2],
}

/// What is seen of a segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prism {
    /// Which.
    pub part: Part,
    /// The faces that are turned to the eye.
    pub faces: Vec<Face>,
    /// The line it throws on the seabed, in the picture.
    pub shadow: Option<[[f32; 2]; 2]>,
    /// Of the last segment: where the pipe ends.
    pub top: Option<DVec3>,
}

/// How a segment is extruded.
#[derive(Clone, Copy, Debug)]
pub struct Extrude {
    /// Corners of a ring.
    pub sides: usize,
    /// How many times thicker than it is the pipe is drawn.
    pub thicken: f64,
    /// Where the camera stands, in degrees.
    pub azimuth: f64,
    /// How high it stands, in degrees.
    pub elevation: f64,
}

impl Extrude {
    /// The camera for a scene.
    pub fn camera(&self, scene: &Scene) -> Camera {
        Camera::new(scene, self.azimuth, self.elevation)
    }

    /// The prism around a segment.
    pub fn prism(&self, segment: &Segment) -> Prism {
        let Segment { part, ends, tension } = segment;
        let camera = self.camera(&part.scene);
        let radius = part.scene.radius * self.thicken;
        // The pipe lies on the seabed, not in it.
        let ends = ends.map(|frame| Frame { at: frame.at + DVec3::Y * radius, ..frame });
        let [least, greatest] = part.scene.tension;
        let mean = f64::midpoint(tension[0], tension[1]);
        let colour = scale((mean - least) / (greatest - least));

        let rings = ends.map(|frame| frame.spokes(self.sides).collect::<Vec<_>>());
        let mut faces = Vec::with_capacity(self.sides / 2 + 2); // about half is seen
        for i in 0..self.sides {
            let j = (i + 1) % self.sides;
            let spokes = [rings[0][i], rings[0][j], rings[1][j], rings[1][i]];
            let corners = [0, 0, 1, 1].map(|end: usize| ends[end].at);
            let corners = std::array::from_fn(|n| corners[n] + spokes[n] * radius);
            let normal = spokes.iter().sum::<DVec3>().normalize_or_zero();
            faces.extend(camera.face(corners, normal, colour));
        }
        let first = part.index == 0;
        let last = part.index + 1 == part.of;
        for (end, out, is_end) in [(0, -1.0, first), (1, 1.0, last)] {
            // A lid of triangles closes each end of the pipe.
            for i in (0..self.sides).filter(|_| is_end) {
                let at = ends[end].at;
                let [a, b] = [i, (i + 1) % self.sides].map(|n| at + rings[end][n] * radius);
                faces.extend(camera.face([at, a, b, b], ends[end].along * out, colour));
            }
        }
        let [a, b] = ends.map(|end| camera.see(end.at.with_y(part.scene.sea[0])));
        let shadow = a.zip(b).map(|(a, b)| [a, b].map(|p| p.as_vec2().to_array()));
        Prism { part: part.clone(), faces, shadow, top: last.then_some(segment.ends[1].at) }
    }
}

impl Stage for Extrude {
    type In = Segment;
    type Ports = Out<Prism>;

    fn handle(&mut self, segment: Ev<'_, Segment>, out: &mut Out<Prism>, _: &Cx) -> Result {
        out.send(self.prism(&segment));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{SCENE, Storm};
    use crate::reader::cut;

    const EXTRUDE: Extrude = Extrude { sides: 12, thicken: 10.0, azimuth: 20.0, elevation: 10.0 };

    fn segments() -> Vec<Segment> {
        let step = Storm::new(1, 40, 3).next().unwrap();
        cut(&step, &Arc::new(SCENE), 0)
    }

    #[test]
    fn about_half_of_a_prism_is_seen_and_neighbours_share_their_ring() {
        let prisms: Vec<_> = segments().iter().map(|s| EXTRUDE.prism(s)).collect();
        assert_eq!(prisms.len(), 40);
        for prism in &prisms[1..39] {
            assert!((5..=7).contains(&prism.faces.len()), "{} faces", prism.faces.len());
        }
        for pair in prisms[1..39].windows(2) {
            let ends: Vec<_> =
                pair[0].faces.iter().flat_map(|f| [f.corners[2], f.corners[3]]).collect();
            let begins = pair[1].faces.iter().flat_map(|f| [f.corners[0], f.corners[1]]);
            assert!(begins.filter(|corner| ends.contains(corner)).count() >= 8);
        }
    }

    #[test]
    fn corners_lie_at_the_radius_from_the_line() {
        // Seen from far away along z, a picture is nearly flat: compare with the projected axis.
        let flat = Extrude { azimuth: 0.0, elevation: 0.0, ..EXTRUDE };
        let camera = flat.camera(&SCENE);
        let radius = SCENE.radius * flat.thicken;
        for segment in &segments()[1..39] {
            let lift = DVec3::Y * radius;
            for face in flat.prism(segment).faces {
                for (corner, end) in face.corners.iter().zip([0, 0, 1, 1]) {
                    let at = segment.ends[end].at + lift;
                    let (axis, edge) = (camera.see(at).unwrap(), camera.see(at + lift).unwrap());
                    let seen = axis.as_vec2().distance((*corner).into());
                    assert!(seen <= 1.02 * axis.as_vec2().distance(edge.as_vec2()));
                }
            }
        }
    }

    #[test]
    fn only_the_last_segment_has_a_top_and_only_the_ends_have_lids() {
        let prisms: Vec<_> = segments().iter().map(|s| EXTRUDE.prism(s)).collect();
        assert!(prisms[..39].iter().all(|prism| prism.top.is_none()));
        assert!(prisms[39].top.is_some());
        let lids =
            |prism: &Prism| prism.faces.iter().filter(|f| f.corners[2] == f.corners[3]).count();
        assert_eq!(prisms[1..39].iter().map(lids).sum::<usize>(), 0);
        assert_eq!([lids(&prisms[0]), lids(&prisms[39])].iter().max(), Some(&12));
    }
}
