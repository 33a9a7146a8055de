//! Layers with weights: linear, convolutions.

use crate::config::LayerNode;
use crate::config::language::layers::{Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Linear};
use crate::config::language::lists::Padding1d;
use crate::config::language::values::{Groups, Padding};
use crate::onnx::graph::{int, ints};
use crate::onnx::{Translator, Value};

/// What a convolution has along each axis.
struct Window {
    kernel: Vec<usize>,
    stride: Vec<usize>,
    dilation: Vec<usize>,
    /// At all beginnings, then at all ends.
    pads: Vec<usize>,
    groups: Groups,
    bias: bool,
}

/// The zeros of `padding = "same"`: of an odd number the extra one is at the end, as in PyTorch.
fn same(kernel: &[usize], dilation: &[usize]) -> Vec<usize> {
    let total: Vec<usize> = kernel.iter().zip(dilation).map(|(k, d)| d * (k - 1)).collect();
    total.iter().map(|n| n / 2).chain(total.iter().map(|n| n - n / 2)).collect()
}

impl Translator<'_> {
    pub(super) fn linear(&mut self, node: &LayerNode, l: &Linear, x: &Value) -> String {
        let weight = match l.tied() {
            Some(name) => {
                self.used.insert(name.to_owned());
                name.to_owned()
            }
            None => self.parameter(node, "weight"),
        };
        let bias = l.bias.then(|| self.parameter(node, "bias"));
        if l.transposed {
            let y = self.graph.op("MatMul", &[&x.name, &weight], []);
            return bias.map_or(y.clone(), |bias| self.graph.op("Add", &[&y, &bias], []));
        }
        if x.shape.len() == 2 {
            let operands: Vec<&str> = [x.name.as_str(), &weight].into_iter().chain(bias.as_deref()).collect();
            return self.graph.op("Gemm", &operands, [int("transB", 1)]);
        }
        self.product(&x.name, &weight, bias.as_deref())
    }

    /// `x` times the transposed matrix `weight`, and plus `bias`, over the last dimension.
    pub(super) fn product(&mut self, x: &str, weight: &str, bias: Option<&str>) -> String {
        let weight = self.permuted(weight, &[1, 0]);
        let y = self.graph.op("MatMul", &[x, &weight], []);
        match bias {
            Some(bias) => self.graph.op("Add", &[&y, bias], []),
            None => y,
        }
    }

    pub(super) fn conv2d(&mut self, node: &LayerNode, l: &Conv2d, x: &Value) -> String {
        let pads = match l.padding {
            Padding::Explicit(p) => p.0.repeat(2),
            Padding::Same => same(&l.kernel_size.0, &l.dilation.0),
        };
        let window = Window {
            kernel: l.kernel_size.0.into(),
            stride: l.stride.0.into(),
            dilation: l.dilation.0.into(),
            pads,
            groups: l.groups,
            bias: l.bias,
        };
        self.conv("Conv", node, window, None, x)
    }

    pub(super) fn conv1d(&mut self, node: &LayerNode, l: &Conv1d, x: &Value) -> String {
        let (kernel, dilation) = (vec![l.kernel_size], vec![l.dilation]);
        let pads = match l.padding {
            Padding1d::Explicit(p) => vec![p; 2],
            Padding1d::Same => same(&kernel, &dilation),
        };
        let window = Window { kernel, stride: vec![l.stride], dilation, pads, groups: l.groups, bias: l.bias };
        self.conv("Conv", node, window, None, x)
    }

    pub(super) fn conv_transpose2d(&mut self, node: &LayerNode, l: &ConvTranspose2d, x: &Value) -> String {
        let window = Window {
            kernel: l.kernel_size.0.into(),
            stride: l.stride.0.into(),
            dilation: l.dilation.0.into(),
            pads: l.padding.0.repeat(2),
            groups: l.groups,
            bias: l.bias,
        };
        self.conv("ConvTranspose", node, window, Some(l.output_padding.0.into()), x)
    }

    pub(super) fn conv_transpose1d(&mut self, node: &LayerNode, l: &ConvTranspose1d, x: &Value) -> String {
        let window = Window {
            kernel: vec![l.kernel_size],
            stride: vec![l.stride],
            dilation: vec![l.dilation],
            pads: vec![l.padding; 2],
            groups: l.groups,
            bias: l.bias,
        };
        self.conv("ConvTranspose", node, window, Some(vec![l.output_padding]), x)
    }

    fn conv(
        &mut self,
        op_type: &str,
        node: &LayerNode,
        l: Window,
        output_padding: Option<Vec<usize>>,
        x: &Value,
    ) -> String {
        let groups = match l.groups {
            Groups::Count(n) => n,
            Groups::InChannels => x.shape[1],
        };
        let mut attributes = vec![
            ints("kernel_shape", l.kernel),
            ints("strides", l.stride),
            ints("pads", l.pads),
            ints("dilations", l.dilation),
            int("group", groups as i64),
        ];
        attributes.extend(output_padding.map(|padding| ints("output_padding", padding)));
        let weight = self.parameter(node, "weight");
        let bias = l.bias.then(|| self.parameter(node, "bias"));
        let operands: Vec<&str> = [x.name.as_str(), &weight].into_iter().chain(bias.as_deref()).collect();
        self.graph.op(op_type, &operands, attributes)
    }
}
