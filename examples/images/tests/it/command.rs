//! The command as its user meets it: results, messages, exit codes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use images::files::name;

use crate::{damaged, files, folder, png};

fn images(out: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_images"));
    command.args(args).arg("--out").arg(out).output().expect("it is built with its tests")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is text")
}

fn has(output: &str, wanted: &[&str]) {
    wanted.iter().for_each(|wanted| assert!(output.contains(wanted), "no `{wanted}` in\n{output}"));
}

const FEW: [&str; 6] = ["--count", "4", "--width-max", "280", "--seed", "9"];

#[test]
fn captchas_are_drawn_once_and_treated() {
    let out = folder("command");
    let output = images(&out, &[&FEW[..], &["--verify", "--threads", "2"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    has(&said, &["4 of 4 images are in ", "4 were drawn first", "verified: 4 of 4 are"]);
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("4 images, 0.1 megapixels in "), "{last}");
    assert!(last.ends_with(" megapixels/s; failures: 0"), "{last}");
    has(&text(&output.stderr), &["images: complete after "]);
    let results = files(&out);
    assert_eq!(results.keys().cloned().collect::<Vec<_>>(), [0, 1, 2, 3].map(name));

    let again = images(&out, &FEW);
    assert!(!text(&again.stdout).contains("drawn"), "{}", text(&again.stdout));
    assert_eq!(files(&out), results);
}

#[test]
fn what_is_no_image_is_told_with_its_reason_and_counted() {
    let out = folder("command-damaged-out");
    let from = damaged("command-damaged");
    let output = images(&out, &[from.to_str().unwrap(), "--verify"]);
    assert_eq!(output.status.code(), Some(1));
    has(&text(&output.stderr), &["b.png: it cannot be decoded", "d.txt: neither PNG nor JPEG"]);
    has(&text(&output.stdout), &["3 of 5 images", "verified: 3 of 3", "; failures: 2\n"]);
}

#[test]
fn what_cannot_be_done_is_said_in_a_line() {
    let (out, empty, blocked) = (folder("fine"), folder("empty"), folder("b").join("blocked"));
    fs::write(&blocked, "a file, not a folder").unwrap();
    let same = out.to_str().unwrap();
    for (out, args, code, hint) in [
        (&out, &["no/such/folder"][..], 1, "no/such/folder: "),
        (&out, &[empty.to_str().unwrap()], 1, "there are no files in it"),
        (&out, &[same], 2, "results would lie among the images"),
        (&out, &["--width-max", "100"], 2, "use 256 to 2560"),
        (&out, &["--level", "256"], 2, "--level"),
        (&out, &["folder", "--seed", "3"], 2, "cannot be used with"),
        (&blocked, &["--count", "1"], 1, "blocked"),
    ] {
        let output = images(out, args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        has(&text(&output.stderr), &[hint]);
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn the_plans_beside_the_program_fit_it_with_and_without_a_folder() {
    let from = folder("plans-from");
    (0..3).for_each(|n| fs::write(from.join(format!("{n}.png")), png(n)).unwrap());
    for (plan, clusters) in [("one.toml", "1 cluster"), ("two.toml", "2 clusters")] {
        let path = format!("{}/{plan}", env!("CARGO_MANIFEST_DIR"));
        for (input, failures) in [(&FEW[..], "4 of 4"), (&[from.to_str().unwrap()], "3 of 3")] {
            let out = folder(plan);
            let plan = ["--plan", &path];
            let output = images(&out, &[&["check"], input, &plan].concat());
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            has(&text(&output.stdout), &[clusters, "the plan fits the program"]);
            let output = images(&out, &[input, &plan, &["--verify", "-q"]].concat());
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            has(&text(&output.stdout), &["verified: ", failures]);
        }
    }
}
