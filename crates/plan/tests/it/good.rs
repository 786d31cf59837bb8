//! What a plan says is what holds; the effective plan tells who said it, and reads back as itself.

use std::time::Duration;

use comporta_model::plan::{OnPanic, Plan, WhenFull};
use proptest::prelude::*;

use crate::program::{catalogue, graph, validate};

const ALL: &str = r#"
drain = "1m 30s"
stuck_after = "250ms"

[app]
name = "of the program"
token = "${PASSWORD}"
limits = { rate = 1.5, burst = "${FOUR}" }

[cluster.main]
threads = 3
policy = { name = "srpt" }

[cluster.side]
stages = "all * (count + show)"
policy = "fifo"

[every]
batch = 64
instances = 3

[stage.split]
instances = "${FOUR}"
priority = -2
queue = { capacity = 10_000, when_full = "drop-oldest" }
retry.tries = 3
retry.backoff = "50ms"
retry.jitter = false
emit_max = "unlimited"
failures_max = 0
on_panic = "reset"
admission = { name = "token-bucket", rate = 2_000 }

[stage.read]
tier = 7
rate = 2.5

[stage.push]
deadline = "250ms"

[stage.show]
admission = "codel(target=20ms)"
stub = true

[connector."count -> show"]
when_full = "reject"
"#;

#[test]
fn everything_a_plan_may_say_is_obeyed() {
    let effective = validate(&[("all.toml", ALL)]).unwrap();
    let settings = effective.settings();
    assert_eq!(settings.drain, Duration::from_secs(90));
    assert_eq!(settings.stuck_after, Duration::from_millis(250));
    let clusters: Vec<_> = settings
        .clusters
        .iter()
        .map(|p| (p.name.as_str(), p.threads, p.policy.name.as_str()))
        .collect();
    assert_eq!(clusters, [("main", 3, "srpt"), ("side", 1, "single")]);
    let of: Vec<_> = settings.stages.iter().map(|stage| stage.cluster).collect();
    assert_eq!(of, [0, 0, 0, 1, 1, 0]);
    let split = &settings.stages[2];
    assert_eq!((split.instances, split.priority, split.batch), (4, -2, 64));
    assert_eq!((split.capacity, split.when_full), (10_000, WhenFull::DropOldest));
    assert_eq!((split.retry.tries, split.retry.backoff), (3, Duration::from_millis(50)));
    assert!(!split.retry.jitter && settings.stages[0].retry.jitter, "it is so unless it is said");
    assert_eq!((split.emit_max, split.failures_max), (usize::MAX, 0));
    assert_eq!(split.on_panic, OnPanic::Reset);
    assert_eq!((settings.stages[0].rate, settings.stages[2].rate), (2.5, f64::INFINITY));
    assert_eq!((settings.stages[4].stub, settings.stages[2].stub), (true, false));
    let admission = |at: usize| settings.stages[at].admission.as_ref().map(ToString::to_string);
    assert_eq!(admission(2).as_deref(), Some("token-bucket(burst=100, rate=2000)"));
    assert_eq!(
        admission(4).as_deref(),
        Some("codel(interval=100ms, lifo=true, paced=false, target=20ms)")
    );
    assert_eq!(admission(5), None);
    assert_eq!((settings.stages[0].tier, settings.stages[0].deadline), (7, None));
    assert_eq!(settings.stages[1].deadline, Some(Duration::from_millis(250)));
    // A value for every stage does not hold for a stage that cannot have it.
    assert_eq!((settings.stages[3].instances, settings.stages[5].instances), (1, 3));
    assert_eq!(settings.connectors[4], [Some(WhenFull::Reject)]);
}

#[test]
fn an_elastic_stage_has_a_controller_with_every_parameter() {
    let text = r#"
        [cluster.main]
        elastic_threads = 24
        [every]
        elastic = "ds2"
        [stage.show]
        elastic = { deadline = "80s", threads_max = 16 }
        [stage.log]
        elastic = { controller = "ds2", threads_min = 2, priority = 5 }
    "#;
    let effective =
        validate(&[("a.toml", text), ("--set", "stage.log.elastic.threads_max=4")]).unwrap();
    let settings = effective.settings();
    let elastic = |at: usize| settings.stages[at].elastic.as_ref().map(ToString::to_string);
    let show = "elastic(average=mean, cpu_max=100, deadline=1m 20s, energy=false, priority=0, sample=1s, skew=output, \
                threads_max=16, threads_min=1)";
    assert_eq!(elastic(4).as_deref(), Some(show));
    assert!(
        elastic(5).unwrap().starts_with("ds2(")
            && elastic(5).unwrap().contains("threads_max=4, threads_min=2")
    );
    // What is said of every stage does not hold for those that cannot be elastic: a source, an input, a stateful stage.
    assert_eq!([0, 1, 3].map(elastic), [None, None, None]);
    assert!(elastic(2).is_some(), "it has two instances");
    assert_eq!(settings.clusters[0].elastic_threads.map(|most| most.get()), Some(24));
    // It reads back as itself.
    let shown = effective.to_string();
    assert!(
        shown.contains("elastic           = { controller = \"elastic\", average = \"mean\""),
        "{shown}"
    );
    let again = validate(&[("shown.toml", &shown)]).unwrap();
    assert!(effective.differences(&again).is_empty());
}

#[test]
fn a_later_text_goes_over_an_earlier_one_setting_by_setting() {
    let effective = validate(&[
        ("a.toml", "[stage.split]\ninstances = 3\nqueue.capacity = 10"),
        ("b.toml", "[stage.split]\ninstances = 5"),
        ("--set", "stage.split.priority = 7"),
        ("--set", "stage.split.queue.when_full=drop-newest"),
    ])
    .unwrap();
    let split = &effective.settings().stages[2];
    assert_eq!((split.instances, split.capacity, split.priority), (5, 10, 7));
    assert_eq!(split.when_full, WhenFull::DropNewest);
}

#[test]
fn a_value_that_does_not_hold_has_no_origin() {
    let shown = validate(&[("a.toml", "[every]\ninstances = 3")]).unwrap().to_string();
    let of = |header: &str| {
        let section = &shown[shown.find(header).unwrap()..];
        section.lines().find(|line| line.starts_with("instances")).unwrap().to_owned()
    };
    assert!(of("[stage.count]").ends_with("# default"), "{shown}");
    assert!(of("[stage.show]").ends_with("# a.toml:2, [every]"), "{shown}");
}

#[test]
fn a_variable_may_spell_a_number_as_toml_does() {
    let mut spec = comporta_plan::PlanSpec::with_env(|_| Some("10_000".to_owned()));
    spec.text("p.toml", "[stage.split]\nqueue.capacity = '${PLACES}'");
    let effective = spec
        .validate(
            &crate::program::graph(),
            &crate::program::program(),
            &crate::program::catalogue(),
            2,
        )
        .unwrap();
    assert_eq!(effective.settings().stages[2].capacity, 10_000);
}

#[test]
fn the_programs_own_settings_stay_in_the_order_they_were_written_in() {
    let shown = validate(&[("p.toml", "[app]\nzebra = 1\nant = 2")]).unwrap().to_string();
    assert!(shown.find("zebra") < shown.find("ant "), "{shown}");
}

#[test]
fn a_connector_is_the_same_however_its_arrow_is_spaced() {
    for (below, over) in [("count->show", "count  ->  show"), ("count -> show", "count->show")] {
        let text = |name, rule| format!("[connector.'{name}']\nwhen_full = '{rule}'");
        let (below, over) = (text(below, "reject"), text(over, "drop-oldest"));
        let effective = validate(&[("a.toml", &below), ("b.toml", &over)]).unwrap();
        assert_eq!(effective.settings().connectors[4], [Some(WhenFull::DropOldest)]);
        assert!(effective.to_string().contains("\"drop-oldest\"  # b.toml:2"), "{effective}");
    }
}

#[test]
fn a_flag_may_have_quoted_keys_and_values_of_several_lines() {
    let flags = [("--set", "cluster.\"a=b\".stages=show"), ("--set", "app.text=one\ntwo = 2")];
    let effective = validate(&flags).unwrap();
    assert_eq!(effective.settings().clusters[1].name, "a=b");
    assert!(effective.to_string().contains(r#"text = "one\ntwo = 2""#), "{effective}");
}

#[test]
fn stages_called_as_sets_are_read_back_as_stages() {
    let mut graph = crate::program::graph();
    graph.stages[4].name = "all".into();
    let validate = |text: &str| {
        let mut spec = comporta_plan::PlanSpec::new();
        spec.text("p.toml", text);
        spec.validate(&graph, &comporta_model::plan::Plan::new(), &crate::program::catalogue(), 2)
            .unwrap()
    };
    let first = validate("[cluster.side]\nstages = ['all']");
    let again = validate(&first.to_string());
    assert_eq!(again.settings(), first.settings(), "{first}");
}

#[test]
fn the_effective_plan_tells_who_said_what() {
    let shown = validate(&[
        ("a.toml", "[every]\nbatch = 5\n[stage.log]\nqueue.capacity = 200"),
        ("--threads", "cluster.main.threads=2"),
    ])
    .unwrap()
    .to_string();
    let line = |key: &str, from: &str| {
        let section = &shown[shown.find(from).unwrap_or_else(|| panic!("{from}\n{shown}"))..];
        let line = section.lines().find(|line| line.starts_with(key));
        line.unwrap_or_else(|| panic!("{key}\n{shown}"))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("drain", "drain"), "drain = \"10s\" # default");
    assert_eq!(line("threads", "[cluster.main]"), "threads = 2 # --threads");
    assert_eq!(line("instances", "[stage.split]"), "instances = 2 # the program");
    assert_eq!(line("batch", "[stage.split]"), "batch = 5 # a.toml:2, [every]");
    assert_eq!(line("queue.capacity", "[stage.log]"), "queue.capacity = 200 # a.toml:4");
    assert_eq!(line("priority", "[stage.read]"), "priority = 0 # default");
    assert!(!shown.contains("[stage.push]"), "an input has nothing to set\n{shown}");
}

#[test]
fn secrets_are_not_shown_and_variables_not_filled_in() {
    let text = "[app]\npassword = 'hunter2'\ndb.token = '${PASSWORD}'\nuser = '${FOUR}'\nn = 1";
    let shown = validate(&[("p.toml", text)]).unwrap().to_string();
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(shown.contains("db.token = \"${PASSWORD}\""), "{shown}");
    assert!(shown.contains("password = \"***\""), "{shown}");
    assert!(shown.contains("(not shown)") && shown.contains("\"${FOUR}\""), "{shown}");
}

#[test]
fn of_a_secret_only_the_name_of_its_variable_is_shown() {
    let text = "[app]\npassword = '${NO_SUCH:-hunter2}'\ntoken = 'hunter2-${FOUR}'\n\
                users = [ { secret = 'hunter2' }, { secret = '${FOUR}' } ]";
    let shown = validate(&[("p.toml", text)]).unwrap().to_string();
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(shown.contains("{ secret = \"***\" }, { secret = \"${FOUR}\" }"), "{shown}");
}

#[test]
fn a_plan_says_that_it_reads_back_only_if_it_does() {
    let printed = |text: &str| validate(&[("p.toml", text)]).unwrap().to_string();
    let header = |shown: &str| shown.lines().next().unwrap().to_owned();
    let shown = printed("[app]\npassword = '${NO_SUCH:-}'\ntoken = '${PASSWORD}'");
    assert!(shown.contains("password = \"${NO_SUCH:-}\""), "{shown}");
    assert!(header(&shown).ends_with("It reads back as itself."), "{shown}");
    assert_eq!(header(&shown), header(&printed(&shown)));
    for secret in ["password = 'hunter2'", "users = [{ token = 'hunter2' }]"] {
        let shown = printed(&format!("[app]\n{secret}"));
        assert!(header(&shown).ends_with("once what is not shown is filled in."), "{shown}");
        let refused = validate(&[("printed.toml", &shown)]).expect_err("a mask").to_string();
        assert!(refused.contains("stands for a secret that was not printed"), "{refused}");
    }
}

#[test]
fn secrets_that_differ_are_told_apart_and_not_shown() {
    let plans = [
        ("[app]\npassword = 'hunter2'", "[app]\npassword = 'hunter3'", "app.password"),
        ("[app]\nusers = [{ token = 'hunter2' }]", "[app]\nusers = [{ token = 3 }]", "app.users"),
        ("[app.secrets]\na = 'hunter2'", "[app.secrets]\na = 'hunter3'", "app.secrets"),
        ("[app]\ntoken = '${A:-hunter2}'", "[app]\ntoken = '${A:-hunter3}'", "app.token"),
    ];
    for (one, other, key) in plans {
        let [here, there] = [one, other].map(|text| validate(&[("p.toml", text)]).unwrap());
        assert!(here.differences(&validate(&[("q.toml", one)]).unwrap()).is_empty(), "{one}");
        let told: String = here.differences(&there).iter().map(ToString::to_string).collect();
        assert_eq!(told, format!("{key} differs (not shown)\n"));
        assert!(!format!("{here:?}").contains("hunter"), "{here:?}");
    }
}

#[test]
fn an_empty_table_of_the_program_reads_back_too() {
    #[derive(serde::Deserialize)]
    struct Own {
        db: Option<std::collections::BTreeMap<String, i64>>,
    }
    let shown = validate(&[("p.toml", "[app.db]")]).unwrap().to_string();
    let mut spec = comporta_plan::PlanSpec::new();
    spec.text("again.toml", shown);
    assert_eq!(spec.app::<Own>().unwrap().db.map(|db| db.len()), Some(0));
}

#[test]
fn the_effective_plan_reads_back_as_itself() {
    let first = validate(&[("all.toml", ALL)]).unwrap();
    let again = validate(&[("again.toml", &first.to_string())]).unwrap();
    assert_eq!(again.settings(), first.settings());
    assert!(again.differences(&first).is_empty());
    let settings = |text: &str| {
        text.lines().map(|l| l.split('#').next().unwrap().trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(settings(&again.to_string()), settings(&first.to_string()));
}

#[test]
fn differences_are_told_setting_by_setting() {
    let one = validate(&[("one.toml", "[stage.split]\npriority = 3")]).unwrap();
    let two = validate(&[("two.toml", "drain = '1s'\n[cluster.side]\nstages = 'show'")]).unwrap();
    let shown: Vec<_> = one.differences(&two).iter().map(ToString::to_string).collect();
    assert_eq!(shown[0], "drain\n  - \"10s\"  # default\n  + \"1s\"  # two.toml:1\n");
    assert!(
        shown.iter().any(|d| d.starts_with("stage.split.priority\n  - 3  # one.toml:2\n  + 0"))
    );
    assert!(shown.iter().any(|d| d.contains("cluster.side.stages\n  + \"show\"")), "{shown:#?}");
    assert!(one.differences(&one).is_empty());
}

#[test]
fn the_programs_own_section_is_read_into_its_own_struct() {
    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Own {
        name: String,
        #[serde(default)]
        port: Option<u16>,
        mode: Mode,
        limits: Vec<f64>,
    }
    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        Fast,
        File { path: String },
    }
    let read = |texts: &[&str]| {
        let mut spec = comporta_plan::PlanSpec::with_env(crate::program::env);
        texts.iter().for_each(|text| spec.text("own.toml", *text));
        spec.app::<Own>().map_err(|report| report.to_string())
    };
    let text = "[app]\nname = '${FOUR}'\nport = '${FOUR}000'\nmode = 'fast'\nlimits = [1, 2.5]";
    let name = "4".to_owned();
    let own = Own { name, port: Some(4000), mode: Mode::Fast, limits: vec![1.0, 2.5] };
    assert_eq!(read(&[text]), Ok(own));
    let over = "[app]\nmode = { file = { path = 'x' } }";
    let mode = Mode::File { path: "x".to_owned() };
    assert_eq!(read(&[text, over]).unwrap().mode, mode);
    let wrong = read(&[text, "[app]\nprot = 1"]).unwrap_err();
    assert!(wrong.contains("own.toml:2:1") && wrong.contains("did you mean `port`?"), "{wrong}");
    let wrong = read(&[text, "[app]\nport = 70000"]).unwrap_err();
    assert!(wrong.contains("own.toml:2:8") && wrong.contains("70000"), "{wrong}");
    let wrong = read(&["[app]\nname = 'x'"]).unwrap_err();
    assert!(wrong.contains("lacks the setting `mode`"), "{wrong}");
}

proptest! {
    #[test]
    fn any_plan_that_holds_reads_back_as_itself(
        threads in 1usize..100,
        instances in 1usize..1000,
        capacity in 100usize..1_000_000,
        rule in 0usize..4,
        backoff_ns in 0u64..10_000_000_000_000,
        priority in any::<i32>(),
        set in "(all|none|show|count)( [-+*] (show|count|\\(all - show\\))){0,3}",
    ) {
        let rule = ["block", "reject", "drop-newest", "drop-oldest"][rule];
        let text = format!(
            "[cluster.main]\nthreads = {threads}\n[cluster.side]\nstages = \"({set}) * (show + count)\"\n\
             [stage.split]\ninstances = {instances}\npriority = {priority}\n\
             queue = {{ capacity = {capacity}, when_full = \"{rule}\" }}\nretry.backoff = \"{backoff_ns}ns\""
        );
        let first = validate(&[("p.toml", &text)]).unwrap();
        let again = validate(&[("q.toml", &first.to_string())]).unwrap();
        prop_assert_eq!(again.settings(), first.settings());
        prop_assert!(first.differences(&again).is_empty());
    }
}

#[test]
fn a_gateway_bounds_the_requests_in_flight_and_other_stages_have_no_such_setting() {
    let mut graph = graph();
    graph.stages[1].gateway = true; // `push`
    let mut spec = comporta_plan::PlanSpec::new();
    spec.text("gateway.toml", "[every]\nin_flight = 7");
    let effective = spec.validate(&graph, &Plan::new(), &catalogue(), 2).unwrap();
    assert_eq!(effective.settings().stages[1].in_flight, 7);
    let text = effective.to_string();
    assert_eq!(text.matches("in_flight").count(), 1, "{text}");
    let none = comporta_plan::PlanSpec::new();
    let default = none.validate(&graph, &Plan::new(), &catalogue(), 2).unwrap();
    assert_eq!(default.settings().stages[1].in_flight, 10_000);
}

/// What is said of a program whose stages `show` and `log` are blocking.
fn with_blocking(text: &str) -> Result<comporta_plan::Effective, String> {
    let mut graph = graph();
    graph.stages[4].blocking = true;
    graph.stages[5].blocking = true;
    let mut spec = comporta_plan::PlanSpec::new();
    spec.text("blocking.toml", text);
    let validated = spec.validate(&graph, &Plan::new(), &catalogue(), 2);
    validated.map_err(|report| report.to_string())
}

#[test]
fn blocking_stages_are_in_a_cluster_of_their_own_unless_the_plan_names_them() {
    let clusters = |effective: &comporta_plan::Effective| {
        let settings = effective.settings();
        let named: Vec<_> =
            settings.clusters.iter().map(|c| (c.name.clone(), c.threads, c.blocking)).collect();
        (
            named,
            [settings.stages[3].cluster, settings.stages[4].cluster, settings.stages[5].cluster],
        )
    };
    let main = ("main".to_owned(), 2, false);
    let blocking = |threads| ("blocking".to_owned(), threads, true);
    let default = with_blocking("").unwrap();
    assert_eq!(clusters(&default), (vec![main.clone(), blocking(16)], [0, 1, 1]));
    let text = default.to_string();
    let section =
        "[blocking]\n# the cluster `blocking`: show, log, declared blocking by the program\n";
    assert!(text.contains(section), "{text}");
    assert_eq!(clusters(&with_blocking(&text).unwrap()), clusters(&default), "it reads back");

    let said = with_blocking("blocking.threads = 3\n[cluster.disk]\nstages = \"show\"").unwrap();
    let disk = ("disk".to_owned(), 1, false);
    assert_eq!(clusters(&said), (vec![main, disk, blocking(3)], [0, 1, 2]));
    let rest_taken = "[cluster.own]\nstages = \"all - show - log\"";
    let own = ("own".to_owned(), 1, false);
    assert_eq!(clusters(&with_blocking(rest_taken).unwrap()), (vec![own, blocking(16)], [0, 1, 1]));
}

#[test]
fn threads_of_blocking_stages_are_bounded_and_their_cluster_has_one_name() {
    let refused = |text: &str| with_blocking(text).unwrap_err();
    let none = refused("[blocking]\nthreads = 0");
    assert!(none.contains("the number of threads of blocking stages is 0"), "{none}");
    assert!(none.contains("blocking.toml:2:11") && none.contains("expected 1 to 1,024"), "{none}");
    let many = refused("blocking.threads = 2000");
    assert!(many.contains("is 2000"), "{many}");
    let named = refused("[cluster.blocking]\nstages = \"split\"");
    assert!(named.contains("the cluster `blocking` holds the stages"), "{named}");
    let useless = refused("blocking.threads = 4\n[cluster.disk]\nstages = \"show + log + split\"");
    assert!(useless.contains("`blocking.threads` is of no use"), "{useless}");
    assert!(refused("blocking = 4").contains("`blocking` is a table, not"));
}

#[test]
fn one_replica_where_others_have_more_is_shown_and_read_back() {
    let own = "[every]\nreplicas = 3\n[stage.split]\nreplicas = 1";
    let shown = validate(&[("p.toml", own)]).unwrap().to_string();
    let again = validate(&[("more.toml", "[every]\nreplicas = 3"), ("printed.toml", &shown)]);
    let again = again.unwrap();
    let replicas = |name| again.settings().stages[graph().find(name).unwrap().index()].replicas;
    assert_eq!((replicas("split"), replicas("show")), (1, 3), "{shown}");
}
