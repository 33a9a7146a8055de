//! The gradient of batch normalisation, with that of the activation after it.

use super::super::activation::{Function, with_activation};
use super::super::reduce_columns::Dots;
use super::{Size, Tables, widen};
use crate::fusions::NormGrad;
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::rows_per_chunk;
use crate::run::threads::{Parts, chunks};
use crate::simd::lanes::get;
use crate::simd::{Kernel, Simd, SimdLevel};

/// `dx = (dy − shift − (x − mean) · slope) · factor` for whole rows, where `dy` is the gradient by the normalised value
/// `(x − mean) · factor + offset`, of `dz` by the activation of it. Each of `x` and `dz` is equal to `dx` or apart.
struct InputGradient<'a, F> {
    f: F,
    x: *const f32,
    dz: *const f32,
    dx: *mut f32,
    rows: usize,
    tables: &'a Tables<'a>,
    shift: &'a [f32],
    slope: &'a [f32],
}

impl<F: Function> Kernel for InputGradient<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Tables { mean, factor, offset } = *self.tables;
        let width = mean.len();
        for r in 0..self.rows {
            for c in (0..width).step_by(S::LANES) {
                let (n, at) = ((width - c).min(S::LANES), r * width + c);
                let factor = get(s, factor, c, n);
                // SAFETY: the caller's pointers hold `rows` rows, and this is inside one of them.
                unsafe {
                    let load = |p: *const f32| if n < S::LANES { s.load_part(p.add(at), n) } else { s.load(p.add(at)) };
                    let d = s.sub(load(self.x), get(s, mean, c, n));
                    let offset = if offset.is_empty() { s.zero() } else { get(s, offset, c, n) };
                    let dy = self.f.gradient(s, s.fma(d, factor, offset), load(self.dz));
                    let g = s.sub(s.sub(dy, get(s, self.shift, c, n)), s.mul(d, get(s, self.slope, c, n)));
                    let (dx, to) = (s.mul(g, factor), self.dx.add(at));
                    if n < S::LANES {
                        s.store_part(to, dx, n)
                    } else {
                        s.store(to, dx)
                    };
                }
            }
        }
    }
}

/// [`crate::graph::op::BatchNormGrad`], with the activation's gradient before it if there is one.
pub struct BatchNormGradKernel {
    node: NormGrad,
    size: Size,
    level: SimdLevel,
}

impl BatchNormGradKernel {
    /// For an operand of `rows × channels` elements.
    pub fn new(node: NormGrad, rows: usize, channels: usize, level: SimdLevel) -> Self {
        BatchNormGradKernel { node, size: Size::new(rows, channels), level }
    }
}

impl NodeKernel for BatchNormGradKernel {
    fn scratch_bytes(&self) -> usize {
        self.gradient().scratch_bytes()
    }

    fn run(&self, frame: &Frame<'_>) {
        let (Size { rows, channels, .. }, NormGrad { statistics: [_, invstd], gamma, .. }) = (self.size, self.node);
        let invstd = frame.input::<f32>(invstd);
        let mut scratch = frame.scratch();
        let gradient = self.gradient();
        let tables = &gradient.tables(frame, &mut scratch);
        let [dys, dots] = gradient.sums(frame, &mut scratch, tables);
        let mut params = gamma.map(|_| (frame.output::<f32>(1), frame.output::<f32>(2)));
        gradient.of_input(frame, &mut scratch, tables, |c| {
            let dy: f64 = dys[c..].iter().step_by(channels).sum();
            let xdy: f64 = dots[c..].iter().step_by(channels).sum();
            let inv = invstd[c] as f64;
            if let Some((dgamma, dbeta)) = &mut params {
                dgamma[c] = (xdy * inv) as f32;
                dbeta[c] = dy as f32;
            }
            [(dy / rows as f64) as f32, (xdy * inv * inv / rows as f64) as f32]
        });
    }
}

impl BatchNormGradKernel {
    fn gradient(&self) -> Gradient<'_> {
        Gradient { node: &self.node, size: self.size, level: self.level }
    }
}

/// The two halves of the gradient: sums, and what is made of them.
pub(super) struct Gradient<'a> {
    pub(super) node: &'a NormGrad,
    pub(super) size: Size,
    pub(super) level: SimdLevel,
}

impl Gradient<'_> {
    /// Scratch memory of both halves and the tables.
    pub(super) fn scratch_bytes(&self) -> usize {
        2 * Scratch::size::<f64>(self.size.partials())
            + Tables::scratch_bytes(&self.size)
            + 2 * Scratch::size::<f32>(self.size.width())
    }

    /// What normalises.
    pub(super) fn tables<'a>(&self, frame: &Frame<'a>, scratch: &mut Scratch<'a>) -> Tables<'a> {
        let NormGrad { statistics: [mean, invstd], gamma, beta, .. } = *self.node;
        let parameters = [gamma, beta].map(|operand| operand.map(|i| frame.input::<f32>(i)));
        Tables::new(scratch, &self.size, [frame.input(mean), frame.input(invstd)], parameters)
    }

    /// `Σ dy` and `Σ dy · (x − mean)` of every block; those of channel `c` are at `c`, and at every so many channels from there on.
    pub(super) fn sums<'a>(&self, frame: &Frame<'a>, scratch: &mut Scratch<'a>, tables: &Tables) -> [&'a [f64]; 2] {
        let (grid, width) = (self.size.grid, self.size.width());
        let (x, dz) = (frame.source::<f32>(0), frame.source::<f32>(self.node.dz));
        let (dys, dots) = (scratch.take::<f64>(self.size.partials()), scratch.take::<f64>(self.size.partials()));
        {
            let (dys, dots) = (Parts::new(dys), Parts::new(dots));
            frame.pool().run(grid.count(), |task, _| {
                let (rows, block, columns) = grid.block(task);
                let at = block * width + columns.start..block * width + columns.end;
                let all = rows.start * width..rows.end * width;
                let (x, dz) = (x.range(all.clone()).cast_const(), dz.range(all).cast_const());
                // SAFETY: each block has its own sums.
                let sums = unsafe { [dys.part(at.clone()), dots.part(at)] };
                let [mean, factor] = [tables.mean, tables.factor].map(|table| &table[columns.clone()]);
                let offset = tables.offset.get(columns.clone()).unwrap_or_default();
                with_activation!(self.node.act, f => self.level.run(Dots {
                    f, x, dy: dz, width, rows: rows.len(), columns: columns.clone(), mean, factor, offset, sums
                }));
            });
        }
        [dys, dots]
    }

    /// Writes `dx`. `means(c)`: of channel `c` the mean of `dy`, and `invstd²` times that of `dy · (x − mean)`.
    pub(super) fn of_input(
        &self,
        frame: &Frame,
        scratch: &mut Scratch,
        tables: &Tables,
        mut means: impl FnMut(usize) -> [f32; 2],
    ) {
        let (Size { rows, channels, folded, .. }, width) = (self.size, self.size.width());
        let [shift, slope] = [(); 2].map(|()| scratch.take::<f32>(width));
        for c in 0..channels {
            [shift[c], slope[c]] = means(c);
        }
        for table in [&mut *shift, &mut *slope] {
            let (first, rest) = table.split_at_mut(channels);
            widen(first, rest);
        }
        let (shift, slope) = (&*shift, &*slope);
        let (x, dz) = (frame.source::<f32>(0), frame.source::<f32>(self.node.dz));
        let dx = frame.target::<f32>(0);
        let pieces = chunks(rows / folded, rows_per_chunk(width));
        frame.pool().run(pieces.count(), |task, _| {
            let rows = pieces.range(task);
            let all = rows.start * width..rows.end * width;
            let (x, dz, dx) = (x.range(all.clone()).cast_const(), dz.range(all.clone()).cast_const(), dx.range(all));
            with_activation!(self.node.act, f => self.level.run(InputGradient {
                f, x, dz, dx, rows: rows.len(), tables, shift, slope
            }));
        });
    }
}
