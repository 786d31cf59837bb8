//! Numbers that TOML has no integers for: a plan that is printed reads back as itself all the same.

use comporta_model::plan::Plan;
use comporta_plan::{Effective, PlanSpec};

use crate::program::{catalogue, graph, validate};

/// The greatest integer of TOML, and what lies beyond it.
const LARGE: [f64; 5] =
    [9_223_372_036_854_774_784.0, 9_223_372_036_854_775_808.0, 1e19, 1e21, 1e300];

fn reads_back(first: &Effective, again: Result<Effective, comporta_plan::Report>) {
    let again = again.unwrap_or_else(|report| panic!("{first}\ndoes not read back:\n{report}"));
    assert_eq!(again.settings(), first.settings(), "{first}");
    assert!(again.differences(first).is_empty(), "{first}");
}

#[test]
fn a_large_number_of_a_choice_reads_back() {
    for number in LARGE {
        for key in ["rate", "burst"] {
            let text = format!(
                "[stage.split]\nadmission = {{ name = \"token-bucket\", {key} = {number:e} }}"
            );
            // A number that is refused is no plan, and need not be printed.
            if let Ok(first) = validate(&[("p.toml", &text)]) {
                reads_back(&first, validate(&[("again.toml", &first.to_string())]));
            }
        }
    }
}

#[test]
fn a_large_number_that_a_program_says_itself_reads_back() {
    for number in [1 << 62, i64::MAX as usize, 1 << 63, (1 << 63) + 1, usize::MAX - 1, usize::MAX] {
        let program = Plan::new()
            .stage("split", |split| split.capacity(number).emit_max(number).failures_max(number));
        let validate = |text: &str, program: &Plan| {
            let mut spec = PlanSpec::new();
            spec.text("p.toml", text);
            spec.validate(&graph(), program, &catalogue(), 8)
        };
        if let Ok(first) = validate("", &program) {
            reads_back(&first, validate(&first.to_string(), &Plan::new()));
        }
    }
}
