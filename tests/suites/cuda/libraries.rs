//! NVIDIA's libraries in the engine: with the test doubles on the emulated driver, and with libraries that are no good.

use super::emulator;
use super::engine::MODEL;
use super::harness::{Outcome, Steps};
use super::root::root;
use runner::backend::cuda::CudaBackend;
use runner::backend::cuda::settings::{Source, Wanted};
use std::path::{Path, PathBuf};

/// The test doubles, for everything that they take; `None` on a real GPU or without a compiler.
fn doubles() -> Option<Wanted> {
    if !emulator::only_emulated() {
        return None;
    }
    let file = |name| emulator::nvidia_library(name).map(Source::File);
    Some(Wanted { cublaslt: file("libcublasLt.so")?, cudnn: file("libcudnn.so")?, everywhere: true, cache: None })
}

fn run(wanted: &Wanted, graph: bool, seed: u64) -> Outcome {
    emulator::stream_order(seed);
    let backend = CudaBackend::new(0).unwrap().with_graph(graph).with_libraries(wanted);
    Steps::new(4, 8).run(MODEL, &root(), &backend)
}

#[test]
fn with_libraries_a_run_is_captured_and_gives_the_same_bits_in_whatever_order() {
    let Some(wanted) = doubles() else { return };
    let _turn = emulator::alone();
    let plain = run(&wanted, false, 0);
    for seed in 0..5 {
        for graph in [true, false] {
            assert_eq!(run(&wanted, graph, seed), plain, "graph = {graph}, order {seed}");
        }
    }
    // The same sums in another order.
    let own = run(&Wanted::default(), true, 0);
    assert_ne!(own, plain, "the libraries were not used");
    for (a, b) in own.losses.iter().zip(&plain.losses) {
        assert!((a - b).abs() <= 1e-3 * a.abs(), "{:?} and {:?}", own.losses, plain.losses);
    }
}

/// Convolutions with bias and ReLU, without, in groups, and strided with uneven padding.
const CONVOLUTIONS: &str = r#"
seed = 1
[data]
source = "synthetic"
shape = [8, 8, 8]
classes = 5
samples = 64
val_samples = 16
batch_size = 4

[model]
layers = [
  { type = "conv2d", out_channels = 16, kernel_size = 3, padding = 1 },
  "relu",
  { type = "conv2d", out_channels = 16, kernel_size = 3, stride = 2, padding = 1, bias = false },
  "batch_norm2d",
  { type = "conv2d", out_channels = 16, kernel_size = 3, padding = 1, groups = 2 },
  "tanh",
  "flatten",
  { type = "linear", out_features = 5 },
]

[loss]
type = "cross_entropy"

[optimizer]
type = "sgd"
lr = 0.05

[train]
epochs = 1
"#;

/// Each precision through cuDNN: near to our own kernels, the same bits captured or not, and nothing found wrong.
#[test]
fn every_precision_is_computed_by_plans() {
    if !emulator::only_emulated() {
        return;
    }
    let _turn = emulator::alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(file) = emulator::own_cudnn(dir.path()) else { return };
    let wanted = Wanted { cudnn: Source::File(file.clone()), everywhere: true, ..Wanted::default() };
    for (precision, unit) in [("fp32", 1e-6), ("tf32", 1e-3), ("bf16", 1e-2), ("fp16", 1e-3)] {
        let text = format!("precision = \"{precision}\"\n{CONVOLUTIONS}");
        let run = |wanted: &Wanted, graph: bool, seed: u64| {
            emulator::stream_order(seed);
            let backend = CudaBackend::new(0).unwrap().with_graph(graph).with_libraries(wanted);
            let backend = backend.with_tf32(precision == "tf32");
            let outcome = Steps::new(3, 4).run(&text, Path::new(env!("CARGO_MANIFEST_DIR")), &backend);
            assert_eq!(runner::backend::Backend::notes(&backend), Vec::<String>::new());
            outcome
        };
        let before = emulator::counts(&file).calls;
        let plain = run(&wanted, false, 0);
        assert!(emulator::counts(&file).calls > before, "{precision}");
        for seed in 1..3 {
            assert_eq!(run(&wanted, true, seed), plain, "{precision}, order {seed}");
        }
        let own = run(&Wanted::default(), true, 0);
        // Of a step's loss a few units of rounding, and of later ones what steps make of them.
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 30.0 * unit * a.abs();
        assert!(own.losses.iter().zip(&plain.losses).all(near), "{precision}: {:?}, {:?}", own.losses, plain.losses);
        assert_eq!(plain.losses.len(), 3);
    }
    assert_eq!(emulator::counts(&file).live, 0, "descriptors that were never destroyed");
}

#[test]
fn the_libraries_in_use_are_named() {
    let Some(wanted) = doubles() else { return };
    let all = CudaBackend::new(0).unwrap().with_libraries(&wanted);
    assert!(all.libraries().names().is_empty(), "none has been needed yet");
    assert!(all.libraries().dnn().is_some());
    assert_eq!(all.libraries().names(), ["cuDNN"]);
    assert!(all.libraries().blas().is_some());
    assert_eq!(all.libraries().names(), ["cuBLASLt", "cuDNN"]);
    assert!(runner::backend::Backend::describe(&all).contains(", cuBLASLt, cuDNN)"));
    let none = all.with_libraries(&Wanted::default());
    assert!(none.libraries().blas().is_none() && none.libraries().dnn().is_none());
    assert!(none.libraries().names().is_empty() && none.libraries().problems().is_empty());
}

const BLAS: [&str; 12] = [
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmul",
];

/// A library whose functions all answer 1, which means that it cannot start.
fn broken(folder: &Path, file: &str, version: (&str, usize), functions: &[&str]) -> PathBuf {
    let (name, number) = version;
    let mut code = format!("extern \"C\" unsigned long {name}() {{ return {number}; }}\n");
    for function in functions {
        code += &format!("extern \"C\" int {function}() {{ return 1; }}\n");
    }
    let path = folder.join(file);
    emulator::shared_library(&code, &path);
    path
}

/// A broken library has a note, and a run without it gives the bits of our own kernels.
#[test]
fn broken_libraries_are_noted_and_not_used() {
    if !emulator::only_emulated() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let version = "cublasLtGetVersion";
    let blas = |file: &str, number, functions: &[&str]| broken(dir.path(), file, (version, number), functions);
    let no_library = dir.path().join("none.so");
    std::fs::write(&no_library, "no library").unwrap();
    let cases = [
        (blas("start.so", 130_000, &BLAS), "does not start (status 1)"),
        (blas("lacks.so", 130_000, &BLAS[..11]), "has no function `cublasLtMatmul`"),
        (blas("old.so", 110_803, &BLAS), "is too old (11.8, and 12.0 is needed)"),
        (broken(dir.path(), "mute.so", ("other", 1), &BLAS), "does not tell its version"),
        (no_library.clone(), "does not load"),
        (dir.path().join("gone.so"), "does not load"),
    ];
    let own = run(&Wanted::default(), true, 0);
    for (path, why) in cases {
        let wanted = Wanted { cublaslt: Source::File(path.clone()), everywhere: true, ..Wanted::default() };
        let backend = CudaBackend::new(0).unwrap().with_libraries(&wanted);
        assert!(backend.libraries().blas().is_none());
        let problems = backend.libraries().problems().join("\n");
        assert_eq!(runner::backend::Backend::notes(&backend).join("\n"), problems, "they are noted once");
        assert!(problems.contains(why) && problems.contains(path.to_str().unwrap()), "{why}: {problems}");
        assert!(backend.libraries().names().is_empty());
        assert_eq!(run(&wanted, true, 0), own, "{why}");
    }
    // cuDNN without its parts would end the program when it is first used.
    let Some(double) = emulator::nvidia_library("libcudnn.so") else { return };
    let alone = dir.path().join("libcudnn.so");
    std::fs::copy(double, &alone).unwrap();
    let wanted = Wanted { cudnn: Source::File(alone), everywhere: true, ..Wanted::default() };
    let backend = CudaBackend::new(0).unwrap().with_libraries(&wanted);
    let opened = backend.libraries().dnn().is_some();
    let problems = backend.libraries().problems().join("\n");
    // Unless this machine has cuDNN itself, whose parts are found then.
    assert!(opened || problems.contains("lacks its part libcudnn_graph.so.9"), "{problems}");
}
