//! Parts of a batch, one after the other: what programs that do not train run layer by layer for a few samples at a time, so that
//! what one layer writes is in the cache when the next one reads it.

use super::{Fused, NewFull, Op, OpRules, Output, Reshape, ShapeError, Source, Value, arity};
use crate::graph::Shape;

/// One of `parts` equal parts of a batch: in round `r` of the nodes from here to the next [`BatchJoin`]s, the samples from `r · N / parts` on.
/// Operand: `x [N, …]`. Output: `[N / parts, …]`, which is the operand's memory from there on. See [`crate::graph::Graph::rounds`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPart {
    /// How many there are.
    pub parts: usize,
}

/// What all rounds have made, one after the other. Operand: `x [N / parts, …]`. Output: `[N, …]`, of whose memory the operand is a part in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchJoin {
    /// How many rounds there are.
    pub parts: usize,
}

/// `shape` with another number of samples.
fn divided(name: &str, shape: &Shape, parts: usize) -> Result<Shape, ShapeError> {
    match shape.part(parts) {
        Some(part) => Ok(part),
        None => Err(ShapeError::of(0, format!("`{name}` cannot divide {shape} into {parts} parts"))),
    }
}

impl OpRules for BatchPart {
    fn name(&self) -> &'static str {
        "batch_part"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, 1)?;
        Ok(vec![(inputs[0].dtype, divided(self.name(), &inputs[0].shape, self.parts)?)])
    }

    fn is_alias(&self) -> bool {
        true
    }
}

impl OpRules for BatchJoin {
    fn name(&self) -> &'static str {
        "batch_join"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, 1)?;
        let mut dims = inputs[0].shape.dims().to_vec();
        let Some(first) = dims.first_mut() else {
            return Err(ShapeError::of(0, "`batch_join` takes what has samples"));
        };
        *first = first.saturating_mul(self.parts);
        Ok(vec![(inputs[0].dtype, Shape(dims))])
    }

    fn is_alias(&self) -> bool {
        true
    }
}

impl Op {
    /// The operation for one of `parts` equal parts of a batch, if its result for a sample depends on that sample alone. `of_batch` marks the
    /// operands that consist of samples, one after the other. The others are the same for all samples. There is one of the first kind at least.
    pub fn of_part(&self, inputs: &[&Value], of_batch: &[bool], parts: usize) -> Option<Op> {
        let first_alone = || of_batch.iter().enumerate().all(|(i, batch)| *batch == (i == 0));
        let keeps = match self {
            Op::Normalize(_)
            | Op::Cast(_)
            | Op::Linear(_)
            | Op::Conv2d(_)
            | Op::Activation(_)
            | Op::MaxPool2d(_)
            | Op::AvgPool2d(_)
            | Op::AdaptiveAvgPool2d(_)
            | Op::AdaptiveMaxPool2d(_)
            | Op::Resize2d(_)
            | Op::BatchNormInfer(_)
            | Op::GroupNorm(_)
            | Op::LayerNorm(_)
            | Op::LocalResponseNorm(_) => first_alone(),
            Op::Softmax(_) | Op::LogSoftmax(_) => inputs[0].shape.rank() > 1,
            // So is this one.
            Op::Rotary(op) => *of_batch == [&[true, false][..], &vec![true; usize::from(op.position)]].concat(),
            // The table is the same for all samples.
            Op::Embedding(_) => of_batch == [false, true],
            // A bias is that of window `n mod W`, and every part has whole images.
            Op::Attention(op) => {
                let places = op.places();
                let of_samples = |i: usize| i == places.q || [places.kv, places.lengths].contains(&Some(i));
                op.dropout.is_none() && of_batch.iter().enumerate().all(|(i, batch)| *batch == of_samples(i))
            }
            Op::Recurrent(op) => {
                let places = op.places();
                let of_samples = |i: usize| i == places.x || Some(i) == places.lengths;
                !op.carries && of_batch.iter().enumerate().all(|(i, batch)| *batch == of_samples(i))
            }
            // What is no batch must be stretched over it.
            Op::Binary(_) => inputs.iter().zip(of_batch).all(|(x, batch)| *batch || x.shape.dims().first() == Some(&1)),
            Op::Concat(op) => op.axis != 0 && of_batch.iter().all(|batch| *batch),
            Op::Slice(op) => op.axis != 0,
            Op::Pad(op) => op.axis != 0,
            Op::Permute(op) => op.perm.first() == Some(&0),
            Op::Reshape(op) => return Some(Reshape { shape: op.shape.part(parts)? }.into()),
            Op::NewFull(op) => return Some(NewFull { shape: op.shape.part(parts)?, value: op.value }.into()),
            Op::Fused(op) => return op.of_part(inputs, of_batch, parts).map(Op::from),
            _ => false,
        };
        keeps.then(|| self.clone())
    }
}

impl Fused {
    fn of_part(&self, inputs: &[&Value], of_batch: &[bool], parts: usize) -> Option<Fused> {
        let made = self.made(inputs).ok()?;
        let mut made_of_batch: Vec<bool> = Vec::with_capacity(self.steps.len());
        let mut fused = self.clone();
        for step in &mut fused.steps {
            let (values, batch): (Vec<&Value>, Vec<bool>) = step
                .from
                .iter()
                .map(|from| match from {
                    Source::Operand(i) => (inputs[*i], of_batch[*i]),
                    Source::Step(i) => (&made[*i][0], made_of_batch[*i]),
                })
                .unzip();
            let any = batch.contains(&true);
            if any {
                step.op = step.op.of_part(&values, &batch, parts)?;
            }
            made_of_batch.push(any);
        }
        Some(fused)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Attention, Binary, BinaryKind, BinaryKind::Add, Concat, Embedding, Permute, Rotary, Softmax};
    use super::*;
    use crate::graph::{DType, Role};

    fn value(dims: &[usize]) -> Value {
        Value::new(DType::F32, Shape::from(dims), Role::Temporary)
    }

    fn splits(op: impl Into<Op>, operands: &[(&[usize], bool)]) -> bool {
        let values: Vec<Value> = operands.iter().map(|(dims, _)| value(dims)).collect();
        let of_batch: Vec<bool> = operands.iter().map(|(_, batch)| *batch).collect();
        op.into().of_part(&values.iter().collect::<Vec<_>>(), &of_batch, 2).is_some()
    }

    #[test]
    fn what_mixes_samples_is_not_split() {
        let add: Binary = Binary { kind: BinaryKind::Add };
        assert!(splits(add.clone(), &[(&[4, 3], true), (&[4, 3], true)]));
        assert!(splits(add.clone(), &[(&[4, 3], true), (&[1, 3], false)]));
        // A parameter with a row for each sample.
        assert!(!splits(Binary { kind: Add }, &[(&[4, 3], true), (&[4, 3], false)]));
        assert!(splits(Concat { axis: 1 }, &[(&[4, 3], true), (&[4, 2], true)]));
        assert!(!splits(Concat { axis: 0 }, &[(&[4, 3], true), (&[4, 3], true)]));
        assert!(splits(Permute { perm: vec![0, 2, 1] }, &[(&[4, 3, 2], true)]));
        assert!(!splits(Permute { perm: vec![1, 0, 2] }, &[(&[4, 3, 2], true)]));
        assert!(splits(Softmax {}, &[(&[4, 3], true)]));
        assert!(!splits(Softmax {}, &[(&[4], true)]));
        assert!(splits(Embedding::default(), &[(&[7, 3], false), (&[4, 5], true)]));
        assert!(!splits(Embedding::default(), &[(&[4, 3], true), (&[4, 5], false)]));
        let attention = |bias, lengths| Attention { heads: 1, causal: true, bias, lengths, ..Attention::default() };
        let (qkv, bias): (&[usize], &[usize]) = (&[4, 5, 3], &[1, 1, 5, 5]);
        assert!(splits(attention(false, true), &[(qkv, true), (&[4], true)]));
        assert!(splits(attention(true, true), &[(qkv, true), (bias, false), (&[4], true)]));
        assert!(splits(attention(true, false), &[(qkv, true), (bias, false)]));
        assert!(!splits(attention(true, false), &[(qkv, true), (bias, true)]));
        assert!(!splits(attention(false, true), &[(qkv, true), (&[4], false)]));
        let between = Attention { heads: 1, between: true, lengths: true, ..Attention::default() };
        let (q, kv): (&[usize], &[usize]) = (&[4, 3, 2], &[4, 5, 4]);
        assert!(splits(between.clone(), &[(q, true), (kv, true), (&[4], true)]));
        assert!(!splits(between, &[(q, true), (kv, false), (&[4], true)]));
        let rotary = |position| Rotary { heads: 1, kv_heads: 1, position, back: false };
        assert!(splits(rotary(false), &[(&[4, 5, 6], true), (&[5, 2], false)]));
        assert!(splits(rotary(true), &[(&[4, 5, 6], true), (&[5, 2], false), (&[4], true)]));
        assert!(!splits(rotary(true), &[(&[4, 5, 6], true), (&[5, 2], false), (&[4], false)]));
    }

    #[test]
    fn shapes_are_those_of_the_part() {
        let op: Op = Reshape { shape: Shape::from([4, 6]) }.into();
        let part = op.of_part(&[&value(&[4, 2, 3])], &[true], 2).unwrap();
        assert_eq!(part, Reshape { shape: Shape::from([2, 6]) }.into());
        // Samples that no longer stand first.
        let op: Op = Reshape { shape: Shape::from([1, 24]) }.into();
        assert_eq!(op.of_part(&[&value(&[4, 2, 3])], &[true], 2), None);
        let of = |dims: &[usize]| BatchPart { parts: 2 }.infer(&[&value(dims)]);
        assert_eq!(of(&[4, 3]).unwrap(), [(DType::F32, Shape::from([2, 3]))]);
        assert!(of(&[5, 3]).unwrap_err().message.contains("into 2 parts"));
        let joined = BatchJoin { parts: 2 }.infer(&[&value(&[2, 3])]).unwrap();
        assert_eq!(joined, [(DType::F32, Shape::from([4, 3]))]);
    }
}
