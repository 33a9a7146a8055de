//! Rotary positions.

use crate::graph::Shape;
use crate::graph::op::Rotary;
use crate::run::frame::{Frame, NodeKernel};
use crate::run::parallel::rows_per_chunk;
use crate::run::threads::chunks;
use crate::simd::{Kernel, Simd, SimdLevel};

/// [`Rotary`].
pub struct RotaryKernel {
    /// Heads that are turned.
    turned: usize,
    /// Floats of a head, and of a position.
    width: usize,
    packed: usize,
    /// Positions of a sample.
    length: usize,
    position: bool,
    back: bool,
    level: SimdLevel,
}

/// Turns the heads of a position: `x` and `y` are equal or apart.
struct Turn<'a> {
    x: *const f32,
    y: *mut f32,
    heads: usize,
    width: usize,
    /// Cosines and sines.
    angles: &'a [f32],
    back: bool,
}

/// `n` floats from `x` on.
///
/// # Safety
/// They are there, and at most a vector.
#[inline(always)]
unsafe fn load<S: Simd>(s: S, x: *const f32, n: usize) -> S::V {
    // SAFETY: the caller's promise.
    unsafe { if n < S::LANES { s.load_part(x, n) } else { s.load(x) } }
}

/// Writes `n` floats to `y`.
///
/// # Safety
/// As [`load`].
#[inline(always)]
unsafe fn store<S: Simd>(s: S, y: *mut f32, v: S::V, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { if n < S::LANES { s.store_part(y, v, n) } else { s.store(y, v) } }
}

impl Kernel for Turn<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let half = self.width / 2;
        let (cosines, sines) = self.angles.split_at(half);
        assert_eq!(sines.len(), half);
        for h in 0..self.heads {
            let at = h * self.width;
            for k in (0..half).step_by(S::LANES) {
                let n = (half - k).min(S::LANES);
                // SAFETY: the pointers come from views that hold the position; both halves are read before they are written.
                unsafe {
                    let (cos, sin) = (load(s, cosines.as_ptr().add(k), n), load(s, sines.as_ptr().add(k), n));
                    let sin = if self.back { s.neg(sin) } else { sin };
                    let (a, b) = (load(s, self.x.add(at + k), n), load(s, self.x.add(at + half + k), n));
                    store(s, self.y.add(at + k), s.sub(s.mul(a, cos), s.mul(b, sin)), n);
                    store(s, self.y.add(at + half + k), s.add(s.mul(b, cos), s.mul(a, sin)), n);
                }
            }
        }
    }
}

impl RotaryKernel {
    /// For an operand of shape `x`.
    pub fn new(op: &Rotary, x: &Shape, level: SimdLevel) -> Self {
        let (length, packed) = (x.dims()[1], x.dims()[2]);
        let width = packed / (op.heads + 2 * op.kv_heads);
        let turned = op.heads + op.kv_heads;
        RotaryKernel { turned, width, packed, length, position: op.position, back: op.back, level }
    }
}

impl NodeKernel for RotaryKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (x, y, table) = (frame.source::<f32>(0), frame.target::<f32>(0), frame.input::<f32>(1));
        let positions = if self.position { frame.input::<i32>(2) } else { &[] };
        let (width, packed, turned) = (self.width, self.packed, self.turned * self.width);
        let rows = chunks(y.len() / packed, rows_per_chunk(packed));
        frame.pool().run(rows.count(), |task, _| {
            for row in rows.range(task) {
                let at = row * packed..(row + 1) * packed;
                let (x, y) = (x.range(at.clone()).cast_const(), y.range(at));
                let first = positions.get(row / self.length).map_or(0, |first| i64::from(*first));
                let position = usize::try_from(first + (row % self.length) as i64).ok();
                let angles = position.and_then(|p| table.get(p * width..(p + 1) * width));
                match angles {
                    Some(angles) => {
                        self.level.run(Turn { x, y, heads: self.turned, width, angles, back: self.back });
                    }
                    // SAFETY: the view holds the position, which is this task's own.
                    None => unsafe { std::slice::from_raw_parts_mut(y, turned) }.fill(f32::NAN),
                }
                if !std::ptr::eq(x, y) {
                    // SAFETY: as above; the two are the same or apart.
                    unsafe { y.add(turned).copy_from_nonoverlapping(x.add(turned), packed - turned) };
                }
            }
        });
    }
}
