//! What a node becomes on a GPU: kernel launches, fills, copies, steps of libraries and messages between ranks as plain data, made without a device.
//!
//! A step names its memory by the node's operands; the executable resolves them to addresses when it knows the plan and
//! the device's blocks. So lowering is a pure function, and what it gives can be looked at in a test.

mod convolution;
mod exchange;
mod kernel;
mod matmul;
mod module;

pub use convolution::{Convolution, ConvolutionStep, Direction};
pub use exchange::{Exchange, Message};
pub use kernel::{Arg, BLOCK, Cell, Kernel, LaunchConfig, Memory};
pub use matmul::{Epilogue, Matmul, MatmulStep};
pub use module::Module;

use crate::graph::DType;

/// The workspace of a library's step begins at a multiple of this, as the driver's own allocations do.
pub const WORKSPACE_ALIGNMENT: usize = 256;

/// One thing enqueued on the compute stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A kernel.
    Kernel(Kernel),
    /// A matrix product by a library.
    Matmul(MatmulStep),
    /// A convolution by a library.
    Convolution(ConvolutionStep),
    /// Messages to other ranks and from them.
    Exchange(Exchange),
    /// Bytes set to zero.
    Zero {
        /// Where.
        to: Memory,
        /// How many.
        bytes: usize,
    },
    /// Bytes copied within the device.
    Copy {
        /// Source.
        from: Memory,
        /// Destination.
        to: Memory,
        /// How many.
        bytes: usize,
    },
}

impl From<Kernel> for Step {
    fn from(k: Kernel) -> Step {
        Step::Kernel(k)
    }
}

/// A node's work.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lowered {
    /// In order.
    pub steps: Vec<Step>,
    /// Workspace that the steps share.
    pub scratch_bytes: usize,
}

impl Lowered {
    /// One step, no workspace.
    pub fn one(step: impl Into<Step>) -> Lowered {
        Lowered { steps: vec![step.into()], scratch_bytes: 0 }
    }
}

/// How kernels' names end for elements of type `dtype`: `relu_f32`.
pub fn suffix(dtype: DType) -> &'static str {
    dtype.name()
}
