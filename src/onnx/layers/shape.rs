//! Layers that reorder, cut, resize and put something around.

use super::dimension;
use crate::config::language::layers::{Chunk, Roll, Select, Slice, Transpose, Upsample, UpsampleMode};
use crate::config::language::lists::Integers;
use crate::graph::op::{Resize2d, ResizeMode};
use crate::onnx::graph::{int, ints, word};
use crate::onnx::{Translator, Value};

impl Translator<'_> {
    pub(super) fn flatten(&mut self, x: &Value, out: &[usize]) -> String {
        match (x.shape == out, out.len()) {
            (true, _) => x.name.clone(),
            (false, 2) => self.graph.op("Flatten", &[&x.name], [int("axis", 1)]),
            (false, _) => self.graph.reshape(&x.name, out),
        }
    }

    /// `x` with its dimension `dims[i]` as dimension `i`.
    pub(super) fn permuted(&mut self, x: &str, dims: &[usize]) -> String {
        self.graph.op("Transpose", &[x], [ints("perm", dims.iter().copied())])
    }

    pub(super) fn transpose(&mut self, l: &Transpose, x: &Value) -> String {
        let mut dims: Vec<usize> = (0..x.shape.len()).collect();
        let [a, b] = [l.dim0, l.dim1].map(|dim| dimension(dim, dims.len()));
        dims.swap(a, b);
        self.permuted(&x.name, &dims)
    }

    pub(super) fn chunk(&mut self, l: &Chunk, x: &Value) -> String {
        let axis = dimension(l.dim, x.shape.len());
        let size = x.shape[axis];
        // As PyTorch: parts of one size, of which the last may be smaller.
        let each = size.div_ceil(l.chunks);
        let start = each * l.index;
        self.graph.slice(&x.name, axis, start, (start + each).min(size))
    }

    pub(super) fn sliced(&mut self, l: &Slice, x: &Value, out: &[usize]) -> String {
        let axis = dimension(l.dim, x.shape.len());
        let start = dimension(l.start, x.shape[axis]);
        self.graph.slice(&x.name, axis, start, start + out[axis])
    }

    pub(super) fn select(&mut self, l: &Select, x: &Value) -> String {
        let axis = dimension(l.dim, x.shape.len());
        let index = self.graph.index(dimension(l.index, x.shape[axis]));
        self.graph.op("Gather", &[&x.name, &index], [int("axis", axis as i64)])
    }

    pub(super) fn reduced(&mut self, op_type: &str, dim: &Integers, keep: bool, x: &Value) -> String {
        let mut axes: Vec<usize> = dim.0.iter().map(|dim| dimension(*dim, x.shape.len())).collect();
        axes.sort_unstable();
        axes.dedup();
        self.graph.reduce(op_type, &x.name, &axes, keep)
    }

    pub(super) fn roll(&mut self, l: &Roll, x: &Value) -> String {
        let mut y = x.name.clone();
        for (shift, dim) in l.shifts.0.iter().zip(&l.dims.0) {
            let axis = dimension(*dim, x.shape.len());
            let size = x.shape[axis];
            let shift = shift.rem_euclid(size.max(1) as i64) as usize;
            if shift != 0 {
                let parts = [(size - shift, size), (0, size - shift)];
                let [last, first] = parts.map(|(start, end)| self.graph.slice(&y, axis, start, end));
                y = self.graph.op("Concat", &[&last, &first], [int("axis", axis as i64)]);
            }
        }
        y
    }

    pub(super) fn channel_shuffle(&mut self, groups: usize, x: &Value) -> String {
        let mut split = x.shape.clone();
        split.splice(1..=1, [groups, x.shape[1] / groups]);
        let mut dims: Vec<usize> = (0..split.len()).collect();
        dims.swap(1, 2);
        let split = self.graph.reshape(&x.name, &split);
        let shuffled = self.permuted(&split, &dims);
        self.graph.reshape(&shuffled, &x.shape)
    }

    pub(super) fn pixel_shuffle(&mut self, factor: usize, x: &Value) -> String {
        self.graph.op("DepthToSpace", &[&x.name], [int("blocksize", factor as i64), word("mode", "CRD")])
    }

    pub(super) fn pixel_unshuffle(&mut self, factor: usize, x: &Value, out: &[usize]) -> String {
        // `SpaceToDepth` of ONNX has the channels in another order.
        let split = [0, x.shape[1], out[2], factor, out[3], factor];
        let split = self.graph.reshape(&x.name, &split);
        let moved = self.permuted(&split, &[0, 1, 3, 5, 2, 4]);
        self.graph.reshape(&moved, out)
    }

    pub(super) fn padded(&mut self, mode: &str, [left, right, top, bottom]: [usize; 4], x: &Value) -> String {
        let pads = [0, 0, top, left, 0, 0, bottom, right].map(|n| n as i64);
        let pads = self.graph.list(&pads);
        self.graph.op("Pad", &[&x.name, &pads], [word("mode", mode)])
    }

    pub(super) fn upsample(&mut self, l: &Upsample, x: &Value, out: &[usize]) -> String {
        let output = [out[2], out[3]];
        let scale = l.scale_factor.map(|factors| factors.0);
        let whole = (0..2).all(|i| out[i + 2].is_multiple_of(x.shape[i + 2]));
        let mode = match l.mode {
            UpsampleMode::Nearest => ResizeMode::Nearest,
            UpsampleMode::Bilinear => ResizeMode::Bilinear { align_corners: l.align_corners },
        };
        let resize = Resize2d { output, mode, scale };
        let taps = |axis: usize| resize.taps(axis, x.shape[axis + 2]);
        let (mode, places) = match mode {
            // The nearest pixel depends on rounding: where factors are no whole numbers, the pixels are listed.
            ResizeMode::Nearest if !whole => {
                let mut y = x.name.clone();
                for axis in 0..2 {
                    let from: Vec<i64> = taps(axis).iter().map(|tap| tap.at[0] as i64).collect();
                    let from = self.graph.list(&from);
                    y = self.graph.op("Gather", &[&y, &from], [int("axis", axis as i64 + 2)]);
                }
                return y;
            }
            // Factors that the sizes do not have exactly: a product with the weights of pixels.
            ResizeMode::Bilinear { align_corners: false } if scale.is_some() && !whole => {
                let taps = [taps(0), taps(1)];
                return self.resampled(x, out, |axis, o, i| taps[axis - 2][o].weight_of(i));
            }
            ResizeMode::Nearest => ("nearest", "asymmetric"),
            ResizeMode::Bilinear { align_corners: true } => ("linear", "align_corners"),
            ResizeMode::Bilinear { align_corners: false } => ("linear", "half_pixel"),
        };
        let mut attributes =
            vec![word("mode", mode), word("coordinate_transformation_mode", places), ints("axes", [2, 3])];
        if mode == "nearest" {
            attributes.push(word("nearest_mode", "floor"));
        }
        let sizes = self.graph.list(&output.map(|n| n as i64));
        self.graph.op("Resize", &[&x.name, "", "", &sizes], attributes)
    }
}
