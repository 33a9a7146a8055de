//! Gradients that are looked at, on the CPU.

#[path = "../../support/gradients.rs"]
mod shared;

use runner::backend::cpu::CpuBackend;

#[test]
fn gradients_of_a_session_are_those_of_the_update() {
    shared::are_those_of_the_update(&CpuBackend::new(Some(2)).unwrap(), "");
}

#[test]
fn gradients_are_planned_where_they_are_asked_for() {
    shared::are_planned(&CpuBackend::new(Some(2)).unwrap());
}
