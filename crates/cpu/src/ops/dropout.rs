//! Dropout, forward and backward alike.

use crate::graph::op;
use crate::random::{dropout_draws, dropout_threshold};
use crate::run::frame::{Frame, NodeKernel};
use crate::run::parallel::CHUNK;
use crate::run::threads::chunks;
use crate::simd::{Kernel, Simd, SimdLevel};

/// Counters that are turned into draws side by side.
const WIDE: usize = 16;

/// [`op::Dropout`].
pub struct DropoutKernel {
    /// Probability and stream.
    pub op: op::Dropout,
    /// Instructions.
    pub level: SimdLevel,
}

/// What a layer's draws depend on in this step.
#[derive(Clone, Copy)]
pub struct Draws {
    stream: u32,
    random: [u32; 4],
    threshold: u32,
    scale: f32,
}

impl Draws {
    /// Those of `op` with the step's key.
    pub fn new(op: &op::Dropout, key: &[u32]) -> Draws {
        let random = [key[0], key[1], key[2], key[3]];
        Draws { stream: op.stream, random, threshold: dropout_threshold(op.p), scale: 1.0 / (1.0 - op.p) }
    }
}

/// `y[i] = x[i] · mask[i]` for `n` elements, the first of which is number `first` of the layer's.
struct Masked {
    x: *const f32,
    y: *mut f32,
    n: usize,
    first: usize,
    draws: Draws,
}

/// `y[i] = x[i] · mask[i]` for `n` elements, the first of which is number `first` (a multiple of 4) of the layer's.
///
/// # Safety
/// Both are valid for `n` elements and are the same memory or do not overlap.
pub unsafe fn mask(level: SimdLevel, draws: Draws, first: usize, x: *const f32, y: *mut f32, n: usize) {
    debug_assert!(first.is_multiple_of(4), "draws come in fours");
    level.run(Masked { x, y, n, first, draws });
}

impl Kernel for Masked {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Draws { stream, random, threshold, scale } = self.draws;
        for start in (0..self.n).step_by(4 * WIDE) {
            // Word by word, so that the compiler can do all counters at once.
            let mut words = [[0u32; WIDE]; 4];
            let [w0, w1, w2, w3] = &mut words;
            for j in 0..WIDE {
                let draws = dropout_draws(random, stream, ((self.first + start) / 4 + j) as u64);
                (w0[j], w1[j], w2[j], w3[j]) = (draws[0], draws[1], draws[2], draws[3]);
            }
            let mut mask = [0.0f32; 4 * WIDE];
            for (j, m) in mask.chunks_exact_mut(4).enumerate() {
                for (m, w) in m.iter_mut().zip(&words) {
                    *m = if w[j] >= threshold { scale } else { 0.0 };
                }
            }
            for (i, m) in mask.iter().enumerate().take((self.n - start).min(4 * WIDE)) {
                // SAFETY: the pointers come from views that hold `n` elements from there.
                unsafe { *self.y.add(start + i) = *self.x.add(start + i) * m };
            }
        }
    }
}

impl NodeKernel for DropoutKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (x, y) = (frame.source::<f32>(0), frame.target::<f32>(0));
        let draws = Draws::new(&self.op, frame.input::<u32>(1));
        let pieces = chunks(y.len(), CHUNK);
        frame.pool().run(pieces.count(), |task, _| {
            let r = pieces.range(task);
            let (x, y) = (x.range(r.clone()).cast_const(), y.range(r.clone()));
            // SAFETY: `range` checks the bounds; by the operation's rule the two are the same or apart.
            unsafe { mask(self.level, draws, r.start, x, y, r.len()) };
        });
    }
}
