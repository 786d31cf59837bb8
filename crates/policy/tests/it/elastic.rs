//! The elastic controllers through the interface of policies: the published tables sample by sample, the same samples perturbed, and
//! what the documents left undefined.
//! Long because the tables are here, and every rule of both controllers is held against them.

use std::num::NonZeroUsize;
use std::time::Duration;

use comporta_policy::elastic::{Beside, ElasticChoice, offers};
use comporta_policy::mock::Mock;
use comporta_policy::policies::Stealing;
use comporta_policy::{Choice, KeyLoad, Policy, PolicyControl, PoolId, Registry, TimerId};

const POOL: PoolId = PoolId(1);
const SECOND: Duration = Duration::from_secs(1);

/// Table 3.5: input and output of each second, and the queue, as printed or as its averages give them.
const TABLE_3_5: [(u64, u64, usize); 20] = [
    (18, 4, 17),
    (63, 15, 63),
    (60, 15, 110),
    (61, 15, 156),
    (61, 15, 202),
    (63, 15, 250),
    (63, 15, 298),
    (63, 15, 346),
    (63, 15, 394),
    (63, 15, 442),
    (64, 15, 490),
    (63, 15, 538),
    (63, 15, 586),
    (63, 15, 634),
    (61, 14, 679),
    (63, 15, 727),
    (63, 15, 775),
    (63, 15, 823),
    (63, 15, 871),
    (63, 15, 919),
];

/// Table 5.8. The sample of second 15 is not printed: of all whole numbers, only these give its average ratio, 5.19467.
const TABLE_5_8: [(u64, u64, usize); 16] = [
    (48, 14, 50),
    (117, 18, 133),
    (98, 19, 212),
    (65, 18, 259),
    (84, 19, 324),
    (114, 19, 420),
    (109, 19, 509),
    (74, 19, 576),
    (111, 19, 656),
    (115, 19, 752),
    (73, 18, 807),
    (82, 17, 888),
    (121, 19, 975),
    (103, 18, 1060),
    (97, 18, 1138),
    (110, 18, 1226),
];

/// A policy on a cluster with one keyed stage, `work`.
struct Run {
    policy: Box<dyn Policy>,
    mock: Mock,
}

impl Run {
    fn new(choice: &str) -> Self {
        Run::on(choice, Mock::new().source("read").stage("work").keyed("work"))
    }

    fn on(choice: &str, mut mock: Mock) -> Self {
        let choice: Choice = choice.parse().unwrap();
        let registry = Registry::new();
        let entry = registry.find(&choice.name).unwrap();
        let mut policy = entry.make(&entry.offer.validate(&choice, "policy").unwrap());
        for stage in mock.stages().to_vec().iter().filter(|stage| stage.has_queue()) {
            mock.at_mut(&stage.name).capacity = 1 << 40; // the queues of the documents have no end
        }
        mock.start(&mut *policy).unwrap();
        mock.take_log();
        mock.take_explained();
        Run { policy, mock }
    }

    /// A second passes in which a stage has this input and output, and then this queue.
    fn show(&mut self, stage: &str, (input, output, queue): (u64, u64, usize)) {
        let shown = self.mock.at_mut(stage);
        shown.arrived = shown.arrived.wrapping_add(input);
        shown.processed = shown.processed.wrapping_add(output);
        shown.queued = queue;
    }

    fn tick(&mut self) {
        self.mock.pass(SECOND);
        self.mock.fire_timer(&mut *self.policy, TimerId(0)).unwrap();
    }

    fn second(&mut self, sample: (u64, u64, usize)) -> usize {
        self.show("work", sample);
        self.tick();
        self.threads()
    }

    fn threads(&self) -> usize {
        self.mock.threads(POOL).unwrap()
    }

    fn seconds(&mut self, samples: &[(u64, u64, usize)]) -> usize {
        samples.iter().for_each(|sample| {
            self.second(*sample);
        });
        self.threads()
    }

    fn last_reason(&self) -> &str {
        self.mock.explained().last().unwrap()
    }
}

/// A stage that gets so many events a second and whose threads handle so many each: what the tables were taken from.
struct Load {
    run: Run,
    per_thread: f64,
    queue: f64,
    done: f64,
    /// What is left of an event that a stage has begun to get.
    rest: f64,
}

impl Load {
    fn new(choice: &str, per_thread: f64) -> Self {
        Load { run: Run::new(choice), per_thread, queue: 0.0, done: 0.0, rest: 0.0 }
    }

    /// Events come for a second. Returns the threads that there are then.
    fn second(&mut self, input: f64) -> usize {
        let came = (input + self.rest).floor();
        self.rest = input + self.rest - came;
        self.queue += came;
        let before = self.done.floor();
        let out = (self.per_thread * self.run.threads() as f64).min(self.queue);
        self.done += out;
        self.queue -= out;
        let handled = self.done.floor() - before;
        self.run.mock.at_mut("work").busy_time += Duration::from_secs_f64(out / self.per_thread);
        self.run.second((came as u64, handled as u64, self.queue.ceil() as usize))
    }

    /// The threads after each second in which they changed, the first being second 0.
    fn changes(&mut self, seconds: usize, input: impl Fn(usize) -> f64) -> Vec<(usize, usize)> {
        let (mut threads, mut changes) = (self.run.threads(), Vec::new());
        for second in 0..seconds {
            let now = self.second(input(second));
            if now != threads {
                changes.push((second, now));
            }
            threads = now;
        }
        changes
    }
}

#[test]
fn table_3_5_six_threads_at_second_19() {
    let mut run = Run::new("elastic(average=halving)");
    assert_eq!(run.seconds(&TABLE_3_5[..19]), 1);
    assert!(run.mock.log().is_empty());
    assert_eq!(run.second(TABLE_3_5[19]), 6);
    assert_eq!(
        run.last_reason(),
        "`work`: queue 919 > entry point 914 (14.984/s, 61 s left): 4.20252 contention + 1.00542 zero + 1 = 6 threads"
    );
}

#[test]
fn table_5_8_seven_threads_at_second_15() {
    let mut run = Run::new("elastic");
    assert_eq!(run.seconds(&TABLE_5_8[..15]), 1);
    assert_eq!(run.second(TABLE_5_8[15]), 7);
    assert_eq!(
        run.last_reason(),
        "`work`: queue 1226 > entry point 1182 (18.188/s, 65 s left): 5.19467 contention + 1.03706 zero + 1 = 7 threads"
    );
}

#[test]
fn samples_beside_those_of_the_tables_decide_otherwise() {
    // At the entry point, 914.05, and not above it.
    let mut run = Run::new("elastic(average=halving)");
    run.seconds(&TABLE_3_5[..19]);
    assert_eq!(run.second((63, 15, 914)), 1);
    assert_eq!(run.second((63, 15, 962)), 6, "a second later");
    // Twice the input, and the same queue: twice the threads that contain it.
    let mut run = Run::new("elastic(average=halving)");
    let twice = TABLE_3_5.map(|(input, output, queue)| (2 * input, output, queue));
    assert_eq!(run.seconds(&twice), 10); // 8.405 + 1.005 + 1
    // The mean instead of the other average: 14.4 out, and so a lower entry point, 878.4.
    let mut run = Run::new("elastic");
    run.seconds(&TABLE_3_5[..19]);
    assert_eq!(run.second((63, 15, 879)), 6);
    let mut run = Run::new("elastic(average=halving)");
    run.seconds(&TABLE_3_5[..19]);
    assert_eq!(run.second((63, 15, 879)), 1);
    // Half the time: an entry point that the first samples reach.
    let mut run = Run::new("elastic(deadline=40s)");
    assert_eq!((0..20).find(|n| run.second(TABLE_5_8[*n]) > 1), Some(8));
    // Twice the queue to begin with: it has not doubled.
    let mut run = Run::new("elastic(average=halving)");
    let (first, rest) = TABLE_3_5.split_first().unwrap();
    run.second((first.0, first.1, 460));
    assert_eq!(run.seconds(rest), 1);
    assert_eq!(run.second((63, 15, 921)), 6, "above 920 it has");
}

#[test]
fn a_producer_of_10_ms_and_a_consumer_of_50_ms_have_seven_threads_and_then_six() {
    let mut load = Load::new("elastic", 20.0);
    let changes = load.changes(300, |_| 100.0);
    assert_eq!(changes, [(16, 7), (49, 6)], "samples 17 and 50, the first being sample 1");
    assert_eq!(load.queue, 0.0);
    // With 99 in and 19 out, a second earlier, and none is removed.
    let mut load = Load::new("elastic", 19.0);
    assert_eq!(load.changes(300, |_| 99.0), [(15, 7)]);
}

#[test]
fn table_5_4_a_thread_is_removed_at_the_exit_point() {
    let mut run = Run::new("elastic");
    let growing: Vec<_> = (1..=15).map(|n| (99, 19, 80 * n)).chain([(99, 19, 1_281)]).collect();
    assert_eq!(run.seconds(&growing), 7);
    // 148.81 out in the mean of a hundred samples.
    for n in 0..100 {
        let output = if n % 100 < 81 { 149 } else { 148 };
        assert_eq!(
            run.second((99, output, if n == 99 { 50 } else { 175 })),
            7,
            "the exit point is 49.5"
        );
    }
    assert_eq!(run.second((99, 149, 49)), 6);
    assert_eq!(
        run.last_reason(),
        "`work`: queue 49 < exit point 49.5: 7 threads - 99.00/s in / (148.81/s out / 7) - 1: 1 fewer"
    );
    // Once: the next lull removes nothing.
    assert_eq!(run.second((0, 0, 0)), 6);
}

#[test]
fn matched_rates_change_nothing() {
    for policy in ["elastic", "ds2"] {
        let mut load = Load::new(policy, 20.0);
        assert!(
            load.changes(300, |second| if second % 3 == 0 { 17.0 } else { 20.0 }).is_empty(),
            "{policy}"
        );
    }
}

#[test]
fn after_a_crash_a_long_queue_is_measured_for_a_tenth_of_the_deadline() {
    let mut run = Run::new("elastic");
    for n in 0..8_usize {
        assert_eq!(run.second((0, 20, 4_000 - 20 * n)), 1, "{n}");
    }
    // 0 + 3,840 / 80 / 20 + 1.
    assert_eq!(run.second((0, 20, 3_840)), 3);
}

#[test]
fn a_first_growing_sample_above_the_entry_point_is_measured_first() {
    let mut run = Run::new("elastic");
    run.seconds(&[(100, 20, 2_000); 8]);
    assert_eq!(run.threads(), 1);
    assert_eq!(run.second((100, 20, 2_000)), 7); // 5 + 2,000 / 72 / 20 + 1
}

#[test]
fn a_next_scale_up_waits_for_three_growing_samples_and_for_a_queue_twice_as_long() {
    let mut run = Run::new("elastic(threads_max=100)");
    assert_eq!(run.seconds(&TABLE_5_8), 7);
    assert_eq!(run.seconds(&[(300, 140, 3_000); 3]), 7, "it waits");
    assert_eq!(run.second((300, 140, 2_452)), 7, "twice 1,226, and not more");
    let threads = run.second((300, 140, 9_000));
    // From seven threads: 7 x 2.14 contain the burst.
    assert!(threads > 15, "{threads}: {}", run.last_reason());
    assert!(run.last_reason().contains("15.00000 contention"), "{}", run.last_reason());
}

#[test]
fn one_sample_that_does_not_grow_clears_what_the_queue_must_double_from() {
    let mut run = Run::new("elastic(average=halving)");
    run.seconds(&TABLE_3_5[..18]);
    run.second((15, 15, 823));
    // Growth begins at 871, below the entry point: the queue is to double from there.
    assert_eq!(run.second((63, 15, 871)), 1);
    assert_eq!(run.seconds(&[(63, 15, 1_000), (63, 15, 1_742)]), 1);
    assert_eq!(run.second((63, 15, 1_743)), 7);
}

#[test]
fn no_output_makes_no_thread_until_one_event_came_out() {
    let mut run = Run::new("elastic");
    for n in 1..=30 {
        assert_eq!(run.second((100, 0, 100 * n)), 1);
    }
    assert!(run.second((100, 1, 3_100)) > 1);
    assert!(
        !run.last_reason().contains("inf") && !run.last_reason().contains("NaN"),
        "{}",
        run.last_reason()
    );
}

#[test]
fn a_stage_that_gathers_groups_has_one_thread() {
    for choice in ["elastic", "ds2"] {
        let mut run = Run::new(choice);
        run.mock.at_mut("work").capacity = 120;
        for second in 1..=200 {
            let output = if second % 10 == 0 { 100 } else { 0 };
            run.mock.at_mut("work").busy_time += Duration::from_millis(output);
            let threads = run.second((10, output, second % 10 * 10));
            assert_eq!(threads, 1, "{choice}, {second}: {:?}", run.mock.explained());
        }
    }
}

#[test]
fn nothing_in_and_nothing_out_removes_all_threads_but_the_least() {
    for (choice, left) in [("elastic", 1), ("elastic(threads_min=2)", 2)] {
        let mut run = Run::new(choice);
        let threads = run.seconds(&TABLE_5_8);
        assert!(threads >= 7);
        assert_eq!(run.second((0, 0, 0)), left, "{choice}");
    }
}

#[test]
fn a_clock_that_jumps_begins_the_measurement_again_and_one_that_stands_is_waited_for() {
    let mut run = Run::new("elastic(average=halving)");
    run.seconds(&TABLE_3_5[..10]);
    run.show("work", (1_000, 15, 800));
    run.mock.pass(Duration::from_secs(3_600));
    run.tick();
    assert_eq!(run.threads(), 1);
    assert_eq!(run.mock.recorded(), ["`work` is measured anew"]);
    assert_eq!(run.last_reason(), "no sample for 3601.0s");
    // It jumps again: this is recorded again, unless it jumps each time.
    run.second(TABLE_3_5[0]);
    for _ in 0..3 {
        run.mock.pass(Duration::from_secs(3_600));
        run.second((63, 15, 919));
        assert_eq!(run.mock.recorded().len(), 2);
    }
    assert_eq!(run.seconds(&TABLE_3_5), 6, "as from the beginning");
    // No time passes: what is seen belongs to the next sample.
    let mut run = Run::new("elastic(average=halving)");
    for sample in &TABLE_3_5 {
        run.mock.fire_timer(&mut *run.policy, TimerId(0)).unwrap();
        run.second(*sample);
    }
    assert_eq!(run.threads(), 6);
}

#[test]
fn threads_that_the_system_refuses_are_asked_for_again() {
    let mut run = Run::new("elastic(average=halving)");
    run.mock.set_threads_left(Some(0));
    assert_eq!(run.seconds(&TABLE_3_5), 1);
    assert_eq!(run.mock.recorded(), ["`work` has no thread more, and asks again"]);
    let why = run.last_reason();
    assert!(why.ends_with("1 threads more to `pool1`: no more threads"), "{why}");
    run.mock.set_threads_left(Some(2));
    assert_eq!(
        run.seconds(&[(63, 15, 967), (63, 15, 1_015), (63, 15, 1_063)]),
        1,
        "it waits first"
    );
    assert_eq!(run.second((63, 15, 1_111)), 3, "as many as there are");
    assert_eq!(run.mock.recorded().len(), 1);
}

#[test]
fn threads_refused_without_growth_are_asked_for_again_after_three_samples() {
    let mut run = Run::new("elastic");
    run.mock.set_threads_left(Some(0));
    let mut asked = Vec::new();
    for second in 1..=21 {
        let before = run.mock.refused().len();
        run.second((20, 20, 5_000)); // as after a crash
        if run.mock.refused().len() > before {
            asked.push(second);
        }
    }
    assert_eq!(asked, [9, 13, 17, 21]);
    run.mock.set_threads_left(None);
    assert!(run.seconds(&[(20, 20, 5_000); 4]) > 1);
}

#[test]
fn a_policy_that_is_replaced_while_it_scales_up_begins_anew() {
    let mut run = Run::new("elastic(average=halving)");
    run.seconds(&TABLE_3_5[..19]);
    // Another policy takes over, and then this one again: the cluster is as the plan has it.
    run.mock = Mock::new().source("read").stage("work").keyed("work");
    run.mock.at_mut("work").capacity = 1 << 40;
    run.mock.start(&mut *run.policy).unwrap();
    assert_eq!(run.second(TABLE_3_5[19]), 1, "growth begins with this sample");
    let start = run.mock.log().join("; ");
    assert_eq!(
        start,
        "add_timer 1s; add_instances work 15; new_pool 1 -> pool1; set_pool pool1 work; kill_threads main 3"
    );
}

/// Shows keys, each with so many events in and out in the next second.
fn keys(run: &mut Run, loads: impl IntoIterator<Item = (u64, u64)>) {
    let loads = loads.into_iter().map(|(key, n)| KeyLoad { key, arrived: n, handled: n });
    run.mock.at_mut("work").keys = loads.collect();
}

#[test]
fn three_hot_keys_have_three_threads_and_no_more_however_long_the_queue() {
    for policy in ["elastic", "ds2"] {
        let mut run = Run::new(policy);
        let mut queue = 0;
        for _ in 0..300 {
            let output = 20 * run.threads() as u64;
            queue += 100 - output as usize;
            let n = run.threads() as u64; // what each of the hot ones is given
            keys(
                &mut run,
                (0..400).map(|key| (key, u64::from(key % 97 == 0))).chain([
                    (901, 7 * n),
                    (902, 6 * n),
                    (903, 7 * n),
                ]),
            );
            let busy = SECOND * run.threads() as u32;
            run.mock.at_mut("work").busy_time += busy;
            run.second((100, output, queue));
        }
        assert_eq!(run.threads(), 3, "{policy}");
        assert_eq!(run.mock.log(), ["add_threads pool1 2"], "{policy}");
        assert_eq!(run.mock.recorded(), ["`work` has no thread more"], "{policy}: told once");
    }
}

#[test]
fn hot_keys_whose_threads_the_system_refused_have_them_later() {
    let hot = |run: &mut Run| keys(run, [(901, 7), (902, 6), (903, 7)]);
    let mut run = Run::new("elastic");
    run.mock.set_threads_left(Some(1));
    let seconds = |run: &mut Run, seconds: std::ops::Range<usize>| {
        for n in seconds {
            hot(run);
            run.second((100, 20, 100 * n));
        }
        run.threads()
    };
    assert_eq!(seconds(&mut run, 1..30), 2, "the system gave one");
    run.mock.set_threads_left(None);
    assert_eq!(seconds(&mut run, 30..200), 3);
}

#[test]
fn the_article_counts_input_above_three_deviations() {
    // Of 11 keys, ten with 10 and one with 100, the deviation is 25.9: 100 is above three times that. Of outputs that are
    // alike every key is above it.
    for (skew, threads) in [("input", 1), ("output", 7), ("none", 7)] {
        let mut run = Run::new(&format!("elastic(skew={skew})"));
        for sample in &TABLE_5_8 {
            let loads = (0..11).map(|key| KeyLoad {
                key,
                arrived: if key == 0 { 100 } else { 10 },
                handled: 2,
            });
            run.mock.at_mut("work").keys = loads.collect();
            run.second(*sample);
        }
        assert_eq!(run.threads(), threads, "{skew}");
    }
}

/// Seconds 0 to 16 of a burst whose handlers use a CPU of four each all the time, on a host that others use so much of.
fn busy_handlers(choice: &str, host: u32) -> Run {
    let mock = Mock::new().source("read").stage("work").keyed("work").with_cpus(4, host);
    let mut run = Run::on(choice, mock);
    run.mock.at_mut("work").cpu_time = Some(Duration::ZERO);
    for n in 1..=30 {
        let threads = run.threads() as u32;
        run.mock.set_cpu_usage(host + 25 * threads);
        *run.mock.at_mut("work").cpu_time.as_mut().unwrap() += SECOND * threads;
        run.mock.at_mut("work").busy_time += SECOND * threads;
        run.second((100, 20 * u64::from(threads), 80 * n));
    }
    run
}

#[test]
fn busy_handlers_have_no_more_threads_than_cpus_are_left() {
    for policy in ["elastic", "ds2"] {
        // One of four is this stage's, and 75 % are left: three, as print has the first one count too.
        let run = busy_handlers(policy, 0);
        assert_eq!(run.threads(), 3, "{policy}: {:?}", run.mock.explained());
        assert!(
            run.mock.explained()[0]
                .contains("each thread uses 25.0000 % of the host, and 75.00 % is left")
        );
        // A bound of 60 % leaves 35 %.
        let bound = busy_handlers(&format!("{policy}(cpu_max=60)"), 0);
        assert_eq!(bound.threads(), 1, "{policy}");
        assert_eq!(bound.mock.recorded(), ["`work` has no thread more"], "{policy}");
        let full = busy_handlers(policy, 100);
        assert_eq!(full.threads(), 1, "{policy}");
    }
}

#[test]
fn the_bound_is_by_what_the_host_does_since_growth_began() {
    for policy in ["elastic", "ds2"] {
        let mock = Mock::new().source("read").stage("work").keyed("work").with_cpus(4, 0);
        let mut run = Run::on(policy, mock);
        run.mock.at_mut("work").cpu_time = Some(Duration::ZERO);
        let second = |run: &mut Run, busy: Duration, sample| {
            let work = run.mock.at_mut("work");
            work.busy_time += busy;
            *work.cpu_time.as_mut().unwrap() += busy;
            run.second(sample)
        };
        for _ in 0..300 {
            second(&mut run, SECOND / 2, (10, 10, 0));
        }
        run.mock.set_cpu_usage(100);
        for n in 1..=30 {
            assert_eq!(second(&mut run, SECOND, (100, 20, 80 * n)), 1, "{policy}: no CPU is left");
        }
    }
}

#[test]
fn cpu_time_that_is_known_late_is_not_that_of_one_sample() {
    let mut mock = Mock::new().source("read").stage("work").keyed("work").with_cpus(4, 0);
    mock.at_mut("work").busy_time = SECOND * 3_600; // under the policy before
    let mut run = Run::on("elastic", mock);
    for n in 1..=30 {
        let threads = run.threads() as u32;
        let work = run.mock.at_mut("work");
        work.busy_time += SECOND * threads;
        work.cpu_time = (n > 2).then(|| work.busy_time / 100);
        run.second((100, 20 * u64::from(threads), 80 * n));
    }
    assert_eq!(run.threads(), 7, "{:?}", run.mock.recorded());
}

#[test]
fn ds2_reaches_the_final_count_in_one_step() {
    let mut load = Load::new("ds2", 20.0);
    let changes = load.changes(300, |_| 100.0);
    assert_eq!(changes, [(2, 7)]); // 5 threads' work, at 80 %, and the queue
    assert_eq!(load.queue, 0.0);
    let why = load.run.mock.explained()[0].clone();
    assert_eq!(
        why,
        "`work`: 100.00/s in at 0.050000 s each is the work of 5.00 threads, and queue 240 that of 0.15 by the deadline: \
         more than 1, so 7 threads"
    );
}

#[test]
fn ds2_notices_handlers_that_become_slower_as_soon_as_load_that_grows() {
    let mut run = Run::new("ds2");
    for _ in 0..100 {
        run.mock.at_mut("work").busy_time += SECOND / 10;
        assert_eq!(run.second((100, 100, 0)), 1);
    }
    let mut queue = 0;
    let slow = (1..=10).find(|_| {
        queue += 80;
        run.mock.at_mut("work").busy_time += SECOND; // 50 ms each
        run.second((100, 20, queue)) > 1
    });
    assert!(slow.is_some_and(|samples| samples <= 4), "{slow:?}: {:?}", run.mock.explained());
    assert_eq!(run.threads(), 7, "{}", run.last_reason());
}

#[test]
fn ds2_follows_the_load_down_also_to_nothing() {
    let mut load = Load::new("ds2", 20.0);
    let changes = load.changes(300, |second| if second < 100 { 100.0 } else { 0.0 });
    assert_eq!(changes.first(), Some(&(2, 7)));
    // For a whole deadline after the last busy samples, they would have been too few.
    assert!(changes[1].0 >= 100 + 77, "{changes:?}");
    // Nor do they go sooner after a burst that ends when they have come.
    let burst = Load::new("ds2", 20.0).changes(200, |second| if second < 3 { 100.0 } else { 0.0 });
    assert!(burst[0] == (2, 7) && burst[1].0 >= 2 + 80, "{burst:?}");
    assert_eq!(changes.last().unwrap().1, 1, "{changes:?}");
    assert!(changes.len() <= 4, "{changes:?}");
}

/// A small generator, so that a load is the same each time.
fn random(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[test]
fn random_loads_turn_the_direction_at_most_once() {
    for policy in ["elastic", "ds2"] {
        for seed in 1..=20 {
            let mut random = random(seed);
            let (per_thread, rate) = (5.0 + 40.0 * random(), 20.0 + 200.0 * random());
            let noise: Vec<f64> = (0..600).map(|_| rate * (0.8 + 0.4 * random())).collect();
            let mut load = Load::new(&format!("{policy}(threads_max=100)"), per_thread);
            let changes = load.changes(600, |second| noise[second]);
            let counts: Vec<usize> =
                [1].into_iter().chain(changes.iter().map(|(_, threads)| *threads)).collect();
            let ups: Vec<bool> = counts.windows(2).map(|pair| pair[1] > pair[0]).collect();
            let turns = ups.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert!(turns <= 1, "{policy}, seed {seed}: {changes:?}");
            let done_in_time = load.queue < rate * 80.0;
            assert!(done_in_time, "{policy}, seed {seed}: {} wait", load.queue);
        }
    }
}

#[test]
fn energy_makes_no_more_threads_than_the_deadline_needs_and_removes_the_others() {
    let mut load = Load::new("elastic(energy=true)", 20.0);
    let changes = load.changes(300, |second| if second < 150 { 100.0 } else { 10.0 });
    let (most, last) = (changes.iter().map(|(_, n)| *n).max().unwrap(), changes.last().unwrap().1);
    assert!(most <= 7, "{changes:?}");
    assert_eq!(last, 1, "10 a second are half a thread's work: {changes:?}");
    assert!(load.queue < 100.0);
    // Without it, the six threads of the burst stay.
    let mut load = Load::new("elastic", 20.0);
    assert_eq!(
        load.changes(300, |second| if second < 150 { 100.0 } else { 10.0 }).last().unwrap().1,
        6
    );
    // DS2 keeps no reserve.
    let mut load = Load::new("ds2(energy=true)", 20.0);
    assert_eq!(load.changes(300, |_| 100.0).last().unwrap().1, 6);
}

#[test]
fn where_threads_are_scarce_a_stage_takes_them_down_to_the_others_least() {
    let mock =
        Mock::new().source("read").stage("trips").stage("events").keyed("trips").keyed("events");
    let choice = "elastic(threads=9, threads_min=2, priorities=trips=5 events=3)";
    let mut run = Run::on(choice, mock);
    // The stage of lower priority grows first: seven are left for it.
    for n in 1..=30 {
        run.show("events", (200, 20, 180 * n));
        run.tick();
    }
    assert_eq!(run.mock.take_log(), ["add_threads pool2 5"]);
    assert_eq!(
        (run.mock.threads(PoolId(1)).unwrap(), run.mock.threads(PoolId(2)).unwrap()),
        (2, 7)
    );
    for n in 1..=40 {
        run.show("trips", (200, 20, 180 * n));
        run.show("events", (200, 70, 5_400));
        run.tick();
    }
    assert_eq!(run.mock.log()[0], "steal trips events 5");
    assert_eq!(
        (run.mock.threads(PoolId(1)).unwrap(), run.mock.threads(PoolId(2)).unwrap()),
        (7, 2)
    );
    assert!(run.mock.explained().iter().any(|why| why.ends_with("priority 5 > 3 of `events`")));
    // The lower one takes nothing back.
    for n in 1..=40 {
        run.show("trips", (70, 70, 5_000));
        run.show("events", (200, 20, 5_400 + 3_000 * n));
        run.tick();
    }
    assert_eq!(run.mock.threads(PoolId(2)).unwrap(), 2);
    assert!(run.mock.recorded().contains(&"`events` has no thread more".to_owned()));
    assert!(run.mock.refused().is_empty());
}

#[test]
fn a_stage_that_has_ended_keeps_one_thread_and_leaves_the_others_to_its_equals() {
    for choice in ["elastic(threads=8, threads_min=2)", "ds2(threads=8, threads_min=2)"] {
        let mock =
            Mock::new().source("read").stage("one").stage("other").keyed("one").keyed("other");
        let mut run = Run::on(choice, mock);
        let grow = |run: &mut Run, stage: &str| {
            for n in 1..=60 {
                run.show(stage, (200, 20, 180 * n));
                run.mock.at_mut(stage).busy_time += SECOND * 2;
                run.tick();
            }
            [PoolId(1), PoolId(2)].map(|pool| run.mock.threads(pool).unwrap())
        };
        assert_eq!(grow(&mut run, "one"), [6, 2], "{choice}");
        run.mock.at_mut("one").instances = 0;
        assert_eq!(grow(&mut run, "other"), [1, 7], "{choice}");
        let ended = "`one`: it has seen its last event";
        assert!(run.mock.explained().iter().any(|why| why == ended), "{:?}", run.mock.explained());
    }
}

#[test]
fn threads_that_are_idle_show_that_more_would_not_help() {
    // What it sends finds no room, or a key is held: input and output as of the stage behind, and a queue that is full, or grows.
    for (choice, capacity, output, ms, recorded) in [
        ("elastic", 100, 20, 40, 1),
        ("ds2", 100, 20, 40, 0),
        ("ds2", 100, 0, 0, 0),
        ("elastic", usize::MAX, 20, 400, 1),
        ("ds2", usize::MAX, 20, 400, 1),
    ] {
        let mut run = Run::new(choice);
        run.mock.at_mut("work").capacity = capacity;
        for _ in 0..5 {
            run.mock.at_mut("work").busy_time += SECOND / 25;
            run.second((20, 20, 0));
        }
        for n in 1..=200 {
            run.mock.at_mut("work").busy_time += Duration::from_millis(ms);
            let input = if capacity == usize::MAX { 100 } else { output };
            let threads = run.second((input, output, (80 * n).min(capacity)));
            assert_eq!(threads, 1, "{choice}: {:?}", run.mock.explained());
        }
        let said = run.mock.recorded();
        assert_eq!(said, &["`work` has no thread more"][..recorded], "{choice}, {capacity}");
    }
}

#[test]
fn a_full_queue_grows_though_what_comes_is_what_goes() {
    for (policy, capacity) in [("elastic", 100), ("elastic", 5), ("elastic", 1), ("ds2", 100)] {
        let mut run = Run::new(policy);
        run.mock.at_mut("work").capacity = capacity;
        let mut threads = 1;
        for _ in 0..60 {
            let output = 20 * threads.min(5);
            run.mock.at_mut("work").busy_time += SECOND * threads.min(5);
            let queue = if threads < 6 { capacity } else { 0 };
            threads = run.second((u64::from(output), u64::from(output), queue)) as u32;
        }
        assert!(threads >= 5, "{policy}, {capacity}: {threads}");
    }
}

#[test]
fn a_full_queue_that_is_worked_off_does_not_grow() {
    let mut run = Run::new("ds2");
    run.mock.at_mut("work").capacity = 1_000;
    for n in 0..20 {
        run.mock.at_mut("work").busy_time += SECOND / 5;
        assert_eq!(run.second((0, 5, 1_000 - 5 * n)), 1, "{:?}", run.mock.explained());
    }
}

#[test]
fn parameters_that_contradict_each_other_are_refused_before_anything_is_changed() {
    for (choice, message) in [
        ("elastic(threads_min=20)", "`threads_max` is 16: use `threads_min`, 20, or more"),
        ("ds2(deadline=5s)", "`sample` is 1s: use a tenth of `deadline`, 500ms, or less"),
        ("ds2(sample=10us)", "`sample` is 10µs: use 1ms or more"),
        (
            "elastic(threads_min=3, threads=2)",
            "the number of threads of all elastic stages is 2: use their `threads_min` together, 3, or more",
        ),
    ] {
        let choice: Choice = choice.parse().unwrap();
        let registry = Registry::new();
        let entry = registry.find(&choice.name).unwrap();
        let mut policy = entry.make(&entry.offer.validate(&choice, "policy").unwrap());
        let mut mock = Mock::new().stage("work");
        assert_eq!(mock.start(&mut *policy).unwrap_err().to_string(), message);
        assert!(mock.log().is_empty(), "{choice}");
    }
    let faults =
        offers()[0].validate(&"elastic(average=median)".into(), "stage.work.elastic").unwrap_err();
    let why = "`average` of `elastic` is \"median\": use one of mean, halving";
    assert_eq!(faults[0].to_string(), why);
}

#[test]
fn what_cannot_use_threads_stays_in_the_main_pool() {
    let mock = Mock::new()
        .source("read")
        .stage("work")
        .stage("sum")
        .stateful("sum")
        .stage("log")
        .planned("log", 1);
    let run = Run::on("elastic", mock.stage("sort").ordered("sort"));
    let pools = ["read", "work", "sum", "log", "sort"].map(|stage| run.mock.at(stage).pool.0);
    assert_eq!(pools, [0, 1, 0, 0, 0]);
    assert_eq!(
        run.mock.threads(PoolId(0)).unwrap(),
        4,
        "what is there keeps the threads of the plan"
    );
}

fn elastic(stage: &str, choice: &str) -> ElasticChoice {
    let choice: Choice = choice.parse().unwrap();
    let offer = offers().into_iter().find(|offer| offer.name == choice.name).unwrap();
    ElasticChoice { stage: stage.to_owned(), controller: offer.validate(&choice, "").unwrap() }
}

fn beside(policy: &str, stages: Vec<ElasticChoice>) -> Box<dyn Policy> {
    let registry = Registry::new();
    let entry = registry.find(policy).unwrap();
    let policy = entry.make(&entry.offer.validate(&Choice::new(policy), "").unwrap());
    Beside::wrap(policy, stages, None)
}

#[test]
fn beside_any_policy_that_leaves_stages_in_the_main_pool_a_stage_is_elastic() {
    let mut ran = Vec::new();
    for offer in Registry::new().offers() {
        let mut policy = beside(offer.name, vec![elastic("work", "elastic(average=halving)")]);
        let mut mock = Mock::new().source("read").stage("parse").stage("work").stage("store");
        if let Err(refused) = mock.start(&mut *policy) {
            let message = refused.to_string();
            assert!(
                message.starts_with("the policy gives `work` a pool of its own"),
                "{}: {message}",
                offer.name
            );
            continue;
        }
        let timer = TimerId(mock.timers().len() as u32 - 1);
        mock.at_mut("work").capacity = 1 << 40;
        for (input, output, queue) in TABLE_3_5 {
            let shown = mock.at_mut("work");
            (shown.arrived, shown.processed) = (shown.arrived + input, shown.processed + output);
            shown.queued = queue;
            mock.pass(SECOND);
            // The policy's own calls, some of which begin the counts anew, change nothing of the samples.
            mock.fire_last_focused(&mut *policy).unwrap();
            mock.fire_max_visits(&mut *policy).unwrap();
            for other in 0..timer.0 {
                mock.fire_timer(&mut *policy, TimerId(other)).unwrap();
            }
            mock.fire_timer(&mut *policy, timer).unwrap();
        }
        let pool = mock.at("work").pool;
        assert_eq!(mock.threads(pool).unwrap(), 6, "{}", offer.name);
        assert_eq!(mock.at("work").instances, 16, "{}", offer.name);
        ran.push(offer.name);
    }
    for policy in ["stealing", "single", "srpt", "color", "cohort", "lrb", "dbr", "srpt-private"] {
        assert!(ran.contains(&policy), "{policy} is beside elastic stages");
    }
    for policy in ["seda", "seda-dynamic", "thread-stealing", "elastic", "ds2"] {
        assert!(!ran.contains(&policy), "{policy} has pools of its own");
    }
}

#[test]
fn a_stage_that_was_moved_away_leaves_its_threads_and_has_none_to_give() {
    let stages = vec![
        elastic("low", "elastic(average=halving)"),
        elastic("high", "elastic(average=halving, priority=5)"),
    ];
    let mut policy = Beside::wrap(Box::new(Stealing), stages, NonZeroUsize::new(7));
    let mut mock = Mock::new().stage("low").stage("high");
    for stage in ["low", "high"] {
        mock.at_mut(stage).capacity = 1 << 40;
    }
    mock.start(&mut *policy).unwrap();
    let mut grow = |mock: &mut Mock, stage: &str| {
        for (input, output, queue) in TABLE_3_5 {
            let shown = mock.at_mut(stage);
            (shown.arrived, shown.processed) = (shown.arrived + input, shown.processed + output);
            shown.queued = queue;
            mock.pass(SECOND);
            mock.fire_timer(&mut *policy, TimerId(0)).unwrap();
        }
    };
    grow(&mut mock, "low");
    let (low, pool) = (mock.stages()[0].id, mock.at("low").pool);
    assert_eq!(mock.threads(pool).unwrap(), 6);
    mock.set_pool(PoolId(0), low).unwrap();
    let main = mock.threads(PoolId(0)).unwrap();
    grow(&mut mock, "high");
    assert_eq!(mock.threads(PoolId(0)).unwrap(), main, "{:?}", mock.log());
    let high = mock.at("high").pool;
    assert_eq!((mock.threads(pool).unwrap(), mock.threads(high).unwrap()), (0, 6));
}

#[test]
fn a_stage_that_the_policy_moves_away_is_elastic_no_more() {
    let stages = vec![elastic("work", "elastic")];
    let mut policy = Beside::wrap(Box::new(Stealing), stages, None);
    let mut mock = Mock::new().stage("work").stage("other");
    mock.start(&mut *policy).unwrap();
    let work = mock.stages()[0].id;
    mock.set_pool(PoolId(0), work).unwrap();
    for _ in 0..3 {
        mock.pass(SECOND);
        mock.fire_timer(&mut *policy, TimerId(0)).unwrap();
    }
    assert_eq!(mock.recorded(), ["`work` is elastic no more"]);
}
