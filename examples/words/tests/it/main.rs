//! The command as its user meets it: output, messages, exit codes.

use std::process::{Command, Output};

fn words(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_words"));
    command.args(args).output().expect("the binary is built with its tests")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is text")
}

#[test]
fn a_file_is_counted_most_frequent_word_first() {
    let file = format!("{}/sea.txt", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&file, "The sea, the sea!\nThe gate.\n\nthe tide").unwrap();
    let output = words(&[&file, "--top", "3", "--threads", "2", "--policy", "srpt"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "        4 the\n        2 sea\n        1 gate\n");
    assert!(text(&output.stderr).contains("words: complete after "), "{}", text(&output.stderr));
}

#[test]
fn a_missing_file_is_one_line_and_exit_code_1() {
    let output = words(&["no/such/file.txt"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    let message = text(&output.stderr);
    assert!(message.starts_with("words: ") && message.contains("no/such/file.txt"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn what_cannot_be_read_to_its_end_is_said_and_exit_code_1() {
    let output = words(&[env!("CARGO_TARGET_TMPDIR")]); // a directory opens, but does not read
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("problem: "), "{}", text(&output.stderr));
}

#[test]
fn bad_usage_is_exit_code_2_with_a_hint() {
    for (args, hint) in [
        (&["--policy", "strp"][..], "did you mean `srpt`?"),
        (&["--generate", "many"], "--generate"),
        (&["--threads", "0"], "expected 1 to 1,024"),
        (&["a.txt", "--seed", "3"], "cannot be used with"),
    ] {
        let output = words(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(hint), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn one_seed_prints_one_result_whatever_the_plan() {
    let run = |more: &[&str]| {
        let output = words(&[&["--generate", "2000", "--seed", "5"], more].concat());
        assert_eq!(output.status.code(), Some(0));
        text(&output.stdout)
    };
    let one = run(&["--threads", "1", "--set", "stage.split.instances=1"]);
    assert_eq!(one.lines().count(), 10);
    assert_eq!(
        one,
        run(&["--threads", "3", "--set", "stage.count.instances=4", "--policy", "single"])
    );
}
