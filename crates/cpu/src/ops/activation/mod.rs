//! The activation functions and their derivatives over vectors, each named as in [`crate::graph::op::Activation`].

mod piecewise;
mod smooth;

pub use piecewise::*;
pub use smooth::*;

use crate::simd::Simd;

/// A function of one number, applied to vectors. A NaN stays a NaN.
pub trait Function: Copy + Send + Sync {
    /// The value.
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V;

    /// The gradient by the input, of `dy` by the output. `saved` is the output where
    /// [`crate::graph::op::Activation::grad_from_output`], else the input.
    fn gradient<S: Simd>(self, s: S, saved: S::V, dy: S::V) -> S::V;
}

/// Evaluates `$body` with `$f` bound to the [`Function`] that `$act` (an `Option<Activation>`) names; for `None`
/// that is [`Identity`].
macro_rules! with_activation {
    ($act:expr, $f:ident => $body:expr) => {{
        use $crate::graph::op::Activation;
        use $crate::ops::activation as functions;
        match $act {
            None => {
                let $f = functions::Identity;
                $body
            }
            Some(Activation::Relu) => {
                let $f = functions::Relu;
                $body
            }
            Some(Activation::Relu6) => {
                let $f = functions::Relu6;
                $body
            }
            Some(Activation::LeakyRelu { slope }) => {
                let $f = functions::LeakyRelu { slope };
                $body
            }
            Some(Activation::Elu { alpha }) => {
                let $f = functions::Elu { alpha };
                $body
            }
            Some(Activation::Gelu) => {
                let $f = functions::Gelu;
                $body
            }
            Some(Activation::GeluTanh) => {
                let $f = functions::GeluTanh;
                $body
            }
            Some(Activation::Silu) => {
                let $f = functions::Silu;
                $body
            }
            Some(Activation::Tanh) => {
                let $f = functions::Tanh;
                $body
            }
            Some(Activation::Sigmoid) => {
                let $f = functions::Sigmoid;
                $body
            }
            Some(Activation::Sin) => {
                let $f = functions::Sin;
                $body
            }
            Some(Activation::Cos) => {
                let $f = functions::Cos;
                $body
            }
            Some(Activation::Hardsigmoid) => {
                let $f = functions::Hardsigmoid;
                $body
            }
            Some(Activation::Hardswish) => {
                let $f = functions::Hardswish;
                $body
            }
            Some(Activation::Mish) => {
                let $f = functions::Mish;
                $body
            }
            Some(Activation::Softplus { beta, threshold }) => {
                let $f = functions::Softplus { beta, threshold };
                $body
            }
            Some(Activation::Selu) => {
                let $f = functions::ScaledElu::SELU;
                $body
            }
            Some(Activation::Celu { alpha }) => {
                let $f = functions::ScaledElu::celu(alpha);
                $body
            }
            Some(Activation::Softsign) => {
                let $f = functions::Softsign;
                $body
            }
            Some(Activation::LogSigmoid) => {
                let $f = functions::LogSigmoid;
                $body
            }
            Some(Activation::Tanhshrink) => {
                let $f = functions::Tanhshrink;
                $body
            }
            Some(Activation::Hardtanh { low, high }) => {
                let $f = functions::Hardtanh { low, high };
                $body
            }
            Some(Activation::Hardshrink { lambda }) => {
                let $f = functions::Hardshrink { lambda };
                $body
            }
            Some(Activation::Softshrink { lambda }) => {
                let $f = functions::Softshrink { lambda };
                $body
            }
        }
    }};
}
pub(crate) use with_activation;
