//! The engine on a GPU against PyTorch: the cases of `tests/golden/`, on the emulated driver, or on a GPU with
//! `RUNNER_TEST_GPU=1`.

mod emulator;
mod golden_harness;

use golden_harness::case::Case;
use golden_harness::compare::Findings;
use golden_harness::engine::{self, On, Way};
use golden_harness::{check_all, check_in_turn};

fn check(folder: &str) {
    let check = |case: &Case, findings: &mut Findings| {
        findings.first_step(case, &engine::first_step(case, On::Cuda));
        findings.trained(case, &engine::train(case, &Way { on: On::Cuda, ..Way::default() }));
    };
    if emulator::on_gpu() {
        check_in_turn(folder, check);
    } else if emulator::ready() {
        check_all(folder, check);
    }
}

#[test]
fn layers() {
    check("layers");
}

#[test]
fn losses() {
    check("losses");
}

#[test]
fn optimizers() {
    check("optimizers");
}

#[test]
fn schedules() {
    check("schedules");
}

#[test]
fn structure() {
    check("structure");
}

#[test]
fn training() {
    check("training");
}

#[test]
fn runs() {
    check("runs");
}

#[test]
fn combinations() {
    check("combinations");
}
