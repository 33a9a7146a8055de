//! Normalisation.

use crate::config::LayerNode;
use crate::config::language::layers::{GroupNorm, InstanceNorm2d, LayerNorm, LocalResponseNorm, RmsNorm};
use crate::onnx::graph::{float, int, ints};
use crate::onnx::{Translator, Value};

impl Translator<'_> {
    /// The factors and the sums of a normalisation: learned, or ones and zeros.
    fn scale_and_shift(&mut self, node: &LayerNode, affine: bool, channels: usize) -> [String; 2] {
        match affine {
            true => [self.parameter(node, "weight"), self.parameter(node, "bias")],
            false => [1.0, 0.0].map(|value| self.graph.floats(&[channels], &vec![value; channels])),
        }
    }

    /// `x` by the learned factors of each channel, and plus the learned sums.
    fn scaled_and_shifted(&mut self, node: &LayerNode, x: &str, rank: usize) -> String {
        let [weight, bias] = ["weight", "bias"].map(|name| self.parameter(node, name));
        let [weight, bias] = [weight, bias].map(|name| self.graph.per_channel(&name, rank));
        let y = self.graph.op("Mul", &[x, &weight], []);
        self.graph.op("Add", &[&y, &bias], [])
    }

    pub(super) fn batch_norm(
        &mut self,
        node: &LayerNode,
        eps: f64,
        affine: bool,
        track_running_stats: bool,
        x: &Value,
    ) -> String {
        if track_running_stats {
            let [scale, shift] = self.scale_and_shift(node, affine, x.shape[1]);
            let [mean, var] = ["running_mean", "running_var"].map(|name| self.parameter(node, name));
            let operands = [x.name.as_str(), &scale, &shift, &mean, &var];
            return self.graph.op("BatchNormalization", &operands, [float("epsilon", eps as f32)]);
        }
        // The statistics of the batch that is given.
        let axes: Vec<usize> = (0..x.shape.len()).filter(|axis| *axis != 1).collect();
        let mean = self.graph.mean(&x.name, &axes);
        let centred = self.graph.op("Sub", &[&x.name, &mean], []);
        let y = self.by_root_of_mean_square(&centred, &axes, eps);
        if affine { self.scaled_and_shifted(node, &y, x.shape.len()) } else { y }
    }

    /// `x / sqrt(mean(x²) + eps)`, the mean being over `axes`.
    fn by_root_of_mean_square(&mut self, x: &str, axes: &[usize], eps: f64) -> String {
        let square = self.graph.op("Mul", &[x, x], []);
        let mean = self.graph.mean(&square, axes);
        let sum = self.graph.with_scalar("Add", &mean, eps as f32);
        let root = self.graph.op("Sqrt", &[&sum], []);
        self.graph.op("Div", &[x, &root], [])
    }

    pub(super) fn group_norm(&mut self, node: &LayerNode, l: &GroupNorm, x: &Value) -> String {
        let numbers: usize = x.shape[1..].iter().product();
        let groups = self.graph.reshape(&x.name, &[0, l.num_groups, numbers / l.num_groups]);
        let [scale, shift] = self.scale_and_shift(node, false, l.num_groups);
        let normalised =
            self.graph.op("InstanceNormalization", &[&groups, &scale, &shift], [float("epsilon", l.eps as f32)]);
        let y = self.graph.reshape(&normalised, &x.shape);
        if l.affine { self.scaled_and_shifted(node, &y, x.shape.len()) } else { y }
    }

    pub(super) fn instance_norm(&mut self, node: &LayerNode, l: &InstanceNorm2d, x: &Value) -> String {
        let [scale, shift] = self.scale_and_shift(node, l.affine, x.shape[1]);
        self.graph.op("InstanceNormalization", &[&x.name, &scale, &shift], [float("epsilon", l.eps as f32)])
    }

    pub(super) fn layer_norm(&mut self, node: &LayerNode, l: &LayerNorm, x: &Value) -> String {
        let tail = &x.shape[x.shape.len() - l.normalized_dims..];
        let scale = match l.elementwise_affine {
            true => self.parameter(node, "weight"),
            false => self.graph.floats(tail, &vec![1.0; tail.iter().product()]),
        };
        let shift = (l.elementwise_affine && l.bias).then(|| self.parameter(node, "bias"));
        let operands: Vec<&str> = [x.name.as_str(), &scale].into_iter().chain(shift.as_deref()).collect();
        let attributes = [int("axis", -(l.normalized_dims as i64)), float("epsilon", l.eps as f32)];
        self.graph.op("LayerNormalization", &operands, attributes)
    }

    pub(super) fn rms_norm(&mut self, node: &LayerNode, l: &RmsNorm, x: &Value) -> String {
        let rank = x.shape.len();
        let axes: Vec<usize> = (rank - l.normalized_dims..rank).collect();
        let y = self.by_root_of_mean_square(&x.name, &axes, l.eps);
        if !l.elementwise_affine {
            return y;
        }
        let weight = self.parameter(node, "weight");
        self.graph.op("Mul", &[&y, &weight], [])
    }

    pub(super) fn local_response_norm(&mut self, l: &LocalResponseNorm, x: &Value) -> String {
        let size = l.size;
        if x.shape.len() == 4 && size % 2 == 1 {
            let attributes = [
                int("size", size as i64),
                float("alpha", l.alpha as f32),
                float("beta", l.beta as f32),
                float("bias", l.k as f32),
            ];
            return self.graph.op("LRN", &[&x.name], attributes);
        }
        // ONNX Runtime has it for images and odd sizes alone: else it is the mean over windows of channels.
        let square = self.graph.op("Mul", &[&x.name, &x.name], []);
        let (channels, rest) = (x.shape[1], x.shape[2..].iter().product());
        let image = self.graph.reshape(&square, &[0, 1, channels, rest]);
        let attributes = [
            ints("kernel_shape", [size, 1]),
            ints("strides", [1, 1]),
            ints("pads", [size / 2, 0, (size - 1) / 2, 0]),
            int("count_include_pad", 1),
        ];
        let mean = self.graph.op("AveragePool", &[&image], attributes);
        let mean = self.graph.reshape(&mean, &x.shape);
        let scaled = self.graph.with_scalar("Mul", &mean, l.alpha as f32);
        let sum = self.graph.with_scalar("Add", &scaled, l.k as f32);
        let power = self.graph.with_scalar("Pow", &sum, l.beta as f32);
        self.graph.op("Div", &[&x.name, &power], [])
    }
}
