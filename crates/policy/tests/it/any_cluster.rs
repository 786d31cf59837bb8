//! Every policy on random clusters with random readings, over many callbacks: none panics, none has
//! a call refused, and none leaves a cluster that cannot work.

use std::time::Duration;

use comporta_model::plan::defaults::THREADS_MAX;
use comporta_policy::mock::Mock;
use comporta_policy::{Choice, KeyLoad, Kind, Policy, PolicyControl, Registry, TimerId};
use proptest::collection::vec;
use proptest::prelude::*;

/// Besides each policy with its defaults: parameters at their ends.
const CHOICES: &[&str] = &[
    "seda(threads=8, capacity=1, instances=10, shed=true)",
    "seda-dynamic(threads_min=20, threads_max=30, instances=3)",
    "seda-dynamic(threads_min=1, threads_max=1, above=0, shed=true)",
    "thread-stealing(threads=1)",
    "thread-stealing(threads=5, instances=7)",
    "cohort-bounded(events=1)",
    "lrb(slots_per_stage=2)",
    "srpt-private(events=3)",
    "master-worker(masters=4)",
    "elastic(threads_max=1)",
    "elastic(threads_max=1024, threads_min=3, average=halving, skew=input, energy=true)",
    "elastic(deadline=10s, threads=100, priorities=1=2 3=1)",
    "ds2(threads_max=1024, utilization=0.1)",
    "ds2(energy=true, threads=40, cpu_max=50)",
];

fn choices() -> Vec<Choice> {
    let offered = Registry::new().offers().into_iter().map(|offer| Choice::new(offer.name));
    offered.chain(CHOICES.iter().map(|choice| choice.parse().unwrap())).collect()
}

fn make(choice: &Choice) -> Box<dyn Policy> {
    let registry = Registry::new();
    let entry = registry.find(&choice.name).unwrap();
    entry.make(&entry.offer.validate(choice, "policy").unwrap())
}

/// Source, input, stage or stateful stage, and its depth if it is a stage.
#[derive(Clone, Debug)]
enum Node {
    Source,
    Input,
    Stage { depth: usize, stateful: bool, handed: usize },
}

fn node() -> impl Strategy<Value = Node> {
    prop_oneof![
        1 => Just(Node::Source),
        1 => Just(Node::Input),
        5 => (0..8_usize, any::<bool>(), prop_oneof![3 => Just(1), 1 => 1..300_usize])
            .prop_map(|(depth, stateful, handed)| Node::Stage { depth, stateful, handed }),
    ]
}

fn cluster(nodes: &[Node], threads: usize) -> Mock {
    let mut mock = Mock::new().with_threads(threads);
    for (n, node) in nodes.iter().enumerate() {
        let name = n.to_string();
        mock = match node {
            Node::Source => mock.source(&name),
            Node::Input => mock.input(&name),
            Node::Stage { depth, .. } => mock.stage_at(&name, *depth),
        };
        if let Node::Stage { stateful, handed, .. } = node {
            mock = mock.handed_at_once(&name, *handed);
            mock = if *stateful { mock.stateful(&name) } else { mock };
        }
    }
    mock
}

/// What a stage shows: mostly near the figures that policies look at, sometimes anything.
fn reading() -> impl Strategy<Value = [u64; 5]> {
    let near = [0..120_u64, 0..12, 0..100, 0..100, 1..12];
    let wild = any::<[u64; 5]>();
    prop_oneof![4 => near, 1 => wild]
}

/// Shows the readings, as many as there are, and lets everything be due that the policy asked for.
fn step(policy: &mut dyn Policy, mock: &mut Mock, readings: &[[u64; 5]]) -> Result<(), String> {
    let stages = mock.stages().to_vec();
    for (stage, [queued, busy, arrived, processed, instances]) in stages.iter().zip(readings) {
        let shown = mock.at_mut(&stage.name);
        shown.queued = *queued as usize;
        shown.busy = *busy as usize;
        (shown.arrived, shown.processed) = (*arrived, *processed);
        shown.busy_time = Duration::from_nanos(queued ^ processed);
        shown.cpu_time = Some(Duration::from_nanos(*queued));
        shown.keys = vec![KeyLoad { key: *busy, arrived: *arrived, handled: *processed }];
        if stage.has_queue() && !stage.stateful {
            shown.instances = (*instances as usize).clamp(1, 1 << 20);
        }
    }
    mock.pass(Duration::from_secs(1));
    for timer in 0..mock.timers().len() as u32 {
        mock.fire_timer(policy, TimerId(timer)).map_err(|why| why.to_string())?;
    }
    mock.fire_last_focused(policy).map_err(|why| why.to_string())?;
    mock.fire_max_visits(policy).map_err(|why| why.to_string())
}

/// Every stage has a thread that can come to it, and nothing is beyond its bound.
fn works(mock: &Mock) -> Result<(), String> {
    let mut pools = vec![mock.main_pool()];
    for stage in mock.stages() {
        let shown = mock.at(&stage.name);
        pools.push(shown.pool);
        let threads = mock.threads(shown.pool).unwrap();
        if threads == 0 || (stage.stateful && shown.instances != 1) || !shown.enabled {
            return Err(format!("{} cannot work", stage.name));
        }
    }
    pools.sort_unstable();
    pools.dedup();
    if pools.iter().map(|pool| mock.threads(*pool).unwrap()).sum::<usize>() > THREADS_MAX {
        return Err("too many threads".to_owned());
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_policy_panics_or_is_refused_anything(
        nodes in vec(node(), 0..12),
        threads in 1..9_usize,
        rounds in vec(vec(reading(), 12), 0..40),
    ) {
        for choice in choices() {
            let (mut policy, mut mock) = (make(&choice), cluster(&nodes, threads));
            let started = mock.start(&mut *policy);
            prop_assert_eq!(started, Ok(()), "{}", choice);
            for readings in &rounds {
                prop_assert_eq!(step(&mut *policy, &mut mock, readings), Ok(()), "{}", choice);
                prop_assert_eq!(works(&mock), Ok(()), "{}", choice);
            }
            prop_assert!(mock.refused().is_empty(), "{}: {:?}", choice, mock.refused());
        }
    }

    #[test]
    fn orders_name_what_can_be_visited(nodes in vec(node(), 1..12), rounds in vec(vec(reading(), 12), 1..5)) {
        for name in ["cohort", "dbr", "lrb", "srpt-private"] {
            let (mut policy, mut mock) = (make(&name.into()), cluster(&nodes, 2));
            mock.start(&mut *policy).unwrap();
            for readings in &rounds {
                step(&mut *policy, &mut mock, readings).unwrap();
                let order = mock.order();
                for stage in mock.stages() {
                    let visited = order.contains(&&*stage.name);
                    // Those with nothing to do are left out by `lrb`; inputs by all.
                    let may = stage.kind != Kind::Input;
                    prop_assert!(if may { visited || name == "lrb" } else { !visited }, "{}", name);
                }
            }
        }
    }
}
