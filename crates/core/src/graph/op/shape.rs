//! Operations that move elements without arithmetic, and what holds the same number everywhere.

use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, float};
use crate::graph::Shape;

/// The same elements in the same order under another shape. Operand: `x`. Costs nothing: the output is the operand's memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Reshape {
    /// The new shape.
    pub shape: Shape,
}

/// Axes in another order: axis `i` of the output is axis `perm[i]` of the operand.
#[derive(Debug, Clone, PartialEq)]
pub struct Permute {
    /// A permutation of the axes.
    pub perm: Vec<usize>,
}

/// Operands joined along `axis`; all other dimensions are equal, and so are their types.
#[derive(Debug, Clone, PartialEq)]
pub struct Concat {
    /// The axis, counted inside (channels of images are axis 3).
    pub axis: usize,
}

/// Elements `start .. start + len` along `axis`. Operand: `x`.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    /// The axis, counted inside.
    pub axis: usize,
    /// First index.
    pub start: usize,
    /// How many.
    pub len: usize,
}

/// `before` zeros in front of the elements along `axis`, and `after` behind them. Operand: `x`.
#[derive(Debug, Clone, PartialEq)]
pub struct Pad {
    /// The axis, counted inside.
    pub axis: usize,
    /// Zeros in front.
    pub before: usize,
    /// Zeros after.
    pub after: usize,
}

/// `value` everywhere, in a new tensor of the type of the operand, of which nothing else is read: `torch.Tensor.new_full`. Operand: `x`.
#[derive(Debug, Clone, PartialEq)]
pub struct NewFull {
    /// The shape of the result.
    pub shape: Shape,
    /// The number.
    pub value: f32,
}

impl OpRules for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("reshape", inputs, 1)?;
        if inputs[0].shape.len() != self.shape.len() {
            return Err(ShapeError::of(0, format!("cannot reshape {} to {}", inputs[0].shape, self.shape)));
        }
        Ok(vec![(inputs[0].dtype, self.shape.clone())])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let shape = cx.graph.shape(cx.inputs[0]).clone();
        let dy = cx.dy();
        Ok(vec![Some(cx.add1(Reshape { shape }, &[dy])?)])
    }

    fn is_alias(&self) -> bool {
        true
    }
}

impl OpRules for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("permute", inputs, 1)?;
        let mut seen = self.perm.clone();
        seen.sort_unstable();
        if seen != (0..inputs[0].shape.rank()).collect::<Vec<_>>() {
            return Err(ShapeError::of(
                0,
                format!("{:?} is no permutation of the axes of {}", self.perm, inputs[0].shape),
            ));
        }
        let dims: Vec<usize> = self.perm.iter().map(|p| inputs[0].shape.dims()[*p]).collect();
        Ok(vec![(inputs[0].dtype, Shape(dims))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let mut perm = vec![0; self.perm.len()];
        for (i, p) in self.perm.iter().enumerate() {
            perm[*p] = i;
        }
        let dy = cx.dy();
        Ok(vec![Some(cx.add1(Permute { perm }, &[dy])?)])
    }
}

impl OpRules for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let Some(first) = inputs.first() else {
            return Err(ShapeError::new("`concat` needs at least one operand"));
        };
        if self.axis >= first.shape.rank() {
            return Err(ShapeError::of(0, format!("`concat` along axis {} of the shape {}", self.axis, first.shape)));
        }
        let mut dims = first.shape.dims().to_vec();
        dims[self.axis] = 0;
        for (i, x) in inputs.iter().enumerate() {
            let fits =
                x.shape.rank() == dims.len() && (0..dims.len()).all(|d| d == self.axis || x.shape.dims()[d] == dims[d]);
            if !fits {
                return Err(ShapeError::of(
                    i,
                    format!(
                        "`concat` cannot join the shapes {} and {}",
                        first.shape.to_pytorch(),
                        x.shape.to_pytorch()
                    ),
                ));
            }
            if x.dtype != first.dtype {
                return Err(ShapeError::of(
                    i,
                    format!("`concat` needs operands of one type, not {} and {}", first.dtype, x.dtype),
                ));
            }
            dims[self.axis] += x.shape.dims()[self.axis];
        }
        Ok(vec![(first.dtype, Shape(dims))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let dy = cx.dy();
        let mut start = 0;
        let mut out = Vec::new();
        for i in 0..cx.inputs.len() {
            let len = cx.graph.shape(cx.inputs[i]).dims()[self.axis];
            out.push(if cx.needs[i] { Some(cx.add1(Slice { axis: self.axis, start, len }, &[dy])?) } else { None });
            start += len;
        }
        Ok(out)
    }
}

impl OpRules for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("slice", inputs, 1)?;
        let mut dims = inputs[0].shape.dims().to_vec();
        if self.axis >= dims.len() || self.start + self.len > dims[self.axis] {
            return Err(ShapeError::of(
                0,
                format!(
                    "`slice` {}..{} along axis {} of {}",
                    self.start,
                    self.start + self.len,
                    self.axis,
                    inputs[0].shape
                ),
            ));
        }
        dims[self.axis] = self.len;
        Ok(vec![(inputs[0].dtype, Shape(dims))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let whole = cx.graph.shape(cx.inputs[0]).dims()[self.axis];
        let dy = cx.dy();
        let pad = Pad { axis: self.axis, before: self.start, after: whole - self.start - self.len };
        Ok(vec![Some(cx.add1(pad, &[dy])?)])
    }
}

impl OpRules for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("pad", inputs, 1)?;
        let dtype = float("pad", inputs, 0)?;
        let mut dims = inputs[0].shape.dims().to_vec();
        let Some(size) = dims.get_mut(self.axis) else {
            return Err(ShapeError::of(0, format!("`pad` along axis {} of {}", self.axis, inputs[0].shape)));
        };
        *size = size.saturating_add(self.before).saturating_add(self.after);
        Ok(vec![(dtype, Shape(dims))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let len = cx.graph.shape(cx.inputs[0]).dims()[self.axis];
        let dy = cx.dy();
        Ok(vec![Some(cx.add1(Slice { axis: self.axis, start: self.before, len }, &[dy])?)])
    }
}

impl OpRules for NewFull {
    fn name(&self) -> &'static str {
        "new_full"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("new_full", inputs, 1)?;
        Ok(vec![(float("new_full", inputs, 0)?, self.shape.clone())])
    }

    /// A constant has none.
    fn grad(&self, _: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        Ok(vec![None])
    }
}
