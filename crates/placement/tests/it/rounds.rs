//! What a round refuses, whoever asks.

use comporta_placement::mock::Mock;
use comporta_placement::{NodeId, NodeState, Obstacle, Reason, ReplicaId, Resource, Round, Usage};

fn reason() -> Reason {
    Reason { signal: String::new(), rule: String::new(), effect: String::new() }
}

fn two_operators() -> Mock {
    Mock::new(["a", "b", "c"])
        .replica("x1", "X", "a")
        .replica("x2", "X", "b")
        .replica("y", "Y", "a")
}

#[test]
fn replicas_of_one_operator_never_share_a_node() {
    let mock = two_operators();
    let view = mock.seen();
    let mut round = Round::new(&view, 9);
    assert_eq!(round.may_migrate(mock.id("x1"), mock.node("b")), Err(Obstacle::ReplicaConflict));
    // Nor where the other one is about to go.
    round.migrate(mock.id("x2"), mock.node("c"), reason()).unwrap();
    let refused = round.migrate(mock.id("x1"), mock.node("c"), reason());
    assert_eq!(refused, Err(Obstacle::ReplicaConflict));
    // Where it was is free now.
    assert_eq!(round.may_migrate(mock.id("x1"), mock.node("b")), Ok(()));
}

#[test]
fn a_round_has_no_more_migrations_than_its_limit() {
    let mock = two_operators();
    let view = mock.seen();
    let mut round = Round::new(&view, 1);
    round.migrate(mock.id("y"), mock.node("b"), reason()).unwrap();
    let refused = round.migrate(mock.id("x1"), mock.node("c"), reason());
    assert_eq!(refused, Err(Obstacle::LimitReached));
    assert_eq!(round.finish().len(), 1);
}

#[test]
fn nothing_migrates_while_a_migration_is_under_way() {
    let mut mock = two_operators();
    mock.view.migrating = 1;
    let view = mock.seen();
    let round = Round::new(&view, 9);
    assert_eq!(round.migrations_left(), 0);
    assert_eq!(round.may_migrate(mock.id("y"), mock.node("b")), Err(Obstacle::Migrating));
}

#[test]
fn a_migration_changes_what_both_nodes_are_predicted_to_use() {
    let mut mock = two_operators();
    mock.use_cpu("x1", 1.0).use_cpu("y", 2.0).use_cpu("x2", 0.5);
    let view = mock.seen();
    let mut round = Round::new(&view, 9);
    let cpu =
        |round: &Round<'_>, node: &str| round.usage_of(mock.node(node)).unwrap()[Resource::Cpu];
    assert_eq!((cpu(&round, "a"), cpu(&round, "b")), (3.0, 0.5));
    round.migrate(mock.id("y"), mock.node("b"), reason()).unwrap();
    assert_eq!((cpu(&round, "a"), cpu(&round, "b")), (1.0, 2.5));
}

#[test]
fn what_connected_replicas_exchange_is_network_only_while_they_are_apart() {
    // x sends 1,000 bytes a second to y, and both are on a; z sends 10 to x from b.
    let mut mock = Mock::new(["a", "b", "c"])
        .replica("x", "X", "a")
        .replica("y", "Y", "a")
        .replica("z", "Z", "b")
        .flow("X", "Y", 1.0, 1000.0)
        .flow("Z", "X", 1.0, 10.0);
    mock.use_of("x", Resource::Received, 10.0).use_of("z", Resource::Sent, 10.0);
    let view = mock.seen();
    let mut round = Round::new(&view, 9);
    let network = |round: &Round<'_>, node: &str| {
        let usage = round.usage_of(mock.node(node)).unwrap();
        (usage[Resource::Received], usage[Resource::Sent])
    };
    assert_eq!((network(&round, "a"), network(&round, "b")), ((10.0, 0.0), (0.0, 10.0)));
    // x leaves y for z: what it sends to y needs the network now, what z sends to it no longer does.
    round.migrate(mock.id("x"), mock.node("b"), reason()).unwrap();
    assert_eq!((network(&round, "a"), network(&round, "b")), ((1000.0, 0.0), (0.0, 1000.0)));
    // y follows x: nothing needs it any more.
    round.migrate(mock.id("y"), mock.node("b"), reason()).unwrap();
    assert_eq!((network(&round, "a"), network(&round, "b")), ((0.0, 0.0), (0.0, 0.0)));
}

#[test]
fn what_is_silent_pinned_reserved_unknown_or_not_active_is_refused() {
    let mut mock = two_operators();
    mock.node_mut("c").state = NodeState::Starting;
    mock.replica_mut("x2").pinned = true;
    let (y, x2, b, c) = (mock.id("y"), mock.id("x2"), mock.node("b"), mock.node("c"));
    let view = mock.seen();
    let round = Round::new(&view, 9);
    assert_eq!(round.may_migrate(y, c), Err(Obstacle::NotActive));
    assert_eq!(round.may_migrate(y, mock.node("a")), Err(Obstacle::SameNode));
    assert_eq!(round.may_migrate(x2, mock.node("a")), Err(Obstacle::Pinned));
    assert_eq!(round.may_migrate(ReplicaId(99), b), Err(Obstacle::Unknown));
    assert_eq!(round.may_migrate(y, NodeId(99)), Err(Obstacle::Unknown));
    mock.node_mut("b").reserved = true;
    let view = mock.seen();
    assert_eq!(Round::new(&view, 9).may_migrate(y, b), Err(Obstacle::Reserved));
    mock.node_mut("b").reserved = false;
    mock.node_mut("b").usage = None;
    let view = mock.seen();
    assert_eq!(Round::new(&view, 9).may_migrate(y, b), Err(Obstacle::Silent));
    mock.node_mut("b").usage = Some(Usage::new());
    mock.replica_mut("y").seconds.clear();
    let view = mock.seen();
    assert_eq!(Round::new(&view, 9).may_migrate(y, b), Err(Obstacle::Silent));
}

#[test]
fn a_replica_migrates_once_a_round() {
    let mock = two_operators();
    let view = mock.seen();
    let mut round = Round::new(&view, 9);
    round.migrate(mock.id("y"), mock.node("b"), reason()).unwrap();
    let refused = round.migrate(mock.id("y"), mock.node("c"), reason());
    assert_eq!(refused, Err(Obstacle::AlreadyMigrates));
}

#[test]
fn a_node_is_released_only_if_it_is_elastic_and_empty_and_asked_for_only_if_it_stands_by() {
    let mut mock = two_operators();
    let (a, c) = (mock.node("a"), mock.node("c"));
    let view = mock.seen();
    let mut round = Round::new(&view, 9);
    assert_eq!(round.release_node(c, reason()), Err(Obstacle::NotElastic));
    assert_eq!(round.add_node(c, reason()), Err(Obstacle::NotStandby));
    mock.node_mut("a").elastic = true;
    mock.node_mut("c").elastic = true;
    let view = mock.seen();
    let mut round = Round::new(&view, 9);
    assert_eq!(round.release_node(a, reason()), Err(Obstacle::NotEmpty));
    assert_eq!(round.release_node(c, reason()), Ok(()));
    assert_eq!(round.release_node(c, reason()), Err(Obstacle::NotActive));
    assert_eq!(round.may_migrate(mock.id("y"), c), Err(Obstacle::NotActive), "it is released");
    mock.node_mut("c").state = NodeState::Standby;
    let view = mock.seen();
    let mut round = Round::new(&view, 9);
    assert_eq!(round.add_node(c, reason()), Ok(()));
    assert_eq!(round.add_node(c, reason()), Err(Obstacle::NotStandby));
}
