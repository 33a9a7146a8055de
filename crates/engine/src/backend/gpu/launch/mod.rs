//! What a node becomes on a GPU: kernel launches, fills, copies, steps of libraries and messages between ranks as plain data, made without a device.
//!
//! A step names its memory by the node's operands; the executable resolves them to addresses when it knows the plan and
//! the device's blocks. So lowering is a pure function, and what it gives can be looked at in a test.

mod convolution;
mod exchange;
mod kernel;
mod matmul;

pub use convolution::{Convolution, ConvolutionStep, Direction};
pub use exchange::{Exchange, Message};
pub use kernel::{Arg, BLOCK, Cell, Kernel, LaunchConfig, Memory};
pub use matmul::{Epilogue, Matmul, MatmulStep};
pub use runner_kernels::Module;

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

    /// The same work on other memory: each step's memory is what `f` makes of it.
    pub fn on(mut self, f: impl Fn(Memory) -> Memory) -> Lowered {
        self.steps.iter_mut().for_each(|step| step.each_memory(&mut |memory| *memory = f(*memory)));
        self
    }
}

impl Step {
    /// Calls `f` for all memory that the step names.
    fn each_memory(&mut self, f: &mut dyn FnMut(&mut Memory)) {
        match self {
            Step::Kernel(kernel) => kernel.args.iter_mut().for_each(|arg| match arg {
                Arg::Pointer(memory) => f(memory),
                Arg::Table(cells) => cells.iter_mut().for_each(|cell| {
                    if let Cell::Pointer(memory) = cell {
                        f(memory);
                    }
                }),
                Arg::Null | Arg::I32(_) | Arg::U32(_) | Arg::I64(_) | Arg::F32(_) | Arg::F64(_) => {}
            }),
            Step::Matmul(MatmulStep { a, b, d, vector, workspace, .. }) => {
                [a, b, d, workspace].into_iter().chain(vector).for_each(f);
            }
            Step::Convolution(ConvolutionStep { x, w, y, bias, workspace, .. }) => {
                [x, w, y, workspace].into_iter().chain(bias).for_each(f);
            }
            Step::Exchange(Exchange { sends, receives }) => {
                sends.iter_mut().chain(receives).for_each(|message| f(&mut message.at));
            }
            Step::Zero { to, .. } => f(to),
            Step::Copy { from, to, .. } => [from, to].into_iter().for_each(f),
        }
    }
}

/// How kernels' names end for elements of type `dtype`: `relu_f32`.
pub fn suffix(dtype: DType) -> &'static str {
    dtype.name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_on_other_memory_names_no_memory_of_before() {
        let [a, b] = [Memory::Input(0), Memory::Scratch(8)];
        let matmul = Matmul {
            m: 1,
            n: 1,
            k: 1,
            a_transposed: false,
            b_transposed: false,
            dtype: DType::F32,
            d_type: DType::F32,
            epilogue: Epilogue::Bias,
            tf32: false,
        };
        let message = Message { peer: 0, at: a, bytes: 1 };
        let table = Arg::Table(vec![Cell::Pointer(b), Cell::Null, Cell::I64(1)]);
        let steps = vec![
            Kernel::new(Module::Conv, "k").arg(a).int(3).arg(table).into(),
            Step::Matmul(MatmulStep { matmul, a, b, d: a, vector: Some(b), workspace: a }),
            Step::Convolution(ConvolutionStep {
                convolution: Convolution::example(),
                x: a,
                w: b,
                y: a,
                bias: Some(b),
                workspace: b,
            }),
            Step::Exchange(Exchange { sends: vec![message], receives: vec![message] }),
            Step::Zero { to: a, bytes: 1 },
            Step::Copy { from: b, to: a, bytes: 1 },
        ];
        let mut moved = Lowered { steps, scratch_bytes: 16 }.on(|memory| match memory {
            Memory::Scratch(at) => Memory::Scratch(at + 64),
            _ => Memory::Output(1),
        });
        let mut found = Vec::new();
        moved.steps.iter_mut().for_each(|step| step.each_memory(&mut |memory| found.push(*memory)));
        assert_eq!(found.len(), 2 + 5 + 5 + 2 + 1 + 2);
        assert!(found.iter().all(|m| [Memory::Output(1), Memory::Scratch(72)].contains(m)), "{found:?}");
    }
}
