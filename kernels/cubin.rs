//! The kernels as machine code of the GPUs that are most in use, so that the driver has nothing to compile: made ahead from
//! the PTX that travels beside it (see [`super::ptx`]), packed.
//!
//! Machine code of an architecture also runs on later ones of the same major number, but for those of embedded systems. All
//! other GPUs, and a driver that does not take it, get PTX. Architectures whose code is much the same are packed together: each
//! takes a part of what it would take by itself. Those in front have to be unpacked for those behind, so a family is small. `tests/suites/kernels` makes the files, and fails if they are older than the PTX.

use crate::Module;
use crate::kept::Kept;
use anyhow::{Context, Result, ensure};
use lzma_rust2::XzReader;
use std::io::Read;
use std::sync::Arc;

static KEPT: Kept = Kept::new();

/// The architectures whose machine code travels in the binary, those that are packed together side by side.
pub const FAMILIES: [&[u32]; 3] = [&[80, 86, 89], &[90], &[100, 120]];

/// Compute capabilities of embedded systems, which do not run the code of others.
const EMBEDDED: [u32; 3] = [72, 87, 101];

/// Longest head of a file.
const HEAD: usize = 1024;

/// The architecture whose machine code a GPU of `capability` is given; `None` if there is none for it.
pub fn architecture(capability: u32) -> Option<u32> {
    if EMBEDDED.contains(&capability) {
        return None;
    }
    let all = FAMILIES.iter().flat_map(|family| family.iter().copied());
    all.filter(|made_for| made_for / 10 == capability / 10 && *made_for <= capability).max()
}

/// The machine code of `module` for a GPU of `capability`; `None` if there is none for it.
///
/// # Errors
/// The file in the binary is damaged.
pub fn image(module: Module, capability: u32) -> Result<Option<Arc<Vec<u8>>>> {
    let Some(wanted) = architecture(capability) else { return Ok(None) };
    let Some(family) = FAMILIES.iter().position(|family| family.contains(&wanted)) else { return Ok(None) };
    let found = KEPT.file(module, wanted, || unpack(module.packed_cubin(family), wanted));
    found
        .map(Some)
        .with_context(|| format!("the machine code of the kernels `{}` in this program is damaged", module.name()))
}

/// The part for `architecture` of a packed file: a head of lines, `sm_80 1234` for each part with its bytes, an empty line,
/// and the parts. What comes behind the part that is wanted is not unpacked.
fn unpack(packed: &[u8], architecture: u32) -> Result<Vec<u8>> {
    let mut reader = XzReader::new(packed, false);
    let mut head = Vec::new();
    while !head.ends_with(b"\n\n") {
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        head.push(byte[0]);
        ensure!(head.len() <= HEAD, "its head has no end");
    }
    let name = format!("sm_{architecture}");
    for line in std::str::from_utf8(&head)?.lines() {
        let Some((part, bytes)) = line.split_once(' ').filter(|(part, _)| part.starts_with("sm_")) else { continue };
        let mut code = vec![0; bytes.parse()?];
        reader.read_exact(&mut code)?;
        if part == name {
            return Ok(code);
        }
    }
    anyhow::bail!("it has nothing for {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_gets_the_newest_code_of_its_generation_that_it_runs() {
        let of = [75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121, 130].map(architecture);
        let expected = [0, 80, 86, 0, 89, 90, 100, 0, 100, 0, 120, 120, 0].map(|a| Some(a).filter(|a| *a > 0));
        assert_eq!(of, expected);
    }

    /// The number of the architecture, as the code itself has it: the second generation of its format has it a byte further on.
    fn made_for(code: &[u8]) -> u32 {
        assert_eq!(&code[..4], b"\x7fELF");
        u32::from(code[if code[8] < 8 { 48 } else { 49 }])
    }

    #[test]
    fn every_module_is_there_for_every_architecture() {
        for module in Module::ALL {
            for architecture in FAMILIES.iter().flat_map(|family| family.iter().copied()) {
                let code = image(module, architecture).unwrap().unwrap();
                assert_eq!(made_for(&code), architecture, "{}", module.name());
            }
            assert_eq!(image(module, 75).unwrap(), None);
        }
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let whole = Module::Runtime.packed_cubin(0);
        assert!(unpack(whole, 90).unwrap_err().to_string().contains("nothing for sm_90"));
        assert!(unpack(&whole[..whole.len() / 2], 89).is_err());
        assert!(unpack(b"no archive", 86).is_err());
    }
}
