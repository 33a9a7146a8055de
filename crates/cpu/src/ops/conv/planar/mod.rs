//! Convolutions whose vectors run over pixels, for channels that fill vectors badly: few of them, few in a group, or a few
//! more than whole vectors hold. The stride is 1, or 2 except for the gradient by the input.
//!
//! A task transposes a strip of an image into planes, one for each channel. A plane is a single line of floats: row after
//! row, with the zeros of the padding between the rows. A tap is then one offset into the line, the same for all pixels. The
//! result is made as planes too. Between their rows lie values without a meaning, which are dropped when the planes are
//! transposed back.

mod grad_weight;
mod layout;
mod pixels;
mod read;
mod tile;

pub use grad_weight::PlanarGradWeight;
pub use pixels::Planar;

use super::patches::TASKS;
use super::shape::{ConvProblem, Direction};
use crate::gemm::LINE;
use crate::gemm::round_up;
use crate::simd::{MAX_LANES, SimdLevel};
use std::ops::Range;

/// Most floats of the planes that a task works on at a time: 64 KiB.
const CACHED: usize = 16 << 10;

/// Least rows of a strip, as a multiple of the rows that it reads beyond its own. Lower strips would read too many rows twice.
const LEAST_ROWS: usize = 4;

/// Channels that are transposed at a time, unless a group has more.
const BLOCK: usize = 64;

/// Rows of planes are padded to whole vectors if they grow by at most this factor: stores across cache lines are slow.
const ALIGNED: f64 = 1.14;

/// The ratio of the estimated costs of this kernel and of one with vectors over channels at which both are equally fast,
/// measured over many shapes: for levels with 32 registers, and with 16, whose tiles are small.
const BREAK_EVEN: [f64; 2] = [1.2, 0.65];

/// Cost of storing a vector of channels of one pixel, in vector products.
const STORE_COST: usize = 4;

/// Cost of transposing one float into a plane or out of it, in vector products.
const TRANSPOSE_COST: f64 = 0.5;

/// The geometry, of a convolution or its gradient by the input.
struct Planes {
    images: usize,
    groups: usize,
    /// Channels of a group, read and written.
    from: usize,
    to: usize,
    /// Height and width of what is read and of what is written.
    source: [usize; 2],
    dest: [usize; 2],
    /// Zeros above and to the left of what is read.
    origin: [usize; 2],
    /// Where the first row's pixels begin in a plane that is read: at a whole vector.
    start: usize,
    /// Rows and columns that a pixel reads beyond its own.
    reach: [usize; 2],
    /// Floats from one row of a plane to the next.
    pitch: usize,
    /// Which pixel each position of the kernel reads: rows and columns from the first.
    taps: Vec<[usize; 2]>,
    level: SimdLevel,
    /// In both directions.
    stride: usize,
    lanes: usize,
    /// Rows of a strip, and strips of an image.
    strip: usize,
    strips: usize,
    /// Groups that are worked on at a time.
    block: usize,
}

/// The part of the work that a task does: a strip of an image.
struct PlanarPart {
    image: usize,
    /// Rows of what is written.
    rows: Range<usize>,
}

impl Planes {
    /// The geometry, if planes are possible for the problem.
    fn new(problem: &ConvProblem, direction: Direction) -> Option<Planes> {
        let ConvProblem { op, shape, level, .. } = *problem;
        // Where vectors over channels hold many groups at once, `depthwise` is faster.
        if problem.is_depthwise() && !problem.is_narrow() {
            return None;
        }
        let reach = [0, 1].map(|i| (shape.kernel[i] - 1) * op.dilation[i]);
        let narrow = (0..4).all(|side| op.padding[side] <= reach[side / 2]);
        let output = problem.output();
        let stride = op.stride[0];
        let possible = op.stride == [1, 1] || (op.stride == [2, 2] && direction == Direction::Forward);
        if !possible || !narrow || shape.images * output[0] * output[1] == 0 {
            return None;
        }
        let pads = [op.padding[0], op.padding[2]];
        let (inputs, outputs) = (shape.channels / op.groups, shape.outputs / op.groups);
        let (from, to, source, dest, origin) = match direction {
            Direction::Forward => (inputs, outputs, shape.input, output, pads),
            Direction::Backward => (outputs, inputs, output, shape.input, [0, 1].map(|i| reach[i] - pads[i])),
        };
        // With a stride of 1 the zeros to the right of a row are those to the left of the next.
        let right = (dest[1] + reach[1]).saturating_sub(origin[1] + source[1]);
        let pitch = match stride {
            1 => (source[1] + origin[1].max(right)).max(dest[1]),
            _ => (source[1] + origin[1]).div_ceil(2).max(dest[1] + reach[1] / 2),
        };
        let lines = pitch.next_multiple_of(level.lanes());
        let pitch = if lines as f64 <= ALIGNED * pitch as f64 { lines } else { pitch };
        let place = |i: usize, k: usize| match direction {
            Direction::Forward => k * op.dilation[i],
            Direction::Backward => reach[i] - k * op.dilation[i],
        };
        let [height, width] = shape.kernel;
        let taps = (0..height * width).map(|tap| [place(0, tap / width), place(1, tap % width)]).collect();
        let block = (BLOCK / from.max(to)).clamp(1, op.groups);
        let rows = CACHED / (block * (from * stride * stride + to) * pitch);
        let fits = rows.saturating_sub(reach[0]).max(LEAST_ROWS * reach[0].max(1));
        let even = (shape.images * dest[0]).div_ceil(TASKS).max(reach[0]).max(1);
        let strips = dest[0].div_ceil(fits.min(even));
        let planes = Planes {
            images: shape.images,
            groups: op.groups,
            from,
            to,
            source,
            dest,
            origin,
            start: if stride == 1 { origin[1].next_multiple_of(level.lanes()) } else { origin[1] },
            stride,
            reach,
            pitch,
            taps,
            level,
            lanes: level.lanes(),
            strip: dest[0].div_ceil(strips),
            strips: dest[0].div_ceil(dest[0].div_ceil(strips)),
            block,
        };
        let largest = (planes.from + MAX_LANES).checked_mul(planes.phases() * planes.source_floats());
        largest.is_some_and(|n| u32::try_from(n).is_ok()).then_some(planes)
    }

    /// Estimated cost of a pixel of the result, in vector products: the products, and transposing the planes.
    fn cost(&self) -> f64 {
        let pixels = self.strip * self.dest[1];
        let computed = self.vectors(self.strip) * self.lanes;
        let products = self.groups * self.from * self.to * self.taps.len() * computed;
        let read = (self.strip * self.stride + self.reach[0]) * self.source[1].next_multiple_of(self.lanes) * self.from;
        let written = self.strip * self.dest[1].next_multiple_of(self.lanes) * self.to;
        let transposed = self.groups * (read + written);
        (products as f64 / self.lanes as f64 + transposed as f64 * TRANSPOSE_COST) / pixels as f64
    }

    /// True if this is faster than a kernel with vectors over the channels written, which do not fill the vectors.
    fn is_worth_it(&self) -> bool {
        let by_channels = self.groups * self.to.div_ceil(self.lanes) * (self.from * self.taps.len() + STORE_COST);
        let [many, few] = BREAK_EVEN;
        let break_even = if matches!(self.level, SimdLevel::Avx512 | SimdLevel::Neon) { many } else { few };
        !self.to.is_multiple_of(self.lanes) && self.cost() <= break_even * by_channels as f64
    }

    fn parts(&self) -> usize {
        self.images * self.strips
    }

    fn part(&self, i: usize) -> PlanarPart {
        let start = i % self.strips * self.strip;
        PlanarPart { image: i / self.strips, rows: start..(start + self.strip).min(self.dest[0]) }
    }

    /// Vectors in the line of a plane of the result with `rows` rows.
    fn vectors(&self, rows: usize) -> usize {
        ((rows - 1) * self.pitch + self.dest[1]).div_ceil(self.lanes)
    }

    /// Floats from one plane to the next of the result: an odd number of cache lines, as for the planes read.
    fn dest_floats(&self) -> usize {
        odd_lines(self.vectors(self.strip) * self.lanes + MAX_LANES)
    }

    /// Planes written at a time, a multiple of [`MAX_LANES`] as they are transposed in squares.
    fn dest_planes(&self) -> usize {
        (self.block * self.to).next_multiple_of(MAX_LANES)
    }
}

fn odd_lines(floats: usize) -> usize {
    ((round_up(floats) / LINE) | 1) * LINE
}
