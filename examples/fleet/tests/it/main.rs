//! What `fleet` promises: every packet is handled by every consumer, those of an account in order; virtual time gives the
//! same run again; and a command that says so.

#![allow(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

use std::process::{Command, Output};

fn fleet(args: &[&str]) -> Output {
    let small = ["--accounts", "190", "--seconds", "90"];
    Command::new(env!("CARGO_BIN_EXE_fleet")).args(small).args(args).output().unwrap()
}

fn out(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn every_controller_handles_every_packet_in_the_order_of_its_account() {
    for controller in ["none", "elastic", "ds2"] {
        let shown = out(&fleet(&["--virtual", "--verify", "-q", "--controller", controller]));
        assert!(shown.contains("verified: every consumer handled "), "{shown}");
    }
    let shown = out(&fleet(&["--speed", "100", "--verify", "-q"]));
    assert!(shown.contains("verified: every consumer handled "), "{shown}");
}

#[test]
fn virtual_time_gives_the_same_run_again_in_lines_of_80_columns() {
    let shown = out(&fleet(&["--virtual"]));
    assert_eq!(shown, out(&fleet(&["--virtual"])));
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.lines().filter(|line| line.starts_with("   ")).count() > 90, "{shown}");
}

#[test]
fn a_drawing_on_standard_output_is_alone_there() {
    let output = fleet(&["--virtual", "-o", "-"]);
    let svg = out(&output);
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("packets in"));
}

#[test]
fn a_plan_takes_the_place_of_the_programs_own_and_its_mistakes_are_shown() {
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/fleet.toml");
    let shown = out(&fleet(&["--virtual", "--verify", "--explain", "-q", "--plan", plan]));
    assert!(shown.contains("`trips` is elastic (ds2): 2 to 16 threads"), "{shown}");
    let wrong = std::env::temp_dir().join(format!("fleet-{}.toml", std::process::id()));
    std::fs::write(&wrong, "[stage.tripps]\nelastic = \"ds2\"\n").unwrap();
    let refused = fleet(&["--virtual", "--plan", wrong.to_str().unwrap()]);
    std::fs::remove_file(wrong).unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("trips") && said.contains("tripps"), "{said}");
}

#[test]
fn commands_that_every_program_has_are_there() {
    let checked = Command::new(env!("CARGO_BIN_EXE_fleet")).args(["check"]).output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stderr));
}
