//! Launches with addresses, made of launches as data: at run time they are only enqueued.

use super::driver::stream::Stream;
use super::driver::{check, sys as cu};
use super::modules::{Function, Modules, launch};
use crate::backend::gpu::launch::{Arg, Cell, LaunchConfig, Lowered, Memory, Step};
use anyhow::{Result, bail};
use std::fmt::Debug;
use std::sync::Arc;

/// Work with all addresses resolved.
#[derive(Debug, Clone)]
pub enum Ready {
    /// A kernel; each argument at the front of a cell.
    Kernel {
        /// Which.
        function: Function,
        /// Blocks, threads and shared memory.
        config: LaunchConfig,
        /// The arguments.
        cells: Box<[u64]>,
    },
    /// What a library does.
    Library(Arc<dyn LibraryCall>),
    /// Messages between ranks. Unlike a library's other calls it ends only if all ranks make it.
    Exchange(Arc<dyn LibraryCall>),
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

/// A call of a library with all addresses resolved, which can be enqueued any number of times.
pub trait LibraryCall: Debug + Send + Sync {
    /// Puts it on `stream`.
    ///
    /// # Errors
    /// The library refuses it.
    ///
    /// # Safety
    /// The context is current, and the memory that it was made for lives until it has run.
    unsafe fn enqueue(&self, stream: &Stream) -> Result<()>;
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
                Ready::Library(call) | Ready::Exchange(call) => return call.enqueue(stream),
                Ready::Kernel { function, config, cells } => launch(stream, function, *config, cells),
                Ready::Zero { to, bytes } => check("clearing memory", cu::cuMemsetD8Async(*to, 0, *bytes, stream.raw)),
                Ready::Copy { from, to, bytes } => {
                    check("copying on the GPU", cu::cuMemcpyDtoDAsync_v2(*to, *from, *bytes, stream.raw))
                }
            }
        };
        Ok(done?)
    }
}

/// Constant arrays of a program, collected while the addresses of its steps are resolved.
#[derive(Debug)]
pub struct Tables {
    /// Their contents, one after the other.
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

/// A step of our own (no library's), with the addresses that `address` gives.
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
            let config = LaunchConfig { grid: kernel.grid, block: kernel.block, shared_bytes: kernel.shared_bytes };
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
            Ready::Kernel { function, config, cells: cells.into() }
        }
        Step::Zero { to, bytes } => Ready::Zero { to: address(*to)?, bytes: *bytes },
        Step::Copy { from, to, bytes } => Ready::Copy { from: address(*from)?, to: address(*to)?, bytes: *bytes },
        Step::Matmul(_) | Step::Convolution(_) | Step::Exchange(_) => bail!("internal error: this step is a library's"),
    })
}
