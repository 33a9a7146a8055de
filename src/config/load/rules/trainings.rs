//! How many trainings a configuration asks for, and what each validates on.

use super::Rules;
use crate::config::language::sections::Source;
use crate::config::text::diagnostics::Diagnostic;

impl Rules<'_> {
    /// The samples of a table or a text to validate on are given once.
    pub(super) fn validation_is_set_once(&self) {
        let source = &self.experiment.data.source;
        let (val_path, column) = match source {
            Source::Csv(csv) | Source::Parquet(csv) => (&csv.val_path, csv.split_column.is_some()),
            Source::Text(text) => (&text.val_path, false),
            Source::Tokens(tokens) => (&tokens.val_path, false),
            _ => return,
        };
        let folds = source.folds().is_some();
        let other = [("data.val_path", val_path.is_some()), ("data.split_column", column), ("data.folds", folds)];
        let Some((key, _)) = other.into_iter().find(|(_, given)| *given) else { return };
        if self.experiment.data.loading.validation_split.is_some() {
            let error = Diagnostic::error("the samples to validate on are given twice")
                .help("leave one of the two out; on the command line, `--unset data.validation_split`");
            self.reporter.at_keys(error, "data.validation_split", "holds some out", key, "says which they are");
        }
    }

    /// Whether there is a training for each of several folds.
    fn trains_folds(&self) -> bool {
        self.experiment.data.source.table().is_some_and(|csv| csv.folds.is_some() && csv.fold.is_none())
    }

    /// A trial of a sweep has one curve.
    pub(super) fn a_trial_is_one_training(&self) {
        let Some(sweep) = &self.experiment.sweep else { return };
        let several = "several trainings";
        // Each trial may choose one of them.
        let chooses = sweep.parameters.0.iter().any(|axis| axis.key == "data.fold");
        if self.trains_folds() && !chooses {
            let error = Diagnostic::error("a trial of a sweep is one training, and `folds` asks for several");
            let error = error.help("choose one of them for all trials, as with `fold = 1`");
            self.reporter.at_keys(error, "data.folds", several, "sweep", "the sweep");
        }
        if self.experiment.train.seeds.is_some() {
            let error = Diagnostic::error("a trial of a sweep is one training, and `seeds` asks for several");
            let error = error.help("leave `seeds` out; a sweep may have `seed` among its parameters");
            self.reporter.at_keys(error, "train.seeds", several, "sweep", "the sweep");
        }
    }

    /// Folds have other samples, and seeds have the same. Texts that a model writes have no mean.
    pub(super) fn several_trainings_differ_in_one_thing(&self) {
        let source = &self.experiment.data.source;
        let Some(seeds) = self.experiment.train.seeds else { return };
        // The largest number that a configuration can have.
        if self.experiment.seed.saturating_add(seeds as u64 - 1) > i64::MAX as u64 {
            let error = Diagnostic::error("the seeds of these trainings are beyond the largest seed");
            let error = error.help("take a smaller `seed`: each training has the next one");
            self.reporter.at_keys(error, "seed", "the first of them", "train.seeds", "so many");
        }
        if self.trains_folds() {
            let error = Diagnostic::error("`seeds` and `folds` both ask for several trainings");
            let error = error.help("leave one of them out, or choose one fold, as with `fold = 1`");
            self.reporter.at_keys(error, "train.seeds", "one for each seed", "data.folds", "one for each fold");
        }
        if matches!(
            source,
            Source::Text(_) | Source::Tokens(_) | Source::TextToText(_) | Source::TextPairs(_) | Source::TextTags(_)
        ) {
            let error = Diagnostic::error(
                "models of several seeds answer together, with the mean of their answers to a sample",
            );
            let error = error.help("leave `seeds` out, and train with another `seed` each time");
            let texts = "samples have an answer at each position";
            self.reporter.at_keys(error, "train.seeds", "several models", "data.source", texts);
        }
    }
}
