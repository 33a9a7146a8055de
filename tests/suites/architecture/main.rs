//! The rules of `ARCHITECTURE.md` that can be read off the source text.

mod circles;
mod layers;
mod paths;
mod source;
mod systems;

use std::fs;

use source::{CPU, PROGRAM, below, code, is_test, program_and_kernels, root};

/// A file is to be read in one sitting.
const MAX_LINES: usize = 500;

/// Everything that is said passes `src/terminal`, which makes harmless what comes from outside.
#[test]
fn only_the_module_of_the_terminal_writes_to_it() {
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
    for (inside, text) in program_and_kernels() {
        // A user may name standard output as the place of a file (`--out /dev/stdout`): its content is no text for a terminal.
        if inside.starts_with("terminal") || inside.ends_with("files/output.rs") || is_test(&inside) {
            continue;
        }
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
/// The optional `cust` has the same fault, as docs/gpu.md says.
#[test]
fn no_function_of_cudarc_is_called() {
    let is_function = |name: &str| {
        let stem = ["cublasLt", "cudnn", "nccl", "nvrtc", "cu"].iter().find_map(|s| name.strip_prefix(s));
        stem.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase())) && !name.ends_with("_t")
    };
    let mut wrong = Vec::new();
    for (inside, text) in program_and_kernels() {
        if inside.starts_with("backend/cuda/modules/launcher/cust") {
            continue;
        }
        // The names that cudarc's modules have in this file.
        let mut names = vec!["cudarc::driver::sys".to_owned()];
        for (_, line) in code(&text).into_iter().filter(|(_, line)| line.contains("cudarc::") && line.contains(" as "))
        {
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
        "bind these with answers that are numbers, as crates/engine/src/backend/cuda/driver/sys.rs does:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_module_is_in_the_map() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for src in PROGRAM {
        for entry in fs::read_dir(root().join(src)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !["lib.rs", "main.rs"].contains(&name.as_str()) {
                assert!(
                    map.contains(&format!("| `{src}/{name}` |")),
                    "ARCHITECTURE.md does not say what {src}/{name} is for"
                );
            }
        }
    }
    assert!(map.contains(&format!("| `{CPU}` |")), "ARCHITECTURE.md does not say what {CPU} is for");
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let others = ["tests", "benches", "kernels", "crates/jpeg", "crates/mpi", "crates/cpu/tests"]
        .iter()
        .flat_map(|folder| below(&root().join(folder)));
    for (inside, text) in program_and_kernels().into_iter().chain(others) {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines: it has more than one subject", inside.display());
    }
    for (inside, text) in program_and_kernels() {
        let is_described = text.starts_with("//! ");
        assert!(is_described || is_test(&inside), "{} does not begin with what it is for", inside.display());
    }
}
