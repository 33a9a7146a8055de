//! Group normalisation: a task for each sample.

use super::activation::Identity;
use super::reduce_columns::{Dots, Moments};
use crate::graph::Shape;
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::{for_chunks, vectorised};
use crate::run::threads::Parts;
use crate::simd::SimdLevel;
use crate::simd::lanes::{get, put};
use std::ops::Range;

/// Channels whose tables are kept on the stack at a time.
const TILE: usize = 64;

/// Samples × positions × channels, in groups of channels.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    samples: usize,
    positions: usize,
    channels: usize,
    groups: usize,
}

impl Layout {
    /// Of a value of shape `x` (`[N, .., C]`).
    pub fn new(x: &Shape, groups: usize) -> Self {
        let (samples, channels) = (x.dims()[0], x.last());
        Layout { samples, positions: x.rows() / samples.max(1), channels, groups }
    }

    fn sample(&self) -> usize {
        self.positions * self.channels
    }

    fn group(&self, channel: usize) -> usize {
        channel / (self.channels / self.groups)
    }

    /// Numbers that one mean is taken of.
    fn members(&self) -> f64 {
        (self.positions * self.channels / self.groups) as f64
    }

    fn tiles(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let channels = self.channels;
        (0..channels).step_by(TILE).map(move |c| c..(c + TILE).min(channels))
    }
}

vectorised! {
    /// `y = (x − mean) · factor + offset` for the columns `columns` of all rows; the tables begin at the first of them.
    fn forward<'a, S>(
        s, x: &'a [f32], y: &'a mut [f32], width: usize, columns: Range<usize>, tables: [&'a [f32]; 3],
    ) {
        let [mean, factor, offset] = tables;
        for c in columns.clone().step_by(S::LANES) {
            let (n, at) = ((columns.end - c).min(S::LANES), c - columns.start);
            let (mean, factor, offset) = (get(s, mean, at, n), get(s, factor, at, n), get(s, offset, at, n));
            for i in (c..x.len()).step_by(width) {
                put(s, y, i, n, s.fma(s.sub(get(s, x, i, n), mean), factor, offset));
            }
        }
    }

    /// `dx = dy · factor − shift − (x − mean) · slope`, likewise.
    fn backward<'a, S>(
        s, x: &'a [f32], dy: &'a [f32], dx: &'a mut [f32], width: usize, columns: Range<usize>,
        tables: [&'a [f32]; 4],
    ) {
        let [mean, factor, shift, slope] = tables;
        for c in columns.clone().step_by(S::LANES) {
            let (n, at) = ((columns.end - c).min(S::LANES), c - columns.start);
            let (mean, factor) = (get(s, mean, at, n), get(s, factor, at, n));
            let (shift, slope) = (get(s, shift, at, n), get(s, slope, at, n));
            for i in (c..x.len()).step_by(width) {
                let d = s.sub(get(s, x, i, n), mean);
                let g = s.sub(s.mul(get(s, dy, i, n), factor), shift);
                put(s, dx, i, n, s.sub(g, s.mul(d, slope)));
            }
        }
    }
}

/// [`crate::graph::op::GroupNorm`].
pub struct GroupNormKernel {
    /// Sizes.
    pub layout: Layout,
    /// Added to the variance.
    pub eps: f32,
    /// There are `gamma` and `beta`.
    pub affine: bool,
    /// Instructions.
    pub level: SimdLevel,
}

/// Count, mean and sum of squared distances of the numbers seen so far (Chan, Golub & LeVeque 1983).
#[derive(Clone, Copy, Default)]
struct Seen {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Seen {
    fn add(&mut self, count: f64, mean: f64, squares: f64) {
        let (total, d) = (self.count + count, mean - self.mean);
        self.mean += d * count / total;
        self.squares += squares + d * d * self.count * count / total;
        self.count = total;
    }
}

impl GroupNormKernel {
    /// Mean and reciprocal standard deviation of each group of one sample.
    fn statistics(&self, x: &[f32], mean: &mut [f32], rstd: &mut [f32]) {
        let Layout { positions, channels, groups, .. } = self.layout;
        let mut seen = Seen::default();
        for tile in self.layout.tiles() {
            let (mut sums, mut squares) = ([0.0; TILE], [0.0; TILE]);
            let n = tile.len();
            let (columns, of_tile) = (tile.clone(), [&mut sums[..n], &mut squares[..n]]);
            self.level.run(Moments { x: x.as_ptr(), width: channels, rows: positions, columns, sums: of_tile });
            for (i, c) in tile.enumerate() {
                seen.add(positions as f64, sums[i] / positions as f64, squares[i]);
                if (c + 1) % (channels / groups) == 0 {
                    let g = self.layout.group(c);
                    mean[g] = seen.mean as f32;
                    rstd[g] = (1.0 / (seen.squares / seen.count + self.eps as f64).sqrt()) as f32;
                    seen = Seen::default();
                }
            }
        }
    }
}

impl NodeKernel for GroupNormKernel {
    fn run(&self, frame: &Frame<'_>) {
        let x = frame.input::<f32>(0);
        let params = self.affine.then(|| (frame.input::<f32>(1), frame.input::<f32>(2)));
        let Layout { samples, channels, groups, .. } = self.layout;
        let sample = self.layout.sample();
        let outputs = [0, 1, 2].map(|i| Parts::new(frame.output::<f32>(i)));
        frame.pool().run(samples, |n, _| {
            let (r, g) = (n * sample..(n + 1) * sample, n * groups..(n + 1) * groups);
            // SAFETY: each sample has its own elements.
            let (y, mean, rstd) =
                unsafe { (outputs[0].part(r.clone()), outputs[1].part(g.clone()), outputs[2].part(g)) };
            let x = &x[r];
            self.statistics(x, mean, rstd);
            for tile in self.layout.tiles() {
                let mut tables = [[0.0f32; TILE]; 3];
                for (i, c) in tile.clone().enumerate() {
                    let g = self.layout.group(c);
                    let (gamma, beta) = params.map_or((1.0, 0.0), |(gamma, beta)| (gamma[c], beta[c]));
                    (tables[0][i], tables[1][i], tables[2][i]) = (mean[g], rstd[g] * gamma, beta);
                }
                forward(self.level, x, y, channels, tile, [&tables[0], &tables[1], &tables[2]]);
            }
        });
    }
}

/// [`crate::graph::op::GroupNormGrad`].
pub struct GroupNormGradKernel {
    /// Sizes.
    pub layout: Layout,
    /// There is `gamma`.
    pub affine: bool,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for GroupNormGradKernel {
    fn scratch_bytes(&self) -> usize {
        // For each sample and channel Σ dy and Σ dy · (x − mean), and for each sample and group the same with gamma.
        let Layout { samples, channels, groups, .. } = self.layout;
        Scratch::size::<f64>(2 * samples * channels) + Scratch::size::<f64>(2 * samples * groups)
    }

    fn run(&self, frame: &Frame<'_>) {
        let Layout { samples, positions, channels, groups } = self.layout;
        let (x, dy) = (frame.input::<f32>(0), frame.input::<f32>(1));
        let (mean, rstd) = (frame.input::<f32>(2), frame.input::<f32>(3));
        let gamma = self.affine.then(|| frame.input::<f32>(4));
        let sample = self.layout.sample();
        let mut scratch = frame.scratch();
        let by_channel = scratch.take::<f64>(2 * samples * channels);
        let by_group = Parts::new(scratch.take::<f64>(2 * samples * groups));
        let dx = Parts::new(frame.output::<f32>(0));
        let sums = Parts::new(by_channel);
        let members = self.layout.members();
        frame.pool().run(samples, |n, _| {
            let r = n * sample..(n + 1) * sample;
            let (mean, rstd) = (&mean[n * groups..], &rstd[n * groups..]);
            // SAFETY: each sample has its own elements and sums.
            let (dx, sums, total) = unsafe {
                (
                    dx.part(r.clone()),
                    sums.part(2 * n * channels..2 * (n + 1) * channels),
                    by_group.part(2 * n * groups..2 * (n + 1) * groups),
                )
            };
            let (x, dy) = (&x[r.clone()], &dy[r]);
            let (dys, xdys) = sums.split_at_mut(channels);
            total.fill(0.0);
            for tile in self.layout.tiles() {
                let mut centre = [0.0f32; TILE];
                for (m, c) in centre.iter_mut().zip(tile.clone()) {
                    *m = mean[self.layout.group(c)];
                }
                let (dys, xdys) = (&mut dys[tile.clone()], &mut xdys[tile.clone()]);
                self.level.run(Dots {
                    f: Identity,
                    x: x.as_ptr(),
                    dy: dy.as_ptr(),
                    width: channels,
                    rows: positions,
                    columns: tile.clone(),
                    mean: &centre,
                    factor: &centre,
                    offset: &[],
                    sums: [dys, xdys],
                });
                for (i, c) in tile.enumerate() {
                    let (g, gamma) = (self.layout.group(c), gamma.map_or(1.0, |g| g[c] as f64));
                    total[2 * g] += gamma * dys[i];
                    total[2 * g + 1] += gamma * xdys[i];
                }
            }
            for tile in self.layout.tiles() {
                let mut tables = [[0.0f32; TILE]; 4];
                for (i, c) in tile.clone().enumerate() {
                    let g = self.layout.group(c);
                    let inv = rstd[g] as f64;
                    tables[0][i] = mean[g];
                    tables[1][i] = rstd[g] * gamma.map_or(1.0, |g| g[c]);
                    tables[2][i] = (inv * total[2 * g] / members) as f32;
                    tables[3][i] = (inv * inv * inv * total[2 * g + 1] / members) as f32;
                }
                backward(self.level, x, dy, dx, channels, tile, [&tables[0], &tables[1], &tables[2], &tables[3]]);
            }
        });
        if self.affine {
            let by_channel = &*by_channel;
            for_chunks(frame.pool(), frame.output::<f32>(1), TILE, |start, dgamma| {
                for (i, d) in dgamma.iter_mut().enumerate() {
                    let (c, g) = (start + i, self.layout.group(start + i));
                    let of = |n: usize| by_channel[(2 * n + 1) * channels + c] * rstd[n * groups + g] as f64;
                    *d = (0..samples).map(of).sum::<f64>() as f32;
                }
            });
            for_chunks(frame.pool(), frame.output::<f32>(2), TILE, |start, dbeta| {
                for (i, d) in dbeta.iter_mut().enumerate() {
                    *d = (0..samples).map(|n| by_channel[2 * n * channels + start + i]).sum::<f64>() as f32;
                }
            });
        }
    }
}
