//! `compare` on a real program, whose runs are processes: which events go where is not looked at,
//! and nothing is said about who wins.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shown"));
    command.env("COMPORTA_SHOWN", "compared").arg("compare").args(args);
    command
}

/// Standard output, standard error and the exit code.
fn compare(args: &[&str]) -> (String, String, Option<i32>) {
    let Output { status, stdout, stderr } = command(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    // What every comparison of a debug build begins with.
    let err = text(stderr);
    let debug = "warning: this is a debug build, and the figures of a release build (`cargo run --release`) may rank otherwise\n";
    let warned = cfg!(debug_assertions) && err.contains("warming up");
    assert_eq!(err.matches(debug).count(), usize::from(warned), "{err}");
    (text(stdout), err.replace(debug, ""), status.code())
}

fn place(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("compare");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// The report on the last line.
fn json(args: &[&str]) -> (Value, Option<i32>) {
    let (out, err, code) = compare(&[args, &["--json"]].concat());
    let last = out.lines().last().unwrap_or_else(|| panic!("nothing: {err}"));
    (serde_json::from_str(last).unwrap(), code)
}

#[test]
fn what_policies_do_that_may_surprise_is_said_once_before_anything_runs() {
    let several = ["--policies", "single, seda(threads=3)", "--threads", "1,2", "--rounds", "1"];
    let stub = ["--stub", "save", "--count=100", "--set", "stage.work.instances=2", "words"];
    let (out, err, code) = compare(&[&several[..], &stub[..]].concat());
    assert_eq!(code, Some(0), "{out}{err}");
    let warnings: Vec<&str> =
        err.lines().take_while(|line| line.starts_with("warning: ")).collect();
    let named = |text: &str| warnings.iter().filter(|warning| warning.contains(text)).count();
    assert_eq!(
        named("the policy `seda` gives `work` 3 threads, but it has 2 instances"),
        1,
        "{err}"
    );
    assert_eq!(named("so its events may overtake each other"), warnings.len() - 1, "{err}");
}

#[test]
fn two_policies_are_run_round_by_round_and_ranked() {
    let svg = place("two.svg");
    let svg_name = svg.to_str().unwrap();
    let (out, err, code) = compare(&[
        "--count=1000",
        "--policies",
        "srpt, single",
        "--threads",
        "1,2",
        "--rounds",
        "2",
        "--stub",
        "save",
        "-o",
        svg_name,
        "--progress",
        "always",
        "two",
        "words",
    ]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(err.lines().count(), 9, "one to warm up, and 2 x 2 x 2:\n{err}");
    assert!(err.starts_with("compared: warming up with "), "{err}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "compared: medians of 2 rounds, ranked by throughput");
    assert!(lines[2].starts_with("policy  threads  events/s  against the best"), "{out}");
    assert_eq!(out.matches("not proven: ").count(), 3, "{out}");
    assert!(out.contains("2 rounds cannot prove it: give `--rounds 6` or more."), "{out}");
    assert!(out.contains("\n# the best, for a plan:\ncluster.main.policy = \""), "{out}");
    assert!(out.contains("\ncluster.main.threads = "), "{out}");
    let svg = std::fs::read_to_string(svg).unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let elements = document.descendants().filter(|node| node.is_element());
    let texts: Vec<&str> = elements.filter_map(|node| node.text()).collect();
    for text in ["compared", "srpt, 1 thread", "single, 2 threads", "as fast as it goes"] {
        assert!(texts.contains(&text), "{text}: {texts:?}");
    }
    // One verdict: what the table says the chart says, too.
    let verdict = lines.iter().find(|line| line.contains("cannot prove it")).unwrap();
    assert!(texts.contains(verdict), "{verdict}: {texts:?}");
    let bars = texts.iter().filter(|text| text.ends_with("(not proven)")).count();
    assert_eq!(bars, 3, "{texts:?}");
    let about = "medians of 2 rounds, ranked by throughput; whiskers: range of all";
    assert!(texts.contains(&about), "{texts:?}");
}

#[test]
fn a_chart_can_go_to_standard_output_and_the_table_goes_to_standard_error() {
    for args in [&["--svg"][..], &["-o", "-"]] {
        let common =
            ["--count=100", "--policies", "srpt,single", "--rounds", "1", "--stub", "save"];
        let (out, err, code) = compare(&[&common[..], args].concat());
        assert_eq!(code, Some(0), "{err}");
        assert!(roxmltree::Document::parse(&out).is_ok(), "{out}");
        assert!(err.contains("medians of 1 round, ranked by throughput"), "{err}");
        assert!(err.starts_with("compared: warming up with "), "progress, a line each: {err}");
    }
}

#[test]
fn a_chart_and_a_report_cannot_both_go_to_standard_output() {
    let (json, code) = json(&["--svg", "--stub", "save"]);
    assert_eq!((code, &json["ended"]), (Some(2), &"refused".into()));
    let why = json["problems"][0].as_str().unwrap();
    assert!(why.starts_with("the chart and `--json` cannot both go to standard output"), "{why}");
}

#[test]
fn a_program_that_reads_standard_input_is_refused_with_a_sentence_after_one_run() {
    let output = Command::new(env!("CARGO_BIN_EXE_shown"))
        .env("COMPORTA_SHOWN", "lines")
        .args(["compare", "--policies", "srpt,single"])
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert_eq!(err.lines().count(), 2 + usize::from(cfg!(debug_assertions)), "{err}");
    assert!(err.contains("\nerror: no event came into the program. Each run of a comparison has an empty standard input"), "{err}");
}

#[test]
fn the_report_has_every_run_and_each_did_what_was_asked_of_it() {
    let args = [
        "--count=200",
        "--policies",
        "srpt,single",
        "--rounds",
        "2",
        "--allow-effects",
        "--load",
        "max,100k",
    ];
    let (json, code) = json(&args);
    assert_eq!(code, Some(0), "{json:#}");
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 8);
    for run in runs {
        assert_eq!((&run["numbers"]["events_out"], &run["failed"]), (&200.into(), &Value::Null));
        let elapsed = run["numbers"]["elapsed_s"].as_f64().unwrap();
        if run["load"].is_number() {
            assert!(elapsed >= 199.0 / 1e5, "no sooner than they are due: {run}");
        }
    }
    assert_eq!((&json["loads"][0]["load"], &json["loads"][1]["load"]), (&Value::Null, &1e5.into()));
    assert_eq!(json["loads"][1]["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn a_run_that_fails_is_a_row_with_its_reason_and_the_others_go_on() {
    let (out, err, code) = compare(&[
        "--count",
        "100",
        "--policies",
        "stealing,single,srpt",
        "--rounds",
        "1",
        "--stub=save",
        "--crash",
        "srpt",
        "--fail",
        "single",
    ]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("\nsrpt failed: ended by SIGABRT"), "{out}");
    assert!(out.contains("\nsingle failed: exit code 1: 1 failed at `work`: no threes\n"), "{out}");
    assert_eq!(out.matches("failed 1 of 1").count(), 2, "{out}");
    assert!(out.contains("cluster.main.policy = \"stealing\""), "{out}");
}

#[test]
fn effects_are_repeated_only_if_they_are_stubbed_or_allowed() {
    let (out, err, code) = compare(&["--count", "10"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    let told = "error: a comparison runs the program many times, and this stage has effects on the world outside: `save`\n  \
                = help: drop the events sent there with `--stub save`, or give `--allow-effects` if they may be repeated\n";
    assert_eq!(err, told);
    let (json, code) = json(&["--count", "10"]);
    assert_eq!((code, &json["ended"]), (Some(2), &"refused".into()));
    for (stub, why) in [
        ("sav", "the program has no stage `sav`"),
        ("numbers", "`numbers` is a source and has no stub"),
    ] {
        let (_, err, code) = compare(&["--count", "10", "--stub", stub]);
        assert_eq!(code, Some(2), "{stub}");
        assert!(err.contains(why), "{err}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    for (args, why) in [
        (&["--policies", "strp"][..], "there is no policy `strp`: did you mean `srpt`?"),
        (&["--policies", "single,seda(threads=700)"], "threads=700)` of `main` could not start"),
        (&["--policies", "a(b"], "a `(` is not closed"),
        (&["--threads", "0"], "expected 1 to 1,024"),
        (&["--load", "fast"], "`fast` is no load: use `max` or events a second"),
        (&["--rounds", "0"], "use 1 to 1000"),
        (&["-o", "/no/such/folder/chart.svg"], "/no/such/folder/chart.svg: "),
        (&["--plan", "/dev/null"], "`/dev/null` is no file: every run reads the plan anew"),
    ] {
        let (out, err, code) = compare(&[args, &["--stub", "save"]].concat());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}");
        assert!(err.contains(why), "{args:?}: {err}");
    }
}

#[test]
fn ctrl_c_ends_the_run_under_way_and_prints_what_there_is() {
    let pid = place("pid");
    let _ = std::fs::remove_file(&pid);
    mkfifoat(CWD, &pid, Mode::RUSR | Mode::WUSR).unwrap();
    let args = ["--stub", "save", "--policies", "srpt", "--pid", pid.to_str().unwrap()];
    let compare = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Read when the run has begun: it has no end of its own.
    let run: i32 = std::fs::read_to_string(&pid).unwrap().parse().unwrap();
    let of = |id: i32| Pid::from_raw(id).unwrap();
    assert!(test_kill_process(of(run)).is_ok());
    kill_process(of(compare.id().cast_signed()), Signal::INT).unwrap();
    let output = compare.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(test_kill_process(of(run)).is_err(), "the run still lives");
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.starts_with("compared: medians of 0 of 6 rounds, ranked by"), "{out}");
}

#[test]
fn a_program_without_end_is_compared_for_the_time_each_run_is_given() {
    let (json, code) =
        json(&["--stub", "save", "--policies", "srpt", "--rounds", "1", "--for", "300ms"]);
    assert_eq!(code, Some(0), "{json:#}");
    assert!(json["runs"][0]["numbers"]["elapsed_s"].as_f64().unwrap() >= 0.3);
}

#[test]
fn the_marks_are_shown_by_graph_and_check_and_a_stub_can_be_run() {
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shown"));
        let output = command.env("COMPORTA_SHOWN", "compared").args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(&["graph"]).contains("effects"));
    assert!(run(&["graph", "--stub", "save"]).contains("stub"));
    assert!(
        run(&["check"]).starts_with("effects on the world outside: `save`\ncompared: 3 stages")
    );
    assert!(
        run(&["check", "--stub", "save"])
            .starts_with("effects on the world outside: `save` (a stub stands in for it)\n")
    );
    let out = run(&["--count", "5", "--stub", "work", "--json"]);
    let json: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!((&json["events_out"], &json["stages"][2]["arrived"]), (&5.into(), &0.into()));
}
