//! Whether the model's output fits the loss, the figures and the data: what does not is reported.

use super::input::sample_to_pytorch;
use super::transforms::{keyed, mixing};
use super::{Builder, Tensor};
use crate::config::Diagnostic;
use crate::config::declare::tagged::Tagged;
use crate::config::language::sections as cfg;
use crate::config::text::spelling::{list, shorten};
use crate::data::Classes;
use crate::data::text::Spans;
use crate::graph::Shape;
use crate::graph::op::{self, TargetKind};

/// How many classes a message names.
const SHOWN: usize = 12;

impl Builder<'_> {
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
    pub(super) fn output_fits(&mut self, y: Tensor, loss: &op::Loss) -> bool {
        let (experiment, data) = (self.experiment, self.data);
        let mut sample = Shape::from(&self.shape(y).dims()[1..]);
        if self.members.is_some() && sample.rank() > 1 {
            sample.0.remove(0);
        }
        let guessed = self.guesses.contains(&y.value);
        if let Some(name) = experiment.loss.target() {
            return self.output_is_like(name, y, loss);
        }
        let name = experiment.loss.type_name();
        // What the model itself puts out of so many classes.
        let less = usize::from(experiment.loss.is_ordinal());
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
                    return self.weights_fit(loss, out, y) && self.figures_fit(out) && self.order_is_known(y);
                }
                [out] => {
                    let (number, more) = (classes.number, if classes.exact { "" } else { " or more" });
                    let message = match less {
                        0 => format!("the model puts out {out} numbers for each sample, but there are {number}{more} classes"),
                        _ => Self::not_the_steps(out, classes, "sample"),
                    };
                    let (out, classes) = (out - less, classes.number - less);
                    let last = y.made_by.map(|row| self.rows[row].kind.as_str());
                    let help = match last {
                        Some("linear") if less > 0 => format!("set `out_features = {classes}`"),
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
                    let classes = classes.number - less;
                    let help = format!("end the model with \"flatten\" and a `linear` with `out_features = {classes}`");
                    (message, help)
                }
            },
            (TargetKind::Classes, Some(classes)) => match sample.dims() {
                [at @ .., out] if at == target.dims() && classes.fit(*out) => {
                    return self.weights_fit(loss, *out, y) && self.figures_fit(*out) && self.order_is_known(y);
                }
                [at @ .., out] if at == target.dims() => {
                    let (number, more) = (classes.number, if classes.exact { "" } else { " or more" });
                    let message = match less {
                        0 => format!("the model puts out {out} numbers for each position, but there are {number}{more} classes"),
                        _ => Self::not_the_steps(*out, classes, "position"),
                    };
                    let (out, classes) = (out - less, classes.number - less);
                    let layer = if at.len() == 2 { "`conv2d` with `out_channels" } else { "`linear` with `out_features" };
                    let each = if less > 0 { "" } else { ": one for each class" };
                    (message, self.head_help(out, classes, format!("end the model with a {layer} = {classes}`{each}")))
                }
                _ => {
                    let mut wanted = target.dims().to_vec();
                    wanted.push(classes.number - less);
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
                    [n] if sample.rank() == 2 => format!(
                        "each position of a sequence has numbers: `sequence_pool` or `flatten` makes one vector of all, before a `linear` with `out_features = {n}`"
                    ),
                    [n] => format!("end the model with a `linear` with `out_features = {n}`"),
                    _ => "make the last layer put out the shape of the targets".to_string(),
                };
                (message, help)
            }
        };
        let mut error = Diagnostic::error(message).help(help);
        let mut shape = self.shape(y).clone();
        if let Some(last) = shape.0.last_mut().filter(|last| **last > less) {
            *last -= less;
        }
        let number = experiment.model.num_classes.filter(|(number, _)| *number == shape.last());
        let shape = shape.to_pytorch();
        let asked = labels.is_some() && target.rank() == 0;
        if let Some(found) = self.classes_found() {
            error = error.note(found);
        }
        match y.made_by {
            _ if guessed => {}
            // The place where the number is given, which need not be the file of the layer.
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

    /// What is put out for each sample or position is not what `ordinal` takes of so many classes; `out` is one more than that.
    fn not_the_steps(out: usize, classes: &Classes, each: &str) -> String {
        let (number, least) = (classes.number, if classes.exact { "" } else { " or more" });
        format!(
            "the model puts out {} numbers for each {each}, but `ordinal` takes {}{least} for {number} classes: one for each step from a class to the next",
            out - 1,
            number - 1
        )
    }

    /// Whether the classes of a loss for an order are in it: numbers, or named in the configuration; else reports it.
    fn order_is_known(&mut self, y: Tensor) -> bool {
        let (experiment, data) = (self.experiment, self.data);
        let named = experiment.data.fitted.is_some() || experiment.data.source.named_classes().is_some();
        let Some(names) = data.class_names().filter(|_| experiment.loss.is_ordinal() && !named) else { return true };
        if names.iter().all(|name| name.parse::<f64>().is_ok()) {
            return true;
        }
        let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{}`", shorten(name))).collect();
        let message = format!("nothing says in which order the classes are: {}", shown.join(", "));
        let mut error = Diagnostic::error(message)
            .help("name them in their order, the least first, with `classes = [\"…\", …]` in `[data]`");
        if let Some(span) = experiment.nearest_span("loss.type") {
            error = error.at(span, "is for classes that have an order");
        }
        if let Some(row) = y.made_by {
            error = error.context(self.rows[row].span, "the model ends here");
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
    pub(super) fn mixing_fits(&mut self) -> bool {
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
