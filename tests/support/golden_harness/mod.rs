//! What runs the cases in `tests/golden/` and compares them with what PyTorch has left there.

// Every test binary has its own copy and uses a part of it.
#![allow(dead_code)]

pub mod architectures;
pub mod case;
pub mod compare;
pub mod engine;
#[path = "../root.rs"]
mod root;

use case::Case;
use compare::Findings;
use root::Cases;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Checks all cases of a folder, one after the other, and reports all that fail at once; a panic ends it. On a GPU it may be
/// an error after which nothing more can be computed in this process.
pub fn check_in_turn(folder: &str, check: impl Fn(&Case, &mut Findings)) {
    let (mut all, mut names) = (Findings::default(), Case::names(folder));
    let mut turn = Cases::begin(&mut names);
    for name in names.iter().filter(|name| turn.wants(name)) {
        let mut findings = Findings::default();
        check(&Case::read(name), &mut findings);
        for fault in &findings.faults {
            println!("FAILED {name}: {fault}");
        }
        all.absorb(name, findings);
    }
    turn.done();
    report(folder, all);
}

/// Checks all cases of a folder side by side, and reports all that fail at once.
pub fn check_all(folder: &str, check: impl Fn(&Case, &mut Findings) + Sync) {
    check_names(folder, &Case::names(folder), |name, findings| check(&Case::read(name), findings));
}

/// Checks what has these names side by side, and reports all that fail at once.
pub fn check_names(title: &str, names: &[String], check: impl Fn(&str, &mut Findings) + Sync) {
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
    report(title, all.into_inner().unwrap());
}

/// How near to what is allowed the findings come; fails with all faults.
fn report(folder: &str, mut all: Findings) {
    for (kind, (share, name)) in &all.worst {
        println!("{folder}: {kind}: {:.0} % of what is allowed ({name})", 100.0 * share);
    }
    all.faults.sort();
    assert!(all.faults.is_empty(), "{} faults:\n{}", all.faults.len(), all.faults.join("\n"));
}

/// What `check` finds; a panic is a finding like any other.
fn findings(name: &str, check: impl Fn(&str, &mut Findings)) -> Findings {
    let mut findings = Findings::default();
    let outcome = catch_unwind(AssertUnwindSafe(|| check(name, &mut findings)));
    if let Err(payload) = outcome {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        findings.faults.push(text.to_string());
    }
    findings
}
