//! The table of lints: each warning about a configuration has a name by which it can be silenced in `[lint]`.
//!
//! A lint reports what is surely not meant; a configuration that is in order never needs `allow`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Declares [`Lint`] from a list of variants, names and meanings.
macro_rules! lints {
    ($($variant:ident $name:literal: $meaning:literal;)*) => {
        /// A kind of warning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum Lint {
            $(#[doc = $meaning] #[serde(rename = $name)] $variant,)*
        }

        impl Lint {
            /// All of them, in the order of the manual.
            pub const ALL: &'static [Lint] = &[$(Lint::$variant,)*];

            /// Its name in `[lint]`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Lint::$variant => $name,)*
                }
            }

            /// Its meaning, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Lint::$variant => $meaning,)*
                }
            }
        }
    };
}

lints! {
    ActivationBeforeCrossEntropy "activation_before_cross_entropy":
        "The model ends with an activation that keeps its numbers within bounds, but the loss takes logits.";
    NllWithoutLogSoftmax "nll_without_log_softmax":
        "The loss `nll` takes logarithms of probabilities, but the model does not end with a `log_softmax`.";
    MeanNotPositive "mean_not_positive":
        "The loss learns a mean that is above 0, but the model may put out any number.";
    ActivationWithoutEffect "activation_without_effect":
        "A `relu` or `relu6` whose input is within its bounds already.";
    DropoutAtEnd "dropout_at_end":
        "The model ends with a `dropout`, which sets what it puts out to 0 at random.";
    OneClass "one_class":
        "The model puts out one number for `cross_entropy`: the loss is always 0.";
    UnusedLayer "unused_layer":
        "No layer takes what this one puts out, so that its parameters are counted but never trained.";
    SeesTheFuture "sees_the_future":
        "A layer of a language model that sees the tokens which the model is to tell: attention that is not causal, a second direction, a convolution with zeros after the text.";
    NormalizeRange "normalize_range":
        "A `normalize` that is meant for pixels from 0 to 255; they come from 0 to 1.";
    BatchLargerThanData "batch_larger_than_data":
        "There are fewer training samples than `batch_size`.";
    AccumulateBeyondEpoch "accumulate_beyond_epoch":
        "`accumulate` is more than the batches of an epoch, and an epoch ends with an update in any case.";
    DivergingOptimizer "diverging_optimizer":
        "Values with which updates grow without bound, or no longer depend on the gradient.";
    LargeLearningRate "large_learning_rate":
        "A learning rate far beyond what the optimizer bears.";
    RisingSchedule "rising_schedule":
        "A schedule that lets the learning rate rise after the warm-up: `gamma` above 1, or `min_lr` above the rate of a group.";
    ShadowedGroup "shadowed_group":
        "All parameters that a pattern in `match` fits belong to earlier groups.";
    FrozenGroup "frozen_group":
        "All parameters that a pattern in `match` fits are frozen.";
    ScheduleBeyondRun "schedule_beyond_run":
        "A milestone, a step, the end of a cosine or of a warm-up that lies after the end of the run.";
    PatienceBeyondRun "patience_beyond_run":
        "The run ends before `early_stopping` can have waited for `patience` validations.";
    MonitorWithoutValidation "monitor_without_validation":
        "A `monitor` watches a figure of the validation, and there are no samples to validate on.";
    NoValidation "no_validation":
        "There are no samples to validate on, so no figure shows how the model does on new ones.";
    EmptyClass "empty_class":
        "Folders where each is a class, and that hold no photos: they are no classes.";
    AlikeClasses "alike_classes":
        "Classes whose names look the same, and differ in spaces or in how a letter is written.";
    TargetLeak "target_leak":
        "A column of a table from which the target follows exactly: it may not be known yet when a prediction is asked for.";
    PhotosWithoutNormalize "photos_without_normalize":
        "Photos whose pixels no `normalize` brings to a mean of about 0.";
    FrozenWithoutWeights "frozen_without_weights":
        "Layers that `freeze` leaves as they are, which are random numbers, as there are no `weights`.";
    ChosenOnTestSet "chosen_on_test_set":
        "A `monitor`, early stopping or a plateau decides by figures of the test set, which then say too much of the model.";
    IncomparableTrials "incomparable_trials":
        "Trials of a sweep that are compared by the loss, or another figure, and that differ in what it is of: in `[loss]`, the target, the tokens, or the samples that are validated on.";
    UnusedParameter "unused_parameter":
        "A parameter in `[params]` or of a block that nothing refers to.";
    UnusedBlock "unused_block":
        "A block that nothing uses.";
    NoEffect "no_effect":
        "A key that has no effect because of another one, or without another one.";
}
