//! The gradient by the weight: for each position of the kernel the outer products of the pixels that it joins, summed over
//! the batch. Both operands are packed by pixel, so that the images of the batch follow one another; output channels are
//! the rows, and what a tile leaves is already in the weight's layout. Sums stay in registers for many images, and no task
//! has one of its own: this is the way for large weights, however large the images.

use super::Links;
use crate::gemm::pack::{Copy2d, CopyRows};
use crate::gemm::sums::ColumnSums;
use crate::gemm::tile::{Epilogue, Run, Tile, Tiles, for_each_tile};
use crate::gemm::workspace_floats;
use crate::ops::conv::kernel::WeightKernel;
use crate::ops::conv::patches::TASKS;
use crate::ops::conv::shape::ConvProblem;
use crate::ops::conv::winograd;
use crate::run::threads::{Chunks, Parts, Pool, chunks};
use std::ops::Range;

/// Images that are summed up before the result is stored: their pixels, 32 KiB of each, stay close.
const IMAGES: usize = 256;

/// Most pixels of an output and of an input image for which this kernel may be faster than `winograd`.
const FEW_PIXELS: [usize; 2] = [16, 16];

/// The same for problems that `winograd` does not take.
pub const SOME_PIXELS: [usize; 2] = [64, 64];

/// Least elements of a large weight: `grad_weight` has a sum of that size for each task, which no cache holds.
const LARGE: usize = 256 << 10;

/// Least images, and most floats of an operand, for which packing larger images pays off where the weight is [`LARGE`].
const WORTH: [usize; 2] = [2, 8 << 20];

/// Most floats of an operand with far more pixels than the other: few products then share the packing.
const SPARSE: usize = 2 << 20;

/// The gradient by the weight.
pub struct FewPixelsGradWeight {
    links: Links,
    tiles: Tiles,
    images: Chunks,
    /// Panels of input channels of each task.
    inputs: Chunks,
    /// Positions of the kernel of each task, of those that join any pixels.
    taps: Chunks,
    /// Pixels that are joined by any.
    joined: [Vec<bool>; 2],
    bias: ColumnSums,
    /// For every position of the kernel: the pixels that it joins.
    runs: Vec<Vec<Run>>,
    a_rows: Vec<u32>,
    c_rows: Vec<u32>,
}

impl FewPixelsGradWeight {
    /// Lays out the work, if images have few pixels and `winograd` does not multiply less.
    pub fn beside_winograd(problem: &ConvProblem) -> Option<Self> {
        let made = Self::new(problem, FEW_PIXELS)?;
        let its = winograd::weight_products(problem);
        its.is_none_or(|its| made.links.links.len() * made.links.images < its).then_some(made)
    }

    /// Lays out the work, if images have at most `most` output and input pixels: [`SOME_PIXELS`] for problems that `winograd` does
    /// not take; then images may be of any size where the weight is large.
    pub fn new(problem: &ConvProblem, most: [usize; 2]) -> Option<Self> {
        let any = most == SOME_PIXELS && Self::is_worth(problem);
        let links = Links::new(problem, if any { [usize::MAX; 2] } else { most })?;
        let tiles = Tiles::new(problem.level);
        let width = tiles.columns();
        let mut runs = vec![Vec::new(); links.taps];
        let mut joined = [vec![false; links.input_pixels], vec![false; links.output_pixels]];
        for link in &links.links {
            (joined[0][link.input], joined[1][link.output]) = (true, true);
            let run = Run { a: (link.output * links.images * width) as u32, b: (link.input * links.images) as u32 };
            runs[links.used[link.slot]].push(run);
        }
        let panels = links.channels.div_ceil(width);
        let wanted = TASKS.div_ceil(links.outputs.div_ceil(width));
        let inputs = chunks(panels, panels.div_ceil(wanted));
        let wanted = wanted.div_ceil(inputs.count()).max(1);
        Some(FewPixelsGradWeight {
            images: chunks(links.images, IMAGES),
            inputs,
            taps: chunks(links.used.len(), links.used.len().div_ceil(wanted)),
            joined,
            bias: ColumnSums::new(links.images * links.output_pixels, links.outputs, problem.level),
            runs,
            a_rows: (0..width as u32).collect(),
            c_rows: (0..width).map(|o| (o * links.taps * links.channels) as u32).collect(),
            tiles,
            links,
        })
    }

    /// True if images may be of any size, because the sums of `grad_weight` would cost more than packing.
    fn is_worth(problem: &ConvProblem) -> bool {
        let (op, shape) = (problem.op, &problem.shape);
        let (x, dy) = (shape.x_len(), shape.y_len(op));
        let sparse = x / shape.channels.max(1) > 2 * (dy / shape.outputs.max(1));
        let most = if sparse { SPARSE } else { WORTH[1] };
        shape.w_len(op) >= LARGE && shape.images >= WORTH[0] && x.max(dy) <= most
    }

    /// Floats of one operand's panel: `[pixel][image][channel]`.
    fn panel_floats(&self, pixels: usize) -> usize {
        pixels * self.links.images * self.tiles.columns()
    }

    fn x_floats(&self) -> usize {
        self.links.channels.div_ceil(self.tiles.columns()) * self.panel_floats(self.links.input_pixels)
    }

    fn dy_floats(&self) -> usize {
        self.links.outputs.div_ceil(self.tiles.columns()) * self.panel_floats(self.links.output_pixels)
    }

    /// Zeros where a position of the kernel joins no pixels: long stretches, which are written faster than by tiles.
    fn clear(&self, panel: usize, inputs: &Range<usize>, dw: Parts<'_, f32>) {
        let (links, width) = (&self.links, self.tiles.columns());
        let channels = inputs.start * width..(inputs.end * width).min(links.channels);
        for output in panel * width..((panel + 1) * width).min(links.outputs) {
            for tap in (0..links.taps).filter(|&tap| self.runs[tap].is_empty()) {
                let start = (output * links.taps + tap) * links.channels;
                // SAFETY: a block of `dw` belongs to one task.
                unsafe { dw.part(start + channels.start..start + channels.end) }.fill(0.0);
            }
        }
    }

    /// The weights of one position of the kernel, between a panel of output and one of input channels.
    fn block(&self, x: &[f32], dy: &[f32], panel: usize, input: usize, tap: usize, dw: Parts<'_, f32>) {
        let width = self.tiles.columns();
        let links = &self.links;
        let (output, channel) = (panel * width, input * width);
        let (rows, n) = ((links.outputs - output).min(width), (links.channels - channel).min(width));
        let c = dw.as_ptr().wrapping_add((output * links.taps + tap) * links.channels + channel);
        for part in 0..self.images.count() {
            let images = self.images.range(part);
            for_each_tile(rows, self.tiles.rows, |first, rows| {
                let tile = Tile {
                    a: dy[panel * self.panel_floats(links.output_pixels) + images.start * width..].as_ptr(),
                    a_rows: &self.a_rows[first..],
                    a_step: width,
                    b: x[input * self.panel_floats(links.input_pixels) + images.start * width..].as_ptr(),
                    b_step: width,
                    b_far: false,
                    runs: &self.runs[tap],
                    run_len: images.len(),
                    c,
                    c_rows: &self.c_rows[first..],
                    n,
                    accumulate: part > 0,
                    epilogue: Epilogue::NONE,
                };
                // SAFETY: runs lie inside the packed panels, which are whole; blocks of `dw` belong to one task.
                unsafe { self.tiles.run(rows, &tile) };
            });
        }
    }

    /// Packs those pixels of `[image][pixel][channel]` that are `joined` to `[panel][pixel][image][channel]`.
    fn pack(&self, pool: &Pool, from: &[f32], joined: &[bool], channels: usize, packed: &mut [f32]) {
        let (width, images, pixels) = (self.tiles.columns(), self.links.images, joined.len());
        let packed = Parts::new(packed);
        let copy = self.tiles.level.routine::<CopyRows>();
        pool.run(channels.div_ceil(width) * pixels, |task, _| {
            let (channel, pixel) = (task / pixels * width, task % pixels);
            if !joined[pixel] {
                return;
            }
            // SAFETY: a pixel of a panel belongs to one task.
            let to = unsafe { packed.part(task * images * width..(task + 1) * images * width) };
            let c = Copy2d {
                from: from[pixel * channels + channel..].as_ptr(),
                from_step: pixels * channels,
                to: to.as_mut_ptr(),
                to_step: width,
                rows: images,
                columns: (channels - channel).min(width),
                padded: width,
            };
            // SAFETY: every image has this pixel, and `to` has room for all.
            unsafe { copy(c) };
        });
    }
}

impl WeightKernel for FewPixelsGradWeight {
    fn workspace_bytes(&self) -> usize {
        ((self.x_floats() + self.dy_floats()) * 4).max(self.bias.workspace_bytes())
    }

    fn run(&self, pool: &Pool, x: &[f32], dy: &[f32], dw: &mut [f32], db: Option<&mut [f32]>, workspace: &mut [u8]) {
        if let Some(db) = db {
            self.bias.run(pool, dy, db, workspace);
        }
        let floats = workspace_floats(workspace, self.x_floats() + self.dy_floats());
        let (packed_x, packed_dy) = floats.split_at_mut(self.x_floats());
        self.pack(pool, x, &self.joined[0], self.links.channels, packed_x);
        self.pack(pool, dy, &self.joined[1], self.links.outputs, packed_dy);
        let (packed_x, packed_dy, dw) = (&*packed_x, &*packed_dy, Parts::new(dw));
        let panels = self.links.outputs.div_ceil(self.tiles.columns());
        // Without a link there is nothing but zeros to write.
        let (inputs, taps) = (self.inputs.count(), self.taps.count().max(1));
        pool.run(panels * inputs * taps, |task, _| {
            let (block, part) = (task / taps, task % taps);
            let (panel, inputs) = (block / inputs, self.inputs.range(block % inputs));
            if part == 0 {
                self.clear(panel, &inputs, dw);
            }
            for input in inputs {
                for &tap in &self.links.used[self.taps.range(part)] {
                    self.block(packed_x, packed_dy, panel, input, tap, dw);
                }
            }
        });
    }
}
