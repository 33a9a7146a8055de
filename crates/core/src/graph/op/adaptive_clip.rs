//! Adaptive clipping of gradients (Brock et al. 2021, "High-Performance Large-Scale Image Recognition Without Normalization").

use super::{OpRules, Output, ShapeError, Value, arity, same, singles};
use crate::graph::{DType, Storage};

/// Scales the gradient of each unit of a parameter down whose norm is above `factor` times that of the unit's weights, which counts
/// as `eps` at least. Units are what lies along the first dimension of a tensor as PyTorch has it, the rows of a matrix; a vector is
/// one unit. Operands: schedule (`F32 [4]`), the scale of the loss `[1]` if `scaled`, gradient, parameter. Output: the gradient.
///
/// With `s = 1` if not `scaled`, the norm of a gradient is that of `g · schedule[1] / schedule[2] / s`; what comes out is still to be
/// multiplied by that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdaptiveClip {
    /// Largest norm of a gradient in proportion to that of the weights.
    pub factor: f32,
    /// Least norm of weights.
    pub eps: f32,
    /// The gradients are those of the loss times a scale, an operand.
    pub scaled: bool,
    /// How units lie in memory: elements are `[before, units, after]`.
    pub units: [usize; 3],
}

impl AdaptiveClip {
    /// Least norm that a gradient is divided by.
    pub const LEAST: f64 = 1e-6;

    /// The number of the gradient's operand; the parameter is the next one.
    pub fn gradient(&self) -> usize {
        1 + usize::from(self.scaled)
    }

    /// What a unit's gradient is multiplied with, from the norms of gradient and weights. A norm that is not a number stays one.
    pub fn scale(&self, gradient: f64, weights: f64) -> f64 {
        let limit = weights.max(f64::from(self.eps)) * f64::from(self.factor);
        if gradient < limit {
            return 1.0;
        }
        limit / if gradient < Self::LEAST { Self::LEAST } else { gradient }
    }
}

/// How the units of a variable that is stored so lie in memory: `[before, units, after]`.
///
/// # Errors
/// A unit's elements are mixed with those of others.
pub fn units(storage: &Storage) -> Result<[usize; 3], String> {
    if storage.outside.rank() < 2 || storage.view.is_empty() {
        return Ok([1, 1, storage.view.len()]);
    }
    let mixed = || format!("the rows of {} are not together inside", storage.outside);
    let axes = storage.inside_axes().ok_or_else(mixed)?;
    let product = |axes: &[(usize, usize)]| axes.iter().map(|(_, length)| *length).product::<usize>();
    let is_unit = |(outside, _): &(usize, usize)| *outside == 0;
    let Some(start) = axes.iter().position(is_unit) else { return Ok([1, 1, product(&axes)]) };
    let count = axes[start..].iter().take_while(|axis| is_unit(axis)).count();
    let (before, rest) = axes.split_at(start);
    let (own, after) = rest.split_at(count);
    if after.iter().any(is_unit) {
        return Err(mixed());
    }
    Ok([product(before), product(own), product(after)])
}

impl OpRules for AdaptiveClip {
    fn name(&self) -> &'static str {
        "adaptive_clip"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let gradient = self.gradient();
        arity(self.name(), inputs, gradient + 2)?;
        singles(self.name(), inputs, 0..gradient + 2)?;
        same(self.name(), inputs, gradient, gradient + 1)?;
        let shape = &inputs[gradient].shape;
        if self.units.iter().product::<usize>() != shape.len() {
            return Err(ShapeError::of(gradient, format!("{shape} has no units of {:?}", self.units)));
        }
        Ok(vec![(DType::F32, shape.clone())])
    }

    fn in_place(&self) -> Option<usize> {
        Some(self.gradient())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Shape;

    #[test]
    fn units_are_the_first_dimension_of_pytorch() {
        let of = |storage: Storage| units(&storage).unwrap();
        assert_eq!(of(Storage::plain([7])), [1, 1, 7]);
        assert_eq!(of(Storage::plain(Shape::default())), [1, 1, 1]);
        assert_eq!(of(Storage::plain([5, 3])), [1, 5, 3]);
        assert_eq!(of(Storage::plain([1, 3])), [1, 1, 3]);
        assert_eq!(of(Storage::conv_weight(8, 4, 5, 3)), [1, 8, 60]);
        assert_eq!(of(Storage::linear_after_flatten(6, [5, 4, 3])), [1, 6, 60]);
        assert_eq!(of(Storage::image(2, 5, 3)), [15, 2, 1]);
        let table = Storage { outside: Shape::from([9, 2]), view: Shape::from([9, 2]), perm: vec![1, 0] };
        assert_eq!(of(table), [2, 9, 1]);
    }

    #[test]
    fn norms_decide() {
        let op = AdaptiveClip { factor: 0.5, eps: 0.25, scaled: false, units: [1; 3] };
        assert_eq!([op.scale(0.9, 2.0), op.scale(4.0, 2.0), op.scale(0.5, 0.0)], [1.0, 0.25, 0.25]);
        assert!(op.scale(f64::NAN, 2.0).is_nan());
    }
}
