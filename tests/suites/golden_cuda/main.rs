//! The engine on a GPU against PyTorch: the cases of `tests/golden/`, on the emulated driver, or on a GPU with
//! `RUNNER_TEST_GPU=1`.

#[path = "../../support/emulator/mod.rs"]
mod emulator;
#[path = "../../support/golden_harness/mod.rs"]
mod golden_harness;

use golden_harness::case::Case;
use golden_harness::compare::Findings;
use golden_harness::engine::{self, On, Way};
use golden_harness::{check_all, check_in_turn};
use std::process::{Child, Command, Stdio};

fn check(folder: &str) {
    let check = |case: &Case, findings: &mut Findings| {
        findings.first_step(case, &engine::first_step(case, On::Cuda));
        findings.trained(case, &engine::train(case, &Way { on: On::Cuda, ..Way::default() }));
    };
    if emulator::on_gpu() {
        check_in_turn(folder, check);
    } else if emulator::ready() {
        check_all(folder, check);
        if emulator::sanitizing() {
            assert_eq!(emulator::watched(), emulator::Watched { findings: 0, unknown: 0 });
        }
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

/// The same under the emulated driver's sanitizer, in processes of their own: nets of many kinds of layers, and all tests of this
/// file with `RUNNER_SANITIZER=all`.
#[test]
fn kernels_have_no_races_and_touch_what_they_are_given() {
    if !emulator::only_emulated() {
        return;
    }
    let all = std::env::var("RUNNER_SANITIZER").is_ok_and(|v| v == "all");
    let tests: &[&str] = match all {
        true => &["layers", "combinations", "training", "losses", "optimizers", "schedules", "structure", "runs"],
        false => &["structure", "losses"],
    };
    let start = |test: &str| -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", test]).env("EMULATED_SANITIZER", "1");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // Two at a time: one of each half.
    let half = tests.len().div_ceil(2);
    for i in 0..half {
        let pair: Vec<_> = [tests.get(i), tests[half..].get(i)].into_iter().flatten().map(|t| (t, start(t))).collect();
        for (test, child) in pair {
            let output = child.wait_with_output().unwrap();
            let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
            assert!(output.status.success() && said.contains("1 passed"), "{test}: {said}");
        }
    }
}
