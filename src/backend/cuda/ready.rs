//! From launches as data to launches with addresses: what is left to do at run time is to enqueue them.

use super::driver::{check, sys as cu};
use super::executable::{Area, Storage};
use super::extents;
use super::launch::{Arg, Cell, ConvolutionStep, Kernel, Lowered, MatmulStep, Memory, Step};
use super::modules::{Function, Modules, Size, launch};
use super::nvidia::{Libraries, LibraryCall, convolution, matmul};
use super::stream::Stream;
use crate::graph::Node;
use crate::plan::Program;
use anyhow::{Context, Result, ensure};
use std::sync::Arc;

/// Work with all its addresses.
#[derive(Debug, Clone)]
pub enum Ready {
    /// A kernel; each argument at the front of a cell.
    Kernel {
        /// Which.
        function: Function,
        /// Blocks and threads.
        size: Size,
        /// The arguments.
        cells: Box<[u64]>,
    },
    /// What a library does.
    Library(Arc<dyn LibraryCall>),
    /// Bytes to be set to zero.
    Zero {
        /// From here on.
        to: u64,
        /// How many.
        bytes: usize,
    },
    /// Bytes to be copied.
    Copy {
        /// Source.
        from: u64,
        /// Destination.
        to: u64,
        /// How many.
        bytes: usize,
    },
}

impl Ready {
    /// Puts it on `stream`.
    ///
    /// # Errors
    /// The driver refuses it, or a library does.
    ///
    /// # Safety
    /// The blocks that the addresses are in live until it has run.
    pub unsafe fn enqueue(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's word for the memory; lowering has made the arguments for the kernel.
        let done = unsafe {
            match self {
                Ready::Library(call) => return Ok(call.enqueue(stream)?),
                Ready::Kernel { function, size, cells } => launch(stream, function, *size, cells),
                Ready::Zero { to, bytes } => check("clearing memory", cu::cuMemsetD8Async(*to, 0, *bytes, stream.raw)),
                Ready::Copy { from, to, bytes } => {
                    check("copying on the GPU", cu::cuMemcpyDtoDAsync_v2(*to, *from, *bytes, stream.raw))
                }
            }
        };
        Ok(done?)
    }
}

/// Constant arrays of a program, gathered while its steps are made ready.
#[derive(Debug, Default)]
pub struct Tables {
    /// Their contents, one behind the other.
    pub bytes: Vec<u8>,
}

/// Tables begin at multiples of this.
const TABLE_ALIGN: usize = 64;

/// Bytes that the tables of `lowered` take up.
pub fn table_bytes(lowered: &Lowered) -> usize {
    let args = lowered.steps.iter().flat_map(|s| match s {
        Step::Kernel(k) => k.args.as_slice(),
        _ => &[],
    });
    args.map(|a| if let Arg::Table(cells) = a { (8 * cells.len()).next_multiple_of(TABLE_ALIGN) } else { 0 }).sum()
}

/// Makes the steps of one node ready.
pub struct Resolver<'a> {
    /// The node's program.
    pub program: &'a Program,
    /// Where its values are.
    pub storage: &'a Storage,
    /// The slot with its batch.
    pub slot: usize,
    /// Where its constant arrays will be.
    pub tables_at: u64,
    /// The constant arrays, filled as they come up.
    pub tables: &'a mut Tables,
    /// The kernels.
    pub modules: &'a mut Modules,
    /// The libraries that it was lowered for.
    pub libraries: &'a Libraries,
}

impl Resolver<'_> {
    /// The steps of node number `at`, which was lowered to `lowered`.
    ///
    /// # Errors
    /// The plan has not the workspace that the node needs, or a kernel is not there.
    pub fn node(&mut self, at: usize, lowered: &Lowered) -> Result<Vec<Ready>> {
        let (_, planned) = self.program.workspace[at];
        ensure!(
            planned >= lowered.scratch_bytes,
            "node {at} needs {} bytes of workspace, but the plan has {planned}",
            lowered.scratch_bytes
        );
        let node = &self.program.graph.nodes[at];
        let steps: Vec<Ready> = lowered
            .steps
            .iter()
            .map(|step| self.step(at, node, step))
            .collect::<Result<_>>()
            .with_context(|| self.program.node_name(at))?;
        for (step, ready) in lowered.steps.iter().zip(&steps) {
            if let (Step::Kernel(kernel), Ready::Kernel { size, cells, .. }) = (step, ready) {
                // Each was asked for a moment ago, and is there.
                let address = |memory| self.address(at, node, memory).unwrap_or_default();
                let given = || extents::of_step(self.program, at, lowered, kernel, cells, address);
                extents::tell(&kernel.name, *size, cells, given);
            }
        }
        Ok(steps)
    }

    fn step(&mut self, at: usize, node: &Node, step: &Step) -> Result<Ready> {
        Ok(match step {
            Step::Kernel(kernel) => self.kernel(at, node, kernel)?,
            Step::Matmul(step) => self.matmul(at, node, step)?,
            Step::Convolution(step) => self.convolution(at, node, step)?,
            Step::Zero { to, bytes } => Ready::Zero { to: self.address(at, node, *to)?, bytes: *bytes },
            Step::Copy { from, to, bytes } => {
                Ready::Copy { from: self.address(at, node, *from)?, to: self.address(at, node, *to)?, bytes: *bytes }
            }
        })
    }

    fn kernel(&mut self, at: usize, node: &Node, kernel: &Kernel) -> Result<Ready> {
        let function = self.modules.function(kernel.module, &kernel.name, kernel.shared_bytes)?;
        let size = Size { grid: kernel.grid, block: kernel.block, shared_bytes: kernel.shared_bytes };
        let mut cells = Vec::with_capacity(kernel.args.len());
        for arg in &kernel.args {
            cells.push(match arg {
                Arg::Pointer(m) => self.address(at, node, *m)?,
                Arg::Null => 0,
                Arg::I32(v) => u64::from(*v as u32),
                Arg::U32(v) => u64::from(*v),
                Arg::I64(v) => *v as u64,
                Arg::F32(v) => u64::from(v.to_bits()),
                Arg::F64(v) => v.to_bits(),
                Arg::Table(cells) => self.table(at, node, cells)?,
            });
        }
        let cells = cells.into();
        Ok(Ready::Kernel { function, size, cells })
    }

    fn matmul(&self, at: usize, node: &Node, step: &MatmulStep) -> Result<Ready> {
        let places = matmul::Places {
            a: self.address(at, node, step.a)?,
            b: self.address(at, node, step.b)?,
            d: self.address(at, node, step.d)?,
            vector: step.vector.map(|m| self.address(at, node, m)).transpose()?,
            workspace: self.address(at, node, step.workspace)?.next_multiple_of(matmul::WORKSPACE_ALIGNMENT as u64),
        };
        let blas = self.libraries.blas().context("the program was made for a library that is not open")?;
        let call = blas.prepare(&step.matmul, places)?;
        Ok(Ready::Library(call.context("the library has no algorithm for what it was chosen for")?))
    }

    fn convolution(&self, at: usize, node: &Node, step: &ConvolutionStep) -> Result<Ready> {
        let workspace = self.address(at, node, step.workspace)?;
        let places = convolution::Places {
            x: self.address(at, node, step.x)?,
            w: self.address(at, node, step.w)?,
            y: self.address(at, node, step.y)?,
            bias: step.bias.map(|m| self.address(at, node, m)).transpose()?,
            workspace: workspace.next_multiple_of(convolution::WORKSPACE_ALIGNMENT as u64),
        };
        let dnn = self.libraries.dnn().context("the program was made for a library that is not open")?;
        let call = dnn.prepare(&step.convolution, &places)?;
        Ok(Ready::Library(call.context("the library has no algorithm for what it was chosen for")?))
    }

    fn table(&mut self, at: usize, node: &Node, cells: &[Cell]) -> Result<u64> {
        let start = self.tables.bytes.len();
        for cell in cells {
            let word = match cell {
                Cell::Pointer(m) => self.address(at, node, *m)?,
                Cell::Null => 0,
                Cell::I64(v) => *v as u64,
                Cell::F64(v) => v.to_bits(),
            };
            self.tables.bytes.extend(word.to_le_bytes());
        }
        self.tables.bytes.resize(self.tables.bytes.len().next_multiple_of(TABLE_ALIGN), 0);
        Ok(self.tables_at + start as u64)
    }

    fn address(&self, at: usize, node: &Node, memory: Memory) -> Result<u64> {
        let value = match memory {
            Memory::Input(i) => node.inputs[i],
            Memory::Output(i) => node.outputs[i],
            Memory::Scratch(offset) => {
                let (place, bytes) = self.program.workspace[at];
                // Steps that want no workspace name its beginning all the same.
                return if bytes == 0 { Ok(0) } else { self.storage.address(Area::Transient, place + offset) };
            }
        };
        let place = self.program.places[value.index()];
        self.storage.address(Area::of(place.region, self.slot), place.offset)
    }
}
