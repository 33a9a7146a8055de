//! Kernels loaded and launched through `cust` against the same through `cudarc`.

use super::emulator;
use super::engine::MODEL;
use super::harness::{Outcome, Steps};
use super::root::{program, root};
use runner::backend::cuda::CudaBackend;
use runner::backend::cuda::settings::Bindings;

fn run(bindings: Bindings, graph: bool, seed: u64) -> Outcome {
    emulator::stream_order(seed);
    let backend = CudaBackend::new(0).unwrap().with_graph(graph).with_bindings(bindings);
    Steps::new(5, 8).run(MODEL, &root(), &backend)
}

#[test]
fn training_through_cust_gives_the_bits_of_training_through_cudarc() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    // What this program has of `cust` is bound to the driver when it is first asked for.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    assert_eq!(::cust::CudaApiVersion::get(), Err(::cust::error::CudaError::NotFound));
    for graph in [true, false] {
        let expected = run(Bindings::Cudarc, graph, 0);
        assert!(expected.losses.len() == 5 && expected.losses.iter().all(|l| l.is_finite()), "{:?}", expected.losses);
        for seed in 0..4 {
            assert_eq!(run(Bindings::Cust, graph, seed), expected, "graph = {graph}, order {seed}");
        }
    }
    assert!(::cust::CudaApiVersion::get().is_ok());
}

/// A program linked with libcuda would not start where there is no driver.
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn the_program_is_not_linked_with_libcuda() {
    // The loader lists what a program is linked with, and does not run it.
    let mut program = std::process::Command::new(program());
    let listed = program.env("LD_TRACE_LOADED_OBJECTS", "1").output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.contains("libc.so"), "{listed}");
    assert!(!listed.contains("libcuda"), "{listed}");
}
