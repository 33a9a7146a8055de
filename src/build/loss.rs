//! The end of the graph: loss and metrics, and whether the model's output fits them and the data.

use super::input::sample_to_pytorch;
use super::{Builder, Mode, Tensor, metrics_variable};
use crate::config::sections::Loss;
use crate::config::{Diagnostic, Experiment};
use crate::data::TargetSpec;
use crate::graph::op::{CrossEntropy, METRIC_SLOTS, Metrics, Mse, Task};
use crate::graph::{DType, Role, Shape, ValueId, VarKind, Variable};

/// What the model is measured by.
pub fn task(experiment: &Experiment) -> Task {
    match experiment.loss {
        Loss::CrossEntropy(_) => Task::Classification,
        Loss::Mse(_) => Task::Regression,
    }
}

impl Builder<'_> {
    /// Adds loss and metrics on the model's output; returns the loss (none for [`Mode::Predict`]).
    pub(super) fn loss(&mut self, y: Tensor) -> Option<ValueId> {
        let (experiment, data) = (self.experiment, self.data);
        if !self.output_fits(y) || self.mode == Mode::Predict {
            return None;
        }
        self.graph.set_origin("loss");
        let n = self.batch;
        let Some((place, field)) = data.target() else { unreachable!("checked by `output_fits`") };
        let mut dims = vec![n];
        dims.extend_from_slice(field.shape_of(self.length).dims());
        let targets = self.graph.input(place, field.dtype, Shape(dims));
        let loss = match &experiment.loss {
            Loss::CrossEntropy(l) => {
                let op = CrossEntropy { label_smoothing: l.label_smoothing as f32 };
                self.plain(op, &[y.value, targets])
            }
            Loss::Mse(_) => self.plain(Mse {}, &[y.value, targets]),
        };
        self.graph.values[loss.index()].role = Role::Output;
        let sums = Variable::zeros(metrics_variable(self.mode), DType::F64, [METRIC_SLOTS], VarKind::Metric);
        let sums = self.vars.get_or_add(sums);
        let sums = self.graph.variable(self.vars, sums);
        let op = Metrics { task: task(experiment) };
        if let Err(e) = self.graph.add(op, &[loss, y.value, targets, sums]) {
            unreachable!("the builder made the operands of the metrics: {e}");
        }
        Some(loss)
    }

    /// Checks the output's shape against targets and loss; reports what does not fit.
    fn output_fits(&mut self, y: Tensor) -> bool {
        let (experiment, data) = (self.experiment, self.data);
        let sample = Shape::from(&self.shape(y).dims()[1..]);
        let guessed = self.guesses.contains(&y.value);
        let target = data.target().map_or(Shape::default(), |(_, field)| field.shape_of(self.length));
        let (message, help) = match (&experiment.loss, &data.targets) {
            (Loss::CrossEntropy(_), TargetSpec::Values) => (
                "`cross_entropy` needs classes, but the targets of the data are numbers".to_string(),
                "the loss for numbers is `mse`".to_string(),
            ),
            (Loss::Mse(_), TargetSpec::Classes(_)) => (
                "`mse` needs numbers, but the targets of the data are classes".to_string(),
                "the loss for classes is `cross_entropy`".to_string(),
            ),
            _ if data.target().is_none() => (
                "there is nothing to learn: the samples have no targets".to_string(),
                "give the data a field of targets".to_string(),
            ),
            (Loss::CrossEntropy(_), TargetSpec::Classes(_)) if target.rank() > 0 => (
                format!("`cross_entropy` takes one class for each sample, but there are targets of shape {target}"),
                "give each sample one class".to_string(),
            ),
            // What the model is meant to put out is only known once the mistake before is gone.
            _ if guessed => return false,
            (Loss::CrossEntropy(_), TargetSpec::Classes(classes)) => match *sample.dims() {
                [out] if if data.classes_exact { out == *classes } else { out >= *classes } => return true,
                [out] => {
                    let least = if data.classes_exact { "" } else { " or more" };
                    let message = format!(
                        "the model puts out {out} numbers for each sample, but there are {classes}{least} classes"
                    );
                    let last = y.made_by.map(|row| self.rows[row].kind.as_str());
                    let help = match last {
                        Some("linear") => format!("set `out_features = {classes}`: one for each class"),
                        _ => format!("end the model with a `linear` with `out_features = {classes}`"),
                    };
                    (message, help)
                }
                [1, 1, c] if c == *classes => {
                    let message =
                        "`cross_entropy` takes one row of numbers for each sample, but the model puts out images";
                    (message.to_string(), "end the model with \"flatten\"".to_string())
                }
                _ => {
                    let message = "`cross_entropy` takes one row of numbers for each sample, but the model puts out more dimensions";
                    let help = format!("end the model with \"flatten\" and a `linear` with `out_features = {classes}`");
                    (message.to_string(), help)
                }
            },
            (Loss::Mse(_), TargetSpec::Values) => {
                // A single number for each sample may come as [N] or [N, 1].
                let single = |s: &Shape| s.len() == 1;
                if sample == target || (single(&sample) && single(&target)) {
                    return true;
                }
                let (a, b) = (sample_to_pytorch(&sample), sample_to_pytorch(&target));
                let message = format!("the model puts out {a} for each sample, but the targets are {b}");
                let help = match *target.dims() {
                    [n] => format!("end the model with a `linear` with `out_features = {n}`"),
                    _ => "make the last layer put out the shape of the targets".to_string(),
                };
                (message, help)
            }
        };
        let mut error = Diagnostic::error(message).help(help);
        let shape = self.shape(y).to_pytorch();
        match y.made_by {
            _ if guessed => {}
            Some(row) => error = error.at(self.rows[row].span, format!("the model ends here, with {shape}")),
            None => {
                if let Some(span) = experiment.nearest_span("model.layers") {
                    error = error.at(span, "there is no layer");
                }
            }
        }
        let targets = ["data.classes", "data.targets"].iter().find_map(|key| experiment.span_of(key));
        if let Some(span) = targets.or_else(|| experiment.nearest_span("data.source")) {
            error = error.context(span, "the targets");
        }
        if let Some(span) = experiment.nearest_span("loss.type") {
            error = error.context(span, "the loss");
        }
        self.report(error);
        false
    }
}
