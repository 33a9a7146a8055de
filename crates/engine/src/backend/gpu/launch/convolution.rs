//! A convolution of cuDNN, as data.

use super::kernel::Memory;
use crate::graph::DType;
use crate::graph::op::Activation;
use std::fmt;

/// The channels of a group must be a multiple of this many bytes.
const PIXEL_BYTES: usize = 16;

/// Most rows and columns of a kernel, with what dilation leaves between its taps, and most of its stride.
const MOST_SPAN: usize = 64;
const MOST_STRIDE: usize = 16;

/// Bounds of the workspace, which may be as large as the tensors. A plan that needs more is not worth the memory.
const WORKSPACE: [usize; 2] = [32 << 20, 256 << 20];

/// Whether the result or a gradient is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// y from x and w.
    Forward,
    /// The gradient of x from that of y and w (data gradient).
    Input,
    /// The gradient of w from x and that of y (weight gradient).
    Weight,
}

/// A convolution.
#[derive(Debug, Clone, PartialEq)]
pub struct Convolution {
    /// What is computed.
    pub direction: Direction,
    /// Images of a batch.
    pub images: usize,
    /// Height and width of x.
    pub input: [usize; 2],
    /// Channels of x.
    pub inputs: usize,
    /// Height and width of y.
    pub output: [usize; 2],
    /// Channels of y.
    pub outputs: usize,
    /// Height and width of w.
    pub kernel: [usize; 2],
    /// Channels are split into so many groups.
    pub groups: usize,
    /// Rows, columns.
    pub stride: [usize; 2],
    /// Top, bottom, left, right.
    pub padding: [usize; 4],
    /// Rows, columns.
    pub dilation: [usize; 2],
    /// Element type of the operands; accumulators are of 32 bits.
    pub dtype: DType,
    /// Element type of the result.
    pub result: DType,
    /// 32-bit operands may be rounded to TF32.
    pub tf32: bool,
    /// Forward: a bias, which is of 32 bits, is added.
    pub bias: bool,
    /// Forward: applied to the sum.
    pub act: Option<Activation>,
}

/// The key of a choice in the cache and in checkpoints.
impl fmt::Display for Convolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Forward => "forward",
            Direction::Input => "data gradient",
            Direction::Weight => "weight gradient",
        };
        let ([h, w], [oh, ow], [kh, kw]) = (self.input, self.output, self.kernel);
        let ([sh, sw], [dh, dw], [top, bottom, left, right]) = (self.stride, self.dilation, self.padding);
        let Convolution { images, inputs, outputs, groups, dtype, result, .. } = self;
        write!(f, "{direction} {images}x{h}x{w}x{inputs} to {oh}x{ow}x{outputs}, kernel {kh}x{kw}, groups {groups}, ")?;
        write!(f, "stride {sh}x{sw}, padding {top}+{bottom}x{left}+{right}, dilation {dh}x{dw}, ")?;
        write!(f, "{} to {}", dtype.name(), result.name())?;
        if self.tf32 {
            f.write_str(", tf32")?;
        }
        if self.bias {
            f.write_str(", bias")?;
        }
        match self.act {
            None => Ok(()),
            Some(act) => {
                write!(f, ", {}", act.name())?;
                act.facts().parameters.into_iter().flatten().try_for_each(|x| write!(f, " {x}"))
            }
        }
    }
}

impl Convolution {
    /// Elements of x, w and y.
    pub fn elements(&self) -> [usize; 3] {
        let ([h, w], [oh, ow], [kh, kw]) = (self.input, self.output, self.kernel);
        let weights = self.outputs * kh * kw * (self.inputs / self.groups);
        [self.images * h * w * self.inputs, weights, self.images * oh * ow * self.outputs]
    }

    /// Whether the library is asked for it at all: the only place that says so. It is known to work for the convolutions of
    /// usual networks, and not for all that can be described to it: version 9.14 ends the process while it looks for engines
    /// for groups of 5 channels and different paddings before and after. So there must be
    /// * as much padding before as after, and less than the kernel spans;
    /// * whole groups, whose channels are multiples of 16 bytes in and out. It would copy others to tensors that are padded;
    /// * tensors of fewer than 2³¹ elements, kernels and strides that are not larger than any network has.
    pub fn is_taken(&self) -> bool {
        let [top, bottom, left, right] = self.padding;
        let spans = [0, 1].map(|i| self.dilation[i] * (self.kernel[i] - 1) + 1);
        let even = top == bottom && left == right && top < spans[0] && left < spans[1];
        let small = spans.iter().all(|n| *n <= MOST_SPAN) && self.stride.iter().all(|n| *n <= MOST_STRIDE);
        let whole = [self.inputs, self.outputs].iter().all(|channels| {
            channels.is_multiple_of(self.groups)
                && (channels / self.groups * self.dtype.bytes()).is_multiple_of(PIXEL_BYTES)
        });
        even && small && whole && self.elements().iter().all(|n| i32::try_from(*n).is_ok())
    }

    /// Bytes of workspace that a plan may have.
    pub fn most_workspace(&self) -> usize {
        let [least, most] = WORKSPACE;
        (self.elements().iter().sum::<usize>() * self.dtype.bytes()).clamp(least, most)
    }

    /// One with everything, for tests.
    #[cfg(test)]
    pub fn example() -> Convolution {
        Convolution {
            direction: Direction::Forward,
            images: 8,
            input: [28, 28],
            inputs: 16,
            output: [14, 28],
            outputs: 32,
            kernel: [3, 5],
            groups: 2,
            stride: [2, 1],
            padding: [1, 0, 2, 2],
            dilation: [1, 1],
            dtype: DType::BF16,
            result: DType::BF16,
            tf32: false,
            bias: true,
            act: Some(Activation::LeakyRelu { slope: 0.1 }),
        }
    }
}

/// A convolution that cuDNN does.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolutionStep {
    /// Sizes and types.
    pub convolution: Convolution,
    /// x, or its gradient.
    pub x: Memory,
    /// w, or its gradient.
    pub w: Memory,
    /// y, or its gradient.
    pub y: Memory,
    /// The bias, if there is one.
    pub bias: Option<Memory>,
    /// The workspace; the executable moves its start up to where the library wants it.
    pub workspace: Memory,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_asked_for_what_networks_have() {
        let usual = Convolution { padding: [1, 1, 2, 2], ..Convolution::example() };
        assert!(usual.is_taken());
        let taken = [
            // A ResNet's blocks, and its shorter ways.
            Convolution { kernel: [3, 3], stride: [2, 2], padding: [1; 4], groups: 1, ..usual.clone() },
            Convolution { kernel: [1, 1], stride: [2, 2], padding: [0; 4], groups: 1, ..usual.clone() },
            Convolution { dilation: [2, 4], padding: [4, 4, 16, 16], ..usual.clone() },
            Convolution { dtype: DType::F32, inputs: 8, outputs: 24, ..usual.clone() },
        ];
        for c in taken {
            assert!(c.is_taken(), "{c}");
        }
        // What cuDNN 9.14 ended the process at.
        let fatal = Convolution {
            images: 3,
            input: [3, 4],
            inputs: 8,
            output: [1, 2],
            outputs: 10,
            kernel: [3, 3],
            groups: 2,
            stride: [2, 3],
            padding: [0, 2, 1, 1],
            dilation: [2, 1],
            dtype: DType::F32,
            result: DType::F32,
            ..usual.clone()
        };
        let refused = [
            Convolution { outputs: 16, ..fatal.clone() },
            Convolution { padding: [1; 4], ..fatal.clone() },
            fatal,
            Convolution { padding: [1, 0, 2, 2], ..usual.clone() },
            Convolution { padding: [1, 1, 2, 3], ..usual.clone() },
            Convolution { padding: [3, 3, 2, 2], ..usual.clone() },
            Convolution { inputs: 8, ..usual.clone() },
            Convolution { outputs: 24, ..usual.clone() },
            Convolution { groups: 3, ..usual.clone() },
            Convolution { kernel: [3, 65], ..usual.clone() },
            Convolution { dilation: [40, 1], ..usual.clone() },
            Convolution { stride: [17, 1], ..usual.clone() },
            Convolution { images: 1 << 20, input: [64, 64], ..usual },
        ];
        for c in refused {
            assert!(!c.is_taken(), "{c}");
        }
    }

    #[test]
    fn every_property_of_a_convolution_is_in_the_name_of_a_choice() {
        let c = Convolution::example();
        let name = "forward 8x28x28x16 to 14x28x32, kernel 3x5, groups 2, stride 2x1, padding 1+0x2+2, dilation 1x1, \
                    bf16 to bf16, bias, leaky_relu 0.1";
        assert_eq!(c.to_string(), name);
        let others = [
            Convolution { direction: Direction::Input, ..c.clone() },
            Convolution { images: 9, ..c.clone() },
            Convolution { input: [28, 29], ..c.clone() },
            Convolution { inputs: 18, ..c.clone() },
            Convolution { output: [15, 28], ..c.clone() },
            Convolution { outputs: 34, ..c.clone() },
            Convolution { kernel: [5, 3], ..c.clone() },
            Convolution { groups: 1, ..c.clone() },
            Convolution { stride: [1, 2], ..c.clone() },
            Convolution { padding: [0, 1, 2, 2], ..c.clone() },
            Convolution { dilation: [1, 2], ..c.clone() },
            Convolution { dtype: DType::F16, ..c.clone() },
            Convolution { result: DType::F32, ..c.clone() },
            Convolution { tf32: true, ..c.clone() },
            Convolution { bias: false, ..c.clone() },
            Convolution { act: Some(Activation::LeakyRelu { slope: 0.2 }), ..c.clone() },
            Convolution { act: Some(Activation::Elu { alpha: 0.1 }), ..c.clone() },
            Convolution { act: Some(Activation::Hardtanh { low: 0.1, high: 1.0 }), ..c.clone() },
            Convolution { act: Some(Activation::Hardtanh { low: 0.1, high: 2.0 }), ..c.clone() },
            Convolution { act: None, ..c.clone() },
        ];
        let mut names: Vec<String> = others.iter().map(Convolution::to_string).collect();
        names.push(name.into());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), others.len() + 1);
    }
}
