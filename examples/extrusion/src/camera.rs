//! Where a point in space is seen in the picture, which faces are seen at all, and how light falls
//! on them. The camera looks at the whole space the pipe moves in; it stands still.

use glam::{DVec2, DVec3};
use serde::{Deserialize, Serialize};

use crate::riser::Scene;

/// The size of a picture.
pub const WIDTH: f64 = 960.0;
/// The size of a picture.
pub const HEIGHT: f64 = 600.0;
/// How wide the camera sees: half a picture's width at distance 1.
const WIDE: f64 = 0.3;
/// What is nearer than this is not drawn.
const NEAR: f64 = 1.0;
/// Where light comes from: over the left shoulder of someone who looks along the third axis.
const LIGHT: DVec3 = DVec3::new(-0.45, 0.72, 0.528);
/// The colour of deep water.
const DEEP: [f64; 3] = [9.0, 34.0, 62.0];

/// A colour: red, green, blue, up to 255.
pub type Colour = [f64; 3];

/// A four-sided piece of a surface, as it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Face {
    /// Its corners in the picture.
    pub corners: [[f32; 2]; 4],
    /// How far its middle is from the eye.
    pub distance: f32,
    /// Its colour, light included.
    pub colour: [u8; 3],
}

/// Where the eye is, and where it looks.
#[derive(Clone, Copy, Debug)]
pub struct Camera {
    eye: DVec3,
    right: DVec3,
    up: DVec3,
    forward: DVec3,
    surface: f64,
    deep: f64,
}

impl Camera {
    /// A camera that sees the whole scene from this side and this height, in degrees.
    pub fn new(scene: &Scene, azimuth: f64, elevation: f64) -> Self {
        let (sin, cos) = azimuth.to_radians().sin_cos();
        let (rise, level) = elevation.to_radians().sin_cos();
        let forward = -DVec3::new(sin * level, rise, cos * level);
        let right = DVec3::new(cos, 0.0, -sin);
        let up = right.cross(forward);
        let [low, high] = scene.space;
        let middle = low.midpoint(high);
        // As near as every corner of the space allows.
        let corners = (0..8).map(|n| {
            let pick = |bit: i32, axis: usize| if n & bit == 0 { low[axis] } else { high[axis] };
            DVec3::new(pick(1, 0), pick(2, 1), pick(4, 2)) - middle
        });
        let needed = corners.map(|corner| {
            let wide = corner.dot(right).abs() / WIDE;
            let high = corner.dot(up).abs() / (WIDE * HEIGHT / WIDTH);
            wide.max(high) - corner.dot(forward)
        });
        let eye = middle - forward * needed.fold(NEAR, f64::max);
        let [bed, surface] = scene.sea;
        Camera { eye, right, up, forward, surface, deep: surface - bed }
    }

    /// The directions ahead and to the right, both level.
    pub fn level(&self) -> (DVec3, DVec3) {
        (DVec3::Y.cross(self.right), self.right)
    }

    /// Where a point is seen, in pixels from the upper left.
    pub fn see(&self, point: DVec3) -> Option<DVec2> {
        let way = point - self.eye;
        let depth = way.dot(self.forward);
        let scale = WIDTH / 2.0 / WIDE / depth;
        let seen = DVec2::new(
            WIDTH / 2.0 + way.dot(self.right) * scale,
            HEIGHT / 2.0 - way.dot(self.up) * scale,
        );
        (depth > NEAR).then_some(seen)
    }

    /// What is seen of a face with this normal; nothing if it is turned away.
    pub fn face(&self, corners: [DVec3; 4], normal: DVec3, colour: Colour) -> Option<Face> {
        let middle = corners.iter().sum::<DVec3>() / 4.0;
        let to_eye = self.eye - middle;
        if to_eye.dot(normal) <= 0.0 {
            return None;
        }
        let mut seen = [[0.0; 2]; 4];
        for (seen, corner) in seen.iter_mut().zip(corners) {
            *seen = self.see(corner)?.as_vec2().to_array();
        }
        let colour = self.lit(colour, normal, to_eye.normalize(), middle);
        Some(Face { corners: seen, distance: to_eye.length() as f32, colour })
    }

    /// A matt colour with a little gloss, that loses itself in the depth.
    fn lit(&self, colour: Colour, normal: DVec3, to_eye: DVec3, at: DVec3) -> [u8; 3] {
        let matt = 0.42 + 0.62 * normal.dot(LIGHT).max(0.0);
        let gloss = 90.0 * normal.dot((LIGHT + to_eye).normalize()).max(0.0).powi(24);
        let depth = ((self.surface - at.y) / self.deep).clamp(0.0, 1.0);
        let lost = 0.25 * depth;
        std::array::from_fn(|i| {
            let lit = colour[i] * matt + gloss * (1.0 - depth);
            (lit * (1.0 - lost) + DEEP[i] * lost).clamp(0.0, 255.0) as u8
        })
    }
}

/// The colour at `share` of a scale, from 0 to 1: light blue, yellow, red.
pub fn scale(share: f64) -> Colour {
    const STOPS: [Colour; 4] =
        [[72.0, 202.0, 228.0], [244.0, 233.0, 140.0], [250.0, 150.0, 60.0], [226.0, 40.0, 66.0]];
    let place = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let stop = (place as usize).min(STOPS.len() - 2);
    let rest = place - stop as f64;
    std::array::from_fn(|i| STOPS[stop][i] * (1.0 - rest) + STOPS[stop + 1][i] * rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::SCENE;

    #[test]
    fn the_whole_space_is_in_the_picture_from_every_side() {
        for (azimuth, elevation) in [(0.0, 0.0), (25.0, 12.0), (-140.0, 60.0), (90.0, 89.0)] {
            let camera = Camera::new(&SCENE, azimuth, elevation);
            let [low, high] = SCENE.space;
            for point in [low, high, low.with_x(high.x), high.with_y(low.y), low.midpoint(high)] {
                let DVec2 { x, y } = camera.see(point).expect("before the camera");
                assert!((-0.01..WIDTH + 0.01).contains(&x), "{azimuth} {elevation}: {x}");
                assert!((-0.01..HEIGHT + 0.01).contains(&y), "{azimuth} {elevation}: {y}");
            }
        }
    }

    #[test]
    fn right_is_right_and_up_is_up() {
        let camera = Camera::new(&SCENE, 0.0, 0.0);
        let see = |x, y, z| camera.see(DVec3::new(x, y, z)).unwrap();
        assert!(see(1.0, 0.0, 0.0).x > see(0.0, 0.0, 0.0).x);
        assert!(see(0.0, 1.0, 0.0).y < see(0.0, 0.0, 0.0).y);
        assert!(see(0.0, 0.0, 50.0).x < see(0.0, 0.0, 0.0).x, "nearer is further from the middle");
    }

    #[test]
    fn a_face_turned_away_is_not_seen_and_one_in_the_light_is_brighter() {
        let camera = Camera::new(&SCENE, 0.0, 0.0);
        let corners = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
            .map(|[x, y]| DVec3::new(300.0 + x, 200.0 + y, 0.0));
        let seen = |normal: DVec3| camera.face(corners, normal, [200.0; 3]);
        assert_eq!(seen(DVec3::NEG_Z), None);
        let (towards, aside) = (seen(LIGHT).unwrap(), seen(DVec3::new(0.9, -0.3, 0.3)).unwrap());
        assert!(towards.colour[0] > aside.colour[0]);
    }

    #[test]
    fn the_scale_ends_where_it_should_and_never_leaves_its_range() {
        assert_eq!(scale(-1.0), scale(0.0));
        assert_eq!(scale(2.0), [226.0, 40.0, 66.0]);
        assert_ne!(scale(0.5), scale(0.6));
    }
}
