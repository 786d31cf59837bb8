//! What nodes have too little of shows in latency.

use comporta_sim::rates::{Arrivals, Rates};
use comporta_sim::scenario::Scenario;
use comporta_sim::{Outcome, run};

use crate::line;

fn even(scenario: &mut Scenario) -> Outcome {
    scenario.duration = 20.0;
    scenario.operators[0].arrivals = Arrivals::Even;
    run(scenario).unwrap()
}

#[test]
fn a_message_takes_two_interfaces_and_the_latency_between() {
    let mut scenario = line(1, &[0], 10.0, 0.0);
    scenario.network_latency = 0.003;
    scenario.nodes[0].network = 2e4; // 200 bytes: 10 ms
    scenario.nodes[1].network = 1e4; // 20 ms
    let outcome = even(&mut scenario);
    // There: 10 + 3 + 20, back: 20 + 3 + 10.
    assert!((outcome.total.p50_ms - 66.0).abs() < 0.1, "{:?}", outcome.total);
    // Each second a control message of 300 bytes goes first, once on either side.
    assert!((outcome.total.max_ms - 96.0).abs() < 0.1, "{:?}", outcome.total);
}

#[test]
fn a_node_may_receive_more_slowly_than_it_sends() {
    let mut scenario = line(1, &[0], 10.0, 0.0);
    scenario.nodes[1].download = Some(1e4); // 200 bytes: 20 ms
    let outcome = even(&mut scenario);
    assert!((outcome.total.p50_ms - 20.0).abs() < 0.1, "{:?}", outcome.total);
}

#[test]
fn replicas_of_one_node_reach_each_other_without_the_network() {
    let mut scenario = line(1, &[0], 10.0, 0.0);
    scenario.network_latency = 0.003;
    for operator in &mut scenario.operators {
        operator.nodes = vec![1];
    }
    assert_eq!(even(&mut scenario).total.max_ms, 0.0);
}

#[test]
fn a_disk_serves_one_after_the_other() {
    let mut scenario = line(1, &[0], 10.0, 0.0);
    (scenario.nodes[1].seek, scenario.nodes[1].disk) = (0.004, 1e8);
    (scenario.operators[1].reads, scenario.operators[1].writes) = (256e3, 256e3);
    // Two seeks and 512 KB: 13.12 ms.
    let alone = even(&mut scenario).fast.mean_ms;
    assert!((alone - 13.12).abs() < 0.01, "{alone}");
    scenario.operators[0].rates = Some(Rates::steady(100.0));
    let crowded = even(&mut scenario).fast.max_ms;
    assert!(crowded > 3_000.0, "a disk wanted for 1.3 of itself falls behind: {crowded}");
}

#[test]
fn a_sink_that_computes_nothing_still_waits_for_the_disk_and_for_memory() {
    let mut scenario = line(1, &[0], 10.0, 0.0);
    scenario.operators[2].writes = 256e3; // a seek and 256 KB: 6.56 ms
    let stored = even(&mut scenario).total.mean_ms;
    assert!((stored - 6.56).abs() < 0.01, "{stored}");
    let mut scenario = line(1, &[0], 10.0, 0.0);
    scenario.nodes[0].memory_bandwidth = 1e9;
    scenario.operators[2].copies = 2e6;
    let copied = even(&mut scenario).total.mean_ms;
    assert!((copied - 2.0).abs() < 0.01, "{copied}");
}

#[test]
fn memory_that_does_not_fit_is_fetched_from_the_disk() {
    let mut scenario = line(1, &[0], 5.0, 0.0);
    (scenario.nodes[1].memory, scenario.nodes[1].memory_taken) = (1e9, 4e8);
    scenario.operators[1].touches = 10;
    scenario.operators[1].memory = 5e8;
    assert_eq!(even(&mut scenario).fast.max_ms, 0.0, "it fits");
    scenario.operators[1].memory = 8.5e8;
    // A fifth does not: two of ten accesses, 4 ms and a page each.
    let mean = even(&mut scenario).fast.mean_ms;
    assert!((mean - 8.1).abs() < 0.5, "{mean}");
}

#[test]
fn copies_at_once_share_the_bandwidth_of_memory() {
    let mut scenario = line(1, &[0], 10.0, 0.0);
    scenario.nodes[1].memory_bandwidth = 1e9;
    scenario.operators[1].copies = 2e6;
    let alone = even(&mut scenario).fast.mean_ms;
    assert!((alone - 2.0).abs() < 0.01, "{alone}");
    scenario.operators[0].rates = Some(Rates::steady(900.0));
    let crowded = even(&mut scenario).fast.mean_ms;
    assert!(crowded > 2.5, "{crowded}");
}

#[test]
fn what_others_use_of_the_cores_slows_events_down() {
    let mut scenario = line(1, &[0], 10.0, 0.010);
    scenario.nodes[1].background = Rates::steady(2.0); // of four
    let mean = even(&mut scenario).fast.mean_ms;
    assert!((mean - 20.0).abs() < 0.01, "{mean}");
    let load = run(&scenario).unwrap().moments[10].loads[1].unwrap();
    assert!((load - 0.525).abs() < 0.01, "2 cores of others and 0.1 of ours, of 4: {load}");
}

#[test]
fn a_replica_handles_no_more_at_once_than_it_may() {
    let mut scenario = line(1, &[0], 150.0, 0.010);
    scenario.operators[1].parallel = Some(1);
    assert!(even(&mut scenario).fast.max_ms > 1_000.0);
    scenario.operators[1].parallel = Some(2);
    assert!(even(&mut scenario).fast.max_ms < 20.0);
}

#[test]
fn what_would_never_end_is_not_waited_for() {
    let changes: [fn(&mut Scenario); 4] = [
        |scenario| scenario.nodes[1].network = 1e-300,
        |scenario| scenario.nodes[1].speed = 1e-300,
        |scenario| scenario.operators[1].cost = 1e300,
        |scenario| (scenario.nodes[1].disk, scenario.operators[1].writes) = (1e-300, 1.0),
    ];
    for change in changes {
        let mut scenario = line(1, &[0], 10.0, 0.001);
        change(&mut scenario);
        assert_eq!(even(&mut scenario).processed, 0);
    }
}

#[test]
fn nodes_are_there_for_the_last_part_of_a_second_too() {
    for duration in [0.5, 20.0, 20.25] {
        let mut scenario = line(1, &[0], 10.0, 0.001);
        scenario.duration = duration;
        assert!((run(&scenario).unwrap().node_seconds - 2.0 * duration).abs() < 1e-9);
    }
}
