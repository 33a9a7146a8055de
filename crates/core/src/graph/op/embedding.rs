//! Rows of a table, as in `torch.nn.Embedding`.

use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, singles};
use crate::graph::{DType, Shape};

/// The row of a table for each id. Operands: the table `[V, E]` (`F32`) and `ids [..]` (`I32`, of one dimension or more). Output: `[.., E]`
/// (`F32`). The row of an id below 0, or of V or more, is NaN: the loss shows it, and nothing outside the table is read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Embedding {
    /// The row that gets no gradient, `padding_idx` in PyTorch. Its number may be V or more: then every row gets one.
    pub padding: Option<u32>,
}

/// The gradient of [`Embedding`] by its table: row `v` is the sum of the rows of `dy` whose id is `v`. Operands: `dy [.., E]` (`F32`) and
/// `ids [..]` (`I32`). Output: `[V, E]` (`F32`). An id below 0, or of V or more, adds to no row.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingGrad {
    /// V, at most 2³¹ − 1.
    pub rows: usize,
    /// The row that stays 0.
    pub padding: Option<u32>,
}

/// Most rows of a table, and most ids: both are numbered in 32 bits.
const MOST: usize = i32::MAX as usize;

/// Checks operand `i`, the ids.
fn ids(name: &str, inputs: &[&Value], i: usize) -> Result<(), ShapeError> {
    let Value { dtype, shape, .. } = inputs[i];
    if *dtype == DType::I32 && shape.rank() > 0 && shape.len() <= MOST {
        Ok(())
    } else {
        let message = format!("`{name}` takes at most {MOST} ids (i32), of one dimension or more, not {dtype} {shape}");
        Err(ShapeError::of(i, message))
    }
}

impl OpRules for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, 2)?;
        singles(self.name(), inputs, [0])?;
        ids(self.name(), inputs, 1)?;
        let [rows, width] = *inputs[0].shape.dims() else {
            let message = format!("`{}` needs a table of rows, not {}", self.name(), inputs[0].shape);
            return Err(ShapeError::of(0, message));
        };
        if rows > MOST {
            return Err(ShapeError::of(0, format!("`{}` takes a table of at most {MOST} rows", self.name())));
        }
        Ok(vec![(DType::F32, Shape([inputs[1].shape.dims(), &[width]].concat()))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let grad = EmbeddingGrad { rows: cx.graph.shape(cx.inputs[0]).rows(), padding: self.padding };
        let dy = cx.dy();
        Ok(vec![Some(cx.add1(grad, &[dy, cx.inputs[1]])?), None])
    }
}

impl OpRules for EmbeddingGrad {
    fn name(&self) -> &'static str {
        "embedding_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, 2)?;
        singles(self.name(), inputs, [0])?;
        ids(self.name(), inputs, 1)?;
        let (dy, ids) = (&inputs[0].shape, &inputs[1].shape);
        let fits = dy.dims().split_last().is_some_and(|(_, lead)| lead == ids.dims());
        if !fits || self.rows > MOST {
            let message = format!("`{}` cannot add rows of {dy} with the ids {ids} to {} rows", self.name(), self.rows);
            return Err(ShapeError::of(0, message));
        }
        Ok(vec![(DType::F32, Shape::from([self.rows, dy.last()]))])
    }
}
