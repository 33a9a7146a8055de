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
    /// Sine, of radians
    Sin,
    /// Cosine
    Cos,
    /// `x · tanh(softplus(x))` (Misra 2019)
    Mish,
    /// `ln(1 + e^(beta · x)) / beta`, and `x` itself where `beta · x` is above the threshold
    Softplus {
        /// How sharp the bend is; positive.
        beta: f32,
        /// Where it goes over into the identity.
        threshold: f32,
    },
    /// `1.0507 · elu(x)` with an alpha of 1.6733 (Klambauer et al. 2017)
    Selu,
    /// `x` where positive, else `alpha · (e^(x / alpha) − 1)` (Barron 2017)
    Celu {
        /// Minus the limit for very negative inputs; positive.
        alpha: f32,
    },
    /// `x / (1 + |x|)`
    Softsign,
    /// `ln(sigmoid(x))`
    LogSigmoid,
    /// `x − tanh(x)`
    Tanhshrink,
    /// `min(max(x, low), high)`
    Hardtanh {
        /// The least value, below the largest.
        low: f32,
        /// The largest value.
        high: f32,
    },
    /// `x` where `|x| > lambda`, else 0
    Hardshrink {
        /// Not negative.
        lambda: f32,
    },
    /// `x` brought nearer to 0 by `lambda`, and 0 where it is as near as that
    Softshrink {
        /// Not negative.
        lambda: f32,
    },
}

/// SELU's positive slope, of the paper's appendix.
pub const SELU_SCALE: f32 = 1.050_701;
/// SELU's scale for negative inputs, before the slope is applied.
pub const SELU_ALPHA: f32 = 1.673_263_2;

/// The properties of an activation, without its formula.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts {
    /// The name in listings.
    pub name: &'static str,
    /// Its own parameters, as many as it has.
    pub parameters: [Option<f32>; 2],
    /// See [`Activation::grad_from_output`].
    pub grad_from_output: bool,
    /// True if it never decreases, exactly so in floating point, and its derivative is zero where it is flat. Smooth functions
    /// are rounded: two inputs in order may come out of order.
    pub keeps_order: bool,
    /// True if it clamps to `range`: the identity within it, and the nearer end outside.
    pub clamps: bool,
    /// A bound on how steep it is, for tolerances.
    pub steepness: f32,
    /// The least and the largest value, rounded for messages where it does not clamp.
    pub range: [f32; 2],
}

const ALL: [f32; 2] = [f32::NEG_INFINITY, f32::INFINITY];
const NOT_NEGATIVE: [f32; 2] = [0.0, f32::INFINITY];

impl Activation {
    /// Its properties. Under autocast all activations compute in the type that they are given.
    pub fn facts(self) -> Facts {
        let smooth = |name, range| Facts {
            name,
            parameters: [None; 2],
            grad_from_output: false,
            keeps_order: false,
            clamps: false,
            steepness: 2.0,
            range,
        };
        // The derivative is a function of the value.
        let from_value = |name, range| Facts { grad_from_output: true, ..smooth(name, range) };
        let clamp = |name, range| Facts { keeps_order: true, clamps: true, ..from_value(name, range) };
        let with = |parameter, facts| Facts { parameters: [Some(parameter), None], ..facts };
        match self {
            Activation::Relu => clamp("relu", NOT_NEGATIVE),
            Activation::Relu6 => clamp("relu6", [0.0, 6.0]),
            Activation::Hardtanh { low, high } => {
                Facts { parameters: [Some(low), Some(high)], ..clamp("hardtanh", [low, high]) }
            }
            // With a negative slope or scale the output's sign no longer determines the input's.
            Activation::LeakyRelu { slope } => Facts {
                grad_from_output: slope >= 0.0,
                keeps_order: slope > 0.0,
                steepness: slope.abs().max(2.0),
                ..with(slope, smooth("leaky_relu", if slope > 0.0 { ALL } else { NOT_NEGATIVE }))
            },
            Activation::Elu { alpha } => Facts {
                grad_from_output: alpha >= 0.0,
                steepness: alpha.abs().max(2.0),
                ..with(alpha, smooth("elu", [(-alpha).min(0.0), f32::INFINITY]))
            },
            Activation::Celu { alpha } => with(alpha, from_value("celu", [-alpha, f32::INFINITY])),
            Activation::Gelu => smooth("gelu", [-0.17, f32::INFINITY]),
            Activation::GeluTanh => smooth("gelu_tanh", [-0.17, f32::INFINITY]),
            Activation::Silu => smooth("silu", [-0.28, f32::INFINITY]),
            Activation::Tanh => from_value("tanh", [-1.0, 1.0]),
            Activation::Sigmoid => from_value("sigmoid", [0.0, 1.0]),
            Activation::Hardsigmoid => from_value("hardsigmoid", [0.0, 1.0]),
            Activation::Hardswish => smooth("hardswish", [-0.38, f32::INFINITY]),
            Activation::Sin => smooth("sin", [-1.0, 1.0]),
            Activation::Cos => smooth("cos", [-1.0, 1.0]),
            Activation::Mish => smooth("mish", [-0.31, f32::INFINITY]),
            Activation::Softplus { beta, threshold } => {
                Facts { parameters: [Some(beta), Some(threshold)], ..smooth("softplus", NOT_NEGATIVE) }
            }
            Activation::Selu => from_value("selu", [-1.76, f32::INFINITY]),
            // Far out, the value is too close to ±1 to give the derivative.
            Activation::Softsign => smooth("softsign", [-1.0, 1.0]),
            Activation::LogSigmoid => from_value("log_sigmoid", [f32::NEG_INFINITY, 0.0]),
            Activation::Tanhshrink => smooth("tanhshrink", ALL),
            // Both are 0 exactly where they are flat.
            Activation::Hardshrink { lambda } => {
                Facts { keeps_order: true, ..with(lambda, from_value("hardshrink", ALL)) }
            }
            Activation::Softshrink { lambda } => {
                Facts { keeps_order: true, ..with(lambda, from_value("softshrink", ALL)) }
            }
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
