//! What a simulation says of a riser, and the text file it says it in: read and checked a step at a
//! time, whatever its size. The README describes the format.

use std::io::{self, BufRead, Read, Write};
use std::str::FromStr;

use glam::DVec3;
use serde::{Deserialize, Serialize};

/// What holds for all steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scene {
    /// The radius of the pipe in metres.
    pub radius: f64,
    /// The heights of the seabed and of the surface of the water.
    pub sea: [f64; 2],
    /// The least and the greatest tension, in kilonewtons: the ends of the colour scale.
    pub tension: [f64; 2],
    /// Two corners of the space the pipe moves in: x along the seabed, y up, z to the side.
    pub space: [DVec3; 2],
}

/// One point of the centre line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// Where it is.
    pub at: DVec3,
    /// The tension there, in kilonewtons.
    pub tension: f64,
}

/// One moment: the centre line from the anchor on the seabed up to the platform.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its number.
    pub number: u64,
    /// Its time in seconds.
    pub time: f64,
    /// At least two.
    pub nodes: Vec<Node>,
}

/// What is wrong with a file, and where.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct BadInput {
    file: String,
    line: u64,
    what: String,
}

/// How many nodes a step may have: one step must fit in memory.
pub const NODES_MAX: usize = 100_000;
/// How many there is room for before the first is read.
const NODES_FIRST: usize = 1_024;
/// How long a line may be; a file that is no text may have no line ends at all.
const LINE_MAX: usize = 1_000;
/// What is shown of a line that is wrong.
const SHOWN_MAX: usize = 40;

/// The steps of a file, one after the other. It ends at the first mistake.
#[derive(Debug)]
pub struct Steps<R> {
    input: R,
    file: String,
    line: u64,
    text: Vec<u8>,
    scene: Scene,
    nodes: usize,
    next: Option<u64>,
    ended: bool,
}

impl<R: BufRead> Steps<R> {
    /// Reads what comes before the first step; `file` is the name used in messages.
    ///
    /// # Errors
    /// What is wrong, and in which line.
    pub fn open(file: impl Into<String>, input: R) -> Result<Self, BadInput> {
        let scene =
            Scene { radius: 0.0, sea: [0.0; 2], tension: [0.0; 2], space: [DVec3::ZERO; 2] };
        let (file, text) = (file.into(), Vec::new());
        let mut steps =
            Steps { input, file, line: 0, text, scene, nodes: 0, next: None, ended: false };
        steps.header()?;
        Ok(steps)
    }

    /// What holds for all steps.
    pub fn scene(&self) -> Scene {
        self.scene
    }

    fn header(&mut self) -> Result<(), BadInput> {
        let [version] = self.said("riser", "`riser 1`, the format and its version")?;
        if version != 1.0 {
            return Err(self.bad("expected version 1"));
        }
        let [nodes] = self.said("nodes", "`nodes N`, the nodes of a step")?;
        if nodes.fract() != 0.0 || !(2.0..=NODES_MAX as f64).contains(&nodes) {
            return Err(self.bad(format!("expected 2 to {NODES_MAX} nodes")));
        }
        let [radius] = self.said("radius", "`radius R`, in metres")?;
        if radius <= 0.0 {
            return Err(self.bad("expected a radius above zero"));
        }
        let sea = self.said("sea", "`sea BED SURFACE`, two heights")?;
        self.rises(sea[0], sea[1])?;
        let tension = self.said("tension", "`tension LEAST GREATEST`, in kilonewtons")?;
        self.rises(tension[0], tension[1])?;
        let [x, y, z, to_x, to_y, to_z] = self.said("space", "`space X Y Z X Y Z`, two corners")?;
        for (from, to) in [(x, to_x), (y, to_y), (z, to_z)] {
            self.rises(from, to)?;
        }
        let space = [DVec3::new(x, y, z), DVec3::new(to_x, to_y, to_z)];
        self.nodes = nodes as usize;
        self.scene = Scene { radius, sea, tension, space };
        Ok(())
    }

    fn rises(&self, from: f64, to: f64) -> Result<(), BadInput> {
        if from < to {
            Ok(())
        } else {
            Err(self.bad(format!("expected more than {from}, not {to}")))
        }
    }

    /// The next line: a word, and so many numbers.
    fn said<const N: usize>(&mut self, word: &str, what: &str) -> Result<[f64; N], BadInput> {
        let found = self.line()?.and_then(|line| numbers(line.strip_prefix(word)?));
        found.ok_or_else(|| self.unexpected(what))
    }

    fn step(&mut self) -> Result<Option<Step>, BadInput> {
        const WHAT: &str = "`step NUMBER SECONDS`";
        let Some(line) = self.line()? else { return Ok(None) };
        let said = line.strip_prefix("step ").and_then(|rest| rest.trim().split_once(' '));
        let said = said.and_then(|(n, time)| Some((n.parse().ok()?, numbers::<1>(time)?[0])));
        let (number, time): (u64, f64) = said.ok_or_else(|| self.unexpected(WHAT))?;
        if let Some(next) = self.next.filter(|next| *next != number) {
            return Err(self.bad(format!("expected step {next}, but found step {number}")));
        }
        self.next = Some(number.saturating_add(1));
        // A count in the header is only a claim: many nodes must come before there is room for more.
        let mut nodes = Vec::<Node>::with_capacity(self.nodes.min(NODES_FIRST));
        while nodes.len() < self.nodes {
            let Some(line) = self.line()? else {
                let (has, of) = (nodes.len(), self.nodes);
                return Err(self.bad(format!(
                    "the file ends inside of step {number}, after {has} of its {of} nodes"
                )));
            };
            let Some([x, y, z, tension]) = numbers(line) else {
                return Err(self.unexpected("`x y z tension`, four numbers"));
            };
            let at = DVec3::new(x, y, z);
            if nodes.last().is_some_and(|before| before.at.distance(at) < 1e-6) {
                return Err(self.bad("the node lies where the one before it does"));
            }
            nodes.push(Node { at, tension });
        }
        Ok(Some(Step { number, time, nodes }))
    }

    /// The next line that is neither empty nor a comment.
    fn line(&mut self) -> Result<Option<&str>, BadInput> {
        loop {
            self.text.clear();
            let mut some = (&mut self.input).take(LINE_MAX as u64);
            let read = some.read_until(b'\n', &mut self.text);
            let read = read.map_err(|error| self.bad(error))?;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            match self.text.pop_if(|last| *last == b'\n') {
                Some(_) => {}
                None if read == LINE_MAX => {
                    return Err(self.bad(format!("the line is longer than {LINE_MAX} bytes")));
                }
                None => return Err(self.bad("the file was cut: its last line has no end")),
            }
            if !matches!(self.text.trim_ascii().first(), None | Some(b'#')) {
                break;
            }
        }
        let text = std::str::from_utf8(&self.text).map(str::trim);
        text.map(Some).map_err(|_| self.bad("expected text"))
    }

    fn unexpected(&self, expected: &str) -> BadInput {
        let found = String::from_utf8_lossy(&self.text);
        let found = found.trim();
        let shown: String = found.chars().take(SHOWN_MAX).collect();
        let more = if shown.len() < found.len() { "..." } else { "" };
        match found {
            "" => self.bad(format!("expected {expected}, but the file ends")),
            _ => self.bad(format!("expected {expected}, but found `{shown}{more}`")),
        }
    }

    fn bad(&self, what: impl ToString) -> BadInput {
        BadInput { file: self.file.clone(), line: self.line, what: what.to_string() }
    }
}

impl<R: BufRead> Iterator for Steps<R> {
    type Item = Result<Step, BadInput>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step().transpose();
        self.ended = !matches!(step, Some(Ok(_)));
        step
    }
}

/// Exactly `N` numbers that can be reckoned with.
fn numbers<const N: usize>(text: &str) -> Option<[f64; N]> {
    let mut words = text.split_ascii_whitespace();
    let mut all = [0.0; N];
    for number in &mut all {
        *number = f64::from_str(words.next()?).ok().filter(|n| n.abs() < 1e9)?; // nor NaN
    }
    words.next().is_none().then_some(all)
}

/// Writes what comes before the first step.
///
/// # Errors
/// Those of the writer.
pub fn write_header(to: &mut impl Write, scene: &Scene, nodes: usize) -> io::Result<()> {
    let Scene { radius, sea, tension, space: [a, b] } = scene;
    writeln!(to, "riser 1\nnodes {nodes}\nradius {radius}\nsea {} {}", sea[0], sea[1])?;
    writeln!(to, "tension {} {}", tension[0], tension[1])?;
    writeln!(to, "space {} {} {} {} {} {}", a.x, a.y, a.z, b.x, b.y, b.z)
}

/// Writes one step, to the millimetre and the newton.
///
/// # Errors
/// Those of the writer.
pub fn write_step(to: &mut impl Write, step: &Step) -> io::Result<()> {
    writeln!(to, "step {} {:.3}", step.number, step.time)?;
    for Node { at, tension } in &step.nodes {
        writeln!(to, "{:.3} {:.3} {:.3} {tension:.3}", at.x, at.y, at.z)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "riser 1\n# two nodes\nnodes 2\nradius 0.5\nsea 0 9\ntension 1 5\nspace 0 0 0 9 9 9\n";

    fn read(text: &str) -> (Vec<Step>, String) {
        let mut message = String::new();
        let mut steps = Vec::new();
        match Steps::open("r.txt", text.as_bytes()) {
            Err(error) => message = error.to_string(),
            Ok(all) => all.for_each(|step| match step {
                Ok(step) => steps.push(step),
                Err(error) => message = error.to_string(),
            }),
        }
        (steps, message)
    }

    #[test]
    fn what_is_written_is_read() {
        let node = |x, tension| Node { at: DVec3::new(x, 0.125, -3.5), tension };
        let step =
            |number| Step { number, time: 0.25, nodes: vec![node(1.0, 2.0), node(2.5, 4.5)] };
        let (steps, _) = read(&format!("{HEADER}step 7 0\n0 0 0 1\n1 1 1 1\n\n"));
        assert_eq!((steps.len(), steps[0].number), (1, 7));
        let scene = Steps::open("r.txt", HEADER.as_bytes()).unwrap().scene();
        let mut text = Vec::new();
        write_header(&mut text, &scene, 2).unwrap();
        write_step(&mut text, &step(3)).unwrap();
        write_step(&mut text, &step(4)).unwrap();
        assert_eq!(Steps::open("r.txt", &*text).unwrap().scene(), scene);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(read(&text), (vec![step(3), step(4)], String::new()));
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_ends_the_reading() {
        const STEP: &str = "step 0 0\n0 0 0 1\n1 1 1 1\n";
        for (after, steps, message) in [
            ("1 2 3 4\n", 1, "r.txt:11: expected `step NUMBER SECONDS`, but found `1 2 3 4`"),
            ("step 2 1\n", 1, "r.txt:11: expected step 1, but found step 2"),
            (
                "step 1 1\n1 2 3\n",
                1,
                "r.txt:12: expected `x y z tension`, four numbers, but found `1 2 3`",
            ),
            (
                "step 1 1\n-inf 2 3 4\n",
                1,
                "r.txt:12: expected `x y z tension`, four numbers, but found `-inf 2 3 4`",
            ),
            (
                "step 1 1\n1 2 NaN 4\nstep 2 0\n",
                1,
                "r.txt:12: expected `x y z tension`, four numbers, but found `1 2 NaN 4`",
            ),
            (
                "step 1 1\n1 2 3 4\n1 2 3 5\n",
                1,
                "r.txt:13: the node lies where the one before it does",
            ),
            (
                "step 1 1\n1 2 3 4\n",
                1,
                "r.txt:12: the file ends inside of step 1, after 1 of its 2 nodes",
            ),
            (
                "step 1 1\n1 2 3 4\n4 5 6 1",
                1,
                "r.txt:13: the file was cut: its last line has no end",
            ),
        ] {
            let (read, said) = read(&format!("{HEADER}{STEP}{after}"));
            assert_eq!((read.len(), &*said), (steps, message));
        }
        let (_, said) = read(&format!("{HEADER}{}", "x".repeat(5_000)));
        assert_eq!(said, "r.txt:8: the line is longer than 1000 bytes");
        let (_, said) = read(&format!("{HEADER}{}\n", "x".repeat(50)));
        assert!(said.ends_with(&format!("found `{}...`", "x".repeat(40))), "{said}");
    }

    #[test]
    fn a_bad_header_is_refused() {
        for (from, to, message) in [
            (
                "riser 1",
                "ply",
                "r.txt:1: expected `riser 1`, the format and its version, but found `ply`",
            ),
            ("riser 1", "riser 2", "r.txt:1: expected version 1"),
            ("nodes 2", "nodes 1", "r.txt:3: expected 2 to 100000 nodes"),
            (
                "nodes 2",
                "nodes 1e9",
                "r.txt:3: expected `nodes N`, the nodes of a step, but found `nodes 1e9`",
            ),
            ("radius 0.5", "radius 0", "r.txt:4: expected a radius above zero"),
            ("tension 1 5", "tension 5 5", "r.txt:6: expected more than 5, not 5"),
            (
                "space 0 0 0 9 9 9\n",
                "",
                "r.txt:6: expected `space X Y Z X Y Z`, two corners, but the file ends",
            ),
        ] {
            assert_eq!(read(&HEADER.replace(from, to)).1, message);
        }
        assert!(read("").1.ends_with("but the file ends"));
    }
}
