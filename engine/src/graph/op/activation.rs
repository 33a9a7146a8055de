//! Activations and their properties, each described once. Formula and derivative are one line in each backend.

/// An element-wise function, named and defined as in `torch.nn`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `min(max(x, 0), 6)`
    Relu6,
    /// `x` where positive, else `slope · x`
    LeakyRelu {
        /// Slope for negative inputs.
        slope: f32,
    },
    /// `x` where positive, else `alpha · (eˣ − 1)`
    Elu {
        /// Scale for negative inputs.
        alpha: f32,
    },
    /// `x · Φ(x)` with the error function (Hendrycks & Gimpel 2016)
    Gelu,
    /// GELU's approximation by tanh: `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`
    GeluTanh,
    /// `x · sigmoid(x)` (Elfwing et al. 2017)
    Silu,
    /// Hyperbolic tangent
    Tanh,
    /// `1 / (1 + e⁻ˣ)`
    Sigmoid,
    /// `min(max(x + 3, 0), 6) / 6`
    Hardsigmoid,
    /// `x · hardsigmoid(x)` (Howard et al. 2019)
    Hardswish,
}

/// The properties of an activation, without its formula.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts {
    /// The name in listings.
    pub name: &'static str,
    /// The number that kernels on a GPU know it by: `enum Activation` in `kernels/common.cuh`.
    pub code: u32,
    /// Its parameter, if it has one.
    pub parameter: Option<f32>,
    /// See [`Activation::grad_from_output`].
    pub grad_from_output: bool,
    /// True if it never decreases, exactly so in floating point, and its derivative is zero where it is flat. Smooth functions
    /// are rounded: two inputs in order may come out of order.
    pub keeps_order: bool,
    /// True if it clamps to `range`: the identity within it, and the nearer end outside.
    pub clamps: bool,
    /// The least and the largest value, rounded for messages.
    pub range: [f32; 2],
}

const ALL: [f32; 2] = [f32::NEG_INFINITY, f32::INFINITY];
const NOT_NEGATIVE: [f32; 2] = [0.0, f32::INFINITY];

impl Activation {
    /// Its properties. Under autocast all activations compute in the type that they are given.
    pub fn facts(self) -> Facts {
        let smooth = |name, code, range| Facts {
            name,
            code,
            parameter: None,
            grad_from_output: false,
            keeps_order: false,
            clamps: false,
            range,
        };
        // The derivative is a function of the value.
        let from_value = |name, code, range| Facts { grad_from_output: true, ..smooth(name, code, range) };
        let clamp = |name, code, range| Facts { keeps_order: true, clamps: true, ..from_value(name, code, range) };
        match self {
            Activation::Relu => clamp("relu", 1, NOT_NEGATIVE),
            Activation::Relu6 => clamp("relu6", 2, [0.0, 6.0]),
            // With a negative slope or scale the output's sign no longer determines the input's.
            Activation::LeakyRelu { slope } => Facts {
                parameter: Some(slope),
                grad_from_output: slope >= 0.0,
                keeps_order: slope > 0.0,
                ..smooth("leaky_relu", 3, if slope > 0.0 { ALL } else { NOT_NEGATIVE })
            },
            Activation::Elu { alpha } => Facts {
                parameter: Some(alpha),
                grad_from_output: alpha >= 0.0,
                ..smooth("elu", 4, [(-alpha).min(0.0), f32::INFINITY])
            },
            Activation::Gelu => smooth("gelu", 5, [-0.17, f32::INFINITY]),
            Activation::GeluTanh => smooth("gelu_tanh", 6, [-0.17, f32::INFINITY]),
            Activation::Silu => smooth("silu", 7, [-0.28, f32::INFINITY]),
            Activation::Tanh => from_value("tanh", 8, [-1.0, 1.0]),
            Activation::Sigmoid => from_value("sigmoid", 9, [0.0, 1.0]),
            Activation::Hardsigmoid => from_value("hardsigmoid", 10, [0.0, 1.0]),
            Activation::Hardswish => smooth("hardswish", 11, [-0.38, f32::INFINITY]),
        }
    }

    /// The layer's name.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// True if the derivative is computed from the function's output, false if from its input. The former can be
    /// fused into the operation before it, whose own output then need not be kept.
    pub fn grad_from_output(self) -> bool {
        self.facts().grad_from_output
    }
}
