//! Pooling.

use crate::config::language::layers::{AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d};
use crate::onnx::graph::{int, ints};
use crate::onnx::{Translator, Value};

/// Windows along each axis.
struct Windows {
    kernel: Vec<usize>,
    stride: Vec<usize>,
    /// On each side.
    padding: Vec<usize>,
    dilation: Vec<usize>,
}

impl Windows {
    /// What stands at the ends of an input so that there are as many windows as PyTorch has: with `ceil_mode` more than at the
    /// beginnings, and never a window that begins after the input, which runtimes disagree about.
    fn ends(&self, input: &[usize], output: &[usize]) -> Vec<usize> {
        let end = |i: usize| {
            let covers = self.dilation[i] * (self.kernel[i] - 1) + 1;
            let (before, step) = (self.padding[i], self.stride[i]);
            let whole = (input[i] + 2 * before).checked_sub(covers).map(|room| room / step + 1);
            match whole == Some(output[i]) {
                true => before,
                false => ((output[i] - 1) * step + covers).saturating_sub(input[i] + before),
            }
        };
        (0..input.len()).map(end).collect()
    }

    fn attributes(&self, ends: &[usize]) -> Vec<crate::onnx::graph::Attribute> {
        vec![
            ints("kernel_shape", self.kernel.iter().copied()),
            ints("strides", self.stride.iter().copied()),
            ints("pads", self.padding.iter().chain(ends).copied()),
        ]
    }
}

/// The positions of window `i` of `output` adaptive ones: the first, and the one after the last.
fn adaptive(i: usize, input: usize, output: usize) -> (usize, usize) {
    (i * input / output, ((i + 1) * input).div_ceil(output))
}

impl Translator<'_> {
    pub(super) fn max_pool2d(&mut self, l: &MaxPool2d, x: &Value, out: &[usize]) -> String {
        let windows = Windows {
            kernel: l.kernel_size.0.into(),
            stride: l.stride().0.into(),
            padding: l.padding.0.into(),
            dilation: l.dilation.0.into(),
        };
        self.max_pool(windows, x, out)
    }

    pub(super) fn max_pool1d(&mut self, l: &MaxPool1d, x: &Value, out: &[usize]) -> String {
        let windows = Windows {
            kernel: vec![l.kernel_size],
            stride: vec![l.stride.unwrap_or(l.kernel_size)],
            padding: vec![l.padding],
            dilation: vec![l.dilation],
        };
        self.max_pool(windows, x, out)
    }

    fn max_pool(&mut self, mut windows: Windows, x: &Value, out: &[usize]) -> String {
        let mut ends = windows.ends(&x.shape[2..], &out[2..]);
        let mut name = x.name.clone();
        // ONNX has padding smaller than the kernel alone.
        if ends.iter().zip(&windows.kernel).any(|(end, kernel)| end >= kernel) {
            name = self.surrounded(x, f32::NEG_INFINITY, &windows.padding, &ends);
            windows.padding.fill(0);
            ends.fill(0);
        }
        let mut attributes = windows.attributes(&ends);
        attributes.push(ints("dilations", windows.dilation));
        self.graph.op("MaxPool", &[&name], attributes)
    }

    pub(super) fn avg_pool2d(&mut self, l: &AvgPool2d, x: &Value, out: &[usize]) -> String {
        let windows = Windows {
            kernel: l.kernel_size.0.into(),
            stride: l.stride().0.into(),
            padding: l.padding.0.into(),
            dilation: vec![1; 2],
        };
        self.avg_pool(windows, l.count_include_pad, x, out)
    }

    pub(super) fn avg_pool1d(&mut self, l: &AvgPool1d, x: &Value, out: &[usize]) -> String {
        let windows = Windows {
            kernel: vec![l.kernel_size],
            stride: vec![l.stride.unwrap_or(l.kernel_size)],
            padding: vec![l.padding],
            dilation: vec![1],
        };
        self.avg_pool(windows, l.count_include_pad, x, out)
    }

    fn avg_pool(&mut self, mut windows: Windows, include: bool, x: &Value, out: &[usize]) -> String {
        let mut ends = windows.ends(&x.shape[2..], &out[2..]);
        let mut name = x.name.clone();
        let mut include = include && windows.padding.iter().any(|n| *n > 0);
        // What is beyond the padding counts never, and the padding itself may count: then it is put there beforehand.
        if include && ends != windows.padding {
            let padding = std::mem::replace(&mut windows.padding, vec![0; ends.len()]);
            name = self.surrounded(x, 0.0, &padding, &padding);
            ends.iter_mut().zip(&padding).for_each(|(end, there)| *end = end.saturating_sub(*there));
            include = false;
        }
        let mut attributes = windows.attributes(&ends);
        attributes.push(int("count_include_pad", include.into()));
        self.graph.op("AveragePool", &[&name], attributes)
    }

    /// `x` with `value` around it, `before` and `after` along each axis behind the channels.
    fn surrounded(&mut self, x: &Value, value: f32, before: &[usize], after: &[usize]) -> String {
        let pads = [&[0, 0], before, &[0, 0], after].concat();
        let pads: Vec<i64> = pads.into_iter().map(|n| n as i64).collect();
        let (pads, value) = (self.graph.list(&pads), self.graph.scalar(value));
        self.graph.op("Pad", &[&x.name, &pads, &value], [])
    }

    /// Windows of one size that make up the whole input, if adaptive pooling has those.
    fn even(x: &Value, out: &[usize]) -> Option<Vec<crate::onnx::graph::Attribute>> {
        let sizes = || x.shape[2..].iter().zip(&out[2..]);
        let kernel = || sizes().map(|(input, output)| input / output);
        let fits = sizes().all(|(input, output)| input % output == 0);
        fits.then(|| vec![ints("kernel_shape", kernel()), ints("strides", kernel())])
    }

    pub(super) fn adaptive_avg_pool(&mut self, x: &Value, out: &[usize]) -> String {
        if x.shape[2..] == out[2..] {
            return x.name.clone();
        }
        if out[2..].iter().all(|n| *n == 1) {
            return self.graph.op("GlobalAveragePool", &[&x.name], []);
        }
        if let Some(attributes) = Self::even(x, out) {
            return self.graph.op("AveragePool", &[&x.name], attributes);
        }
        let windows = |axis: usize, o: usize| adaptive(o, x.shape[axis], out[axis]);
        self.resampled(x, out, |axis, o, i| match windows(axis, o) {
            (start, end) if (start..end).contains(&i) => 1.0 / (end - start) as f32,
            _ => 0.0,
        })
    }

    /// Sums along each axis behind the channels, in which position `i` of axis `a` has the weight `weight(a, o, i)` for output `o`:
    /// a product with a matrix for each axis.
    pub(super) fn resampled(
        &mut self,
        x: &Value,
        out: &[usize],
        weight: impl Fn(usize, usize, usize) -> f32,
    ) -> String {
        let mut y = x.name.clone();
        for (axis, (input, output)) in x.shape.iter().copied().zip(out.iter().copied()).enumerate().skip(2) {
            // Rows are multiplied from the left, the last axis from the right.
            let last = axis + 1 == x.shape.len();
            let (shape, step) = if last { ([input, output], output) } else { ([output, input], input) };
            let place = |at: usize| if last { (at % step, at / step) } else { (at / step, at % step) };
            let weights: Vec<f32> = (0..input * output).map(place).map(|(o, i)| weight(axis, o, i)).collect();
            let weights = self.graph.floats(&shape, &weights);
            let operands = if last { [y.as_str(), &weights] } else { [weights.as_str(), &y] };
            y = self.graph.op("MatMul", &operands, []);
        }
        y
    }

    pub(super) fn adaptive_max_pool(&mut self, x: &Value, out: &[usize]) -> String {
        if x.shape[2..] == out[2..] {
            return x.name.clone();
        }
        if out[2..].iter().all(|n| *n == 1) {
            return self.graph.op("GlobalMaxPool", &[&x.name], []);
        }
        if let Some(attributes) = Self::even(x, out) {
            return self.graph.op("MaxPool", &[&x.name], attributes);
        }
        let mut y = x.name.clone();
        for (axis, (input, output)) in x.shape.iter().copied().zip(out.iter().copied()).enumerate().skip(2) {
            let window = |i| adaptive(i, input, output);
            let parts: Vec<String> = (0..output)
                .map(window)
                .map(|(start, end)| {
                    let part = self.graph.slice(&y, axis, start, end);
                    self.graph.reduce("ReduceMax", &part, &[axis], true)
                })
                .collect();
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            y = self.graph.op("Concat", &parts, [int("axis", axis as i64)]);
        }
        y
    }
}
