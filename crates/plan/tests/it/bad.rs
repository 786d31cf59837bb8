//! Every file of `tests/bad` is a plan with a mistake; beside it stands the message it must get.
//! `COMPORTA_BLESS=1 cargo test -p comporta-plan` writes the messages anew: read them before you
//! commit them.

use std::fs;
use std::path::Path;

use crate::program::validate;

#[test]
fn every_bad_plan_gets_its_message() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let bless = std::env::var_os("COMPORTA_BLESS").is_some();
    let mut plans: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    plans.retain(|path| path.extension().is_some_and(|ext| ext == "toml"));
    plans.sort();
    assert!(plans.len() >= 20, "only {} bad plans", plans.len());
    let mut wrong = Vec::new();
    for path in plans {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let said = match validate(&[(name, &text)]) {
            Ok(_) => panic!("{name} is no bad plan"),
            Err(report) => format!("{report}\n"),
        };
        let expected = path.with_extension("txt");
        if bless {
            fs::write(&expected, &said).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != said {
            wrong.push(format!("{name}\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "these messages changed:\n\n{}", wrong.join("\n"));
}

fn message(texts: &[(&str, &str)]) -> String {
    validate(texts).expect_err("a bad plan").to_string()
}

#[test]
fn a_flag_is_marked_like_a_file() {
    let said = message(&[("--set", "stage.splt.instances=4")]);
    assert!(said.contains("the program has no stage `splt`"), "{said}");
    assert!(said.contains("--> --set:1:7"), "{said}");
    assert!(said.contains("did you mean `split`?"), "{said}");
    let said = message(&[("--set", "threads")]);
    assert!(said.contains("`--set threads` sets nothing"), "{said}");
    assert!(said.contains("key=value"), "{said}");
}

#[test]
fn a_mistake_in_what_the_program_says_itself_is_no_mistake_of_a_file() {
    let spec = comporta_plan::PlanSpec::new();
    let program = comporta_model::plan::Plan::new().stage("spilt", |s| s.instances(3));
    let said = spec
        .validate(&crate::program::graph(), &program, &crate::program::catalogue(), 2)
        .unwrap_err()
        .to_string();
    assert!(said.contains("no stage `spilt`") && said.contains("the program says so"), "{said}");
}

#[test]
fn a_file_that_cannot_be_read_is_told() {
    let mut spec = comporta_plan::PlanSpec::new();
    spec.file(Path::new("no/such/plan.toml"));
    spec.file(Path::new(env!("CARGO_MANIFEST_DIR")));
    let report = spec.check().unwrap_err();
    assert_eq!(report.mistakes().len(), 2);
    assert!(
        report.mistakes()[0].title().starts_with("the plan `no/such/plan.toml` cannot be read")
    );
}

#[test]
fn a_secret_is_in_no_message() {
    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Own {
        password: u64,
    }
    let tries = [
        ("plan.toml", "[app]\npassword = 'hunter2'"),
        ("plan.toml", "[app]\npassword = '${PASSWORD}'"),
        ("--set", "app.password=hunter2"),
    ];
    for (name, text) in tries {
        let mut spec = comporta_plan::PlanSpec::with_env(crate::program::env);
        if name == "--set" {
            spec.set(name, text);
        } else {
            spec.text(name, text);
        }
        let said = spec.app::<Own>().unwrap_err().to_string();
        assert!(!said.contains("hunter2"), "{said}");
        assert!(said.contains("password"), "{said}");
    }
    let said = message(&[("p.toml", "[cluster.main]\nthreads = '${PASSWORD}'")]);
    assert!(!said.contains("hunter2") && said.contains("variable"), "{said}");
}

#[test]
fn a_secret_is_in_no_message_whatever_slip_it_stands_beside() {
    let tries = [
        ("p.toml", "ap = { password = 'hunter2' }"),
        ("p.toml", "password = 'hunter2'"),
        ("p.toml", "[stage.split]\ntoken = 'hunter2'"),
        ("p.toml", "app = [\n { password = 'hunter2' }\n]"),
        ("p.toml", "[app]\nusers = [ { password = 'hunter2', n = '${NO_SUCH}' } ]"),
        ("p.toml", "[app]\npassword = 'a'\npassword = 'hunter2'"),
        ("p.toml", "app = { password = 'a', password = 'hunter2' }"),
        ("p.toml", "ap = { secrets = { user = 'hunter2' } }"),
        ("--set", "ap.password=hunter2"),
        ("--set", "app.password hunter2"),
        ("--set", "stage.split.queue.when_full=${PASSWORD}"),
        ("--set", "cluster.main.policy=${PASSWORD}"),
        ("--set", "cluster.side.stages=show ${PASSWORD}"),
        ("p.toml", "[cluster.side]\nstages = '${PASSWORD}'"),
        ("p.toml", "[cluster.side]\nstages = 'show + ${PASSWORD}'"),
        ("p.toml", "[cluster.side]\nstages = ['show', '${PASSWORD}']"),
    ];
    for (name, text) in tries {
        let said = message(&[(name, text)]);
        assert!(!said.contains("hunter2"), "{text}\n{said}");
    }
    let said = message(&[("p.toml", "[cluster.side]\nstages = 'shwo + ${FOUR}'")]);
    assert!(said.contains("no stage `shwo`") && said.contains("what the variable holds"), "{said}");
}

#[test]
fn a_secret_is_in_no_message_if_the_slip_is_in_the_toml_itself() {
    let slips = [
        "password: \"hunter2\"",
        "password \"hunter2\"",
        "password hunter2",
        "password =\n\"hunter2\"",
        "password =\nhunter2",
        "password\n= \"hunter2\"",
        "password = hunter2",
        "password = hunter2 = 3",
        "password = \"hunter2",
        "password = \"a\nhunter2\"",
        "password = \"\"\"\nhunter2",
        "password = [\n'a'\n'hunter2'\n]",
        "password == 'hunter2'",
        "\"api-key\" = \"hunter2\"\nx =",
        "\"api-key\": \"hunter2\"",
        "'private key' = \"hunter2\"\nx =",
        "db = { user = 'a', password: 'hunter2' }",
        "db = { user = 'a', password = 'hunter2'",
        "user = 'a' password = 'hunter2'",
        "secrets = { a: 'hunter2' }",
        "[app.secrets]\na: 'hunter2'",
        "[app.secrets\na = 'hunter2'",
        "[secrets]\na =\n'hunter2'",
    ];
    for slip in slips {
        for text in [slip.to_owned(), format!("[app]\n{slip}"), format!("[app]\n{slip}\nb = 'c'")] {
            let said = message(&[("p.toml", &text)]);
            assert!(!said.contains("hunter2"), "{text}\n{said}");
            let mut spec = comporta_plan::PlanSpec::new();
            spec.text("p.toml", text.as_str());
            if let Err(said) = spec.app::<std::collections::BTreeMap<String, u8>>() {
                assert!(!said.to_string().contains("hunter2"), "{text}\n{said}");
            }
        }
    }
    for flag in ["app={password=\"hunter2", "app={\"api-key\": \"hunter2", "stage=token: hunter2"] {
        let said = message(&[("--set", flag)]);
        assert!(!said.contains("hunter2"), "{flag}\n{said}");
    }
    let said = message(&[("p.toml", "[app]\n\"api-key\" = \"hunter2\"\n[stage.x]\ny = 1")]);
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn a_secret_is_in_no_message_however_the_programs_struct_is_read() {
    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct User {
        user: u16,
    }
    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Own {
        #[serde(flatten)]
        inner: Option<User>,
        credentials: Option<User>,
        #[serde(default)]
        users: Vec<User>,
        kind: Option<Kind>,
    }
    #[derive(Debug, serde::Deserialize)]
    #[serde(tag = "name", rename_all = "lowercase")]
    #[expect(dead_code, reason = "only read")]
    enum Kind {
        Db { password: u16 },
    }
    let tries = [
        "credentials = { user = 'hunter2' }",
        "credentials = { user = 'hunter2', x = [1] }",
        "users = [ { user = '${PASSWORD}' } ]",
        "kind = { name = 'db', password = 'hunter2' }",
        "kind = { name = 'db', password = '${PASSWORD}' }",
    ];
    for text in tries {
        let mut spec = comporta_plan::PlanSpec::with_env(crate::program::env);
        spec.text("p.toml", format!("[app]\n{text}"));
        let said = spec.app::<Own>().unwrap_err().to_string();
        assert!(!said.contains("hunter2"), "{text}\n{said}");
    }
}

#[test]
fn the_mark_that_some_editors_put_first_is_in_no_column() {
    let said = message(&[("p.toml", "\u{feff}drain = 1")]);
    assert!(said.contains("--> p.toml:1:9\n"), "{said}");
}

#[test]
fn a_mask_is_not_taken_for_the_secret_it_stands_for() {
    let printed = validate(&[("p.toml", "[app]\npassword = 'hunter2'")]).unwrap().to_string();
    let said = message(&[("printed.toml", &printed)]);
    assert!(said.contains("`password` stands for a secret that was not printed"), "{said}");
}

#[test]
fn a_text_that_was_not_read_to_its_end_is_known_not_to_be() {
    let read = |text: &str| {
        let mut spec = comporta_plan::PlanSpec::with_env(crate::program::env);
        spec.text("p.toml", text);
        spec.is_read()
    };
    assert!(read("[app]\nname = '${FOUR}'"));
    assert!(read("[stage.splt]\ncolour = 3"), "a mistake, but read");
    assert!(!read("[app]\nname = '${NO_SUCH}'"));
    assert!(!read("[app.a]\nb = [{ c = 18446744073709551615 }]"));
    assert!(!read("app.a.b = '${NO_SUCH}'"));
    assert!(read("[stage.split]\nbatch = '${NO_SUCH}'"), "a program can be built");
    assert!(!read("[app\nname = 3"));
}

#[test]
fn a_slip_in_a_set_is_the_only_mistake_that_is_told_of_it() {
    for set in ["'log + '", "'${NO_SUCH}'", "3", "['log', 3]"] {
        for main in ["threads = 1", "stages = 'all - log'"] {
            let text = format!("[cluster.main]\n{main}\n[cluster.side]\nstages = {set}");
            let report = validate(&[("p.toml", &text)]).expect_err("a bad plan");
            assert_eq!(report.mistakes().len(), 1, "{text}\n{report}");
        }
    }
    let two = "[cluster.a]\nthreads = 1\n[cluster.b]\nthreads = 1\n[cluster.c]\nstages = 'log +'";
    assert!(message(&[("p.toml", two)]).contains("`a` and `b` both name no stages"));
}

#[test]
fn what_is_expected_would_be_taken() {
    let keys = [("instances", 1), ("batch", 1), ("queue.capacity", 100), ("emit_max", 1)];
    for (key, least) in keys.into_iter().chain([("retry.tries", 1), ("failures_max", 0)]) {
        let set = |value: &str| validate(&[("--set", &format!("every.{key}={value}"))]);
        for wrong in ["-3", "many", "1.5"] {
            let said = set(wrong).expect_err("a bad plan").to_string();
            let from_zero = said.contains("not below 0");
            assert_eq!(
                (from_zero, said.contains("at least 1")),
                (least == 0, least != 0),
                "{said}"
            );
        }
        assert_eq!(set("0").is_ok(), least == 0, "{key}");
        assert!(set(&least.to_string()).is_ok(), "{key}");
    }
}

/// Settings with everything that can go wrong with them.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it is only read")]
struct Wide {
    times: u64,
    names: Vec<String>,
    kind: Kind,
    inner: Inner,
    least: std::num::NonZeroU32,
    address: Option<std::net::IpAddr>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Small,
    Large,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it is only read")]
struct Inner {
    depth: u8,
    width: u8,
}

#[test]
fn all_mistakes_of_the_programs_own_section_are_told_at_once() {
    let text = "[app]\ntimse = 3\nnames = ['a', 7]\nkind = 'smal'\naddress = 'here'\n\
                [app.inner]\ndepth = 300\nheight = 1\n";
    let mut spec = comporta_plan::PlanSpec::new();
    spec.text("p.toml", text);
    let report = spec.app::<Wide>().unwrap_err();
    let said = report.to_string();
    for (place, label) in [
        ("p.toml:2:1", "did you mean `times`?"),
        ("p.toml:3:15", "invalid type: integer `7`, expected a string"),
        ("p.toml:4:8", "unknown variant `smal`"),
        ("p.toml:5:11", "invalid IP address syntax"),
        ("p.toml:7:9", "invalid value: integer `300`, expected u8"),
        ("p.toml:8:1", "nothing of that name"),
    ] {
        assert!(said.contains(place) && said.contains(label), "{place} {label}:\n{said}");
    }
    assert!(said.contains("help: did you mean `small`?"), "{said}");
    let titles: Vec<&str> = report.mistakes().iter().map(|mistake| mistake.title()).collect();
    for lacking in ["times", "least", "width"] {
        let title = format!("`[app]` lacks the setting `{lacking}`");
        assert!(titles.contains(&title.as_str()), "{title}: {titles:#?}");
    }
    assert_eq!(titles.len(), 9, "and no others: {titles:#?}");
}

#[test]
fn a_plan_that_is_no_text_is_marked_at_its_first_bad_byte() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("latin.toml");
    fs::write(&path, b"drain = '1s'\n# caf\xe9\n[stage.split]\ninstances = 2\n").unwrap();
    let mut spec = comporta_plan::PlanSpec::new();
    spec.file(&path);
    let said = spec.check().unwrap_err().to_string();
    assert!(said.contains("latin.toml:2:6"), "{said}");
    assert!(said.contains("the byte 0xe9") && said.contains("save it as UTF-8"), "{said}");
    assert!(!spec.is_read());
}

#[test]
fn a_rate_without_end_is_no_bound_and_one_that_is_no_number_is_refused() {
    for rate in ["inf", "'unlimited'"] {
        let text = format!("[every]\nrate = 5\n[stage.read]\nrate = {rate}");
        let effective = validate(&[("p.toml", &text)]).unwrap();
        assert!(effective.settings().stages[0].rate.is_infinite(), "{rate}");
    }
    for (rate, place) in [("nan", "p.toml:2:8"), ("-inf", "p.toml:2:8"), ("0", "p.toml:2:8")] {
        let said = message(&[("p.toml", &format!("[stage.read]\nrate = {rate}"))]);
        assert!(said.contains(place), "{rate}: {said}");
    }
}

#[test]
fn a_first_wait_over_the_longest_and_a_cluster_without_a_name_are_marked() {
    let said = message(&[(
        "p.toml",
        "[stage.split]\nretry.tries = 3\nretry.backoff = '10s'\nretry.backoff_max = '1s'\n[cluster.'']\nthreads = 2",
    )]);
    assert!(said.contains("p.toml:3:17") && said.contains("is longer than the longest"), "{said}");
    assert!(said.contains("p.toml:5:10") && said.contains("cannot be the name"), "{said}");
}

#[test]
fn a_secret_inside_of_an_address_is_neither_printed_nor_quoted_nor_taken_back_as_its_mask() {
    let text = "[app]\nn = 'postgres://me:hunter2@db/words'\nlist = ['https://h/?token=hunter2']\n";
    let printed = validate(&[("p.toml", text)]).unwrap().to_string();
    assert!(!printed.contains("hunter2"), "{printed}");
    assert!(printed.contains("postgres://me:***@db/words"), "{printed}");
    let said = message(&[("printed.toml", &printed)]);
    assert!(said.contains("stands for a secret that was not printed"), "{said}");

    #[derive(Debug, serde::Deserialize)]
    struct Own {
        #[expect(dead_code, reason = "it is only read")]
        n: u64,
    }
    let mut spec = comporta_plan::PlanSpec::new();
    spec.text("p.toml", text);
    let said = spec.app::<Own>().unwrap_err().to_string();
    assert!(!said.contains("hunter2"), "{said}");
    assert!(said.contains("p.toml:2:5"), "{said}");
}

#[test]
fn a_name_that_toml_wants_in_quotes_is_suggested_in_quotes_and_is_one_mistake() {
    let mut graph = crate::program::graph();
    for (stage, name) in [(2, "take.r"), (3, "検査する段階")] {
        graph.stages[stage].name = name.into();
    }
    let tried = |flag: &str| {
        let mut spec = comporta_plan::PlanSpec::new();
        spec.set("--set", flag);
        let program = comporta_model::plan::Plan::new();
        spec.validate(&graph, &program, &crate::program::catalogue(), 2)
    };
    let report = tried("stage.take.r.instances=1").unwrap_err();
    assert_eq!(report.mistakes().len(), 1, "{report}");
    let said = report.to_string();
    assert!(said.contains("did you mean `\"take.r\"`?"), "{said}");
    assert!(tried("stage.\"take.r\".instances=2").is_ok());
    let said = tried("stage.tak.instances=1").unwrap_err().to_string();
    assert!(!said.contains("did you mean `take.r`"), "{said}");
    let report = tried("stage.take.x.instances=1").unwrap_err();
    assert_eq!(report.mistakes().len(), 2, "{report}");

    assert!(tried("stage.検査する段階.batch=2").is_ok(), "there is no other way to read it");
    assert!(tried("stage.検査する段階.queue.when_full=reject").is_ok());
    let report = tried("stage.検査 段階.queue.when_full=reject").unwrap_err();
    assert_eq!(report.mistakes().len(), 1, "{report}");
    assert!(!report.to_string().contains("\"reject\""), "{report}");
}

#[test]
fn what_cannot_be_read_hides_no_other_mistake_and_makes_none() {
    let text = "[stage.show]\nqueue.capacity = 18446744073709551615\npriority = 99999999999\n\
                [stage.log]\nqueue.capacity = '${NO_SUCH}'\n\
                [cluster.main]\npolicy = { name = 'seda', threads = 18446744073709551615 }\n\
                [stage.shwo]\ninstances = 2\n[connector.'split -> nope']\nwhen_full = 'block'\n";
    let report = validate(&[("p.toml", text)]).unwrap_err();
    let titles: Vec<_> = report.mistakes().iter().map(|mistake| mistake.title()).collect();
    let range = "this number is out of range";
    assert_eq!(
        titles,
        [
            range,
            "`stage.show.priority`: `99999999999` does not fit here",
            "the variable `NO_SUCH` is not set",
            range,
            "the program has no stage `shwo`",
            "the program has no connector `split -> nope`",
        ],
        "{report}"
    );
    let expected = "from -9,223,372,036,854,775,808 to 9,223,372,036,854,775,807";
    assert!(report.to_string().contains(expected), "{report}");
}

#[test]
fn operators_that_were_taken_for_a_part_of_a_name_are_told_apart() {
    let mut graph = crate::program::graph();
    graph.stages[2].name = "split-all".into();
    for (set, meant) in [
        ("all-log", Some("all - log")),
        ("show*log", Some("show * log")),
        ("show+split-all-log", Some("show + split-all - log")),
        ("all-nope", None),
        ("nope", None),
    ] {
        let mut spec = comporta_plan::PlanSpec::new();
        spec.text("p.toml", format!("[cluster.a]\nstages = '{set}'"));
        let program = comporta_model::plan::Plan::new();
        let said = spec
            .validate(&graph, &program, &crate::program::catalogue(), 2)
            .expect_err("a bad plan")
            .to_string();
        let hint = "operators have blanks around them";
        match meant {
            Some(meant) => assert!(said.contains(&format!("{hint}: `{meant}`")), "{said}"),
            None => assert!(!said.contains(hint), "{said}"),
        }
    }
}

#[test]
fn what_is_suggested_is_in_the_list_and_a_text_is_quoted() {
    let said = message(&[("--policy", "cluster.main.policy=foo")]);
    assert!(said.contains("no policy `foo`") && !said.contains("`fifo`"), "{said}");
    let said = message(&[("--policy", "cluster.main.policy=seda(threads=)")]);
    assert!(said.contains("`threads` of `seda` is \"\""), "{said}");
}
