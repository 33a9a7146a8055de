//! What runs the cases in `tests/golden/` and compares them with what PyTorch has left there.

// Every test binary has its own copy and uses a part of it.
#![allow(dead_code)]

pub mod case;
pub mod compare;
pub mod engine;
#[path = "../root/mod.rs"]
mod root;

use case::Case;
use compare::Findings;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Checks all cases of a folder and reports all that fail at once.
pub fn check_all(folder: &str, check: impl Fn(&Case, &mut Findings) + Sync) {
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
