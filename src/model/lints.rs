//! Warnings about a whole model that is probably not as meant, from its forward graph for training.

mod future;

use super::{Forward, LayerRow};
use crate::config::declare::tagged::Tagged;
use crate::config::language::sections::Transform;
use crate::config::{Diagnostic, Experiment, Lint, Span};
use crate::data::{DataSpec, transformed};
use crate::graph::op::{Activation, Op, TargetKind};
use crate::graph::{DType, Graph, Node, ValueId};
use std::collections::{HashMap, HashSet};

/// The warnings about `forward`, which is for training; those that `[lint]` allows are among them.
pub fn lints(experiment: &Experiment, data: &DataSpec, forward: &Forward) -> Vec<Diagnostic> {
    let mut layers: HashMap<ValueId, Vec<&LayerRow>> = HashMap::new();
    for row in &forward.rows {
        layers.entry(row.value).or_default().push(row);
    }
    let lints = Lints { experiment, data, forward, makers: makers(&forward.graph), layers };
    let mut found = Vec::new();
    found.extend(lints.activation_before_cross_entropy());
    found.extend(lints.nll_without_log_softmax());
    found.extend(lints.mean_not_positive());
    found.extend(lints.dropout_at_end());
    found.extend(lints.one_class());
    found.extend(lints.activations_without_effect());
    found.extend(lints.unused_layers());
    found.extend(lints.normalize_range());
    found.extend(lints.sees_the_future());
    found
}

/// The node that makes each value.
fn makers(graph: &Graph) -> HashMap<ValueId, &Node> {
    graph.nodes.iter().flat_map(|node| node.outputs.iter().map(move |v| (*v, node))).collect()
}

struct Lints<'a> {
    experiment: &'a Experiment,
    data: &'a DataSpec,
    forward: &'a Forward,
    makers: HashMap<ValueId, &'a Node>,
    /// The layers that put out each value: the one that makes it, then those that pass it on.
    layers: HashMap<ValueId, Vec<&'a LayerRow>>,
}

/// The function that keeps the values of `act` within bounds, if there is one.
fn bounds(act: Activation) -> Option<String> {
    let number = |x: f32| x.to_string().replace('-', "−");
    match act.facts().range {
        [f32::NEG_INFINITY, f32::INFINITY] => None,
        [f32::NEG_INFINITY, high] => Some(format!("puts out no number above {}", number(high))),
        [low, f32::INFINITY] => Some(format!("puts out no number below {}", number(low))),
        [low, high] => Some(format!("puts out numbers from {} to {} only", number(low), number(high))),
    }
}

impl Lints<'_> {
    /// The value that `v` is but for its shape, or for what `passes` lets through.
    fn behind(&self, mut v: ValueId, passes: impl Fn(&Op) -> bool) -> ValueId {
        while let Some(node) = self.makers.get(&v).filter(|n| passes(&n.op)) {
            v = node.inputs[0];
        }
        v
    }

    /// The layer that makes `v`.
    fn layer(&self, v: ValueId) -> Option<&LayerRow> {
        self.layers.get(&v)?.first().copied()
    }

    fn at_loss(&self, warning: Diagnostic) -> Diagnostic {
        match self.experiment.nearest_span("loss.type") {
            Some(span) => warning.context(span, "the loss"),
            None => warning,
        }
    }

    fn activation_before_cross_entropy(&self) -> Option<Diagnostic> {
        let (loss, graph) = (self.experiment.loss.describe(), &self.forward.graph);
        let ordinal = self.experiment.loss.is_ordinal();
        if !loss.takes_logits() && !ordinal {
            return None;
        }
        // What is put out for an order is made probabilities of classes before anything else.
        let first = graph.nodes.iter().find(|node| ordinal && graph.origin(node) == "loss");
        let end = first.map_or(self.forward.prediction, |node| node.inputs[0]);
        let last = self.behind(end, |op| matches!(op, Op::Reshape(_) | Op::Permute(_) | Op::Dropout(_)));
        let row = self.layer(last)?;
        let (label, help) = match &self.makers.get(&last)?.op {
            Op::Softmax(_) | Op::LogSoftmax(_) => (
                match loss.targets() {
                    TargetKind::Classes if !ordinal => "the loss applies softmax itself".to_owned(),
                    TargetKind::Classes | TargetKind::Numbers => "the loss applies a sigmoid itself".to_owned(),
                },
                "leave it out; `predict` turns logits into probabilities".to_owned(),
            ),
            Op::Activation(op) => {
                let side = if op.act.facts().range[1] <= 0.0 { "above" } else { "below" };
                (bounds(op.act)?, format!("leave it out: a logit may be any number, {side} 0 as well"))
            }
            _ => return None,
        };
        let loss = self.experiment.loss.type_name();
        let message = format!("`{}` before `{loss}`, which takes logits", row.kind);
        let warning = Diagnostic::warning(Lint::ActivationBeforeCrossEntropy, message).at(row.span, label);
        Some(self.at_loss(warning).help(help))
    }

    fn nll_without_log_softmax(&self) -> Option<Diagnostic> {
        let loss = self.experiment.loss.describe();
        if !loss.takes_log_probabilities() || self.experiment.loss.is_ordinal() {
            return None;
        }
        let last =
            self.behind(self.forward.prediction, |op| matches!(op, Op::Reshape(_) | Op::Permute(_) | Op::Dropout(_)));
        match self.makers.get(&last).map(|node| &node.op) {
            Some(Op::LogSoftmax(_)) => return None,
            Some(Op::Activation(op)) if op.act == Activation::LogSigmoid => return None,
            _ => {}
        }
        let message =
            format!("the loss `{}` takes logarithms of probabilities, which the model does not put out", loss.name());
        let warning = Diagnostic::warning(Lint::NllWithoutLogSoftmax, message);
        let warning = match self.forward.rows.last() {
            Some(row) => warning.at(row.span, "puts out any numbers"),
            None => warning,
        };
        let help = "put \"log_softmax\" at the end, or take the loss \"cross_entropy\", which has it built in";
        Some(self.at_loss(warning).help(help))
    }

    fn mean_not_positive(&self) -> Option<Diagnostic> {
        let loss = self.experiment.loss.describe();
        if !loss.takes_positive_mean() {
            return None;
        }
        let last =
            self.behind(self.forward.prediction, |op| matches!(op, Op::Reshape(_) | Op::Permute(_) | Op::Dropout(_)));
        match self.makers.get(&last).map(|node| &node.op) {
            Some(Op::Activation(op)) if op.act.facts().range[0] >= 0.0 => return None,
            Some(Op::Softmax(_)) => return None,
            _ => {}
        }
        let message = format!("the loss `{}` learns a mean above 0, and the model may put out any number", loss.name());
        let warning = Diagnostic::warning(Lint::MeanNotPositive, message);
        let warning = match self.forward.rows.last() {
            Some(row) => warning.at(row.span, "puts out any numbers"),
            None => warning,
        };
        Some(self.at_loss(warning).help(
            "put \"softplus\" at the end, as `with = { output_activation = \"softplus\" }` does in the models for tables: below 0 the loss is no number",
        ))
    }

    fn dropout_at_end(&self) -> Option<Diagnostic> {
        let last = self.behind(self.forward.prediction, |op| matches!(op, Op::Reshape(_) | Op::Permute(_)));
        let row = self.layer(last).filter(|_| matches!(self.makers.get(&last).map(|n| &n.op), Some(Op::Dropout(_))))?;
        let message = "the model ends with a `dropout`, which sets its output to 0 at random";
        let warning =
            Diagnostic::warning(Lint::DropoutAtEnd, message).at(row.span, "nothing is computed from this but the loss");
        Some(self.at_loss(warning).help("put it before the last layer with weights, or leave it out"))
    }

    fn one_class(&self) -> Option<Diagnostic> {
        let loss = self.experiment.loss.describe();
        if self.forward.graph.shape(self.forward.prediction).last() != 1 || loss.targets() != TargetKind::Classes {
            return None;
        }
        let message = format!("the model puts out one number for `{}`: the loss is always 0", loss.name());
        let warning = Diagnostic::warning(Lint::OneClass, message);
        let warning = match self.forward.rows.last() {
            Some(row) => warning.at(row.span, "one class alone"),
            None => warning,
        };
        let of_data = self.data.labels().is_some_and(|classes| classes.number == 1);
        Some(self.at_loss(warning).help(match of_data {
            true => "the data has one class alone, so that there is nothing to learn: it needs samples of a second one",
            false => "two classes take two outputs",
        }))
    }

    fn activations_without_effect(&self) -> Vec<Diagnostic> {
        // A block may be used where its activation matters and where it does not: then it is in order.
        let mut places: HashMap<Span, (Option<Diagnostic>, usize)> = HashMap::new();
        for (at, row) in self.forward.rows.iter().enumerate() {
            let place = places.entry(row.span).or_insert((None, at));
            match self.activation_without_effect(row) {
                Some(warning) if place.1 == at => place.0 = Some(warning),
                Some(_) => {}
                None => place.0 = None,
            }
        }
        let mut found: Vec<_> = places.into_values().filter_map(|(warning, at)| Some((at, warning?))).collect();
        found.sort_by_key(|(at, _)| *at);
        found.into_iter().map(|(_, warning)| warning).collect()
    }

    fn activation_without_effect(&self, row: &LayerRow) -> Option<Diagnostic> {
        let node = self.makers.get(&row.value)?;
        let (relu6, allowed) = match &node.op {
            Op::Activation(op) if op.act == Activation::Relu => (false, op.act.facts().range),
            Op::Activation(op) if op.act == Activation::Relu6 => (true, op.act.facts().range),
            _ => return None,
        };
        let before = self.behind(node.inputs[0], |op| match op {
            Op::Reshape(_) | Op::Permute(_) | Op::MaxPool2d(_) => true,
            // It scales what it keeps, but not beyond 0.
            Op::Dropout(_) => !relu6,
            _ => false,
        });
        let within = match &self.makers.get(&before)?.op {
            Op::Softmax(_) => true,
            Op::Activation(op) => {
                let [low, high] = op.act.facts().range;
                allowed[0] <= low && high <= allowed[1]
            }
            _ => false,
        };
        let other = self.layer(before).filter(|_| within)?;
        let message = format!("`{}` has no effect on what `{}` puts out", row.kind, other.kind);
        let label = if relu6 { "nothing is below 0 or above 6" } else { "nothing is below 0" };
        let warning = Diagnostic::warning(Lint::ActivationWithoutEffect, message).at(row.span, label);
        let warning = if other.span == row.span { warning } else { warning.context(other.span, "because of this") };
        Some(warning.help("leave one of them out"))
    }

    fn unused_layers(&self) -> Vec<Diagnostic> {
        let mut used = HashSet::new();
        self.reach(self.forward.loss.map_or(self.forward.prediction, |loss| loss.value), &mut used);
        self.reach(self.forward.prediction, &mut used);
        let dead = |row: &LayerRow| self.makers.contains_key(&row.value) && !used.contains(&row.value);
        let mut found: Vec<Diagnostic> = Vec::new();
        let mut places = HashSet::new();
        let mut covered = used.clone();
        // From the last on: layers that only unused layers read belong to those warnings.
        for row in self.forward.rows.iter().rev().filter(|row| dead(row)) {
            if covered.contains(&row.value) {
                continue;
            }
            let mut above = HashSet::new();
            self.reach_but(row.value, &covered, &mut above);
            let useless: Vec<&LayerRow> = above.iter().filter_map(|v| self.layers.get(v)).flatten().copied().collect();
            covered.extend(above);
            // A block that is used many times has its mistake once.
            if !places.insert(row.span) {
                continue;
            }
            let name = if row.path.is_empty() { String::new() } else { format!(" `{}`", row.path) };
            let message = format!("no layer takes what the `{}`{name} puts out", row.kind);
            let mut warning =
                Diagnostic::warning(Lint::UnusedLayer, message).at(row.span, "has no part in the model's output");
            let parameters: usize = useless.iter().map(|r| r.params).sum();
            let layers = useless.len();
            let with = if layers > 1 { format!("{layers} layers") } else { "this layer".into() };
            if parameters > 0 {
                let note = format!("{with} with {parameters} parameters: they are counted, but never trained");
                warning = warning.note(note);
            } else if layers > 1 {
                warning = warning.note(format!("{with} are computed for nothing"));
            }
            found.push(warning.help("take its output by `from`, or leave it out"));
        }
        found.reverse();
        found
    }

    /// Adds `from` and everything that it is computed from.
    fn reach(&self, from: ValueId, found: &mut HashSet<ValueId>) {
        self.reach_but(from, &HashSet::new(), found);
    }

    /// The same, without what is in `but`.
    fn reach_but(&self, from: ValueId, but: &HashSet<ValueId>, found: &mut HashSet<ValueId>) {
        let mut open = vec![from];
        while let Some(v) = open.pop() {
            if !but.contains(&v)
                && found.insert(v)
                && let Some(node) = self.makers.get(&v)
            {
                open.extend(&node.inputs);
            }
        }
    }

    fn normalize_range(&self) -> Option<Diagnostic> {
        // The range of floats is not known.
        if transformed(&self.data.fields).is_none_or(|i| self.data.fields[i].dtype != DType::U8) {
            return None;
        }
        let all = self.experiment.data.transforms.iter().enumerate();
        let (at, normalize) =
            all.filter_map(|(i, t)| if let Transform::Normalize(n) = t { Some((i, n)) } else { None }).next()?;
        let wrong_mean = normalize.mean.iter().any(|m| !(0.0..=1.0).contains(m));
        let wrong_std = normalize.std.iter().any(|s| *s > 1.0);
        if !wrong_mean && !wrong_std {
            return None;
        }
        let key = if wrong_mean { "mean" } else { "std" };
        let message = format!("`normalize` has a `{key}` that no pixels from 0 to 1 can have");
        let mut warning = Diagnostic::warning(Lint::NormalizeRange, message);
        if let Some(span) = self.experiment.nearest_span(&format!("data.transforms.{at}.{key}")) {
            warning = warning.at(span, "pixels are divided by 255 before this");
        }
        let scaled = |list: &[f64]| {
            let list: Vec<String> = list.iter().map(|v| format!("{:.4}", v / 255.0)).collect();
            format!("[{}]", list.join(", "))
        };
        let large = |list: &[f64]| list.iter().any(|v| *v > 1.0);
        let help = match (large(&normalize.mean), large(&normalize.std)) {
            (true, true) => format!(
                "for pixels up to 255 these would be `mean = {}` and `std = {}`",
                scaled(&normalize.mean),
                scaled(&normalize.std)
            ),
            (true, false) => format!("divided by 255 this is `mean = {}`", scaled(&normalize.mean)),
            (false, true) => format!("divided by 255 this is `std = {}`", scaled(&normalize.std)),
            (false, false) => "take the mean of the pixels, each divided by 255".to_owned(),
        };
        Some(warning.help(help))
    }
}
