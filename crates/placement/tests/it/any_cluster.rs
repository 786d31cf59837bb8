//! Every strategy on any cluster: what it decides can be carried out, and the same view gives the
//! same decisions.

use std::collections::HashSet;

use comporta_placement::mock::Mock;
use comporta_placement::{Action, Choice, NodeId, NodeState, Registry, Resource, decide};
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
