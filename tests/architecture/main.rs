//! The rules of `ARCHITECTURE.md` that can be read off the source text.

use std::fs;
use std::path::{Path, PathBuf};

/// For every module, the others that its code may name. A module may only name those that stand above it, so imports
/// run one way. Tests may name what they like, and `cli` everything.
const IMPORTS: [(&str, &[&str]); 12] = [
    ("random", &[]),
    ("files", &[]),
    ("terminal", &[]),
    ("graph", &[]),
    // Of the graph, what the engine says of losses, figures, activations and optimizers.
    ("config", &["files", "graph", "terminal"]),
    ("plan", &["graph"]),
    ("backend", &["files", "graph", "plan", "random"]),
    ("passes", &["graph"]),
    ("checkpoint", &["files", "graph"]),
    ("data", &["backend", "files", "graph", "plan", "random", "terminal"]),
    ("model", &["config", "data", "graph", "random"]),
    (
        "train",
        &["backend", "model", "checkpoint", "config", "data", "files", "graph", "passes", "plan", "random", "terminal"],
    ),
];

/// A file is to be read in one sitting.
const MAX_LINES: usize = 500;

fn root() -> &'static Path {
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

/// The source files of both packages, each with its path below its `src`.
fn program() -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for src in ["engine/src", "src"].map(|folder| root().join(folder)) {
        let inside = |path: PathBuf| (path.strip_prefix(&src).unwrap().to_owned(), path);
        found.extend(sources(&src).into_iter().map(inside));
    }
    found
}

/// True for a file of tests, given its path below `src`.
fn is_test(inside: &Path) -> bool {
    inside.iter().any(|part| part == "tests" || part == "tests.rs")
}

/// The code of a file with the numbers of its lines: no comments, and nothing of its tests, which come last.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().take_while(|line| !["#[cfg(test)]", "#[cfg(all(test, unix))]"].contains(line));
    lines.enumerate().map(|(at, line)| (at + 1, line.split("//").next().unwrap_or_default()))
}

/// The modules of this crate that a line names.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    line.split("crate::").skip(1).map(move |rest| rest.split(ends).next().unwrap_or_default())
}

#[test]
fn imports_run_one_way() {
    for (at, (module, allowed)) in IMPORTS.iter().enumerate() {
        let above: Vec<&str> = IMPORTS[..at].iter().map(|(name, _)| *name).collect();
        assert!(allowed.iter().all(|name| above.contains(name)), "{module} may name only what stands above it");
    }
    let mut wrong = Vec::new();
    let mut seen = vec![Vec::new(); IMPORTS.len()];
    for (inside, path) in program() {
        let module = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if ["lib", "main", "cli"].contains(&module) || is_test(&inside) {
            continue;
        }
        let at = IMPORTS.iter().position(|(name, _)| *name == module);
        let at = at.unwrap_or_else(|| panic!("`{module}` is in no row of this test"));
        let text = fs::read_to_string(&path).unwrap();
        for (line, code) in code(&text) {
            // By that name the table would not see it.
            assert!(!code.contains("runner_engine"), "{}:{line}: say `crate::`", inside.display());
            for name in named(code).filter(|name| *name != module) {
                seen[at].push(name.to_owned());
                if !IMPORTS[at].1.contains(&name) {
                    wrong.push(format!("{}:{line}: `{module}` must not know `{name}`", inside.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What a row allows and nobody needs is forbidden from now on.
    for ((module, allowed), seen) in IMPORTS.iter().zip(seen) {
        for name in *allowed {
            assert!(seen.iter().any(|s| s == name), "`{module}` does not use `{name}`: take it out of the table");
        }
    }
}

/// Everything that is said passes `src/terminal`, which makes harmless what comes from outside.
#[test]
fn nobody_writes_to_the_terminal_but_its_module() {
    let ways = [
        "println!",
        "print!(",
        "eprint!(",
        "dbg!(",
        "io::stdout",
        "io::stderr",
        " stdout()",
        " stderr()",
        "(stdout()",
        "(stderr()",
        "Stdout",
        "Stderr",
        "is_terminal()",
        "indicatif",
        "console::",
        "anstream",
        "anstyle",
        "/dev/tty",
        "/dev/stdout",
        "/dev/stderr",
        "/dev/fd",
        "print_help",
        "clap::Error::exit",
        ".exit()",
    ];
    let mut wrong = Vec::new();
    for (inside, path) in program() {
        if inside.starts_with("terminal") || is_test(&inside) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for (line, code) in code(&text) {
            wrong.extend(
                ways.iter()
                    .filter(|way| code.contains(**way))
                    .map(|way| format!("{}:{line}: `{way}`", inside.display())),
            );
        }
    }
    assert!(wrong.is_empty(), "only `src/terminal` may write:\n{}", wrong.join("\n"));
}

/// The functions of NVIDIA's driver and libraries answer with numbers that a newer version may add to. Those of cudarc answer
/// with enumerations of Rust, for which an unknown number is undefined behaviour: its types are used, its functions are not.
/// The optional `cust` has the same fault, which docs/gpu.md tells.
#[test]
fn no_function_of_cudarc_is_called() {
    let is_function = |name: &str| {
        let stem = ["cublasLt", "cudnn", "nccl", "nvrtc", "cu"].iter().find_map(|s| name.strip_prefix(s));
        stem.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase())) && !name.ends_with("_t")
    };
    let mut wrong = Vec::new();
    for (inside, path) in program() {
        if inside.starts_with("backend/cuda/modules/launcher/cust") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // The names that cudarc's modules have in this file.
        let mut names = vec!["cudarc::driver::sys".to_owned()];
        for (_, line) in code(&text).filter(|(_, line)| line.contains("cudarc::") && line.contains(" as ")) {
            names.extend(line.split(" as ").nth(1).map(|name| name.trim_end_matches(';').trim().to_owned()));
        }
        for (at, line) in code(&text) {
            let safe =
                ["cudarc::driver::safe", "cudarc::driver::result", "cudarc::cublaslt::result", "cudarc::cudnn::result"];
            let calls = |rest: &str| {
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
                is_function(&rest[..end]) && rest[end..].starts_with('(')
            };
            let called = names.iter().any(|name| line.split(&format!("{name}::")).skip(1).any(calls));
            if called || safe.iter().any(|module| line.contains(module)) {
                wrong.push(format!("{}:{at}: {}", inside.display(), line.trim()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "bind these with answers that are numbers, as engine/src/backend/cuda/driver/sys.rs does:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_module_is_in_the_map() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for src in ["engine/src", "src"] {
        for entry in fs::read_dir(root().join(src)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !["lib.rs", "main.rs"].contains(&name.as_str()) {
                assert!(
                    map.contains(&format!("| `{src}/{name}` |")),
                    "ARCHITECTURE.md does not tell what {src}/{name} is for"
                );
            }
        }
    }
}

#[test]
fn files_are_short_and_tell_what_they_are_for() {
    let others = ["tests", "benches"].iter().flat_map(|folder| sources(&root().join(folder)));
    for path in program().into_iter().map(|(_, path)| path).chain(others) {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines: it has more than one subject", path.display());
    }
    for (inside, path) in program() {
        let told = fs::read_to_string(&path).unwrap().starts_with("//! ");
        assert!(told || is_test(&inside), "{} does not begin with what it is for", path.display());
    }
}
