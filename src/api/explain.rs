//! Which columns a model of a table depends on: how much its loss grows where a column is shuffled, and what it answers where a column has another value.

use super::predictor::Predictor;
use crate::config::language::sections::middle;
use crate::data::table::{Decoded, TableCodec, Target};
use crate::data::{FieldKind, Split};
use crate::graph::DType;
use crate::graph::op::Task;
use crate::random::{Purpose, Stream};
use anyhow::{Context, Result, ensure};
use std::ops::Range;

/// Bytes of a number.
const NUMBER: usize = size_of::<f32>();

/// Rows of a table as the model takes them, with what is to be learnt of them.
pub struct Rows {
    /// Of each field that the model takes, the bytes of one row after the other.
    fields: Vec<Vec<u8>>,
    /// Which of them has the numbers of columns.
    numbers: usize,
    targets: Targets,
    rows: usize,
}

/// The parts of a field's rows that belong to a column: its bytes in each.
type Place = (usize, Range<usize>);

enum Targets {
    Classes(Vec<usize>),
    Numbers(Vec<f32>),
}

/// The figures of predictions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// The mean negative logarithm of the probability of what is right or, of numbers, the root of the mean squared error in their own unit.
    pub loss: f64,
    /// The part of the answers that is right; NaN of numbers.
    pub accuracy: f64,
}

/// What figures are made of, which add up: those of the models of several folds, each of its own rows, are those of all rows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sums {
    /// Losses, or squared errors.
    loss: f64,
    /// Answers that are right.
    right: f64,
    /// How many numbers these are sums of.
    count: f64,
    /// The losses are squared errors of numbers.
    squared: bool,
}

impl Sums {
    /// Adds those of other rows.
    pub fn add(&mut self, other: Sums) {
        self.loss += other.loss;
        self.right += other.right;
        self.count += other.count;
        self.squared |= other.squared;
    }

    /// The figures of all of them.
    pub fn figures(&self) -> Figures {
        let loss = self.loss / self.count;
        match self.squared {
            true => Figures { loss: loss.sqrt(), accuracy: f64::NAN },
            false => Figures { loss, accuracy: self.right / self.count },
        }
    }
}

/// How much worse a model gets where the cells of a column are shuffled: the mean over some shuffles, and the standard deviation.
#[derive(Debug, Clone, PartialEq)]
pub struct Importance {
    /// The column.
    pub column: String,
    /// By how much the loss grows.
    pub loss: [f64; 2],
    /// By how much the accuracy falls.
    pub accuracy: [f64; 2],
}

/// What a model says on the average where all rows have the same in a column.
#[derive(Debug, Clone, PartialEq)]
pub struct Dependence {
    /// What they have.
    pub value: Decoded,
    /// In how many rows it, or a number nearer to it than to the next, stands.
    pub rows: usize,
    /// The mean of each output: probabilities of classes, or numbers.
    pub outputs: Vec<f64>,
}

impl Rows {
    /// At most `most` samples of a split, which are drawn from `seed`.
    ///
    /// # Errors
    /// The split is empty, or its samples are not in memory.
    pub fn of(split: &Split, codec: &TableCodec, most: usize, seed: u64) -> Result<Rows> {
        let split = split.limit(most, seed, 0);
        ensure!(!split.is_empty(), "there are no rows");
        let target =
            split.fields().iter().position(|field| field.is_target()).context("nothing is learnt of the rows")?;
        let bytes = |row: usize, field: usize| split.bytes(row, field).context("the rows are not in memory");
        let inputs: Vec<usize> = (0..target).filter(|at| split.fields()[*at].is_input()).collect();
        let (mut fields, mut classes, mut numbers) = (vec![Vec::new(); inputs.len()], Vec::new(), Vec::new());
        let floats = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect::<Vec<_>>();
        for row in 0..split.len() {
            for (own, field) in fields.iter_mut().zip(&inputs) {
                own.extend_from_slice(bytes(row, *field)?);
            }
            match split.fields()[target].dtype {
                DType::I32 => classes.push(
                    split.label(row).and_then(|class| usize::try_from(class).ok()).context("a row has no class")?,
                ),
                _ => numbers.extend(floats(bytes(row, target)?)),
            }
        }
        let of_numbers = |at: &usize| split.fields()[*at].kind == FieldKind::Number;
        let of_columns = inputs.iter().position(of_numbers);
        let width = of_columns.map_or(0, |at| fields[at].len());
        let taken = of_columns.is_none() || width == split.len() * codec.width() * NUMBER;
        ensure!(taken, "the rows are not those of the model's columns");
        let targets = if numbers.is_empty() { Targets::Classes(classes) } else { Targets::Numbers(numbers) };
        Ok(Rows { fields, numbers: of_columns.unwrap_or(usize::MAX), targets, rows: split.len() })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Where the values of each column are in the fields of a row. Those of a column that the model does not take are nowhere.
    fn places<'a>(&self, codec: &'a TableCodec) -> Vec<(&'a str, Vec<Place>)> {
        let bytes = |range: Range<usize>| range.start * NUMBER..range.end * NUMBER;
        let is_there = self.numbers < self.fields.len();
        let of_numbers = codec.placed().map(|(range, column)| {
            (column.name.as_str(), if is_there { vec![(self.numbers, bytes(range))] } else { Vec::new() })
        });
        // A text and how long it is: all fields but that of the numbers.
        let whole = |field: usize| (field, 0..self.fields[field].len() / self.rows);
        let of_tokens = (0..self.fields.len()).filter(|field| *field != self.numbers).map(whole);
        let tokens = codec.tokens.as_ref().map(|tokens| (tokens.column.as_str(), of_tokens.collect()));
        of_numbers.chain(tokens).collect()
    }

    /// Bytes of a row of a field.
    fn each(&self, field: usize) -> usize {
        self.fields[field].len() / self.rows
    }
}

/// The figures' sums of the rows with these fields. They come of logits, as those of an evaluation: of a probability as small as single precision has none
/// nothing would be left.
fn sums(model: &Predictor, rows: &Rows, fields: &[Vec<u8>], answers: &mut Vec<f32>) -> Result<Sums> {
    let width = model.outputs();
    let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
    answers.resize(rows.len() * width, 0.0);
    model.raw(&fields, answers)?;
    let (mut loss, mut right) = (0.0, 0.0);
    match (&rows.targets, model.task()) {
        (Targets::Classes(classes), _) => {
            for (answer, class) in answers.chunks_exact(width).zip(classes) {
                loss += answer.get(*class).map_or(f64::NAN, |logit| log_sum(answer) - f64::from(*logit));
                let best = (0..width).max_by(|a, b| answer[*a].total_cmp(&answer[*b]).then(b.cmp(a)));
                right += f64::from(best == Some(*class));
            }
        }
        (Targets::Numbers(numbers), Task::BinaryClassification) => {
            for (answer, target) in answers.iter().zip(numbers) {
                let (x, t) = (f64::from(*answer), f64::from(*target));
                loss += x.max(0.0) - x * t + (-x.abs()).exp().ln_1p();
                right += f64::from((x > 0.0) == (t > 0.5));
            }
        }
        (Targets::Numbers(numbers), _) => {
            let quantiles = &model.seen().quantiles;
            let one = answers.chunks_exact(quantiles.len().max(1)).map(|all| all[middle(quantiles)]);
            let squares = one.zip(numbers).map(|(x, t)| (f64::from(x) - f64::from(*t)).powi(2));
            return Ok(Sums { loss: squares.sum::<f64>(), right: 0.0, count: numbers.len() as f64, squared: true });
        }
    }
    let count = if let Targets::Numbers(numbers) = &rows.targets { numbers.len() } else { rows.len() } as f64;
    Ok(Sums { loss, right, count, squared: false })
}

/// The logarithm of the sum of the exponentials of a row.
fn log_sum(row: &[f32]) -> f64 {
    let most = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    most + row.iter().map(|x| (f64::from(*x) - most).exp()).sum::<f64>().ln()
}

/// What the figures of the rows as they are come from.
///
/// # Errors
/// The device failed.
pub fn as_they_are(model: &Predictor, rows: &Rows) -> Result<Sums> {
    sums(model, rows, &rows.fields, &mut Vec::new())
}

/// What the figures come from where the cells of a column are shuffled among the rows: for each column, `repeats` times.
///
/// # Errors
/// The device failed.
pub fn shuffled(
    model: &Predictor,
    codec: &TableCodec,
    rows: &Rows,
    (repeats, seed): (usize, u64),
) -> Result<Vec<(String, Vec<Sums>)>> {
    let (mut changed, mut out) = (rows.fields.clone(), Vec::new());
    let mut all = Vec::new();
    for (number, (column, places)) in rows.places(codec).into_iter().enumerate() {
        let mut of_column = Vec::new();
        for repeat in 0..repeats {
            let mut order: Vec<u32> = (0..rows.len() as u32).collect();
            Stream::new(seed, Purpose::Explain, number as u64, repeat as u64).shuffle(&mut order);
            for (field, place) in &places {
                let each = rows.each(*field);
                for (row, from) in changed[*field].chunks_exact_mut(each).zip(&order) {
                    row[place.clone()].copy_from_slice(&rows.fields[*field][*from as usize * each..][place.clone()]);
                }
            }
            of_column.push(sums(model, rows, &changed, &mut out)?);
        }
        places.iter().for_each(|(field, _)| changed[*field].copy_from_slice(&rows.fields[*field]));
        all.push((column.to_owned(), of_column));
    }
    Ok(all)
}

/// How much worse a model gets than `base` where the cells of a column are shuffled, for each column, the most important first (Breiman 2001,
/// "Random Forests"; `sklearn.inspection.permutation_importance`).
pub fn importances(base: &Figures, shuffled: &[(String, Vec<Sums>)]) -> Vec<Importance> {
    let of_column = |(column, repeats): &(String, Vec<Sums>)| {
        let figures: Vec<Figures> = repeats.iter().map(Sums::figures).collect();
        Importance {
            column: column.clone(),
            loss: mean_and_deviation(&figures.iter().map(|now| now.loss - base.loss).collect::<Vec<_>>()),
            accuracy: mean_and_deviation(&figures.iter().map(|now| base.accuracy - now.accuracy).collect::<Vec<_>>()),
        }
    };
    let mut all: Vec<Importance> = shuffled.iter().map(of_column).collect();
    all.sort_by(|a, b| b.loss[0].total_cmp(&a.loss[0]));
    all
}

/// What the model says on the average of the rows where all of them have one value in a column, for the values that stand there: at most `points`, of
/// numbers at evenly spaced ranks, of texts the most frequent (Friedman 2001, "Greedy function approximation"; `sklearn.inspection.partial_dependence`).
///
/// # Errors
/// There is no such column; the device failed.
pub fn dependence(
    model: &Predictor,
    codec: &TableCodec,
    rows: &Rows,
    column: &str,
    points: usize,
) -> Result<Vec<Dependence>> {
    let unknown = || format!("the model takes no column `{column}`");
    let (_, of_column) = codec.placed().find(|(_, own)| own.name == column).with_context(unknown)?;
    let places = rows.places(codec).into_iter().find(|(name, _)| *name == column);
    let (field, place) = places.and_then(|(_, places)| places.into_iter().next()).with_context(unknown)?;
    let (column, each) = (of_column, rows.each(field));
    let block = |row: usize| &rows.fields[field][row * each..][place.clone()];
    let numbers = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect::<Vec<_>>();
    // Each value with a row that has it, and how many have.
    let mut values: Vec<(Decoded, usize, usize)> = Vec::new();
    let mut order: Vec<(Decoded, usize)> =
        (0..rows.len()).map(|row| (column.decode(&numbers(block(row))), row)).collect();
    order.sort_by(|a, b| a.0.order(&b.0));
    for (value, row) in order {
        match values.last_mut() {
            Some((last, _, count)) if *last == value => *count += 1,
            _ => values.push((value, row, 1)),
        }
    }
    if values.len() > points {
        values = match values[0].0 {
            Decoded::Number(_) | Decoded::Date(_) => at_ranks(&values, points),
            _ => {
                values.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.order(&b.0)));
                values.truncate(points);
                values.sort_by(|a, b| a.0.order(&b.0));
                values
            }
        };
    }
    let mut changed = rows.fields.clone();
    let outputs = model.outputs();
    let mut out = vec![0.0; rows.len() * outputs];
    let of_value = |(value, from, count): (Decoded, usize, usize)| {
        for row in changed[field].chunks_exact_mut(each) {
            row[place.clone()].copy_from_slice(block(from));
        }
        model.predict(&changed.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut out)?;
        let mut means = vec![0.0; outputs];
        for answer in out.chunks_exact(outputs) {
            means.iter_mut().zip(answer).for_each(|(sum, x)| *sum += f64::from(*x));
        }
        means.iter_mut().for_each(|sum| *sum /= rows.len() as f64);
        Ok(Dependence { value, rows: count, outputs: means })
    };
    values.into_iter().map(of_value).collect()
}

/// Of sorted values those at evenly spaced ranks, each with the rows that are nearer to it than to the next; and what is missing.
fn at_ranks(values: &[(Decoded, usize, usize)], points: usize) -> Vec<(Decoded, usize, usize)> {
    let missing = values.iter().position(|(value, ..)| !matches!(value, Decoded::Number(_) | Decoded::Date(_)));
    let (numbers, others) = values.split_at(missing.unwrap_or(values.len()));
    let all: usize = numbers.iter().map(|(.., count)| count).sum();
    let points = points.saturating_sub(others.len()).max(2);
    let mut chosen: Vec<(Decoded, usize, usize)> = Vec::new();
    let (mut before, mut next) = (0, 0);
    for (value, row, count) in numbers {
        before += count;
        // The rank of point number `next` among the rows.
        let wanted = next * (all - 1) / (points - 1);
        if before > wanted && next < points {
            chosen.push((value.clone(), *row, *count));
            while next < points && next * (all - 1) / (points - 1) < before {
                next += 1;
            }
        } else if let Some((.., rows)) = chosen.last_mut() {
            *rows += count;
        }
    }
    chosen.extend(others.iter().cloned());
    chosen
}

fn mean_and_deviation(values: &[f64]) -> [f64; 2] {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    [mean, (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n).sqrt()]
}

/// What the outputs of a model are called: its classes, or the columns that are learnt, or quantiles of them.
pub fn outputs_named(codec: &TableCodec, model: &Predictor) -> Vec<String> {
    let (outputs, quantiles) = (model.outputs(), model.seen().quantile_names());
    let names = match &codec.target {
        _ if !quantiles.is_empty() => quantiles,
        Target::Classes { names, .. } => names.clone(),
        Target::Numbers { columns, .. } => columns.clone(),
    };
    (0..outputs).map(|at| names.get(at).cloned().unwrap_or_else(|| (at + 1).to_string())).collect()
}
