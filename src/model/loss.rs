//! The end of the graph: loss and metrics, and whether the model's output fits them and the data.

use super::heads::HeadOutput;
use super::transforms::mixing;
use super::units::{standardize, undo};
use super::{Builder, CLASS_COUNTS, ERROR_SUMS_VARIABLE, Mode, Tensor, metrics_variable};
use crate::config::Experiment;
use crate::data::Standard;
use crate::graph::op::{
    self, Binary, BinaryKind, ClassCounts, Counted, ERROR_SUMS, ErrorSums, Gathered, LossOp, METRIC_SLOTS, Metrics,
    NewFull, Reshape, TargetKind, Task,
};
use crate::graph::{DType, Input, Role, Shape, ValueId, VarKind, Variable};

/// Most classes of which it is counted, for each, as which others it was predicted: 8 MiB of counts.
pub const MOST_IN_MATRIX: usize = 1024;

/// What the model is measured by.
pub fn task(experiment: &Experiment) -> Task {
    experiment.loss.describe().task()
}

/// The loss of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLoss {
    /// The mean over what counts.
    pub value: ValueId,
    /// What the batch weighs in a mean over several.
    pub weight: ValueId,
    /// The same if all of its items count and none has a weight of its own.
    pub items: usize,
}

impl Builder<'_> {
    /// Adds loss and metrics on the model's output (nothing where there are no targets).
    /// `prediction` is that output in the target's own unit. With `heads` the loss is the sum of all.
    pub(super) fn loss(&mut self, y: Tensor, prediction: ValueId, heads: &[HeadOutput]) -> Option<BatchLoss> {
        let experiment = self.experiment;
        let loss = experiment.engine_loss();
        // Elsewhere the loss is not computed, and may stand in for one that could not be read.
        if !matches!(self.mode, Mode::Train | Mode::Eval) || !self.output_fits(y, &loss) || !self.mixing_fits() {
            return None;
        }
        self.graph.set_origin("loss");
        let Some((place, field)) = self.target.clone() else { unreachable!("checked by `output_fits`") };
        let mut dims = vec![self.batch];
        dims.extend_from_slice(field.shape_of(self.lengths).dims());
        let targets = self.graph.input(place, field.dtype, Shape(dims));
        let sums = Variable::zeros(metrics_variable(self.mode), DType::F64, [METRIC_SLOTS], VarKind::Metric);
        let sums = self.vars.get_or_add(sums);
        let (items, metrics) =
            (loss.items(self.shape(y)), Metrics { task: loss.task(), ignore_index: loss.ignore_index() });
        let sound = "`output_fits` has held the operands against each other";
        let asked = experiment.class_counts || self.is_asked_for(Gathered::ClassCounts);
        let several = self.target.as_ref().is_some_and(|(_, field)| field.shape.rank() > 0);
        let counts = if asked { self.class_counts(&loss, y, several) } else { None };
        let errors = self.error_sums(&loss, y);
        // Mixed samples belong to several classes in part; the figures go by that of the largest.
        let mixed = self.mode == Mode::Train && mixing(experiment).is_some();
        let own = experiment.loss.target().and_then(|name| self.field(name)).map(|x| x.value);
        let targets = own.unwrap_or(targets);
        let compared = match loss.targets() {
            TargetKind::Classes if mixed => {
                let mut shape = self.shape(y).clone();
                if self.members.is_some() {
                    shape.0.remove(1);
                }
                self.graph.input(Input::Shares, DType::F32, shape)
            }
            TargetKind::Classes | TargetKind::Numbers => match self.standard().filter(|_| own.is_none()) {
                Some(standard) => self.plain(standardize(&standard), &[targets]),
                None => targets,
            },
        };
        let [compared, targets] = match compared == targets {
            true => [self.for_each_member(targets); 2],
            false => [compared, targets].map(|x| self.for_each_member(x)),
        };
        let (said, compared, by) = match experiment.loss.quantiles() {
            [] => (y.value, compared, loss),
            _ => self.pinball(y.value, compared),
        };
        let weights = self.sample_weights(by.weights(self.graph.shape(said)));
        let operands: Vec<ValueId> = [said, compared].into_iter().chain(weights).collect();
        let made = self.graph.add(LossOp { loss: by, weighted: weights.is_some() }, &operands).expect(sound);
        let (value, weight) = (self.with_heads(made[0], heads), made[1]);
        self.graph.set_origin("loss");
        self.graph.values[value.index()].role = Role::Output;
        let prediction = self.middle_quantile(prediction);
        let sums = self.graph.variable(self.vars, sums);
        self.graph.add(metrics, &[value, weight, prediction, targets, sums]).expect(sound);
        if let Some(op) = counts {
            self.count_classes(op, CLASS_COUNTS.to_owned(), y, [value, prediction, targets]);
        }
        if let Some(op) = errors {
            let zeros = Variable::zeros(ERROR_SUMS_VARIABLE, DType::F64, [op.outputs, ERROR_SUMS], VarKind::Metric);
            let sums = self.vars.get_or_add(zeros);
            let sums = self.graph.variable(self.vars, sums);
            self.graph.add(op, &[value, prediction, targets, sums]).expect(sound);
        }
        Some(BatchLoss { value, weight, items })
    }

    /// What samples weigh, if they have weights: for each of so many rows or numbers, all those of a sample alike.
    pub(super) fn sample_weights(&mut self, number: usize) -> Option<ValueId> {
        let (place, field) = self.data.sample_weight()?;
        let weights = self.graph.input(place, field.dtype, Shape::from([self.batch]));
        let each = number / self.batch.max(1);
        if each == 1 {
            return Some(weights);
        }
        let weights = self.plain(Reshape { shape: Shape::from([self.batch, 1]) }, &[weights]);
        // A sum with zeros stretches it.
        let zeros = self.plain(NewFull { shape: Shape::from([1, each]), value: 0.0 }, &[weights]);
        Some(self.plain(Binary { kind: BinaryKind::Add }, &[weights, zeros]))
    }

    /// What the numbers that are learnt are standardised by: those of a regression, not probabilities.
    fn standard(&self) -> Option<Standard> {
        let regression = self.experiment.loss.describe().task() == Task::Regression;
        let learns_it = regression && self.experiment.loss.target().is_none();
        self.target.as_ref().filter(|_| learns_it).and_then(|(_, field)| field.standard.clone())
    }

    /// The model's output in the target's own unit, where what is learnt is standardised.
    pub(super) fn in_own_unit(&mut self, y: Tensor) -> ValueId {
        let each = self.experiment.loss.quantiles().len().max(1);
        let standard = self.standard().map(|standard| standard.repeated(each));
        match standard.filter(|standard| standard.mean.len() == self.shape(y).last()) {
            Some(standard) => self.plain(undo(&standard), &[y.value]),
            None => y.value,
        }
    }

    /// A field that the model takes, as the layers see it.
    pub(super) fn field(&self, name: &str) -> Option<Tensor> {
        self.prepared.iter().find(|(known, _)| known == name).map(|(_, x)| *x)
    }

    /// Counts classes of a loss and the predictions and targets that it is of, in a variable of that name.
    pub(super) fn count_classes(&mut self, op: ClassCounts, name: String, y: Tensor, operands: [ValueId; 3]) {
        let len = op.len(self.shape(y).last());
        let counts = self.vars.get_or_add(Variable::zeros(name, DType::F64, [len], VarKind::Metric));
        let counts = self.graph.variable(self.vars, counts);
        let [value, prediction, targets] = operands;
        let sound = "what a loss takes can be counted";
        self.graph.add(op, &[value, prediction, targets, counts]).expect(sound);
    }

    /// What is to be counted of classes in evaluation, if the loss has some; of labels there may be several.
    pub(super) fn class_counts(&self, loss: &op::Loss, y: Tensor, several: bool) -> Option<ClassCounts> {
        if self.mode != Mode::Eval {
            return None;
        }
        let classes = self.shape(y).last();
        let of = match loss.task() {
            Task::Classification => Counted::Classes {
                ignore_index: loss.ignore_index(),
                matrix: self.experiment.class_counts && classes <= MOST_IN_MATRIX,
            },
            Task::BinaryClassification => Counted::Labels(if several { classes } else { 1 }),
            Task::Regression => return None,
        };
        Some(ClassCounts { of })
    }

    /// Whether a figure is asked for that is computed from this.
    fn is_asked_for(&self, gathered: Gathered) -> bool {
        self.experiment.asked_figures().iter().any(|figure| figure.gathered() == gathered)
    }

    /// What is to be summed of a regression, in evaluation, where a figure needs it or it is to be reported: for each number that is predicted of a
    /// sample or, where a sample has more dimensions, for all together.
    fn error_sums(&mut self, loss: &op::Loss, y: Tensor) -> Option<ErrorSums> {
        if self.mode != Mode::Eval || loss.task() != Task::Regression {
            return None;
        }
        let dims = self.shape(y).dims();
        let each = self.experiment.loss.quantiles().len().max(1);
        let outputs = if dims.len() == 2 { dims[1] / each } else { 1 };
        let reported = self.experiment.class_counts && outputs > 1;
        (reported || self.is_asked_for(Gathered::ErrorSums)).then_some(ErrorSums { outputs })
    }
}
