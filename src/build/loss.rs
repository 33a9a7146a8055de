//! The end of the graph: loss and metrics, and whether the model's output fits them and the data.

use super::{Builder, Mode, Tensor, metrics_variable};
use crate::config::sections::Loss;
use crate::config::tagged::Tagged as _;
use crate::config::{Diagnostic, Experiment};
use crate::data::{DataSpec, TargetSpec};
use crate::graph::op::{CrossEntropy, METRIC_SLOTS, Metrics, Mse, Task};
use crate::graph::{DType, Fill, Input, Role, Shape, Storage, ValueId, VarKind, Variable};

/// What the model is measured by.
pub fn task(experiment: &Experiment) -> Task {
    match experiment.loss {
        Loss::CrossEntropy(_) => Task::Classification,
        Loss::Mse(_) => Task::Regression,
    }
}

impl Builder<'_> {
    /// Adds loss and metrics on the model's output; returns the loss (none for [`Mode::Predict`]).
    pub(super) fn loss(&mut self, experiment: &Experiment, data: &DataSpec, y: Tensor) -> Option<ValueId> {
        if !self.output_fits(experiment, data, y) || self.mode == Mode::Predict {
            return None;
        }
        self.graph.set_origin("loss");
        let n = self.batch;
        let (targets, loss) = match (&experiment.loss, &data.targets) {
            (Loss::CrossEntropy(l), _) => {
                let targets = self.graph.input(Input::Targets, DType::I32, Shape::from([n]));
                let op = CrossEntropy { label_smoothing: l.label_smoothing as f32 };
                (targets, self.plain(op, &[y.value, targets]))
            }
            (Loss::Mse(_), TargetSpec::Values(shape)) => {
                let mut dims = vec![n];
                dims.extend_from_slice(shape.dims());
                let targets = self.graph.input(Input::Targets, DType::F32, Shape(dims));
                (targets, self.plain(Mse {}, &[y.value, targets]))
            }
            (Loss::Mse(_), TargetSpec::Classes(_)) => unreachable!("checked by `output_fits`"),
        };
        self.graph.values[loss.index()].role = Role::Output;
        let sums = self.vars.get_or_add(Variable {
            name: metrics_variable(self.mode).into(),
            dtype: DType::F64,
            shape: Shape::from([METRIC_SLOTS]),
            kind: VarKind::Metric,
            trainable: false,
            storage: Storage::plain([METRIC_SLOTS]),
            init: Fill::Constant(0.0),
            origin: String::new(),
        });
        let sums = self.graph.variable(self.vars, sums);
        let op = Metrics { task: task(experiment) };
        if let Err(e) = self.graph.add(op, &[loss, y.value, targets, sums]) {
            unreachable!("the builder made the operands of the metrics: {e}");
        }
        Some(loss)
    }

    /// Checks the output's shape against targets and loss; reports what does not fit.
    fn output_fits(&mut self, experiment: &Experiment, data: &DataSpec, y: Tensor) -> bool {
        let shape = self.shape(y).to_pytorch();
        let sample = Shape::from(&self.shape(y).dims()[1..]);
        let loss = experiment.loss.type_name();
        let (message, help) = match (&experiment.loss, &data.targets) {
            (Loss::CrossEntropy(_), TargetSpec::Classes(classes)) => {
                let out = sample.dims().last().copied().unwrap_or(0);
                let fits = if data.classes_exact { out == *classes } else { out >= *classes };
                if sample.rank() == 1 && fits {
                    return true;
                }
                if sample.rank() != 1 {
                    let message = format!("`{loss}` takes one row of logits a sample, but the model puts out {shape}");
                    (message, "end the model with a pooling to one pixel, \"flatten\" and a `linear`".to_string())
                } else {
                    let message = format!("the model puts out {out} classes, but the data has {classes}");
                    (message, format!("make the last layer put out {classes}"))
                }
            }
            (Loss::Mse(_), TargetSpec::Values(target)) => {
                // A batch of single values may come as [N] or [N, 1].
                let scalar = |s: &Shape| s.dims().iter().all(|d| *d == 1);
                if sample == *target || (scalar(&sample) && scalar(target)) {
                    return true;
                }
                let (a, b) = (Shape(prepend(&sample)).to_pytorch(), Shape(prepend(target)).to_pytorch());
                let (a, b) = (Shape::from(&a.dims()[1..]), Shape::from(&b.dims()[1..]));
                let message = format!("the model puts out {a} for each sample, but the targets are {b}");
                (message, "make the last layer put out the shape of the targets".to_string())
            }
            (Loss::CrossEntropy(_), TargetSpec::Values(_)) => (
                "`cross_entropy` needs classes, but the data has real values as targets".to_string(),
                "use the loss `mse`".to_string(),
            ),
            (Loss::Mse(_), TargetSpec::Classes(_)) => (
                "`mse` needs real values as targets, but the data has classes".to_string(),
                "use the loss `cross_entropy`".to_string(),
            ),
        };
        let mut error = Diagnostic::error(message).help(help);
        if let Some(row) = y.made_by {
            error = error.at(self.rows[row].span, format!("the model ends here, with {shape}"));
        }
        for (key, what) in [("loss.type", "this loss"), ("data.source", "this data")] {
            if let Some(span) = experiment.nearest_span(key) {
                error = error.context(span, what);
            }
        }
        self.errors.push(error);
        false
    }
}

/// A sample's dimensions with a batch of one before them.
fn prepend(sample: &Shape) -> Vec<usize> {
    std::iter::once(1).chain(sample.dims().iter().copied()).collect()
}
