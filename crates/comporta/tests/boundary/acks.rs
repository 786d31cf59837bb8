//! Each event of each acknowledgement group has a fate of its own, told to its source exactly once:
//! also by a stop, wherever the event stands.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{
    App, Cx, Demand, Error, Ev, Out, Plan, Port, Pull, Result, Retry, Running, Settled, Snapshot,
    Source, Stage, WhenFull, batched,
};

use crate::bounded::{comes_true, stage, until, watched, within};

const HOUR: Duration = Duration::from_secs(3_600);
const MS: Duration = Duration::from_millis(1);

type Told = Arc<Mutex<Vec<Settled>>>;

/// Gives groups of events, one a pull, once it may, and remembers what it was told.
struct Acked {
    may: Arc<AtomicBool>,
    groups: VecDeque<Vec<u64>>,
    told: Told,
}

impl Source for Acked {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        if !self.may.load(SeqCst) {
            return Ok(Pull::After(MS));
        }
        let Some(group) = self.groups.pop_front() else { return Ok(Pull::After(HOUR)) };
        group.into_iter().for_each(|n| out.send(n));
        Ok(Pull::More)
    }
    fn settled(&mut self, settled: Settled) {
        self.told.lock().unwrap().push(settled);
    }
}

/// A source of these groups, and what lets it go.
fn acked(app: &App, groups: &[&[u64]]) -> (Port<u64>, Told, Arc<AtomicBool>) {
    let (told, may) = (Told::default(), Arc::<AtomicBool>::default());
    let groups = groups.iter().map(|group| group.to_vec()).collect();
    let source = Acked { may: may.clone(), groups, told: told.clone() };
    (app.source("acked", move || source), told, may)
}

/// Sends each event on; 0 fails, and is tried again in an hour.
#[derive(Clone)]
struct Later;

impl Stage for Later {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        out.send(*n);
        if *n == 0 { Err(Error::msg("not now")) } else { Ok(()) }
    }
}

fn plan() -> Plan {
    Plan::new().threads(2).stage("later", |s| s.retry(Retry::new(2, HOUR)))
}

/// Starts a program. Once an event that nobody awaits keeps the one instance of `later` for an
/// hour, the awaited ones come, and stand where they do when the program is stopped. Each group is
/// then told of, once, with so many events cancelled.
fn stopped(
    app: App,
    plan: &Plan,
    (told, may): (Told, Arc<AtomicBool>),
    sender: Option<comporta::Sender<u64>>,
    stands: fn(&Snapshot) -> bool,
    cancelled: &[u64],
) {
    let running = app.start(plan).unwrap();
    if let Some(sender) = &sender {
        sender.send(0).unwrap();
        until("the instance waits", || stage(&running.snapshot(), "later").in_flight == 1);
    }
    may.store(true, SeqCst);
    until("events stand where they should", || stands(&running.snapshot()));
    let summary = within("a stop", move || Running::stop(running));
    assert!(summary.snapshot.adds_up(), "{summary}");
    let all = || told.lock().unwrap().len() >= cancelled.len();
    assert!(comes_true(all), "told of {:?} alone\n{summary}", told.lock().unwrap());
    let mut told = told.lock().unwrap().clone();
    told.sort_unstable_by_key(|settled| settled.group);
    let each: Vec<_> = told.iter().map(|told| (told.failed, told.shed, told.cancelled)).collect();
    let expected: Vec<_> = cancelled.iter().map(|cancelled| (0, 0, *cancelled)).collect();
    assert_eq!(each, expected, "failed, shed, cancelled");
}

/// `in` -> `later`.
fn occupied(app: &App) -> (comporta::Sender<u64>, comporta::StageRef<'_, u64, Out<u64>>) {
    let (sender, port) = app.input::<u64>("in");
    let work = app.stage("later", Later);
    app.connect(port, work);
    (sender, work)
}

#[test]
fn a_stop_tells_of_events_that_are_queued() {
    watched("queued", || {
        let app = App::new("queued");
        let (numbers, told, may) = acked(&app, &[&[1, 2, 3], &[4, 5]]);
        let (sender, work) = occupied(&app);
        app.connect(numbers, work);
        let stands = |snapshot: &Snapshot| stage(snapshot, "later").queued == 5;
        stopped(app, &plan(), (told, may), Some(sender), stands, &[3, 2]);
    });
}

#[test]
fn a_stop_tells_of_events_that_wait_to_be_tried_again() {
    watched("parked", || {
        let app = App::new("parked");
        let (numbers, told, may) = acked(&app, &[&[0, 1, 2], &[3]]);
        let work = app.stage("later", Later);
        app.connect(numbers, work);
        let stands = |snapshot: &Snapshot| {
            let later = stage(snapshot, "later");
            (later.in_flight, later.queued) == (1, 3)
        };
        stopped(app, &plan(), (told, may), None, stands, &[3, 1]);
    });
}

#[test]
fn a_stop_tells_of_events_that_wait_for_room_with_their_source() {
    watched("outboxed", || {
        let app = App::new("outboxed");
        let (numbers, told, may) = acked(&app, &[&[1, 2, 3]]);
        let (sender, work) = occupied(&app);
        app.connect(numbers, work);
        let stands = |snapshot: &Snapshot| {
            let later = stage(snapshot, "later");
            (later.queued, later.outboxed) == (1, 2)
        };
        let plan = plan().stage("later", |s| s.capacity(1));
        stopped(app, &plan, (told, may), Some(sender), stands, &[3]);
    });
}

#[test]
fn a_stop_tells_of_events_that_wait_for_room_with_the_stage_that_sent_them() {
    watched("outboxed", || {
        let app = App::new("outboxed");
        let (numbers, told, may) = acked(&app, &[&[1, 2, 3]]);
        let (sender, work) = occupied(&app);
        let pass = app.flat_map("pass", |n: u64| [n, n]);
        app.connect(numbers, pass);
        app.connect(pass, work);
        let stands = |snapshot: &Snapshot| {
            let (pass, later) = (stage(snapshot, "pass"), stage(snapshot, "later"));
            later.queued + later.outboxed + pass.queued >= 4 && later.outboxed > 0
        };
        // Of each event handled two are left, of each that was not, itself.
        let plan = plan().stage("later", |s| s.capacity(1)).stage("pass", |s| s.batch(1));
        stopped(app, &plan, (told, may), Some(sender), stands, &[4]);
    });
}

#[test]
fn a_stop_tells_of_results_that_wait_for_their_turn() {
    watched("deposited", || {
        let app = App::new("deposited");
        let (numbers, told, may) = acked(&app, &[&[0], &[1], &[2]]);
        let work = app.stage("later", Later).ordered();
        app.connect(numbers, work);
        app.connect(work, app.sink("sink", |_: u64| ()));
        // The first is tried later; the others are done, and let out after it.
        let stands = |snapshot: &Snapshot| {
            let later = stage(snapshot, "later");
            (later.in_flight, later.queued, later.idle) == (3, 0, 1)
        };
        let plan = plan().stage("later", |s| s.instances(2).batch(1));
        stopped(app, &plan, (told, may), None, stands, &[1, 1, 1]);
    });
}

#[test]
fn what_a_group_of_several_pulls_led_to_is_told_as_it_ended() {
    watched("mixed", || {
        let app = App::new("mixed");
        let (numbers, told, may) = acked(&app, &[&[1, 2], &[3]]);
        may.store(true, SeqCst);
        let all = |group: Vec<u64>, out: &mut Out<u64>| group.into_iter().for_each(|n| out.send(n));
        let all = app.stage("group", batched(3, HOUR, all));
        let picky =
            app.sink("picky", |n: u64| if n == 1 { Err(Error::msg("not 1")) } else { Ok(()) });
        app.connect(numbers, all);
        app.connect(all, picky);
        // Of three events one fails, one is handled and one finds no room.
        let small = |s: comporta::StagePlan| s.capacity(2).when_full(WhenFull::DropNewest);
        let mut runtime =
            TestRuntime::new(app, &Plan::new().threads(1).stage("picky", small)).unwrap();
        runtime.run_until_idle();
        let counts = stage(&runtime.snapshot(), "picky").counts;
        assert_eq!((counts.handled, counts.failed, counts.shed_on_entry()), (1, 1, 1));
        runtime.close();
        assert!(runtime.run());
        let told = told.lock().unwrap();
        let mut groups: Vec<u64> = told.iter().map(|settled| settled.group).collect();
        groups.sort_unstable();
        assert_eq!(groups, [1, 2], "each once");
        let failed: u64 = told.iter().map(|settled| settled.failed).sum();
        let shed: u64 = told.iter().map(|settled| settled.shed).sum();
        assert!(failed > 0 && shed > 0, "one failed and one was shed: {told:?}");
    });
}
