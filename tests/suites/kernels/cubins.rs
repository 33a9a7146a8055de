//! The packed machine code that the binary includes: made of the packed PTX, by an assembler of a given version. The first
//! line of a file says what it was made from.

use crate::assembler::{self, Assembler, OPTIONS, Version};
use crate::compiled::{Kernel, kernels};
use crate::packed::Packed;
use crate::sources::{Architecture, Sources, hex};
use crate::{STALE, updating};
use lzma_rust2::{XzOptions, XzReader, XzWriter};
use runner::backend::cuda::modules::cubin::FAMILIES;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Bytes that all files may have together, for they lie in the repository and travel in the binary. Each rule of an optimizer is a kernel of
/// its own for every architecture, attention has kernels for four widths of heads, once more for what is far, and depthwise convolutions for three
/// kernels.
const MOST_BYTES: u64 = 5_500_000;

/// Kernels that may spill so many bytes: from PTX, as a driver does it, too, the assemblers want a few registers more than from
/// the source.
const MAY_SPILL: [(&str, u32); 2] =
    [("conv_grad_input_simt_128x128_f32", 128), ("attention_far_mma_grad_queries_64_tf32", 64)];

/// True for a kernel that spills registers where it is assembled from PTX.
pub fn may_spill(name: &str) -> bool {
    MAY_SPILL.iter().any(|(kernel, _)| *kernel == name)
}

/// The assembler for a family: the oldest that knows it, for a driver takes machine code of its own major version's tools, and
/// of older ones.
fn version(family: &[u32]) -> Version {
    if family[0] < 100 { (12, 1) } else { (12, 8) }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/packed/cubin")
}

fn path(module: &str, family: &[u32]) -> PathBuf {
    folder().join(format!("{module}.sm_{}.xz", family[0]))
}

/// The PTX that machine code is made of: all architectures from 8.0 on have that of 8.0. It comes without its first line, so
/// that the code of modules which a change has left as they were need not be made anew.
fn ptx(module: &str) -> String {
    Packed::of(module, Architecture::PACKED[1]).read_ptx()
}

/// The first line of a file.
fn stamp(module: &str, family: &[u32]) -> String {
    let (major, minor) = version(family);
    let mut hash = Sha256::new();
    for part in
        [ptx(module).as_str(), &format!("nvJitLink {major}.{minor}"), &format!("{family:?}"), &OPTIONS.join(" ")]
    {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    format!(
        "// kernels/{module}.cu by nvJitLink {major}.{minor}; SHA-256 of PTX and options: {}",
        hex(&hash.finalize())
    )
}

/// The unpacked file: its head, and the code after it.
fn pack(stamp: &str, parts: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut text = format!("{stamp}\n");
    parts.iter().for_each(|(architecture, code)| text += &format!("sm_{architecture} {}\n", code.len()));
    let mut options = XzOptions::with_preset(9);
    // An instruction has 16 bytes, and what a byte means depends on where it is in that.
    (options.lzma_options.lc, options.lzma_options.pb) = (0, 4);
    let mut writer = XzWriter::new(Vec::new(), options).unwrap();
    writer.write_all(format!("{text}\n").as_bytes()).unwrap();
    parts.iter().for_each(|(_, code)| writer.write_all(code).unwrap());
    writer.finish().unwrap()
}

fn unpack(path: &Path) -> Vec<u8> {
    try_unpack(path).unwrap_or_else(|e| panic!("{}: {e}; {STALE}", path.display()))
}

fn try_unpack(path: &Path) -> std::io::Result<Vec<u8>> {
    let packed = fs::read(path)?;
    let mut bytes = Vec::new();
    XzReader::new(&packed[..], false).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The machine code of a module for an architecture, as it is packed.
///
/// # Panics
/// The file is not one that [`pack`] has made, or has no code for that architecture.
pub fn packed(module: &str, architecture: Architecture) -> Vec<u8> {
    let family = FAMILIES.iter().find(|family| family.contains(&architecture.capability()));
    let path = path(module, family.unwrap_or_else(|| panic!("no machine code is packed for {}", architecture.name())));
    let bytes = unpack(&path);
    let end = bytes.windows(2).position(|two| two == b"\n\n").unwrap_or_else(|| panic!("{}: no head", path.display()));
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut at = end + 2;
    for line in head.lines().skip(1) {
        let (name, length) = line.split_once(' ').unwrap_or_else(|| panic!("{}: `{line}`", path.display()));
        let length: usize = length.parse().unwrap_or_else(|e| panic!("{}: `{line}`: {e}", path.display()));
        if name == architecture.name() {
            return bytes[at..at + length].to_vec();
        }
        at += length;
    }
    panic!("{} has no code for {}", path.display(), architecture.name())
}

/// The machine code of a module for a family, or what is wrong with it. Spilled registers are not taken.
fn assemble(assembler: &Assembler, module: &str, family: &[u32]) -> Result<Vec<(u32, Vec<u8>)>, String> {
    let ptx = ptx(module);
    family
        .iter()
        .map(|architecture| {
            let name = format!("{module} for sm_{architecture}");
            let made = assembler.assemble(module, &ptx, *architecture).map_err(|e| format!("{name}: {e}"))?;
            let kernels = kernels(&made.log);
            if kernels.is_empty() {
                return Err(format!("{name}: the assembler names no kernel"));
            }
            let allowed = |k: &&Kernel| MAY_SPILL.iter().any(|(name, most)| k.name == *name && k.spills <= *most);
            match kernels.iter().filter(|k| k.spills > 0).find(|k| !allowed(k)) {
                Some(kernel) => Err(format!("{name}: {} spills {} bytes", kernel.name, kernel.spills)),
                None => Ok((*architecture, made.code)),
            }
        })
        .collect()
}

/// Makes files anew whose PTX has changed.
pub fn update(sources: &Sources) {
    fs::create_dir_all(folder()).unwrap();
    for family in FAMILIES {
        let stale = |module: &&String| {
            let head = format!("{}\n", stamp(module, family));
            try_unpack(&path(module, family)).map_or(true, |bytes| !bytes.starts_with(head.as_bytes()))
        };
        let stale: Vec<&String> = sources.modules.keys().filter(stale).collect();
        if stale.is_empty() {
            continue;
        }
        let assembler =
            assembler::find(version(family)).unwrap_or_else(|why| panic!("machine code can't be made anew: {why}"));
        for module in stale {
            let parts = assemble(&assembler, module, family).unwrap_or_else(|why| panic!("{why}"));
            fs::write(path(module, family), pack(&stamp(module, family), &parts)).unwrap();
        }
    }
}

/// Every file is there, made of the PTX beside it, and together they are not too large.
pub fn check_fresh(sources: &Sources) {
    let mut expected: BTreeMap<PathBuf, String> = BTreeMap::new();
    for module in sources.modules.keys() {
        for family in FAMILIES {
            expected.insert(path(module, family), stamp(module, family));
        }
    }
    let mut bytes = 0;
    for (path, stamp) in &expected {
        let unpacked = unpack(path);
        let first = unpacked.split(|b| *b == b'\n').next().unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(first), *stamp, "{}: {STALE}", path.display());
        bytes += fs::metadata(path).unwrap().len();
    }
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        assert!(expected.contains_key(&path), "{} is made from no PTX: remove it", path.display());
    }
    println!("{} files of machine code, {bytes} bytes", expected.len());
    assert!(bytes <= MOST_BYTES, "machine code of {bytes} bytes, and {MOST_BYTES} are allowed");
}

#[test]
fn the_machine_code_is_what_the_ptx_assembles_to() {
    let test = "the_machine_code_is_what_the_ptx_assembles_to";
    if updating() || std::env::var_os("RUNNER_NVJITLINK").is_none() {
        let why = if updating() { "it is being made" } else { "RUNNER_NVJITLINK names no folder of nvJitLink" };
        println!("{test}: skipped, {why}");
        return;
    }
    for family in FAMILIES {
        let assembler = match assembler::find(version(family)) {
            Ok(assembler) => assembler,
            Err(why) => {
                println!("{test}: {family:?} skipped, {why}");
                continue;
            }
        };
        for module in Sources::read().modules.keys() {
            let parts = assemble(&assembler, module, family).unwrap_or_else(|why| panic!("{why}"));
            let made = pack(&stamp(module, family), &parts);
            let mut unpacked = Vec::new();
            XzReader::new(&made[..], false).read_to_end(&mut unpacked).unwrap();
            assert!(unpack(&path(module, family)) == unpacked, "{module} for {family:?}: {STALE}");
        }
    }
}

#[test]
fn a_file_has_a_head_and_its_parts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.xz");
    fs::write(&path, pack("// stamp", &[(80, b"eighty".to_vec()), (86, b"\n\n".to_vec())])).unwrap();
    assert_eq!(unpack(&path), b"// stamp\nsm_80 6\nsm_86 2\n\neighty\n\n");
}
