//! The rules of the house for source files, as far as a program can check them: a file says in a
//! header what it is for; one over 500 lines says there why, and a function over 70 lines before it;
//! nothing is left to do; CONTRIBUTING.md lists every crate.
//! To break a rule on purpose, say so where it asks for it; there are no other exceptions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where source files are, from the root of the repository.
const ROOTS: [&str; 6] = ["bench", "crates", "examples", "integrations", "sim", "xtask"];
/// A file over this many lines gives a reason.
const LINES_MAX: usize = 500;
/// How a header line begins that gives it.
const LONG: &str = "//! Long because";
/// A function over this many lines gives a reason.
const FUNCTION_MAX: usize = 70;
/// How a line before it begins that gives it.
const LONG_FUNCTION: &str = "// Long because";
/// What must not be left behind; in pieces, so that this file may pass.
const LEFTOVERS: [&str; 2] = [concat!("todo", "!("), concat!("FIX", "ME")];

/// Every broken rule of the repository, as `path:line: what`.
pub(crate) fn repository() -> io::Result<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for part in ROOTS {
        source_files(&root.join(part), &mut files)?;
    }
    files.sort();
    let mut faults = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        faults
            .extend(faults_of(&fs::read_to_string(&file)?).map(|fault| format!("{name}:{fault}")));
    }
    let listed = fs::read_to_string(root.join("CONTRIBUTING.md"))?;
    for entry in fs::read_dir(root.join("crates"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        faults.extend(unlisted(&listed, &name));
    }
    Ok(faults)
}

/// What is wrong if CONTRIBUTING.md has no row for a crate.
fn unlisted(contributing: &str, name: &str) -> Option<String> {
    let row = format!("| `crates/{name}` |");
    let listed = contributing.lines().any(|line| line.starts_with(&row));
    (!listed).then(|| format!("CONTRIBUTING.md:1: no row for `crates/{name}`"))
}

fn source_files(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "target" {
                source_files(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Every broken rule of one file, as `line: what`.
fn faults_of(text: &str) -> impl Iterator<Item = String> {
    let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
    let lines = text.lines().count();
    let mut faults = Vec::new();
    if header.first().is_none_or(|line| line.trim_start_matches("//!").trim().is_empty()) {
        faults.push("1: no header: begin the file with `//!` and what it is for".to_owned());
    }
    if lines > LINES_MAX && !header.iter().any(|line| line.starts_with(LONG)) {
        faults.push(format!(
            "1: {lines} lines: split it, or give the reason in the header (`{LONG} ...`)"
        ));
    }
    faults.extend(long_functions(text));
    for (number, line) in text.lines().enumerate() {
        for leftover in LEFTOVERS.iter().filter(|leftover| line.contains(*leftover)) {
            faults.push(format!("{}: `{leftover}` was left behind", number + 1));
        }
    }
    faults.into_iter()
}

/// Functions that are too long and do not say why, as `line: what`. Files are formatted: a function
/// ends at the first `}` that stands as far in as it begins.
fn long_functions(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut faults = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((indent, name)) = function(line) else { continue };
        let ends = |line: &&str| line.strip_prefix(indent) == Some("}");
        let Some(length) = lines[at..].iter().position(ends).map(|end| end + 1) else { continue };
        let signature = lines[at..].iter().position(|line| line.ends_with(['{', ';', '}']));
        let has_body = signature.is_some_and(|end| lines[at + end].ends_with('{'));
        let before = lines[..at].iter().rev().map(|line| line.trim_start());
        let mut before = before.take_while(|line| line.starts_with("//") || line.starts_with("#["));
        if has_body && length > FUNCTION_MAX && !before.any(|line| line.starts_with(LONG_FUNCTION))
        {
            faults.push(format!(
                "{}: `{name}` has {length} lines: split it, or give the reason before it (`{LONG_FUNCTION} ...`)",
                at + 1
            ));
        }
    }
    faults
}

/// The indentation and the name of a function that begins in this line.
fn function(line: &str) -> Option<(&str, &str)> {
    let code = line.trim_start();
    let indent = &line[..line.len() - code.len()];
    let (before, after) = match code.strip_prefix("fn ") {
        Some(after) => ("", after),
        None => code.split_once(" fn ")?,
    };
    let word = |word: &str| {
        let word = word.split('(').next().unwrap_or(word);
        ["pub", "const", "async", "unsafe", "extern", "default", "\"C\""].contains(&word)
    };
    let name = after.split(['(', '<']).next()?;
    before.split(' ').filter(|part| !part.is_empty()).all(word).then_some((indent, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        faults_of(text).collect()
    }

    #[test]
    fn the_repository_is_tidy() {
        let faults = repository().unwrap();
        assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    }

    #[test]
    fn a_file_without_a_header_is_found() {
        assert_eq!(faults("//! What it is for.\nfn f() {}\n"), [] as [&str; 0]);
        for text in ["", "fn f() {}\n", "//!\n//! Late.\n", "\n//! Late.\n", "// No header.\n"] {
            assert!(faults(text)[0].starts_with("1: no header"), "{text:?}");
        }
    }

    #[test]
    fn a_long_file_without_a_reason_is_found() {
        let body = "\n".repeat(LINES_MAX);
        assert_eq!(faults(&format!("//! Long.{body}")), [] as [&str; 0]);
        assert!(faults(&format!("//! Long.\n{body}"))[0].starts_with("1: 501 lines"));
        assert_eq!(faults(&format!("//! It.\n{LONG} so.\n{body}")), [] as [&str; 0]);
    }

    #[test]
    fn a_long_function_without_a_reason_is_found() {
        let body = |lines: usize| "        x();\n".repeat(lines - 2);
        let of = |before: &str, lines: usize| {
            let body = body(lines);
            faults(&format!(
                "//! It.\nimpl A {{\n{before}    pub(crate) fn f() {{\n{body}    }}\n}}\n"
            ))
        };
        assert_eq!(of("", FUNCTION_MAX), [] as [&str; 0]);
        assert!(of("", FUNCTION_MAX + 1)[0].starts_with("3: `f` has 71 lines"));
        assert_eq!(of("    // Long because so.\n    #[test]\n", FUNCTION_MAX + 1), [] as [&str; 0]);
        let declared =
            format!("//! It.\ntrait A {{\n    fn f();\n    fn g() {{\n{}    }}\n}}\n", body(70));
        assert_eq!(faults(&declared), [] as [&str; 0], "a function without a body has no length");
    }

    #[test]
    fn a_crate_that_contributing_does_not_list_is_found() {
        assert_eq!(unlisted("| folder | what |\n| `crates/model` | it |\n", "model"), None);
        assert!(unlisted("about `crates/model`", "model").is_some());
    }

    #[test]
    fn leftovers_are_found_with_their_line() {
        for leftover in LEFTOVERS {
            let found = faults(&format!("//! It.\n\nfn f() {{ {leftover} }}\n"));
            assert_eq!(found, [format!("3: `{leftover}` was left behind")]);
        }
    }
}
