//! The interfaces of convolution kernels. A kernel is chosen when a program is compiled, and a run is one virtual call.

use super::operands::{PixelDest, PixelSource};
use crate::gemm::memory::Memory;
use crate::gemm::numbers::{Numbers, NumbersMut};
use crate::gemm::prologue::Source;
use crate::gemm::tile::{EpilogueOperands, is_fused};
use crate::graph::op::Activation;
use crate::plan::Kept;
use crate::run::threads::Pool;

/// A kernel that writes pixels: the convolution, or its gradient by the input.
pub trait PixelKernel: Send + Sync {
    /// Bytes of workspace that a run needs.
    fn workspace_bytes(&self) -> usize;

    /// The activation that it was made for.
    fn act(&self) -> Option<Activation>;

    /// The part of [`PixelKernel::act`] that is left to [`EpilogueOperands::finish`] or the caller: what is no bound.
    fn remaining_act(&self) -> Option<Activation> {
        self.act().filter(|&act| !is_fused(act))
    }

    /// True if it gives its results to [`EpilogueOperands::finish`] while they are in the cache.
    fn finishes(&self) -> bool {
        false
    }

    /// Packed weights that it can keep from run to run.
    fn kept(&self) -> Option<Kept> {
        None
    }

    /// Computes all of `dest` from `source` (`x` or `dy`) and the weight.
    fn run(&self, pool: &Pool, source: &[f32], w: &[f32], operands: EpilogueOperands, dest: &mut [f32], memory: Memory);

    /// The same of operands that may be rounded in memory, by a kernel that was made for it.
    fn run_numbers(
        &self,
        pool: &Pool,
        source: Numbers,
        w: &[f32],
        operands: EpilogueOperands,
        dest: NumbersMut,
        memory: Memory,
    ) {
        match (source, dest) {
            (Numbers::Single(source), NumbersMut::Single(dest)) => self.run(pool, source, w, operands, dest, memory),
            _ => panic!("a kernel of floats has numbers that are rounded"),
        }
    }

    /// The type of the kernel, with its module.
    fn name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }
}

/// A kernel for pixels, one side of which may be pooled.
pub trait PooledPixelKernel: PixelKernel {
    /// [`PixelKernel::run`] with operands of the kind that the kernel was made for.
    fn run_pooled(
        &self,
        pool: &Pool,
        source: PixelSource,
        w: &[f32],
        operands: EpilogueOperands,
        dest: PixelDest,
        memory: Memory,
    );
}

/// A kernel for pixels, whose source may have a prologue.
pub trait PreparedPixelKernel: PixelKernel {
    /// [`PixelKernel::run`] with a source of the kind that the kernel was made for.
    fn run_prepared(
        &self,
        pool: &Pool,
        source: Source,
        w: &[f32],
        operands: EpilogueOperands,
        dest: &mut [f32],
        memory: Memory,
    );
}

/// A kernel for the gradient by the weight.
pub trait WeightKernel: Send + Sync {
    /// Bytes of workspace that a run needs.
    fn workspace_bytes(&self) -> usize;

    /// Computes all of `dw [O, KH, KW, I / groups]` and, if it is wanted, `db [O]`. `workspace` starts at a multiple of 64
    /// bytes.
    fn run(&self, pool: &Pool, x: &[f32], dy: &[f32], dw: &mut [f32], db: Option<&mut [f32]>, workspace: &mut [u8]);

    /// The type of the kernel, with its module.
    fn name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }
}

/// A kernel for the gradient by the weight, whose `dy` may be pooled.
pub trait PooledWeightKernel: WeightKernel {
    /// [`WeightKernel::run`] with a `dy` of the kind that the kernel was made for.
    fn run_pooled(
        &self,
        pool: &Pool,
        x: &[f32],
        dy: PixelSource,
        dw: &mut [f32],
        db: Option<&mut [f32]>,
        workspace: &mut [u8],
    );
}

/// A kernel for the gradient by the weight, whose `x` may have a prologue.
pub trait PreparedWeightKernel: WeightKernel {
    /// [`WeightKernel::run`] with an `x` of the kind that the kernel was made for.
    fn run_prepared(
        &self,
        pool: &Pool,
        x: Source,
        dy: &[f32],
        dw: &mut [f32],
        db: Option<&mut [f32]>,
        workspace: &mut [u8],
    );
}
