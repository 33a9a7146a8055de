//! The gradient by the weight: sums of products of `dy` and patches, tap by tap.

use super::super::kernel::{PreparedWeightKernel, WeightKernel};
use super::super::operands::PixelSource;
use super::super::patches::{Cut, PatchPart, Patches, TASKS};
use super::super::shape::ConvProblem;
use crate::gemm::prologue::Source;
use crate::gemm::{round_up, workspace_floats};
use crate::run::per_thread::PerThread;
use crate::run::threads::{Parts, Pool, chunks};
use crate::simd::{Kernel, Simd, SimdLevel};

/// Taps whose accumulators stay in registers in the gradient by the weight.
const TAPS: usize = 9;

/// The gradient by the weight.
pub struct DepthwiseGradWeight {
    patches: Patches,
    channels: usize,
    taps: usize,
    output: [usize; 2],
    /// Pieces of the batch, each with its own sum, and parts in each.
    pieces: usize,
    piece: usize,
    level: SimdLevel,
    threads: usize,
}

impl DepthwiseGradWeight {
    /// Lays out the work, if the convolution is depthwise.
    pub fn new(problem: &ConvProblem) -> Option<Self> {
        if !problem.is_depthwise() {
            return None;
        }
        let channels = problem.shape.channels;
        let patches = Patches::forward(problem, channels, round_up(channels), Cut::PLAIN);
        let piece = patches.parts().div_ceil(TASKS).max(1);
        Some(DepthwiseGradWeight {
            channels,
            taps: problem.taps(),
            output: problem.output(),
            pieces: patches.parts().div_ceil(piece),
            piece,
            level: problem.level,
            threads: problem.threads,
            patches,
        })
    }

    fn buffer_floats(&self) -> usize {
        round_up(self.patches.buffer_floats())
    }

    /// Floats of a piece's sums: `[tap][channel]`, and one more row for the bias.
    fn sums_floats(&self) -> usize {
        (self.taps + 1) * round_up(self.channels)
    }

    fn workspace_floats(&self) -> usize {
        self.pieces * self.sums_floats() + PerThread::size(self.threads, self.buffer_floats())
    }

    /// The part's rows of `dy`, which follow one another.
    fn dy_of<'a>(&self, dy: &'a [f32], part: &PatchPart) -> &'a [f32] {
        let row = self.output[1] * self.channels;
        let start = (part.images.start * self.output[0] + part.rows.start) * row;
        &dy[start..start + part.images.len() * part.rows.len() * row]
    }
}

impl WeightKernel for DepthwiseGradWeight {
    fn workspace_bytes(&self) -> usize {
        self.workspace_floats() * 4
    }

    fn run(&self, pool: &Pool, x: &[f32], dy: &[f32], dw: &mut [f32], db: Option<&mut [f32]>, workspace: &mut [u8]) {
        self.run_prepared(pool, x.into(), dy, dw, db, workspace);
    }
}

impl PreparedWeightKernel for DepthwiseGradWeight {
    fn run_prepared(
        &self,
        pool: &Pool,
        x: Source,
        dy: &[f32],
        dw: &mut [f32],
        db: Option<&mut [f32]>,
        workspace: &mut [u8],
    ) {
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        let width = round_up(self.channels);
        let floats = workspace_floats(workspace, self.workspace_floats());
        let (sums, buffers) = floats.split_at_mut(self.pieces * self.sums_floats());
        let parts = Parts::new(&mut *sums);
        let buffers = PerThread::new(Parts::new(buffers), self.buffer_floats());
        pool.run(self.pieces, |piece, worker| {
            // SAFETY: a worker has its own buffer, and a piece its own sums.
            let (buffer, sums) = unsafe {
                let sums = parts.part(piece * self.sums_floats()..(piece + 1) * self.sums_floats());
                (buffers.of(worker), sums)
            };
            sums.fill(0.0);
            for index in piece * self.piece..((piece + 1) * self.piece).min(self.patches.parts()) {
                let part = self.patches.part(index);
                self.patches.fill(&part, 0, PixelSource::Plain(x), buffer, self.level);
                self.level.run(OuterSums { kernel: self, part: &part, dy: self.dy_of(dy, &part), buffer, sums });
            }
        });
        // Few enough for one thread: a sum for every weight and piece.
        let mut totals = dw.chunks_exact_mut(self.taps).enumerate();
        totals.by_ref().for_each(|(c, taps)| {
            for (tap, total) in taps.iter_mut().enumerate() {
                *total = sums.chunks(self.sums_floats().max(1)).map(|sums| sums[tap * width + c]).sum();
            }
        });
        if let Some(db) = db {
            for (c, total) in db.iter_mut().enumerate() {
                *total = sums.chunks(self.sums_floats().max(1)).map(|sums| sums[self.taps * width + c]).sum();
            }
        }
    }
}

/// Adds a part's products of `dy` and patches to the sums.
struct OuterSums<'a> {
    kernel: &'a DepthwiseGradWeight,
    part: &'a PatchPart,
    dy: &'a [f32],
    buffer: &'a [f32],
    sums: &'a mut [f32],
}

impl Kernel for OuterSums<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (channels, width) = (self.kernel.channels, round_up(self.kernel.channels));
        let class = &self.kernel.patches.classes[0];
        let a_rows = &class.a_rows[self.kernel.patches.pixels(class, self.part)];
        debug_assert_eq!(a_rows.len() * channels, self.dy.len());
        for channel in (0..channels).step_by(S::LANES) {
            let left = channels - channel;
            for taps in chunks_of(self.kernel.taps) {
                // SAFETY: patches lie inside the buffer, padded to whole vectors like the sums; `dy` has a pixel for
                // every row of the table.
                unsafe {
                    let mut offsets = [0; TAPS];
                    for (offset, &tap) in offsets.iter_mut().zip(&class.offsets[taps.clone()]) {
                        *offset = tap as usize + channel;
                    }
                    let mut acc = [s.zero(); TAPS];
                    let mut bias = s.zero();
                    for (pixel, &a) in a_rows.iter().enumerate() {
                        let dy = self.dy.as_ptr().add(pixel * channels + channel);
                        let dy = if left >= S::LANES { s.load(dy) } else { s.load_part(dy, left) };
                        let patch = self.buffer.as_ptr().add(a as usize);
                        bias = s.add(bias, dy);
                        // Taps that a short chunk lacks repeat the pixel's own place; their sums are not stored.
                        for t in 0..TAPS {
                            acc[t] = s.fma(s.load(patch.add(offsets[t])), dy, acc[t]);
                        }
                    }
                    let first = taps.start == 0;
                    for (tap, sum) in taps.zip(acc).chain(first.then_some((self.kernel.taps, bias))) {
                        let to = self.sums.as_mut_ptr().add(tap * width + channel);
                        s.store(to, s.add(s.load(to), sum));
                    }
                }
            }
        }
    }
}

fn chunks_of(taps: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let pieces = chunks(taps, TAPS);
    (0..pieces.count()).map(move |i| pieces.range(i))
}
