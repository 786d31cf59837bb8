//! The commands as their user meets them: pictures, messages, exit codes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::{files, folder};

pub(crate) fn extrusion(out: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extrusion"));
    command.arg("--out").arg(out).args(args).output().expect("it is built with its tests")
}

fn data(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extrusion-data"));
    command.args(args);
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is text")
}

const STORM: [&str; 4] = ["--steps", "12", "--segments", "9"];

/// The storm, written to a file.
fn file(folder: &Path) -> String {
    let file = folder.join("storm.txt").display().to_string();
    assert!(data(&[&[&*file], &STORM[..]].concat()).status().unwrap().success());
    file
}

#[test]
fn a_storm_is_drawn_and_what_was_drawn_is_said() {
    let out = folder("storm");
    let output = extrusion(&out, &[&STORM[..], &["--every", "5", "--stats"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let names: Vec<_> = files(&out).into_keys().collect();
    assert_eq!(
        names,
        ["index.html", "step-00000000.svg", "step-00000005.svg", "step-00000010.svg"]
    );
    let said = text(&output.stdout);
    let page = out.join("index.html");
    let first = format!("steps drawn: 3 (27 segments): open {}\n", page.display());
    assert!(said.starts_with(&first), "{said}");
    assert!(said.contains(" at most, 4 allowed\nmost memory: "), "{said}");
    assert!(text(&output.stderr).contains("extrusion: complete after "));
}

#[test]
fn a_file_and_standard_input_are_drawn_like_the_storm_they_were_written_from() {
    let (storm, from_file, piped) = (folder("storm-a"), folder("storm-b"), folder("storm-c"));
    assert!(extrusion(&storm, &STORM).status.success());
    let file = file(&folder("data"));
    assert!(extrusion(&from_file, &[&file]).status.success());
    let mut data = data(&[&["-"], &STORM[..]].concat()).stdout(Stdio::piped()).spawn().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_extrusion"));
    command.arg("--out").arg(&piped).arg("-").stdin(data.stdout.take().unwrap());
    assert!(command.output().unwrap().status.success());
    assert!(data.wait().unwrap().success());
    assert_eq!(files(&storm).len(), 4);
    assert!(files(&storm) == files(&from_file), "from a file");
    assert!(files(&storm) == files(&piped), "from standard input");
}

#[test]
fn a_file_that_was_cut_is_drawn_as_far_as_it_goes() {
    let here = folder("cut");
    let file = file(&here);
    let whole = fs::read_to_string(&file).unwrap();
    let cut = whole.find("step 7 ").unwrap() + 40; // in the first node of the step
    fs::write(&file, &whole[..cut]).unwrap();
    let out = folder("cut-out");
    let output = extrusion(&out, &[&file, "--every", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(files(&out).len(), 7 + 1, "steps 0 to 6, and the page");
    let line = whole[..cut].lines().count();
    let message = format!("{file}:{line}: the file was cut: its last line has no end");
    assert!(text(&output.stderr).contains(&message), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("steps drawn: 7 (63 segments): "));
}

#[test]
fn what_cannot_be_read_is_one_line_and_exit_code_1() {
    let here = folder("unreadable");
    let bytes = here.join("bytes");
    fs::write(&bytes, [0xFF; 100_000]).unwrap();
    let bytes = bytes.display().to_string();
    for (file, hint) in [("no/such/file", "no/such/file: "), (&*bytes, "bytes:1: ")] {
        let output = extrusion(&here.join("out"), &[file]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stdout), "");
        let message = text(&output.stderr);
        assert!(message.starts_with("extrusion: ") && message.contains(hint), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_said_before_anything_runs() {
    let here = folder("no-folder");
    fs::write(here.join("file"), "").unwrap();
    let output = extrusion(&here.join("file").join("out"), &STORM);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("no-folder/file/out: "), "{message}");
    let output = data(&[&here.display().to_string()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("extrusion-data: "), "{}", text(&output.stderr));
}

#[test]
fn bad_usage_is_exit_code_2_with_a_hint() {
    let out = folder("usage");
    for (args, hint) in [
        (&["--sides", "2"][..], "3..=512"),
        (&["--every", "0"], "--every"),
        (&["--ahead", "0"], "--ahead"),
        (&["--segments", "0"], "use 1 to 99999"),
        (&["--thicken", "0"], "use a number above 0"),
        (&["--threads", "0"], "expected 1 to 1,024"),
        (&["storm.txt", "--seed", "3"], "cannot be used with"),
    ] {
        let output = extrusion(&out, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(hint), "{args:?}: {}", text(&output.stderr));
    }
    assert!(files(&out).is_empty());
}

#[test]
fn the_plans_beside_the_program_fit_it() {
    for (plan, clusters) in [("one.toml", "1 cluster"), ("two.toml", "2 clusters")] {
        let path = format!("{}/{plan}", env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_extrusion"));
        let output = command.args(["check", "--plan", &path]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains(clusters));
    }
}
