//! 1 × 1 convolutions without stride, padding or groups: matrix products whose rows are pixels.

use super::kernel::{PixelKernel, PreparedPixelKernel, PreparedWeightKernel, WeightKernel};
use super::shape::{ConvProblem, Direction};
use crate::gemm::memory::Memory;
use crate::gemm::numbers::{Numbers, NumbersMut};
use crate::gemm::prologue::Source;
use crate::gemm::tile::EpilogueOperands;
use crate::graph::op::{Activation, LinearGradWeight};
use crate::ops::linear::{LinearGradInputKernel, LinearGradWeightKernel, LinearKernel, LinearShape};
use crate::plan::Kept;
use crate::run::threads::Pool;

/// The matrix product that the convolution is, if it is one.
fn linear(problem: &ConvProblem) -> Option<LinearShape> {
    let (op, shape) = (problem.op, &problem.shape);
    let plain = shape.kernel == [1, 1] && op.stride == [1, 1] && op.padding == [0; 4] && op.groups == 1;
    let rows = shape.images * shape.input[0] * shape.input[1];
    plain.then_some(LinearShape { rows, inputs: shape.channels, outputs: shape.outputs })
}

/// The convolution or its gradient by the input, if it is a matrix product.
pub fn pixel_kernel(
    problem: &ConvProblem,
    direction: Direction,
    act: Option<Activation>,
) -> Option<Box<dyn PixelKernel>> {
    let (shape, how, threads) = (linear(problem)?, problem.how(), problem.threads);
    Some(match direction {
        Direction::Forward if problem.rounded.any() => {
            Box::new(LinearKernel::rounded(act, shape, how, threads, problem.rounded))
        }
        Direction::Forward => Box::new(LinearKernel::new(act, shape, how, threads, problem.trains)),
        Direction::Backward => Box::new(LinearGradInputKernel::new(shape, how, threads)),
    })
}

/// Whether the convolution can have operands that are rounded in memory; `None` if it is no matrix product.
pub fn takes_rounded(problem: &ConvProblem) -> Option<bool> {
    linear(problem).map(|shape| problem.bf16.is_some_and(|unit| LinearKernel::takes_rounded(shape, unit)))
}

/// The gradient by the weight, if it is a matrix product; `bias`: with that by the bias.
pub fn weight_kernel(problem: &ConvProblem, bias: bool) -> Option<Box<dyn WeightKernel>> {
    let op = LinearGradWeight { bias };
    Some(Box::new(LinearGradWeightKernel::new(&op, linear(problem)?, problem.how(), problem.threads)))
}

/// The convolution of an input with a prologue, if it is a matrix product.
pub fn prepared_pixel_kernel(problem: &ConvProblem) -> Option<Box<dyn PreparedPixelKernel>> {
    Some(Box::new(LinearKernel::prepared(linear(problem)?, problem.how(), problem.threads)))
}

/// The gradient by the weight of an input with a prologue, if it is a matrix product; `bias`: with that by the bias.
pub fn prepared_weight_kernel(problem: &ConvProblem, bias: bool) -> Option<Box<dyn PreparedWeightKernel>> {
    let (op, shape) = (LinearGradWeight { bias }, linear(problem)?);
    Some(Box::new(LinearGradWeightKernel::prepared(&op, shape, problem.how(), problem.threads)))
}

impl PixelKernel for LinearKernel {
    fn workspace_bytes(&self) -> usize {
        LinearKernel::workspace_bytes(self)
    }

    fn act(&self) -> Option<Activation> {
        LinearKernel::act(self)
    }

    fn remaining_act(&self) -> Option<Activation> {
        LinearKernel::remaining_act(self)
    }

    fn finishes(&self) -> bool {
        true
    }

    fn kept(&self) -> Option<Kept> {
        LinearKernel::kept(self)
    }

    fn run(
        &self,
        pool: &Pool,
        source: &[f32],
        w: &[f32],
        operands: EpilogueOperands,
        dest: &mut [f32],
        memory: Memory,
    ) {
        LinearKernel::run(self, pool, source.into(), w, operands, dest, memory);
    }

    fn run_numbers(
        &self,
        pool: &Pool,
        source: Numbers,
        w: &[f32],
        operands: EpilogueOperands,
        dest: NumbersMut,
        memory: Memory,
    ) {
        LinearKernel::run_numbers(self, pool, source, w, operands, dest, memory);
    }
}

impl PreparedPixelKernel for LinearKernel {
    fn run_prepared(
        &self,
        pool: &Pool,
        source: Source,
        w: &[f32],
        operands: EpilogueOperands,
        dest: &mut [f32],
        memory: Memory,
    ) {
        LinearKernel::run(self, pool, source, w, operands, dest, memory);
    }
}

impl PixelKernel for LinearGradInputKernel {
    fn workspace_bytes(&self) -> usize {
        LinearGradInputKernel::workspace_bytes(self)
    }

    fn act(&self) -> Option<Activation> {
        None
    }

    fn run(
        &self,
        pool: &Pool,
        source: &[f32],
        w: &[f32],
        operands: EpilogueOperands,
        dest: &mut [f32],
        memory: Memory,
    ) {
        LinearGradInputKernel::run(self, pool, source, w, operands, dest, memory);
    }
}

impl WeightKernel for LinearGradWeightKernel {
    fn workspace_bytes(&self) -> usize {
        LinearGradWeightKernel::workspace_bytes(self)
    }

    fn run(&self, pool: &Pool, x: &[f32], dy: &[f32], dw: &mut [f32], db: Option<&mut [f32]>, workspace: &mut [u8]) {
        LinearGradWeightKernel::run(self, pool, x.into(), dy, dw, db, workspace);
    }
}

impl PreparedWeightKernel for LinearGradWeightKernel {
    fn run_prepared(
        &self,
        pool: &Pool,
        x: Source,
        dy: &[f32],
        dw: &mut [f32],
        db: Option<&mut [f32]>,
        workspace: &mut [u8],
    ) {
        LinearGradWeightKernel::run(self, pool, x, dy, dw, db, workspace);
    }
}
