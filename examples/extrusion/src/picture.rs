//! The text of one picture (SVG): sea, seabed, platform, pipe, and what the colours mean. And the
//! page that plays all of them. Nothing here depends on the order in which prisms came.

use std::fmt::Write;

use glam::DVec3;

use crate::camera::{Camera, Colour, Face, HEIGHT, scale};
use crate::extrude::{Extrude, Prism};
use crate::riser::Scene;

/// Metres between the lines on the seabed.
const GRID: f64 = 50.0;
/// The boxes of the platform around the end of the pipe: middle and half of the size, in metres.
const BOXES: [([f64; 3], [f64; 3]); 8] = [
    ([0.0, -6.0, 26.0], [36.0, 5.0, 7.0]),
    ([0.0, -6.0, -26.0], [36.0, 5.0, 7.0]),
    ([-27.0, 13.0, 26.0], [6.0, 14.0, 6.0]),
    ([27.0, 13.0, 26.0], [6.0, 14.0, 6.0]),
    ([-27.0, 13.0, -26.0], [6.0, 14.0, 6.0]),
    ([27.0, 13.0, -26.0], [6.0, 14.0, 6.0]),
    ([0.0, 31.0, 0.0], [36.0, 4.0, 34.0]),
    ([-14.0, 40.0, 0.0], [14.0, 5.0, 18.0]),
];
const STEEL: Colour = [214.0, 205.0, 190.0];
const DERRICK: Colour = [232.0, 150.0, 60.0];

/// Draws steps, one after the other, into the same memory.
#[derive(Clone, Debug)]
pub struct Painter {
    extrude: Extrude,
    text: String,
    faces: Vec<Face>,
    /// What is the same in every picture of a scene: the sea behind the pipe, and the legend.
    still: Option<(Scene, String, String)>,
}

impl Painter {
    /// Draws what was extruded so.
    pub fn new(extrude: Extrude) -> Self {
        Painter { extrude, text: String::new(), faces: Vec::new(), still: None }
    }

    /// The picture of a step, from all of its prisms in order.
    pub fn paint(&mut self, prisms: &[Prism]) -> &str {
        let Some(Prism { part, .. }) = prisms.first() else { return "" };
        let scene = &*part.scene;
        let camera = self.extrude.camera(scene);
        if self.still.as_ref().is_none_or(|(of, ..)| of != scene) {
            self.still = Some((*scene, sea(scene, &camera), legend(scene)));
        }
        let (_, sea, legend) = self.still.as_ref().expect("made above");

        self.faces.clear();
        self.faces.extend(prisms.iter().flat_map(|prism| &prism.faces));
        let tops = prisms.iter().filter_map(|prism| prism.top);
        tops.for_each(|top| platform(&camera, top, &mut self.faces));
        // The painter's algorithm: what is near covers what is far. Stable: equal ones keep
        // their order in the step.
        self.faces.sort_by(|a, b| b.distance.total_cmp(&a.distance));

        let text = &mut self.text;
        text.clear();
        text.push_str(sea);
        text.push_str("<path class=\"shadow\" d=\"");
        let mut last = None;
        for [a, b] in prisms.iter().filter_map(|prism| prism.shadow) {
            if last.replace(b) != Some(a) {
                text.push('M');
                point(text, a);
            }
            text.push('L');
            point(text, b);
        }
        text.push_str("\"/>\n<g fill=\"currentColor\" stroke=\"currentColor\" stroke-width=\"4\" stroke-linejoin=\"round\">\n");
        for Face { corners: [a, b, c, d], colour: [red, green, blue], .. } in &self.faces {
            text.push_str("<path d=\"M");
            point(text, *a);
            for corner in [b, c, d] {
                text.push(' ');
                point(text, *corner);
            }
            say(text, format_args!("z\" color=\"#{red:02x}{green:02x}{blue:02x}\"/>\n"));
        }
        text.push_str("</g>\n");
        text.push_str(legend);
        say(
            text,
            format_args!(
                "<text x=\"360\" y=\"5640\" class=\"big\">step {}</text>\n\
                 <text x=\"360\" y=\"5800\">{:.2} s</text>\n</svg>\n",
                part.step, part.time
            ),
        );
        text
    }
}

/// Writing into a text cannot fail.
fn say(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a text takes everything");
}

/// In tenths of a pixel, as whole numbers: shorter than fractions.
fn point(text: &mut String, [x, y]: [f32; 2]) {
    say(text, format_args!("{} {}", (x * 10.0).round() as i32, (y * 10.0).round() as i32));
}

fn platform(camera: &Camera, top: DVec3, faces: &mut Vec<Face>) {
    for (middle, half) in BOXES {
        cuboid(camera, top + DVec3::from(middle), half.into(), STEEL, faces);
    }
    // The derrick: four boxes, each smaller than the one below.
    for n in 0..4 {
        let n = f64::from(n);
        let middle = top + DVec3::new(14.0, 42.0 + 11.0 * n, 0.0);
        let half = DVec3::new(7.0 - 1.6 * n, 5.5, 7.0 - 1.6 * n);
        cuboid(camera, middle, half, DERRICK, faces);
    }
}

fn cuboid(camera: &Camera, middle: DVec3, half: DVec3, colour: Colour, faces: &mut Vec<Face>) {
    for (out, a, b) in [
        (DVec3::X, DVec3::Y, DVec3::Z),
        (DVec3::Y, DVec3::Z, DVec3::X),
        (DVec3::Z, DVec3::X, DVec3::Y),
    ] {
        for out in [out, -out] {
            let corners =
                [-a - b, a - b, a + b, b - a].map(|corner| middle + (out + corner) * half);
            faces.extend(camera.face(corners, out, colour));
        }
    }
}

/// Everything behind the pipe, from the first line of the file.
fn sea(scene: &Scene, camera: &Camera) -> String {
    let [bed, surface] = scene.sea;
    let [low, high] = scene.space;
    let size = high - low;
    let middle = low.midpoint(high);
    let (ahead, _) = camera.level();
    let far = 30.0 * size.length();
    // The surface is cut open before the pipe; the seabed comes as near as the picture shows it.
    let front = (size * ahead.abs()).length() / 2.0;
    // Sky is above the surface; a low camera sees that from below, its far edge under its near one.
    let edges = [far, -front].map(|way| camera.see(middle.with_y(surface) + ahead * way));
    let heights = edges.into_iter().flatten().map(|seen| seen.y.max(0.0) * 10.0);
    let horizon = heights.fold(HEIGHT * 10.0, f64::min);
    include_str!("sea.svg")
        .replace("HORIZON", &format!("{horizon:.0}"))
        .replace("SEABED", &plane(camera, middle.with_y(bed), size.length(), far))
        .replace("SURFACE", &plane(camera, middle.with_y(surface), front, far))
        .replace("GRID", &grid(camera, bed, scene.space))
}

/// A level plane across the whole picture, from `front` before the middle to `far` behind it.
fn plane(camera: &Camera, middle: DVec3, front: f64, far: f64) -> String {
    let (ahead, aside) = camera.level();
    let corners = [(-1.0, far), (1.0, far), (0.1, -front), (-0.1, -front)];
    let corners = corners.map(|(side, way)| middle + aside * (side * far) + ahead * way);
    polygon(camera, &corners)
}

/// A line for every so many metres of the seabed.
fn grid(camera: &Camera, bed: f64, [low, high]: [DVec3; 2]) -> String {
    let (low, high) = (low - DVec3::splat(2.0 * GRID), high + DVec3::splat(2.0 * GRID));
    let at = |x, z| DVec3::new(x, bed, z);
    let across = marks(low.x, high.x).map(|x| [at(x, low.z), at(x, high.z)]);
    let along = marks(low.z, high.z).map(|z| [at(low.x, z), at(high.x, z)]);
    across.chain(along).map(|line| polygon(camera, &line)).collect()
}

/// A closed line through these points, as the `d` of a path; none if one is behind the camera.
fn polygon(camera: &Camera, points: &[DVec3]) -> String {
    let seen: Option<Vec<_>> = points.iter().map(|at| camera.see(*at)).collect();
    let mut path = String::new();
    for (n, corner) in seen.unwrap_or_default().iter().enumerate() {
        path.push(if n == 0 { 'M' } else { ' ' });
        point(&mut path, corner.as_vec2().to_array());
    }
    if !path.is_empty() {
        path.push('z');
    }
    path
}

/// The multiples of the grid between two places; at most a hundred, however large the space.
fn marks(from: f64, to: f64) -> impl Iterator<Item = f64> {
    let gap = GRID * (1.0 + ((to - from) / (100.0 * GRID)).floor());
    let first = (from / gap).ceil();
    (0..100).map(move |n| (first + f64::from(n)) * gap).take_while(move |mark| *mark <= to)
}

fn legend(scene: &Scene) -> String {
    let mut text = String::from("<g stroke=\"none\">");
    for n in 0..48 {
        let [red, green, blue] = scale(f64::from(n) / 47.0).map(|part| part as u8);
        let x = 6680 + n * 50;
        say(
            &mut text,
            format_args!(
                "<path d=\"M{x} 5560h52v110h-52z\" fill=\"#{red:02x}{green:02x}{blue:02x}\"/>"
            ),
        );
    }
    let [least, greatest] = scene.tension;
    say(
        &mut text,
        format_args!(
            "</g>\n<text x=\"6680\" y=\"5820\">{least} kN</text>\
             <text x=\"7880\" y=\"5820\" text-anchor=\"middle\">tension</text>\
             <text x=\"9080\" y=\"5820\" text-anchor=\"end\">{greatest} kN</text>\n"
        ),
    );
    text
}

/// A page that plays the pictures of these steps.
pub fn player(from: u64, to: u64, every: u64) -> String {
    include_str!("player.html")
        .replace("FROM", &from.to_string())
        .replace("EVERY", &every.to_string())
        .replace("TO", &to.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::SCENE;

    #[test]
    fn nothing_is_left_to_fill_in() {
        let page = player(20, 480, 4);
        assert!(page.contains("min=\"20\" max=\"480\" step=\"4\" value=\"20\""), "{page}");
        let text = page + &sea(&SCENE, &Camera::new(&SCENE, 30.0, 10.0));
        for blank in ["FROM", "TO", "EVERY", "HORIZON", "SEABED", "SURFACE", "GRID"] {
            assert!(!text.contains(blank), "{blank}");
        }
    }

    #[test]
    fn lines_on_the_seabed_stand_at_round_places_and_are_few() {
        assert_eq!(marks(-60.0, 120.0).collect::<Vec<_>>(), [-50.0, 0.0, 50.0, 100.0]);
        let many: Vec<_> = marks(-1e7, 1e7).collect();
        assert!((50..=101).contains(&many.len()), "{}", many.len());
        assert!(many[many.len() - 1] > 0.95e7, "to the end: {:?}", many.last());
    }
}
