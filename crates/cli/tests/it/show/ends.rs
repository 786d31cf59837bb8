//! How a run ends without signals, and what it says then.

use rustix::process::Signal;

use super::started::{stage, start};

#[test]
fn a_program_that_comes_to_its_end_tells_what_failed_and_leaves_with_1_for_it() {
    let outcome = start(&["end"]).end();
    // What failed is missing from the result.
    assert_eq!((outcome.code(), outcome.stdout.as_str()), (Some(1), ""));
    let lines: Vec<_> = outcome.stderr.lines().collect();
    assert!(lines[0].starts_with("shown: complete after "), "{lines:#?}");
    assert!(lines[1].starts_with("1,000 events in ("), "{lines:#?}");
    let last: Vec<_> = lines.iter().rev().take(2).collect();
    assert_eq!(last[1], &"failed at `show`: 10 × no sevens");
    assert_eq!(last[0], &"failed events are kept by `--failures FILE`");
    assert!(!outcome.stderr.contains('\x1b'), "a pipe is not drawn on: {lines:#?}");

    let json = start(&["end", "--json"]).end().json();
    let failures = serde_json::json!([{ "stage": "show", "reason": "no sevens", "count": 10 }]);
    assert_eq!((&json["ended"], &json["failures"]), (&"complete".into(), &failures));
    assert_eq!(stage(&json, "show")["failed"], 10);
}

#[test]
fn what_is_quiet_says_nothing_if_nothing_is_wrong() {
    let outcome = start(&["flow", "--quiet", "--for", "20"]).end();
    assert_eq!(
        (outcome.stdout.replace("flows\n", ""), outcome.stderr.as_str()),
        (String::new(), "")
    );
    let outcome = start(&["end", "--quiet"]).end();
    assert_eq!(outcome.stderr, "shown: failed at `show`: 10 × no sevens\n");
    let outcome = start(&["fails", "--quiet"]).end();
    assert!(outcome.stderr.starts_with("shown: problem: "), "{}", outcome.stderr);
}

#[test]
fn after_its_time_a_program_is_drained_and_leaves_with_0() {
    let outcome = start(&["flow", "--json", "--for", "20"]).end();
    assert_eq!(outcome.code(), Some(0), "{}", outcome.stderr);
    let json = outcome.json();
    assert_eq!((&json["ended"], &json["asked_by"]), (&"drained".into(), &"--for".into()));
    assert_eq!(stage(&json, "show")["left"], 0);
    assert!(json["elapsed_s"].as_f64().unwrap() >= 0.02);
    assert!(outcome.stderr.contains("its time of 20 ms is over: draining for at most 10 s"));
}

#[test]
fn a_drain_whose_time_is_up_leaves_with_3_and_says_what_is_left() {
    let mut shown = start(&["hold", "--json", "--drain", "20"]);
    shown.until_said("holds");
    shown.signal(Signal::TERM);
    let outcome = shown.end();
    assert_eq!(outcome.code(), Some(3), "{}", outcome.stderr);
    let json = outcome.json();
    assert_eq!((&json["ended"], &json["adds_up"]), (&"timed_out".into(), &true.into()));
    assert!(stage(&json, "show")["left"].as_u64().unwrap() > 0);
    assert!(outcome.stderr.contains("not drained in time"), "{}", outcome.stderr);
}

#[test]
fn a_source_that_breaks_leaves_with_1_after_its_events_are_handled() {
    let outcome = start(&["fails", "--json"]).end();
    assert_eq!(outcome.code(), Some(1));
    let json = outcome.json();
    assert_eq!(
        (&json["ended"], &stage(&json, "show")["left"]),
        (&"source_failed".into(), &0.into())
    );
    assert!(json["problems"][0].as_str().unwrap().contains("the disk is full"), "{json}");
}

#[test]
fn a_source_that_cannot_be_opened_leaves_with_1_before_anything_runs() {
    let outcome = start(&["closed", "--json"]).end();
    assert_eq!(outcome.code(), Some(1));
    assert_eq!(outcome.json()["ended"], "not_started");
    assert!(outcome.stderr.starts_with("shown: `numbers` could not start: "), "{}", outcome.stderr);
}

#[test]
fn a_plan_that_does_not_fit_leaves_with_2_and_names_what_was_meant() {
    let outcome = start(&["misfit", "--json"]).end();
    assert_eq!(outcome.code(), Some(2));
    let fault = "the program has no stage `shwo`: did you mean `show`?";
    let json = outcome.json();
    assert_eq!((&json["ended"], &json["problems"][0]), (&"refused".into(), &fault.into()));
    assert_eq!(outcome.stderr, format!("shown: the plan: {fault}\n"));
}

#[test]
fn where_there_is_no_terminal_progress_that_is_asked_for_comes_as_lines() {
    let mut shown = start(&["flow", "--always"]);
    let line = shown.until_told(" in ");
    assert!(line.starts_with("shown  ") && line.contains("/s  out "), "{line}");
    assert!(!line.contains('\x1b'), "{line}");
    shown.signal(Signal::TERM);
    assert_eq!(shown.end().code(), Some(0));
}

#[test]
fn a_program_whose_output_nobody_reads_any_more_ends_quietly() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_shown"))
        .env("COMPORTA_SHOWN", "squares")
        .args(["--count", "1000000000000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "1\n");
    drop(stdout); // as `head -1` does
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn a_handler_that_does_not_return_is_named_while_it_is_waited_for() {
    let mut started = start(&["hold", "--stuck", "20"]);
    started.until_said("holds");
    let told = started.until_told("has not returned");
    let expected =
        "shown: a handler of `show` has not returned for 20 ms; another worker stands in\n";
    assert_eq!(told, expected);
    started.let_go();
    let outcome = started.end();
    assert_eq!(outcome.code(), Some(0), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("has not returned"), "it did, in the end: {}", outcome.stderr);
}
