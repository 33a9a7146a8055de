//! The kernels as they travel in the binary: PTX, made ahead from `cuda/*.cu`, packed.
//!
//! There are two sets: one for compute capability 7.5, and one for 8.0 and up, whose kernels use the wider tensor-core
//! instructions and asynchronous copies. Both are much the same text, so a file has both, with a zero byte behind each. A driver compiles PTX for the GPU at hand, newer ones included, and keeps the
//! result in its own cache. For most GPUs there is machine code ([`super::cubin`]) and nothing to compile. `tests/suites/kernels` makes
//! the files anew (`UPDATE_KERNELS=1 cargo test --test kernels`) and fails if they are older than the sources.

use crate::Module;
use crate::kept::Kept;
use anyhow::{Context, Result, ensure};
use lzma_rust2::XzReader;
use std::io::{BufRead, BufReader};
use std::sync::Arc;

static KEPT: Kept = Kept::new();

/// The PTX of `module` for a GPU of `capability`, with a zero byte at its end.
///
/// # Errors
/// The file in the binary is damaged.
pub fn image(module: Module, capability: u32) -> Result<Arc<Vec<u8>>> {
    let newer = capability >= 80;
    KEPT.file(module, if newer { 80 } else { 75 }, || {
        let damaged = || format!("the kernels `{}` in this program are damaged", module.name());
        // What comes behind the text that is wanted is not unpacked.
        let mut reader = BufReader::new(XzReader::new(module.packed_ptx(), false));
        let mut text = Vec::new();
        for _ in 0..if newer { 1 } else { 2 } {
            text.clear();
            reader.read_until(0, &mut text).with_context(damaged)?;
        }
        ensure!(text.ends_with(&[0]), damaged());
        Ok(text)
    })
}

/// The PTX version and target of the kernels for `capability`, as they say themselves: `8.1` and `sm_80`.
pub fn version(capability: u32) -> Option<(String, String)> {
    let image = image(Module::Runtime, capability).ok()?;
    let text = std::str::from_utf8(&image).ok()?;
    let word = |directive: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(directive))?;
        Some(line.trim().split(',').next()?.to_owned())
    };
    Some((word(".version ")?, word(".target ")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_is_there_for_both_sets() {
        for module in Module::ALL {
            for (capability, target) in [(75, ".target sm_75"), (90, ".target sm_80")] {
                let image = image(module, capability).unwrap();
                let text = std::str::from_utf8(&image).unwrap();
                assert!(text.contains(target), "{} has no `{target}`", module.name());
                assert!(text.ends_with('\0'));
            }
        }
    }
}
