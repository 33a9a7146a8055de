//! What `[[heads]]` must agree on with the data, the layers and each other.

use super::Rules;
use crate::config::declare::part::with_suggestion;
use crate::config::declare::tagged::Tagged;
use crate::config::experiment::LayerNode;
use crate::config::language::sections::{Head, OfHead};
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::spelling::{list, shorten};
use crate::graph::op::Figure;

/// What an ONNX file calls its inputs and outputs, and JSON the answers of all heads.
const TAKEN: [&str; 6] = ["inputs", "outputs", "input", "output", "probabilities", "heads"];

impl Rules<'_> {
    /// Heads are of a table's columns, have names of their own, and compare what layers put out.
    pub(super) fn heads(&self) {
        if self.experiment.heads.is_empty() || !self.heads_have_a_table() {
            return;
        }
        // Where something is wrong with the model, a layer may simply not be there.
        let layers = &self.experiment.model.layers;
        let whole = self.reporter.is_read("model") && !layers.iter().any(LayerNode::is_doubtful);
        let (mut paths, mut several) = (Vec::new(), Vec::new());
        collect(layers, &mut paths);
        paths.sort_unstable();
        several.extend(paths.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]));
        paths.dedup();
        for (i, head) in self.experiment.heads.iter().enumerate() {
            let at = |key: &str| format!("heads.{i}.{key}");
            let named = if head.name.is_some() { at("name") } else { at("target") };
            self.name_of_a_head(i, &named);
            self.column_of_a_head(&head.target, &at("target"));
            let output = if head.output.is_some() { at("output") } else { named };
            let Some(span) = self.experiment.nearest_span(&output) else { continue };
            let path = head.output();
            if several.contains(&path) {
                let error = Diagnostic::error(format!("`{}` could be more than one layer", shorten(path)));
                self.reporter
                    .sink
                    .push(error.at(span, "several are called so").help("give the layer a `name` of its own"));
            } else if whole && !paths.contains(&path) {
                let error = Diagnostic::error(format!("there is no layer `{}` for a head", shorten(path)));
                let error = match head.output {
                    Some(_) => error,
                    None => error.help("`output` names the layer, unless it is called as the head"),
                };
                self.reporter.sink.push(with_suggestion(error, span, "no layer has this name", path, &paths));
            }
        }
    }

    fn heads_have_a_table(&self) -> bool {
        let source = &self.experiment.data.source;
        let fits = source.table().is_some();
        if !fits {
            let error = Diagnostic::error(format!(
                "heads learn further columns of a table, and the samples of `{}` have none",
                source.type_name()
            ));
            let error = error.help("leave `heads` out, or read a table with `source = \"csv\"` or `\"parquet\"`");
            self.reporter.at_keys(error, "heads", "no columns to learn", "data.source", "no table");
        }
        let windows = source.table().is_some_and(|table| table.window.is_some());
        if windows {
            let error = Diagnostic::error("heads learn further columns of a row, and a sample is a window of several")
                .help("name the columns in `target`, which may be a list, or train a model for each");
            self.reporter.at_keys(error, "heads", "of a row", "data.window", "of several rows");
        }
        fits && !windows
    }

    /// Its name is that of no other head, and no figure of one is called as one of the model.
    fn name_of_a_head(&self, i: usize, key: &str) {
        let heads = &self.experiment.heads;
        let head = &heads[i];
        let name = head.name();
        if let Some(other) = heads[..i].iter().position(|other| other.name() == name) {
            let first = ["name", "target"].map(|key| format!("heads.{other}.{key}"));
            let first = first.iter().find(|key| self.experiment.span_of(key).is_some()).unwrap_or(&first[0]);
            let error = Diagnostic::error(format!("two heads are called `{}`", shorten(name)));
            let error = error.help("give one of them another `name`");
            self.reporter.at_keys(error, key, "once more", first, "the first");
        }
        let figures = head.loss.0.describe().task().figures();
        let own = |figure: &Figure| format!("{name}_{}", figure.name());
        let clash = figures.iter().map(own).find(|own| Figure::ALL.iter().any(|figure| figure.name() == own));
        if let Some(figure) = clash {
            let error =
                Diagnostic::error(format!("a figure of the head `{}` would be called `{figure}`", shorten(name)));
            self.reporter.at_key(error.help("give the head another `name`"), key, "another figure is called so");
        } else if TAKEN.contains(&name) {
            let error = Diagnostic::error(format!("a head cannot be called `{name}`"));
            self.reporter.at_key(error.help("give the head another `name`"), key, "something else is called so");
        }
    }

    /// The names of the figures of heads that can be watched on the validation samples.
    pub(super) fn figures_of_heads(&self) -> Vec<String> {
        let of = |head: &Head| {
            let figures = head.loss.0.describe().task().figures().iter();
            figures.map(|figure| format!("val_{}_{}", head.name(), figure.name())).collect::<Vec<_>>()
        };
        self.experiment.heads.iter().flat_map(of).collect()
    }

    /// A figure of a head that is watched must be one that the head's loss comes with; `there` are all that can be watched.
    pub(super) fn watches_a_head(&self, name: &str, of: &OfHead, there: &[&str], key: &str) {
        let heads = &self.experiment.heads;
        let at = heads.iter().position(|head| head.name() == of.head);
        let loss = at.map(|at| &heads[at].loss.0);
        if loss.is_some_and(|loss| loss.describe().task().figures().contains(&of.figure)) {
            return;
        }
        let help = format!("there are {}", list(there.iter().copied(), "and"));
        match (at, loss) {
            (Some(at), Some(loss)) => {
                let error =
                    Diagnostic::error(format!("there is no `{}` with the loss `{}`", shorten(name), loss.type_name()));
                let (at, label) = (format!("heads.{at}.loss"), format!("the loss of `{}`", shorten(&of.head)));
                self.reporter.at_keys(error.help(help), key, "never computed", &at, &label);
            }
            _ => {
                let Some(span) = self.experiment.nearest_span(key) else { return };
                let error = Diagnostic::error(format!("there is no figure `{}`", shorten(name))).help(help);
                self.reporter.sink.push(match of.head.is_empty() {
                    false if heads.is_empty() => error.at(span, "there are no `[[heads]]`"),
                    false => with_suggestion(error, span, "no head has such a figure", name, there),
                    true => with_suggestion(error, span, "no figure has this name", name, there),
                });
            }
        }
    }

    /// Its column is used for nothing else.
    fn column_of_a_head(&self, column: &str, key: &str) {
        let Some(csv) = self.experiment.data.source.table() else { return };
        let is = |other: &Option<String>| other.as_deref() == Some(column);
        let dropped = csv.drop.iter().flatten().any(|drop| drop == column);
        let ruled = csv.columns.iter().flat_map(|rules| &rules.0).any(|rule| rule.name == column);
        let twice = self.experiment.heads.iter().filter(|head| head.target == column).count() > 1;
        let uses = [
            (csv.target.names().iter().any(|target| target == column), "data.target", "is the target of `[data]`"),
            (is(&csv.id), "data.id", "names the rows"),
            (is(&csv.sample_weight), "data.sample_weight", "says what rows weigh"),
            (is(&csv.split_column), "data.split_column", "says which rows are held out"),
            (dropped, "data.drop", "is left out by `drop`"),
            (ruled, "data.columns", "is an input by `columns`"),
            (twice, "heads", "is that of another head, too"),
        ];
        if let Some((_, other, what)) = uses.into_iter().find(|(is, ..)| *is) {
            let error = Diagnostic::error(format!("a head learns `{}`, which {what}", shorten(column)));
            self.reporter.at_keys(error, key, "a column is one thing", other, "here");
        }
    }
}

/// The paths of all layers that have a name.
fn collect<'a>(nodes: &'a [LayerNode], paths: &mut Vec<&'a str>) {
    for node in nodes {
        if !node.name.is_empty() {
            paths.push(&node.path);
        }
        node.kind.children().into_iter().for_each(|children| collect(children, paths));
    }
}
