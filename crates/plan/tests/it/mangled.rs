//! No text, however mangled, makes the reader panic, and what it says of it can be shown.

use proptest::prelude::*;

use crate::program::validate;

const GOOD: &str = "drain = '1s'\n[app]\na = { b = '${FOUR:-x}', token = \"é\\n\" }\n[cluster.main]\n\
    threads = 2\n[cluster.side]\nstages = 'all - (read + push + split + log)'\n[every]\nbatch = 0x10\n\
    [stage.split]\nqueue = { capacity = 1_000, when_full = \"block\" }\nretry.tries = 2\n\
    [connector.\"count -> show\"]\nwhen_full = '''reject'''\n";

/// Pieces that mean something to the reader.
const PIECES: &[&str] = &[
    "[",
    "]",
    "[[",
    "{",
    "}",
    "=",
    "\"",
    "'",
    "'''",
    "\n",
    ".",
    ",",
    "#",
    "${",
    "}",
    "$${",
    ":-",
    "stage",
    "cluster",
    "connector",
    "every",
    "app",
    "split",
    "-> show",
    "(",
    ")",
    " - ",
    "all",
    "queue",
    "capacity",
    "99999999999999999999",
    "-1",
    "0x",
    "1e309",
    "nan",
    "1979-05-27",
    "é",
    "\u{0}",
    "\u{202e}",
    "true",
    "policy",
    "name",
    "stages",
    "retry",
    "when_full",
    "drain",
    "\\u00e9",
    "\r",
    "password",
    ": ",
    "\"\"\"",
];

fn tell(text: &str) {
    if let Err(report) = validate(&[("m.toml", text)]) {
        assert!(!report.mistakes().is_empty());
        assert!(!report.render(40, true).is_empty());
    }
    if let Ok(effective) = validate(&[("m.toml", text)]) {
        let _ = effective.to_string();
    }
    let _ = validate(&[("--set", text)]).map_err(|report| report.to_string());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_plan_with_pieces_changed_never_panics(
        changes in prop::collection::vec((0usize..400, 0usize..12, 0usize..PIECES.len()), 1..6),
    ) {
        let mut text: Vec<char> = GOOD.chars().collect();
        for (at, cut, piece) in changes {
            let at = at % (text.len() + 1);
            let end = (at + cut).min(text.len());
            text.splice(at..end, PIECES[piece].chars());
        }
        tell(&text.into_iter().collect::<String>());
    }

    #[test]
    fn any_text_at_all_never_panics(text in any::<String>()) {
        tell(&text);
    }

    #[test]
    fn any_sequence_of_meaningful_pieces_never_panics(
        pieces in prop::collection::vec(0usize..PIECES.len(), 0..40),
    ) {
        tell(&pieces.into_iter().map(|piece| PIECES[piece]).collect::<String>());
    }
}

#[test]
fn deep_nesting_is_refused_not_fatal() {
    tell(&format!("a = {}", "[".repeat(100_000)));
    tell(&format!("{} = 1", vec!["a"; 50_000].join(".")));
    tell(&format!("[cluster.x]\nstages = \"{}\"", "(".repeat(100_000)));
    tell(&format!("[cluster.x]\nstages = \"{}a\"", "a - ".repeat(9_000)));
    tell(&format!("[cluster.x]\nstages = \"{}a\"", "a - ".repeat(100_000)));
}
