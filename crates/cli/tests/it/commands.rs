//! Every command, as a person types it; `squares` is a program with arguments and settings of its
//! own. Nothing is run that does not have to be.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// What a command printed and how it left.
struct Done {
    out: String,
    err: String,
    code: Option<i32>,
}

fn squares(args: &[&str]) -> Done {
    shown("squares", args)
}

fn shown(program: &str, args: &[&str]) -> Done {
    let output = Command::new(env!("CARGO_BIN_EXE_shown"))
        .env("COMPORTA_SHOWN", program)
        .env("SQUARES", "4")
        .env_remove("NO_SUCH")
        .args(args)
        .output();
    let Output { status, stdout, stderr } = output.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { out: text(stdout), err: text(stderr), code: status.code() }
}

/// The same with something on standard input.
fn piped(program: &str, args: &[&str], input: &str) -> Done {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shown"))
        .env("COMPORTA_SHOWN", program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes()); // it may not read it
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { out: text(stdout), err: text(stderr), code: status.code() }
}

fn file(name: &str, text: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("commands");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn help_says_what_the_program_is_for_and_what_can_be_done() {
    let done = squares(&["--help"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
    assert!(done.out.starts_with("Prints squares\n"), "{}", done.out);
    for word in [
        "run",
        "check",
        "graph",
        "plan",
        "compare",
        "policies",
        "admissions",
        "completions",
        "Exit codes",
        "143",
    ] {
        assert!(done.out.contains(word), "{word}\n{}", done.out);
    }
    let run = squares(&["run", "--help"]);
    assert!(run.out.starts_with("Run the program"), "{}", run.out);
    for word in ["--count <N>", "--plan <FILE>", "--set <KEY=VALUE>", "--for <TIME>", "--json"] {
        assert!(run.out.contains(word), "{word}\n{}", run.out);
    }
}

#[test]
fn names_that_cannot_be_are_shown_without_what_a_terminal_obeys_and_shortened() {
    let done = shown("rude", &["check"]);
    assert_eq!(done.code, Some(2));
    assert!(
        done.err.contains("`\\u{1b}[2J\\r\\u{7}` cannot be the name of a stage"),
        "{}",
        done.err
    );
    assert!(!done.err.replace('\n', "").contains(char::is_control), "{:?}", done.err);
    assert!(done.err.lines().count() >= 4, "{}", done.err);
    assert!(done.err.lines().all(|line| line.len() < 200), "{}", done.err);
    let done = squares(&["--set", "stage.\"a\\u001b[2J\".instances=2"]);
    assert_eq!(done.code, Some(2));
    assert!(!done.err.replace('\n', "").contains(char::is_control), "{:?}", done.err);
}

#[test]
fn a_value_that_cannot_be_read_hides_no_name_that_is_not_there() {
    for wrong in ["18446744073709551615", "'${NO_SUCH}'", "99999999999"] {
        let plan = format!("[stage.show]\npriority = {wrong}\n[stage.shwo]\ninstances = 2\n");
        let done = squares(&["check", "--plan", file("hides.toml", &plan).to_str().unwrap()]);
        assert_eq!(done.code, Some(2));
        assert!(done.err.contains("hides.toml:2:1"), "{}", done.err);
        assert!(done.err.contains("the program has no stage `shwo`"), "{}", done.err);
    }
}

#[test]
fn a_minus_is_standard_input_where_a_plan_or_failed_events_are_read() {
    let done = piped("squares", &["--count", "1", "-q", "--plan", "-"], "[app]\ntimes = 7\n");
    assert_eq!((done.code, done.out.as_str()), (Some(0), "7\n"), "{}", done.err);
    let done = piped("squares", &["check", "--plan", "-"], "drain = 3\n");
    assert!(done.err.contains("standard input:1:9"), "{}", done.err);
    let done = piped("squares", &["plan", "--diff", "-"], "drain = '7s'\n");
    assert!(done.out.contains("7s"), "{}{}", done.out, done.err);
    let events = "{\"stage\":\"show\",\"event\":5}\n{\"stage\":\"square\",\"event\":3}\n";
    let done = piped("squares", &["--replay", "-"], events);
    let mut out: Vec<_> = done.out.lines().collect();
    out.sort_unstable();
    assert_eq!((done.code, out), (Some(0), vec!["5", "9"]), "{}", done.err);
    for (args, why) in [
        (&["--replay", "-", "--plan", "-"][..], "`--plan -` and `--replay -`"),
        (&["plan", "-p", "-", "--diff", "-"], "`--plan -` and `--diff -`"),
        (&["compare", "-p", "-"], "every run of a comparison reads the plan anew"),
        (&["--failures", "-"], "standard output is the program's own"),
    ] {
        let done = piped("squares", args, "");
        assert_eq!(done.code, Some(2), "{}", done.err);
        assert!(done.err.contains(why), "{}", done.err);
        assert!(!PathBuf::from("-").exists());
    }
}

#[test]
fn a_picture_of_a_kind_that_is_not_drawn_is_refused() {
    for name in ["g.png", "g.JPG", "g.pdf"] {
        let path = file(name, "");
        for verb in ["graph", "compare"] {
            let done = squares(&[verb, "-o", path.to_str().unwrap()]);
            assert_eq!(done.code, Some(2), "{}", done.err);
            assert!(done.err.contains("ends in `.svg`"), "{}", done.err);
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    }
    let path = file("g.SVG", "");
    assert_eq!(squares(&["graph", "-o", path.to_str().unwrap()]).code, Some(0));
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("<svg"));
}

#[test]
fn one_thread_is_one_thread() {
    let done = shown("dotted", &["--policy", "seda(threads=1)", "--explain"]);
    assert!(done.err.contains(" with 1 thread\n"), "{}", done.err);
}

#[test]
fn what_a_warning_recommends_is_accepted() {
    let done = shown("dotted", &["check", "--policy", "seda"]);
    let advice = "`stage.\"take.r\".instances=1`";
    assert!(done.out.contains(advice), "{}{}", done.out, done.err);
    let done = shown("dotted", &["check", "--policy", "seda", "--set", advice.trim_matches('`')]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(!done.out.contains(advice), "{}", done.out);
}

#[test]
fn without_a_command_the_program_is_run_with_its_own_arguments() {
    let done = squares(&["--count", "3", "--quiet"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "1\n4\n9\n"));
    let done = squares(&["run", "--count", "2", "-q", "--threads", "1", "--policy", "fifo"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "1\n4\n"));
}

#[test]
fn the_programs_own_section_reaches_the_program() {
    let plan = file("own.toml", "[app]\ntimes = '${SQUARES}'\n[stage.show]\nqueue.capacity = 5");
    let done = squares(&["--count", "2", "-q", "--plan", plan.to_str().unwrap()]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "4\n16\n"), "{}", done.err);
    let done = squares(&["--count", "1", "-q", "--set", "app.times=7"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "7\n"), "{}", done.err);
    let done = squares(&["--set", "app.tims=7"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("did you mean `times`?"), "{}", done.err);
}

#[test]
fn check_says_that_the_plan_fits_or_why_it_does_not() {
    let done = squares(&["check"]);
    assert_eq!(done.code, Some(0));
    assert_eq!(done.out, "squares: 3 stages, 2 connectors, 1 cluster: the plan fits the program\n");
    let plan = file("slip.toml", "[stage.sqare]\ninstances = 2\n[cluster.main]\nthread = 3\n");
    let done = squares(&["check", "-p", plan.to_str().unwrap(), "--set", "every.batch=none"]);
    assert_eq!((done.code, done.out.as_str()), (Some(2), ""));
    for word in [
        "slip.toml:1:8",
        "did you mean `square`?",
        "slip.toml:4:1",
        "did you mean `threads`?",
        "--> --set:1:13",
        "`none` does not fit here",
    ] {
        assert!(done.err.contains(word), "{word}\n{}", done.err);
    }
    let done = squares(&["check", "--policy", "seda(threads=700)"]);
    assert_eq!((done.code, done.out.as_str()), (Some(2), ""));
    let told = "error: the policy `seda(capacity=100, instances=0, shed=false, threads=700)` of `main` could not start: the number";
    assert!(done.err.starts_with(told), "{}", done.err);
    // Where a policy gives up the order of a stage, it is named; saying so keeps it.
    let done = squares(&["check", "--policy", "seda(threads=3)"]);
    assert_eq!(done.code, Some(0));
    let told = "warning: the policy `seda` gives `show` 3 instances, so its events may overtake each \
                other: `stage.show.instances=1` keeps them in order\n";
    assert!(done.out.contains(told), "{}", done.out);
    assert!(squares(&["run", "--policy", "seda(threads=3)"]).err.contains(told));
    let kept = ["--policy", "seda", "--set", "stage.show.instances=1"];
    assert!(!squares(&[&["check"], &kept[..]].concat()).out.contains("`show`"));
    assert!(!squares(&[&["run"], &kept[..]].concat()).err.contains("gives `show`"));
    // Threads that a stage has no instances for are named too.
    let few = ["--policy", "seda(threads=3)", "--set", "stage.show.instances=2"];
    let told = "warning: the policy `seda` gives `show` 3 threads, but it has 2 instances: \
                `stage.show.instances=3` uses them all\n";
    assert!(squares(&[&["check"], &few[..]].concat()).out.contains(told));
    assert!(squares(&[&["run"], &few[..]].concat()).err.contains(told));
    let done = squares(&["check", "--plan", "no/such.toml"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("`no/such.toml` cannot be read"), "{}", done.err);
}

#[test]
fn a_program_is_not_built_from_a_variable_that_is_not_set() {
    let done = squares(&["--count", "0", "--set", "app.times=${NO_SUCH}"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("the variable `NO_SUCH` is not set"), "{}", done.err);
    assert!(!done.err.contains("no squares of nothing"), "it was built: {}", done.err);
}

#[test]
fn wrong_usage_leaves_with_2_and_nothing_runs() {
    for args in [&["run", "--no-such"][..], &["run", "--count", "many"], &["--for", "soon"]] {
        let done = squares(args);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{args:?}");
        assert!(done.err.contains("--help"), "{}", done.err);
    }
    let done = squares(&["--policy", "lifo"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("there are `stealing`, `single`"), "{}", done.err);
    let done = squares(&["--policy", "single(threads=2)"]);
    assert!(done.err.contains("`single` has no parameter `threads`"), "{}", done.err);
}

#[test]
fn what_the_policy_did_is_told_with_its_reason_if_asked_for() {
    let done = squares(&["run", "--count", "2", "--policy", "seda(threads=3)", "--explain"]);
    assert!(done.err.contains("main: 0.0"), "{}", done.err);
    assert!(done.err.contains("seda (start): a new pool `main-1` with 3 threads"), "{}", done.err);
    let plain = squares(&["run", "--count", "2", "--policy", "seda(threads=3)"]);
    assert!(!plain.err.contains("a new pool"), "{}", plain.err);
    let two = ["--set", "cluster.side.stages=show", "--set", "cluster.side.policy=seda"];
    let two = [&["run", "--count", "2", "--policy", "seda", "--explain"][..], &two].concat();
    let told = squares(&two).err;
    for cluster in ["main", "side"] {
        let pools = |line: &&str| line.starts_with(cluster) && line.contains("a new pool");
        assert_eq!(told.lines().filter(pools).count(), 1, "each cluster's once:\n{told}");
    }
    let none = squares(&["run", "--count", "2", "--policy", "single", "--explain"]);
    assert!(none.err.contains("the policy changed nothing"), "{}", none.err);
    let json = squares(&["run", "--count", "2", "--policy", "srpt", "--json"]).out;
    let json: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!(json["decisions"][0]["call"], "start", "{json}");
    assert!(json["decisions"][0]["did"].as_str().unwrap().contains("has priority"), "{json}");
}

#[test]
fn the_graph_is_drawn_with_what_the_plan_says_of_it() {
    let done = squares(&["graph", "--set", "stage.square.instances=2"]);
    for word in ["numbers", "square", "x2", "show", "►"] {
        assert!(done.out.contains(word), "{word}\n{}", done.out);
    }
    let ascii = squares(&["graph", "--ascii"]).out;
    assert!(ascii.is_ascii() && ascii.contains("numbers"), "{ascii}");
    let svg = squares(&["graph", "--svg"]).out;
    roxmltree::Document::parse(&svg).unwrap();
    assert!(squares(&["graph", "--dot"]).out.starts_with("digraph"));
}

#[test]
fn blocking_stages_are_shown_with_their_threads() {
    let check = shown("blocking", &["check", "--set", "blocking.threads=3"]).out;
    let told = "blocking, on 3 threads of their own (`blocking.threads`): `store`\n";
    assert!(check.contains(told) && check.contains("2 clusters"), "{check}");
    let plan = shown("blocking", &["plan"]).out;
    assert!(plan.contains("[blocking]\n") && plan.contains("threads = 16"), "{plan}");
    let graph = shown("blocking", &["graph", "--ascii"]).out;
    assert!(graph.contains("blocking"), "{graph}");
    let none = shown("plain", &["check", "--set", "blocking.threads=3"]);
    assert!(none.err.contains("`blocking.threads` is of no use"), "{}", none.err);
    assert!(!shown("plain", &["check"]).out.contains("blocking"));
    assert_eq!(shown("blocking", &["run", "--quiet"]).code, Some(0));
}

#[test]
fn the_plan_is_printed_read_back_and_compared() {
    let printed = squares(&["plan", "--threads", "3", "--batch", "5"]).out;
    assert!(printed.contains("threads = 3           # --threads"), "{printed}");
    assert!(printed.contains("# --batch, [every]"), "{printed}");
    let path = file("printed.toml", &printed);
    let path = path.to_str().unwrap();
    let alike = squares(&["plan", "--threads", "3", "--batch", "5", "--diff", path]);
    assert_eq!(alike.out, "the plans are alike\n");
    let other = squares(&["plan", "--threads", "4", "--batch", "5", "--diff", path]);
    let expected = "cluster.main.threads\n  - 4  # --threads\n  + 3  # ";
    assert!(other.out.starts_with(expected), "{}", other.out);
    let said = squares(&["plan", "--threads", "3", "--said"]).out;
    assert!(said.contains("threads = 3  # --threads") && !said.contains("default\n"), "{said}");
    let keys = squares(&["plan", "--keys"]).out;
    assert!(keys.contains("stage.NAME.queue.capacity") && keys.contains("connector."), "{keys}");
}

#[test]
fn policies_and_completions_are_listed() {
    let own = squares(&["policies", "mine"]).out;
    assert!(own.starts_with("mine: a policy of its own"), "{own}");
    let admissions = squares(&["admissions"]).out;
    assert!(
        admissions.contains("codel") && admissions.contains("stage.STAGE.admission"),
        "{admissions}"
    );
    let codel = squares(&["admissions", "codel"]).out;
    assert!(codel.contains("Nichols") && codel.contains("[default: 5ms]"), "{codel}");
    assert_eq!(squares(&["admissions", "codle"]).code, Some(2));
    let policies = squares(&["policies"]).out;
    assert!(policies.contains("stealing") && policies.contains("also called fifo"), "{policies}");
    for shell in ["bash", "zsh", "fish"] {
        let done = squares(&["completions", shell]);
        assert!(done.out.contains("threads") && done.out.contains("count"), "{shell}");
    }
}

#[test]
fn a_program_that_cannot_be_built_says_why() {
    let done = squares(&["--count", "0"]);
    assert_eq!((done.code, done.out.as_str()), (Some(2), ""));
    assert_eq!(done.err, "error: no squares of nothing\n");
}

#[test]
fn a_mistyped_command_is_no_argument_of_the_program() {
    let done = squares(&["chekc"]);
    assert_eq!(done.code, Some(2));
    assert!(
        done.err.contains("there is no command `chekc`: did you mean `check`?"),
        "{}",
        done.err
    );
    for help in [&["help"][..], &["help", "graph"]] {
        let done = squares(help);
        assert_eq!(done.code, Some(0));
        assert!(done.out.contains("Usage: "), "{}", done.out);
    }
    assert!(squares(&["help", "graph"]).out.contains("--svg"));
}

#[test]
fn a_program_without_a_description_shows_none() {
    let output = Command::new(env!("CARGO_BIN_EXE_shown"))
        .env("COMPORTA_SHOWN", "plain")
        .arg("--help")
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.starts_with("Usage: shown"), "{out}");
}

#[test]
fn where_names_clash_the_programs_own_options_go_first_and_ours_are_still_there() {
    let run = |kind: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shown"));
        let output = command.env("COMPORTA_SHOWN", kind).args(args).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), err)
    };
    let plan = file("clash.toml", "[stage.show]\ninstances = 0");
    assert_eq!(run("clash", &["check", "--plan", "its own"]).0, Some(0));
    let (code, err) = run("clash", &["check", "--comporta-plan", plan.to_str().unwrap()]);
    assert_eq!(code, Some(2));
    assert!(err.contains("clash.toml:2:13"), "{err}");
    // `-p` is the program's own here.
    let (code, err) = run("short", &["check", "-p", "7", "--threads", "2"]);
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn flags_are_about_the_cluster_that_takes_the_rest_also_if_the_program_names_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shown"));
    command.env("COMPORTA_SHOWN", "squares").env("COMPORTA_SHOWN_FAST", "1");
    let output = command.args(["plan", "--threads", "3", "--policy", "srpt"]).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    let (out, err) = (out.unwrap(), err.unwrap());
    assert!(out.contains("[cluster.fast]") && out.contains("# --threads"), "{out}{err}");
    assert!(!out.contains("[cluster.main]"), "{out}");
}

#[test]
fn what_is_refused_ends_with_json_too_where_it_is_asked_for() {
    for args in [
        &["--json", "--set", "stage.sqare.instances=2"][..],
        &["--json", "--set", "app.tims=2"],
        &["--json", "--count", "0"],
    ] {
        let done = squares(args);
        assert_eq!(done.code, Some(2), "{args:?}");
        let line = done.out.lines().last().unwrap_or_default();
        assert!(line.starts_with(r#"{"app":"","ended":"refused","#), "{args:?}: {}", done.out);
        assert!(line.contains(r#""exit_code":2,"#) && line.ends_with('}'), "{line}");
        assert!(!line.contains(r#""problems":[]"#) && !done.err.is_empty(), "{line}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shown"));
    command.env("COMPORTA_SHOWN", "squares").arg("plan").stdout(writer);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_is_told_and_leaves_with_1() {
    let full = |args: &[&str]| {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_shown"));
        command.env("COMPORTA_SHOWN", "plain").args(args).stdout(full);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for args in [&["--json"][..], &["run", "--json", "-q"], &["plan"], &["graph"], &["--help"]] {
        let (code, said) = full(args);
        assert_eq!(code, Some(1), "{args:?}: {said}");
        assert!(said.starts_with("error: standard output cannot be written"), "{args:?}: {said}");
    }
    // Why it was refused matters more.
    let (code, said) = full(&["--json", "--set", "stage.shwo.instances=2"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("no stage `shwo`") && said.contains("cannot be written"), "{said}");
}

#[test]
fn a_report_that_nobody_reads_ends_as_other_output_does() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shown"));
    command.env("COMPORTA_SHOWN", "plain").arg("--json").stdout(writer);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.as_str()), (Some(141), ""));
}

#[test]
fn a_drawing_goes_where_it_is_told_and_the_name_of_the_file_tells_its_kind() {
    let svg = file("drawn.svg", "");
    let to = |args: &[&str], path: &PathBuf| {
        let done = squares(&[&["graph"], args, &["-o", path.to_str().unwrap()]].concat());
        assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "", ""));
        std::fs::read_to_string(path).unwrap()
    };
    assert_eq!(to(&[], &svg), squares(&["graph", "--svg"]).out);
    assert_eq!(to(&["--dot"], &svg), squares(&["graph", "--dot"]).out, "what is said goes first");
    assert_eq!(to(&[], &file("drawn.dot", "")), squares(&["graph", "--dot"]).out);
    assert_eq!(to(&[], &file("drawn.txt", "")), squares(&["graph"]).out);
    assert_eq!(squares(&["graph", "-o", "-"]).out, squares(&["graph"]).out);
    let done = squares(&["graph", "-o", "/no/such/folder/a.svg"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.starts_with("error: /no/such/folder/a.svg: "), "{}", done.err);
}

#[test]
fn a_program_is_drawn_and_checked_without_the_arguments_that_only_a_run_needs() {
    for verb in ["graph", "check", "plan"] {
        let done = shown("needy", &[verb, "--owner", "me"]);
        assert_eq!(done.code, Some(0), "{verb}: {}", done.err);
        assert!(done.out.contains(if verb == "check" { "needy" } else { "lines" }), "{}", done.out);
        let note = "note: arguments are missing; these stand in: `/dev/null/FILE` for <FILE>, `1s` for --wait <WAIT>\n";
        assert_eq!(done.err, note, "{verb}");
    }
    assert_eq!(shown("needy", &["graph", "a", "--wait", "2s", "--owner", "me"]).err, "");
    for args in [&["graph", "--early"][..], &[], &["compare"], &["graph", "--wait", "late"]] {
        let done = shown("needy", args);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{args:?}: {}", done.err);
    }
    let early = shown("needy", &["graph", "--early", "--owner", "me"]).err;
    assert!(early.contains("required arguments were not provided"), "{early}");
    assert!(early.contains("<FILE>") && early.contains("--wait"), "{early}");
}
