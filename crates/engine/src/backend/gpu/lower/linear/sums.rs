//! Sums of the slices of a split-K product, and of the rows of a matrix. Their order depends on shapes alone.

use crate::backend::gpu::launch::{Arg, Kernel, Memory, Module, Step, suffix};
use crate::graph::DType;
use crate::graph::op::Activation;

/// Parts of the workspace start at multiples of this.
const ALIGNMENT: usize = 64;

/// Threads that share the slices of an element: none where there are few slices, and most where there are many.
const LANES: [usize; 2] = [8, 32];

/// Blocks that fill a large GPU, and the fewest rows that are worth a block.
const WANTED_BLOCKS: usize = 528;
const FEWEST_ROWS: usize = 64;

/// `bytes`, or a little more, so that what follows is aligned.
pub fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Number of a type in `enum ResultType` of `kernels/cuda/gemm_store.cuh`.
///
/// # Panics
/// It is no float of 16 or 32 bits.
pub fn type_code(dtype: DType) -> usize {
    match dtype {
        DType::F32 => 0,
        DType::BF16 => 1,
        DType::F16 => 2,
        other => panic!("no matrix product gives {other}"),
    }
}

/// The epilogue of our own products: what happens to an accumulator before it is stored.
#[derive(Debug, Clone, Copy)]
pub struct Finish {
    /// Where the result is stored.
    pub y: Memory,
    /// Its element type.
    pub y_type: DType,
    /// The bias, which is added first.
    pub bias: Option<Memory>,
    /// The activation, which is applied to the sum.
    pub act: Option<Activation>,
}

impl Finish {
    /// The accumulators themselves, of 32 bits.
    pub fn plain(y: Memory) -> Finish {
        Finish { y, y_type: DType::F32, bias: None, act: None }
    }

    /// The pointer to the bias.
    pub fn bias_arg(&self) -> Arg {
        self.bias.map_or(Arg::Null, Arg::Pointer)
    }
}

/// The sum of `slices` arrays of `elements` sums at `partials`. Elements are rows of `columns`, which the bias follows.
pub fn of_slices(partials: Memory, slices: usize, elements: usize, columns: usize, finish: &Finish) -> Step {
    let [some, many] = LANES;
    let lanes = match slices {
        _ if slices > many * some => many,
        _ if slices > some => some,
        _ => 1,
    };
    let threads = 256 / lanes;
    Kernel::new(Module::Matmul, "sum_slices")
        .block(threads as u32, lanes as u32)
        .grid(elements.div_ceil(threads), 1, 1)
        .arg(partials)
        .int(slices)
        .long(elements)
        .arg(finish.bias_arg())
        .int(columns)
        .arg(finish.y)
        .int(type_code(finish.y_type))
        .activation(finish.act)
        .into()
}

/// The sums of the columns of a matrix `[rows, columns]`, as the gradient of a bias is.
#[derive(Debug, Clone, Copy)]
pub struct ColumnSums {
    rows: usize,
    columns: usize,
    chunk: usize,
    chunks: usize,
}

impl ColumnSums {
    /// Decides how the rows are divided.
    pub fn new(rows: usize, columns: usize) -> ColumnSums {
        let most = (WANTED_BLOCKS / columns.div_ceil(32)).min(rows / FEWEST_ROWS).max(1);
        let chunk = rows.div_ceil(most);
        ColumnSums { rows, columns, chunk, chunks: rows.div_ceil(chunk) }
    }

    /// Bytes of workspace.
    pub fn scratch_bytes(&self) -> usize {
        if self.chunks > 1 { aligned(self.chunks * self.columns * 4) } else { 0 }
    }

    /// The launches: from `x` of type `dtype` to 32-bit sums in `y`, with workspace from byte `scratch` on.
    pub fn steps(&self, x: Memory, dtype: DType, y: Memory, scratch: usize) -> Vec<Step> {
        let partials = if self.chunks > 1 { Memory::Scratch(scratch) } else { y };
        let chunks = Kernel::new(Module::Matmul, format!("sum_rows_{}", suffix(dtype)))
            .block(32, 8)
            .grid(self.columns.div_ceil(32), self.chunks, 1)
            .arg(x)
            .arg(partials)
            .long(self.rows)
            .int(self.columns)
            .int(self.chunk);
        let mut steps = vec![chunks.into()];
        if self.chunks > 1 {
            steps.push(of_slices(partials, self.chunks, self.columns, self.columns, &Finish::plain(y)));
        }
        steps
    }
}
