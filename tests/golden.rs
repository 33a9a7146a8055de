//! The engine against PyTorch: everything in `tests/golden/` is trained from its configuration and compared.
//!
//! `scripts/golden/make.py` makes the cases.

#[path = "golden_harness/case.rs"]
mod case;
#[path = "golden_harness/compare.rs"]
mod compare;
#[path = "golden_harness/engine.rs"]
mod engine;

use case::Case;
use compare::Findings;
use runner::passes::PassOptions;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Checks all cases of a folder and reports all that fail at once.
fn check_all(folder: &str, check: impl Fn(&Case, &mut Findings) + Sync) {
    let names = Case::names(folder);
    assert!(!names.is_empty(), "no cases in `{folder}`");
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Findings::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let findings = findings(name, &check);
                    all.lock().unwrap().absorb(name, findings);
                }
            });
        }
    });
    let mut all = all.into_inner().unwrap();
    for (kind, (share, name)) in &all.worst {
        println!("{folder}: {kind}: {:.0} % of what is allowed ({name})", 100.0 * share);
    }
    all.faults.sort();
    assert!(all.faults.is_empty(), "{} faults:\n{}", all.faults.len(), all.faults.join("\n"));
}

/// What `check` finds about a case; a panic is a finding like any other.
fn findings(name: &str, check: impl Fn(&Case, &mut Findings)) -> Findings {
    let mut findings = Findings::default();
    let outcome = catch_unwind(AssertUnwindSafe(|| check(&Case::read(name), &mut findings)));
    if let Err(payload) = outcome {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        findings.faults.push(text.to_string());
    }
    findings
}

/// First step and whole run, as configured.
fn as_pytorch(case: &Case, findings: &mut Findings) {
    let options = PassOptions::default();
    findings.first_step(case, &engine::first_step(case, &options));
    findings.trained(case, &engine::train(case, &[], &options));
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
