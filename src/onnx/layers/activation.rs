//! Activations.

use super::dimension;
use crate::config::LayerNode;
use crate::config::language::layers::Gated;
use crate::graph::op::{Activation, SELU_ALPHA, SELU_SCALE};
use crate::onnx::graph::{float, int};
use crate::onnx::{Translator, Value};

/// Where a softplus is `x` itself to single precision.
const STRAIGHT: f32 = 17.0;

impl Translator<'_> {
    pub(super) fn activation(&mut self, activation: Activation, x: &str) -> String {
        let g = &mut self.graph;
        match activation {
            Activation::Relu => g.op("Relu", &[x], []),
            Activation::Relu6 => self.clip(x, 0.0, 6.0),
            Activation::Hardtanh { low, high } => self.clip(x, low, high),
            Activation::LeakyRelu { slope } => g.op("LeakyRelu", &[x], [float("alpha", slope)]),
            Activation::Elu { alpha } => g.op("Elu", &[x], [float("alpha", alpha)]),
            Activation::Celu { alpha } => g.op("Celu", &[x], [float("alpha", alpha)]),
            Activation::Selu => g.op("Selu", &[x], [float("alpha", SELU_ALPHA), float("gamma", SELU_SCALE)]),
            Activation::Gelu => {
                // 0.5 x (1 + erf(x / √2)): runtimes know it by these operators.
                let scaled = g.with_scalar("Div", x, std::f32::consts::SQRT_2);
                let erf = g.op("Erf", &[&scaled], []);
                let sum = g.with_scalar("Add", &erf, 1.0);
                let product = g.op("Mul", &[x, &sum], []);
                g.with_scalar("Mul", &product, 0.5)
            }
            Activation::GeluTanh => {
                let square = g.op("Mul", &[x, x], []);
                let cube = g.op("Mul", &[&square, x], []);
                let part = g.with_scalar("Mul", &cube, 0.044_715);
                let sum = g.op("Add", &[x, &part], []);
                let scaled = g.with_scalar("Mul", &sum, (2.0 / std::f32::consts::PI).sqrt());
                let tanh = g.op("Tanh", &[&scaled], []);
                let sum = g.with_scalar("Add", &tanh, 1.0);
                let product = g.op("Mul", &[x, &sum], []);
                g.with_scalar("Mul", &product, 0.5)
            }
            Activation::Silu => {
                let sigmoid = g.op("Sigmoid", &[x], []);
                g.op("Mul", &[x, &sigmoid], [])
            }
            Activation::Tanh => g.op("Tanh", &[x], []),
            Activation::Sigmoid => g.op("Sigmoid", &[x], []),
            Activation::Sin => g.op("Sin", &[x], []),
            Activation::Cos => g.op("Cos", &[x], []),
            Activation::Hardsigmoid => g.op("HardSigmoid", &[x], [float("alpha", 1.0 / 6.0), float("beta", 0.5)]),
            Activation::Hardswish => g.op("HardSwish", &[x], []),
            Activation::Mish => {
                let softplus = g.op("Softplus", &[x], []);
                let tanh = g.op("Tanh", &[&softplus], []);
                g.op("Mul", &[x, &tanh], [])
            }
            Activation::Softplus { beta, threshold } => {
                let one = beta == 1.0;
                let scaled = if one { x.to_owned() } else { g.with_scalar("Mul", x, beta) };
                let softplus = g.op("Softplus", &[&scaled], []);
                let y = if one { softplus } else { g.with_scalar("Div", &softplus, beta) };
                if threshold >= STRAIGHT {
                    return y;
                }
                let above = g.with_scalar("Greater", &scaled, threshold);
                g.op("Where", &[&above, x, &y], [])
            }
            Activation::Softsign => g.op("Softsign", &[x], []),
            Activation::LogSigmoid => {
                let minus = g.op("Neg", &[x], []);
                let softplus = g.op("Softplus", &[&minus], []);
                g.op("Neg", &[&softplus], [])
            }
            Activation::Tanhshrink => {
                let tanh = g.op("Tanh", &[x], []);
                g.op("Sub", &[x, &tanh], [])
            }
            Activation::Hardshrink { lambda } => g.op("Shrink", &[x], [float("lambd", lambda), float("bias", 0.0)]),
            Activation::Softshrink { lambda } => g.op("Shrink", &[x], [float("lambd", lambda), float("bias", lambda)]),
        }
    }

    fn clip(&mut self, x: &str, low: f32, high: f32) -> String {
        let [low, high] = [low, high].map(|value| self.graph.scalar(value));
        self.graph.op("Clip", &[x, &low, &high], [])
    }

    pub(super) fn prelu(&mut self, node: &LayerNode, parameters: usize, x: &Value) -> String {
        let weight = self.parameter(node, "weight");
        // One factor goes with everything as it is.
        let slope = if parameters == 1 { weight } else { self.graph.per_channel(&weight, x.shape.len()) };
        self.graph.op("PRelu", &[&x.name, &slope], [])
    }

    pub(super) fn gated(&mut self, l: Gated, x: &Value) -> String {
        let axis = dimension(l.dim, x.shape.len());
        let half = (x.shape[axis] / 2) as i64;
        let halves = self.graph.list(&[half, half]);
        let mut parts: [String; 2] = self.graph.ops("Split", &[&x.name, &halves], [int("axis", axis as i64)]);
        parts[l.gate] = self.activation(l.act, &parts[l.gate]);
        self.graph.op("Mul", &[&parts[0], &parts[1]], [])
    }
}
