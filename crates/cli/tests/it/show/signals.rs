//! What signals do: the first drains, the second stops at once.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use rustix::process::Signal;

use super::started::{stage, start, start_with};

#[test]
fn the_first_signal_drains_and_every_event_is_accounted_for() {
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
        let mut shown = start(&["flow", "--json"]);
        shown.until_said("flows");
        shown.signal(signal);
        let outcome = shown.end();
        assert_eq!(outcome.code(), Some(0), "{}", outcome.stderr);
        let json = outcome.json();
        assert_eq!((&json["ended"], &json["asked_by"]), (&"drained".into(), &name.into()));
        assert_eq!(json["adds_up"], true);
        let (sent, handled) =
            (&stage(&json, "numbers")["emitted"], &stage(&json, "show")["handled"]);
        assert_eq!(sent, handled);
        assert!(sent.as_u64().unwrap() >= 1_000);
        assert_eq!((&json["events_in"], &json["events_out"]), (sent, handled));
        assert_eq!(json["pools"][0]["threads"], 2);
    }
}

#[test]
fn a_drain_says_how_long_it_may_take_and_what_a_second_signal_does() {
    let mut shown = start(&["hold", "--drain", "90000"]);
    shown.until_said("holds");
    shown.signal(Signal::TERM);
    let told = shown.until_told("draining");
    assert_eq!(
        told,
        "shown: asked by SIGTERM: draining for at most 1 min 30 s; a second one stops at once\n"
    );
    shown.let_go();
    let outcome = shown.end();
    assert_eq!(outcome.code(), Some(0));
    assert!(outcome.stderr.starts_with("shown: drained on SIGTERM after "), "{}", outcome.stderr);
}

#[test]
fn the_second_signal_stops_at_once_and_the_exit_code_names_it() {
    for (first, second, code) in
        [(Signal::INT, Signal::TERM, 143), (Signal::TERM, Signal::INT, 130)]
    {
        let mut shown = start(&["hold", "--json", "--drain", "60000"]);
        shown.until_said("holds");
        shown.signal(first);
        shown.until_told("draining");
        shown.signal(second);
        let outcome = shown.end();
        assert_eq!(outcome.code(), Some(code), "{}", outcome.stderr);
        let json = outcome.json();
        assert_eq!((&json["ended"], &json["adds_up"]), (&"stopped".into(), &true.into()));
        assert!(stage(&json, "show")["left"].as_u64().unwrap() > 0);
        assert_eq!(json["stuck"][0], "show", "its handler still waits");
    }
}

#[test]
fn a_signal_while_it_starts_drains_it_as_soon_as_it_runs() {
    let mut shown = start(&["open", "--json"]);
    shown.until_said("opens");
    shown.signal(Signal::TERM);
    shown.until_told("still starting");
    shown.let_go();
    let outcome = shown.end();
    assert_eq!((outcome.code(), &outcome.json()["ended"]), (Some(0), &"drained".into()));
}

#[test]
fn a_second_signal_while_it_starts_ends_the_process() {
    let mut shown = start(&["open"]);
    shown.until_said("opens");
    shown.signal(Signal::TERM);
    shown.until_told("still starting");
    shown.signal(Signal::INT);
    let outcome = shown.end();
    assert_eq!(outcome.status.signal(), Some(2));
}

#[test]
fn a_program_that_waits_for_standard_input_drains_with_0_and_nothing_is_stuck() {
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP")] {
        if signal == Signal::HUP && ignores_hangups() {
            continue;
        }
        let mut shown = start(&["reads", "--json", "--stuck", "20"]);
        for line in ["one", "two"] {
            shown.write(line);
            shown.until_said(line);
        }
        shown.signal(signal);
        let outcome = shown.end();
        assert_eq!(outcome.code(), Some(0), "{}", outcome.stderr);
        let json = outcome.json();
        assert_eq!((&json["ended"], &json["asked_by"]), (&"drained".into(), &name.into()));
        assert_eq!(json["stuck"].as_array().map(Vec::len), Some(0), "{json}");
        assert_eq!(stage(&json, "show")["handled"], 2);
        assert!(!outcome.stderr.contains("has not returned"), "{}", outcome.stderr);
    }
}

/// Whether this process was started by `nohup`; then its children ignore hangups, too.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.is_some_and(|mask| mask.trim().ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f']))
}

#[test]
fn a_drain_shorter_than_the_patience_with_sources_is_a_drain() {
    let mut shown = start(&["reads", "--json", "--drain", "200"]);
    shown.write("one");
    shown.until_said("one");
    shown.signal(Signal::TERM);
    let outcome = shown.end();
    let json = outcome.json();
    assert_eq!((outcome.code(), &json["ended"]), (Some(0), &"drained".into()), "{json}");
}

#[test]
fn a_hangup_that_was_ignored_from_the_start_is_not_heard() {
    let mut shown = start_with(
        Command::new("nohup").arg(env!("CARGO_BIN_EXE_shown")).args(["reads", "--json"]),
    );
    shown.write("one");
    shown.until_said("one");
    shown.signal(Signal::HUP);
    shown.write("two");
    shown.until_said("two");
    shown.let_go();
    let outcome = shown.end();
    assert_eq!((outcome.code(), &outcome.json()["ended"]), (Some(0), &"complete".into()));
}
