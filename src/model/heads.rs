//! Heads: further targets that a model learns beside the main one, each compared with the output of a layer by a loss of its own.

use super::units::standardize;
use super::{Builder, CLASS_COUNTS, ERROR_SUMS_VARIABLE, Mode, Tensor, metrics_variable};
use crate::config::Diagnostic;
use crate::config::declare::tagged::Tagged as _;
use crate::config::language::sections::Head;
use crate::data::{Field, FieldKind};
use crate::graph::op::{self, Binary, BinaryKind, LossOp, METRIC_SLOTS, Metrics, TargetKind, Task};
use crate::graph::{DType, Input, Role, Shape, ValueId, VarId, VarKind, Variable, Variables};

/// What a head makes of a batch.
pub(super) struct HeadOutput<'a> {
    head: &'a Head,
    /// The field that it learns, with its place in a batch.
    place: Input,
    field: Field,
    /// What its layer puts out.
    y: Tensor,
    /// That in the target's own unit.
    pub prediction: ValueId,
}

/// Name of the running metric sums of a head in a mode.
pub fn head_metrics(mode: Mode, head: &str) -> String {
    format!("{}.{head}", metrics_variable(mode))
}

/// Name of the counts of classes of a head.
pub fn head_class_counts(head: &str) -> String {
    format!("{CLASS_COUNTS}.{head}")
}

/// Whether a variable of that name has what is counted or summed of classes or errors, of the main target or of a head.
pub fn is_counted(name: &str) -> bool {
    let of_head = || name.strip_prefix(CLASS_COUNTS).is_some_and(|rest| rest.starts_with('.'));
    [CLASS_COUNTS, ERROR_SUMS_VARIABLE].contains(&name) || of_head()
}

/// The running metric sums of a mode: those of the main target, then those of heads.
pub fn metric_sums(variables: &Variables, mode: Mode) -> Vec<VarId> {
    let main = metrics_variable(mode);
    let of_head = |name: &str| name.strip_prefix(main).is_some_and(|rest| rest.starts_with('.'));
    let heads = variables.iter().filter(|(_, var)| of_head(&var.name)).map(|(id, _)| id);
    variables.find(main).into_iter().chain(heads).collect()
}

/// All that an evaluation sums up.
pub fn eval_sums(variables: &Variables) -> Vec<VarId> {
    let others = variables.iter().filter(|(_, var)| is_counted(&var.name)).map(|(id, _)| id);
    metric_sums(variables, Mode::Eval).into_iter().chain(others).collect()
}

impl<'a> Builder<'a> {
    /// What the heads put out. What does not fit is reported.
    pub(super) fn heads(&mut self) -> Vec<HeadOutput<'a>> {
        let (experiment, data) = (self.experiment, self.data);
        let mut made = Vec::new();
        for (at, head) in experiment.heads.iter().enumerate() {
            let Some((place, field)) = data.heads().nth(at) else {
                let error =
                    Diagnostic::error(format!("the samples have nothing that the head `{}` could learn", head.name()));
                self.report_at_head(at, "target", error, "is not among the targets");
                continue;
            };
            // The configuration layer has seen that there is such a layer.
            let Some(y) = self.named.get(head.output()).copied() else {
                let error =
                    Diagnostic::error(format!("the layer `{}` puts out nothing that a head could take", head.output()));
                self.report_at_head(at, "output", error, "is not there: it belongs to a projection that is not needed");
                continue;
            };
            if self.end.is_some() {
                let error = Diagnostic::error("a model of members has no heads")
                    .help("leave `heads` out, or `ensemble_mean` and what makes members");
                self.report_at_head(at, "output", error, "is of one model");
                continue;
            }
            let y = self.in_pytorch_order(y);
            if !self.head_fits(at, head, field, y) {
                continue;
            }
            let prediction = self.in_unit_of(field, y.value);
            if matches!(self.mode, Mode::Eval | Mode::Predict) {
                self.graph.values[prediction.index()].role = Role::Output;
            }
            made.push(HeadOutput { head, place, field: field.clone(), y, prediction });
        }
        made
    }

    /// Reports what is wrong at a key of a head, or at the head.
    fn report_at_head(&mut self, at: usize, key: &str, error: Diagnostic, label: &str) {
        let error = match self.experiment.nearest_span(&format!("heads.{at}.{key}")) {
            Some(span) => error.at(span, label),
            None => error,
        };
        self.report(error);
    }

    /// Whether the output of a head's layer fits its loss and its target; else reports it.
    fn head_fits(&mut self, at: usize, head: &Head, field: &Field, y: Tensor) -> bool {
        if self.guesses.contains(&y.value) {
            return false;
        }
        let (name, loss) = (head.loss.0.type_name(), head.loss.0.describe());
        let sample = Shape::from(&self.shape(y).dims()[1..]);
        let (fits, wanted, each) = match (loss.targets(), &field.kind) {
            (TargetKind::Classes, FieldKind::Category(classes)) => {
                (matches!(*sample.dims(), [out] if out == classes.number), classes.number, ": one for each class")
            }
            (TargetKind::Numbers, FieldKind::Number) => (sample.len() == 1 && sample.rank() <= 1, 1, ""),
            _ => {
                let error =
                    Diagnostic::error(format!("the loss `{name}` does not fit what the head `{}` learns", head.name()));
                self.report_at_head(at, "loss", error, "the model was trained with another loss");
                return false;
            }
        };
        if !fits {
            let found = self.dims(y).to_pytorch();
            let what = match field.kind.classes() {
                Some(classes) => format!("there are {} classes of `{}`", classes.number, head.target),
                None => format!("`{}` is one number", head.target),
            };
            let message = format!("the layer of the head `{}` puts out {found}, and {what}", head.name());
            let help = match y.made_by.map(|row| self.rows[row].kind.as_str()) {
                Some("linear") => format!("set `out_features = {wanted}`{each}"),
                _ => format!("take a `linear` with `out_features = {wanted}`{each}"),
            };
            let mut error = Diagnostic::error(message).help(help);
            if let Some(row) = y.made_by {
                error = error.at(self.rows[row].span, "the head takes what this puts out");
            }
            if let Some(span) = self.experiment.nearest_span(&format!("heads.{at}.target")) {
                error = error.context(span, "what it learns");
            }
            self.report(error);
            return false;
        }
        let (key, weights, most) = match &loss {
            op::Loss::CrossEntropy(l) => ("weight", l.weight.len(), wanted),
            op::Loss::Binary(l) => ("pos_weight", l.pos_weight.len(), 1),
            op::Loss::Elementwise(_) => return true,
        };
        if [0, most].contains(&weights) {
            return true;
        }
        let message =
            format!("`{key}` of the head `{}` has {weights} numbers, and its layer puts out {most}", head.name());
        let error = Diagnostic::error(message).help("write one number for each");
        self.report_at_head(at, &format!("loss.{key}"), error, &format!("{weights} numbers"));
        false
    }

    /// The sum of the main loss and those of the heads, each times its weight; and the figures of heads.
    pub(super) fn with_heads(&mut self, main: ValueId, heads: &[HeadOutput]) -> ValueId {
        let mut sum = main;
        for head in heads {
            let weight = head.head.weight as f32;
            let mut loss = self.loss_of_head(head);
            if weight != 1.0 {
                loss = self.scaled(loss, weight);
            }
            sum = self.plain(Binary { kind: BinaryKind::Add }, &[sum, loss]);
        }
        sum
    }

    fn loss_of_head(&mut self, head: &HeadOutput) -> ValueId {
        let loss = head.head.loss.0.describe();
        let counted = self.class_counts(&loss, head.y, false).filter(|_| self.experiment.class_counts);
        self.graph.set_origin(&format!("loss.{}", head.head.name()));
        let mut dims = vec![self.batch];
        dims.extend_from_slice(head.field.shape.dims());
        let targets = self.graph.input(head.place, head.field.dtype, Shape(dims));
        let compared = match head.field.standard.as_ref().filter(|_| loss.task() == Task::Regression) {
            Some(standard) => self.plain(standardize(standard), &[targets]),
            None => targets,
        };
        let weights = self.sample_weights(loss.weights(self.shape(head.y)));
        let operands: Vec<ValueId> = [head.y.value, compared].into_iter().chain(weights).collect();
        let sound = "`head_fits` has held the operands against each other";
        let metrics = Metrics { task: loss.task(), ignore_index: loss.ignore_index() };
        let made = self.graph.add(LossOp { loss, weighted: weights.is_some() }, &operands).expect(sound);
        let name = head_metrics(self.mode, head.head.name());
        let sums = self.vars.get_or_add(Variable::zeros(name, DType::F64, [METRIC_SLOTS], VarKind::Metric));
        let sums = self.graph.variable(self.vars, sums);
        self.graph.add(metrics, &[made[0], made[1], head.prediction, targets, sums]).expect(sound);
        if let Some(op) = counted {
            let name = head_class_counts(head.head.name());
            self.count_classes(op, name, head.y, [made[0], head.prediction, targets]);
        }
        made[0]
    }
}
