//! Rotary positions (Su et al. 2021, *RoFormer*).

use super::cached_attention::{head_width, one_each};
use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, float, singles};

/// Turns the queries and keys of a packed operand by angles that depend on their positions, so that the products of both depend on the
/// distance alone. Operands: `x [N, L, (heads + 2 · kv_heads) · d]`, in each row the queries, the keys and the values, heads of `d` floats one
/// after the other; the table `[C, d]` (`F32`), in row `p` the cosines of position `p`'s angles and then their sines, d/2 each
/// ([`crate::graph::Fill::Rotations`]); and, if `position`, the position `[N]` (`I32`) of the first row of each sample, else 0. Output: as `x`,
/// of its type.
///
/// In Llama's order, with the angle θ of number `k < d/2`: `y_k = x_k · cos θ − x_{k + d/2} · sin θ` and `y_{k + d/2} = x_{k + d/2} · cos θ +
/// x_k · sin θ`. Values stay. A row whose position the table does not have gets queries and keys of NaN.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotary {
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys, and of the values; divides the number of heads.
    pub kv_heads: usize,
    /// There is an operand that says where samples begin.
    pub position: bool,
    /// By the same angles the other way: the gradient.
    pub back: bool,
}

impl OpRules for Rotary {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, 2 + usize::from(self.position))?;
        let dtype = float(self.name(), inputs, 0)?;
        singles(self.name(), inputs, [1])?;
        let shape = &inputs[0].shape;
        let width = head_width(self.name(), shape, self.heads, self.kv_heads)?;
        if !width.is_multiple_of(2) {
            return Err(ShapeError::of(0, format!("`{}` needs heads of an even width, not of {width}", self.name())));
        }
        let table = &inputs[1].shape;
        if table.rank() != 2 || table.last() != width {
            let message =
                format!("`{}` of heads of {width} needs a table of as many columns, not {table}", self.name());
            return Err(ShapeError::of(1, message));
        }
        if self.position {
            one_each(self.name(), inputs, 2, shape.dims()[0])?;
        }
        Ok(vec![(dtype, shape.clone())])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let mut operands = vec![cx.dy()];
        operands.extend(&cx.inputs[1..]);
        let mut grads = vec![Some(cx.add1(Rotary { back: !self.back, ..self.clone() }, &operands)?)];
        grads.resize(cx.inputs.len(), None);
        Ok(grads)
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}
