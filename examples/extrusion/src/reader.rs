//! The source: reads steps, carries a frame along each, and sends their segments.
//!
//! It decides how far the program may run ahead. A prism that takes long keeps its step from being
//! drawn, and all later steps must wait in the renderer; so the reader begins a step only when it is
//! less than `ahead` steps after the oldest one that is still under way. It knows that one from
//! acknowledgements: each pull is a group, told of when all that its segments led to was handled.
//! Invariant: when a segment of turn t is sent, all turns up to t - ahead have settled.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::vec;

use comporta::{Demand, Out, Pull, Result, Settled, Source};

use crate::extrude::{Part, Segment};
use crate::frame::frames;
use crate::riser::{BadInput, Scene, Step};

/// Steps, wherever they come from.
pub type AnySteps = Box<dyn Iterator<Item = Result<Step, BadInput>> + Send>;

/// See the head of this file.
pub struct Reader {
    steps: AnySteps,
    scene: Arc<Scene>,
    every: u64,
    ahead: u64,
    /// How many steps were read, and how many were begun.
    read: u64,
    turn: u64,
    /// What is left to send of the step begun last.
    segments: vec::IntoIter<Segment>,
    /// The groups not yet settled, and the turn each belongs to.
    unsettled: BTreeMap<u64, u64>,
}

impl Reader {
    /// Sends every `every`-th of these steps, and at most `ahead` at once.
    pub fn new(steps: AnySteps, scene: Scene, every: u64, ahead: u64) -> Self {
        Reader {
            steps,
            scene: Arc::new(scene),
            every,
            ahead,
            read: 0,
            turn: 0,
            segments: Vec::new().into_iter(),
            unsettled: BTreeMap::new(),
        }
    }

    /// Whether the next step may begin. Groups are numbered upwards: the first is the oldest.
    fn may_begin(&self) -> bool {
        self.unsettled.first_key_value().is_none_or(|(_, oldest)| self.turn < oldest + self.ahead)
    }
}

impl Source for Reader {
    type Item = Segment;
    const ACKNOWLEDGED: bool = true;

    /// Reads at most one step, and sends of one step only.
    fn pull(&mut self, out: &mut Out<Segment>, demand: Demand) -> Result<Pull> {
        if self.segments.as_slice().is_empty() {
            if !self.may_begin() {
                return Ok(Pull::AfterAck);
            }
            let Some(step) = self.steps.next().transpose()? else { return Ok(Pull::End) };
            let number = self.read;
            self.read += 1;
            if !number.is_multiple_of(self.every) {
                return Ok(Pull::More);
            }
            self.segments = cut(&step, &self.scene, self.turn).into_iter();
            self.turn += 1;
        }
        self.unsettled.insert(demand.group, self.turn - 1);
        self.segments.by_ref().take(demand.events).for_each(|segment| out.send(segment));
        Ok(Pull::More)
    }

    fn settled(&mut self, settled: Settled) {
        self.unsettled.remove(&settled.group);
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("read", &self.read).finish_non_exhaustive()
    }
}

/// The segments of a step.
pub fn cut(step: &Step, scene: &Arc<Scene>, turn: u64) -> Vec<Segment> {
    let frames = frames(step.nodes.iter().map(|node| node.at));
    let of = frames.len() as u32 - 1;
    let pairs = frames.windows(2).zip(step.nodes.windows(2)).zip(0..);
    let segments = pairs.map(|((ends, nodes), index)| Segment {
        part: Part { turn, step: step.number, time: step.time, index, of, scene: scene.clone() },
        ends: [ends[0], ends[1]],
        tension: [nodes[0].tension, nodes[1].tension],
    });
    segments.collect()
}
