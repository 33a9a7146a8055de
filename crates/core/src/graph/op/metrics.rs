//! Running sums of what is reported, gathered on the device.

use super::{OpRules, Output, ShapeError, Value, arity, singles};
use crate::graph::DType;

/// The task of the model, which decides what is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// One of several classes a row.
    Classification,
    /// Yes or no for every number: a logit above 0 is a yes, a target above one half too.
    BinaryClassification,
    /// Real numbers.
    Regression,
}

/// A figure that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Mean loss over what counts.
    Loss,
    /// Share of what counts whose class is right.
    Accuracy,
    /// Share of what counts whose class is among those of the two largest logits.
    Top2Accuracy,
    /// Likewise of three.
    Top3Accuracy,
    /// Likewise of five.
    Top5Accuracy,
    /// Likewise of ten.
    Top10Accuracy,
    /// Mean recall of the classes that occur.
    BalancedAccuracy,
    /// Mean precision of the classes.
    MacroPrecision,
    /// Mean recall of the classes.
    MacroRecall,
    /// Mean F1 of the classes.
    MacroF1,
    /// Mean F1 of the classes, each weighed by how often it occurs.
    WeightedF1,
    /// F1 of all labels taken together.
    MicroF1,
    /// Mean intersection over union of the classes.
    MeanIou,
    /// F1 of the spans of tagged words.
    SpanF1,
    /// Of the spans that are predicted, the share that is right.
    SpanPrecision,
    /// Of the spans of the targets, the share that is found.
    SpanRecall,
    /// Share of samples of which the class of every position that counts is right.
    ExactMatch,
    /// Area under the receiver operating characteristic: the share of pairs of a sample of a class and one of none, of which
    /// the first has the larger score (half, where they are equal).
    Auroc,
    /// Mean precision over the recall that is gained from one score to the next.
    AveragePrecision,
    /// Expected calibration error: how far confidence and accuracy differ, in the mean over 15 bins (Guo et al. 2017).
    CalibrationError,
    /// Mean negative log-likelihood of classes, or of labels.
    LogLoss,
    /// Exponential of the mean negative log-likelihood.
    Perplexity,
    /// The mean negative log-likelihood of the bytes of a text, to base 2.
    BitsPerByte,
    /// Mean absolute error.
    Mae,
    /// Root of the mean squared error.
    Rmse,
    /// Coefficient of determination.
    R2,
    /// Mean absolute percentage error, as a fraction.
    Mape,
    /// The share of targets between the least and the largest of several quantiles that are predicted.
    Coverage,
}

/// What a figure is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gathered {
    /// [`Metrics`], which are always there.
    Sums,
    /// [`super::ClassCounts`].
    ClassCounts,
    /// [`super::ErrorSums`].
    ErrorSums,
    /// The model's outputs themselves, which are read back batch by batch.
    Outputs,
}

impl Task {
    /// The figures that are always measured, the loss first.
    pub fn figures(self) -> &'static [Figure] {
        match self {
            Task::Classification | Task::BinaryClassification => &[Figure::Loss, Figure::Accuracy],
            Task::Regression => &[Figure::Loss, Figure::Mae, Figure::Rmse],
        }
    }

    /// The figures that evaluation measures where they are asked for.
    pub fn asked_figures(self) -> &'static [Figure] {
        match self {
            Task::Classification => &[
                Figure::Top2Accuracy,
                Figure::Top3Accuracy,
                Figure::Top5Accuracy,
                Figure::Top10Accuracy,
                Figure::BalancedAccuracy,
                Figure::MacroPrecision,
                Figure::MacroRecall,
                Figure::MacroF1,
                Figure::WeightedF1,
                Figure::MeanIou,
                Figure::SpanF1,
                Figure::SpanPrecision,
                Figure::SpanRecall,
                Figure::ExactMatch,
                Figure::Auroc,
                Figure::AveragePrecision,
                Figure::CalibrationError,
                Figure::LogLoss,
                Figure::Perplexity,
                Figure::BitsPerByte,
            ],
            Task::BinaryClassification => &[
                Figure::MacroPrecision,
                Figure::MacroRecall,
                Figure::MacroF1,
                Figure::WeightedF1,
                Figure::MicroF1,
                Figure::MeanIou,
                Figure::Auroc,
                Figure::AveragePrecision,
                Figure::CalibrationError,
                Figure::LogLoss,
            ],
            Task::Regression => &[Figure::R2, Figure::Mape, Figure::Coverage],
        }
    }

    /// The figure by which two models are compared, unless the configuration names another.
    pub fn monitor(self) -> Figure {
        match self {
            Task::Classification | Task::BinaryClassification => Figure::Accuracy,
            Task::Regression => Figure::Loss,
        }
    }
}

impl Figure {
    /// All figures, in the order in which they are reported.
    pub const ALL: [Figure; 28] = [
        Figure::Loss,
        Figure::Accuracy,
        Figure::Top2Accuracy,
        Figure::Top3Accuracy,
        Figure::Top5Accuracy,
        Figure::Top10Accuracy,
        Figure::BalancedAccuracy,
        Figure::MacroPrecision,
        Figure::MacroRecall,
        Figure::MacroF1,
        Figure::WeightedF1,
        Figure::MicroF1,
        Figure::MeanIou,
        Figure::SpanF1,
        Figure::SpanPrecision,
        Figure::SpanRecall,
        Figure::ExactMatch,
        Figure::Auroc,
        Figure::AveragePrecision,
        Figure::CalibrationError,
        Figure::LogLoss,
        Figure::Perplexity,
        Figure::BitsPerByte,
        Figure::Mae,
        Figure::Rmse,
        Figure::R2,
        Figure::Mape,
        Figure::Coverage,
    ];

    /// Its name, and one of at most seven characters for columns.
    fn names(self) -> [&'static str; 2] {
        match self {
            Figure::Loss => ["loss", "loss"],
            Figure::Accuracy => ["accuracy", "acc"],
            Figure::Top2Accuracy => ["top2_accuracy", "top2"],
            Figure::Top3Accuracy => ["top3_accuracy", "top3"],
            Figure::Top5Accuracy => ["top5_accuracy", "top5"],
            Figure::Top10Accuracy => ["top10_accuracy", "top10"],
            Figure::BalancedAccuracy => ["balanced_accuracy", "bal_acc"],
            Figure::MacroPrecision => ["macro_precision", "prec"],
            Figure::MacroRecall => ["macro_recall", "recall"],
            Figure::MacroF1 => ["macro_f1", "f1"],
            Figure::WeightedF1 => ["weighted_f1", "f1_wtd"],
            Figure::MicroF1 => ["micro_f1", "f1_mic"],
            Figure::MeanIou => ["mean_iou", "miou"],
            Figure::SpanF1 => ["span_f1", "span_f1"],
            Figure::SpanPrecision => ["span_precision", "span_p"],
            Figure::SpanRecall => ["span_recall", "span_r"],
            Figure::ExactMatch => ["exact_match", "exact"],
            Figure::Auroc => ["auroc", "auroc"],
            Figure::AveragePrecision => ["average_precision", "ap"],
            Figure::CalibrationError => ["calibration_error", "ece"],
            Figure::LogLoss => ["log_loss", "logloss"],
            Figure::Perplexity => ["perplexity", "ppl"],
            Figure::BitsPerByte => ["bits_per_byte", "bpb"],
            Figure::Mae => ["mae", "mae"],
            Figure::Rmse => ["rmse", "rmse"],
            Figure::R2 => ["r2", "r2"],
            Figure::Mape => ["mape", "mape"],
            Figure::Coverage => ["coverage", "cover"],
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.names()[0]
    }

    /// Its name where there is room for seven characters only.
    pub fn short_name(self) -> &'static str {
        self.names()[1]
    }

    /// Whether more is better.
    pub fn higher_is_better(self) -> bool {
        match self {
            Figure::Loss
            | Figure::CalibrationError
            | Figure::LogLoss
            | Figure::Perplexity
            | Figure::BitsPerByte
            | Figure::Mae
            | Figure::Rmse
            | Figure::Mape => false,
            Figure::R2
            | Figure::Coverage
            | Figure::Accuracy
            | Figure::Top2Accuracy
            | Figure::Top3Accuracy
            | Figure::Top5Accuracy
            | Figure::Top10Accuracy
            | Figure::BalancedAccuracy
            | Figure::MacroPrecision
            | Figure::MacroRecall
            | Figure::MacroF1
            | Figure::WeightedF1
            | Figure::MicroF1
            | Figure::MeanIou
            | Figure::SpanF1
            | Figure::SpanPrecision
            | Figure::SpanRecall
            | Figure::ExactMatch
            | Figure::Auroc
            | Figure::AveragePrecision => true,
        }
    }

    /// Whether it is a fraction of one that is shown in percent.
    pub fn is_share(self) -> bool {
        !matches!(
            self,
            Figure::Loss
                | Figure::LogLoss
                | Figure::Perplexity
                | Figure::BitsPerByte
                | Figure::Mae
                | Figure::Rmse
                | Figure::R2
                | Figure::Mape
        )
    }

    /// What it is computed from.
    pub fn gathered(self) -> Gathered {
        match self {
            Figure::Loss | Figure::Accuracy | Figure::Mae | Figure::Rmse => Gathered::Sums,
            Figure::Top2Accuracy
            | Figure::Top3Accuracy
            | Figure::Top5Accuracy
            | Figure::Top10Accuracy
            | Figure::BalancedAccuracy
            | Figure::MacroPrecision
            | Figure::MacroRecall
            | Figure::MacroF1
            | Figure::WeightedF1
            | Figure::MicroF1
            | Figure::MeanIou => Gathered::ClassCounts,
            Figure::R2 | Figure::Mape => Gathered::ErrorSums,
            Figure::SpanF1
            | Figure::SpanPrecision
            | Figure::SpanRecall
            | Figure::ExactMatch
            | Figure::Auroc
            | Figure::AveragePrecision
            | Figure::CalibrationError
            | Figure::LogLoss
            | Figure::Perplexity
            | Figure::BitsPerByte
            | Figure::Coverage => Gathered::Outputs,
        }
    }

    /// Whether it is one of spans of words, which tags of a scheme make.
    pub fn is_of_spans(self) -> bool {
        matches!(self, Figure::SpanF1 | Figure::SpanPrecision | Figure::SpanRecall)
    }

    /// The `k` of a top-k accuracy.
    pub fn top_k(self) -> Option<usize> {
        match self {
            Figure::Top2Accuracy => Some(2),
            Figure::Top3Accuracy => Some(3),
            Figure::Top5Accuracy => Some(5),
            Figure::Top10Accuracy => Some(10),
            _ => None,
        }
    }

    /// Its value, from `sums`; `None` if it comes from something else.
    pub fn value(self, sums: &[f64; METRIC_SLOTS]) -> Option<f64> {
        let items = sums[metric_slot::ITEMS];
        match self {
            Figure::Loss => Some(sums[metric_slot::LOSS] / sums[metric_slot::WEIGHT]),
            Figure::Accuracy => Some(sums[metric_slot::CORRECT] / items),
            Figure::Mae => Some(sums[metric_slot::ABS_ERROR] / items),
            Figure::Rmse => Some((sums[metric_slot::SQUARED_ERROR] / items).sqrt()),
            _ => None,
        }
    }
}

/// Length of the metric sums.
pub const METRIC_SLOTS: usize = 8;

/// Places in the metric sums (`F64 [METRIC_SLOTS]`).
pub mod metric_slot {
    /// Σ loss · weight
    pub const LOSS: usize = 0;
    /// Σ weight: what the batches weigh in the mean of the loss
    pub const WEIGHT: usize = 1;
    /// Items whose class is right (of equal logits the first counts)
    pub const CORRECT: usize = 2;
    /// Σ |x − t|
    pub const ABS_ERROR: usize = 3;
    /// Σ (x − t)²
    pub const SQUARED_ERROR: usize = 4;
    /// Number of items compared: rows that count, or elements
    pub const ITEMS: usize = 5;
    /// Batches whose loss was not finite
    pub const NOT_FINITE: usize = 6;
}

/// Adds a batch to the sums. Operands: loss `[1]`, what the batch weighs `[1]` and prediction (all `F32`), target, sums
/// (`F64 [METRIC_SLOTS]`, updated in place). A loss that is not finite is counted in its slot and left out of the sums.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// What to measure.
    pub task: Task,
    /// Rows with this target do not count.
    pub ignore_index: Option<i32>,
}

impl OpRules for Metrics {
    fn name(&self) -> &'static str {
        "metrics"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("metrics", inputs, 5)?;
        singles("metrics", inputs, [0, 1, 2])?;
        if inputs[4].dtype != DType::F64 || inputs[4].shape.len() != METRIC_SLOTS {
            return Err(ShapeError::of(4, "`metrics` adds to eight doubles"));
        }
        Ok(Vec::new())
    }

    fn mutates(&self, _: usize) -> Vec<usize> {
        vec![4]
    }
}
