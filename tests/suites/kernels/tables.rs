//! The tables of `docs/kernels.md`: registers, shared memory, and spills of every kernel.

use crate::compiled::{Compiled, Kernel};
use crate::sources::{Architecture, Sources, hex};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const OPEN: &str = "<!-- made by UPDATE_KERNELS=1 cargo test --test kernels, from sources with the SHA-256 ";
const CLOSE: &str = " -->\n";

/// The document.
pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/kernels.md")
}

/// A hash of all that the tables depend on.
pub fn stamp(sources: &Sources) -> String {
    let mut hash = Sha256::new();
    for module in sources.modules.keys() {
        for architecture in Architecture::DOCUMENTED {
            hash.update(sources.hash(module, architecture));
        }
    }
    hex(&hash.finalize())
}

/// The hash that a document was made with.
pub fn stamp_in(document: &str) -> Option<String> {
    let (_, rest) = document.split_once(OPEN)?;
    rest.split_once(CLOSE).map(|(stamp, _)| stamp.to_owned())
}

/// The document with new tables: all that follows the comment with the hash.
///
/// # Panics
/// It has no such comment.
pub fn replace(document: &str, sources: &Sources, list: &[Compiled]) -> String {
    let (text, _) = document.split_once(OPEN).expect("docs/kernels.md has a place for its tables");
    let mut out = format!("{text}{OPEN}{}{CLOSE}", stamp(sources));
    for module in sources.modules.keys() {
        let [first, second] = Architecture::DOCUMENTED.map(|architecture| {
            let found = list.iter().find(|c| c.module == *module && c.architecture == architecture);
            &found.expect("every module is compiled for every architecture").kernels
        });
        write!(
            out,
            "\n### {module}\n| kernel | registers | shared bytes | spilled bytes |\n| --- | --- | --- | --- |\n"
        )
        .unwrap();
        for (a, b) in first.iter().zip(second) {
            assert_eq!(a.name, b.name, "{module} has other kernels on other architectures");
            let cell = |of: fn(&Kernel) -> u32| match (of(a), of(b)) {
                (x, y) if x == y => x.to_string(),
                (x, y) => format!("{x} / {y}"),
            };
            let (registers, shared, spills) = (cell(|k| k.registers), cell(|k| k.shared), cell(|k| k.spills));
            writeln!(out, "| `{}` | {registers} | {shared} | {spills} |", a.name).unwrap();
        }
    }
    out
}
