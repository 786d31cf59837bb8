//! What goes wrong in the user code of a case, as data, and the shapes of programs that it needs:
//! chosen by dice of their own, so that the rest of a case stays what its seed always made it.

use crate::case::{Case, EMITS_MAX, LinkCase, Shape, Way};
use crate::dice::{Dice, mix2};

/// Left out, because the runtime does not yet keep its promise there: an event that failed and was kept
/// panics when it is dropped with its program (`boundary/found.rs`).
pub(crate) const KEPT_FAILURES_PANIC_WHEN_DROPPED: bool = true;

/// Left out likewise: the copy of an event that a stage retains panics when it is dropped, which costs
/// the event after it.
const RETAINED_COPIES_PANIC_WHEN_DROPPED: bool = true;

/// Left out likewise: an event fails in place, and what was handled before it is not sent on, where that
/// stands in the port already: a stage of several instances, or an ordered one that tries again.
const FAILURES_IN_PLACE_AFTER_OTHERS_WERE_SENT: bool = true;

/// Left out likewise: two events that a failed call had sent, through two ports, panic when they are
/// withdrawn, and the worker dies.
pub(crate) const WITHDRAWN_EVENTS_PANIC_WHEN_DROPPED: bool = true;

/// So many of a thousand events each. Which ones is decided by a hash of the event.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// A key function panics.
    pub(crate) keys: u64,
    /// `Clone` panics.
    pub(crate) clones: u64,
    /// `Drop` panics, unless something else unwinds already.
    pub(crate) drops: u64,
    /// `Drop` pushes another event into the input of the program.
    pub(crate) echoes: u64,
    /// The `Display` of the error that a handler returns panics.
    pub(crate) displays: u64,
    /// A handler blocks. Only on threads: on virtual time nothing could unblock it.
    pub(crate) blocks: u64,
    /// A blocked handler goes on when so many others were called, or a source has ended.
    pub(crate) block_until: u64,
}

/// One of the faults.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    Key = 1,
    Clone,
    Drop,
    Echo,
    Display,
    Block,
}

impl Faults {
    fn new(dice: &mut Dice) -> Self {
        let mut some = |percent| if dice.chance(percent) { dice.pick(&[5, 20, 100]) } else { 0 };
        Faults {
            keys: some(25),
            clones: some(25),
            drops: some(20),
            echoes: some(60),
            displays: 10 * some(40),
            blocks: some(15),
            block_until: dice.pick(&[1, 3, 20]),
        }
    }

    /// Whether the fault comes with the event of this identity.
    pub(crate) fn strikes(&self, fault: Fault, id: u64) -> bool {
        let of_thousand = match fault {
            Fault::Key => self.keys,
            Fault::Clone => self.clones,
            Fault::Drop => self.drops,
            Fault::Echo => self.echoes,
            Fault::Display => self.displays,
            Fault::Block => self.blocks,
        };
        of_thousand > 0 && mix2(id, fault as u64) % 1_000 < of_thousand
    }

    /// Whether its events need a `Clone` and a `Drop` of their own.
    pub(crate) fn of_events(&self) -> bool {
        self.clones + self.drops + self.echoes > 0
    }

    /// Whether an event may be lost on its way out of a stage.
    pub(crate) fn lose_copies(&self) -> bool {
        self.keys + self.clones > 0
    }
}

impl Case {
    /// Adds faults, and what they need, to some cases.
    pub(crate) fn inject(&mut self, dice: &mut Dice) {
        if dice.chance(50) {
            self.faults = Faults::new(dice);
            if self.input.is_none() {
                self.faults.echoes = 0;
            }
        }
        if self.faults.drops > 0 && !RETAINED_COPIES_PANIC_WHEN_DROPPED {
            self.stages.iter_mut().for_each(|stage| stage.retain = false);
        }
        for source in &mut self.sources {
            source.short = dice.chance(25).then(|| dice.pick(&[1, 2, 5]));
        }
        let heads = self.heads();
        let in_place = dice.chance(50);
        for node in heads..self.nodes() {
            match self.stages[node - heads].shape {
                Shape::OnePort if in_place && dice.chance(50) => self.handle_in_place(node),
                Shape::TwoPorts if dice.chance(30) => {
                    self.stages[node - heads].emit_max = Some(dice.pick(&[5, 6, 20]));
                    self.join_ports(node);
                }
                _ if dice.chance(10) => {
                    self.stages[node - heads].emit_max = Some(EMITS_MAX as usize);
                }
                _ => {}
            }
        }
    }

    /// Makes a stage one that handles in place, unless events would go round in place for ever.
    fn handle_in_place(&mut self, node: usize) {
        let at = node - self.heads();
        self.stages[at].shape = Shape::InPlace;
        self.stages[at].retain = false; // a copy would be tried again, which does not know of the first try
        let in_place = |node| self.stage(node).is_some_and(|stage| stage.shape == Shape::InPlace);
        if self.comes_back(node, in_place) {
            self.stages[at].shape = Shape::OnePort;
            return;
        }
        let stage = &self.stages[at];
        let sends_before = !self.is_single(node) || stage.ordered && stage.retry.tries > 1;
        if sends_before && !FAILURES_IN_PLACE_AFTER_OTHERS_WERE_SENT {
            self.stages[at].fails = 0;
        }
    }

    /// Connects the second port of a stage to a queue that its first one leads to.
    fn join_ports(&mut self, node: usize) {
        let of_port = |port| self.links.iter().filter(move |l| l.from == node && l.port == port);
        let Some(first) = of_port(0).find(|link| link.way == Way::One) else { return };
        let (to, rule) = (first.to[0], first.rule);
        if !of_port(1).any(|link| link.to.contains(&to)) {
            self.links.push(LinkCase { from: node, port: 1, way: Way::One, to: vec![to], rule });
        }
    }
}
