//! Strips of images rounded to bf16, laid out so that the taps of a patch are fixed distances from its pixel, and pixels side by
//! side are rows of a tile.
//!
//! Positions of a strip are numbered row by row. The padding right of a row is the padding left of the next, if there is no stride, and the
//! padding below an image that above the next. With a stride the positions are taken apart by their place modulo the
//! stride, into *phases*: within one, pixels that are side by side in the result are side by side again. So any 16 positions
//! that follow one another are a tile's rows; results at positions that are no pixels are not stored.
//!
//! Of few channels, whole patches are copied instead, one after the other (`gathers`).

use super::super::patches::{AxisPlan, PatchPart, Patches};
use super::super::shape::{ConvProblem, Direction};
use crate::gemm::bf16::pack::{Packer, RoundRows};
use crate::gemm::bf16::{PANEL, STEP, last_terms, steps};
use crate::gemm::numbers::Numbers;
use crate::run::threads::TASKS_PER_THREAD;
use std::ops::Range;

/// Most bytes of a strip: a fourth of a second-level cache.
const STRIP_BYTES: usize = 512 << 10;

/// Least positions of a part, unless the batch is too small: so many share what is read of the weights.
const LEAST_POSITIONS: usize = 8 * PANEL;

/// Weights that do not stay in a second-level cache, so that each part reads them from beyond it.
const MANY_WEIGHTS: usize = 512 << 10;

/// Fewer channels than this are gathered into whole patches.
const FEW_CHANNELS: usize = 16;

/// Pixels of the destination that meet the same taps.
pub struct Class {
    /// Kernel positions `row · width + column`, in the order of the sum.
    pub taps: Vec<usize>,
    /// Where each stretch of the sum lies from a pixel's position: bytes.
    pub runs: Vec<u32>,
    /// Rows of positions that are its pixels.
    rows: Range<usize>,
    /// Columns, from the strip's first.
    columns: Range<usize>,
    first: [isize; 2],
    steps: [usize; 2],
}

/// The layout.
pub struct Strips {
    /// The classes of pixels.
    pub classes: Vec<Class>,
    images: usize,
    source: [usize; 2],
    channels: usize,
    dest: [usize; 2],
    dest_channels: usize,
    axes: [AxisPlan; 2],
    /// Patches are gathered: the sum is one stretch.
    pub gathers: bool,
    kernel: [usize; 2],
    /// Numbers of a position, of which the first are its channels or its patch.
    width: usize,
    /// Steps of a stretch of the sum.
    pub run_steps: usize,
    /// Terms of a stretch's last step.
    pub run_last: usize,
    /// Phases that taps read, and the number of each phase among them.
    phases: Vec<[usize; 2]>,
    /// Positions from row to row; rows from image to image.
    row: usize,
    /// Rows of a strip, strips of an image, images of a group and groups.
    strip: usize,
    strips: usize,
    group: usize,
    groups: usize,
}

/// Positions of one row, or rows of one image, of `count` along an axis without a stride, where the padding after them is that before the
/// next: as many as there are up to the end of what is no padding, and so many that the padding before the next suffices.
fn shared_length(axis: &AxisPlan, count: usize, source: usize) -> usize {
    let padded = count + axis.reach;
    let before = axis.origin.saturating_sub(axis.range.start);
    let end = (source + axis.origin).saturating_sub(axis.range.start).min(padded);
    count.max(padded - before.min(padded)).max(end)
}

/// Whether whole patches are copied, to make pixels.
pub fn gathers(problem: &ConvProblem, direction: Direction) -> bool {
    direction == Direction::Forward && problem.shape.channels < FEW_CHANNELS && problem.op.dilation == [1, 1]
}

impl Strips {
    /// Of `problem`, for kernels of pixels, in parts for its threads.
    pub fn new(problem: &ConvProblem, direction: Direction) -> Strips {
        let mut strips = Strips::undivided(problem, direction, true);
        let many = problem.taps() * problem.shape.channels * problem.shape.outputs > MANY_WEIGHTS;
        let per_thread = if many { 2 } else { TASKS_PER_THREAD };
        let wanted = if problem.threads > 1 { problem.threads * per_thread } else { 1 };
        let most = STRIP_BYTES / (2 * strips.phases.len().max(1) * strips.width);
        strips.divide(wanted, LEAST_POSITIONS, most);
        strips
    }

    /// The convolution of `problem` for the gradient by its weight, in parts of at most so many positions, if that is
    /// possible. They depend on the shape alone.
    pub fn for_weight(problem: &ConvProblem, parts: usize, most: usize) -> Strips {
        let mut strips = Strips::undivided(problem, Direction::Forward, false);
        strips.divide(parts, LEAST_POSITIONS, most);
        strips
    }

    fn undivided(problem: &ConvProblem, direction: Direction, may_gather: bool) -> Strips {
        let shape = &problem.shape;
        let axes = Patches::axes(problem, direction);
        let (source, channels, dest, dest_channels) = match direction {
            Direction::Forward => (shape.input, shape.channels, problem.output(), shape.outputs),
            Direction::Backward => (problem.output(), shape.outputs, shape.input, shape.channels),
        };
        let gathers = may_gather && gathers(problem, direction);
        let numbers = if gathers { problem.taps() * channels } else { channels };
        let run_steps = steps(numbers);
        // A tile's rows that are a multiple of 512 bytes apart lie in the same few sets of the cache.
        let width = (run_steps + usize::from(run_steps.is_multiple_of(8))) * STEP;
        let row = if gathers {
            axes[1].range.len()
        } else if axes[1].step == 1 {
            shared_length(&axes[1], axes[1].range.len(), source[1])
        } else {
            axes[1].range.len() + axes[1].reach / axes[1].step
        };
        let mut strips = Strips {
            classes: Vec::new(),
            images: shape.images,
            source,
            channels,
            dest,
            dest_channels,
            gathers,
            kernel: shape.kernel,
            width,
            run_steps,
            run_last: last_terms(numbers),
            phases: Vec::new(),
            row: row.max(1),
            strip: 1,
            strips: 1,
            group: 1,
            groups: shape.images,
            axes,
        };
        strips.find_phases();
        strips
    }

    fn find_phases(&mut self) {
        if self.gathers {
            self.phases = vec![[0, 0]];
            return;
        }
        let [v, h] = &self.axes;
        let of = |axis: &AxisPlan| -> Vec<usize> {
            let taps = axis.classes.iter().flat_map(|class| &class.taps);
            let mut phases: Vec<_> = taps.map(|&(_, t)| t % axis.step).collect();
            phases.sort_unstable();
            phases.dedup();
            phases
        };
        let columns = of(h);
        self.phases = of(v).into_iter().flat_map(|y| columns.iter().map(move |&x| [y, x])).collect();
    }

    /// Cuts the work in parts: about as many as are `wanted`, of at least and at most so many positions, if that is possible.
    fn divide(&mut self, wanted: usize, least: usize, most: usize) {
        let total = self.axes[0].range.len().max(1);
        let fits = (1..=total).rev().find(|&n| self.height(n) * self.row <= most).unwrap_or(1);
        let least = least.div_ceil(self.row);
        let strip = fits.min((self.images * total).div_ceil(wanted).max(least)).clamp(1, total);
        self.strips = total.div_ceil(strip);
        self.strip = total.div_ceil(self.strips);
        self.strips = total.div_ceil(self.strip);
        if self.strips == 1 {
            let fitting = most / (self.height(total) * self.row).max(1);
            let wanted = self.images.div_ceil(wanted).max(least.div_ceil(total));
            self.group = fitting.min(wanted).min(self.images).max(1);
        }
        self.groups = self.images.div_ceil(self.group);
        self.find_classes();
        let bytes = 2 * self.numbers();
        let largest = bytes.max(self.group * self.dest[0] * self.dest[1] * self.dest_channels);
        assert!(u32::try_from(largest).is_ok(), "an image of {largest} bytes is larger than offsets of 32 bits");
    }

    fn find_classes(&mut self) {
        let [v, h] = &self.axes;
        let mut classes = Vec::new();
        for y in &v.classes {
            for x in &h.classes {
                let (mut taps, mut runs) = (Vec::new(), Vec::new());
                for &(ky, ty) in &y.taps {
                    for &(kx, tx) in &x.taps {
                        taps.push(ky * self.kernel[1] + kx);
                        if !self.gathers {
                            let phase = [ty % v.step, tx % h.step];
                            let phase = self.phases.iter().position(|p| *p == phase).unwrap_or(0);
                            let position = phase * self.phase() + ty / v.step * self.row + tx / h.step;
                            runs.push((2 * position * self.width) as u32);
                        }
                    }
                }
                if self.gathers {
                    runs.push(0);
                }
                let columns = x.range.start - h.range.start..x.range.end - h.range.start;
                let (first, steps) = ([y.first, x.first], [y.dest_step, x.dest_step]);
                classes.push(Class { taps, runs, rows: y.range.clone(), columns, first, steps });
            }
        }
        self.classes = classes;
    }

    /// Rows of positions that `rows` rows of pixels read.
    fn height(&self, rows: usize) -> usize {
        if self.gathers { rows } else { rows + self.axes[0].reach / self.axes[0].step }
    }

    /// Rows of positions from image to image.
    fn image_rows(&self) -> usize {
        let axis = &self.axes[0];
        match axis.step == 1 && self.strips == 1 && !self.gathers {
            true => shared_length(axis, self.strip, self.source[0]),
            false => self.height(self.strip),
        }
    }

    /// Positions of a phase; after them there are some that tiles read beyond the end.
    fn phase(&self) -> usize {
        let tail = self.height(self.strip) - self.image_rows().min(self.height(self.strip)) + 1;
        (self.group * self.image_rows() + tail) * self.row + self.axes[1].reach + PANEL
    }

    /// Numbers of a strip.
    pub fn numbers(&self) -> usize {
        self.phases.len().max(1) * self.phase() * self.width + PANEL
    }

    /// Floats that [`Strips::fill`] needs: rows of the source, where patches are gathered.
    pub fn line_floats(&self) -> usize {
        if !self.gathers {
            return 0;
        }
        let rows = (self.strip - 1) * self.axes[0].step + self.kernel[0];
        (rows * self.line()).div_ceil(2)
    }

    /// Numbers of a row of the source with its padding.
    fn line(&self) -> usize {
        let columns = self.axes[1].range.len().saturating_sub(1) * self.axes[1].step + self.kernel[1];
        (columns * self.channels).next_multiple_of(STEP) + 2 * STEP
    }

    /// Pixels of the destination, of all images.
    pub fn all_pixels(&self) -> usize {
        self.images * self.dest[0] * self.dest[1]
    }

    /// How many parts the work has.
    pub fn parts(&self) -> usize {
        if self.axes[1].range.is_empty() { 0 } else { self.groups * self.strips }
    }

    /// Part number `i`.
    pub fn part(&self, i: usize) -> PatchPart {
        let (group, strip) = (i / self.strips, i % self.strips);
        let range = &self.axes[0].range;
        let start = range.start + strip * self.strip;
        PatchPart {
            images: group * self.group..((group + 1) * self.group).min(self.images),
            rows: start.min(range.end)..(start + self.strip).min(range.end),
        }
    }

    /// Numbers of a position.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The positions of a part from the first to the last at which there are pixels of `class`.
    pub fn positions(&self, class: &Class, part: &PatchPart) -> Range<usize> {
        let of_rows = |rows: Range<usize>| match rows.is_empty() || class.columns.is_empty() {
            true => 0..0,
            false => rows.start * self.row..(rows.end - 1) * self.row + class.columns.end,
        };
        if self.strips == 1 {
            let first = class.rows.start - part.rows.start;
            let last = (part.images.len() - 1) * self.image_rows() + class.rows.end - part.rows.start;
            return of_rows(first..last.max(first));
        }
        let row = |q: usize| q.clamp(part.rows.start, part.rows.end) - part.rows.start;
        of_rows(row(class.rows.start)..row(class.rows.end))
    }

    /// Where the result at each of a part's positions goes, from [`Strips::dest_base`]; `skipped` for those that are no pixels.
    pub fn places(&self, class: &Class, skipped: u32) -> Vec<u32> {
        let mut places = vec![skipped; self.group * self.image_rows() * self.row + PANEL];
        for image in 0..self.group {
            let rows = if self.strips > 1 {
                0..self.strip
            } else {
                class.rows.start - self.axes[0].range.start..class.rows.end - self.axes[0].range.start
            };
            for row in rows {
                for column in class.columns.clone() {
                    let q = self.axes[1].range.start + column;
                    let x = (class.first[1] + (q * class.steps[1]) as isize) as usize;
                    let y = image * self.dest[0] + row * class.steps[0];
                    let place = (y * self.dest[1] + x) * self.dest_channels;
                    places[(image * self.image_rows() + row) * self.row + column] = place as u32;
                }
            }
        }
        places
    }

    /// What the places of a class are counted from.
    pub fn dest_base(&self, class: &Class, part: &PatchPart) -> isize {
        let row = class.first[0] + (part.rows.start * class.steps[0]) as isize;
        let row = (part.images.start * self.dest[0]) as isize + row;
        row * (self.dest[1] * self.dest_channels) as isize
    }

    /// Positions of a phase, up to a multiple of [`STEP`], that the taps of a part's positions reach.
    pub fn phase_positions(&self) -> usize {
        let own = (self.group * self.image_rows() * self.row).next_multiple_of(STEP);
        let [v, h] = &self.axes;
        (own + v.reach / v.step * self.row + h.reach / h.step).next_multiple_of(STEP)
    }

    /// Phases of positions.
    pub fn phases(&self) -> usize {
        self.phases.len()
    }

    /// Taps, and for each how far its positions lie from a pixel's, where phases have [`Strips::phase_positions`].
    pub fn tap_positions(&self) -> Vec<(usize, usize)> {
        let [v, h] = &self.axes;
        let mut taps = Vec::new();
        for &(ky, ty) in &v.classes[0].taps {
            for &(kx, tx) in &h.classes[0].taps {
                let phase = [ty % v.step, tx % h.step];
                let phase = self.phases.iter().position(|p| *p == phase).unwrap_or(0);
                let position = phase * self.phase_positions() + ty / v.step * self.row + tx / h.step;
                taps.push((ky * self.kernel[1] + kx, position));
            }
        }
        taps
    }

    /// For each position of a part in one phase, the source's pixel: its number among those of all images, or `None` for padding.
    pub fn source_pixels(&self, part: &PatchPart, phase: usize, pixels: &mut [Option<u32>]) {
        pixels.fill(None);
        let ([v, h], [py, px]) = (&self.axes, self.phases[phase]);
        for (i, image) in part.images.clone().enumerate() {
            for r in 0..self.height(part.rows.len()) {
                let y = ((part.rows.start + r) * v.step + py).wrapping_sub(v.origin);
                if y >= self.source[0] {
                    continue;
                }
                // Up to a whole row and what taps reach beyond it: that lies in the padding left of the next row.
                for p in 0..self.row {
                    let x = ((h.range.start + p) * h.step + px).wrapping_sub(h.origin);
                    let at = (i * self.image_rows() + r) * self.row + p;
                    if x < self.source[1] && at < pixels.len() {
                        pixels[at] = Some(((image * self.source[0] + y) * self.source[1] + x) as u32);
                    }
                }
            }
        }
    }

    /// Rounds the part's pixels of the source, with their padding, to `to`. `lines`: see [`Strips::line_floats`].
    pub fn fill(&self, part: &PatchPart, source: Numbers, to: &mut [u16], lines: &mut [u16], packer: &Packer) {
        if part.rows.is_empty() {
            return;
        }
        if self.gathers {
            return self.gather(part, source, to, lines, packer);
        }
        let [v, h] = &self.axes;
        let rows = self.image_rows();
        for (phase, &[py, px]) in self.phases.iter().enumerate() {
            let to = &mut to[phase * self.phase() * self.width..][..self.phase() * self.width];
            let mut end = 0;
            for (i, image) in part.images.clone().enumerate() {
                for r in 0..self.height(part.rows.len()) {
                    let start = (i * rows + r) * self.row * self.width;
                    let to = &mut to[start..start + self.row * self.width];
                    end = end.max(start + to.len());
                    let y = ((part.rows.start + r) * v.step + py).wrapping_sub(v.origin);
                    if y >= self.source[0] {
                        to.fill(0);
                        continue;
                    }
                    self.fill_row(image * self.source[0] + y, (h, px), source, to, packer);
                }
            }
            // What the last row's pixels read beyond it.
            let tail = (end + (h.reach + 1) * self.width).min(to.len());
            to[end..tail].fill(0);
        }
    }

    /// A row of positions of one phase, from row `y` of all images' rows.
    fn fill_row(&self, y: usize, (h, px): (&AxisPlan, usize), source: Numbers, to: &mut [u16], packer: &Packer) {
        // Position `p` has the source's column `(start + p) · step + px − origin`.
        let column = |p: usize| (h.range.start + p) * h.step + px;
        let first = (0..self.row).find(|&p| column(p) >= h.origin).unwrap_or(self.row);
        let inside = (first..self.row).take_while(|&p| column(p) - h.origin < self.source[1]).count();
        to[..first * self.width].fill(0);
        to[(first + inside) * self.width..].fill(0);
        if inside == 0 {
            return;
        }
        let from = (y * self.source[1] + column(first) - h.origin) * self.channels;
        let from_step = h.step * self.channels;
        let from = source.part(from, (inside - 1) * from_step + self.channels);
        let to = &mut to[first * self.width..(first + inside) * self.width];
        let rows = RoundRows {
            from: std::ptr::null(),
            from_step,
            rows: inside,
            columns: self.channels,
            to: to.as_mut_ptr(),
            to_step: self.width,
            padded: self.run_steps * STEP,
        };
        // SAFETY: both sides have these rows.
        unsafe { packer.rows_of(from, rows) };
    }

    /// Copies the patch of each pixel of the part.
    fn gather(&self, part: &PatchPart, source: Numbers, to: &mut [u16], lines: &mut [u16], packer: &Packer) {
        let ([v, h], line, c) = (&self.axes, self.line(), self.channels);
        let height = (part.rows.len() - 1) * v.step + self.kernel[0];
        let run = self.kernel[1] * c;
        let skip = h.origin * c;
        let inside = (self.source[1] * c).min((line - 2 * STEP).saturating_sub(skip));
        for (i, image) in part.images.clone().enumerate() {
            for r in 0..height {
                let to = &mut lines[r * line..(r + 1) * line];
                let y = (part.rows.start * v.step + r).wrapping_sub(v.origin);
                if y >= self.source[0] || inside == 0 {
                    to.fill(0);
                    continue;
                }
                to.fill(0);
                let from = source.part((image * self.source[0] + y) * self.source[1] * c, inside);
                // The last step of the line is written beyond the row's end, but within the line.
                let rows = RoundRows {
                    from: std::ptr::null(),
                    from_step: 0,
                    rows: 1,
                    columns: inside,
                    to: to[skip..skip + inside.next_multiple_of(STEP)].as_mut_ptr(),
                    to_step: 0,
                    padded: inside.next_multiple_of(STEP),
                };
                // SAFETY: both sides have these numbers.
                unsafe { packer.rows_of(from, rows) };
            }
            for row in 0..part.rows.len() {
                let first = (i * self.image_rows() + row) * self.row * self.width;
                let to = &mut to[first..][..self.row * self.width + STEP];
                let from = &lines[row * v.step * line..][..(self.kernel[0] - 1) * line + (self.row - 1) * h.step * c];
                self.gather_row(from.as_ptr(), to, [line, h.step * c, run]);
            }
        }
    }

    /// Copies the patches of a row of pixels: `run` numbers from each of so many lines, `line` apart; those of the next pixel begin `step`
    /// numbers on.
    fn gather_row(&self, from: *const u16, to: &mut [u16], [line, step, run]: [usize; 3]) {
        assert!(to.len() >= self.row * self.width + STEP && self.width >= self.kernel[0] * run);
        assert!((self.row - 1) * step + run.next_multiple_of(STEP) <= line);
        for q in 0..self.row {
            let patch = to[q * self.width..].as_mut_ptr();
            // SAFETY: a line has its runs up to whole steps, and so has `to` after the last patch. What is copied too much is written
            // over by what follows.
            unsafe {
                for ky in 0..self.kernel[0] {
                    let (from, patch) = (from.add(ky * line + q * step), patch.add(ky * run));
                    for at in (0..run).step_by(STEP) {
                        let numbers = from.add(at).cast::<[u16; STEP]>().read_unaligned();
                        patch.add(at).cast::<[u16; STEP]>().write_unaligned(numbers);
                    }
                }
                for at in (self.kernel[0] * run..self.width).step_by(STEP) {
                    patch.add(at).cast::<[u16; STEP]>().write_unaligned([0; STEP]);
                }
            }
        }
    }
}
