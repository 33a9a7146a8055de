//! What a node becomes on a GPU: kernel launches, fills and copies as plain data, made without a device.
//!
//! A step names its memory by the node's operands; the executable resolves them to addresses when it knows the plan and
//! the device's blocks. So lowering is a pure function, and what it gives can be looked at in a test.

use super::nvidia::Libraries;
use super::nvidia::convolution::Convolution;
use super::nvidia::matmul::Matmul;
use crate::graph::DType;
use std::sync::Arc;

/// The source files in `kernels/`, each a module that is loaded when a program first needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Module {
    /// Activations, binary operations, sums over stretched axes, casts.
    ElementwiseLoss,
    /// Element-wise operations one behind the other.
    Chain,
    /// Bytes or floats to normalised floats.
    Normalize,
    /// Dropout.
    Dropout,
    /// Permute, concat, slice.
    Shape,
    /// Maximum and mean over windows.
    Pool,
    /// Batch normalisation.
    BatchNorm,
    /// Group normalisation.
    GroupNorm,
    /// Layer normalisation.
    LayerNorm,
    /// Softmax over the last axis.
    Softmax,
    /// Scaled dot-product attention.
    Attention,
    /// Losses.
    Loss,
    /// Running sums of metrics.
    Metrics,
    /// Gradient norm, sums of gradients, optimizers.
    Optim,
    /// Matrix products.
    Matmul,
    /// Convolutions.
    Conv,
    /// What the executable itself launches.
    Runtime,
}

impl Module {
    /// All modules.
    pub const ALL: [Module; 17] = [
        Module::ElementwiseLoss,
        Module::Chain,
        Module::Normalize,
        Module::Dropout,
        Module::Shape,
        Module::Pool,
        Module::BatchNorm,
        Module::GroupNorm,
        Module::LayerNorm,
        Module::Softmax,
        Module::Attention,
        Module::Loss,
        Module::Metrics,
        Module::Optim,
        Module::Matmul,
        Module::Conv,
        Module::Runtime,
    ];

    /// Name of its file in `kernels/`, without `.cu`.
    pub fn name(self) -> &'static str {
        match self {
            Module::ElementwiseLoss => "elementwise",
            Module::Chain => "chain",
            Module::Normalize => "normalize",
            Module::Dropout => "dropout",
            Module::Shape => "shape",
            Module::Pool => "pool",
            Module::BatchNorm => "batch_norm",
            Module::GroupNorm => "group_norm",
            Module::LayerNorm => "layer_norm",
            Module::Softmax => "softmax",
            Module::Attention => "attention",
            Module::Loss => "loss",
            Module::Metrics => "metrics",
            Module::Optim => "optim",
            Module::Matmul => "matmul",
            Module::Conv => "conv",
            Module::Runtime => "runtime",
        }
    }
}

/// Memory that a step works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Memory {
    /// The node's operand of this number.
    Input(usize),
    /// The node's result of this number.
    Output(usize),
    /// The node's workspace, from this byte on.
    Scratch(usize),
}

/// An argument of a kernel, as the kernel's parameter list has it.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg {
    /// The address of memory.
    Pointer(Memory),
    /// A pointer that the kernel does not follow.
    Null,
    /// `int`
    I32(i32),
    /// `unsigned`
    U32(u32),
    /// `long long`
    I64(i64),
    /// `float`
    F32(f32),
    /// `double`
    F64(f64),
    /// The address of a constant array of 8-byte cells, which the executable keeps on the device.
    Table(Vec<Cell>),
}

/// Eight bytes of a constant array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell {
    /// The address of memory.
    Pointer(Memory),
    /// A null pointer.
    Null,
    /// `long long`
    I64(i64),
    /// `double`
    F64(f64),
}

impl From<Memory> for Arg {
    fn from(m: Memory) -> Arg {
        Arg::Pointer(m)
    }
}

impl From<Memory> for Cell {
    fn from(m: Memory) -> Cell {
        Cell::Pointer(m)
    }
}

/// A kernel launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// Where the kernel is.
    pub module: Module,
    /// Its name.
    pub name: String,
    /// Blocks (x, y, z).
    pub grid: [u32; 3],
    /// Threads of a block (x, y, z).
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// The arguments.
    pub args: Vec<Arg>,
}

/// Threads of a block where nothing asks for another number.
pub const BLOCK: u32 = 256;

/// Most blocks of a launch whose threads stride over their elements.
const MOST_BLOCKS: usize = 4096;

impl Kernel {
    /// A launch of one block of [`BLOCK`] threads.
    pub fn new(module: Module, name: impl Into<String>) -> Kernel {
        let name = name.into();
        Kernel { module, name, grid: [1; 3], block: [BLOCK, 1, 1], shared_bytes: 0, args: Vec::new() }
    }

    /// Enough blocks for one thread an element, up to a limit: the kernel strides over the rest.
    pub fn over(mut self, elements: usize) -> Kernel {
        let blocks = elements.div_ceil(self.block[0] as usize).clamp(1, MOST_BLOCKS);
        self.grid = [blocks as u32, 1, 1];
        self
    }

    /// Exactly this many blocks.
    pub fn grid(mut self, x: usize, y: usize, z: usize) -> Kernel {
        self.grid = [x, y, z].map(|n| u32::try_from(n).expect("a grid side fits 32 bits"));
        self
    }

    /// Threads of a block.
    pub fn block(mut self, x: u32, y: u32) -> Kernel {
        self.block = [x, y, 1];
        self
    }

    /// Dynamic shared memory.
    pub fn shared(mut self, bytes: usize) -> Kernel {
        self.shared_bytes = bytes as u32;
        self
    }

    /// One more argument.
    pub fn arg(mut self, arg: impl Into<Arg>) -> Kernel {
        self.args.push(arg.into());
        self
    }

    /// An `int`. Sizes that a kernel takes as `int` are at most 2³¹ − 1; larger ones are given by [`Kernel::long`].
    pub fn int(self, n: usize) -> Kernel {
        let n = i32::try_from(n).expect("lowering gives large sizes as `long long`");
        self.arg(Arg::I32(n))
    }

    /// A `long long`.
    pub fn long(self, n: usize) -> Kernel {
        self.arg(Arg::I64(n as i64))
    }

    /// A `float`.
    pub fn float(self, x: f32) -> Kernel {
        self.arg(Arg::F32(x))
    }
}

/// A matrix product that cuBLASLt does.
#[derive(Debug, Clone, PartialEq)]
pub struct MatmulStep {
    /// Sizes and types.
    pub matmul: Matmul,
    /// Operand A.
    pub a: Memory,
    /// Operand B.
    pub b: Memory,
    /// The result.
    pub d: Memory,
    /// What the epilogue reads or writes.
    pub vector: Option<Memory>,
    /// The workspace; the executable moves its start up to where the library wants it.
    pub workspace: Memory,
}

/// A convolution that cuDNN does.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolutionStep {
    /// Sizes and types.
    pub convolution: Convolution,
    /// x, or its gradient.
    pub x: Memory,
    /// w, or its gradient.
    pub w: Memory,
    /// y, or its gradient.
    pub y: Memory,
    /// The bias, if there is one.
    pub bias: Option<Memory>,
    /// The workspace; the executable moves its start up to where the library wants it.
    pub workspace: Memory,
}

/// One thing enqueued on the compute stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A kernel.
    Kernel(Kernel),
    /// A matrix product by a library.
    Matmul(MatmulStep),
    /// A convolution by a library.
    Convolution(ConvolutionStep),
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

/// What lowering must know of the device. Work is never divided by the number of multiprocessors: the order of a sum
/// depends on shapes alone, so a program gives the same bits on every device of a kind.
#[derive(Debug, Clone)]
pub struct Target {
    /// Compute capability, as 80 for 8.0.
    pub capability: u32,
    /// Products of 32-bit floats may be rounded to TF32 on tensor cores.
    pub tf32: bool,
    /// Libraries that do what they can do better. With none, lowering is a function of the node alone.
    pub libraries: Arc<Libraries>,
}

impl Target {
    /// A device of this capability: no TF32, no libraries.
    pub fn new(capability: u32) -> Target {
        Target { capability, tf32: false, libraries: Arc::default() }
    }
}

/// How kernels' names end for elements of type `dtype`: `relu_f32`.
pub fn suffix(dtype: DType) -> &'static str {
    dtype.name()
}
