//! Element-wise operations one behind the other, joined by the chaining pass.

use super::{Activation, BinaryKind, Dropout, OpRules, Output, ShapeError, Value, float};
use crate::graph::{DType, Shape};

/// Most links of a chain: what lies between them has room in a core's first-level cache.
pub const MAX_LINKS: usize = 12;

/// What a link of a chain takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The operand of this number.
    Operand(usize),
    /// The result of an earlier link.
    Link(usize),
}

/// What a link of a chain does.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkOp {
    /// [`super::ActivationOp`] of one value.
    Activation(Activation),
    /// [`super::ActivationGrad`] of two values.
    ActivationGrad(Activation),
    /// [`super::Binary`] of two values, of which operands may be stretched.
    Binary(BinaryKind),
    /// [`Dropout`] of one value, and the key.
    Dropout(Dropout),
}

/// An operation of a chain.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// The operation.
    pub op: LinkOp,
    /// Its operands, in its own order. All but a stretched operand and a key have the chain's shape.
    pub from: Vec<Source>,
}

/// Element-wise operations, each on operands of the chain or results of earlier links, computed a few elements at a time, so
/// that what lies between them never leaves the core. It is made of at most [`MAX_LINKS`].
///
/// Operands: floats of one type, of one shape; what only a [`LinkOp::Binary`] reads may have ones in the place of
/// dimensions, along which it is stretched; the key of a [`LinkOp::Dropout`] is `U32 [4]`. Outputs: the results of the links
/// in `results`, of that shape and type. Between links nothing is rounded to 16 bits.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// The operations, in order.
    pub links: Vec<Link>,
    /// The links whose results are wanted, in order; the last link is one of them.
    pub results: Vec<usize>,
    /// The operand whose memory the first output may take over: of the chain's shape, and read by no link behind the first
    /// result's.
    pub in_place: Option<usize>,
}

impl Chain {
    /// True if operand `i` is a key.
    pub fn is_key(&self, i: usize) -> bool {
        self.links.iter().any(|link| matches!(link.op, LinkOp::Dropout(_)) && link.from[1] == Source::Operand(i))
    }

    /// The last link that reads operand `i`, or what `of` is.
    pub fn last_reader(&self, of: Source) -> Option<usize> {
        self.links.iter().rposition(|link| link.from.contains(&of))
    }

    /// True if operand `i` may be stretched.
    fn may_stretch(&self, i: usize) -> bool {
        let reads = |link: &&Link| link.from.contains(&Source::Operand(i));
        self.links.iter().filter(reads).all(|link| matches!(link.op, LinkOp::Binary(_)))
    }

    /// The shape that all operands are stretched to.
    fn shape(&self, inputs: &[&Value]) -> Option<Shape> {
        let mut all: Option<Vec<usize>> = None;
        for (_, value) in inputs.iter().enumerate().filter(|(i, _)| !self.is_key(*i)) {
            let dims = value.shape.dims();
            match &mut all {
                None => all = Some(dims.to_vec()),
                Some(all) if all.len() != dims.len() => return None,
                Some(all) => all.iter_mut().zip(dims).for_each(|(a, d)| *a = (*a).max(*d)),
            }
        }
        all.map(Shape)
    }

    fn check_links(&self, operands: usize) -> Result<(), ShapeError> {
        let wrong = |what: &str| Err(ShapeError::new(format!("`chain` {what}")));
        if self.links.is_empty() || self.links.len() > MAX_LINKS {
            return wrong("has no links or too many");
        }
        for (at, link) in self.links.iter().enumerate() {
            let takes = match link.op {
                LinkOp::Activation(_) => 1,
                LinkOp::ActivationGrad(_) | LinkOp::Binary(_) | LinkOp::Dropout(_) => 2,
            };
            let known = |from: &Source| match from {
                Source::Operand(i) => *i < operands,
                Source::Link(i) => *i < at,
            };
            if link.from.len() != takes || !link.from.iter().all(known) {
                return wrong("has a link that takes what is not there");
            }
        }
        let ordered = self.results.is_sorted_by(|a, b| a < b);
        if !ordered || self.results.last() != Some(&(self.links.len() - 1)) {
            return wrong("has results that are none of its links");
        }
        Ok(())
    }
}

impl OpRules for Chain {
    fn name(&self) -> &'static str {
        "chain"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        self.check_links(inputs.len())?;
        let Some(shape) = self.shape(inputs) else { return Err(ShapeError::new("`chain` needs operands of one rank")) };
        let mut dtype = None;
        for (i, value) in inputs.iter().enumerate() {
            if self.is_key(i) {
                if value.dtype != DType::U32 || value.shape.dims() != [4] {
                    return Err(ShapeError::of(i, "`chain` draws with a key of u32 [4]"));
                }
                continue;
            }
            let own = float("chain", inputs, i)?;
            if *dtype.get_or_insert(own) != own {
                return Err(ShapeError::of(i, "`chain` needs operands of one type"));
            }
            let dims = || value.shape.dims().iter().zip(shape.dims());
            let stretched = value.shape != shape;
            if !dims().all(|(own, all)| own == all || *own == 1) || stretched && !self.may_stretch(i) {
                return Err(ShapeError::of(i, format!("`chain` cannot stretch {} to {shape}", value.shape)));
            }
        }
        let dtype = dtype.ok_or_else(|| ShapeError::new("`chain` needs operands"))?;
        // A link of stretched operands alone would have a shape of its own.
        for link in &self.links {
            let whole = |from: &Source| match from {
                Source::Operand(i) => inputs[*i].shape == shape,
                Source::Link(_) => true,
            };
            if !link.from.iter().any(whole) {
                return Err(ShapeError::new("`chain` has a link of stretched operands alone"));
            }
        }
        Ok(vec![(dtype, shape); self.results.len()])
    }

    fn in_place(&self) -> Option<usize> {
        self.in_place
    }
}
