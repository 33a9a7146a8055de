//! Figures that need the model's outputs themselves. They are read back batch by batch, and what they come to is computed on
//! the host, in double precision: exactly, over all samples.

mod calibration;
mod ranking;
mod spans;

use super::figures::Figures;
use super::programs::Programs;
use crate::graph::op::{Figure, Gathered, Task};
use crate::plan::Plan;
use calibration::Calibration;
use ranking::{Ranking, Truth};
use spans::SpanCounts;

/// What is gathered of the outputs of an evaluation.
pub struct Scores {
    wanted: Vec<Figure>,
    task: Task,
    /// Classes of a row, or labels of a sample.
    width: usize,
    ignore_index: Option<i32>,
    ranking: Option<Ranking>,
    calibration: Calibration,
    spans: Option<SpanCounts>,
    /// Numbers that are predicted of each target of a regression; targets that lie among them, and all.
    each: usize,
    covered: [u64; 2],
    exact: Exact,
    /// Sum of the negative log-likelihoods of targets; of labels, of the mean over those of a sample.
    surprise: f64,
    /// Rows that count.
    rows: u64,
    /// Bytes of a text that a row stands for.
    bytes_per_token: Option<f64>,
    /// An output was no number.
    not_a_number: bool,
    /// Of a row: the logarithms of its probabilities.
    row: Vec<f64>,
}

/// Of these figures, those for which outputs must be read; `is_likelihood`: some come from the loss.
fn read_for(figures: &[Figure], is_likelihood: bool) -> Vec<Figure> {
    let of_loss =
        |figure: &Figure| matches!(figure, Figure::LogLoss | Figure::Perplexity | Figure::BitsPerByte) && is_likelihood;
    figures.iter().copied().filter(|f| f.gathered() == Gathered::Outputs && !of_loss(f)).collect()
}

/// Whether this figure needs the scores of all samples at once.
pub fn ranks(figure: &Figure) -> bool {
    matches!(figure, Figure::Auroc | Figure::AveragePrecision)
}

/// The bits that a byte of a text takes, from the mean negative log-likelihood of its tokens; no number, if it is not known how many bytes these are.
fn bits_per_byte(surprise: f64, bytes_per_token: Option<f64>) -> f64 {
    bytes_per_token.map_or(f64::NAN, |bytes| surprise / std::f64::consts::LN_2 / bytes)
}

/// Adds to figures those that are the loss in other units.
pub fn with_perplexity(figures: Figures, programs: &Programs) -> Figures {
    let Some(loss) = figures.get(Figure::Loss).filter(|_| programs.loss_is_likelihood()) else { return figures };
    let bits = bits_per_byte(loss, programs.bytes_per_token);
    let own = [(Figure::LogLoss, loss), (Figure::Perplexity, loss.exp()), (Figure::BitsPerByte, bits)];
    let asked = own.into_iter().filter(|(figure, _)| programs.asked.contains(figure));
    asked.fold(figures, |figures, (figure, value)| figures.with(figure, value))
}

/// Bytes that the scores of so many samples take, for the programs of `plan`.
pub fn bytes(plan: &Plan, task: Task, samples: usize) -> usize {
    let of = |program: &crate::plan::Program| {
        let shape = &program.graph.value(program.prediction?).shape;
        let batch = *shape.dims().first()?;
        Some((shape.len() / batch.max(1), shape.last()))
    };
    let Some((outputs, last)) = plan.programs.iter().find_map(of) else { return 0 };
    let rows = match task {
        Task::Classification => outputs / last.max(1),
        Task::BinaryClassification | Task::Regression => 1,
    };
    Ranking::bytes(samples * rows, outputs / rows.max(1))
}

impl Scores {
    /// For the figures that the programs' evaluation measures, over about so many samples; `None` if no outputs need be read.
    pub fn new(programs: &Programs, samples: usize) -> Option<Self> {
        let shape = programs.plan.programs.iter().find_map(|p| Some(&p.graph.value(p.prediction?).shape))?;
        let task = programs.loss.task();
        let labelled = programs.fields.iter().any(|field| field.is_target() && field.shape.rank() > 0);
        let width = if task == Task::Classification || labelled { shape.last() } else { 1 };
        let rows = shape.len() / width.max(1) / shape.dims().first().copied().unwrap_or(1).max(1);
        let wanted = read_for(&programs.asked, programs.loss_is_likelihood());
        let spans = wanted.iter().any(|figure| figure.is_of_spans()).then(|| SpanCounts::of(&programs.class_names));
        let scores = Scores::of(wanted, task, width, programs.loss.ignore_index(), samples * rows)?;
        let (each, bytes_per_token) = (programs.quantiles.len().max(1), programs.bytes_per_token);
        Some(Scores { spans: spans.flatten(), each, bytes_per_token, ..scores })
    }

    fn of(wanted: Vec<Figure>, task: Task, width: usize, ignore_index: Option<i32>, rows: usize) -> Option<Self> {
        if wanted.is_empty() {
            return None;
        }
        let ranking = wanted.iter().any(ranks).then(|| Ranking::new(width, rows, task == Task::Classification));
        let (calibration, row) = (Calibration::default(), vec![0.0; width]);
        let (surprise, rows, not_a_number) = (0.0, 0, false);
        let spans = None;
        Some(Scores {
            wanted,
            task,
            width,
            ignore_index,
            ranking,
            calibration,
            spans,
            each: 1,
            covered: [0; 2],
            exact: Exact::default(),
            surprise,
            rows,
            bytes_per_token: None,
            not_a_number,
            row,
        })
    }

    /// Takes the outputs of a batch of so many samples with their targets, both native-endian and in the order of the device: rows of classes
    /// (`F32`) with a class for each (`I32`), or labels (`F32`) with as many numbers (`F32`).
    pub fn add(&mut self, outputs: &[u8], targets: &[u8], samples: usize) {
        let rows = outputs.as_chunks::<4>().0.chunks_exact(self.width);
        let targets = targets.as_chunks::<4>().0;
        match self.task {
            Task::Classification => {
                let positions = (targets.len() / samples.max(1)).max(1);
                for (at, (row, target)) in rows.zip(targets).enumerate() {
                    self.add_row(row, i32::from_ne_bytes(*target));
                    if (at + 1).is_multiple_of(positions) {
                        self.spans.iter_mut().for_each(SpanCounts::end_sample);
                        self.exact.end_sample();
                    }
                }
            }
            Task::Regression => self.add_intervals(outputs.as_chunks::<4>().0, targets),
            Task::BinaryClassification => {
                for (row, targets) in rows.zip(targets.chunks_exact(self.width)) {
                    self.add_labels(row, targets);
                }
            }
        }
    }

    fn add_row(&mut self, row: &[[u8; 4]], target: i32) {
        let known = usize::try_from(target).ok().filter(|class| *class < self.width);
        let Some(class) = known.filter(|_| self.ignore_index != Some(target)) else { return };
        let best = log_softmax(row, &mut self.row);
        let Some(best) = best else {
            self.not_a_number = true;
            return;
        };
        self.rows += 1;
        self.exact.add(best == class);
        self.surprise -= self.row[class];
        self.calibration.add(self.row[best].exp(), best == class);
        self.spans.iter_mut().for_each(|spans| spans.add(best, class));
        if let Some(ranking) = &mut self.ranking {
            ranking.add(self.row.iter().map(|log| *log as f32), Truth::Class(target));
        }
    }

    /// Takes predictions, all of a target side by side, and targets, whatever sample they are of.
    fn add_intervals(&mut self, predictions: &[[u8; 4]], targets: &[[u8; 4]]) {
        let number = |bytes: &[u8; 4]| f32::from_ne_bytes(*bytes);
        for (all, target) in predictions.chunks_exact(self.each).zip(targets) {
            self.not_a_number |= all.iter().any(|x| number(x).is_nan());
            let (low, high) = all
                .iter()
                .map(number)
                .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
            let inside = (low..=high).contains(&number(target));
            self.covered = [self.covered[0] + u64::from(inside), self.covered[1] + 1];
        }
        self.rows = self.covered[1];
    }

    fn add_labels(&mut self, row: &[[u8; 4]], targets: &[[u8; 4]]) {
        let numbers = |bytes: &[[u8; 4]]| bytes.iter().map(|b| f32::from_ne_bytes(*b)).collect::<Vec<f32>>();
        let (row, targets) = (numbers(row), numbers(targets));
        if row.iter().any(|x| x.is_nan()) {
            self.not_a_number = true;
            return;
        }
        self.rows += 1;
        let is: Vec<bool> = targets.iter().map(|t| *t > 0.5).collect();
        for (x, is) in row.iter().zip(&is) {
            let confidence = 1.0 / (1.0 + (-f64::from(x.abs())).exp());
            self.calibration.add(confidence, (*x > 0.0) == *is);
            // `ln(1 + e^−x)` of a yes, `ln(1 + e^x)` of a no.
            let x = if *is { -f64::from(*x) } else { f64::from(*x) };
            self.surprise += (x.max(0.0) + (-x.abs()).exp().ln_1p()) / self.width as f64;
        }
        if let Some(ranking) = &mut self.ranking {
            ranking.add(row.iter().copied(), Truth::Labels(&is));
        }
    }

    /// Adds the figures to others. The second value has notes on them. `names` are those of the classes.
    pub fn finish(mut self, figures: Figures, names: &[String]) -> (Figures, Vec<String>) {
        let mut notes = Vec::new();
        let mut all = figures;
        for figure in std::mem::take(&mut self.wanted) {
            let value = match (figure, &mut self.ranking) {
                _ if self.not_a_number || self.rows == 0 => f64::NAN,
                (Figure::CalibrationError, _) => self.calibration.error(),
                (Figure::SpanF1 | Figure::SpanPrecision | Figure::SpanRecall, _) => {
                    self.spans.as_ref().map_or(f64::NAN, |spans| spans.figure(figure))
                }
                (Figure::Coverage, _) => self.covered[0] as f64 / self.covered[1] as f64,
                (Figure::ExactMatch, _) => self.exact.share(),
                (Figure::LogLoss, _) => self.surprise / self.rows as f64,
                (Figure::Perplexity, _) => (self.surprise / self.rows as f64).exp(),
                (Figure::BitsPerByte, _) => bits_per_byte(self.surprise / self.rows as f64, self.bytes_per_token),
                (_, Some(ranking)) => {
                    let (value, note) = ranking.figure(figure, names);
                    notes.extend(note);
                    value
                }
                _ => f64::NAN,
            };
            all = all.with(figure, value);
        }
        (all, notes)
    }
}

/// Samples of which every position that counts is right.
#[derive(Default)]
struct Exact {
    /// Positions of the sample that is taken in, and those that are wrong.
    positions: u64,
    wrong: u64,
    samples: u64,
    right: u64,
}

impl Exact {
    fn add(&mut self, right: bool) {
        self.positions += 1;
        self.wrong += u64::from(!right);
    }

    /// The next position is one of another sample. One of which none counts is no sample.
    fn end_sample(&mut self) {
        self.samples += u64::from(self.positions > 0);
        self.right += u64::from(self.positions > 0 && self.wrong == 0);
        (self.positions, self.wrong) = (0, 0);
    }

    fn share(&self) -> f64 {
        self.right as f64 / self.samples as f64
    }
}

/// The logarithms of the softmax of a row, and the place of the largest, the first of equals; `None` if there is none because
/// an element is no number.
fn log_softmax(row: &[[u8; 4]], into: &mut [f64]) -> Option<usize> {
    for (to, bytes) in into.iter_mut().zip(row) {
        *to = f64::from(f32::from_ne_bytes(*bytes));
    }
    let best = (1..into.len()).fold(0, |best, i| if into[i] > into[best] { i } else { best });
    if into.iter().any(|x| x.is_nan()) {
        return None;
    }
    let most = into[best];
    if !most.is_finite() {
        return None;
    }
    // Without the largest, whose share is 1: what is left of a sure prediction is not rounded away.
    let others: f64 = into.iter().enumerate().filter(|(i, _)| *i != best).map(|(_, x)| (x - most).exp()).sum();
    let log_sum = others.ln_1p();
    into.iter_mut().for_each(|x| *x -= most + log_sum);
    into[best] = -log_sum;
    Some(best)
}

#[cfg(test)]
mod tests;
