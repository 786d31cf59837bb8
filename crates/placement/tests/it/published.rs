//! The strategies as published: order of candidates, targets, limits.

use std::time::Duration;

use comporta_placement::mock::Mock;
use comporta_placement::strategies::{Adaptive, NoMigrations, Random};
use comporta_placement::{Resource, Time, Usage};

fn minutes(n: u64) -> Option<Time> {
    Some(Time::ZERO + Duration::from_secs(60 * n))
}

/// Three replicas on `a`, one core each; `b` and `c` are idle.
fn crowded() -> Mock {
    let mut mock = Mock::new(["a", "b", "c"])
        .replica("x", "X", "a")
        .replica("y", "Y", "a")
        .replica("z", "Z", "a");
    mock.use_cpu("x", 1.0).use_cpu("y", 1.0).use_cpu("z", 1.0);
    mock
}

#[test]
fn the_document_s_three_operators_are_tried_in_the_order_y_x_z() {
    let mut mock = crowded();
    mock.latencies("x", &[12.0, 5.0, 15.0]).latencies("y", &[5.0, 5.0, 10.0]);
    mock.latencies("z", &[20.0, 30.0, 20.0]);
    // The first takes the first idle node, the second the other; for the third no node is better.
    let all = mock.decide(&mut Adaptive::new(0.25, 1000));
    assert_eq!(mock.migrations(&all), ["y: a -> b", "x: a -> c"]);
    assert!(all[1].reason.signal.starts_with("s = 0.83"), "{:?}", all[1].reason);
    let one = mock.decide(&mut Adaptive::new(0.25, 1));
    assert_eq!(mock.migrations(&one), ["y: a -> b"]);
}

#[test]
fn a_sensitivity_that_nothing_exceeds_leaves_all_where_they_are() {
    let mut mock = crowded();
    mock.latencies("x", &[20.0, 30.0, 20.0]).latencies("y", &[10.0, 17.0]);
    assert!(mock.decide(&mut Adaptive::new(0.75, 1000)).is_empty());
}

#[test]
fn of_equal_candidates_the_one_migrated_longest_ago_goes_first() {
    let mut mock = crowded();
    for replica in ["x", "y", "z"] {
        mock.latencies(replica, &[5.0, 9.0]);
    }
    mock.replica_mut("x").migrated = minutes(51);
    mock.replica_mut("y").migrated = minutes(50);
    mock.replica_mut("z").migrated = minutes(52);
    assert_eq!(mock.migrations(&mock.decide(&mut Adaptive::new(0.25, 1))), ["y: a -> b"]);
    // One that was never migrated is before them all; of two such the first in the list.
    mock.replica_mut("z").migrated = None;
    assert_eq!(mock.migrations(&mock.decide(&mut Adaptive::new(0.25, 1))), ["z: a -> b"]);
    mock.replica_mut("x").migrated = None;
    assert_eq!(mock.migrations(&mock.decide(&mut Adaptive::new(0.25, 1))), ["x: a -> b"]);
}

#[test]
fn growth_from_a_latency_of_zero_goes_first() {
    let mut mock = crowded();
    mock.latencies("x", &[1.0, 90.0]).latencies("y", &[0.0, 1.0]);
    assert_eq!(mock.migrations(&mock.decide(&mut Adaptive::new(0.25, 1))), ["y: a -> b"]);
}

#[test]
fn a_node_that_would_be_used_alike_in_everything_takes_nothing() {
    // u_b + u_x = u_a for CPU, and zero elsewhere.
    let mut mock = Mock::new(["a", "b"]).replica("x", "X", "a").replica("y", "Y", "b");
    mock.use_cpu("x", 0.3).use_cpu("y", 0.2).latencies("x", &[5.0, 10.0]);
    mock.background("a", Usage::new().with(Resource::Cpu, 0.2));
    assert!(mock.decide(&mut Adaptive::new(0.25, 1)).is_empty());
    // A little more on a, and it is better.
    mock.background("a", Usage::new().with(Resource::Cpu, 0.21));
    assert_eq!(mock.migrations(&mock.decide(&mut Adaptive::new(0.25, 1))), ["x: a -> b"]);
}

#[test]
fn a_replica_conflict_sends_it_to_the_next_best_node() {
    let mut mock = Mock::new(["a", "b", "c"])
        .replica("x1", "X", "a")
        .replica("x2", "X", "b")
        .replica("y", "Y", "a")
        .replica("z", "Z", "c");
    mock.use_cpu("x1", 1.0).use_cpu("y", 2.0).use_cpu("z", 0.5).latencies("x1", &[5.0, 10.0]);
    // b is idler than c, but has the other replica.
    assert_eq!(mock.migrations(&mock.decide(&mut Adaptive::new(0.25, 1))), ["x1: a -> c"]);
}

#[test]
fn two_migrations_that_would_fill_one_node_are_not_both_made() {
    let mut mock = crowded();
    mock.use_cpu("x", 1.5).use_cpu("y", 1.4).use_cpu("z", 0.1);
    for replica in ["x", "y"] {
        mock.latencies(replica, &[5.0, 10.0]);
    }
    // c is too full for either; b takes one, and with it the other would make it as full as a was.
    mock.background("c", Usage::new().with(Resource::Cpu, 3.0));
    assert_eq!(mock.migrations(&mock.decide(&mut Adaptive::new(0.25, 1000))), ["x: a -> b"]);
}

#[test]
fn a_node_that_sends_no_control_message_neither_takes_nor_gives() {
    let mut mock = crowded();
    mock.latencies("x", &[5.0, 10.0]);
    mock.node_mut("b").usage = None;
    assert_eq!(mock.migrations(&mock.decide(&mut Adaptive::new(0.25, 1))), ["x: a -> c"]);
    mock.node_mut("a").usage = None;
    assert!(mock.decide(&mut Adaptive::new(0.25, 1)).is_empty());
}

/// x sends to y, 100 kB a second; `a` is busier than `b`, where y is.
fn connected(x_on: &str) -> Mock {
    let mut mock = Mock::new(["a", "b"])
        .replica("x", "X", x_on)
        .replica("noise", "N", "a")
        .replica("y", "Y", "b")
        .flow("X", "Y", 100.0, 1e3);
    mock.use_cpu("x", 1.0).use_cpu("noise", 2.0).use_cpu("y", 0.5).latencies("x", &[5.0, 10.0]);
    if x_on == "a" {
        mock.use_of("x", Resource::Sent, 1e5).use_of("y", Resource::Received, 1e5);
    }
    mock
}

#[test]
fn a_replica_goes_to_its_neighbour_because_what_they_exchange_needs_no_network_there() {
    // Without that, b would receive 100 kB a second where a receives nothing.
    let mock = connected("a");
    assert_eq!(mock.migrations(&mock.decide(&mut Adaptive::new(0.25, 1))), ["x: a -> b"]);
}

#[test]
fn a_replica_leaves_its_neighbour_only_where_the_network_has_room_for_what_they_exchange() {
    let mut mock = connected("b");
    mock.use_cpu("noise", 0.1).use_cpu("y", 2.0);
    // a would send 100 kB a second, and b sends nothing.
    assert!(mock.decide(&mut Adaptive::new(0.25, 1)).is_empty());
    let network = Usage::new().with(Resource::Sent, 2e5).with(Resource::Received, 2e5);
    mock.background("b", network);
    assert_eq!(mock.migrations(&mock.decide(&mut Adaptive::new(0.25, 1))), ["x: b -> a"]);
}

#[test]
fn candidates_that_differ_in_the_last_digits_are_tied() {
    let mut mock = crowded();
    // Both grew by half, but in binary the second by a little more.
    mock.latencies("x", &[10.0, 15.0]).latencies("y", &[0.7, 1.05]);
    mock.replica_mut("x").migrated = minutes(50);
    mock.replica_mut("y").migrated = minutes(51);
    assert_eq!(mock.migrations(&mock.decide(&mut Adaptive::new(0.25, 1))), ["x: a -> b"]);
}

#[test]
fn the_random_strategy_obeys_the_target_rule_and_its_seed() {
    let mock = crowded();
    let migrations = |seed| mock.migrations(&mock.decide(&mut Random::new(seed, 1)));
    let all: Vec<Vec<String>> = (0..50).map(migrations).collect();
    for replica in ["x", "y", "z"] {
        let one = vec![format!("{replica}: a -> b")];
        assert!(all.contains(&one), "{replica} is never picked");
    }
    assert!(all.contains(&Vec::new()), "a coin may pick nobody");
    assert_eq!(migrations(7), migrations(7));
    // Nothing is better than where they are: then chance has nothing to choose.
    let mut even = Mock::new(["a", "b"]).replica("x", "X", "a").replica("y", "Y", "b");
    even.use_cpu("x", 1.0).use_cpu("y", 1.0);
    assert!((0..50).all(|seed| even.decide(&mut Random::new(seed, 1)).is_empty()));
}

#[test]
fn no_migrations_are_no_moves() {
    let mut mock = crowded();
    mock.latencies("x", &[0.0, 1e9]);
    assert!(mock.decide(&mut NoMigrations).is_empty());
}
