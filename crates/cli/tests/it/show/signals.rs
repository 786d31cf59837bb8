//! What signals do: the first drains, the second stops at once.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use super::started::{stage, start};

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
