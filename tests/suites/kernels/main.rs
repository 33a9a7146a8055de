//! The CUDA kernels: what travels in the binary is made from the sources that lie beside it, and the sources compile for
//! every GPU that is served, without warnings and without spilled registers.
//!
//! `UPDATE_KERNELS=1 cargo test --test kernels` makes `kernels/packed/ptx/*.ptx.xz`, `kernels/packed/cubin/*.xz` and the tables of
//! `docs/kernels.md` anew, which takes NVRTC 12.1 ([`nvrtc::find`] says where it is looked for), and nvJitLink 12.1 and 12.8
//! ([`assembler::find`]). Whether they are fresh is checked without them.

mod assembler;
mod compiled;
mod cubins;
mod machine_code;
mod nvrtc;
mod packed;
mod sources;
mod tables;

use compiled::{Compiled, compiled};
use packed::Packed;
use sources::{Architecture, Sources};
use std::fs;

const STALE: &str = "run UPDATE_KERNELS=1 cargo test --test kernels";

fn updating() -> bool {
    std::env::var_os("UPDATE_KERNELS").is_some()
}

/// What NVRTC made of the kernels, or nothing where there is no NVRTC: then says so in the name of `test`.
fn compiled_for(test: &str) -> Option<&'static [Compiled]> {
    match compiled() {
        Ok(list) => Some(list),
        Err(why) => {
            println!("{test}: skipped, {why}");
            None
        }
    }
}

#[test]
fn every_module_has_its_file() {
    let sources = Sources::read();
    let files: Vec<&str> = sources.modules.keys().map(String::as_str).collect();
    let mut modules = runner::backend::gpu::launch::Module::ALL.map(|module| module.name());
    modules.sort_unstable();
    assert_eq!(files, modules, "kernels/cuda/*.cu (left) against the list in kernels/module.rs (right)");
}

#[test]
fn the_packed_kernels_are_fresh() {
    let sources = Sources::read();
    if updating() {
        update(&sources);
    }
    let mut expected = Vec::new();
    for module in sources.modules.keys() {
        for architecture in Architecture::PACKED {
            let packed = Packed::of(module, architecture);
            expected.push(packed.path.clone());
            assert_eq!(
                packed.read_stamp(),
                packed::stamp(&sources, module, architecture),
                "{}: {STALE}",
                packed.name()
            );
        }
    }
    for entry in fs::read_dir(packed::folder()).unwrap() {
        let path = entry.unwrap().path();
        assert!(expected.contains(&path), "{} is made from no source: remove it", path.display());
    }
    cubins::check_fresh(&sources);
    let document = fs::read_to_string(tables::path()).unwrap();
    assert_eq!(tables::stamp_in(&document), Some(tables::stamp(&sources)), "docs/kernels.md: {STALE}");
}

/// Writes the packed kernels and the tables.
fn update(sources: &Sources) {
    let list = compiled().unwrap_or_else(|why| panic!("kernels can't be made anew: {why}"));
    let version = nvrtc::find().and_then(|n| n.version()).unwrap();
    assert_eq!(
        version,
        sources::PTX_VERSION,
        "NVRTC {}.{} was found, but what travels in the binary is made with {}.{}, so that drivers from 530 on read it",
        version.0,
        version.1,
        sources::PTX_VERSION.0,
        sources::PTX_VERSION.1
    );
    complain(list);
    for module in sources.modules.keys() {
        let made = |of| list.iter().find(|c| c.module == *module && c.architecture == of).expect("it is compiled");
        let texts = packed::ORDER.map(|of| (packed::stamp(sources, module, of), made(of).ptx.as_str()));
        packed::write(&Packed::of(module, packed::ORDER[0]).path, &texts);
    }
    cubins::update(sources);
    let document = fs::read_to_string(tables::path()).unwrap();
    fs::write(tables::path(), tables::replace(&document, sources, list)).unwrap();
}

/// Fails if a module did not compile, or with warnings.
fn complain(list: &[Compiled]) {
    let bad: Vec<String> = list.iter().filter_map(Compiled::complaint).collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn the_sources_compile_without_warnings() {
    let Some(list) = compiled_for("the_sources_compile_without_warnings") else { return };
    complain(list);
    for c in list {
        assert!(!c.kernels.is_empty(), "{} for {}: NVRTC names no kernel", c.module, c.architecture.name());
    }
}

#[test]
fn the_packed_kernels_are_what_the_sources_compile_to() {
    let test = "the_packed_kernels_are_what_the_sources_compile_to";
    if updating() {
        println!("{test}: skipped, they are being made");
        return;
    }
    let Some(list) = compiled_for(test) else { return };
    let version = nvrtc::find().and_then(|n| n.version()).unwrap();
    if version != sources::PTX_VERSION {
        println!("{test}: skipped, NVRTC {}.{} is another than the one they were made with", version.0, version.1);
        return;
    }
    for c in list.iter().filter(|c| Architecture::PACKED.contains(&c.architecture)) {
        let packed = Packed::of(&c.module, c.architecture);
        assert!(packed.read_ptx() == c.ptx, "{}: {STALE}", packed.name());
    }
}

/// Kernels that may spill registers, with the reason. Names are without the element type.
const MAY_SPILL: [(&str, &str); 2] = [
    ("cross_entropy_thread_", "some numbers around a row, up to 32 bytes"),
    ("cross_entropy_block_", "some numbers around a row, up to 64 bytes"),
];

#[test]
fn no_kernel_spills_registers() {
    let Some(list) = compiled_for("no_kernel_spills_registers") else { return };
    let mut bad = Vec::new();
    for c in list {
        for kernel in c.kernels.iter().filter(|k| k.spills > 0) {
            if !MAY_SPILL.iter().any(|(name, _)| kernel.name.starts_with(name)) {
                bad.push(format!(
                    "{} for {}: {} spills {} bytes",
                    c.module,
                    c.architecture.name(),
                    kernel.name,
                    kernel.spills
                ));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// The order of a sum must not depend on which block comes first; counters of integers are another matter.
#[test]
fn there_are_no_atomics_on_floats() {
    for module in Sources::read().modules.keys() {
        for architecture in Architecture::PACKED {
            let ptx = Packed::of(module, architecture).read_ptx();
            let atomics = ptx.lines().map(str::trim).filter(|l| l.starts_with("atom.") || l.starts_with("red."));
            for line in atomics {
                let on_floats = line.split_whitespace().next().is_some_and(|i| i.contains(".f") || i.contains(".bf"));
                assert!(!on_floats, "{module} for {}: `{line}`", architecture.name());
            }
        }
    }
}
