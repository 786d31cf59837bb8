//! The model. An event's walk: `flow` (sent, arrived, done), `work` (cores, disk, network), `policy` (which replica is next); beside it
//! `migration` (the five steps) and `control` (messages, rounds, what is recorded each second). `mail` is where messages lie.
//!
//! Invariant: nothing here reads a clock or a random number but those of the scenario.

mod parts;
mod mail;
mod build;
mod flow;
mod work;
pub(crate) mod policy;
mod migration;
mod control;

use comporta_placement::{
    ControlMessage, Monitor, NodeMessage, NodeState, Registry, Strategy, Unknown,
};

use self::mail::{Mail, Place};
use self::parts::{Core, Input, NodePart, OperatorKind, OperatorPart, ReplicaPart};
use crate::calendar::Calendar;
use crate::outcome::{Outcome, Recorder};
use crate::scenario::{Fault, Scenario};
use crate::seen::Seen;

/// Nanoseconds in a second.
const NS: f64 = 1e9;

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Seconds of the scenario that have passed.
    pub second: f64,
    /// Seconds that it lasts.
    pub of: f64,
    /// Things that have happened.
    pub events: u64,
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It is not sound.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Faults(Vec<Fault>),
    /// Its strategy is not known.
    #[error(transparent)]
    Strategy(#[from] Unknown),
    /// More is under way at once than the model can hold.
    #[error(
        "after {second:.3} s, {} messages are under way at once, which is the most that the model holds: \
         the network is too slow for what is sent",
        crate::calendar::SLOTS_MAX
    )]
    Overfull {
        /// When that was.
        second: f64,
    },
    /// The policy of a node is not known, or cannot run there.
    #[error("{node}: the policy `{policy}`: {wrong}")]
    Policy {
        /// The node.
        node: String,
        /// Its policy.
        policy: String,
        /// What is wrong.
        wrong: String,
    },
}

/// Runs a scenario with the strategies of the library.
///
/// # Errors
/// What is wrong with the scenario.
pub fn run(scenario: &Scenario) -> Result<Outcome, RunError> {
    run_with(scenario, &Registry::new(), &mut |_| {})
}

/// Runs a scenario with these strategies, and reports each second how far it has come.
///
/// # Errors
/// What is wrong with the scenario.
pub fn run_with(
    scenario: &Scenario,
    strategies: &Registry,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, RunError> {
    let faults = scenario.check();
    if !faults.is_empty() {
        return Err(RunError::Faults(faults));
    }
    let strategy = strategies.make(&scenario.strategy, scenario.seed)?;
    let mut model = Model::new(scenario, strategy)?;
    model.start();
    let end = ns(scenario.duration);
    while let Some((time, what)) = model.calendar.next(end) {
        model.now = time;
        model.recorder.events += 1;
        if matches!(what, Happening::Second) {
            let (second, of, events) = (time as f64 / NS, scenario.duration, model.recorder.events);
            progress(Progress { second, of, events });
        }
        model.happen(what);
        if model.calendar.is_overfull() {
            return Err(RunError::Overfull { second: time as f64 / NS });
        }
    }
    let active = model.nodes.iter().filter(|node| node.state == NodeState::Active).count();
    Ok(model.recorder.finish(scenario, active))
}

/// Something that happens.
#[derive(Debug)]
enum Happening {
    /// A source sends its next event.
    Emit { source: u32 },
    /// A copy of an event arrives at a replica, or at where it is about to migrate.
    Arrive { replica: u32, epoch: u32, message: Place },
    /// A core is done with an event.
    Computed { replica: u32, core: u32, message: Place },
    /// The disk is done with it.
    Stored { replica: u32, message: Place },
    /// A second has passed: control messages are sent.
    Second,
    /// A control message arrives.
    Report(Box<ControlMessage>),
    /// That of a node on which no replica runs arrives.
    NodeReport(Box<NodeMessage>),
    /// A round is held.
    Round,
    /// Step 1 of a migration is done: the new replica is there.
    Created { replica: u32 },
    /// Step 3 waited long enough for the end of a window.
    Impatient { replica: u32, epoch: u32 },
    /// Step 4 is done: the state is there.
    Copied { replica: u32 },
    /// A node has started.
    Started { node: u32 },
}

struct Model<'s> {
    scenario: &'s Scenario,
    now: u64,
    calendar: Calendar<Happening>,
    mail: Mail,
    nodes: Vec<NodePart>,
    cores: Vec<Core>,
    kinds: Vec<OperatorKind<'s>>,
    operators: Vec<OperatorPart>,
    receivers: Vec<u32>,
    inputs: Vec<Input>,
    replicas: Vec<ReplicaPart>,
    /// Windows of sequence numbers.
    seen: Vec<Seen>,
    monitor: Monitor,
    strategy: Box<dyn Strategy>,
    recorder: Recorder,
}

impl<'s> Model<'s> {
    /// The kind of a replica's operator.
    fn kind(&self, replica: u32) -> &OperatorKind<'s> {
        let operator = self.replicas[replica as usize].operator;
        &self.kinds[self.operators[operator as usize].kind as usize]
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Emit { source } => self.emit(source),
            Happening::Arrive { replica, epoch, message } => {
                let message = self.mail.take(message);
                self.arrive(replica, epoch, message);
            }
            Happening::Computed { replica, core, message } => {
                let message = self.mail.take(message);
                self.computed(replica, core, message);
            }
            Happening::Stored { replica, message } => {
                let message = self.mail.take(message);
                self.stored(replica, message);
            }
            Happening::Second => self.second(),
            Happening::Report(message) => self.receive(&message),
            Happening::NodeReport(message) => self.receive_node(&message),
            Happening::Round => self.round(),
            Happening::Created { replica } => self.created(replica),
            Happening::Impatient { replica, epoch } => self.impatient(replica, epoch),
            Happening::Copied { replica } => self.copied(replica),
            Happening::Started { node } => self.started(node),
        }
    }
}

/// Seconds as nanoseconds.
const fn ns(seconds: f64) -> u64 {
    (seconds * NS).round() as u64
}
