//! The convolution and its gradient by the input.

use super::Links;
use crate::gemm::memory::{MOST_ROWS, Memory, kept_weights};
use crate::gemm::pack::{Copy2d, CopyRows, PackTransposed, Panel};
use crate::gemm::tile::{Epilogue, EpilogueOperands, Rows, Run, Tile, Tiles, for_each_tile};
use crate::gemm::{ALIGN, round_up};
use crate::graph::op::Activation;
use crate::ops::conv::kernel::PixelKernel;
use crate::ops::conv::patches::TASKS;
use crate::ops::conv::shape::{ConvProblem, Direction};
use crate::plan::Kept;
use crate::run::threads::{Chunks, Parts, Pool, chunks};

/// Most images of a task, so that their pixels stay in L2.
const MOST_IMAGES: usize = 128;

/// Least images of a task, if the batch has as many: with fewer, the weights are read too often.
const LEAST_IMAGES: usize = 28;

/// The convolution or its gradient by the input.
pub struct FewPixels {
    direction: Direction,
    links: Links,
    tiles: Tiles,
    act: Option<Activation>,
    /// Channels and pixels of an image, read and written.
    from: usize,
    to: usize,
    source_pixels: usize,
    dest_pixels: usize,
    /// The images of each task.
    pieces: Chunks,
    /// For every pixel written: what it reads.
    runs: Vec<Vec<Run>>,
    a_rows: Vec<u32>,
    c_rows: Vec<u32>,
}

impl FewPixels {
    /// Lays out the work, if the problem suits this kernel.
    pub fn new(problem: &ConvProblem, direction: Direction, act: Option<Activation>) -> Option<Self> {
        let links = Links::of_pixels(problem, direction)?;
        let tiles = Tiles::new(problem.level);
        let inputs = (links.channels, links.input_pixels);
        let outputs = (links.outputs, links.output_pixels);
        let ((from, source_pixels), (to, dest_pixels)) = match direction {
            Direction::Forward => (inputs, outputs),
            Direction::Backward => (outputs, inputs),
        };
        let mut runs = vec![Vec::new(); dest_pixels];
        for link in &links.links {
            let (source, dest) = match direction {
                Direction::Forward => (link.input, link.output),
                Direction::Backward => (link.output, link.input),
            };
            runs[dest].push(Run { a: (source * from) as u32, b: (link.slot * from) as u32 });
        }
        let wanted = TASKS.div_ceil(to.div_ceil(tiles.columns()));
        let piece = links.images.div_ceil(wanted).clamp(LEAST_IMAGES, MOST_IMAGES);
        let pieces = chunks(links.images, piece);
        let rows = |step: usize| (0..piece).map(|image| (image * step) as u32).collect();
        Some(FewPixels {
            direction,
            tiles,
            act,
            from,
            to,
            source_pixels,
            dest_pixels,
            pieces,
            runs,
            a_rows: rows(Self::image_step(source_pixels * from)),
            c_rows: rows(dest_pixels * to),
            links,
        })
    }

    /// Floats from one image to the next in the copy of the source. Images a multiple of 4 KiB apart would push each other
    /// out of L1, where all rows of a tile are read side by side.
    fn image_step(floats: usize) -> usize {
        round_up(floats) + ALIGN / 4
    }

    fn panels(&self) -> usize {
        self.to.div_ceil(self.tiles.columns())
    }

    fn panel_floats(&self) -> usize {
        self.links.used.len() * self.from * self.tiles.columns()
    }

    fn source_floats(&self) -> usize {
        self.links.images * Self::image_step(self.source_pixels * self.from)
    }

    fn packed_floats(&self) -> usize {
        self.panels() * self.panel_floats()
    }

    fn workspace_floats(&self) -> usize {
        self.packed_floats() + self.source_floats()
    }

    /// Copies the images of the source further apart.
    fn copy_source(&self, pool: &Pool, source: &[f32], copied: &mut [f32]) {
        let (len, step) = (self.source_pixels * self.from, Self::image_step(self.source_pixels * self.from));
        let copied = Parts::new(copied);
        let images = chunks(self.links.images, self.links.images.div_ceil(TASKS));
        pool.run(images.count(), |task, _| {
            for image in images.range(task) {
                // SAFETY: each image is copied by one task.
                let to = unsafe { copied.part(image * step..image * step + len) };
                to.copy_from_slice(&source[image * len..(image + 1) * len]);
            }
        });
    }

    /// Packs the weights that are used: `[panel][slot][channel read][channel written]`.
    fn pack(&self, pool: &Pool, w: &[f32], packed: &mut [f32]) {
        let (width, inputs) = (self.tiles.columns(), self.links.channels);
        let packed = Parts::new(packed);
        let copy = self.tiles.level.routine::<CopyRows>();
        let transpose = self.tiles.level.routine::<PackTransposed>();
        let step = self.links.taps * inputs;
        let slots = self.links.used.len();
        pool.run(self.panels() * slots, |task, _| {
            let (channel, tap) = (task / slots * width, self.links.used[task % slots]);
            let columns = (self.to - channel).min(width);
            // SAFETY: a slot of a panel belongs to one task.
            let to = unsafe { packed.part(task * self.from * width..(task + 1) * self.from * width) };
            let to = to.as_mut_ptr();
            match self.direction {
                Direction::Forward => {
                    let from = w[channel * step + tap * inputs..].as_ptr();
                    let panel = Panel { from, strides: [1, step], rows: inputs, columns, to, width };
                    // SAFETY: `w [O, taps, I]` has these weights, and `to` has room for them.
                    unsafe { transpose(panel) };
                }
                Direction::Backward => {
                    let from = w[tap * inputs + channel..].as_ptr();
                    let rows = self.from;
                    // SAFETY: as above.
                    unsafe { copy(Copy2d { from, from_step: step, to, to_step: width, rows, columns, padded: width }) };
                }
            }
        });
    }
}

impl PixelKernel for FewPixels {
    fn workspace_bytes(&self) -> usize {
        self.workspace_floats() * 4
    }

    fn act(&self) -> Option<Activation> {
        self.act
    }

    fn finishes(&self) -> bool {
        true
    }

    fn kept(&self) -> Option<Kept> {
        let packed = self.packed_floats();
        kept_weights(self.links.images * self.dest_pixels, packed, self.workspace_floats() - packed)
    }

    fn run(
        &self,
        pool: &Pool,
        source: &[f32],
        w: &[f32],
        operands: EpilogueOperands,
        dest: &mut [f32],
        memory: Memory,
    ) {
        let (packed, copied, to_pack) = memory.split(self.packed_floats(), self.source_floats());
        self.copy_source(pool, source, copied);
        if to_pack {
            self.pack(pool, w, packed);
        }
        let (packed, copied, dest) = (&*packed, &*copied, Parts::new(dest));
        pool.run(self.pieces.count() * self.panels(), |task, _| {
            let (piece, panel) = (task / self.panels(), task % self.panels());
            let width = self.tiles.columns();
            let images = self.pieces.range(piece);
            let channel = panel * width;
            for (pixel, runs) in self.runs.iter().enumerate() {
                let start = (images.start * self.dest_pixels + pixel) * self.to + channel;
                for_each_tile(images.len(), self.tiles.rows, |first, rows| {
                    let tile = Tile {
                        a: copied[images.start * Self::image_step(self.source_pixels * self.from)..].as_ptr(),
                        a_rows: &self.a_rows[first..],
                        a_step: 1,
                        b: packed[panel * self.panel_floats()..].as_ptr(),
                        b_step: width,
                        b_far: self.links.images * self.dest_pixels <= MOST_ROWS,
                        runs,
                        run_len: self.from,
                        c: dest.as_ptr().wrapping_add(start),
                        c_rows: &self.c_rows[first..],
                        n: (self.to - channel).min(width),
                        accumulate: false,
                        epilogue: Epilogue::of(self.act).with(operands, channel, dest.as_ptr()),
                    };
                    // SAFETY: links lie inside the images and the packed weights, whose panels are whole; a task has its
                    // own images and channels of `dest`.
                    unsafe { self.tiles.run(rows, &tile) };
                });
                if let Some(finish) = operands.finish {
                    let (columns, step) = ((self.to - channel).min(width), self.dest_pixels * self.to);
                    let rows = Rows { first: dest.as_ptr().wrapping_add(start), rows: images.len(), columns, step };
                    // SAFETY: as above.
                    unsafe { finish.run(rows) };
                }
            }
        });
    }
}
