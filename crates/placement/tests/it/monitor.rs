//! Control messages become views.

use std::time::Duration;

use comporta_placement::strategies::Adaptive;
use comporta_placement::{
    ControlMessage, MeasuredLatency, Monitor, NodeId, NodeMessage, NodeState, OperatorId,
    ReplicaId, Resource, Time, Usage, View, decide, mock,
};

const PERIOD: Duration = Duration::from_secs(10);
/// How long a control message is under way.
const DELAY_MS: u64 = 2;

/// Source `s` on node 0, worker `w` on node 1, sink `k` on node 0; node 2 is idle. The clock of
/// node n is `ahead[n]` seconds ahead of ours.
struct Cluster {
    monitor: Monitor,
    ahead: [u64; 3],
    /// What it is behind besides, in microseconds.
    behind_us: [u64; 3],
}

impl Cluster {
    fn new(ahead: [u64; 3]) -> Self {
        let mut monitor = Monitor::new(PERIOD, Duration::from_micros(500));
        for name in ["ends", "work", "spare"] {
            monitor.add_node(name, mock::CAPACITY, NodeState::Active);
        }
        monitor.add_replica("s", OperatorId(0), NodeId(0), true);
        monitor.add_replica("w", OperatorId(1), NodeId(1), false);
        Cluster { monitor, ahead, behind_us: [0; 3] }
    }

    fn stamp(&self, node: usize, ms: u64) -> Time {
        let us = 1000 * ms + 1_000_000 * self.ahead[node] - self.behind_us[node];
        Time::ZERO + Duration::from_micros(us)
    }

    /// What the clock of a node is ahead.
    fn shown_ms(&self, node: usize) -> f64 {
        1e3 * self.ahead[node] as f64 - self.behind_us[node] as f64 / 1e3
    }

    /// The messages of a second, in which events took so long between source and sink.
    fn second(&mut self, second: u64, latency_ms: f64) {
        let arrives = Time::ZERO + Duration::from_millis(1000 * second + DELAY_MS);
        for node in [0, 1] {
            // Both moments are written down on node 0, one of them by another clock in the test below.
            let latency = MeasuredLatency {
                from: NodeId(0),
                to: NodeId(1),
                mean_ms: latency_ms + self.shown_ms(1) - self.shown_ms(0),
                events: 100.0,
            };
            let message = ControlMessage {
                replica: ReplicaId(node),
                node: NodeId(node),
                stamp: self.stamp(node, 1000 * second),
                latencies: if node == 1 { vec![latency] } else { Vec::new() },
                usage: Usage::new().with(Resource::Cpu, 1.0),
                arrived: 100.0,
                handled: 90.0,
                emitted: 45.0,
                state_bytes: 0.0,
                node_usage: Usage::new().with(Resource::Cpu, 1.5),
                cpus: Vec::new(),
            };
            self.monitor.receive(arrives, &message);
        }
    }

    /// What the empty node tells of a second.
    fn spare(&mut self, second: u64, usage: Usage) {
        let arrives = Time::ZERO + Duration::from_millis(1000 * second + DELAY_MS);
        let stamp = self.stamp(2, 1000 * second);
        let message = NodeMessage { node: NodeId(2), stamp, usage, cpus: Vec::new() };
        self.monitor.receive_node(arrives, &message);
    }

    fn view(&mut self, second: u64) -> View {
        self.monitor.view(Time::ZERO + Duration::from_millis(1000 * second + 5))
    }
}

#[test]
fn clocks_that_differ_by_an_hour_change_no_latency() {
    for ahead in [[0, 0, 0], [0, 3600, 0], [3600, 0, 0], [7200, 3600, 0]] {
        let mut cluster = Cluster::new(ahead);
        for second in 1..=5 {
            cluster.second(second, 5.0 * second as f64);
            cluster.spare(second, Usage::new());
        }
        let latencies = cluster.view(5).replicas[1].latencies_ms();
        let expected = [5.0, 10.0, 15.0, 20.0, 25.0];
        let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-6;
        assert!(latencies.iter().zip(&expected).all(close), "{ahead:?} {latencies:?}");
        let migrations = decide(&mut Adaptive::new(0.25, 1), &cluster.view(5));
        assert_eq!(migrations.len(), 1, "{ahead:?}");
    }
}

#[test]
fn a_clock_that_is_set_back_is_learnt_anew() {
    let mut cluster = Cluster::new([3600, 3600, 0]);
    (1..=3).for_each(|second| cluster.second(second, 5.0));
    cluster.ahead = [3600, 0, 0]; // node 1 is an hour behind now
    (4..=20).for_each(|second| cluster.second(second, 5.0));
    let latencies = cluster.view(20).replicas[1].latencies_ms();
    assert!((latencies.last().unwrap() - 5.0).abs() < 1e-6, "{latencies:?}");
}

#[test]
fn a_clock_that_drifts_for_an_hour_changes_no_decision() {
    let mut cluster = Cluster::new([0; 3]);
    let latency =
        |cluster: &mut Cluster| *cluster.view(3600).replicas[1].latencies_ms().last().unwrap();
    (1..=3600).for_each(|second| {
        // Node 1 is slow by 100 µs a second.
        cluster.behind_us[1] = 100 * second;
        cluster.second(second, 50.0);
    });
    assert!((latency(&mut cluster) - 50.0).abs() < 7.0, "{}", latency(&mut cluster));
}

#[test]
fn a_clock_that_is_set_is_never_taken_for_latency() {
    for ahead in [[30, 0, 0], [30, 60, 0]] {
        let mut cluster = Cluster::new([30; 3]);
        (1..=20).for_each(|second| cluster.second(second, 5.0));
        cluster.ahead = ahead;
        for second in 21..=40 {
            cluster.second(second, 5.0);
            let latencies = cluster.view(second).replicas[1].latencies_ms();
            assert!(latencies.iter().all(|ms| (ms - 5.0).abs() < 1e-6), "{second}: {latencies:?}");
        }
        assert!(cluster.view(40).replicas[1].latencies_ms().len() >= 9);
    }
}

#[test]
fn a_flow_is_what_was_sent_on_not_what_was_handled() {
    let mut cluster = Cluster::new([0; 3]);
    cluster.monitor.connect(OperatorId(0), OperatorId(1), 20.0);
    cluster.second(1, 5.0);
    let flow = cluster.view(1).flows[0];
    assert_eq!((flow.events_per_s, flow.bytes_per_s), (45.0, 900.0));
}

#[test]
fn a_node_from_which_nothing_comes_for_a_period_is_silent_and_its_replicas_stay() {
    let mut cluster = Cluster::new([0; 3]);
    cluster.second(1, 5.0);
    cluster.second(2, 50.0);
    assert!(cluster.view(3).nodes[1].usage.is_some());
    let view = cluster.view(13);
    assert_eq!(view.nodes[1].usage, None);
    assert!(view.replicas[1].seconds.is_empty());
    assert!(decide(&mut Adaptive::new(0.25, 1), &view).is_empty());
}

#[test]
fn an_empty_node_is_silent_until_it_speaks_for_itself_and_takes_nothing() {
    let mut cluster = Cluster::new([0; 3]);
    for second in 1..=5 {
        cluster.second(second, 5.0 * second as f64);
    }
    let view = cluster.view(5);
    assert_eq!(view.nodes[2].usage, None, "nothing was ever heard of it");
    assert!(decide(&mut Adaptive::new(0.25, 1), &view).is_empty());
    cluster.spare(5, Usage::new());
    let view = cluster.view(5);
    assert_eq!(view.nodes[2].usage, Some(Usage::new()));
    assert_eq!(decide(&mut Adaptive::new(0.25, 1), &view).len(), 1);
    assert!(cluster.view(14).nodes[2].usage.is_some());
    assert_eq!(cluster.view(16).nodes[2].usage, None, "not heard of for a period");
}

#[test]
fn what_was_heard_of_a_node_before_it_was_released_is_forgotten() {
    let mut cluster = Cluster::new([0; 3]);
    cluster.spare(1, Usage::new());
    assert!(cluster.view(1).nodes[2].usage.is_some());
    cluster.monitor.set_state(NodeId(2), NodeState::Standby);
    cluster.spare(1, Usage::new()); // was on its way
    assert_eq!(cluster.view(1).nodes[2].usage, None);
    cluster.monitor.set_state(NodeId(2), NodeState::Active);
    assert_eq!(cluster.view(2).nodes[2].usage, None);
}

#[test]
fn a_word_of_a_node_with_amounts_that_are_no_amounts_is_dropped() {
    let mut cluster = Cluster::new([0; 3]);
    cluster.spare(1, Usage::new().with(Resource::Cpu, f64::NAN));
    assert_eq!(cluster.view(1).nodes[2].usage, None);
}

#[test]
fn a_view_holds_the_seconds_of_one_period_and_the_costs_of_all_time() {
    let mut cluster = Cluster::new([0; 3]);
    (1..=25).for_each(|second| cluster.second(second, 5.0));
    let worker = &cluster.view(25).replicas[1];
    assert_eq!(worker.seconds.len(), 10);
    assert_eq!(worker.backlog, 250.0);
    assert!((worker.per_event.unwrap()[Resource::Cpu] - 1.0 / 90.0).abs() < 1e-12);
}

#[test]
fn a_migration_forgets_what_was_heard_at_the_old_place() {
    let mut cluster = Cluster::new([0; 3]);
    (1..=5).for_each(|second| cluster.second(second, 5.0));
    cluster.monitor.migration_begins();
    assert_eq!(cluster.view(5).migrating, 1);
    let now = Time::ZERO + Duration::from_secs(6);
    cluster.monitor.migration_ends(now, ReplicaId(1), NodeId(2), 7.0);
    cluster.second(6, 5.0); // sent before it migrated: says node 1
    let view = cluster.view(6);
    let worker = &view.replicas[1];
    assert_eq!((view.migrating, worker.node, worker.migrated), (0, NodeId(2), Some(now)));
    assert!(worker.seconds.is_empty());
    assert_eq!(worker.backlog, 7.0);
}

#[test]
fn a_message_with_amounts_that_are_no_amounts_is_dropped() {
    let mut cluster = Cluster::new([0; 3]);
    let good = ControlMessage {
        replica: ReplicaId(1),
        node: NodeId(1),
        stamp: Time::ZERO,
        latencies: Vec::new(),
        usage: Usage::new(),
        arrived: 1.0,
        handled: 1.0,
        emitted: 1.0,
        state_bytes: 0.0,
        node_usage: Usage::new(),
        cpus: Vec::new(),
    };
    let bad = [
        ControlMessage { usage: Usage::new().with(Resource::Cpu, f64::NAN), ..good.clone() },
        ControlMessage { node_usage: Usage::new().with(Resource::Cpu, -1.0), ..good.clone() },
        ControlMessage { handled: f64::INFINITY, ..good.clone() },
        ControlMessage { replica: ReplicaId(77), ..good.clone() },
        ControlMessage { node: NodeId(77), ..good.clone() },
    ];
    bad.iter().for_each(|message| cluster.monitor.receive(Time::ZERO, message));
    assert!(cluster.view(0).replicas[1].seconds.is_empty());
    cluster.monitor.receive(Time::ZERO, &good);
    assert_eq!(cluster.view(0).replicas[1].seconds.len(), 1);
}
