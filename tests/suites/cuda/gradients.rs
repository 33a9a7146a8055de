//! Gradients that are looked at.

#[path = "../../support/gradients.rs"]
mod shared;

use super::emulator;
use runner::backend::cuda::CudaBackend;

#[test]
fn gradients_of_a_session_are_those_of_the_update() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    for precision in ["", "precision = \"fp16\"\n"] {
        shared::are_those_of_the_update(&CudaBackend::new(0).unwrap(), precision);
    }
    shared::are_planned(&CudaBackend::new(0).unwrap());
}
