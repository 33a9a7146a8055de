//! Random lists of layers: those that fit become programs, and the others get errors with a place.

use crate::nets::{fitting, wild};
use proptest::prelude::*;
use runner::backend::cpu::CpuBackend;
use runner::backend::{Backend, Executable, HostBuffer};
use runner::config::{self, Diagnostic, Experiment};
use runner::graph::{DType, Graph, Node, VarKind, verify};
use runner::passes::PassOptions;
use runner::plan::Plan;
use runner::train::setup::input;
use runner::train::setup::programs::{self, Programs, Sizes};
use std::path::Path;
use std::sync::Arc;

/// The programs of an experiment, as training makes them.
pub fn build(experiment: &Experiment, backend: &dyn Backend) -> Result<Programs, Vec<Diagnostic>> {
    let data = input::describe(experiment).unwrap();
    let loading = &experiment.data.loading;
    let sizes = Sizes {
        train: Sizes::of(loading.batch_size, data.train, loading.drop_last),
        eval: Sizes::of(loading.eval_batch_size(), data.val, false),
        predict: vec![1.into()],
        ..Sizes::default()
    };
    programs::build(experiment, &data, &sizes, backend, &PassOptions::default())
}

/// What a configuration is to read that learns a text of which the repository has no copy: another text, as long as it needs. A large model of tokens, which needs no file to
/// be planned, is made small.
pub fn some_text(path: &Path) -> Vec<String> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    if name == "gpt2_124m" {
        let small = [
            "model.with.width=24",
            "model.with.heads=2",
            "model.with.layers=1",
            "data.context=16",
            "train.accumulate=1",
        ];
        return small.map(str::to_owned).to_vec();
    }
    if !name.starts_with("shakespeare_") {
        return Vec::new();
    }
    let text = Path::new(env!("CARGO_TARGET_TMPDIR")).join("some_text.txt");
    std::fs::write(&text, "To be, or not to be: that is the question.\n".repeat(1000)).unwrap();
    let path = format!("data.path={:?}", text.display().to_string());
    // What is loaded without its data does not know how many byte pairs there are: 256 bytes, and what this text has of them.
    let vocabulary = (name == "shakespeare_bpe").then(|| "model.with.vocabulary=280".to_owned());
    [path].into_iter().chain(vocabulary).collect()
}

/// `None` if the configuration layer refuses the text.
fn errors(text: &str) -> Option<Vec<Diagnostic>> {
    let loaded = config::load_str("random.toml", text, &[]).ok()?;
    let backend = CpuBackend::new(Some(2)).unwrap();
    match build(&loaded.experiment, &backend) {
        Ok(programs) => {
            for p in &programs.plan.programs {
                verify(&p.graph).unwrap_or_else(|e| panic!("{}: {e}", p.name));
            }
            Some(Vec::new())
        }
        Err(errors) => Some(errors),
    }
}

/// The CPU as a device that has all types, as far as programs are planned for it.
struct AllTypes(CpuBackend);

impl Backend for AllTypes {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn supports(&self, _: DType) -> bool {
        true
    }

    fn workspace(&self, graph: &Graph, node: &Node) -> usize {
        self.0.workspace(graph, node)
    }

    fn host_buffer(&self, bytes: usize) -> anyhow::Result<HostBuffer> {
        self.0.host_buffer(bytes)
    }

    fn compile(&self, plan: Arc<Plan>) -> anyhow::Result<Box<dyn Executable>> {
        self.0.compile(plan)
    }
}

#[test]
fn what_fits_becomes_programs_in_mixed_precision() {
    let backend = AllTypes(CpuBackend::new(Some(1)).unwrap());
    for (seed, precision, half) in (0..120).map(|s| (s, ["bf16", "fp16"][s as usize % 2], [DType::BF16, DType::F16])) {
        let text = fitting(seed);
        let set = format!("precision=\"{precision}\"");
        let loaded = config::load_str("random.toml", &text, &[set]).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let programs = build(&loaded.experiment, &backend).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        assert_eq!(programs.precision, loaded.experiment.precision);
        let half = half[seed as usize % 2];
        for p in &programs.plan.programs {
            verify(&p.graph).unwrap_or_else(|e| panic!("{}: {e}\n{text}", p.name));
            let has = |dtype: DType| p.graph.values.iter().any(|v| v.dtype == dtype);
            assert!(p.name == "update" || has(half), "{}\n{text}", p.name);
        }
        let mut parameters = programs.plan.variables.iter().filter(|(_, v)| v.kind == VarKind::Parameter);
        assert!(parameters.all(|(_, v)| v.dtype == DType::F32));
        let scaled = programs.plan.variables.find("grad_scaler.scale").is_some();
        assert_eq!(scaled, precision == "fp16");
        // The CPU says so, rather than compute nonsense.
        if seed < 2 {
            let error = backend.compile(programs.plan.clone()).err().expect("there are 16-bit values");
            assert!(format!("{error:#}").contains("the CPU computes in f32 only"), "{error:#}");
        }
    }
}

#[test]
fn mistakes_have_places() {
    // Most draws are refused; some get as far as the layers.
    let (mut refused, mut whole) = (0, 0);
    for seed in 0..3000 {
        let text = wild(seed);
        match errors(&text) {
            None => {}
            Some(list) if list.is_empty() => whole += 1,
            Some(list) => {
                refused += 1;
                for e in list {
                    assert!(e.span().is_some() && !e.message.starts_with("internal"), "{}\n{text}", e.message);
                }
            }
        }
    }
    assert!(refused > 100, "{refused} of 3000 reach the layers, {whole} fit");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_panics(seed: u64) {
        for e in errors(&wild(seed)).unwrap_or_default() {
            prop_assert!(e.span().is_some() && !e.message.starts_with("internal"), "{}", e.message);
        }
    }

    #[test]
    fn what_fits_becomes_programs(seed: u64) {
        let text = fitting(seed);
        let loaded = config::load_str("random.toml", &text, &[]).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        let backend = CpuBackend::new(Some(1)).unwrap();
        if let Err(errors) = build(&loaded.experiment, &backend) {
            let message = config::text::diagnostics::render(&loaded.sources, &errors, false);
            return Err(TestCaseError::fail(format!("{message}\n{text}")));
        }
    }
}
