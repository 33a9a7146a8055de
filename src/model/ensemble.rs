//! Several models in one: members that share layers.

use super::params::{Param, uniform_fan_in};
use super::{Builder, Mode, Tensor};
use crate::config::language::layers::{self as cfg, MemberInit};
use crate::config::{Diagnostic, LayerNode};
use crate::graph::op::{
    Activation, ActivationOp, AdaptiveAvgPool2d, Binary, BinaryKind, Concat, Conv2d, LogSoftmax, Loss, NewFull,
    Permute, Reshape, RowLoss, Slice, Task,
};
use crate::graph::{DType, Fill, Shape, Storage, ValueId};

const ADD: Binary = Binary { kind: BinaryKind::Add };
const MUL: Binary = Binary { kind: BinaryKind::Mul };

/// A weight for each of some groups: outside `[groups, inputs, outputs]`, inside as that of a convolution.
pub(super) fn by_group(name: &str, [groups, inputs, outputs]: [usize; 3], init: Fill) -> Param<'_> {
    let outside = Shape::from([groups, inputs, outputs]);
    let storage = Storage { view: outside.clone(), outside, perm: vec![0, 2, 1] };
    Param { storage, ..Param::plain(name, [groups * outputs, 1, 1, inputs], init) }
}

impl Builder<'_> {
    /// Linear layers side by side, each on numbers of its own: `[N, groups · inputs]` to `[N, groups · outputs]`.
    pub(super) fn groups_of_linear(
        &mut self,
        x: ValueId,
        weight: ValueId,
        bias: Option<ValueId>,
        [groups, inputs, outputs]: [usize; 3],
    ) -> ValueId {
        let n = self.graph.shape(x).dims()[0];
        let x = self.plain(Reshape { shape: Shape::from([n, 1, 1, groups * inputs]) }, &[x]);
        let op = Conv2d { stride: [1, 1], padding: [0; 4], dilation: [1, 1], groups, bias: bias.is_some() };
        let operands: Vec<ValueId> = [x, weight].into_iter().chain(bias).collect();
        let y = self.plain(op, &operands);
        self.plain(Reshape { shape: Shape::from([n, groups * outputs]) }, &[y])
    }

    /// The shape of what comes in, if it has members; else reports it.
    fn membered(&mut self, node: &LayerNode, x: Tensor) -> Option<[usize; 3]> {
        if let [n, members, f] = *self.shape(x).dims() {
            return Some([n, members, f]);
        }
        let (kind, dims) = (node.kind_name(), self.dims(x));
        let message =
            format!("`{kind}` takes numbers of several members, [N, members, F], and its input has the shape {dims}");
        let help = "put an `ensemble_affine` before it, which makes members";
        self.refuse(node, &message, "takes members", &[x], help);
        None
    }

    pub(super) fn ensemble_affine(&mut self, node: &LayerNode, l: &cfg::EnsembleAffine, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let shape = self.shape(x).clone();
        let f = shape.last();
        let fits = match *shape.dims() {
            [_, _] => true,
            [_, members, _] => members == l.members,
            _ => false,
        };
        if !fits {
            let message = format!(
                "`ensemble_affine` of {} members takes vectors, or numbers of as many members, and its input has the shape {}",
                l.members,
                self.dims(x)
            );
            self.refuse(node, &message, "does not fit here", &[x], "");
            return self.guess(Shape::from([shape.dims()[0], l.members, f]));
        }
        let init = match (l.init, self.embedded_columns.get(&x.value)) {
            // A factor for each column, and not for each number of its vector.
            (MemberInit::Normal, Some(&[run, until])) => Fill::NormalRuns { width: f, run, until },
            (MemberInit::Normal, None) => Fill::Normal { mean: 0.0, std: 1.0 },
            (MemberInit::RandomSigns, _) => Fill::Signs,
            (MemberInit::Ones, _) => Fill::Constant(1.0),
        };
        let wide = Shape::from([1, l.members, f]);
        let weight = self.param(node, Param::plain("weight", [l.members, f], init));
        let weight = self.plain(Reshape { shape: wide.clone() }, &[weight]);
        let tall = Shape::from([shape.dims()[0], if shape.rank() == 2 { 1 } else { l.members }, f]);
        let each = self.plain(Reshape { shape: tall }, &[x.value]);
        let mut y = self.plain(MUL, &[each, weight]);
        if l.bias {
            let bias = self.param(node, Param::plain("bias", [l.members, f], Fill::Constant(0.0)));
            let bias = self.plain(Reshape { shape: wide }, &[bias]);
            y = self.plain(ADD, &[y, bias]);
        }
        y
    }

    pub(super) fn ensemble_linear(&mut self, node: &LayerNode, l: &cfg::EnsembleLinear, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let out = l.out_features;
        let Some([n, members, f]) = self.membered(node, x) else {
            return self.guess(Shape::from([self.batch, 1, out]));
        };
        let init = uniform_fan_in(f);
        let weight = self.param(node, by_group("weight", [members, f, out], init));
        let bias = l.bias.then(|| {
            let storage = Storage::plain([members, out]);
            self.param(node, Param { storage, ..Param::plain("bias", [members * out], init) })
        });
        if self.guesses.contains(&weight) || bias.is_some_and(|bias| self.guesses.contains(&bias)) {
            return self.guess(Shape::from([n, members, out]));
        }
        let flat = self.plain(Reshape { shape: Shape::from([n, members * f]) }, &[x.value]);
        let y = self.groups_of_linear(flat, weight, bias, [members, f, out]);
        self.plain(Reshape { shape: Shape::from([n, members, out]) }, &[y])
    }

    pub(super) fn ensemble_mean(&mut self, node: &LayerNode, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let Some([n, members, f]) = self.membered(node, x) else { return self.guess(Shape::from([self.batch, 1])) };
        if self.mode == Mode::Train {
            self.members = Some(members);
            self.end = Some((node.span, x.value));
            return x.value;
        }
        let loss = self.experiment.loss.describe();
        let whole = Shape::from([n, f]);
        // An output for an order is a logit, too.
        let task = if self.experiment.loss.is_ordinal() { Task::BinaryClassification } else { loss.task() };
        let value = match (task, &loss) {
            (Task::Classification, loss) => {
                let logits = !matches!(loss, Loss::CrossEntropy(l) if l.form == RowLoss::Nll);
                let logs = if logits { self.plain(LogSoftmax {}, &[x.value]) } else { x.value };
                self.log_of_mean(logs)
            }
            // The logit of the mean: its logarithm less that of the mean of the opposites.
            (Task::BinaryClassification, _) => {
                let minus = self.scaled(x.value, -1.0);
                let [yes, no] = [x.value, minus].map(|logits| {
                    let logs = self.plain(ActivationOp { act: Activation::LogSigmoid }, &[logits]);
                    self.log_of_mean(logs)
                });
                let no = self.scaled(no, -1.0);
                self.plain(ADD, &[yes, no])
            }
            (Task::Regression, _) => {
                let image = self.plain(Reshape { shape: Shape::from([n, members, 1, f]) }, &[x.value]);
                self.plain(AdaptiveAvgPool2d { output: [1, 1] }, &[image])
            }
        };
        let whole = self.plain(Reshape { shape: whole }, &[value]);
        self.end = Some((node.span, whole));
        whole
    }

    /// Reports layers after the one that ends a model of members: in training they would see members, and else their mean.
    pub(super) fn members_end_it(&mut self, y: Tensor) {
        let Some((span, _)) = self.end.filter(|(_, value)| *value != y.value) else { return };
        let error = Diagnostic::error("`ensemble_mean` is not the last layer")
            .at(span, "ends the model")
            .help("put the layers after it before it: what members put out is what the model says");
        self.report(error);
        self.guesses.insert(y.value);
    }

    /// A value times a number.
    pub(super) fn scaled(&mut self, x: ValueId, factor: f32) -> ValueId {
        let ones = vec![1; self.graph.shape(x).rank()];
        let factor = self.plain(NewFull { shape: Shape(ones), value: factor }, &[x]);
        self.plain(MUL, &[x, factor])
    }

    /// The logarithm of the mean over members of what has these logarithms: `[N, members, F]` to `[N, F, 1]`.
    fn log_of_mean(&mut self, logs: ValueId) -> ValueId {
        let members = self.graph.shape(logs).dims()[1];
        let logs = self.plain(Permute { perm: vec![0, 2, 1] }, &[logs]);
        // Each member's logarithm less that of its share of the sum is the logarithm of the sum.
        let shares = self.plain(LogSoftmax {}, &[logs]);
        let [logs, shares] = [logs, shares].map(|x| self.plain(Slice { axis: 2, start: 0, len: 1 }, &[x]));
        let shares = self.scaled(shares, -1.0);
        let sum = self.plain(ADD, &[logs, shares]);
        let less = NewFull { shape: Shape::from([1, 1, 1]), value: -(members as f32).ln() };
        let less = self.plain(less, &[sum]);
        self.plain(ADD, &[sum, less])
    }

    /// What is learnt, for each member that has a loss of its own: `[N, …]` to `[N, members, …]`.
    pub(super) fn for_each_member(&mut self, targets: ValueId) -> ValueId {
        let Some(members) = self.members else { return targets };
        let shape = self.graph.shape(targets).clone();
        let mut dims = shape.dims().to_vec();
        dims.insert(1, 1);
        let rank = dims.len();
        let each = self.plain(Reshape { shape: Shape(dims) }, &[targets]);
        if self.graph.value(targets).dtype != DType::F32 {
            return self.plain(Concat { axis: 1 }, &vec![each; members]);
        }
        let mut ones = vec![1; rank];
        ones[1] = members;
        let ones = self.plain(NewFull { shape: Shape(ones), value: 1.0 }, &[each]);
        self.plain(MUL, &[each, ones])
    }
}
