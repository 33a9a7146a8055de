//! From launches as data to launches with addresses: what is left to do at run time is to enqueue them.

use super::driver::{check, sys as cu};
use super::executable::{Area, Storage};
use super::extents;
use super::launch::{Arg, Cell, ConvolutionStep, Lowered, MatmulStep, Memory, Step};
use super::modules::{Function, Modules, Size, launch};
use super::nvidia::{Libraries, LibraryCall, convolution, matmul};
use super::stream::Stream;
use crate::plan::Program;
use anyhow::{Context, Result, bail, ensure};
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
#[derive(Debug)]
pub struct Tables {
    /// Their contents, one behind the other.
    pub bytes: Vec<u8>,
    /// Where they will be.
    at: u64,
}

impl Tables {
    /// None yet; the first will be at address `at`.
    pub fn new(at: u64) -> Tables {
        Tables { bytes: Vec::new(), at }
    }

    /// Adds one; its address.
    fn add(&mut self, cells: &[Cell], address: &dyn Fn(Memory) -> Result<u64>) -> Result<u64> {
        let start = self.bytes.len();
        for cell in cells {
            let word = match cell {
                Cell::Pointer(m) => address(*m)?,
                Cell::Null => 0,
                Cell::I64(v) => *v as u64,
                Cell::F64(v) => v.to_bits(),
            };
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(TABLE_ALIGN), 0);
        Ok(self.at + start as u64)
    }
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

/// A step that no library does, with the addresses that `address` tells.
///
/// # Errors
/// There is no such kernel, or no address.
pub fn own(
    step: &Step,
    address: &dyn Fn(Memory) -> Result<u64>,
    tables: &mut Tables,
    modules: &mut Modules,
) -> Result<Ready> {
    Ok(match step {
        Step::Kernel(kernel) => {
            let function = modules.function(kernel.module, &kernel.name, kernel.shared_bytes)?;
            let size = Size { grid: kernel.grid, block: kernel.block, shared_bytes: kernel.shared_bytes };
            let mut cells = Vec::with_capacity(kernel.args.len());
            for arg in &kernel.args {
                cells.push(match arg {
                    Arg::Pointer(m) => address(*m)?,
                    Arg::Null => 0,
                    Arg::I32(v) => u64::from(*v as u32),
                    Arg::U32(v) => u64::from(*v),
                    Arg::I64(v) => *v as u64,
                    Arg::F32(v) => u64::from(v.to_bits()),
                    Arg::F64(v) => v.to_bits(),
                    Arg::Table(cells) => tables.add(cells, address)?,
                });
            }
            Ready::Kernel { function, size, cells: cells.into() }
        }
        Step::Zero { to, bytes } => Ready::Zero { to: address(*to)?, bytes: *bytes },
        Step::Copy { from, to, bytes } => Ready::Copy { from: address(*from)?, to: address(*to)?, bytes: *bytes },
        Step::Matmul(_) | Step::Convolution(_) => bail!("internal error: this step is a library's"),
    })
}

/// Makes the steps of one node ready.
pub struct Resolver<'a> {
    /// The node's program.
    pub program: &'a Program,
    /// Where its values are.
    pub storage: &'a Storage,
    /// The slot with its batch.
    pub slot: usize,
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
        let steps: Vec<Ready> = lowered
            .steps
            .iter()
            .map(|step| self.step(at, step))
            .collect::<Result<_>>()
            .with_context(|| self.program.node_name(at))?;
        for (step, ready) in lowered.steps.iter().zip(&steps) {
            if let (Step::Kernel(kernel), Ready::Kernel { size, cells, .. }) = (step, ready) {
                // Each was asked for a moment ago, and is there.
                let address = |memory| self.address(at, memory).unwrap_or_default();
                let given = || extents::of_step(self.program, at, lowered, kernel, cells, address);
                extents::tell(&kernel.name, *size, cells, given);
            }
        }
        Ok(steps)
    }

    fn step(&mut self, at: usize, step: &Step) -> Result<Ready> {
        match step {
            Step::Matmul(step) => self.matmul(at, step),
            Step::Convolution(step) => self.convolution(at, step),
            Step::Kernel(_) | Step::Zero { .. } | Step::Copy { .. } => {
                let (program, storage, slot) = (self.program, self.storage, self.slot);
                own(step, &|memory| address(program, storage, slot, at, memory), self.tables, self.modules)
            }
        }
    }

    fn matmul(&self, at: usize, step: &MatmulStep) -> Result<Ready> {
        let places = matmul::Places {
            a: self.address(at, step.a)?,
            b: self.address(at, step.b)?,
            d: self.address(at, step.d)?,
            vector: step.vector.map(|m| self.address(at, m)).transpose()?,
            workspace: self.address(at, step.workspace)?.next_multiple_of(matmul::WORKSPACE_ALIGNMENT as u64),
        };
        let blas = self.libraries.blas().context("the program was made for a library that is not open")?;
        let call = blas.prepare(&step.matmul, places)?;
        Ok(Ready::Library(call.context("the library has no algorithm for what it was chosen for")?))
    }

    fn convolution(&self, at: usize, step: &ConvolutionStep) -> Result<Ready> {
        let workspace = self.address(at, step.workspace)?;
        let places = convolution::Places {
            x: self.address(at, step.x)?,
            w: self.address(at, step.w)?,
            y: self.address(at, step.y)?,
            bias: step.bias.map(|m| self.address(at, m)).transpose()?,
            workspace: workspace.next_multiple_of(convolution::WORKSPACE_ALIGNMENT as u64),
        };
        let dnn = self.libraries.dnn().context("the program was made for a library that is not open")?;
        let call = dnn.prepare(&step.convolution, &places)?;
        Ok(Ready::Library(call.context("the library has no algorithm for what it was chosen for")?))
    }

    fn address(&self, at: usize, memory: Memory) -> Result<u64> {
        address(self.program, self.storage, self.slot, at, memory)
    }
}

/// Where a value or the workspace of node number `at` is.
fn address(program: &Program, storage: &Storage, slot: usize, at: usize, memory: Memory) -> Result<u64> {
    let node = &program.graph.nodes[at];
    let value = match memory {
        Memory::Input(i) => node.inputs[i],
        Memory::Output(i) => node.outputs[i],
        Memory::Scratch(offset) => {
            let (place, bytes) = program.workspace[at];
            // Steps that want no workspace name its beginning all the same.
            return if bytes == 0 { Ok(0) } else { storage.address(Area::Transient, place + offset) };
        }
    };
    let place = program.places[value.index()];
    storage.address(Area::of(place.region, slot), place.offset)
}
