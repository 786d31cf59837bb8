//! The cost-aware strategy.

use comporta_placement::mock::Mock;
use comporta_placement::strategies::CostAware;
use comporta_placement::{NodeState, Resource, Usage};

fn ours() -> CostAware {
    CostAware::new(4, 0.75)
}

/// Five replicas on `a`, wanted for 1.25 of it; `b` is idle.
fn crowded() -> Mock {
    let mut mock = Mock::new(["a", "b"]);
    for name in ["v", "w", "x", "y", "z"] {
        mock = mock.replica(name, name, "a");
    }
    for name in ["v", "w", "x", "y", "z"] {
        // A node of four cores lets each have 0.8; they handle 80 of the 100 events that arrive.
        mock.use_cpu(name, 0.8);
        let replica = mock.replica_mut(name);
        replica.seconds.iter_mut().for_each(|second| second.handled = 80.0);
        replica.per_event = replica.usage().map(|used| used.scaled(1.0 / 80.0));
    }
    mock
}

#[test]
fn what_a_full_node_hides_is_seen_and_migrated_until_loads_are_even() {
    let mock = crowded();
    let decisions = mock.decide(&mut ours());
    assert_eq!(mock.migrations(&decisions), ["v: a -> b", "w: a -> b"]);
    assert!(decisions[0].reason.signal.contains("a is wanted for 1.25"), "{:?}", decisions[0]);
    assert!(decisions[1].reason.effect.contains("0.75"), "{:?}", decisions[1]);
}

#[test]
fn state_that_costs_more_to_copy_than_the_migration_gains_stays() {
    let mut mock = crowded();
    // 125 MB/s: 100 GB take 800 s.
    for name in ["v", "w", "x", "y", "z"] {
        mock.replica_mut(name).state_bytes = 1e11;
    }
    mock.replica_mut("y").state_bytes = 1e6;
    assert_eq!(mock.migrations(&mock.decide(&mut ours())), ["y: a -> b"]);
}

#[test]
fn chatty_operators_come_together_where_nothing_speaks_against_it() {
    let mut mock = Mock::new(["a", "b", "c"])
        .replica("x", "X", "a")
        .replica("y", "Y", "b")
        .flow("X", "Y", 100.0, 1e4);
    mock.use_cpu("x", 0.1).use_cpu("y", 0.1);
    let decisions = mock.decide(&mut ours());
    assert_eq!(mock.migrations(&decisions), ["x: a -> b"]);
    mock.apply(&decisions);
    assert!(mock.decide(&mut ours()).is_empty(), "and stay");
}

#[test]
fn a_replica_goes_to_the_neighbour_that_sends_it_most() {
    // Nine of ten events of x come from the one on c, and all arrive at x.
    let mut mock = Mock::new(["a", "b", "c"])
        .replica("x", "X", "a")
        .replica("few", "F", "b")
        .replica("many", "M", "c")
        .flow("F", "X", 10.0, 100.0)
        .flow("M", "X", 90.0, 100.0);
    for name in ["few", "many"] {
        mock.replica_mut(name).pinned = true;
        mock.use_cpu(name, 0.1);
    }
    mock.use_cpu("x", 0.1);
    assert_eq!(mock.migrations(&mock.decide(&mut ours())), ["x: a -> c"]);
}

#[test]
fn even_loads_stay_as_they_are() {
    let mut mock = Mock::new(["a", "b"]).replica("x", "X", "a").replica("y", "Y", "b");
    mock.use_cpu("x", 2.0).use_cpu("y", 1.9).latencies("x", &[5.0, 50.0]);
    assert!(mock.decide(&mut ours()).is_empty());
}

#[test]
fn a_node_whose_memory_does_not_fit_gives_some_away() {
    let mut mock = Mock::new(["a", "b"]).replica("x", "X", "a").replica("y", "Y", "a");
    mock.use_of("x", Resource::Memory, 1.5e9).use_of("y", Resource::Memory, 1.2e9);
    let decisions = mock.decide(&mut ours());
    assert_eq!(decisions.len(), 1, "{:?}", mock.migrations(&decisions));
}

#[test]
fn a_node_is_asked_for_when_the_cluster_is_full_and_only_one_at_a_time() {
    let mut mock = Mock::new(["a", "b", "c"]).replica("x", "X", "a");
    for name in ["b", "c"] {
        mock.node_mut(name).state = NodeState::Standby;
        mock.node_mut(name).elastic = true;
    }
    mock.use_cpu("x", 3.5);
    let asked = mock.decide(&mut ours());
    assert_eq!(mock.migrations(&asked), ["+b"]);
    mock.node_mut("b").state = NodeState::Starting;
    assert!(mock.decide(&mut ours()).is_empty());
}

#[test]
fn a_node_is_emptied_and_released_where_the_others_can_do_its_work() {
    let mut mock = Mock::new(["a", "b"]).replica("x", "X", "a").replica("y", "Y", "b");
    mock.use_cpu("x", 0.4).use_cpu("y", 0.3);
    mock.node_mut("b").elastic = true;
    let mut strategy = ours();
    let decisions = mock.decide(&mut strategy);
    assert_eq!(mock.migrations(&decisions), ["y: b -> a"]);
    mock.apply(&decisions);
    assert_eq!(mock.migrations(&mock.decide(&mut strategy)), ["-b"]);
}

#[test]
fn nodes_that_are_not_elastic_stay_even_if_they_are_idle() {
    let mut mock = Mock::new(["a", "b"]).replica("x", "X", "a");
    mock.use_cpu("x", 0.1);
    assert!(mock.decide(&mut ours()).is_empty());
}

#[test]
fn a_load_that_grows_keeps_a_node_from_being_released() {
    let mut mock = Mock::new(["a", "b"]).replica("x", "X", "a").replica("y", "Y", "b");
    mock.use_cpu("x", 0.4).use_cpu("y", 0.3);
    mock.node_mut("b").elastic = true;
    mock.arrivals("x", 600.0); // of 0.004 core-seconds each: 2.4 cores
    assert!(mock.decide(&mut ours()).is_empty());
}

#[test]
fn what_takes_a_core_of_a_slow_node_takes_half_of_one_that_is_twice_as_fast() {
    let mut mock = crowded();
    // The crowded node has cores of half the speed: what takes 4 of them takes 2 of the others.
    mock.node_mut("a").capacity.speed = 0.5;
    let decisions = mock.decide(&mut ours());
    assert!(decisions.len() >= 3, "{:?}", mock.migrations(&decisions));
    let effect = &decisions[0].reason.effect;
    assert!(effect.contains("b at 0.12"), "{effect}"); // half a core of four
}

#[test]
fn of_two_nodes_with_the_same_room_the_one_whose_cores_are_its_own_is_taken() {
    let others = |cores| Usage::new().with(Resource::Cpu, cores);
    let mut mock = Mock::new(["a", "shared", "own"]);
    for name in ["v", "w", "x"] {
        mock = mock.replica(name, name, "a");
        mock.use_cpu(name, 1.2);
    }
    mock.background("shared", others(2.0));
    mock.node_mut("own").capacity.cores = 2.0;
    let first = &mock.migrations(&mock.decide(&mut ours()))[0];
    assert_eq!(first, "v: a -> own");
}

#[test]
fn a_copy_that_takes_longer_than_the_load_is_expected_to_last_is_not_begun() {
    let mut mock = crowded();
    for name in ["v", "w", "x", "y", "z"] {
        // 32 s at 125 MB/s; little comes to each, so that waiting for it costs little.
        mock.replica_mut(name).state_bytes = 4e9;
        mock.arrivals(name, 100.0);
    }
    assert!(mock.decide(&mut ours()).is_empty());
}

#[test]
fn what_a_copy_holds_up_on_its_way_counts_against_it() {
    // x hardly gets an event, but its state would hold up the many of the others on both nodes.
    let setup = |others: f64| {
        let mut mock = Mock::new(["a", "b"])
            .replica("x", "X", "a")
            .replica("y", "Y", "b")
            .flow("X", "Y", 1.0, 100.0)
            .replica("busy", "B", "b");
        mock.use_cpu("x", 0.001).use_cpu("y", 0.1).use_cpu("busy", 1e-4);
        mock.arrivals("x", 1.0).arrivals("y", 100.0).arrivals("busy", others);
        mock.replica_mut("y").pinned = true;
        mock.replica_mut("busy").pinned = true;
        mock.replica_mut("x").state_bytes = 1.25e7; // a tenth of a second
        mock.view.network_latency_s = 0.5;
        mock
    };
    let quiet = setup(1.0);
    assert_eq!(quiet.migrations(&quiet.decide(&mut ours())), ["x: a -> b"]);
    assert!(setup(2e4).decide(&mut ours()).is_empty());
}
