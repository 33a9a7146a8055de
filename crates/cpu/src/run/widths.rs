//! Kernels over floats that lie in memory as they are or rounded to bf16.

use super::frame::Element;
use crate::simd::lanes::Lane;
use half::bf16;

/// An element type that floats have in memory.
pub trait Float: Element + Lane {}

impl Float for f32 {}
impl Float for bf16 {}

/// Runs an expression with the types that the first operand and the first result of a frame have in memory, floats in either width.
macro_rules! in_each_width {
    ($frame:expr, $x:ident, $y:ident => $body:expr) => {{
        use $crate::graph::DType::BF16;
        match ($frame.input_dtype(0) == BF16, $frame.output_dtype(0) == BF16) {
            (false, false) => $crate::run::widths::in_each_width!(f32, f32, $x, $y => $body),
            (false, true) => $crate::run::widths::in_each_width!(f32, half::bf16, $x, $y => $body),
            (true, false) => $crate::run::widths::in_each_width!(half::bf16, f32, $x, $y => $body),
            (true, true) => $crate::run::widths::in_each_width!(half::bf16, half::bf16, $x, $y => $body),
        }
    }};
    ($of_x:ty, $of_y:ty, $x:ident, $y:ident => $body:expr) => {{
        type $x = $of_x;
        type $y = $of_y;
        $body
    }};
}
pub(crate) use in_each_width;
