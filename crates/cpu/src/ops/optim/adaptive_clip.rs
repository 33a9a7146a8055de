//! Adaptive clipping of gradients.

use super::gradient_scale;
use crate::graph::op::AdaptiveClip;
use crate::ops::reduce_rows::{Dot, sum};
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::{rows_per_chunk, vectorised};
use crate::run::threads::chunks;
use crate::simd::SimdLevel;

/// [`AdaptiveClip`].
pub struct AdaptiveClipKernel {
    /// The operation.
    pub op: AdaptiveClip,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for AdaptiveClipKernel {
    fn scratch_bytes(&self) -> usize {
        let [before, units, _] = self.op.units;
        // Sums of squares, where a unit is in several places.
        if before > 1 { Scratch::size::<f64>(2 * units) } else { 0 }
    }

    fn run(&self, frame: &Frame<'_>) {
        let [before, units, after] = self.op.units;
        let scale = if self.op.scaled { frame.input::<f32>(1)[0] } else { 1.0 };
        let scale = f64::from(gradient_scale(frame.input::<f32>(0)) / scale).abs();
        let (from, to) = (frame.source::<f32>(self.op.gradient()), frame.target::<f32>(0));
        let parameter = frame.input::<f32>(self.op.gradient() + 1);
        let place = |row: usize| row * after..(row + 1) * after;
        let squares_of = |row: usize| {
            // SAFETY: inside the operand; the result, which may have its memory, is written when this slice is gone.
            let g = unsafe { std::slice::from_raw_parts(from.range(place(row)), after) };
            squares(self.level, g, &parameter[place(row)])
        };
        let factor = |[g, p]: [f64; 2]| self.op.scale(g.sqrt() * scale, p.sqrt()) as f32;
        let scaled = |row: usize, factor: f32| {
            let (from, to) = (from.range(place(row)), to.range(place(row)));
            for i in 0..after {
                // SAFETY: inside both; rows are apart, and an element is read before its place is written.
                unsafe { to.add(i).write(from.add(i).read() * factor) };
            }
        };
        if before == 1 {
            let tasks = chunks(units, rows_per_chunk(after));
            frame.pool().run(tasks.count(), |task, _| {
                tasks.range(task).for_each(|row| scaled(row, factor(squares_of(row))));
            });
            return;
        }
        // Tables whose rows lie across: they are small.
        let mut scratch = frame.scratch();
        let sums = scratch.take::<f64>(2 * units);
        sums.fill(0.0);
        for row in 0..before * units {
            let own = &mut sums[2 * (row % units)..][..2];
            own.iter_mut().zip(squares_of(row)).for_each(|(sum, square)| *sum += square);
        }
        for row in 0..before * units {
            let unit = 2 * (row % units);
            scaled(row, factor([sums[unit], sums[unit + 1]]));
        }
    }
}

vectorised! {
    fn squares<'a, S>(s, g: &'a [f32], p: &'a [f32]) -> [f64; 2] {
        [sum(s, g.len(), Dot(g, g)), sum(s, p.len(), Dot(p, p))]
    }
}
