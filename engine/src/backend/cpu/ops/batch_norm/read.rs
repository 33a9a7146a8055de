//! Batch normalisation where a convolution reads the normalised values, which are then never stored.

use super::super::activation::{Function, with_activation};
use super::super::conv::prepared::{PreparedConv2dGradWeightKernel, PreparedConv2dKernel};
use super::{Size, Statistics, Tables};
use crate::backend::cpu::fusions::NormRead;
use crate::backend::cpu::gemm::pack::Copy2d;
use crate::backend::cpu::gemm::prologue::{Prologue, Source};
use crate::backend::cpu::run::frame::{Frame, NodeKernel};
use crate::backend::cpu::simd::{Kernel, Simd, SimdLevel};
use crate::graph::op::{Activation, BatchNorm};

/// Rows ahead of the one that is copied are prefetched, as by [`crate::backend::cpu::gemm::pack::CopyRows`].
const AHEAD: usize = 16;

/// Copies rows as `f((x − mean) · factor + offset)`, to the bit as [`super::Affine`] has it.
struct NormalisedRows<'a, F> {
    f: F,
    tables: [&'a [f32]; 3],
    rows: Copy2d,
}

impl<F: Function> Kernel for NormalisedRows<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (Copy2d { from, from_step, to, to_step, rows, columns, padded }, [mean, factor, offset]) =
            (self.rows, self.tables);
        let whole = columns - columns % S::LANES;
        let has_offset = !offset.is_empty();
        let normal =
            |x: S::V, mean: S::V, factor: S::V, offset: S::V| self.f.value(s, s.fma(s.sub(x, mean), factor, offset));
        for r in 0..rows {
            let (from, to) = (from.wrapping_add(r * from_step), to.wrapping_add(r * to_step));
            let ahead = if r + AHEAD < rows { from.wrapping_add(AHEAD * from_step) } else { from };
            // SAFETY: the caller passes rows that are valid in full length, and tables of as many numbers as there are columns.
            unsafe {
                for c in (0..whole).step_by(S::LANES) {
                    s.prefetch(ahead.wrapping_add(c));
                    let offset = if has_offset { s.load(offset.as_ptr().add(c)) } else { s.zero() };
                    let (mean, factor) = (s.load(mean.as_ptr().add(c)), s.load(factor.as_ptr().add(c)));
                    s.store(to.add(c), normal(s.load(from.add(c)), mean, factor, offset));
                }
                if whole < columns {
                    let n = columns - whole;
                    let part = |table: &[f32]| s.load_part(table.as_ptr().add(whole), n);
                    let offset = if has_offset { part(offset) } else { s.zero() };
                    let y = normal(s.load_part(from.add(whole), n), part(mean), part(factor), offset);
                    s.store_part(to.add(whole), y, n);
                }
                to.add(columns).write_bytes(0, padded - columns);
            }
        }
    }
}

/// What normalises the elements of each column, and applies `act`.
fn prologue<'a>(level: SimdLevel, act: Option<Activation>, tables: [&'a [f32]; 3]) -> Prologue<'a> {
    fn apply(level: SimdLevel, act: Option<Activation>, tables: [&[f32]; 3], rows: Copy2d) {
        with_activation!(act, f => level.run(NormalisedRows { f, tables, rows }));
    }
    Prologue { level, act, tables, apply }
}

/// A convolution of normalised values, or its gradient by the weight.
enum Product {
    Forward(PreparedConv2dKernel),
    GradWeight(PreparedConv2dGradWeightKernel),
}

/// A group that [`NormRead`] describes.
pub struct NormReadKernel {
    node: NormRead,
    product: Product,
    /// Operand or output of the bias.
    bias: bool,
    statistics: Option<Statistics>,
    /// Of one row, as the tables are by channel.
    size: Size,
    level: SimdLevel,
}

impl NormReadKernel {
    /// The convolution, for an operand of `rows × channels` elements; `bias`: it has one.
    pub fn forward(
        node: NormRead,
        kernel: PreparedConv2dKernel,
        bias: bool,
        [rows, channels]: [usize; 2],
        level: SimdLevel,
    ) -> Self {
        let of_batch = |op: &BatchNorm| Statistics { op: op.clone(), size: Size::new(rows, channels), level };
        let (statistics, size) = (node.batch.as_ref().map(of_batch), Size::new(1, channels));
        NormReadKernel { node, product: Product::Forward(kernel), bias, statistics, size, level }
    }

    /// Its gradient by the weight, likewise; `bias`: with that by the bias.
    pub fn grad_weight(
        node: NormRead,
        kernel: PreparedConv2dGradWeightKernel,
        bias: bool,
        channels: usize,
        level: SimdLevel,
    ) -> Self {
        let (product, size) = (Product::GradWeight(kernel), Size::new(1, channels));
        NormReadKernel { node, product, bias, statistics: None, size, level }
    }
}

impl NodeKernel for NormReadKernel {
    fn scratch_bytes(&self) -> usize {
        let product = match &self.product {
            Product::Forward(kernel) => kernel.workspace_bytes(),
            Product::GradWeight(kernel) => kernel.workspace_bytes(),
        };
        self.statistics.as_ref().map_or(0, Statistics::scratch_bytes) + Tables::scratch_bytes(&self.size) + product
    }

    fn run(&self, frame: &Frame<'_>) {
        let NormRead { act, affine, own, .. } = self.node;
        let mut scratch = frame.scratch();
        let (known, first) = match &self.statistics {
            Some(statistics) => {
                let (mean, invstd) = (frame.output::<f32>(1), frame.output::<f32>(2));
                statistics.run(frame, &mut scratch, mean, invstd);
                ([&*mean, &*invstd], 1)
            }
            None => ([1, 2].map(|i| frame.input::<f32>(i)), 3),
        };
        let parameters = [first, first + 1].map(|i| affine.then(|| frame.input::<f32>(i)));
        let Tables { mean, factor, offset } = Tables::new(&mut scratch, &self.size, known, parameters);
        let prologue = Some(prologue(self.level, act, [mean, factor, offset]));
        let x = Source { values: frame.input(0), prologue };
        let workspace = scratch.bytes();
        match &self.product {
            Product::Forward(kernel) => {
                let bias = self.bias.then(|| frame.input(own + 1));
                kernel.run(frame.pool(), x, frame.input(own), bias, frame.output(0), workspace);
            }
            Product::GradWeight(kernel) => {
                let db = self.bias.then(|| frame.output(1));
                kernel.run(frame.pool(), x, frame.input(own), frame.output(0), db, workspace);
            }
        }
    }
}
