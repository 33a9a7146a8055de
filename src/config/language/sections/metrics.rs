//! `[metrics]`: what evaluation measures besides what the loss comes with; and the figures that can be watched.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::declare::options::{Check, options};
use crate::config::declare::value::values;
use crate::graph::op::Figure;

values!(EvalFigure);

/// A figure that evaluation measures where it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvalFigure {
    /// Share of samples whose class is among the two largest logits; of equal logits the lower class comes first.
    Top2Accuracy,
    /// Likewise of three.
    Top3Accuracy,
    /// Likewise of five.
    Top5Accuracy,
    /// Likewise of ten.
    Top10Accuracy,
    /// Mean recall of the classes that occur: `sklearn.metrics.balanced_accuracy_score`.
    BalancedAccuracy,
    /// Mean precision of the classes.
    MacroPrecision,
    /// Mean recall of the classes.
    MacroRecall,
    /// Mean F1 of the classes: `sklearn.metrics.f1_score` with `average="macro"`.
    MacroF1,
    /// Mean F1 of the classes, each weighed by how often it occurs.
    WeightedF1,
    /// F1 of all labels taken together; only for `bce_with_logits` and its like.
    MicroF1,
    /// Mean intersection over union of the classes: `sklearn.metrics.jaccard_score` with `average="macro"`.
    MeanIou,
    /// F1 of the spans that tags make, as `B-PER I-PER`: seqeval's `f1_score` with `mode="strict"`; only for tags of words. It is measured where the tags are
    /// those of IOB2, IOBES or BILOU.
    SpanF1,
    /// Of the spans that are predicted, the share that is right.
    SpanPrecision,
    /// Of the spans of the targets, the share that is found.
    SpanRecall,
    /// Share of samples of which the class of every position is right, as of whole answers to texts: what the model writes when it takes the most probable token each
    /// time; only for a class at each position.
    ExactMatch,
    /// Area under the receiver operating characteristic, one class against the rest, in the mean over the classes; of two
    /// classes that of the second: `sklearn.metrics.roc_auc_score` with `multi_class="ovr"`.
    Auroc,
    /// Likewise the average precision: `sklearn.metrics.average_precision_score`.
    AveragePrecision,
    /// Expected calibration error: how far confidence and accuracy differ, over 15 bins of equal width (Guo et al. 2017).
    CalibrationError,
    /// Mean negative log-likelihood of the targets, of labels in the mean over them, whatever weights or smoothing the loss has:
    /// `sklearn.metrics.log_loss`.
    LogLoss,
    /// Exponential of the mean negative log-likelihood of the targets; only for classes.
    Perplexity,
    /// The mean negative log-likelihood, to base 2, of the bytes of the text: the same for all tokenizers. Only for `text`, and for `tokens` with a `tokenizer`.
    BitsPerByte,
    /// Coefficient of determination, in the mean over the outputs: `sklearn.metrics.r2_score`; only for regression.
    R2,
    /// Mean absolute percentage error, as a fraction: `sklearn.metrics.mean_absolute_percentage_error`; only for regression.
    Mape,
    /// The share of targets between the least and the largest quantile that is predicted; only for `quantile` with several of them, with which it is
    /// measured anyway.
    Coverage,
}

impl EvalFigure {
    /// What is measured.
    pub fn figure(self) -> Figure {
        match self {
            Self::Top2Accuracy => Figure::Top2Accuracy,
            Self::Top3Accuracy => Figure::Top3Accuracy,
            Self::Top5Accuracy => Figure::Top5Accuracy,
            Self::Top10Accuracy => Figure::Top10Accuracy,
            Self::BalancedAccuracy => Figure::BalancedAccuracy,
            Self::MacroPrecision => Figure::MacroPrecision,
            Self::MacroRecall => Figure::MacroRecall,
            Self::MacroF1 => Figure::MacroF1,
            Self::WeightedF1 => Figure::WeightedF1,
            Self::MicroF1 => Figure::MicroF1,
            Self::MeanIou => Figure::MeanIou,
            Self::SpanF1 => Figure::SpanF1,
            Self::SpanPrecision => Figure::SpanPrecision,
            Self::SpanRecall => Figure::SpanRecall,
            Self::ExactMatch => Figure::ExactMatch,
            Self::Auroc => Figure::Auroc,
            Self::AveragePrecision => Figure::AveragePrecision,
            Self::CalibrationError => Figure::CalibrationError,
            Self::LogLoss => Figure::LogLoss,
            Self::Perplexity => Figure::Perplexity,
            Self::BitsPerByte => Figure::BitsPerByte,
            Self::R2 => Figure::R2,
            Self::Mape => Figure::Mape,
            Self::Coverage => Figure::Coverage,
        }
    }
}

options! {
    /// The `[metrics]` section.
    pub struct Metrics {
        /// Figures of evaluation besides those that the loss comes with. A figure that a `monitor` names is measured anyway.
        #[option(default = Vec::new(), example = r#"["top5_accuracy", "macro_f1"]"#, resume = Harmless)]
        pub figures: Vec<EvalFigure>,
    }
}

impl Check for Metrics {}

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident = $text:literal ($figure:ident)),* $(,)?) => {
        /// A figure of an epoch.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Metric { $($(#[$doc])* $name),* }

        impl Metric {
            /// All of them.
            pub const ALL: &[Metric] = &[$(Metric::$name),*];

            /// What is measured.
            pub fn figure(self) -> Figure {
                match self { $(Metric::$name => Figure::$figure),* }
            }

            /// Its name, in configurations and in `metrics.jsonl`.
            pub fn name(self) -> &'static str {
                match self { $(Metric::$name => $text),* }
            }
        }
    };
}

metrics! {
    /// Mean loss over the epoch's training batches.
    TrainLoss = "train_loss" (Loss),
    /// Loss on the validation samples.
    ValLoss = "val_loss" (Loss),
    /// Share of validation samples whose class is found; only for classes.
    ValAccuracy = "val_accuracy" (Accuracy),
    /// Share of validation samples whose class is among the two largest logits, like those below only for classes.
    ValTop2Accuracy = "val_top2_accuracy" (Top2Accuracy),
    /// Likewise of three.
    ValTop3Accuracy = "val_top3_accuracy" (Top3Accuracy),
    /// Likewise of five.
    ValTop5Accuracy = "val_top5_accuracy" (Top5Accuracy),
    /// Likewise of ten.
    ValTop10Accuracy = "val_top10_accuracy" (Top10Accuracy),
    /// Mean recall of the classes that occur.
    ValBalancedAccuracy = "val_balanced_accuracy" (BalancedAccuracy),
    /// Mean precision of the classes.
    ValMacroPrecision = "val_macro_precision" (MacroPrecision),
    /// Mean recall of the classes.
    ValMacroRecall = "val_macro_recall" (MacroRecall),
    /// Mean F1 of the classes.
    ValMacroF1 = "val_macro_f1" (MacroF1),
    /// Mean F1 of the classes, each weighed by how often it occurs.
    ValWeightedF1 = "val_weighted_f1" (WeightedF1),
    /// F1 of all labels taken together.
    ValMicroF1 = "val_micro_f1" (MicroF1),
    /// Mean intersection over union of the classes.
    ValMeanIou = "val_mean_iou" (MeanIou),
    /// F1 of the spans that tags of words make.
    ValSpanF1 = "val_span_f1" (SpanF1),
    /// Of the spans that are predicted, the share that is right.
    ValSpanPrecision = "val_span_precision" (SpanPrecision),
    /// Of the spans of the targets, the share that is found.
    ValSpanRecall = "val_span_recall" (SpanRecall),
    /// Share of samples of which every position is right.
    ValExactMatch = "val_exact_match" (ExactMatch),
    /// Area under the receiver operating characteristic, one class against the rest.
    ValAuroc = "val_auroc" (Auroc),
    /// Average precision, one class against the rest.
    ValAveragePrecision = "val_average_precision" (AveragePrecision),
    /// Expected calibration error.
    ValCalibrationError = "val_calibration_error" (CalibrationError),
    /// Mean negative log-likelihood.
    ValLogLoss = "val_log_loss" (LogLoss),
    /// Exponential of the mean negative log-likelihood.
    ValPerplexity = "val_perplexity" (Perplexity),
    /// Mean negative log-likelihood, to base 2, of the bytes of a text.
    ValBitsPerByte = "val_bits_per_byte" (BitsPerByte),
    /// Mean absolute error on the validation samples; only for regression.
    ValMae = "val_mae" (Mae),
    /// Root of the mean squared error on the validation samples; only for regression.
    ValRmse = "val_rmse" (Rmse),
    /// Coefficient of determination; only for regression.
    ValR2 = "val_r2" (R2),
    /// Mean absolute percentage error; only for regression.
    ValMape = "val_mape" (Mape),
}

impl Metric {
    /// Whether it is measured on the validation samples; else on those of training.
    pub fn of_validation(self) -> bool {
        self != Metric::TrainLoss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_figures() {
        let text = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        for metric in Metric::ALL {
            let prefix = if metric.of_validation() { "val" } else { "train" };
            assert_eq!(metric.name(), format!("{prefix}_{}", metric.figure().name()));
            assert_eq!(text(serde_json::to_value(metric).unwrap()), metric.name());
            if let Ok(asked) = serde_json::from_value::<EvalFigure>(metric.figure().name().into()) {
                assert_eq!(asked.figure(), metric.figure());
            }
        }
    }
}
