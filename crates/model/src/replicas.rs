//! Replicas: a stage of which the plan wants several is that many stages to the runtime, each with a queue, instances and
//! counts of its own, so that threads that run different replicas share nothing. Here the graph, its topology and the
//! settings are rewritten before anything is made; the runtime treats replicas as any stages, and puts them together again
//! where people look ([`Replicas`]).
//!
//! The first replica of a stage keeps the number of the stage; the others come after all stages. All have its name.
//! Of two stages joined by a connector, replicas are joined one to one where the numbers are the same, and otherwise as
//! evenly as they can be (`joined`); where a connector chooses by key, or leads to a keyed stage, each sender reaches every
//! replica, so that a key finds the same one whoever sends it.

use crate::graph::{Connector, Graph, Route, StageId, Topology};
use crate::plan::Settings;

/// Which of several parts of a source is meant: the events of a source in parts are those of all its parts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    index: usize,
    count: usize,
}

impl Part {
    /// A part; the runtime makes these.
    ///
    /// # Panics
    /// Panics if there are fewer than `index + 1` parts.
    #[must_use]
    pub fn new(index: usize, count: usize) -> Self {
        assert!(index < count, "part {index} of {count}");
        Part { index, count }
    }

    /// Returns its number, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.index
    }

    /// Returns how many parts there are: 1 unless the plan says more.
    #[must_use]
    pub fn count(self) -> usize {
        self.count
    }

    /// Returns what this part has of a whole of `len`: the parts are consecutive, and their lengths differ by 1 at most.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::replicas::Part; }
    /// use comporta::Part;
    ///
    /// let parts = (0..3).map(|index| Part::new(index, 3).of(10));
    /// assert_eq!(parts.collect::<Vec<_>>(), [0..3, 3..6, 6..10]);
    /// ```
    #[must_use]
    pub fn of(self, len: u64) -> std::ops::Range<u64> {
        let Part { index, count } = self;
        let until = |part: usize| (u128::from(len) * part as u128 / count as u128) as u64;
        until(index)..until(index + 1)
    }
}

/// Which stages of a running program are replicas of which stage of the graph.
#[derive(Clone, Debug, Default)]
pub struct Replicas {
    /// For each stage of the graph, its replicas.
    of: Vec<Vec<StageId>>,
    /// For each replica, the stage and which of its replicas it is.
    place: Vec<(StageId, Part)>,
    /// For each stage of the graph, whether it has keys.
    keyed: Vec<bool>,
}

impl Replicas {
    fn new(graph: &Graph, settings: &Settings) -> Self {
        let mut next = settings.stages.len();
        let mut id = |at: usize, part: usize| match part {
            0 => number(at),
            _ => {
                next += 1;
                number(next - 1)
            }
        };
        let counts = settings.stages.iter().map(|stage| stage.replicas);
        let of: Vec<Vec<StageId>> =
            counts.enumerate().map(|(at, n)| (0..n).map(|part| id(at, part)).collect()).collect();
        let mut place = vec![(StageId(0), Part { index: 0, count: 1 }); next];
        for (at, replicas) in of.iter().enumerate() {
            for (index, id) in replicas.iter().enumerate() {
                place[id.index()] = (number(at), Part { index, count: replicas.len() });
            }
        }
        Replicas { of, place, keyed: graph.stages.iter().map(|stage| stage.keyed).collect() }
    }

    /// Returns the replicas of a stage of the graph; itself if it has only one.
    #[must_use]
    pub fn of(&self, stage: StageId) -> &[StageId] {
        &self.of[stage.index()]
    }

    /// Returns the replicas of every stage, in the order of the stages.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &[StageId]> {
        self.of.iter().map(Vec::as_slice)
    }

    /// Returns for each replica, by number, its stage of the graph, and which of its replicas it is.
    #[must_use]
    pub fn places(&self) -> &[(StageId, Part)] {
        &self.place
    }

    /// Returns the number of the stage of which this is a replica.
    #[must_use]
    pub fn stage_of(&self, replica: u32) -> u32 {
        self.place[replica as usize].0.0
    }

    /// Returns where the connector leads from one replica of the stage that it starts from: the replicas, and for each which
    /// end of the connector it belongs to.
    #[must_use]
    pub fn ends(&self, connector: &Connector, replica: usize) -> Vec<(StageId, usize)> {
        let senders = self.of(connector.from).len();
        let ends = connector.to.iter().enumerate().flat_map(|(end, to)| {
            let receivers = self.of(*to);
            let by_key = connector.route == Route::ByKey || self.routes_by_key(connector);
            let leads =
                move |part: &usize| by_key || joined(senders, receivers.len(), replica, *part);
            (0..receivers.len()).filter(leads).map(move |part| (receivers[part], end))
        });
        ends.collect()
    }

    /// Whether the keys of the stage that a connector leads to choose among its replicas.
    #[must_use]
    pub fn routes_by_key(&self, connector: &Connector) -> bool {
        matches!(*connector.to, [to] if self.keyed[to.index()] && self.of(to).len() > 1)
    }

    fn has_some(&self) -> bool {
        self.place.len() > self.of.len()
    }
}

/// Whether one of `senders` replicas sends to one of `receivers`. If one number divides the other, each sender has its own
/// receivers, or each receiver its own senders; otherwise every sender sends to all.
fn joined(senders: usize, receivers: usize, sender: usize, receiver: usize) -> bool {
    let (few, many) = (senders.min(receivers), senders.max(receivers));
    many % few != 0 || sender % few == receiver % few
}

fn number(at: usize) -> StageId {
    StageId(u32::try_from(at).expect("fewer than 2^32 replicas"))
}

/// A graph of replicas, as the runtime runs it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Replicated {
    /// The replicas and their connectors. Those of a port are in the order of the connectors that they stand for.
    pub graph: Graph,
    /// Its topology. What stands in several is in no cycle.
    pub topology: Topology,
    /// The settings of every replica.
    pub settings: Settings,
    /// Which replicas are of which stage.
    pub replicas: Replicas,
}

/// Makes a graph of the replicas that a valid plan wants.
#[must_use]
pub fn replicate(mut graph: Graph, mut topology: Topology, mut settings: Settings) -> Replicated {
    let replicas = Replicas::new(&graph, &settings);
    if !replicas.has_some() {
        return Replicated { graph, topology, settings, replicas };
    }
    let stages = graph.stages.len();
    for (stage, _) in &replicas.place[stages..] {
        let at = stage.index();
        graph.stages.push(graph.stages[at].clone());
        settings.stages.push(settings.stages[at].clone());
        topology.depth.push(topology.depth[at]);
        topology.component.push(topology.cyclic.len());
        topology.cyclic.push(false);
    }
    for (of, (_, part)) in settings.stages.iter_mut().zip(&replicas.place) {
        of.rate /= part.count as f64; // which they have together
    }
    let connectors = std::mem::take(&mut graph.connectors);
    let rules = std::mem::take(&mut settings.connectors);
    for (connector, rules) in connectors.iter().zip(rules) {
        for (replica, from) in replicas.of(connector.from).iter().enumerate() {
            let ends = replicas.ends(connector, replica);
            settings.connectors.push(ends.iter().map(|(_, end)| rules[*end]).collect());
            let to: Vec<StageId> = ends.into_iter().map(|(to, _)| to).collect();
            let route = match connector.route {
                _ if replicas.routes_by_key(connector) => Route::ByKey,
                Route::One if to.len() > 1 => Route::RoundRobin,
                route => route,
            };
            graph.connectors.push(Connector { from: *from, to, route, ..connector.clone() });
        }
    }
    Replicated { graph, topology, settings, replicas }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which receivers each sender has.
    fn links(senders: usize, receivers: usize) -> Vec<Vec<usize>> {
        let of = |sender| (0..receivers).filter(move |to| joined(senders, receivers, sender, *to));
        (0..senders).map(|sender| of(sender).collect()).collect()
    }

    #[test]
    fn replicas_are_joined_one_to_one_or_as_evenly_as_they_can_be() {
        assert_eq!(links(3, 3), [[0], [1], [2]]);
        assert_eq!(links(1, 3), [[0, 1, 2]]);
        assert_eq!(links(3, 1), [[0], [0], [0]]);
        assert_eq!(links(2, 4), [[0, 2], [1, 3]]);
        assert_eq!(links(4, 2), [[0], [1], [0], [1]]);
        assert_eq!(links(2, 3), [[0, 1, 2], [0, 1, 2]]);
    }

    #[test]
    fn the_parts_of_a_whole_are_all_of_it() {
        for (len, count) in [(0, 1), (0, 3), (1, 3), (10, 3), (u64::MAX, 7), (u64::MAX, 1_024)] {
            let parts: Vec<_> = (0..count).map(|index| Part::new(index, count).of(len)).collect();
            assert_eq!((parts[0].start, parts[count - 1].end), (0, len));
            assert!(parts.windows(2).all(|two| two[0].end == two[1].start));
        }
    }
}
