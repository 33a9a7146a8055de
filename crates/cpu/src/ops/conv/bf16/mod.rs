//! Convolutions without groups as products of tiles of bf16, their gradients by the input and by the weight.

mod grad_weight;
mod pixels;
mod strips;

pub use grad_weight::Bf16GradWeight;
pub use pixels::Bf16Pixels;

use super::few_pixels::{FewPixels, FewPixelsGradWeight};
use super::shape::{ConvProblem, Direction};
use super::winograd;
use crate::gemm::bf16::STEP;

/// Least numbers of a patch that is gathered: shorter ones are mostly the zeros that fill a step.
const LEAST_PATCH: usize = 2 * STEP;

/// Whether pixels are made in bf16: where tiles take the problem, and nothing in single precision is faster than the unit.
pub fn makes_pixels(problem: &ConvProblem, direction: Direction) -> bool {
    let Some(unit) = problem.bf16.filter(|_| Bf16Pixels::takes(problem, direction)) else { return false };
    unit.is_far_faster()
        || !(strips::gathers(problem, direction) && problem.taps() * problem.shape.channels < LEAST_PATCH)
            && winograd::products(problem, direction).is_none()
            && FewPixels::new(problem, direction, None).is_none()
}

/// The same of the gradient by the weight.
pub fn makes_weights(problem: &ConvProblem) -> bool {
    problem.bf16.is_some_and(|unit| {
        unit.is_far_faster()
            || winograd::weight_products(problem).is_none() && FewPixelsGradWeight::beside_winograd(problem).is_none()
    })
}
