//! A kernel launch, and how it names its memory.

use super::Module;
use crate::backend::gpu::formulas;
use crate::graph::op::Activation;

/// Memory that a step works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Memory {
    /// The node's operand of this number.
    Input(usize),
    /// The same, from this byte on.
    InputFrom(usize, usize),
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

/// Most blocks of a grid-stride launch.
const MOST_BLOCKS: usize = 4096;

impl Kernel {
    /// A launch of one block of [`BLOCK`] threads.
    pub fn new(module: Module, name: impl Into<String>) -> Kernel {
        let name = name.into();
        Kernel { module, name, grid: [1; 3], block: [BLOCK, 1, 1], shared_bytes: 0, args: Vec::new() }
    }

    /// A grid-stride launch: one thread for each element up to a limit, beyond which threads take several.
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

    /// An activation, or none: a number of `enum Activation` in `kernels/cuda/common.cuh`, and the constants of its formula.
    pub fn activation(self, act: Option<Activation>) -> Kernel {
        let (number, constants) = act.map_or((0, [0.0; 2]), formulas::activation);
        constants.into_iter().fold(self.int(number as usize), Kernel::float)
    }
}

/// A launch configuration, as the driver takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks (x, y, z).
    pub grid: [u32; 3],
    /// Threads of a block (x, y, z).
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
}
