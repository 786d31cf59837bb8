//! The rules of the house for source files, as far as a program can check them: a file says in a
//! header what it is for; one over 500 lines says there why; nothing is left to do.
//! To break a rule on purpose, say so where it asks for it; there are no other exceptions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where source files are, from the root of the repository.
const ROOTS: [&str; 5] = ["bench", "crates", "examples", "sim", "xtask"];
/// A file over this many lines gives a reason.
const LINES_MAX: usize = 500;
/// How a header line begins that gives it.
const LONG: &str = "//! Long because";
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
    Ok(faults)
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
    for (number, line) in text.lines().enumerate() {
        for leftover in LEFTOVERS.iter().filter(|leftover| line.contains(*leftover)) {
            faults.push(format!("{}: `{leftover}` was left behind", number + 1));
        }
    }
    faults.into_iter()
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
    fn leftovers_are_found_with_their_line() {
        for leftover in LEFTOVERS {
            let found = faults(&format!("//! It.\n\nfn f() {{ {leftover} }}\n"));
            assert_eq!(found, [format!("3: `{leftover}` was left behind")]);
        }
    }
}
