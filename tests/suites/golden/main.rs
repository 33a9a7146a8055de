//! The engine against PyTorch: everything in `tests/golden/` is trained from its configuration and compared.
//!
//! `scripts/golden/make.py` makes the cases.

#[path = "../../support/golden_harness/mod.rs"]
mod golden_harness;

use golden_harness::architectures;
use golden_harness::case::{self, Case};
use golden_harness::compare::Findings;
use golden_harness::engine::{self, On, Way};
use golden_harness::{check_all, check_names};
use runner::passes::PassOptions;

/// First step and whole run, as configured.
fn as_pytorch(case: &Case, findings: &mut Findings) {
    findings.first_step(case, &engine::first_step(case, On::Cpu(1)));
    findings.trained(case, &engine::train(case, &Way::default()));
}

#[test]
fn layers() {
    check_all("layers", as_pytorch);
}

#[test]
fn losses() {
    check_all("losses", as_pytorch);
}

#[test]
fn optimizers() {
    check_all("optimizers", as_pytorch);
}

#[test]
fn schedules() {
    check_all("schedules", as_pytorch);
}

#[test]
fn structure() {
    check_all("structure", as_pytorch);
}

#[test]
fn training() {
    check_all("training", as_pytorch);
}

#[test]
fn runs() {
    check_all("runs", as_pytorch);
}

#[test]
fn combinations() {
    check_all("combinations", as_pytorch);
}

/// In bf16, errors are those of PyTorch's autocast, or twice as large.
#[test]
fn mixed() {
    check_all("mixed", |case, findings| {
        findings.mixed(case, &engine::first_step(case, On::Cpu(1)), &engine::train(case, &Way::default()));
    });
}

/// The models of `models/`: logits in evaluation mode, the loss and gradients in training mode.
#[test]
fn architectures() {
    check_names("architectures", &architectures::names(), |name, findings| *findings = architectures::check(name));
}

/// Passes make programs smaller and faster, and leave the results what they are.
#[test]
fn runs_without_passes() {
    check_all("runs", |case, findings| {
        for without in [vec!["fusions"], vec!["simplify"], vec!["simplify", "fusions"]] {
            let without = without.into_iter().map(String::from).collect();
            let options = PassOptions { without, stop_after: None };
            findings.trained(case, &engine::train(case, &Way { options, ..Way::default() }));
        }
    });
}

/// The same bits with any number of threads.
#[test]
fn runs_with_more_threads() {
    check_all("runs", |case, findings| {
        let alone = engine::train(case, &Way { sets: vec!["data.workers=0".into()], ..Way::default() });
        let way =
            Way { sets: vec!["data.workers=3".into(), "data.prefetch=5".into()], on: On::Cpu(3), ..Way::default() };
        if engine::train(case, &way) != alone {
            findings.faults.push("three threads come to other bits than one".to_string());
        }
    });
}

/// A state dict is the same model in all the files that PyTorch makes of it.
#[test]
fn weights_from_pytorch_files() {
    let case = Case::read("combinations/from_pth");
    for name in ["plain.safetensors", "plain.pth", "nested.pth", "module_prefix.pth"] {
        let path = case::folder().join("pth").join(name);
        let sets = vec![format!("model.weights={:?}", path.to_str().unwrap())];
        let mut findings = Findings::default();
        findings.trained(&case, &engine::train(&case, &Way { sets, ..Way::default() }));
        assert!(findings.faults.is_empty(), "{name}: {:?}", findings.faults);
    }
}
