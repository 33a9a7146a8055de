//! Figures of the order in which scores put all samples.

use crate::graph::op::Figure;

/// Classes that are named in a message.
const NAMED: usize = 5;

/// The scores of all samples, and what is true of them.
pub struct Ranking {
    /// Classes or labels.
    width: usize,
    /// A row for each sample.
    scores: Vec<f32>,
    truth: Kept,
}

enum Kept {
    /// The class of each sample.
    Classes(Vec<i32>),
    /// For each score, whether the label applies.
    Labels(Vec<bool>),
}

/// What is true of a sample.
pub enum Truth<'a> {
    /// The class that it is of.
    Class(i32),
    /// Which labels apply.
    Labels(&'a [bool]),
}

/// How the samples of a class, or those to which a label applies, stand among the others.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Curve {
    yes: u64,
    no: u64,
    auroc: f64,
    average_precision: f64,
}

impl Ranking {
    /// For so many rows of `width` scores.
    pub fn new(width: usize, rows: usize, classes: bool) -> Self {
        let truth = match classes {
            true => Kept::Classes(Vec::with_capacity(rows)),
            false => Kept::Labels(Vec::with_capacity(rows * width)),
        };
        Ranking { width, scores: Vec::with_capacity(rows * width), truth }
    }

    /// Bytes that so many rows of `width` scores take, with what sorting them does.
    pub fn bytes(rows: usize, width: usize) -> usize {
        let each = width.saturating_mul(size_of::<f32>()) + width.max(size_of::<i32>()) + size_of::<u64>();
        rows.saturating_mul(each)
    }

    /// Adds a sample.
    pub fn add(&mut self, scores: impl Iterator<Item = f32>, truth: Truth) {
        self.scores.extend(scores);
        match (&mut self.truth, truth) {
            (Kept::Classes(all), Truth::Class(class)) => all.push(class),
            (Kept::Labels(all), Truth::Labels(labels)) => all.extend_from_slice(labels),
            (Kept::Classes(_), Truth::Labels(_)) | (Kept::Labels(_), Truth::Class(_)) => {}
        }
    }

    fn is(&self, row: usize, class: usize) -> bool {
        match &self.truth {
            Kept::Classes(all) => all.get(row).is_some_and(|of| *of == class as i32),
            Kept::Labels(all) => all.get(row * self.width + class).is_some_and(|is| *is),
        }
    }

    /// Where the samples of a class stand among all by their scores for it.
    fn curve(&self, class: usize) -> Curve {
        let rows = self.scores.len() / self.width.max(1);
        let mut keys: Vec<u64> = (0..rows)
            .map(|row| u64::from(ordered(self.scores[row * self.width + class])) << 1 | u64::from(self.is(row, class)))
            .collect();
        keys.sort_unstable_by(|a, b| b.cmp(a));
        let yes = keys.iter().filter(|key| **key & 1 == 1).count() as u64;
        let no = keys.len() as u64 - yes;
        // What is above a score, and twice the pairs in which a yes is above a no: whole numbers.
        let (mut found, mut above, mut pairs) = (0u64, 0u64, 0u128);
        let mut average_precision = 0.0;
        for equal in keys.chunk_by(|a, b| a >> 1 == b >> 1) {
            let here = equal.iter().filter(|key| **key & 1 == 1).count() as u64;
            let others = equal.len() as u64 - here;
            pairs += u128::from(here) * u128::from(2 * (no - above - others) + others);
            found += here;
            above += others;
            average_precision += here as f64 * (found as f64 / (found + above) as f64);
        }
        let auroc = pairs as f64 / 2.0 / (yes as f64 * no as f64);
        Curve { yes, no, auroc, average_precision: average_precision / yes as f64 }
    }

    /// A figure, NaN if there is nothing to compute it from; and what must be said of it.
    pub fn figure(&self, figure: Figure, names: &[String]) -> (f64, Option<String>) {
        let is_auroc = figure == Figure::Auroc;
        // Of two classes, the second against the first is all that there is.
        let first = usize::from(matches!(self.truth, Kept::Classes(_)) && self.width == 2);
        let mut values = Vec::new();
        let (mut none, mut only) = (Vec::new(), Vec::new());
        for class in first..self.width {
            let curve = self.curve(class);
            let value = if is_auroc { curve.auroc } else { curve.average_precision };
            match curve {
                Curve { yes: 0, .. } => none.push(class),
                Curve { no: 0, .. } if is_auroc => only.push(class),
                _ => values.push(value),
            }
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, self.note(figure, values.is_empty(), &none, &only, names))
    }

    /// What must be said of classes that are left out: those of which there is no sample, and those of which all are.
    fn note(&self, figure: Figure, nothing: bool, none: &[usize], only: &[usize], names: &[String]) -> Option<String> {
        let named = |list: &[usize]| {
            let name = |class: &usize| names.get(*class).cloned().unwrap_or_else(|| class.to_string());
            let more = if list.len() > NAMED { " …" } else { "" };
            list.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ") + more
        };
        let what = if matches!(self.truth, Kept::Classes(_)) { "class" } else { "label" };
        let mut why = Vec::new();
        if !none.is_empty() {
            why.push(format!("no sample has the {what} {}", named(none)));
        }
        if !only.is_empty() {
            why.push(format!("all samples have the {what} {}", named(only)));
        }
        let why = why.join("; ");
        match (nothing, why.is_empty()) {
            (_, true) => None,
            (true, false) => Some(format!("there is no `{}`: {why}", figure.name())),
            (false, false) => Some(format!("`{}` is the mean over the others: {why}", figure.name())),
        }
    }
}

/// A number's place among all, as bits; both zeros have the same.
fn ordered(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}
