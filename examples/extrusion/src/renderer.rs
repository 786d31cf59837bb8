//! The stateful stage: puts the prisms of a step together, draws steps in their order, and forgets
//! what it has drawn.
//!
//! Prisms come in any order, but never from more than `ahead` steps at once: see `reader`. So when
//! one of turn t comes, what has not come of turn t - ahead never will: it failed somewhere. Such a
//! step is left out and counted, and nothing waits for it.
//! Invariant: at most `ahead` steps are held, whatever comes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use comporta::{Cx, Error, Ev, Result, Stage};

use crate::extrude::{Extrude, Prism};
use crate::picture::{Painter, player};

/// What has been drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Steps.
    pub steps: u64,
    /// Segments, of all steps.
    pub segments: u64,
    /// Steps that lacked a segment, and were left out.
    pub left_out: u64,
    /// The numbers of the first and of the last step.
    pub from: u64,
    /// The last.
    pub to: u64,
    /// The most steps that were held at once.
    pub held_max: usize,
}

/// Told of what was drawn, after the last step.
pub type Report = Arc<dyn Fn(Drawn) -> io::Result<()> + Send + Sync>;

/// See the head of this file.
#[derive(Clone)]
pub struct Renderer {
    folder: PathBuf,
    every: u64,
    ahead: u64,
    painter: Painter,
    report: Report,
    /// The turn to be drawn next, and the prisms of it and of later ones.
    next: u64,
    held: BTreeMap<u64, Vec<Prism>>,
    drawn: Drawn,
}

impl Renderer {
    /// Draws into `folder` what was extruded so.
    pub fn new(folder: PathBuf, every: u64, ahead: u64, extrude: Extrude, report: Report) -> Self {
        let painter = Painter::new(extrude);
        let (held, drawn) = (BTreeMap::new(), Drawn::default());
        Renderer { folder, every, ahead, painter, report, next: 0, held, drawn }
    }

    /// Takes the next turn out of what is held, and draws it if nothing of it is missing.
    fn turn(&mut self) -> Result {
        let prisms = self.held.remove(&self.next);
        self.next += 1;
        match prisms {
            Some(prisms) if whole(&prisms) => self.draw(prisms),
            _ => {
                self.drawn.left_out += 1;
                Ok(())
            }
        }
    }

    fn draw(&mut self, mut prisms: Vec<Prism>) -> Result {
        prisms.sort_unstable_by_key(|prism| prism.part.index);
        let step = prisms[0].part.step;
        let file = self.folder.join(name(step));
        write(&file, self.painter.paint(&prisms))?;
        if self.drawn.steps == 0 {
            self.drawn.from = step;
        }
        self.drawn.to = step;
        self.drawn.steps += 1;
        self.drawn.segments += prisms.len() as u64;
        Ok(())
    }
}

impl Stage for Renderer {
    type In = Prism;
    type Ports = ();

    fn init(&mut self, _: &Cx) -> Result {
        let made = fs::create_dir_all(&self.folder);
        made.map_err(|error| Error::msg(format!("{}: {error}", self.folder.display())))
    }

    fn handle(&mut self, prism: Ev<'_, Prism>, _: &mut (), _: &Cx) -> Result {
        let turn = prism.part.turn;
        if turn < self.next {
            // A replay, long after its time.
            return Err(Error::msg(format!("step {} has passed", prism.part.step)));
        }
        let mut result = Ok(());
        while self.next + self.ahead <= turn {
            result = result.and(self.turn());
        }
        self.held.entry(turn).or_default().push(prism.take());
        self.drawn.held_max = self.drawn.held_max.max(self.held.len());
        while self.held.get(&self.next).is_some_and(|prisms| whole(prisms)) {
            result = result.and(self.turn());
        }
        result
    }

    fn finish(&mut self, (): &mut (), _: &Cx) -> Result {
        let mut result = Ok(());
        while !self.held.is_empty() {
            result = result.and(self.turn());
        }
        if self.drawn.steps > 0 {
            let page = player(self.drawn.from, self.drawn.to, self.every);
            result = result.and(write(&self.folder.join("index.html"), &page));
        }
        (self.report)(self.drawn)?;
        result
    }
}

impl fmt::Debug for Renderer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renderer").field("drawn", &self.drawn).finish_non_exhaustive()
    }
}

fn whole(prisms: &[Prism]) -> bool {
    prisms.first().is_some_and(|prism| prisms.len() == prism.part.of as usize)
}

/// The name of the picture of a step.
pub fn name(step: u64) -> String {
    format!("step-{step:08}.svg")
}

/// Under another name first, so that nobody ever sees half a file.
fn write(file: &Path, text: &str) -> Result {
    let half = file.with_extension("part");
    let written = fs::write(&half, text).and_then(|()| fs::rename(&half, file));
    written.map_err(|error| Error::msg(format!("{}: {error}", file.display())))
}

/// What is said at the end.
///
/// # Errors
/// Those of the writer.
pub fn say(to: &mut impl Write, folder: &Path, ahead: u64, drawn: Drawn) -> io::Result<()> {
    let Drawn { steps, segments, left_out, held_max, .. } = drawn;
    write!(to, "steps drawn: {steps} ({segments} segments)")?;
    if steps > 0 {
        write!(to, ": open {}", folder.join("index.html").display())?;
    }
    writeln!(to)?;
    if left_out > 0 {
        writeln!(to, "steps left out, for want of a segment: {left_out}")?;
    }
    writeln!(to, "steps held at once: {held_max} at most, {ahead} allowed")
}
