//! Which kernels a file has, and the C++ that makes them known to the driver.

use std::fmt::Write;
use std::path::Path;

/// The file that is compiled in place of a kernel file: the file itself, after what it needs, and its kernels' names.
pub fn source(header: &Path, file: &Path, kernels: &[String]) -> String {
    // Within a namespace of its own, as a module's functions are its own on a GPU: helpers of one name in two files would
    // otherwise be taken for one function when all are linked. The header has included what belongs outside.
    let mut text = format!("#include \"{}\"\nnamespace {{\n#include \"{}\"\n", header.display(), file.display());
    for name in kernels {
        writeln!(text, "const emulated::Registered registered_{name}(\"{name}\", {name});").unwrap();
    }
    text.push_str("}\n");
    text
}

/// Names of all `extern "C" __global__` functions in preprocessed text, where macros have been replaced but the
/// qualifiers of CUDA have not, and `__launch_bounds__(…)` is gone.
pub fn names(preprocessed: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut pieces = preprocessed.split("__global__");
    let mut before = pieces.next().unwrap_or_default();
    for piece in pieces {
        if before.trim_end().ends_with("extern \"C\"") {
            let head = piece.split('(').next().unwrap_or_default();
            let name = head.split_whitespace().last().unwrap_or_default().to_owned();
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        before = piece;
    }
    names
}
