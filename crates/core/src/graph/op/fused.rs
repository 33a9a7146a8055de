//! Operations that a device does at once, joined by the fusion pass.

use super::{Activation, ActivationOp, BinaryKind, Dropout, Op, OpRules, Output, ShapeError, Value};
use crate::graph::{DType, Role};

/// What a step of a [`Fused`] operation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The operand of this number.
    Operand(usize),
    /// The first output of an earlier step.
    Step(usize),
}

/// An output of a step of a [`Fused`] operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepOutput {
    /// Number of the step.
    pub step: usize,
    /// Which of its outputs.
    pub output: usize,
}

/// An operation of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// Its operands, in its own order.
    pub from: Vec<Source>,
}

/// A group of operations that a backend has one kernel for: [`Pattern`] says which groups those are. It computes what its
/// steps compute one by one. Steps pass on their first outputs, which are not rounded to 16 bits in between.
///
/// Operands: the first step's own, in its order, and those of later steps as they come, each value once. Outputs: `results`,
/// the last step's first output before all others.
#[derive(Debug, Clone, PartialEq)]
pub struct Fused {
    /// The operations, in order; none of them is fused itself.
    pub steps: Vec<Step>,
    /// The outputs of steps that are wanted.
    pub results: Vec<StepOutput>,
    /// The operand whose memory the first output may take over: of the same size, and read before the element in its place
    /// is written.
    pub in_place: Option<usize>,
}

/// A kind of group that a backend has one kernel for.
#[derive(Clone, Copy)]
pub struct Pattern {
    /// The name by which it is left out (`--without`).
    pub name: &'static str,
    /// True for the operations that occur in it.
    pub has: fn(&Op) -> bool,
    /// True if there is a kernel for the group.
    pub takes: fn(&Group) -> bool,
    /// True for an operation that may be recomputed: each node that reads its result makes it again as its own first step,
    /// instead of once for all.
    pub repeats: fn(&Op) -> bool,
}

impl Pattern {
    /// True if `op` on `operands` is no group, or one that a pattern of `all` takes.
    pub fn any_takes(all: &[Pattern], op: &Op, operands: Vec<&Value>) -> bool {
        let Op::Fused(op) = op else { return true };
        Group::new(op, operands).is_ok_and(|group| all.iter().any(|pattern| (pattern.takes)(&group)))
    }
}

/// A [`Fused`] operation with the values around and within it: what a [`Pattern`] looks at.
pub struct Group<'a> {
    /// The operations.
    pub op: &'a Fused,
    /// The operands.
    pub operands: Vec<&'a Value>,
    /// The outputs of every step.
    pub made: Vec<Vec<Value>>,
}

impl<'a> Group<'a> {
    /// `op` on `operands`.
    ///
    /// # Errors
    /// The operands do not fit a step.
    pub fn new(op: &'a Fused, operands: Vec<&'a Value>) -> Result<Self, ShapeError> {
        let made = op.made(&operands)?;
        Ok(Group { op, operands, made })
    }

    /// What `from` stands for.
    pub fn value(&self, from: Source) -> &Value {
        match from {
            Source::Operand(i) => self.operands[i],
            Source::Step(i) => &self.made[i][0],
        }
    }

    /// The first output.
    pub fn result(&self) -> &Value {
        &self.made[self.op.steps.len() - 1][0]
    }
}

impl Fused {
    /// A group of one operation with that many operands, whose first output is wanted.
    pub fn of(op: Op, operands: usize) -> Self {
        let steps = vec![Step { op, from: (0..operands).map(Source::Operand).collect() }];
        Fused { steps, results: vec![StepOutput { step: 0, output: 0 }], in_place: None }
    }

    /// With one more step after the last; it is the only result.
    pub fn then(mut self, op: impl Into<Op>, from: Vec<Source>) -> Self {
        self.steps.push(Step { op: op.into(), from });
        self.results = vec![StepOutput { step: self.steps.len() - 1, output: 0 }];
        self
    }

    /// With one more result.
    pub fn with_result(mut self, step: usize, output: usize) -> Self {
        self.results.push(StepOutput { step, output });
        self
    }

    /// `op`, which has that many operands, with `act` after it.
    pub fn activated(op: impl Into<Op>, operands: usize, act: Option<Activation>) -> Op {
        match act {
            Some(act) => Fused::of(op.into(), operands).then(ActivationOp { act }, vec![Source::Step(0)]).into(),
            None => op.into(),
        }
    }

    /// The outputs of every step, by their shape rules.
    pub(super) fn made(&self, operands: &[&Value]) -> Result<Vec<Vec<Value>>, ShapeError> {
        let mut made: Vec<Vec<Value>> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            if matches!(step.op, Op::Fused(_)) {
                return Err(ShapeError::new("`fused` has a step that is fused itself"));
            }
            let mut values: Vec<&Value> = Vec::with_capacity(step.from.len());
            for from in &step.from {
                let value = match from {
                    Source::Operand(i) => operands.get(*i).copied(),
                    Source::Step(i) => made.get(*i).and_then(|outputs| outputs.first()),
                };
                values.push(value.ok_or_else(|| ShapeError::new("`fused` has a step that reads what is not there"))?);
            }
            let outputs = step.op.rules().infer(&values)?;
            made.push(outputs.into_iter().map(|(dtype, shape)| Value::new(dtype, shape, Role::Temporary)).collect());
        }
        Ok(made)
    }

    /// The last step that reads `of`.
    pub fn last_reader(&self, of: Source) -> Option<usize> {
        self.steps.iter().rposition(|step| step.from.contains(&of))
    }

    /// The names of its operations, as they follow each other: `conv2d + relu`.
    pub fn label(&self) -> String {
        self.steps.iter().map(|step| step.op.rules().name()).collect::<Vec<_>>().join(" + ")
    }
}

impl Op {
    /// The operation's name, of a group the names of what it is made of.
    pub fn label(&self) -> String {
        match self {
            Op::Fused(op) => op.label(),
            op => op.rules().name().to_owned(),
        }
    }
}

impl OpRules for Fused {
    fn name(&self) -> &'static str {
        "fused"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let made = self.made(inputs)?;
        let last = self.steps.len().checked_sub(1).ok_or_else(|| ShapeError::new("`fused` has no steps"))?;
        let ordered = self.results.get(1..).is_some_and(|rest| rest.is_sorted_by(|a, b| a < b));
        if self.results.first() != Some(&StepOutput { step: last, output: 0 }) || !ordered {
            return Err(ShapeError::new("`fused` has its results in another order than it should"));
        }
        if let Some(unread) = (0..inputs.len()).find(|i| self.last_reader(Source::Operand(*i)).is_none()) {
            return Err(ShapeError::of(unread, format!("no step of `fused` reads operand {unread}")));
        }
        let one = |r: &StepOutput| made.get(r.step).and_then(|outputs| outputs.get(r.output));
        let results = self.results.iter().map(|r| one(r).map(|v| (v.dtype, v.shape.clone())));
        results.collect::<Option<_>>().ok_or_else(|| ShapeError::new("`fused` has a result that no step makes"))
    }

    fn mutates(&self, _inputs: usize) -> Vec<usize> {
        let of_step = |step: &Step| -> Vec<usize> {
            let mutated = step.op.rules().mutates(step.from.len()).into_iter();
            mutated
                .map(|m| match step.from[m] {
                    Source::Operand(i) => i,
                    Source::Step(_) => unreachable!("only variables are updated in place"),
                })
                .collect()
        };
        self.steps.iter().flat_map(of_step).collect()
    }

    fn in_place(&self) -> Option<usize> {
        self.in_place
    }

    fn flops(&self, inputs: &[&Value], _: &[&Value]) -> u64 {
        let Ok(made) = self.made(inputs) else { return 0 };
        let of_step = |(step, outputs): (&Step, &Vec<Value>)| {
            let values: Vec<&Value> = step
                .from
                .iter()
                .map(|from| match from {
                    Source::Operand(i) => inputs[*i],
                    Source::Step(i) => &made[*i][0],
                })
                .collect();
            step.op.rules().flops(&values, &outputs.iter().collect::<Vec<_>>())
        };
        self.steps.iter().zip(&made).map(of_step).fold(0, u64::saturating_add)
    }
}

/// An operation that makes each element of its result of the elements in the same place.
#[derive(Debug, Clone, PartialEq)]
pub enum ElementWise<'a> {
    /// [`super::ActivationOp`] of one value.
    Activation(Activation),
    /// [`super::ActivationGrad`] of two values.
    ActivationGrad(Activation),
    /// [`super::Binary`] of two values, of which one may be stretched.
    Binary(BinaryKind),
    /// [`Dropout`] of one value, and the key.
    Dropout(&'a Dropout),
}

impl Op {
    /// What it does to each element, if it is element-wise.
    pub fn element_wise(&self) -> Option<ElementWise<'_>> {
        match self {
            Op::Activation(op) => Some(ElementWise::Activation(op.act)),
            Op::ActivationGrad(op) => Some(ElementWise::ActivationGrad(op.act)),
            Op::Binary(op) => Some(ElementWise::Binary(op.kind)),
            Op::Dropout(op) => Some(ElementWise::Dropout(op)),
            _ => None,
        }
    }

    /// True if it makes each element of its result of those in the same place: what is element-wise, and casts.
    pub fn keeps_places(&self) -> bool {
        self.element_wise().is_some() || matches!(self, Op::Cast(_))
    }
}

impl Fused {
    /// True if operand `i` is the key of a dropout.
    pub fn is_key(&self, i: usize) -> bool {
        let reads = |step: &Step| matches!(step.op, Op::Dropout(_)) && step.from.get(1) == Some(&Source::Operand(i));
        self.steps.iter().any(reads)
    }
}

impl Group<'_> {
    /// True if all steps are element-wise, and every value has the type and shape of the result; what only sums and
    /// products read may be stretched to it.
    pub fn is_element_wise(&self) -> bool {
        let dtype = self.result().dtype;
        self.op.steps.iter().all(|step| step.op.element_wise().is_some()) && self.keeps_places(|of| of == dtype)
    }

    /// The same with casts among the steps: values are `F32` or of one 16-bit type.
    pub fn is_element_wise_with_casts(&self) -> bool {
        let made = self.made.iter().filter_map(|outputs| outputs.first());
        let values = self.operands.iter().copied().chain(made).filter(|value| value.dtype.is_activation());
        let half = values.map(|value| value.dtype).find(|dtype| *dtype != DType::F32);
        self.op.steps.iter().all(|step| step.op.keeps_places())
            && self.keeps_places(|of| of == DType::F32 || Some(of) == half)
    }

    /// True if every value has the shape of the result and a type that is `allowed`; what only sums and products read may be
    /// stretched to that shape.
    fn keeps_places(&self, allowed: impl Fn(DType) -> bool) -> bool {
        let result = self.result();
        let whole = |value: &Value| allowed(value.dtype) && value.shape == result.shape;
        let may_read = |step: &Step, place: usize, from: Source| {
            let stretches = matches!(step.op, Op::Binary(_)) && allowed(self.value(from).dtype);
            let is_key = matches!(step.op, Op::Dropout(_)) && place == 1 && matches!(from, Source::Operand(_));
            is_key || whole(self.value(from)) || stretches
        };
        let steps = self.op.steps.iter().zip(&self.made);
        steps.into_iter().all(|(step, made)| {
            let reads = step.from.iter().enumerate();
            whole(&made[0])
                && reads.clone().all(|(place, from)| may_read(step, place, *from))
                && reads.into_iter().any(|(_, from)| whole(self.value(*from)))
        })
    }
}
