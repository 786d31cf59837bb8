//! `docs/plans.md` says what is true: its plans are plans, and it knows every key.

use comporta_plan::{PlanSpec, keys};

const DOCUMENT: &str = include_str!("../../../../docs/plans.md");

#[test]
fn every_plan_of_the_document_can_be_read() {
    let blocks: Vec<&str> = DOCUMENT.split("```toml\n").skip(1).collect();
    assert!(blocks.len() >= 4, "only {} plans", blocks.len());
    for block in blocks {
        let plan = block.split("```").next().unwrap();
        let mut spec = PlanSpec::with_env(|_| None);
        spec.text("plans.md", plan);
        spec.check().unwrap_or_else(|report| panic!("{report}"));
    }
}

#[test]
fn the_document_knows_every_key() {
    for (key, _) in keys() {
        let last: Vec<&str> = key.rsplit('.').take(2).collect();
        let inner = format!("{}.{}", last.get(1).unwrap_or(&""), last[0]);
        let known = DOCUMENT.contains(&format!("`{}`", last[0]))
            || DOCUMENT.contains(&format!("`{inner}`"))
            || last[0] == "…"
            || DOCUMENT.contains(&format!("{} ", last[0]));
        assert!(known, "docs/plans.md does not know `{key}`");
    }
}
