//! Who may name whom: the modules of the program, and the layers inside of those that have some.

use std::collections::BTreeSet;
use std::path::Path;

use crate::paths::{KERNELS, PROGRAM};
use crate::source::{code, is_test, program_and_kernels};

/// For every module, the others that its code may name. A module may only name those that stand above it, so imports
/// run one way. Tests may name what they like, and `cli` everything.
const IMPORTS: [(&str, &[&str]); 22] = [
    ("failure", &[]),
    ("bulk", &[]),
    ("random", &[]),
    ("system", &[]),
    ("files", &["system"]),
    ("shards", &[]),
    ("terminal", &[]),
    ("graph", &["shards"]),
    // Of the graph, what the engine says of losses, figures, activations and optimizers.
    ("config", &["files", "graph", "terminal"]),
    ("plan", &["graph"]),
    ("collective", &["failure", "files", "graph", "shards", "system"]),
    ("backend", &["collective", "failure", "files", "graph", "plan", "random", "shards"]),
    ("passes", &["graph", "shards"]),
    ("checkpoint", &["files", "graph"]),
    ("data", &["backend", "bulk", "files", "graph", "plan", "random", "terminal"]),
    ("model", &["config", "data", "graph", "random"]),
    ("onnx", &["checkpoint", "config", "data", "graph", "model"]),
    (
        "train",
        &[
            "backend",
            "bulk",
            "model",
            "checkpoint",
            "collective",
            "config",
            "data",
            "failure",
            "files",
            "graph",
            "passes",
            "plan",
            "random",
            "shards",
            "system",
            "terminal",
        ],
    ),
    ("runs", &["checkpoint", "config", "files", "graph", "train"]),
    ("sweep", &["config", "files", "random"]),
    (
        "api",
        &[
            "backend",
            "checkpoint",
            "collective",
            "config",
            "data",
            "failure",
            "files",
            "graph",
            "model",
            "passes",
            "plan",
            "random",
            "runs",
            "system",
            "terminal",
            "train",
        ],
    ),
    ("serve", &["api", "data", "files", "graph", "model", "terminal"]),
];

/// Modules in layers: each may name only those before it.
const LAYERS: [(&str, &[&str]); 5] = [
    ("config", &["text", "declare", "language", "experiment", "load", "print", "schema"]),
    ("train", &["setup", "files", "run"]),
    ("backend", &["trace", "cpu", "reference", "gpu", "cuda"]),
    ("backend::gpu", &["formulas", "launch", "target", "fusions", "lower"]),
    ("backend::cuda", &["settings", "driver", "modules", "ready", "extents", "nvidia", "failure", "executable"]),
];

/// The same of the CPU kernels.
const KERNEL_LAYERS: [&str; 9] = ["simd", "info", "run", "gemm", "fusions", "ops", "lower", "narrow", "peak"];

#[test]
fn imports_run_one_way() {
    for (at, (module, allowed)) in IMPORTS.iter().enumerate() {
        let above: Vec<&str> = IMPORTS[..at].iter().map(|(name, _)| *name).collect();
        assert!(allowed.iter().all(|name| above.contains(name)), "{module} may name only what stands above it");
    }
    for module in PROGRAM.children(&[]).into_iter().filter(|module| *module != "cli") {
        assert!(IMPORTS.iter().any(|(name, _)| *name == module), "`{module}` is in no row of this test");
    }
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for edge in &PROGRAM.edges {
        let (Some(from), Some(to)) = (edge.from.first(), edge.to.first()) else { continue };
        let Some((_, allowed)) = IMPORTS.iter().find(|(name, _)| name == from) else { continue };
        seen.insert((from.to_owned(), to.to_owned()));
        if from != to && !allowed.contains(&to.as_str()) {
            wrong.push(format!("{}:{}: `{from}` must not know `{to}`", edge.path.display(), edge.line));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What a row allows and no module needs is forbidden from now on.
    for (module, allowed) in IMPORTS {
        for name in allowed {
            let needed = seen.contains(&(module.to_owned(), (*name).to_owned()));
            assert!(needed, "`{module}` does not use `{name}`: take it out of the table");
        }
    }
}

/// By those names the table would not see what is of another package.
#[test]
fn packages_are_named_as_parts_of_the_program() {
    let files = program_and_kernels();
    for (inside, text) in files.iter().filter(|(inside, _)| !is_test(inside) && *inside != Path::new("lib.rs")) {
        for (line, code) in code(text) {
            let named = ["runner_engine", "runner_core"].iter().find(|name| code.contains(**name));
            assert!(named.is_none(), "{}:{line}: say `crate::` in place of `{}`", inside.display(), named.unwrap());
        }
    }
}

#[test]
fn layers_name_only_those_below_them() {
    let mut wrong = Vec::new();
    let of_program = LAYERS.iter().map(|(folder, layers)| (&*PROGRAM, *folder, *layers));
    for (tree, folder, layers) in of_program.chain([(&*KERNELS, "", &KERNEL_LAYERS[..])]) {
        let path: Vec<&str> = folder.split("::").filter(|name| !name.is_empty()).collect();
        let layer = |name: &str| layers.iter().position(|layer| *layer == name);
        let there = tree.children(&path);
        wrong.extend(
            there.iter().filter(|name| layer(name).is_none()).map(|name| format!("`{folder}::{name}` is in no layer")),
        );
        wrong.extend(
            layers.iter().filter(|name| !there.contains(*name)).map(|name| format!("there is no `{folder}::{name}`")),
        );
        for edge in &tree.edges {
            let inside = |module: &[String]| module.iter().zip(&path).filter(|(a, b)| a == *b).count() == path.len();
            let (Some(from), Some(to)) = (edge.from.get(path.len()), edge.to.get(path.len())) else { continue };
            if inside(&edge.from) && inside(&edge.to) && from != to && layer(from) < layer(to) {
                wrong.push(format!("{}:{}: `{folder}::{from}` must not know `{to}`", edge.path.display(), edge.line));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
