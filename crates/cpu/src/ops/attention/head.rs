//! Where a head's operands and results begin.

use super::rows::Mask;

/// Of the forward pass.
pub struct Head {
    /// First query, key and value.
    pub qkv: [*const f32; 3],
    /// First row of the result.
    pub y: *mut f32,
    /// First logarithm.
    pub lse: *mut f32,
    /// What is added to the scores; null if nothing is.
    pub bias: *const f32,
    /// What is left out, the rows being those of this head.
    pub mask: Mask,
}

/// Of the backward pass.
pub struct HeadGrad {
    /// First query, key and value.
    pub qkv: [*const f32; 3],
    /// First row of the result, and of the gradient by it.
    pub y: *const f32,
    pub dy: *const f32,
    /// First logarithm.
    pub lse: *const f32,
    /// The gradients by the first query, key and value.
    pub dqkv: [*mut f32; 3],
    /// What is added to the scores, and the sum of the gradients by it, to which this head's are added; null if nothing is.
    pub bias: *const f32,
    pub dbias: *mut f32,
    /// What is left out, the rows being those of this head.
    pub mask: Mask,
}
