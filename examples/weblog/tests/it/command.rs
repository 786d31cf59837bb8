//! The command as its user meets it: output, messages, exit codes.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn weblog(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weblog"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary is built with its tests");
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is text")
}

fn scratch(name: &str) -> String {
    let path = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
    let _ = fs::remove_dir_all(&path);
    let _ = fs::remove_file(&path);
    path
}

/// Two visitors, one of them twice; one who probes; one line of rubbish.
fn log() -> String {
    let mut lines = vec![
        r#"10.0.0.1 - - [04/Mar/2024:08:00:00 +0000] "GET / HTTP/1.1" 200 1000 "-" "a""#.to_owned(),
        r#"2001:db8::2 - - [04/Mar/2024:08:00:10 +0000] "GET / HTTP/1.1" 304 - "-" "b \"c\"""#
            .to_owned(),
        "rubbish".to_owned(),
        r#"10.0.0.1 - - [04/Mar/2024:08:30:01 +0000] "GET /x HTTP/1.1" 200 500"#.to_owned(),
    ];
    lines.extend((0..20).map(|n| {
        format!(
            r#"203.0.113.9 - - [04/Mar/2024:08:31:{n:02} +0000] "GET /{n}/.env HTTP/1.1" 404 9"#
        )
    }));
    lines.join("\n")
}

fn has(output: &str, wanted: &[&str]) {
    wanted.iter().for_each(|wanted| assert!(output.contains(wanted), "no `{wanted}` in\n{output}"));
}

#[test]
fn a_log_is_told_and_its_intruder_raises_an_alarm() {
    let (file, out) = (scratch("told.log"), scratch("told"));
    fs::write(&file, log()).unwrap();
    let output = weblog(&[&file, "--out", &out, "--verify", "--threads", "2"], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    has(
        &text(&output.stdout),
        &[
            "ALARM 2024-03-04 08:31:00  203.0.113.9: 10 probes for what only intruders ask for within 9 s\n",
            "      | 203.0.113.9 - - [04/Mar/2024:08:31:00 +0000] \"GET /0/.env HTTP/1.1\" 404 9\n",
            "lines       24, 1 could not be read\n",
            "answers     2 2xx, 1 3xx, 20 4xx, 0 5xx, 0 1xx, 0 other; 1680 bytes\n",
            "sessions    4 of 3 clients, 5.8 requests each\n",
            "203.0.113.9      20 missing paths: /0/.env /1/.env /2/.env ...\n",
            "20 probes and 0 refusals, from 1 clients; alarms: 1\n",
            "verified: ",
        ],
    );
    has(&text(&output.stderr), &["weblog: complete after "]);
    let segment = fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
    let stored = fs::read_to_string(segment).unwrap();
    assert_eq!(stored.trim_end(), log());

    // A second run does not write over the first.
    let again = weblog(&[&file, "--out", &out], "");
    assert_eq!(again.status.code(), Some(2));
    has(&text(&again.stderr), &["00000.log from another run: name another folder"]);
}

#[test]
fn several_logs_are_several_sources() {
    let (first, second, out) = (scratch("a.log"), scratch("b.log"), scratch("several"));
    fs::write(&first, log()).unwrap();
    fs::write(&second, log()).unwrap();
    let output = weblog(&[&first, &second, "--out", &out, "--verify"], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // Each server has its intruder; the visitors of both are the same people.
    has(
        &text(&output.stdout),
        &["lines       48, 2 could not be read\n", "of 3 clients", "alarms: 2\n"],
    );
    has(&text(&output.stdout), &["verified: "]);
    has(&text(&output.stderr), &["source2", "window2"]);
    let output =
        weblog(&["--lines", "5000", "--sources", "3", "--verify", "--out", &scratch("made")], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    has(&text(&output.stdout), &["lines       5,000, ", "verified: "]);
}

#[test]
fn strange_line_ends_and_bytes_are_read_and_stored_as_plain_text() {
    let (file, out) = (scratch("strange.log"), scratch("strange"));
    let first = log().lines().next().unwrap().to_owned();
    let bytes = [first.as_bytes(), b"\r\n\n\xFF\xFE\r\n", first.as_bytes(), b"\r"].concat();
    fs::write(&file, bytes).unwrap();
    let output = weblog(&[&file, "--out", &out, "--verify"], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    has(&text(&output.stdout), &["lines       4, 2 could not be read\n", "verified: "]);
    let segment = fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
    let expected = format!("{first}\n\n\u{FFFD}\u{FFFD}\n{first}\n");
    assert_eq!(fs::read_to_string(segment).unwrap(), expected);
}

#[test]
fn standard_input_is_read_too_even_if_it_is_empty() {
    let output = weblog(&["-", "--out", &scratch("stdin")], &log());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    has(&text(&output.stdout), &["lines       24, 1 could not be read\n"]);
    let output = weblog(&["-", "--out", &scratch("nothing")], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    has(&text(&output.stdout), &["lines       0, 0 could not be read\n"]);
}

#[test]
fn refusals_a_day_apart_are_no_alarm_newest_first_and_seconds_apart_are_one_in_any_order() {
    let refusal = |day: u32, second: u32| {
        format!(r#"h - - [{day:02}/Mar/2024:08:00:{second:02} +0000] "GET /a HTTP/1.1" 401 9"#)
    };
    let days = (1..=10).rev().map(|day| refusal(day, 0)).collect::<Vec<_>>();
    let seconds = [12, 0, 3, 1, 2, 5, 4, 7, 6, 0].map(|second| refusal(4, second));
    for (name, lines, alarms) in [("days", days, 0), ("seconds", seconds.to_vec(), 1)] {
        let (file, out) = (scratch(&format!("{name}.log")), scratch(name));
        fs::write(&file, lines.join("\n")).unwrap();
        let output = weblog(&[&file, "--out", &out, "--verify"], "");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let output = text(&output.stdout);
        has(&output, &[&format!("alarms: {alarms}\n"), "verified: "]);
        let alarm = "ALARM 2024-03-04 08:00:00  h: 10 refusals within 12 s\n";
        assert_eq!(output.matches("ALARM").count(), alarms, "{output}");
        assert_eq!(output.matches(alarm).count(), alarms, "{output}");
    }
}

#[test]
fn what_cannot_be_done_is_said_in_a_line() {
    let blocked = scratch("blocked");
    fs::write(&blocked, "a file, not a folder").unwrap();
    let fine = scratch("fine");
    for (args, code, hint) in [
        (&["--lines", "10", "--out", &blocked][..], 1, "`persist` could not start"),
        (
            &["--lines", "10", "--window", "0", "--out", &fine],
            1,
            "a window of 0 events holds nothing",
        ),
        (&["-", "--verify"], 2, "--verify reads the log twice"),
        (&["--keep", "0"], 2, "use at least 1"),
        (&["--sources", "0"], 2, "use at least 1"),
        (&["-", "-"], 2, "standard input can be read once"),
        (&["--threads", "0"], 2, "expected 1 to 1,024"),
        (&["--lines", "many"], 2, "--lines"),
        (&["access.log", "--seed", "3"], 2, "cannot be used with"),
    ] {
        let output = weblog(args, "");
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        has(&text(&output.stderr), &[hint]);
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn a_log_that_cannot_be_read_is_refused_before_anything_is_made() {
    let (folder, out) = (env!("CARGO_TARGET_TMPDIR"), scratch("refused"));
    let a_folder = format!("{folder} is a folder: name a file, or `-` for standard input\n");
    for (log, hint) in [(folder, &*a_folder), ("no/such/access.log", "no/such/access.log: ")] {
        let output = weblog(&[log, "--out", &out], "");
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        has(&message, &[hint]);
        assert_eq!(text(&output.stdout), "", "{log}");
        assert!(!message.contains("complete") && !fs::exists(&out).unwrap(), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_with_a_name_is_read_to_its_end() {
    let (file, pipe, out) = (scratch("pipe.log"), scratch("pipe"), scratch("piped"));
    fs::write(&file, log()).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let copy = ["-c", "cat \"$0\" > \"$1\"", &file, &pipe];
    let mut writer = Command::new("sh").args(copy).spawn().unwrap();
    let output = weblog(&[&pipe, "--out", &out], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(writer.wait().unwrap().success());
    has(&text(&output.stdout), &["lines       24, 1 could not be read\n"]);
}

#[test]
fn the_plans_beside_the_program_fit_it() {
    for (plan, clusters) in [("one.toml", "1 cluster"), ("two.toml", "2 clusters")] {
        let path = format!("{}/{plan}", env!("CARGO_MANIFEST_DIR"));
        let output = weblog(&["check", "--plan", &path], "");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        has(&text(&output.stdout), &[clusters, "the plan fits the program"]);
        let out = scratch(plan);
        let run = ["--plan", &path, "--lines", "5000", "--verify", "-q", "--out", &out];
        let output = weblog(&run, "");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        has(&text(&output.stdout), &["verified: a plain loop"]);
    }
}

#[cfg(unix)]
#[test]
fn a_sigterm_in_the_middle_lets_what_is_begun_be_finished_and_every_event_is_accounted_for() {
    use std::io::{BufRead, BufReader, Read};
    let out = scratch("terminated");
    let mut child = Command::new(env!("CARGO_BIN_EXE_weblog"))
        .args(["run", "--lines", "1000000000", "--json", "--out", &out])
        .args(["--set", "drain=1m", "--keep", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap(); // an alarm: it is in the middle of its work
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
    let json: serde_json::Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(json["ended"], "drained");
    let stages = json["stages"].as_array().unwrap();
    let count = |name: &str, key: &str| {
        let stage = stages.iter().find(|stage| stage["name"] == name).unwrap();
        stage[key].as_u64().unwrap_or_else(|| panic!("no {key} in {stage}"))
    };
    for (from, to) in [("source", "window"), ("window", "copy"), ("filter", "alarm")] {
        assert_eq!(count(from, "emitted"), count(to, "arrived"), "{from} -> {to}");
    }
    for stage in stages.iter().filter(|stage| stage["name"] != "source") {
        assert_eq!(stage["arrived"], stage["handled"], "{stage}");
    }
    assert_eq!(count("window", "emitted"), count("persist", "handled"));
    has(&rest, &["sessions", "stored"]); // the digest of what was seen
}

#[test]
fn what_is_stored_in_a_folder_for_temporary_files_is_removed_again() {
    let temporary = scratch("temporary");
    fs::create_dir_all(&temporary).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weblog"))
        .args(["--lines", "2000", "--quiet"])
        .env("TMPDIR", &temporary)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    has(&text(&output.stdout), &["removed again: `--out DIR` keeps them\n"]);
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}
