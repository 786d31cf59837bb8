//! The scenarios of the repository, and the command line on them.

use std::process::{Command, Output};

use comporta_placement::Registry;
use comporta_sim::{file, run, show};

fn scenario(name: &str) -> (String, comporta_sim::Scenario) {
    let path = format!("{}/scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let scenario = file::read(&path, &text, &Registry::new()).unwrap();
    (path, scenario)
}

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_comporta-sim")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_scenarios_have_as_many_nodes_as_they_say() {
    let nodes = |name| scenario(name).1.nodes.iter().filter(|node| !node.reserved).count();
    assert_eq!(nodes("six"), 6);
    assert_eq!(scenario("fifty-eight").1.nodes.len(), 58);
    assert_eq!(scenario("thousand").1.nodes.len(), 1000);
}

#[test]
fn the_scenarios_run_and_are_drawn() {
    for (name, seconds) in [("six", 60.0), ("fifty-eight", 30.0), ("thousand", 3.0)] {
        let (_, mut scenario) = scenario(name);
        scenario.duration = seconds;
        let outcome = run(&scenario).unwrap();
        assert!(outcome.processed > 0, "{name}");
        let svg = show::timeline(&outcome);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
        assert_eq!(show::json(&outcome)["processed"], outcome.processed);
    }
}

#[test]
fn the_same_command_prints_the_same_bytes() {
    let (path, _) = scenario("six");
    let once = sim(&["run", &path, "--json", "-", "--quiet"]);
    assert!(once.status.success(), "{}", text(&once.stderr));
    assert!(text(&once.stdout).starts_with('{'));
    assert_eq!(once.stdout, sim(&["run", &path, "--json", "-", "--quiet"]).stdout);
    let other = sim(&["run", &path, "--json", "-", "--seed", "2"]);
    assert_ne!(once.stdout, other.stdout);
}

#[test]
fn what_is_wrong_is_told_on_stderr_with_exit_code_2() {
    let (path, _) = scenario("six");
    for (args, told) in [
        (&["run", "no-such.toml"][..], "no-such.toml cannot be read"),
        (&["run", &path, "--strategy", "adaptve"], "adaptive"),
        (&["run", &path, "--strategy", "adaptive(d=x)"], "a number"),
        (&["compare", &path], "required"),
        (&["compare", &path, "none", "--seeds", "0"], "1..=1000"),
    ] {
        let output = sim(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(told), "{args:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
    for flag in ["-o", "--output", "--svg"] {
        let full = sim(&["run", &path, "--quiet", flag, "/no/such/folder/x.svg"]);
        assert_eq!(full.status.code(), Some(1), "{flag}");
    }
}

#[test]
fn a_picture_goes_to_standard_output_if_that_is_asked_for_and_the_results_beside_it() {
    let (path, _) = scenario("six");
    let drawn = sim(&["run", &path, "--quiet", "-o", "-"]);
    assert_eq!(drawn.status.code(), Some(0));
    assert!(text(&drawn.stdout).starts_with("<svg") && text(&drawn.stdout).ends_with("</svg>\n"));
    let told = sim(&["run", &path, "--quiet"]);
    assert_eq!(text(&drawn.stderr), text(&told.stdout));
    let both = sim(&["run", &path, "--json", "-", "-o", "-"]);
    assert_eq!(both.status.code(), Some(2));
    assert!(text(&both.stderr).contains("--json and --output both name standard output"));
}

#[test]
fn strategies_and_check_answer_without_running() {
    let output = sim(&["strategies"]);
    for name in ["adaptive", "random", "none", "cost-aware", "l_mig"] {
        assert!(text(&output.stdout).contains(name), "{name}");
    }
    let (path, _) = scenario("thousand");
    let told = sim(&["check", &path]);
    assert_eq!(text(&told.stdout), "a thousand nodes: 1000 nodes, 6000 operators, 60 s\n");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_and_is_exit_code_1() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_comporta-sim"));
    let output = command.arg("strategies").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("standard output cannot be written"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn strategies_of_which_nothing_was_measured_are_compared_without_a_number() {
    let folder = std::env::temp_dir().join(format!("comporta-sim-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("idle.toml");
    let scenario = "duration = '5s'\n[nodes.n]\n[operators.s]\non = 'n'\nrate = 0\n";
    std::fs::write(&path, scenario).unwrap();
    let output = sim(&["compare", path.to_str().unwrap(), "none", "random", "--seeds", "2"]);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let compared = text(&output.stdout);
    assert!(compared.contains("fast mean  -") && !compared.contains("NaN"), "{compared}");
}
