//! Convolutions between images of few pixels, as at the end of a deep network.
//!
//! Most positions of the kernel then meet nothing but padding, and an image has too few pixels to fill a register tile. So
//! the sum goes only over pairs of an input and an output pixel that a position of the kernel joins ([`Link`]), and a
//! tile's rows are the images of the batch: for each output pixel the product of all images' pixels with the weights of
//! its links. Positions of the kernel without a link are not read, and their gradient is 0.

mod grad_weight;
mod pixels;

pub use grad_weight::{FewPixelsGradWeight, SOME_PIXELS};
pub use pixels::FewPixels;

use super::shape::{ConvProblem, Direction};
use super::winograd;

/// Most pixels of an output and of an input image.
const MOST_PIXELS: [usize; 2] = [4, 16];

/// The same for convolutions that `winograd` takes, where its tiles hang over the edges of the images: [`Links::are_fewer`].
const MOST_BESIDE_WINOGRAD: [usize; 2] = [25, 25];

/// Least images of a batch for that: with fewer, each weight that is read is used too few times.
const LEAST_BATCH: usize = 12;

/// Multiply-adds in the time of moving a float to or from memory.
const MOVED: usize = 40;

/// Least channels of input and output: with fewer, tiles have too few columns.
const LEAST_CHANNELS: usize = 16;

/// An input and an output pixel that a position of the kernel joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    /// Number of the position among those that join any pixels.
    slot: usize,
    input: usize,
    output: usize,
}

/// All links of a convolution.
struct Links {
    images: usize,
    channels: usize,
    outputs: usize,
    /// Pixels of an image.
    input_pixels: usize,
    output_pixels: usize,
    /// Positions of the kernel, and those that join any pixels, in order.
    taps: usize,
    used: Vec<usize>,
    links: Vec<Link>,
}

impl Links {
    /// The links, if images have at most `most` output and input pixels, and there are enough channels.
    fn new(problem: &ConvProblem, most: [usize; 2]) -> Option<Links> {
        let (op, shape, output) = (problem.op, &problem.shape, problem.output());
        let kernel = shape.kernel;
        let (input_pixels, output_pixels): (usize, usize) = (shape.input.iter().product(), output.iter().product());
        let few = output_pixels <= most[0] && input_pixels <= most[1];
        let enough = shape.channels.min(shape.outputs) >= LEAST_CHANNELS;
        // Tables hold offsets of 32 bits into one image, or into the batch's pixels of a panel.
        let floats = (input_pixels.max(output_pixels) * shape.images).saturating_mul(shape.channels.max(shape.outputs));
        if op.groups != 1 || !few || !enough || u32::try_from(floats).is_err() {
            return None;
        }
        let (mut used, mut links) = (Vec::new(), Vec::new());
        for tap in 0..kernel[0] * kernel[1] {
            let first = links.len();
            let at = [tap / kernel[1], tap % kernel[1]];
            for pixel in 0..output_pixels {
                let pixel_at = [pixel / output[1], pixel % output[1]];
                let source = |axis: usize| {
                    let p = pixel_at[axis] * op.stride[axis] + at[axis] * op.dilation[axis];
                    p.checked_sub(op.padding[2 * axis]).filter(|&p| p < shape.input[axis])
                };
                if let (Some(row), Some(column)) = (source(0), source(1)) {
                    links.push(Link { slot: used.len(), input: row * shape.input[1] + column, output: pixel });
                }
            }
            if links.len() > first {
                used.push(tap);
            }
        }
        let (images, channels, outputs) = (shape.images, shape.channels, shape.outputs);
        let taps = kernel[0] * kernel[1];
        Some(Links { images, channels, outputs, input_pixels, output_pixels, taps, used, links })
    }

    /// The links of a convolution that writes pixels, if this is the way for it.
    fn of_pixels(problem: &ConvProblem, direction: Direction) -> Option<Links> {
        let beside = || Links::new(problem, MOST_BESIDE_WINOGRAD).filter(|links| links.are_fewer(problem, direction));
        Links::new(problem, MOST_PIXELS).or_else(beside)
    }

    /// True for a convolution that is of `winograd`'s kind, but would take longer there: its tiles hang over the edge.
    fn are_fewer(&self, problem: &ConvProblem, direction: Direction) -> bool {
        let (op, shape) = (problem.op, &problem.shape);
        let is_its = shape.kernel == [3, 3] && op.stride == [1, 1] && op.dilation == [1, 1];
        // For each pair of an input and an output channel.
        let own = self.links.len() * self.images + MOVED * 3 * self.used.len();
        let fewer = winograd::products(problem, direction).is_none_or(|its| own < its);
        is_its && self.images >= LEAST_BATCH && fewer
    }
}
