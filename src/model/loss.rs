//! The end of the graph: loss and metrics, and whether the model's output fits them and the data.

use super::input::sample_to_pytorch;
use super::transforms::{keyed, mixing};
use super::{Builder, CLASS_COUNTS, ERROR_SUMS_VARIABLE, Mode, Tensor, metrics_variable};
use crate::config::declare::tagged::Tagged;
use crate::config::language::sections as cfg;
use crate::config::text::spelling::{list, shorten};
use crate::config::{Diagnostic, Experiment};
use crate::data::Standard;
use crate::data::text::Spans;
use crate::graph::op::{
    self, Binary, BinaryKind, ClassCounts, Counted, ERROR_SUMS, ErrorSums, Gathered, LossOp, METRIC_SLOTS, Metrics,
    NewFull, Normalize, Reshape, TargetKind, Task,
};
use crate::graph::{DType, Input, Role, Shape, ValueId, VarKind, Variable};

/// Most classes of which it is counted, for each, as which others it was predicted: 8 MiB of counts.
const MOST_IN_MATRIX: usize = 1024;

/// How many classes a message names.
const SHOWN: usize = 12;

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
    /// `prediction` is that output in the target's own unit.
    pub(super) fn loss(&mut self, y: Tensor, prediction: ValueId) -> Option<BatchLoss> {
        let experiment = self.experiment;
        let loss = experiment.loss.describe();
        if !self.output_fits(y, &loss) || !self.mixing_fits() || matches!(self.mode, Mode::Predict | Mode::Generate) {
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
        let counts = self.class_counts(&loss, y);
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
        let (value, weight) = (made[0], made[1]);
        self.graph.values[value.index()].role = Role::Output;
        let prediction = self.middle_quantile(prediction);
        let sums = self.graph.variable(self.vars, sums);
        self.graph.add(metrics, &[value, weight, prediction, targets, sums]).expect(sound);
        if let Some(op) = counts {
            let len = op.len(self.shape(y).last());
            let counts = self.vars.get_or_add(Variable::zeros(CLASS_COUNTS, DType::F64, [len], VarKind::Metric));
            let counts = self.graph.variable(self.vars, counts);
            self.graph.add(op, &[value, prediction, targets, counts]).expect(sound);
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
    fn sample_weights(&mut self, number: usize) -> Option<ValueId> {
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
    fn field(&self, name: &str) -> Option<Tensor> {
        self.prepared.iter().find(|(known, _)| known == name).map(|(_, x)| *x)
    }

    /// Checks the output against the field `name` that it is to be like; reports what does not fit.
    fn output_is_like(&mut self, name: &str, y: Tensor, loss: &op::Loss) -> bool {
        let experiment = self.experiment;
        let Some(x) = self.field(name) else {
            let known: Vec<&str> = self.prepared.iter().map(|(name, _)| name.as_str()).collect();
            let error = Diagnostic::error(format!("the model takes no field `{}` that it could learn", shorten(name)));
            let error = error.help(format!("`target` may be {}", list(known, "or")));
            self.report(match experiment.nearest_span("loss.target") {
                Some(span) => error.at(span, "there is no such input"),
                None => error,
            });
            return false;
        };
        let (found, wanted) = (self.dims(y), self.dims(x));
        if found == wanted {
            return self.pos_weight_fits(loss, self.shape(y).last());
        }
        if !self.guesses.contains(&y.value) {
            let [found, wanted] = [found, wanted].map(|shape| Shape::from(&shape.dims()[1..]));
            let message = format!("the model puts out {found} for each sample, but is to learn `{name}`, {wanted}");
            let mut error = Diagnostic::error(message).help("make the last layer put out the shape of what is learnt");
            if let Some(row) = y.made_by {
                error = error.at(self.rows[row].span, "the model ends here");
            }
            if let Some(span) = experiment.nearest_span("loss.target") {
                error = error.context(span, "what it is to learn");
            }
            self.report(error);
        }
        false
    }

    /// What is to be counted of classes, if anything is: in evaluation, where a figure needs it or it is to be reported.
    fn class_counts(&mut self, loss: &op::Loss, y: Tensor) -> Option<ClassCounts> {
        let experiment = self.experiment;
        if self.mode != Mode::Eval || !(experiment.class_counts || self.is_asked_for(Gathered::ClassCounts)) {
            return None;
        }
        let classes = self.shape(y).last();
        let labels = if self.target.as_ref().is_some_and(|(_, field)| field.shape.rank() > 0) { classes } else { 1 };
        let of = match loss.task() {
            Task::Classification => Counted::Classes {
                ignore_index: loss.ignore_index(),
                matrix: experiment.class_counts && classes <= MOST_IN_MATRIX,
            },
            Task::BinaryClassification => Counted::Labels(labels),
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

    /// Refuses top-k accuracies of more classes than there are, which would always be 1, and figures of spans where tags make none.
    fn figures_fit(&mut self, classes: usize) -> bool {
        let experiment = self.experiment;
        let spans = Spans::of_target(self.data).is_some();
        let positions = self.target.as_ref().is_some_and(|(_, field)| field.shape.rank() > 0);
        let misfit = |figure: &op::Figure| {
            figure.top_k().is_some_and(|k| k > classes)
                || figure.is_of_spans() && !spans
                || *figure == op::Figure::ExactMatch && !positions
        };
        let Some(figure) = experiment.asked_figures().into_iter().find(misfit) else { return true };
        let named = experiment.metrics.figures.iter().position(|asked| asked.figure() == figure);
        let keys = [named.map(|i| format!("metrics.figures.{i}")), Some("checkpoint.monitor".into())];
        let span = keys.into_iter().flatten().find_map(|key| experiment.span_of(&key));
        let (message, label) = match figure.is_of_spans() {
            true => {
                let message = "needs a tag for each word, as `B-PER`, `I-PER` and `O`: those of IOB2, IOBES or BILOU";
                (message.to_owned(), "the classes of the data are no such tags".to_owned())
            }
            false if figure == op::Figure::ExactMatch => {
                ("is for a class at each position".to_owned(), "a sample has one class: see `accuracy`".to_owned())
            }
            false => {
                let of = if classes == 1 { "class" } else { "classes" };
                (format!("of {classes} {of} would always be 1"), format!("there are {classes}"))
            }
        };
        let mut error = Diagnostic::error(format!("`{}` {message}", figure.name())).help("leave it out");
        if let Some(span) = span.or_else(|| experiment.nearest_span("train.early_stopping.monitor")) {
            error = error.at(span, label);
        }
        self.report(error);
        false
    }

    /// Checks the output's shape against targets and loss; reports what does not fit.
    fn output_fits(&mut self, y: Tensor, loss: &op::Loss) -> bool {
        let (experiment, data) = (self.experiment, self.data);
        let mut sample = Shape::from(&self.shape(y).dims()[1..]);
        if self.members.is_some() && sample.rank() > 1 {
            sample.0.remove(0);
        }
        let guessed = self.guesses.contains(&y.value);
        if let Some(name) = experiment.loss.target() {
            return self.output_is_like(name, y, loss);
        }
        let name = loss.name();
        let target = &self.target.as_ref().map_or(Shape::default(), |(_, field)| field.shape_of(self.lengths));
        let labels = data.labels();
        let (message, help) = match (loss.targets(), labels) {
            _ if data.target().is_none() => (
                "there is nothing to learn: the samples have no targets".to_string(),
                "give the data a field of targets".to_string(),
            ),
            (TargetKind::Classes, None) => (
                format!("`{name}` needs classes, but the targets of the data are numbers"),
                match experiment.data.source {
                    cfg::Source::Csv(_) | cfg::Source::Parquet(_) => {
                        "set `classes = true` in `[data]` if each of these numbers is a class; the loss for numbers is `mse`"
                    }
                    _ => "the loss for numbers is `mse`",
                }
                .to_string(),
            ),
            (TargetKind::Numbers, Some(_)) => (
                format!("`{name}` needs numbers, but the targets of the data are classes"),
                "the loss for classes is `cross_entropy`".to_string(),
            ),
            // What the model is meant to put out is only known once the mistake before is gone.
            _ if guessed => return false,
            (TargetKind::Classes, Some(classes)) if target.rank() == 0 => match *sample.dims() {
                [out] if classes.fit(out) => {
                    return self.weights_fit(loss, out, y) && self.figures_fit(out);
                }
                [out] => {
                    let (classes, least) = (classes.number, if classes.exact { "" } else { " or more" });
                    let message = format!(
                        "the model puts out {out} numbers for each sample, but there are {classes}{least} classes"
                    );
                    let last = y.made_by.map(|row| self.rows[row].kind.as_str());
                    let help = match last {
                        Some("linear") => format!("set `out_features = {classes}`: one for each class"),
                        _ => format!("end the model with a `linear` with `out_features = {classes}`"),
                    };
                    (message, self.head_help(out, classes, help))
                }
                [1, 1, c] if c == classes.number => {
                    let message =
                        format!("`{name}` takes one row of numbers for each sample, but the model puts out images");
                    (message, "end the model with \"flatten\"".to_string())
                }
                _ => {
                    let message = format!(
                        "`{name}` takes one row of numbers for each sample, but the model puts out more dimensions"
                    );
                    let classes = classes.number;
                    let help = format!("end the model with \"flatten\" and a `linear` with `out_features = {classes}`");
                    (message, help)
                }
            },
            (TargetKind::Classes, Some(classes)) => match sample.dims() {
                [at @ .., out] if at == target.dims() && classes.fit(*out) => {
                    return self.weights_fit(loss, *out, y) && self.figures_fit(*out);
                }
                [at @ .., out] if at == target.dims() => {
                    let (classes, least) = (classes.number, if classes.exact { "" } else { " or more" });
                    let message = format!(
                        "the model puts out {out} numbers for each position, but there are {classes}{least} classes"
                    );
                    let help = match at.len() {
                        2 => {
                            format!("end the model with a `conv2d` with `out_channels = {classes}`: one for each class")
                        }
                        _ => {
                            format!("end the model with a `linear` with `out_features = {classes}`: one for each class")
                        }
                    };
                    (message, self.head_help(*out, classes, help))
                }
                _ => {
                    let mut wanted = target.dims().to_vec();
                    wanted.push(classes.number);
                    let (a, b) = (sample_to_pytorch(&sample), sample_to_pytorch(&Shape(wanted)));
                    let message = format!(
                        "the model puts out {a} for each sample, but the targets are one class for each position of \
                         {target}"
                    );
                    (
                        message,
                        format!("make the model put out {b}: as many numbers for each position as there are classes"),
                    )
                }
            },
            (TargetKind::Numbers, None) if target.rank() == 3 && !experiment.loss.quantiles().is_empty() => {
                (format!("the targets are images, and `{name}` has several quantiles"), "write one quantile".to_string())
            }
            (TargetKind::Numbers, None) => {
                // A single number for each sample may come as [N] or [N, 1].
                let wanted = self.with_quantiles(target);
                if sample == wanted || self.is_of_one_target(&sample, target) {
                    return self.pos_weight_fits(loss, if sample.rank() > 0 { sample.last() } else { 1 });
                }
                let (a, b) = (sample_to_pytorch(&sample), sample_to_pytorch(target));
                let message = match experiment.loss.quantiles().len() {
                    0 => format!("the model puts out {a} for each sample, but the targets are {b}"),
                    n => format!("the model puts out {a} for each sample, but the targets are {b}, of {n} quantiles each"),
                };
                let help = match *wanted.dims() {
                    [n] => format!("end the model with a `linear` with `out_features = {n}`"),
                    _ => "make the last layer put out the shape of the targets".to_string(),
                };
                (message, help)
            }
        };
        let mut error = Diagnostic::error(message).help(help);
        let shape = self.shape(y).to_pytorch();
        let number = experiment.model.num_classes.filter(|(number, _)| *number == self.shape(y).last());
        let asked = labels.is_some() && target.rank() == 0;
        if let Some(found) = self.classes_found() {
            error = error.note(found);
        }
        match y.made_by {
            _ if guessed => {}
            // Where it is said how many there are, which need not be the file of the layer.
            _ if asked && number.is_some() => {
                error = number
                    .into_iter()
                    .fold(error, |error, (_, span)| error.at(span, format!("the model ends with {shape}")));
            }
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

    /// What to do about a model of `out` outputs where there are so many classes; `help` is what would fit its end to the data.
    fn head_help(&self, out: usize, classes: usize, help: String) -> String {
        let experiment = self.experiment;
        if experiment.data.fitted.is_some() {
            return format!(
                "the model is trained already, on {out} outputs: evaluate it on data of its classes, or train it anew"
            );
        }
        let help = match experiment.model.num_classes {
            Some((number, _)) if number == out => format!(
                "set `num_classes = {classes}` (of a model in `use`: `with = {{ num_classes = {classes} }}`), or `\"$classes\"`, which is \
                 what the data says"
            ),
            _ => help,
        };
        match self.classes_found() {
            Some(_) => format!(
                "if these are the classes that you mean, {help}; if not, move away what is no class, or name those that are with `classes`"
            ),
            None => help,
        }
    }

    /// Which classes the data has, and what looks wrong about them, where nothing but its folders or its list says it.
    fn classes_found(&self) -> Option<String> {
        let (experiment, data) = (self.experiment, self.data);
        let found = experiment.data.source.has_photos() && experiment.span_of("data.classes").is_none();
        let quoted = |names: &[String]| {
            let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{}`", shorten(name))).collect();
            let more = names.len().saturating_sub(SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", shown.join(", "))
        };
        let names = data.class_names().filter(|_| found)?;
        let empty = match &data.empty_folders[..] {
            [] => String::new(),
            empty => format!("; folders without photos, which are no classes: {}", quoted(empty)),
        };
        Some(format!("the classes that were found in the data: {}{empty}", quoted(names)))
    }

    /// Whether targets can be mixed, if the transforms mix samples: numbers, or one class a sample; else reports it.
    fn mixing_fits(&mut self) -> bool {
        let Some(target) = self.target.as_ref().map(|(_, field)| field.shape_of(self.lengths)) else { return true };
        let own = self.experiment.loss.target().is_some();
        let weighted = self.data.sample_weight().is_some();
        if mixing(self.experiment).is_none()
            || !own && !weighted && (self.data.labels().is_none() || target.rank() == 0)
        {
            return true;
        }
        let mixes = |t: &cfg::Transform| matches!(t, cfg::Transform::Mixup(_) | cfg::Transform::Cutmix(_));
        let Some((key, t)) = keyed(self.experiment, true).find(|(_, t)| mixes(t)) else { return true };
        let message = match own {
            true => format!("`{}` mixes samples with their targets, and this loss leaves those alone", t.type_name()),
            false if weighted => format!("`{}` mixes samples, and these have weights of their own", t.type_name()),
            false => format!(
                "`{}` mixes samples of one class each, and these have a class for each of {target}",
                t.type_name()
            ),
        };
        let mut error = Diagnostic::error(message).help("leave it out");
        if let Some(span) = self.experiment.nearest_span(&key) {
            error = error.at(span, "cannot mix these targets");
        }
        self.report(error);
        false
    }

    /// Whether there is one weight of a yes, or one for each of the labels; else reports it.
    fn pos_weight_fits(&mut self, loss: &op::Loss, labels: usize) -> bool {
        let op::Loss::Binary(op::WeightedBinary { pos_weight, .. }) = loss else { return true };
        if [0, 1, labels].contains(&pos_weight.len()) {
            return true;
        }
        let weights = pos_weight.len();
        let message = format!("`pos_weight` of the loss has {weights} numbers, but the model puts out {labels} labels");
        let mut error = Diagnostic::error(message).help("write one number for each label, or one for all");
        if let Some(span) = self.experiment.nearest_span("loss.pos_weight") {
            error = error.at(span, format!("{weights} numbers"));
        }
        self.report(error);
        false
    }

    /// Whether there is a weight for each of `outputs` classes, if there are any; else reports it.
    fn weights_fit(&mut self, loss: &op::Loss, outputs: usize, y: Tensor) -> bool {
        let weights = match loss {
            op::Loss::CrossEntropy(l) => l.weight.len(),
            op::Loss::Elementwise(_) | op::Loss::Binary(_) => 0,
        };
        if weights == 0 || weights == outputs {
            return true;
        }
        let message = format!("`weight` of the loss has {weights} numbers, but the model puts out {outputs} classes");
        let mut error = Diagnostic::error(message).help("write one number for each class");
        if let Some(span) = self.experiment.nearest_span("loss.weight") {
            error = error.at(span, format!("{weights} numbers"));
        }
        if let Some(row) = y.made_by {
            error = error.context(self.rows[row].span, "the model ends here");
        }
        self.report(error);
        false
    }
}

/// `(x - mean) / deviation`
fn standardize(standard: &Standard) -> Normalize {
    Normalize { scale: 1.0, mean: standard.mean.clone(), std: standard.deviation.clone(), to: DType::F32 }
}

/// `x · deviation + mean`, as the same operation has it: `(x - (-mean / deviation)) / (1 / deviation)`.
fn undo(standard: &Standard) -> Normalize {
    let mean = standard.mean.iter().zip(&standard.deviation).map(|(mean, deviation)| -mean / deviation).collect();
    let std = standard.deviation.iter().map(|deviation| 1.0 / deviation).collect();
    Normalize { scale: 1.0, mean, std, to: DType::F32 }
}
