//! Every operation, held against the reference interpreter: one list of cases, checked in three ways. Gradient rules
//! against differences, backends against the reference, and the list itself against the set of operations.

mod case;
mod cases;
mod coverage;
mod cuda;
mod differences;
#[path = "../../support/emulator/mod.rs"]
mod emulator;
mod extremes;
mod inlined;
mod parity;
mod planner;
#[path = "../../support/root.rs"]
mod root;
mod rounded;
mod sanitizer;
mod text;
mod turns;
