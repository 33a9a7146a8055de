//! The source files.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

/// The folders of the program's packages whose modules are named as those of one. What stands on others comes after them.
pub const PROGRAM: [&str; 3] = ["crates/core/src", "crates/engine/src", "src"];

/// The folder of the CPU kernels, which name themselves without the engine.
pub const CPU: &str = "crates/cpu/src";

/// The source files of the program's packages but for the CPU kernels, each with its path below its `src`, and its text.
pub fn program() -> Vec<(PathBuf, String)> {
    PROGRAM.iter().flat_map(|src| below(&root().join(src))).collect()
}

/// Those with the CPU kernels.
pub fn program_and_kernels() -> Vec<(PathBuf, String)> {
    program().into_iter().chain(below(&root().join(CPU))).collect()
}

/// The Rust files below `folder`, each with its path from there, and its text.
pub fn below(folder: &Path) -> Vec<(PathBuf, String)> {
    let inside = |path: PathBuf| (path.strip_prefix(folder).unwrap().to_owned(), fs::read_to_string(&path).unwrap());
    sources(folder).into_iter().map(inside).collect()
}

/// True for a file of tests, given its path below `src`.
pub fn is_test(inside: &Path) -> bool {
    inside.iter().any(|part| part == "tests" || part == "tests.rs")
}

/// A file without its tests, which come last or are in a file of their own; what is left keeps its line.
pub fn without_tests(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_test = |at: usize| lines[at] == "#[cfg(test)]" || lines[at].starts_with("#[cfg(all(test, ");
    let last = |at: &usize| is_test(*at) && lines.get(at + 1).is_some_and(|next| next.ends_with('{'));
    let end = (0..lines.len()).find(last).unwrap_or(lines.len());
    let kept = |at: usize| if is_test(at) || at > 0 && is_test(at - 1) { "" } else { lines[at] };
    (0..end).map(kept).collect::<Vec<_>>().join("\n")
}

/// The code of a file without its tests and comments, with the numbers of its lines.
pub fn code(text: &str) -> Vec<(usize, String)> {
    let text = without_tests(text);
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned());
    lines.enumerate().map(|(at, line)| (at + 1, line)).collect()
}
