//! What is done to gradients before the update.

/// What is done to gradients before a rule sees them, as in [`super::OptimizerStep`]. Its operands come first: schedule (`F32
/// [4]`), loss `[1]`, `norm [1]` if `clip_norm` or `scaled`, the scale `[1]` if `scaled`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Clipping {
    /// Largest norm of all gradients together.
    pub clip_norm: Option<f32>,
    /// Largest absolute value of an element of a gradient.
    pub clip_value: Option<f32>,
    /// The gradients are those of the loss times a scale.
    pub scaled: bool,
}

impl Clipping {
    /// True if the norm of the gradients is an operand.
    pub fn has_norm(&self) -> bool {
        self.clip_norm.is_some() || self.scaled
    }

    /// Number of operands.
    pub fn operands(&self) -> usize {
        2 + usize::from(self.has_norm()) + usize::from(self.scaled)
    }
}
