//! Random lists of layers: those that fit become programs, and the others get errors with a place.

use crate::nets::{fitting, wild};
use proptest::prelude::*;
use runner::backend::cpu::CpuBackend;
use runner::config::{self, Diagnostic, Experiment};
use runner::graph::verify;
use runner::passes::PassOptions;
use runner::train::input;
use runner::train::programs::{self, Programs, Sizes};

/// The programs of an experiment, as training makes them.
pub fn build(experiment: &Experiment, backend: &CpuBackend) -> Result<Programs, Vec<Diagnostic>> {
    let data = input::describe(experiment).unwrap();
    let loading = &experiment.data.loading;
    let sizes = Sizes {
        train: Sizes::of(loading.batch_size, data.train, loading.drop_last),
        eval: Sizes::of(loading.eval_batch_size(), data.val, false),
        predict: vec![1],
    };
    programs::build(experiment, &data, &sizes, backend, &PassOptions::default())
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
            let told = config::diagnostics::render(&loaded.sources, &errors, false);
            return Err(TestCaseError::fail(format!("{told}\n{text}")));
        }
    }
}
