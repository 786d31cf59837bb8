//! The events of random programs: plain ones, which are copied as they are, and live ones, whose
//! `Clone` and `Drop` are user code that panics, or pushes, where the case says so.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use comporta::ports::Ports;
use comporta::{Out, Port, Ports, Sender, StageRef};
use serde::{Deserialize, Serialize};

use crate::dice::mix;
use crate::faults::Fault;
use crate::injector::Injector;

/// A producer whose events come in no particular order.
pub(crate) const UNNUMBERED: u64 = u64::MAX;

/// What an event says, and a plain event.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) id: u64,
    /// Shared out among what the event leads to.
    pub(crate) fuel: u64,
    /// Who made it, and its number: those of one producer ascend in each queue.
    pub(crate) from: u64,
    pub(crate) number: u64,
    /// It was sent by a failing call and must never arrive.
    pub(crate) doomed: bool,
    /// It was pushed by an event that was dropped, and does not do so itself.
    pub(crate) echo: bool,
    /// How often a stage in place has tried it.
    pub(crate) tries: u32,
}

impl Facts {
    /// Its key, of so many.
    pub(crate) fn key(&self, keys: u64) -> u64 {
        mix(self.id) % keys
    }

    pub(crate) fn new(id: u64, fuel: u64, from: u64, number: u64) -> Self {
        Facts { id, fuel, from, number, doomed: false, echo: false, tries: 0 }
    }
}

/// How many events, and which.
#[derive(Default)]
pub(crate) struct Tally {
    count: AtomicU64,
    sum: AtomicU64,
}

impl Tally {
    pub(crate) fn add(&self, facts: &Facts) {
        self.count.fetch_add(1, SeqCst);
        self.sum.fetch_add(mix(facts.id), SeqCst);
    }

    pub(crate) fn take_back(&self, facts: &Facts) {
        self.count.fetch_sub(1, SeqCst);
        self.sum.fetch_sub(mix(facts.id), SeqCst);
    }

    /// How many, and a sum that tells one multiset of events from another.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.count.load(SeqCst), self.sum.load(SeqCst))
    }
}

/// An event of a random program.
pub(crate) trait Event: comporta::Event + Debug + Sync {
    type Fork: ForkPorts<Self>;
    fn new(facts: Facts, injector: &Arc<Injector>) -> Self;
    fn facts(&self) -> &Facts;
    fn facts_mut(&mut self) -> &mut Facts;
    /// Whether its `Drop` panics.
    fn is_armed(&self) -> bool;
    /// The two ports of a stage that forks.
    fn fork_ports(made: &StageRef<'_, Self, Self::Fork>) -> [Port<Self>; 2];
    /// Lends the injector a handle, for events that push when they are dropped.
    fn lend(injector: &Injector, sender: &Sender<Self>);
}

impl Event for Facts {
    type Fork = PlainFork;
    fn new(facts: Facts, _: &Arc<Injector>) -> Self {
        facts
    }
    fn facts(&self) -> &Facts {
        self
    }
    fn facts_mut(&mut self) -> &mut Facts {
        self
    }
    fn is_armed(&self) -> bool {
        false
    }
    fn fork_ports(made: &StageRef<'_, Facts, PlainFork>) -> [Port<Facts>; 2] {
        [made.left, made.right]
    }
    fn lend(_: &Injector, _: &Sender<Facts>) {}
}

/// An event whose `Clone` and `Drop` are user code.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Live {
    facts: Facts,
    #[serde(skip)]
    injector: Option<Arc<Injector>>,
}

impl Event for Live {
    type Fork = LiveFork;
    fn new(facts: Facts, injector: &Arc<Injector>) -> Self {
        Live { facts, injector: Some(injector.clone()) }
    }
    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn facts_mut(&mut self) -> &mut Facts {
        &mut self.facts
    }
    fn is_armed(&self) -> bool {
        self.is_struck(Fault::Drop)
    }
    fn fork_ports(made: &StageRef<'_, Live, LiveFork>) -> [Port<Live>; 2] {
        [made.left, made.right]
    }
    fn lend(injector: &Injector, sender: &Sender<Live>) {
        injector.lend(sender.clone());
    }
}

impl Live {
    fn is_struck(&self, fault: Fault) -> bool {
        self.injector.as_ref().is_some_and(|injector| injector.strikes(fault, &self.facts))
    }
}

impl Clone for Live {
    fn clone(&self) -> Self {
        if let Some(injector) = self.injector.as_ref().filter(|_| self.is_struck(Fault::Clone)) {
            injector.clones.fetch_add(1, SeqCst);
            panic!("an event that cannot be copied");
        }
        Live { facts: self.facts, injector: self.injector.clone() }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let Some(injector) = self.injector.take() else { return };
        if !self.facts.echo && injector.strikes(Fault::Echo, &self.facts) {
            injector.echo(&self.facts);
        }
        // A panic while another unwinds would abort.
        let armed = injector.strikes(Fault::Drop, &self.facts);
        assert!(!armed || std::thread::panicking(), "an event that cannot be dropped");
    }
}

/// The ports of a stage, by number.
pub(crate) trait ForkPorts<E: Event>: Ports {
    fn out(&mut self, port: usize) -> (usize, &mut Out<E>);
}

impl<E: Event> ForkPorts<E> for Out<E> {
    fn out(&mut self, _: usize) -> (usize, &mut Out<E>) {
        (0, self)
    }
}

#[derive(Ports)]
pub(crate) struct PlainFork {
    left: Out<Facts>,
    right: Out<Facts>,
}

impl ForkPorts<Facts> for PlainFork {
    fn out(&mut self, port: usize) -> (usize, &mut Out<Facts>) {
        if port == 0 { (0, &mut self.left) } else { (1, &mut self.right) }
    }
}

#[derive(Ports)]
pub(crate) struct LiveFork {
    left: Out<Live>,
    right: Out<Live>,
}

impl ForkPorts<Live> for LiveFork {
    fn out(&mut self, port: usize) -> (usize, &mut Out<Live>) {
        if port == 0 { (0, &mut self.left) } else { (1, &mut self.right) }
    }
}
