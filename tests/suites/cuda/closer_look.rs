//! The ways to look closer: node by node, and every value in an allocation of its own. They compute the same.

use super::emulator;
use super::engine::MODEL;
use super::harness::{Outcome, Steps};
use runner::backend::cuda::CudaBackend;
use runner::backend::cuda::settings::{Source, Wanted};
use runner::backend::{Backend, Executable};
use std::path::Path;
use std::sync::Arc;

fn backend(libraries: &Wanted) -> CudaBackend {
    CudaBackend::new(0).unwrap().with_libraries(libraries)
}

fn run(backend: &CudaBackend) -> Outcome {
    Steps::new(4, 8).run(MODEL, Path::new(env!("CARGO_MANIFEST_DIR")), backend)
}

#[test]
fn node_by_node_and_with_values_apart_it_gives_the_same_bits() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    emulator::stream_order(0);
    let mut all = vec![Wanted::default()];
    if emulator::emulated() {
        let file = |name| emulator::nvidia_library(name).map_or(Source::Nowhere, Source::File);
        all.push(Wanted {
            cublaslt: file("libcublasLt.so"),
            cudnn: file("libcudnn.so"),
            everywhere: true,
            cache: None,
        });
    }
    for wanted in all {
        let plain = run(&backend(&wanted));
        for seed in [0, 3] {
            emulator::stream_order(seed);
            assert_eq!(run(&backend(&wanted).with_sync(true)), plain, "node by node, order {seed}");
            assert_eq!(run(&backend(&wanted).with_separate(true)), plain, "values apart, order {seed}");
            assert_eq!(run(&backend(&wanted).with_separate(true).with_sync(true)), plain, "both, order {seed}");
        }
        emulator::stream_order(0);
    }
}

/// What the plan says is what is allocated, in both ways.
#[test]
fn what_is_planned_is_taken_from_the_device() {
    if !emulator::only_emulated() {
        return;
    }
    let _turn = emulator::alone();
    for separate in [false, true] {
        let backend = backend(&Wanted::default()).with_separate(separate);
        let text = runner::config::load_str("test.toml", MODEL, &[]).unwrap();
        let data =
            runner::train::setup::input::describe(&text.experiment).unwrap_or_else(|_| panic!("the data is described"));
        let sizes = runner::train::setup::programs::Sizes {
            train: vec![8.into()],
            eval: vec![8.into()],
            predict: Vec::new(),
            ..Default::default()
        };
        let passes = runner::passes::PassOptions::default();
        let programs =
            runner::train::setup::programs::build(&text.experiment, &data, &sizes, &backend, &passes).unwrap();
        assert_eq!(programs.plan.apart, separate);
        let before = backend.memory().unwrap().unwrap().free;
        let executable: Box<dyn Executable> = backend.compile(Arc::clone(&programs.plan)).unwrap();
        let taken = before - backend.memory().unwrap().unwrap().free;
        let planned = backend.demand(&programs.plan).total;
        assert_eq!(executable.device_use().unwrap().unwrap().planned, planned);
        // An allocation is a whole number of 256 bytes, a place in the plan one of 64.
        let values: usize = programs.plan.programs.iter().map(|p| p.graph.values.len() + p.graph.nodes.len()).sum();
        let rounding = if separate { 256 * (values + programs.plan.variables.len() + 16) } else { 256 };
        assert!(taken.abs_diff(planned) <= rounding, "{taken} taken, {planned} planned");
    }
}
