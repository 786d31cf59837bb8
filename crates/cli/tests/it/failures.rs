//! What fails under `comporta::main`: `run --failures` writes it, `run --replay` feeds it back.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn picky(args: &[&str], file: &[&Path]) -> (Option<i32>, String, String) {
    let command = Command::new(env!("CARGO_BIN_EXE_shown"))
        .env("COMPORTA_SHOWN", "picky")
        .args(args)
        .args(file)
        .output();
    let Output { status, stdout, stderr } = command.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn fresh(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("failures");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    let _ = std::fs::remove_file(&path);
    path
}

fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn failed_events_are_written_with_their_reasons_and_fed_back_to_their_stages() {
    let path = fresh("written.jsonl");
    let (code, out, err) = picky(&["--failures"], &[&path]);
    assert_eq!((code, out.as_str()), (Some(1), "one\nthree\n"), "{err}");
    let told = format!("4 events that failed: in {}, for `--replay`\n", path.display());
    assert!(err.contains(&told), "{err}");
    assert!(err.contains("failed at `measure`: 2 × it shouts"), "{err}");
    assert!(
        err.contains("without the event: 1 of `local`: only local connectors lead there\n"),
        "{err}"
    );

    let lines = read(&path);
    let of = |stage: &str| lines.iter().filter(|line| line["stage"] == stage).collect::<Vec<_>>();
    let events: Vec<&Value> = of("measure").iter().map(|line| &line["event"]).collect();
    assert_eq!(events, [&json!("two!"), &json!("four!")]);
    assert_eq!(of("measure")[0]["reason"], "it shouts");
    assert_eq!(
        (&of("measure")[0]["kind"], &of("measure")[0]["attempts"]),
        (&json!("error"), &json!(1))
    );
    let as_it_came = json!({ "text": "seventeen", "length": null });
    assert_eq!(of("count")[0]["event"], as_it_came, "its stage had changed it when it failed");
    assert_eq!((of("local").len(), of("local")[0].get("event")), (1, None));
    assert!(of("local")[0]["missing"].as_str().unwrap().starts_with("only local connectors"));

    let (code, out, err) = picky(&["--mild", "--replay"], &[&path]);
    let mut shown: Vec<_> = out.lines().collect();
    shown.sort_unstable();
    assert_eq!((code, shown), (Some(0), vec!["four!", "seventeen", "two!"]), "{err}");
    assert!(
        err.contains("1 event to `count`, 2 events to `measure`; 1 line without an event"),
        "{err}"
    );

    // What fails again is written again, after what is there.
    let again = fresh("again.jsonl");
    for times in 1..=2 {
        let (code, ..) = picky(&["--replay", path.to_str().unwrap(), "--failures"], &[&again]);
        assert_eq!((code, read(&again).len()), (Some(1), 3 * times));
    }
}

#[test]
fn every_mistake_of_a_file_is_told_before_anything_runs() {
    let path = fresh("mistakes.jsonl");
    let lines = [
        r#"{"stage":"mesure","event":"two!"}"#,
        r#"{"stage":"count","event":{"text":1}}"#,
        "no JSON",
        r#"{"stage":"measure","event":"right"}"#,
        r#"{"stage":"local","event":"one"}"#,
    ];
    std::fs::write(&path, lines.join("\n")).unwrap();
    let (code, out, err) = picky(&["--replay"], &[&path]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    let place = |n| format!("error: {}:{n}: ", path.display());
    let told: Vec<_> = err.lines().collect();
    assert_eq!(told.len(), 4, "{err}");
    assert_eq!(told[0], place(1) + "the program has no stage `mesure`: did you mean `measure`?");
    assert!(told[1].starts_with(&(place(2) + "invalid type: integer `1`")), "{err}");
    assert!(told[2].starts_with(&place(3)), "{err}");
    assert_eq!(
        told[3],
        place(5) + "the events of `local` cannot be read: no `connect` leads to it"
    );
}

#[test]
fn a_file_cannot_be_read_and_written_at_once_nor_written_where_there_is_no_folder() {
    let path = fresh("same.jsonl");
    std::fs::write(&path, "{\"stage\":\"measure\",\"event\":\"a\"}\n").unwrap();
    let (code, _, err) = picky(&["--replay", path.to_str().unwrap(), "--failures"], &[&path]);
    assert_eq!(code, Some(2));
    assert!(err.contains("name the same file"), "{err}");
    let link = fresh("link.jsonl");
    std::fs::hard_link(&path, &link).unwrap();
    let (code, _, err) = picky(&["--replay", path.to_str().unwrap(), "--failures"], &[&link]);
    assert_eq!(code, Some(2));
    assert!(err.contains("name the same file"), "{err}");
    let (code, out, err) = picky(&["--failures"], &[Path::new("/no/such/folder/file")]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.starts_with("picky: `--failures /no/such/folder/file`: "), "{err}");
}

#[test]
fn a_file_that_breaks_off_is_appended_to_on_a_new_line_and_replayed_but_for_that_line() {
    let path = fresh("cut.jsonl");
    let whole = "{\"stage\":\"measure\",\"event\":\"a\"}\n\n";
    std::fs::write(&path, format!("{whole}{{\"stage\":\"measure\",\"event\":\"cu")).unwrap();
    let warning = format!("warning: {}:3: the line breaks off, and is skipped\n", path.display());
    for quiet in ["--mild", "-q"] {
        let (code, out, err) = picky(&[quiet, "--replay"], &[&path]);
        assert_eq!((code, out.as_str()), (Some(0), "a\n"), "{err}");
        assert!(err.contains(&warning), "{err}");
        assert_eq!(
            quiet == "--mild",
            err.contains("1 event to `measure`; 1 line skipped"),
            "{err}"
        );
    }

    picky(&["--failures"], &[&path]);
    let (code, _, err) = picky(&["--mild", "--replay"], &[&path]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains(&warning), "{err}");
    assert!(err.contains("3 events to `measure`"), "none is lost behind the part: {err}");
}

#[test]
#[cfg(unix)]
fn what_cannot_be_read_is_refused_at_once() {
    let zero = if cfg!(target_os = "linux") { "/dev/zero" } else { "/" };
    let (code, _, err) = picky(&["--replay"], &[Path::new(zero)]);
    assert_eq!(code, Some(2), "{err}");
    let (code, _, err) = picky(&["--replay"], &[Path::new("/")]);
    assert_eq!(code, Some(2));
    assert!(err.starts_with("error: /: Is a directory"), "{err}");
}

#[test]
fn a_mistake_is_told_with_its_line_and_no_other_place() {
    let path = fresh("blank.jsonl");
    let text = "\n\n{\"stage\":\"nope\",\"event\":1}\n{\"stage\":\"measure\",\"event\":5}\n[]]\n";
    std::fs::write(&path, text).unwrap();
    let (code, _, err) = picky(&["--replay"], &[&path]);
    assert_eq!(code, Some(2));
    let place = |n| format!("error: {}:{n}: ", path.display());
    let told: Vec<_> = err.lines().collect();
    assert_eq!(told.len(), 3, "{err}");
    assert!(told[0].starts_with(&place(3)), "{err}");
    assert_eq!(told[1], place(4) + "invalid type: integer `5`, expected a string");
    assert!(told[2].starts_with(&place(5)) && !told[2].contains("column"), "{err}");
}

#[test]
fn a_mistake_quotes_no_more_of_an_event_than_a_line_holds() {
    let path = fresh("wide.jsonl");
    let text = format!("{{\"stage\":\"{}\",\"event\":1}}\n", "x\\u001b".repeat(10_000));
    std::fs::write(&path, text).unwrap();
    let (code, _, err) = picky(&["--replay"], &[&path]);
    assert_eq!(code, Some(2));
    assert!(err.contains("no stage `x\\u{1b}x") && err.ends_with("…\n"), "{err}");
    assert!(err.len() < 400 + path.as_os_str().len(), "{err}");
}

#[test]
#[cfg(target_os = "linux")]
fn failures_that_cannot_be_written_are_a_problem() {
    let (code, _, err) = picky(&["--failures"], &[Path::new("/dev/full")]);
    assert_eq!(code, Some(1));
    assert!(err.contains("4 failed events are not in it"), "{err}");
    assert!(!err.contains("for `--replay`"), "nothing is there: {err}");
}

#[test]
fn where_nothing_is_kept_the_summary_says_what_would_keep_it() {
    let (_, _, err) = picky(&[], &[]);
    assert!(err.contains("failed events are kept by `--failures FILE`\n"), "{err}");
    let (code, _, err) = picky(&["--mild"], &[]);
    assert_eq!(code, Some(0));
    assert!(!err.contains("--failures"), "{err}");
}

#[test]
fn what_goes_on_through_an_error_port_is_no_problem_of_the_run_and_is_drawn() {
    let caught = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shown"));
        let output = command.env("COMPORTA_SHOWN", "caught").args(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, said, told) = caught(&[]);
    assert_eq!(code, Some(0), "{told}");
    assert!(said.contains("`parse`: invalid digit found in string"), "{said}");
    assert!(told.contains("failed at `parse`: 1 × invalid digit"), "{told}");
    assert!(!told.contains("--failures"), "they are not lost: {told}");
    let (_, drawn, _) = caught(&["graph"]);
    assert!(drawn.contains("errors"), "{drawn}");
    let rule = "connector.'parse.errors -> dead'.when_full='drop-newest'";
    let (code, _, told) = caught(&["check", "--set", rule]);
    assert_eq!(code, Some(0), "{told}");
}
