//! Every strategy on any cluster: what it decides can be carried out, and the same view gives the
//! same decisions.

use std::collections::HashSet;

use comporta_placement::mock::Mock;
use comporta_placement::{
    Action, Choice, Decision, NodeId, NodeState, Obstacle, Reason, Registry, ReplicaId,
    ReplicaView, Resource, Round, Usage, View, decide,
};
use proptest::prelude::*;

const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];

prop_compose! {
    /// Up to eight operators, of one or two replicas, with any latencies and usage.
    fn clusters()(
        operators in prop::collection::vec(
            (0..5_usize, 1..5_usize, any::<bool>(), 0.0..4.0_f64, 0.0..2e9_f64,
             prop::collection::vec(prop_oneof![Just(0.0), 0.0..1e4_f64], 0..10), 0.0..1e9_f64), 0..8),
        states in prop::collection::vec((0..6_u8, any::<bool>()), 5),
    ) -> Mock {
        let mut mock = Mock::new(NODES);
        for (at, (node, step, both, cpu, memory, latencies, state)) in operators.iter().enumerate() {
            let operator = format!("op{at}");
            let places = if *both { vec![*node, (node + step) % 5] } else { vec![*node] };
            for (copy, place) in places.into_iter().enumerate() {
                let name = format!("op{at}.{copy}");
                mock = mock.replica(&name, &operator, NODES[place]);
                mock.use_cpu(&name, *cpu).use_of(&name, Resource::Memory, *memory);
                mock.latencies(&name, latencies);
                mock.replica_mut(&name).state_bytes = *state;
                mock.replica_mut(&name).pinned = at == 7;
            }
        }
        for (name, (state, elastic)) in NODES.iter().zip(states) {
            let node = mock.node_mut(name);
            node.elastic = elastic;
            match state {
                0 => node.usage = None,
                1 => node.state = NodeState::Standby,
                2 => node.state = NodeState::Starting,
                _ => {}
            }
        }
        mock
    }
}

proptest! {
    #[test]
    fn what_is_decided_can_be_carried_out_and_repeats(mut mock in clusters(), seed in 0..9_u64, migrations in 1..6_usize) {
        for name in ["adaptive", "random", "none", "cost-aware"] {
            let mut choice = Choice::new(name);
            if name != "none" {
                choice = choice.with("l_mig", migrations);
            }
            let view = mock.seen();
            let once = decide(&mut *Registry::new().make(&choice, seed).unwrap(), &view);
            let again = decide(&mut *Registry::new().make(&choice, seed).unwrap(), &view);
            prop_assert_eq!(&once, &again);
            let migrated: Vec<_> = once.iter().filter_map(|decision| match decision.action {
                Action::Migrate { replica, from, to } => Some((replica, from, to)),
                _ => None,
            }).collect();
            prop_assert!(migrated.len() <= migrations);
            for (replica, from, to) in &migrated {
                prop_assert_eq!(view.replicas[replica.0].node, *from);
                prop_assert!(!view.replicas[replica.0].pinned);
                prop_assert_eq!(view.nodes[to.0].state, NodeState::Active);
                prop_assert!(view.nodes[to.0].usage.is_some() && view.nodes[from.0].usage.is_some());
            }
            for decision in &once {
                let reason = &decision.reason;
                prop_assert!(![&reason.signal, &reason.rule, &reason.effect].iter().any(|part| part.is_empty()));
                prop_assert!(!reason.to_string().contains("NaN"), "{reason}");
            }
            mock.apply(&once);
            let places: Vec<_> = mock.view.replicas.iter().map(|r| (r.operator, r.node)).collect();
            let distinct: HashSet<_> = places.iter().collect();
            prop_assert_eq!(distinct.len(), places.len(), "replicas share a node");
            let released = once.iter().filter_map(|decision| match decision.action {
                Action::ReleaseNode(NodeId(node)) => Some(node),
                _ => None,
            });
            for node in released {
                prop_assert!(places.iter().all(|(_, place)| place.0 != node));
            }
        }
    }
}

fn reason() -> Reason {
    let word = || "tried".to_owned();
    Reason { signal: word(), rule: word(), effect: word() }
}

/// What all active, audible nodes are predicted to use of what migrates with a replica.
fn total(view: &View, round: &Round<'_>) -> Usage {
    let all = view.nodes().filter_map(|(id, _)| round.usage_of(id));
    all.fold(Usage::new(), |sum, usage| sum + usage)
}

/// The same cluster with its nodes and replicas listed in another order.
fn shuffled(mock: &Mock, by: usize) -> View {
    let turn = |count: usize| -> Vec<usize> { (0..count).map(|at| (at + by) % count).collect() };
    let nodes = turn(mock.view.nodes.len());
    let replicas = turn(mock.view.replicas.len());
    let view = mock.seen();
    let mut other = view.clone();
    for (at, &from) in nodes.iter().enumerate() {
        other.nodes[at] = view.nodes[from].clone();
    }
    for (at, &from) in replicas.iter().enumerate() {
        let replica = &view.replicas[from];
        let place = nodes.iter().position(|&node| node == replica.node.0).expect("it is listed");
        other.replicas[at] = ReplicaView { node: NodeId(place), ..replica.clone() };
    }
    other
}

/// Decisions by name.
fn named(view: &View, decisions: &[Decision]) -> Vec<String> {
    let node = |id: NodeId| &view.nodes[id.0].name;
    let text = |decision: &Decision| match decision.action {
        Action::Migrate { replica: ReplicaId(at), from, to } => {
            format!("{} {} {}", view.replicas[at].name, node(from), node(to))
        }
        // Of nodes that stand by, the first is taken.
        Action::AddNode(_) => "+".to_owned(),
        Action::ReleaseNode(id) => format!("-{}", node(id)),
        _ => unreachable!("there are no other actions"),
    };
    decisions.iter().map(text).collect()
}

proptest! {
    /// Whatever is tried, in whatever order, a round drafts nothing that is forbidden, and predicted loads add up.
    #[test]
    fn a_round_never_drafts_what_is_forbidden_and_loads_add_up(
        mock in clusters(),
        tries in prop::collection::vec((0..20_usize, 0..7_usize), 0..60),
        most in 0..5_usize,
        migrating in prop_oneof![4 => Just(0_usize), 1 => Just(1)],
    ) {
        let mut view = mock.seen();
        view.migrating = migrating;
        let mut round = Round::new(&view, most);
        let before = total(&view, &round);
        let mut drafted = 0;
        for (replica, node) in tries {
            let (replica, node) = (ReplicaId(replica), NodeId(node));
            let may = round.may_migrate(replica, node);
            let done = round.migrate(replica, node, reason());
            prop_assert_eq!(may, done);
            drafted += usize::from(done.is_ok());
            if migrating > 0 {
                prop_assert!(matches!(done, Err(Obstacle::Migrating | Obstacle::Unknown)));
            }
            let after = total(&view, &round);
            for resource in [Resource::Cpu, Resource::Memory] {
                let off = (after[resource] - before[resource]).abs();
                prop_assert!(off <= 1e-9 * before[resource].max(1.0), "{resource}: off by {off}");
            }
        }
        prop_assert!(drafted <= most);
        let places: Vec<_> =
            view.replicas().map(|(id, replica)| (replica.operator, round.node_of(id))).collect();
        let distinct: HashSet<_> = places.iter().collect();
        prop_assert_eq!(distinct.len(), places.len(), "replicas share a node");
    }

    /// The order in which nodes and replicas are listed breaks ties, and decides nothing else. So clusters without ties
    /// are decided alike, by name.
    #[test]
    fn decisions_do_not_depend_on_the_order_of_the_lists(mut mock in clusters(), by in 1..12_usize) {
        // No two are alike in anything.
        for at in 0..mock.view.replicas.len() {
            let name = mock.view.replicas[at].name.clone();
            let more = 1.0 + 0.013 * (at + 1) as f64;
            let cpu = mock.view.replicas[at].usage().map_or(0.1, |usage| usage[Resource::Cpu]);
            mock.use_cpu(&name, (cpu + 0.01) * more);
            for (second, one) in mock.replica_mut(&name).seconds.iter_mut().enumerate() {
                one.latency_ms = one.latency_ms.map(|ms| (ms + 1.0) * more + second as f64);
            }
        }
        for (at, name) in NODES.iter().enumerate() {
            let more = (at + 1) as f64;
            let others = Usage::new().with(Resource::Cpu, 0.1 + 0.0171 * more);
            mock.background(name, others.with(Resource::Memory, 1.07e6 * more));
        }
        let other = shuffled(&mock, by);
        for name in ["adaptive(l_mig=3)", "cost-aware"] {
            let made = || Registry::new().make(&name.into(), 1).unwrap();
            let view = mock.seen();
            let here = named(&view, &decide(&mut *made(), &view));
            let there = named(&other, &decide(&mut *made(), &other));
            prop_assert_eq!(here, there, "{}", name);
        }
    }

    /// Names are for people: other names change no decision.
    #[test]
    fn other_names_change_no_decision(mock in clusters(), seed in 0..9_u64) {
        let view = mock.seen();
        let mut renamed = view.clone();
        for (at, node) in renamed.nodes.iter_mut().enumerate() {
            node.name = format!("z{}", 9 - at);
        }
        for (at, replica) in renamed.replicas.iter_mut().enumerate() {
            replica.name = format!("{}", 99 - at);
        }
        for name in ["adaptive", "random", "cost-aware"] {
            let made = || Registry::new().make(&name.into(), seed).unwrap();
            let actions = |view: &View| -> Vec<Action> {
                decide(&mut *made(), view).into_iter().map(|decision| decision.action).collect()
            };
            prop_assert_eq!(actions(&view), actions(&renamed), "{}", name);
        }
    }
}
