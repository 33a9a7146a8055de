//! Launches of attention, by our own kernels alone. They read heads in the layout of the projection, and the order of their
//! sums depends on the shapes alone. There are two sets: `kernels/cuda/attention_mma.cuh` for tensor cores, and `kernels/cuda/attention_plain.cuh` for
//! all else. `attention_far` launches those for two sequences, windows and slopes.

use super::elementwise::sum_rows;
use super::{Context, operand};
use crate::backend::gpu::launch::{Arg, BLOCK, Kernel, Lowered, Memory, Module, Step, suffix};
use crate::backend::gpu::target::Target;
use crate::graph::op::{
    Attention, AttentionDropout, AttentionGrad, AttentionGradOperands, AttentionOperands, alibi_power, attention_scale,
};
use crate::graph::{DType, Shape};
use crate::random::dropout_threshold;

/// Side of a block's tile of queries, keys and columns: `SIDE` of `kernels/cuda/attention_plain.cuh`.
pub(super) const SIDE: usize = 64;

/// Rows of a block that makes row sums, of which each is eight threads'.
const SUMS: usize = BLOCK as usize / 8;

/// Blocks that fill any GPU: with fewer, the samples of the gradient by a bias are divided among blocks.
const ENOUGH_BLOCKS: usize = 1024;

/// Threads of a block of the kernels on tensor cores.
const THREADS: u32 = 128;

/// Rows of a block of theirs, but for the forward kernel.
pub(super) const ROWS: usize = 64;

/// Rows in shared memory of a block of theirs.
const STAGED: usize = 256;

/// The kernels on tensor cores for heads of up to `width`: `ATTENTION_MMA` in `kernels/cuda/attention.cu`, and
/// `FAR_MMA` in `kernels/cuda/attention_far.cu`.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    width: usize,
    /// Queries of a block of the forward kernel.
    pub queries: usize,
    /// The gradient by a bias of the scores has a kernel, too.
    bias: bool,
}

/// Of 16-bit floats.
const TILES_HALF: [Tiles; 4] = [
    Tiles { width: 32, queries: 128, bias: true },
    Tiles { width: 64, queries: 128, bias: true },
    Tiles { width: 96, queries: 64, bias: false },
    Tiles { width: 128, queries: 64, bias: false },
];

/// Of 32-bit floats that are rounded to TF32.
const TILES_TF32: [Tiles; 2] =
    [Tiles { width: 32, queries: 64, bias: false }, Tiles { width: 64, queries: 64, bias: false }];

/// Kernels on tensor cores.
#[derive(Clone, Copy)]
pub(super) struct TensorCores {
    pub tiles: Tiles,
    /// How their names end.
    name: &'static str,
    /// Bytes of an element.
    element: usize,
}

/// Which kernels on tensor cores take heads of that width, if any do: they move 16 bytes at a time.
pub(super) fn tensor_cores(width: usize, target: &Target, dtype: DType) -> Option<TensorCores> {
    let name = match dtype {
        DType::F32 if target.tf32 => "tf32",
        DType::F32 => return None,
        half => suffix(half),
    };
    let tiles: &[Tiles] = if dtype == DType::F32 { &TILES_TF32 } else { &TILES_HALF };
    let tiles = tiles.iter().find(|tiles| width <= tiles.width)?;
    let wide = (width * dtype.bytes()).is_multiple_of(16);
    (target.capability >= 80 && wide).then(|| TensorCores { tiles: *tiles, name, element: dtype.bytes() })
}

impl TensorCores {
    /// A launch of so many blocks.
    pub fn kernel(self, module: Module, name: &str, blocks: usize) -> Kernel {
        let TensorCores { tiles, name: kind, element } = self;
        let bytes = STAGED * (tiles.width * element + 16);
        Kernel::new(module, format!("{name}_{}_{kind}", tiles.width)).grid(blocks, 1, 1).block(THREADS, 1).shared(bytes)
    }
}

/// The row sums of results times their gradients: those of `dy` and `y`, to the third of these, of samples, positions, heads and floats of a head.
pub(super) fn delta(dtype: DType, [dy, y, to]: [Memory; 3], [samples, length, heads, width]: [usize; 4]) -> Kernel {
    let rows = samples * length * heads;
    Kernel::new(Module::Attention, format!("attention_delta_{}", suffix(dtype)))
        .grid(rows.div_ceil(SUMS), 1, 1)
        .arg(dy)
        .arg(y)
        .arg(to)
        .long(rows)
        .int(length)
        .int(heads)
        .int(width)
}

/// Dropout as the last arguments of a kernel; the random key is operand `key`.
pub(super) fn of_dropout(kernel: Kernel, dropout: Option<AttentionDropout>, key: Option<usize>) -> Kernel {
    let (stream, threshold, kept) = match dropout {
        Some(AttentionDropout { p, stream }) => (stream, dropout_threshold(p), 1.0 / (1.0 - p)),
        None => (0, 0, 1.0),
    };
    kernel.arg(operand(key)).arg(Arg::U32(stream)).arg(Arg::U32(threshold)).float(kept)
}

/// A window as an argument of a kernel: that without one is wider than any sequence.
pub(super) fn window(window: Option<usize>) -> usize {
    const WIDEST: usize = i32::MAX as usize;
    window.map_or(WIDEST, |window| window.min(WIDEST))
}

/// What slopes are made of, as an argument of a kernel; 0 if there are none.
pub(super) fn power(alibi: bool, heads: usize) -> usize {
    if alibi { alibi_power(heads) } else { 0 }
}

/// Sizes of an attention.
struct Sizes {
    samples: usize,
    length: usize,
    heads: usize,
    width: usize,
    causal: bool,
    /// Number of the operand that is added to the scores, and of its biases, of which the samples have one in turn.
    bias: Option<(usize, usize)>,
    /// Number of the operand that has the samples' lengths.
    lengths: Option<usize>,
    /// Number of the operand that is the random key.
    key: Option<usize>,
    dropout: Option<AttentionDropout>,
}

impl Sizes {
    /// Of the packed operand, of the bias of the scores with the number of its operand, and of the numbers of the lengths and the random key.
    fn new(op: &Attention, qkv: &Shape, bias: Option<(usize, &Shape)>, others: [Option<usize>; 2]) -> Sizes {
        let [samples, length, packed] = qkv.dims().try_into().expect("the shape rule asks for three dimensions");
        let Attention { heads, causal, dropout, .. } = *op;
        let (width, bias) = (packed / 3 / heads, bias.map(|(at, shape)| (at, shape.dims()[0])));
        let [lengths, key] = others;
        Sizes { samples, length, heads, width, causal, bias, lengths, key, dropout }
    }

    /// Which kernels on tensor cores take these heads, if any do.
    fn tensor_cores(&self, target: &Target, dtype: DType) -> Option<TensorCores> {
        tensor_cores(self.width, target, dtype)
    }

    /// A launch of a kernel on tensor cores with a block for every `rows` positions of a head.
    fn on_tensor_cores(&self, of: TensorCores, name: &str, rows: usize) -> Kernel {
        of.kernel(Module::Attention, name, self.length.div_ceil(rows) * self.samples * self.heads)
    }

    /// A launch with a block for every [`SIDE`] positions × [`SIDE`] columns of a head.
    fn blocks(&self, name: &str, dtype: DType) -> Kernel {
        let blocks = self.length.div_ceil(SIDE) * self.samples * self.heads;
        Kernel::new(Module::Attention, format!("{name}_{}", suffix(dtype))).grid(blocks, self.width.div_ceil(SIDE), 1)
    }

    /// Bias, lengths and sizes as the last arguments of a kernel, and those of dropout.
    fn args(&self, kernel: Kernel) -> Kernel {
        let scale = attention_scale(self.width) as f32;
        let kernel = match self.bias {
            Some((at, biases)) => kernel.arg(Memory::Input(at)).int(biases),
            None => kernel.arg(Arg::Null).int(1),
        };
        let kernel = kernel.arg(operand(self.lengths));
        let kernel = kernel.int(self.length).int(self.heads).int(self.width).int(self.causal.into()).float(scale);
        of_dropout(kernel, self.dropout, self.key)
    }
}

/// One launch.
pub fn attention(cx: &Context, op: &Attention) -> Lowered {
    let AttentionOperands { q: qkv, bias, lengths, key, .. } = op.places();
    let sizes = Sizes::new(op, cx.x(qkv), bias.map(|at| (at, cx.x(at))), [lengths, key]);
    let kernel = match sizes.tensor_cores(cx.target, cx.x_type(0)) {
        Some(of) => sizes.on_tensor_cores(of, "attention_mma", of.tiles.queries),
        None if op.bias => sizes.blocks("attention_biased", cx.x_type(0)),
        None => sizes.blocks("attention", cx.x_type(0)),
    };
    let kernel = kernel.arg(Memory::Input(qkv)).arg(Memory::Output(0));
    Lowered::one(sizes.args(kernel.arg(Memory::Output(1))))
}

/// Three launches: the row sums of results times their gradients, the gradients of keys and values, and those of queries. With a bias
/// of the scores one more for its gradient, and what adds up its parts.
pub fn grad(cx: &Context, op: &AttentionGrad) -> Lowered {
    let AttentionGradOperands { dy, q, y, lse, bias, lengths, key, .. } = op.places();
    let sizes = Sizes::new(&op.attention, cx.x(q), bias.map(|at| (at, cx.x(at))), [lengths, key]);
    let (dtype, scores) = (cx.x_type(dy), cx.x(lse).len());
    let [dy, qkv, y, lse] = [dy, q, y, lse].map(Memory::Input);
    let sums = Memory::Scratch(0);
    let products = delta(dtype, [dy, y, sums], [sizes.samples, sizes.length, sizes.heads, sizes.width]);
    let grads = match sizes.tensor_cores(cx.target, dtype) {
        Some(of) => {
            ["attention_mma_grad_keys", "attention_mma_grad_queries"].map(|name| sizes.on_tensor_cores(of, name, ROWS))
        }
        None => ["attention_grad_keys", "attention_grad_queries"].map(|name| sizes.blocks(name, dtype)),
    };
    let grads = grads.map(|kernel| sizes.args(kernel.arg(dy).arg(qkv).arg(lse).arg(sums).arg(Memory::Output(0))));
    let steps = [products].into_iter().chain(grads).map(Step::Kernel).collect();
    let scratch_bytes = (scores * size_of::<f32>()).next_multiple_of(64);
    let mut lowered = Lowered { steps, scratch_bytes };
    if let Some((_, biases)) = sizes.bias {
        let tiles = sizes.length.div_ceil(SIDE);
        let (blocks, turns) = (tiles * tiles * biases * sizes.heads, (sizes.samples / biases).max(1));
        let each = turns.div_ceil((ENOUGH_BLOCKS / blocks.max(1)).clamp(1, turns));
        let parts = turns.div_ceil(each);
        let floats = biases * sizes.heads * sizes.length * sizes.length;
        let to = if parts == 1 { Memory::Output(1) } else { Memory::Scratch(lowered.scratch_bytes) };
        let kernel = match sizes.tensor_cores(cx.target, dtype) {
            Some(of) if of.tiles.bias => sizes.on_tensor_cores(of, "attention_mma_grad_bias", ROWS),
            _ => sizes.blocks("attention_grad_bias", dtype),
        };
        let kernel = kernel.grid(blocks * parts, 1, 1).arg(dy).arg(qkv).arg(lse).arg(sums).arg(to);
        lowered.steps.push(sizes.args(kernel.int(turns).int(each)).into());
        if parts > 1 {
            lowered.scratch_bytes += (parts * floats * size_of::<f32>()).next_multiple_of(64);
            sum_rows(&mut lowered, to, [1, parts, floats], Memory::Output(1));
        }
    }
    lowered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensor_cores_take_the_heads_that_they_are_made_for() {
        let op = Attention { heads: 2, ..Attention::default() };
        let kernels = |capability, tf32, dtype, width: usize| {
            let sizes = Sizes::new(&op, &Shape::from([1, 5, 6 * width]), None, [None; 2]);
            let of = sizes.tensor_cores(&Target { tf32, ..Target::new(capability) }, dtype)?;
            Some(sizes.on_tensor_cores(of, "k", of.tiles.queries).name)
        };
        for (width, class) in [(8, 32), (32, 32), (48, 64), (64, 64), (80, 96), (96, 96), (104, 128), (128, 128)] {
            let name = kernels(80, false, DType::BF16, width);
            assert_eq!(name, Some(format!("k_{class}_bf16")), "{width}");
        }
        assert_eq!(kernels(90, false, DType::F16, 64), Some("k_64_f16".into()));
        assert_eq!(kernels(80, true, DType::F32, 20), Some("k_32_tf32".into()));
        // 16 bytes cannot be moved, no kernel is wide enough, or the GPU or the precision has no tensor cores for it.
        for (capability, tf32, dtype, width) in [
            (80, false, DType::BF16, 20),
            (80, true, DType::F32, 18),
            (80, false, DType::BF16, 136),
            (80, true, DType::F32, 96),
            (75, false, DType::F16, 64),
            (80, false, DType::F32, 64),
        ] {
            assert_eq!(kernels(capability, tf32, dtype, width), None, "{capability}, {tf32}, {dtype}, {width}");
        }
    }
}
