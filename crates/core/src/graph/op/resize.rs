//! Images of another size, as `torch.nn.Upsample` makes them, channels last. Images keep their float type, forward and backward.

use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, float, images};
use crate::graph::Shape;
use std::ops::RangeInclusive;

/// What a pixel is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeMode {
    /// The nearest pixel.
    Nearest,
    /// The four pixels around it, the nearer ones with more weight.
    Bilinear {
        /// The centres of the corners' pixels stay where they are; otherwise the corners of the image do.
        align_corners: bool,
    },
}

/// An image of another size. Operand: `x [N, H, W, C]`. Output: `[N, OH, OW, C]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Resize2d {
    /// Height and width of the output.
    pub output: [usize; 2],
    /// What its pixels are made of.
    pub mode: ResizeMode,
    /// By how much the sides were to grow. Without it, the sizes say so.
    pub scale: Option<[f64; 2]>,
}

/// Operand: `dy`. Output: `[N, H, W, C]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Resize2dGrad {
    /// The operation.
    pub resize: Resize2d,
    /// Height and width of the input.
    pub input: [usize; 2],
}

/// The positions along one axis that an output is made of, and their weights. A weight of 0 stands for a position that is not read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Taps {
    /// Positions in the input.
    pub at: [usize; 2],
    /// Their weights.
    pub weight: [f32; 2],
}

impl Taps {
    /// The weight of position `i`.
    pub fn weight_of(&self, i: usize) -> f32 {
        (0..2).filter(|tap| self.at[*tap] == i).map(|tap| self.weight[tap]).sum()
    }
}

impl Resize2d {
    /// What the outputs along an axis, 0 for rows, are made of, of an input of the length `input`. As PyTorch computes it, in single
    /// precision.
    pub fn taps(&self, axis: usize, input: usize) -> Vec<Taps> {
        let output = self.output[axis];
        let last = input.saturating_sub(1);
        let scale = match self.scale {
            Some(scale) => (1.0 / scale[axis]) as f32,
            None => input as f32 / output as f32,
        };
        let alone = |i: usize| Taps { at: [i, i], weight: [1.0, 0.0] };
        let one = |o: usize| match self.mode {
            _ if input == output => alone(o),
            ResizeMode::Nearest if output == 2 * input => alone(o / 2),
            ResizeMode::Nearest => alone(((o as f32 * scale).floor() as usize).min(last)),
            ResizeMode::Bilinear { align_corners } => {
                let place = match align_corners {
                    true if output > 1 => o as f32 * (last as f32 / (output - 1) as f32),
                    true => 0.0,
                    false => (scale * (o as f32 + 0.5) - 0.5).max(0.0),
                };
                let first = (place.floor() as usize).min(last);
                let part = (place - first as f32).clamp(0.0, 1.0);
                if first == last { alone(last) } else { Taps { at: [first, first + 1], weight: [1.0 - part, part] } }
            }
        };
        (0..output).map(one).collect()
    }
}

/// For each of `input` positions, the first and the last output that reads it; `None` where none does.
pub fn readers(taps: &[Taps], input: usize) -> Vec<Option<RangeInclusive<usize>>> {
    let mut readers: Vec<Option<RangeInclusive<usize>>> = vec![None; input];
    for (o, taps) in taps.iter().enumerate() {
        for tap in (0..2).filter(|tap| taps.weight[*tap] != 0.0) {
            let range = &mut readers[taps.at[tap]];
            let first = range.as_ref().map_or(o, |range| *range.start());
            *range = Some(first..=o);
        }
    }
    readers
}

impl OpRules for Resize2d {
    fn name(&self) -> &'static str {
        "upsample"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("upsample", inputs, 1)?;
        let dtype = float("upsample", inputs, 0)?;
        let [n, _, _, c] = images("upsample", inputs, 0)?;
        Ok(vec![(dtype, Shape::from([n, self.output[0], self.output[1], c]))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let [_, h, w, _] = cx.graph.shape(cx.inputs[0]).nhwc().expect("checked by the shape rule");
        let dy = cx.dy();
        Ok(vec![Some(cx.add1(Resize2dGrad { resize: self.clone(), input: [h, w] }, &[dy])?)])
    }
}

impl OpRules for Resize2dGrad {
    fn name(&self) -> &'static str {
        "upsample_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("upsample_grad", inputs, 1)?;
        let dtype = float("upsample_grad", inputs, 0)?;
        let [n, _, _, c] = images("upsample_grad", inputs, 0)?;
        Ok(vec![(dtype, Shape::from([n, self.input[0], self.input[1], c]))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_know_their_readers() {
        let bilinear = ResizeMode::Bilinear { align_corners: false };
        for (mode, input, output) in [
            (ResizeMode::Nearest, 3, 7),
            (bilinear, 3, 8),
            (bilinear, 7, 3),
            (bilinear, 1, 4),
            (ResizeMode::Nearest, 9, 2),
        ] {
            let op = Resize2d { output: [output, output], mode, scale: None };
            let taps = op.taps(0, input);
            for (i, range) in readers(&taps, input).into_iter().enumerate() {
                let read: Vec<usize> = (0..output).filter(|o| taps[*o].weight_of(i) != 0.0).collect();
                let found = range.map_or(Vec::new(), |range| range.filter(|o| taps[*o].weight_of(i) != 0.0).collect());
                assert_eq!(found, read, "{mode:?} {input} {output} {i}");
            }
        }
    }

    #[test]
    fn weights_sum_to_one_and_lie_within_the_image() {
        for align_corners in [false, true] {
            for (input, output) in [(1, 1), (1, 5), (2, 5), (5, 2), (5, 1), (6, 6), (100, 37), (37, 100)] {
                let op = Resize2d { output: [1, output], mode: ResizeMode::Bilinear { align_corners }, scale: None };
                for taps in op.taps(1, input) {
                    assert!(taps.at.iter().all(|i| *i < input), "{input} {output} {taps:?}");
                    assert!((taps.weight[0] + taps.weight[1] - 1.0).abs() < 1e-6 && taps.weight[1] >= 0.0, "{taps:?}");
                }
            }
        }
    }
}
