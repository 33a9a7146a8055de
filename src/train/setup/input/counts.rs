//! What is counted in the data of an experiment, for `$classes` and `$vocabulary`.

use super::{described, is_of_this_kind};
use crate::config::language::sections::Fitted;
use crate::config::{Counts, Diagnostic, Experiment};
use crate::data::{self, DataSpec, Field};

/// What is counted in the data: the numbers that are put out for its classes, or names of labels, or numbers that are learnt of a table, each once for every quantile; the
/// tokens of a text.
///
/// # Errors
/// The data cannot be described, with the place in the configuration.
pub fn counts(experiment: &Experiment) -> Result<Counts, Diagnostic> {
    let spec = described(experiment)?;
    let each = experiment.loss.quantiles().len().max(1);
    let numbers = spec.fitted.as_ref().and(spec.target()).map(|(_, field)| field.shape.len() * each);
    let tokens = spec.vocabulary();
    let classes = spec.classes().map(|classes| experiment.loss.outputs(classes.number));
    Ok(Counts { classes: classes.or(numbers), vocabulary: tokens, heads: classes_of_heads(&spec) })
}

/// The heads whose targets are classes, and how many those are.
fn classes_of_heads(spec: &DataSpec) -> Vec<(String, usize)> {
    let of = |(_, field): (_, &Field)| {
        let head = field.name.strip_prefix(data::TARGETS)?.strip_prefix('_')?;
        Some((head.to_owned(), field.kind.classes()?.number))
    };
    spec.heads().filter_map(of).collect()
}

/// The same of what a training of this experiment has found.
pub fn counts_of(fitted: &Fitted, experiment: &Experiment) -> Counts {
    let each = experiment.loss.quantiles().len().max(1);
    let fields = fitted.source.as_ref().and_then(|written| data::fields_of(written));
    let spec = fields.map(DataSpec::new);
    let vocabulary = spec.as_ref().and_then(DataSpec::vocabulary);
    match is_of_this_kind(fitted, experiment) {
        true => {
            let classes = Some(experiment.loss.outputs(fitted.classes * each));
            Counts { classes, vocabulary, heads: spec.as_ref().map_or(Vec::new(), classes_of_heads) }
        }
        // Of those the tokenizer is kept.
        false => Counts { vocabulary, ..counts(experiment).unwrap_or_default() },
    }
}
