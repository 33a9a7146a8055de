//! A failure on a GPU is an error with the node where that can be known, with what to do, and with the right exit code.
//! Faults are planted in the emulated driver.

use crate::support::{Done, Place};
use crate::{emulator, ok_with, run_with};
use std::path::{Path, PathBuf};

/// A few layers, with names, whose activation has a kernel of its own.
const CONFIG: &str = r#"
seed = 1
device = "cuda"
[data]
source = "synthetic"
shape = [3, 8, 8]
classes = 5
samples = 16
val_samples = 8
batch_size = 8
[model]
layers = [
  { name = "first", type = "conv2d", out_channels = 8, kernel_size = 3, padding = 1 },
  { type = "max_pool2d", kernel_size = 2 },
  { name = "bend", type = "gelu" },
  "flatten",
  { type = "linear", out_features = 5 },
]
[loss]
type = "cross_entropy"
[optimizer]
type = "sgd"
lr = 0.1
[train]
epochs = 1
"#;

fn train(place: &Place, folder: &Path, env: &[(&str, &str)]) -> Done {
    run_with(place, folder, "train c.toml --out r --force -q", env)
}

/// The functions that the backend calls, as `driver/sys.rs` lists them.
fn functions() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/engine/src/backend/cuda/driver/sys.rs");
    let text = std::fs::read_to_string(path).unwrap();
    let list = text.split("functions! {").nth(1).unwrap().split("\n}").next().unwrap();
    let names = list.lines().filter_map(|line| line.trim().split('(').next());
    let names: Vec<String> = names.filter(|name| name.starts_with("cu")).map(str::to_owned).collect();
    assert!(names.len() > 40, "{names:?}");
    names
}

/// Functions whose failure changes nothing for this run: what gives back or explains, and what it does not call.
const NO_MATTER: [&str; 14] = [
    "cuDevicePrimaryCtxRelease_v2",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuModuleUnload",
    "cuStreamDestroy_v2",
];

/// A newer driver may answer with numbers that are unknown here; every function of it may, at every call.
#[test]
fn an_unknown_answer_is_an_error_of_any_function() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(CONFIG);
    for name in functions() {
        let done = train(&place, &folder, &[("EMULATED_FAIL", &format!("{name}=12345"))]);
        if NO_MATTER.contains(&name.as_str()) {
            assert_eq!(done.code, Some(0), "{name}: {done:?}");
            continue;
        }
        // Without a context there is no device.
        assert!(matches!(done.code, Some(1 | 3)), "{name}: {done:?}");
        assert!(done.err.contains("error 12345"), "{name}: {done:?}");
    }
    let traced = |plant| run_with(&place, &folder, "bench c.toml --steps 1", &[("EMULATED_FAIL", plant)]);
    let done = traced("cuEventElapsedTime=12345");
    assert!(done.code == Some(1) && done.err.contains("while measuring (error 12345)"), "{done:?}");
}

/// Memory is an error of the device wherever it runs out, also long after the plan's own memory has been had.
#[test]
fn out_of_memory_is_exit_3_wherever_it_comes_up() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(CONFIG);
    let asking = ["cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetName", "cuDeviceTotalMem_v2"];
    let starting = ["cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuCtxSetCurrent", "cuMemGetInfo_v2"];
    for name in functions() {
        if NO_MATTER.contains(&name.as_str()) {
            continue;
        }
        let done = train(&place, &folder, &[("EMULATED_FAIL", &format!("{name}=2"))]);
        assert_eq!(done.code, Some(3), "{name}: {done:?}");
        let help = done.err.lines().filter(|line| line.starts_with("help: ")).count();
        assert_eq!(help, 1, "{name}: {done:?}");
        if !asking.contains(&name.as_str()) && !starting.contains(&name.as_str()) {
            assert!(done.err.contains("not enough memory "), "{name}: {done:?}");
        }
    }
    let graph = train(&place, &folder, &[("EMULATED_FAIL", "cuGraphInstantiateWithFlags=2")]);
    assert!(graph.err.contains("program `train, batch of 8`: the GPU failed while making a graph"), "{graph:?}");
    let node = train(&place, &folder, &[("EMULATED_FAIL", "cuLaunchKernel=2@4")]);
    assert!(node.err.contains("node 3 (`gelu` of `bend`)"), "{node:?}");
}

/// The driver reports a fault when something is waited for, and does not say whose it is. Node by node, it is known.
#[test]
fn a_fault_of_a_kernel_is_an_error_with_its_node_where_every_node_is_waited_for() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(CONFIG);
    for (code, name) in
        [("700", "CUDA_ERROR_ILLEGAL_ADDRESS"), ("719", "CUDA_ERROR_LAUNCH_FAILED"), ("4242", "error 4242")]
    {
        let plant = format!("activation_f32={code}");
        let fault = ("EMULATED_FAULT", plant.as_str());
        for graph in ["true", "false"] {
            let args = format!("train c.toml --out r --force -q --set graph={graph}");
            let done = run_with(&place, &folder, &args, &[fault]);
            assert!(done.code == Some(1) && done.err.contains(name), "{done:?}");
            assert!(done.err.contains("\nhelp: RUNNER_CUDA_SYNC=1 ") && !done.err.contains("bend"), "{done:?}");
        }
        let done = train(&place, &folder, &[fault, ("RUNNER_CUDA_SYNC", "1")]);
        assert!(done.code == Some(1) && !done.err.contains("RUNNER_CUDA_SYNC"), "{done:?}");
        for part in [
            "node 3 (`gelu` of `bend`) of program `train, batch of 8`: the GPU failed",
            name,
            "\n  kernel `activation_f32` of kernels/cuda/elementwise.cu: 1 x 1 x 1 blocks of 256 x 1 x 1 threads",
            "\n  input 0: f32[8, 4, 4, 8], 4096 bytes at 0x",
            "\n  output 0: f32[8, 4, 4, 8], 4096 bytes at 0x",
        ] {
            assert!(done.err.contains(part), "{part}: {done:?}");
        }
    }
    // Of the backward pass, with a variable and the workspace.
    let fault = ("EMULATED_FAULT", "sgd_f32=700");
    let done = train(&place, &folder, &[fault, ("RUNNER_CUDA_SYNC", "1")]);
    assert!(
        done.err.contains("(`sgd`, backward) of program") && done.err.contains("variable `first.weight`"),
        "{done:?}"
    );
    // In an evaluation.
    ok_with(&place, &folder, "train c.toml --out r --force -q", &[]);
    let env = [("EMULATED_FAULT", "activation_f32=700"), ("RUNNER_CUDA_SYNC", "1")];
    let done = run_with(&place, &folder, "eval r/last.safetensors", &env);
    assert!(done.code == Some(1) && done.err.contains("of `bend`) of program `eval, batch of 8`"), "{done:?}");
}

/// An error of the launch itself names the node without being asked to.
#[test]
fn a_launch_that_is_refused_names_its_node() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(CONFIG);
    let done = train(&place, &folder, &[("EMULATED_FAIL", "cuLaunchKernel=701@4")]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.err.contains("node 3 (`gelu` of `bend`) of program `train, batch of 8`: the GPU failed while starting"),
        "{done:?}"
    );
    assert!(done.err.contains("kernel `activation_f32`"), "{done:?}");
}

/// A kernel that goes beyond its value changes its neighbour's numbers. With each value in an allocation of its own that is an
/// access that the device refuses.
#[test]
fn an_access_beyond_a_value_is_found_where_values_are_apart() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(CONFIG);
    let overrun = ("EMULATED_OVERRUN", "activation_f32");
    let unseen = train(&place, &folder, &[overrun, ("RUNNER_CUDA_SYNC", "1")]);
    assert_eq!(unseen.code, Some(0), "the block of memory goes on behind the value: {unseen:?}");
    let env = [overrun, ("RUNNER_CUDA_SYNC", "1"), ("RUNNER_CUDA_SEPARATE", "1")];
    let found = train(&place, &folder, &env);
    assert!(found.code == Some(1) && found.err.contains("node 3 (`gelu` of `bend`)"), "{found:?}");
    let late = train(&place, &folder, &[overrun, ("RUNNER_CUDA_SEPARATE", "1")]);
    assert!(late.code == Some(1) && late.err.contains("RUNNER_CUDA_SYNC=1"), "{late:?}");
    ok_with(&place, &folder, "train c.toml --out r --force -q", &env[1..]);
}

/// The error has what the driver's compiler says of a module.
#[test]
fn the_error_of_a_module_that_does_not_load_has_the_compilers_log() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(CONFIG);
    for (code, help) in [
        (218, "a newer driver may take them"),
        (221, "libnvidia-ptxjitcompiler"),
        (223, "unset CUDA_DISABLE_PTX_JIT"),
        (54321, "a newer driver may take them"),
    ] {
        let done = train(&place, &folder, &[("EMULATED_FAIL", &format!("cuModuleLoadDataEx={code}"))]);
        assert_eq!(done.code, Some(1), "{done:?}");
        let log = format!("\n  ptxas fatal   : planted answer {code}\nhelp: ");
        assert!(done.err.contains("does not take the kernels `") && done.err.contains(&log), "{done:?}");
        assert!(done.err.contains(help), "{done:?}");
    }
}

#[test]
fn a_driver_that_lacks_a_function_is_an_error() {
    let Some(_) = emulator::library_dir() else { return };
    let place = Place::with(CONFIG);
    let library: PathBuf = place.path("old/libcuda.so");
    std::fs::create_dir_all(library.parent().unwrap()).unwrap();
    emulator::shared_library("extern \"C\" int cuInit(unsigned) { return 0; }", &library);
    let done = run_with(&place, library.parent().unwrap(), "train c.toml", &[]);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("has no function `cuCtxSetCurrent`") && done.err.contains("\nhelp: install"), "{done:?}");
}

/// A variable that says something that there is not is as wrong as an option; also where the device may be another.
#[test]
fn a_wrong_variable_is_exit_2() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(CONFIG);
    for name in
        ["RUNNER_CUDA_SYNC", "RUNNER_CUDA_SEPARATE", "RUNNER_CUDA_LIBRARIES", "RUNNER_CUDA_LAUNCHER", "RUNNER_SIMD"]
    {
        for device in if name == "RUNNER_SIMD" { ["cpu"; 2] } else { ["cuda", "auto"] } {
            let done = run_with(&place, &folder, &format!("check c.toml --device {device}"), &[(name, "perhaps")]);
            assert_eq!(done.code, Some(2), "{done:?}");
            assert!(done.err.contains(name) && done.err.contains("perhaps"), "{done:?}");
        }
    }
}
