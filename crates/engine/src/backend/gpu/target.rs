//! What lowering must know of the device: what its kernels can use, and what NVIDIA's libraries take over.

use super::launch::{Convolution, Lowered, Matmul};
use std::fmt::Debug;
use std::sync::Arc;

/// What lowering must know of the device. Work is never divided by the number of multiprocessors: the order of a sum
/// depends on shapes alone, so a program gives the same bits on every device of a kind.
#[derive(Debug, Clone)]
pub struct Target {
    /// Compute capability, as 80 for 8.0.
    pub capability: u32,
    /// Products of 32-bit floats may be rounded to TF32 on tensor cores.
    pub tf32: bool,
    /// Which of how many ranks it is.
    pub rank: (usize, usize),
    /// Says what libraries compute. Without any, lowering is a function of the node alone.
    pub libraries: Arc<dyn LibraryPlanner>,
}

impl Target {
    /// A device of this capability: no TF32, no libraries, no other ranks.
    pub fn new(capability: u32) -> Target {
        Target { capability, tf32: false, rank: (0, 1), libraries: Arc::new(NoLibraries) }
    }
}

/// Decides which matrix products and convolutions a library computes. The answer for one of them is always the same, so that
/// the plan of the memory and the program agree.
pub trait LibraryPlanner: Debug + Send + Sync {
    /// A library computes everything that it takes, sizes that are small or odd included, even if our own kernels are faster.
    fn everywhere(&self) -> bool;

    /// Bytes of workspace with which cuBLASLt computes a product; `None` if our own kernels compute it.
    fn matmul(&self, matmul: &Matmul) -> Option<usize>;

    /// How cuDNN computes a convolution; `None` if our own kernels compute it.
    fn convolution(&self, problem: &Problem) -> Option<Chosen>;
}

/// No libraries: our own kernels compute everything.
#[derive(Debug)]
struct NoLibraries;

impl LibraryPlanner for NoLibraries {
    fn everywhere(&self) -> bool {
        false
    }

    fn matmul(&self, _: &Matmul) -> Option<usize> {
        None
    }

    fn convolution(&self, _: &Problem) -> Option<Chosen> {
        None
    }
}

/// A convolution for which something must be chosen.
pub struct Problem<'a> {
    /// Which.
    pub convolution: &'a Convolution,
    /// What our own kernels do for it: inputs are the operands and the bias, the only output is the result.
    pub own: &'a dyn Fn() -> Lowered,
    /// What follows a plan that is [`Form::Plain`]: on the result, and on the bias.
    pub after: Lowered,
    /// What follows one that is [`Form::Narrow`]: from byte 0 of the workspace to the result.
    pub widen: Lowered,
    /// Whether a plan is taken even if our own kernels are faster.
    pub always: bool,
}

/// How the library is asked for a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// The convolution alone.
    Plain,
    /// With what can be after it: bias and activation, or the copy of a gradient's sums to another type.
    Fused,
    /// A gradient alone, in the type of its operands, which has fewer bits than what is wanted. It is converted after.
    Narrow,
}

/// What the library does for a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// How it is asked.
    pub form: Form,
    /// Bytes of workspace.
    pub workspace: usize,
}
