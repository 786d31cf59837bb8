//! The command as its user meets it: the service answers over sockets, and misbehaves.

use std::process::{Command, Output};

fn enrich(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_enrich"));
    command.args(args).output().expect("the binary is built with its tests")
}

/// A run in which every visit was located.
fn complete(args: &[&str]) -> Output {
    let output = enrich(args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is text")
}

/// The lines of countries, which depend on the visits alone; how often it was asked does not.
fn countries(output: &Output) -> Vec<String> {
    let stdout = text(&output.stdout);
    let (asked, countries): (Vec<_>, Vec<_>) =
        stdout.lines().map(str::to_owned).partition(|line| line.starts_with("asked "));
    assert_eq!(asked.len(), 1, "{stdout}");
    countries
}

const SOME: [&str; 4] = ["--visits", "2000", "--addresses", "60"];

#[test]
fn whatever_the_service_does_the_result_is_that_of_one_that_behaves() {
    let with = |more: &[&str]| complete(&[&SOME[..], more].concat());
    let good = with(&["--slow", "0", "--failing", "0", "--unknown", "0"]);
    let expected = countries(&good);
    assert_eq!(expected.len(), 8, "{expected:?}");

    let failing = with(&["--slow", "0", "--failing", "1", "--unknown", "0"]);
    assert_eq!(countries(&failing), expected, "every first answer is an error");

    let late = ["--delay", "30000", "--set", "stage.locate.timeout=100ms"];
    let slow = with(&[&["--slow", "1", "--failing", "0", "--unknown", "0"][..], &late].concat());
    assert_eq!(countries(&slow), expected, "every first answer comes too late");
}

#[test]
fn a_service_that_refuses_some_is_asked_again_when_it_says() {
    // More than it answers in a second, and asked for at once.
    let hasty = ["--limit", "40", "--set", "app.rate=100000", "--set", "stage.locate.timeout=20s"];
    let good = ["--slow", "0", "--failing", "0", "--unknown", "0"];
    let output = complete(&[&SOME[..], &good, &hasty].concat());
    assert_eq!(countries(&output).len(), 8);
}

#[test]
fn addresses_that_the_service_does_not_know_fail_once_with_its_answer() {
    let output = enrich(&["--visits", "10", "--slow", "0", "--failing", "0", "--unknown", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(countries(&output).is_empty());
    let said = text(&output.stderr);
    assert!(said.contains("failed at `locate`: 10 × the service answers 404 Not Found"), "{said}");
    assert!(text(&output.stdout).contains("asked 10 times;"), "tried once each");
}

#[test]
fn the_plan_beside_it_says_what_the_program_does_without_one() {
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/enrich.toml");
    let output = enrich(&["plan", "--diff", plan]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // `[app]` of the program has no default that Comporta knows.
    let differs = text(&output.stdout);
    let keys: Vec<_> = differs.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(keys, ["app.rate", "app.cache"], "{differs}");
}

#[test]
fn a_rate_of_nothing_and_a_name_that_is_misspelt_are_refused() {
    let output = enrich(&["check", "--set", "app.rate=0"]);
    assert_ne!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("`rate`"), "{}", text(&output.stderr));
    let output = enrich(&["check", "--set", "app.rates=1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean `rate`?"), "{}", text(&output.stderr));
}
