//! Activations and their gradients of what a product has just written, while it is in the cache.

use super::activation::{Function, with_activation};
use super::elementwise::{Map, MapGrad};
use crate::gemm::tile::{Finish, Rows};
use crate::graph::op::Activation;
use crate::simd::{Kernel, Simd, SimdLevel};

/// [`Map`] in place, row by row.
struct MapRows<F> {
    f: F,
    rows: Rows,
}

impl<F: Function> Kernel for MapRows<F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Rows { first, rows, columns, step } = self.rows;
        for r in 0..rows {
            let y = first.wrapping_add(r * step);
            Map { f: self.f, x: y, y, n: columns }.run(s);
        }
    }
}

/// An activation, to be applied to results in place.
#[derive(Debug, Clone, Copy)]
pub struct ActivationFinish {
    /// Instructions.
    pub level: SimdLevel,
    /// The activation.
    pub act: Activation,
}

impl Finish for ActivationFinish {
    unsafe fn run(&self, rows: Rows) {
        with_activation!(Some(self.act), f => self.level.run(MapRows { f, rows }));
    }
}

/// [`MapGrad`] in place, row by row. `saved` is the first row's; its rows are as far apart as those of the result.
struct MapGradRows<F> {
    f: F,
    saved: *const f32,
    rows: Rows,
}

impl<F: Function> Kernel for MapGradRows<F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Rows { first, rows, columns, step } = self.rows;
        for r in 0..rows {
            let (dx, saved) = (first.wrapping_add(r * step), self.saved.wrapping_add(r * step));
            MapGrad { f: self.f, saved, dy: dx, dx, n: columns }.run(s);
        }
    }
}

/// The gradient of an activation, to be applied in place to the gradients by its result.
#[derive(Debug, Clone, Copy)]
pub struct ActivationGradFinish<'a> {
    /// Instructions.
    pub level: SimdLevel,
    /// The activation.
    pub act: Activation,
    /// What it saved, laid out like the whole result.
    pub saved: &'a [f32],
    /// The address of the whole result.
    pub of: usize,
}

impl Finish for ActivationGradFinish<'_> {
    unsafe fn run(&self, rows: Rows) {
        let first = (rows.first.addr() - self.of) / size_of::<f32>();
        let last = first + rows.rows.saturating_sub(1) * rows.step + rows.columns;
        let saved = self.saved[first..last].as_ptr();
        with_activation!(Some(self.act), f => self.level.run(MapGradRows { f, saved, rows }));
    }
}
