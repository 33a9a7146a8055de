//! What kernels are loaded from: machine code where there is some for the GPU, PTX elsewhere, and where the driver does not take
//! the machine code.

use crate::support::{Place, plain};
use crate::{emulator, ok_with, run_with};

/// The driver's cache is off, so that compiling PTX has a note.
const NO_CACHE: (&str, &str) = ("CUDA_CACHE_DISABLE", "1");

const TRAIN: &str = "train c.toml --device cuda --out r --force --set train.max_steps=2";

#[test]
fn most_gpus_have_machine_code_and_the_others_have_a_note_of_what_compiling_costs() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(&plain());
    for (capability, machine_code) in [
        ("75", false),
        ("80", true),
        ("86", true),
        ("87", false),
        ("89", true),
        ("90", true),
        ("100", true),
        ("103", true),
        ("110", false),
        ("120", true),
        ("121", true),
    ] {
        let done = ok_with(&place, &folder, TRAIN, &[NO_CACHE, ("EMULATED_CAPABILITY", capability)]);
        let notes: Vec<&str> = done.err.lines().filter(|line| line.contains("compiles the kernels")).collect();
        assert_eq!(notes.len(), usize::from(!machine_code), "{capability}: {done:?}");
        if let Some(note) = notes.first() {
            let version = format!(
                "compute capability {}.{}",
                &capability[..capability.len() - 1],
                &capability[capability.len() - 1..]
            );
            assert!(note.contains(&version) && note.contains("CUDA_CACHE_DISABLE is set: unset it"), "{note}");
        }
    }
    let quiet = ok_with(&place, &folder, &format!("{TRAIN} -q"), &[NO_CACHE, ("EMULATED_CAPABILITY", "75")]);
    assert_eq!(quiet.err, "");
    let turing = [("EMULATED_CAPABILITY", "75"), ("HOME", "/proc/self"), ("CUDA_CACHE_PATH", "")];
    let done = ok_with(&place, &folder, TRAIN, &turing);
    assert!(done.err.contains("cannot be written in /proc/self/.nv/ComputeCache"), "{done:?}");
    let home = place.path("").display().to_string();
    let done =
        ok_with(&place, &folder, TRAIN, &[("EMULATED_CAPABILITY", "75"), ("HOME", &home), ("CUDA_CACHE_PATH", "")]);
    assert!(!done.err.contains("compiles the kernels"), "the cache can be written: {done:?}");
}

#[test]
fn machine_code_that_is_refused_gives_way_to_ptx() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(&plain());
    ok_with(&place, &folder, TRAIN, &[]);
    let metrics = place.metrics("r");
    for code in ["209", "218", "200", "12345"] {
        let done = ok_with(&place, &folder, TRAIN, &[("EMULATED_FAIL", &format!("cuModuleLoadDataEx={code}@1"))]);
        let notes =
            done.err.lines().filter(|l| l.contains("compiled from PTX, as their machine code is not taken")).count();
        assert_eq!(notes, 1, "{done:?}");
        assert_eq!(place.metrics("r"), metrics, "{code}");
    }
    // Not for lack of memory, which PTX would not spare.
    let done = run_with(&place, &folder, TRAIN, &[("EMULATED_FAIL", "cuModuleLoadDataEx=2@1")]);
    assert_eq!(done.code, Some(3), "{done:?}");
    // A user who forces PTX gets no note.
    let done = ok_with(&place, &folder, TRAIN, &[("CUDA_FORCE_PTX_JIT", "1"), NO_CACHE]);
    assert!(!done.err.contains("not taken") && done.err.contains("compiles the kernels"), "{done:?}");
}

#[test]
fn devices_shows_what_each_gpu_gets() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::new();
    for (capability, json, text) in [
        ("75", serde_json::Value::Null, "PTX, which the driver compiles"),
        ("90", "sm_90".into(), "machine code for sm_90"),
        ("103", "sm_100".into(), "machine code for sm_100"),
    ] {
        let env = [("EMULATED_CAPABILITY", capability)];
        let report = ok_with(&place, &folder, "devices --json", &env).json();
        assert_eq!(report["devices"][1]["kernels"], json, "{report}");
        assert_eq!(report["cuda"]["machine_code"].as_array().unwrap().len(), 6);
        let out = ok_with(&place, &folder, "devices", &env).out;
        assert!(out.contains(&format!("  kernels             {text}\n")) && out.contains("8.1 for sm_80"), "{out}");
    }
}
