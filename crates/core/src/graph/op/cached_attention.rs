//! Attention to the positions before, whose keys and values are kept: for text that is written position by position.

use super::{OpRules, Output, ShapeError, Value, arity, singles};
use crate::graph::{DType, Shape};

/// Attention as [`super::Attention`] with `causal`, of T new positions of each sample to those before and to themselves. Operands: `qkv
/// [N, T, (heads + 2 · kv_heads) · d]`, in each row the queries, the keys and the values of the new positions, heads of `d` floats one after
/// the other; the `keys` and `values [N, C, kv_heads · d]` of the positions so far, both updated in place; and `position [N]` (`I32`), how many
/// these are. The others are `F32`. Output: `[N, T, heads · d]` (`F32`). Of several heads for one of the keys and values the neighbours share
/// one (Ainslie et al. 2023, *GQA*).
///
/// New keys and values become the rows `position ..` of the kept ones; then the new position i sees their rows `0 ..= position + i`. What has no
/// place among the C rows, or would be before them, is not kept and not seen; a position that sees nothing has NaN as its result. `window` and
/// `alibi` are as those of [`super::Attention`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CachedAttention {
    /// Number of heads.
    pub heads: usize,
    /// Heads of the keys and values; divides the number of heads.
    pub kv_heads: usize,
    /// Positions so far before another one are not seen by it; at least 1.
    pub window: Option<usize>,
    /// What is far counts less.
    pub alibi: bool,
}

/// The width `d` of the heads of a packed operand.
pub(super) fn head_width(name: &str, qkv: &Shape, heads: usize, kv_heads: usize) -> Result<usize, ShapeError> {
    let all = heads.saturating_add(kv_heads.saturating_mul(2));
    let divided = kv_heads > 0 && heads > 0 && heads.is_multiple_of(kv_heads);
    match *qkv.dims() {
        [_, _, packed] if divided && packed > 0 && packed.is_multiple_of(all) => Ok(packed / all),
        _ => Err(ShapeError::of(
            0,
            format!(
                "`{name}` needs {heads} heads of queries and {kv_heads} of keys and of values in one value of three dimensions, not {qkv}"
            ),
        )),
    }
}

/// Checks that operand `i` has a number (`I32`) for each of `samples`.
pub(super) fn one_each(name: &str, inputs: &[&Value], i: usize, samples: usize) -> Result<(), ShapeError> {
    let Value { dtype, shape, .. } = inputs[i];
    if *dtype == DType::I32 && shape.dims() == [samples] {
        Ok(())
    } else {
        let message =
            format!("operand {i} of `{name}` must have an i32 for each of {samples} samples, not {dtype} {shape}");
        Err(ShapeError::of(i, message))
    }
}

impl OpRules for CachedAttention {
    fn name(&self) -> &'static str {
        "cached_attention"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, 4)?;
        singles(self.name(), inputs, [0, 1, 2])?;
        let width = head_width(self.name(), &inputs[0].shape, self.heads, self.kv_heads)?;
        if self.window == Some(0) {
            return Err(ShapeError::new(format!("`{}`: a window of 0 has no position", self.name())));
        }
        let dims = inputs[0].shape.dims();
        let (samples, new) = (dims[0], dims[1]);
        let wanted = [samples, inputs[1].shape.dims().get(1).copied().unwrap_or(0), self.kv_heads * width];
        for i in [1, 2] {
            let shape = &inputs[i].shape;
            if shape.dims() != wanted {
                let message =
                    format!("`{}` keeps keys and values of {}, not {shape}", self.name(), Shape::from(wanted));
                return Err(ShapeError::of(i, message));
            }
        }
        one_each(self.name(), inputs, 3, samples)?;
        Ok(vec![(DType::F32, Shape::from([samples, new, self.heads * width]))])
    }

    fn mutates(&self, _: usize) -> Vec<usize> {
        vec![1, 2]
    }

    /// As if all kept positions were seen: how many are is not known before the run.
    fn flops(&self, inputs: &[&Value], outputs: &[&Value]) -> u64 {
        let kept = inputs[1].shape.dims()[1] as u64;
        let kept = self.window.map_or(kept, |window| kept.min(window as u64));
        4u64.saturating_mul(kept).saturating_mul(outputs[0].shape.len() as u64)
    }
}
