//! Batch normalisation around a convolution: normalised values that are never stored, as the convolution makes them where it
//! reads them, and statistics that are made while it writes.

use super::super::activation::{Function, with_activation};
use super::super::conv::Conv2dKernel;
use super::super::conv::prepared::{PreparedConv2dGradWeightKernel, PreparedConv2dKernel};
use super::{Size, Statistics, Tables};
use crate::fusions::NormRead;
use crate::gemm::pack::Copy2d;
use crate::gemm::prologue::{Prologue, Source};
use crate::gemm::tile::{EpilogueOperands, Finish};
use crate::graph::op::Activation;
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::simd::{Kernel, Simd, SimdLevel};

/// Rows ahead of the one that is copied are prefetched, as by [`crate::gemm::pack::CopyRows`].
const AHEAD: usize = 16;

/// Copies rows as `f((x − mean) · factor + offset)`, to the bit as [`super::Affine`] has it.
struct NormalisedRows<'a, F> {
    f: F,
    tables: [&'a [f32]; 3],
    rows: Copy2d,
}

impl<F: Function> NormalisedRows<'_, F> {
    // No closure: one that is too long to be inlined would be compiled without the instructions of `S`.
    #[inline(always)]
    fn value<S: Simd>(&self, s: S, x: S::V, [mean, factor, offset]: [S::V; 3]) -> S::V {
        self.f.value(s, s.fma(s.sub(x, mean), factor, offset))
    }
}

impl<F: Function> Kernel for NormalisedRows<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (Copy2d { from, from_step, to, to_step, rows, columns, padded }, [mean, factor, offset]) =
            (self.rows, self.tables);
        let whole = columns - columns % S::LANES;
        let has_offset = !offset.is_empty();
        for r in 0..rows {
            let (from, to) = (from.wrapping_add(r * from_step), to.wrapping_add(r * to_step));
            let ahead = if r + AHEAD < rows { from.wrapping_add(AHEAD * from_step) } else { from };
            // SAFETY: the caller passes rows that are valid in full length, and tables of as many numbers as there are columns.
            unsafe {
                for c in (0..whole).step_by(S::LANES) {
                    s.prefetch(ahead.wrapping_add(c));
                    let offset = if has_offset { s.load(offset.as_ptr().add(c)) } else { s.zero() };
                    let (mean, factor) = (s.load(mean.as_ptr().add(c)), s.load(factor.as_ptr().add(c)));
                    s.store(to.add(c), self.value(s, s.load(from.add(c)), [mean, factor, offset]));
                }
                if whole < columns {
                    let n = columns - whole;
                    let part = |table: &[f32]| s.load_part(table.as_ptr().add(whole), n);
                    let offset = if has_offset { part(offset) } else { s.zero() };
                    let y = self.value(s, s.load_part(from.add(whole), n), [part(mean), part(factor), offset]);
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

/// An operand that is normalised where it is read.
struct Normalised {
    node: NormRead,
    /// Of one row, as the tables are by channel.
    size: Size,
    level: SimdLevel,
}

impl Normalised {
    fn new(node: NormRead, channels: usize, level: SimdLevel) -> Self {
        Normalised { node, size: Size::new(1, channels), level }
    }

    fn scratch_bytes(&self) -> usize {
        Tables::scratch_bytes(&self.size)
    }

    /// Operand 0, with tables from operands 1 and 2, which are the statistics, and the parameters after them.
    fn source<'a>(&self, frame: &Frame<'a>, scratch: &mut Scratch<'a>) -> Source<'a> {
        let parameters = [3, 4].map(|i| self.node.affine.then(|| frame.input::<f32>(i)));
        let statistics = [1, 2].map(|i| frame.input::<f32>(i));
        let Tables { mean, factor, offset } = Tables::new(scratch, &self.size, statistics, parameters);
        let prologue = Some(prologue(self.level, self.node.act, [mean, factor, offset]));
        Source { values: frame.input(0), prologue }
    }
}

/// A convolution.
enum Convolution {
    /// Of what is there.
    Plain(Conv2dKernel),
    /// Of normalised values.
    Normalised(Normalised, PreparedConv2dKernel),
}

/// A convolution of normalised values, or with the statistics of its results, or both.
pub struct NormConvKernel {
    convolution: Convolution,
    /// Number of the operand that is the weight.
    weight: usize,
    /// The bias is behind it.
    bias: bool,
    statistics: Option<Statistics>,
}

impl NormConvKernel {
    /// A convolution with statistics.
    pub fn plain(kernel: Conv2dKernel, bias: bool, statistics: Statistics) -> Self {
        NormConvKernel { convolution: Convolution::Plain(kernel), weight: 1, bias, statistics: Some(statistics) }
    }

    /// A convolution of `channels` normalised channels.
    pub fn normalised(
        node: NormRead,
        kernel: PreparedConv2dKernel,
        bias: bool,
        channels: usize,
        statistics: Option<Statistics>,
        level: SimdLevel,
    ) -> Self {
        let weight = node.own;
        let convolution = Convolution::Normalised(Normalised::new(node, channels, level), kernel);
        NormConvKernel { convolution, weight, bias, statistics }
    }
}

impl NodeKernel for NormConvKernel {
    fn scratch_bytes(&self) -> usize {
        let product = match &self.convolution {
            Convolution::Plain(kernel) => kernel.workspace_bytes(),
            Convolution::Normalised(x, kernel) => x.scratch_bytes() + kernel.workspace_bytes(),
        };
        self.statistics.as_ref().map_or(0, Statistics::scratch_bytes_behind) + product
    }

    fn run(&self, frame: &Frame<'_>) {
        let mut scratch = frame.scratch();
        let (x, finishes) = match &self.convolution {
            Convolution::Plain(kernel) => (frame.input(0).into(), kernel.finishes()),
            Convolution::Normalised(x, _) => (x.source(frame, &mut scratch), true),
        };
        let (w, bias) = (frame.input(self.weight), self.bias.then(|| frame.input(self.weight + 1)));
        let product = |y: &mut [f32], finish: Option<&dyn Finish>, workspace: &mut [u8]| {
            let operands = EpilogueOperands { bias, finish, ..EpilogueOperands::default() };
            match &self.convolution {
                Convolution::Plain(kernel) => kernel.run(frame.pool(), x.values, w, operands, y, workspace),
                Convolution::Normalised(_, kernel) => kernel.run(frame.pool(), x, w, operands, y, workspace),
            }
        };
        match &self.statistics {
            Some(statistics) => {
                let made = (frame.output(1), frame.output(0), frame.output(2));
                statistics.run_behind(frame, scratch, finishes, made, product);
            }
            None => product(frame.output(0), None, scratch.bytes()),
        }
    }
}

/// The gradient by the weight of a convolution of normalised values.
pub struct NormGradWeightKernel {
    x: Normalised,
    kernel: PreparedConv2dGradWeightKernel,
    /// With that by the bias.
    bias: bool,
}

impl NormGradWeightKernel {
    /// Of a convolution of `channels` channels.
    pub fn new(
        node: NormRead,
        kernel: PreparedConv2dGradWeightKernel,
        bias: bool,
        channels: usize,
        level: SimdLevel,
    ) -> Self {
        NormGradWeightKernel { x: Normalised::new(node, channels, level), kernel, bias }
    }
}

impl NodeKernel for NormGradWeightKernel {
    fn scratch_bytes(&self) -> usize {
        self.x.scratch_bytes() + self.kernel.workspace_bytes()
    }

    fn run(&self, frame: &Frame<'_>) {
        let mut scratch = frame.scratch();
        let x = self.x.source(frame, &mut scratch);
        let (dy, dw, db) = (frame.input(self.x.node.own), frame.output(0), self.bias.then(|| frame.output(1)));
        self.kernel.run(frame.pool(), x, dy, dw, db, scratch.bytes());
    }
}
