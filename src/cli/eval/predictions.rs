//! What a model says of every sample of an evaluation, a row each: as a table, or as JSON Lines.

use super::losses::{mean_loss, mean_pinball};
use crate::api::answer::id_column;
use crate::api::failure::Failure;
use crate::api::generate::Generator;
use crate::data::text::parted;
use crate::data::{Batch, INPUTS, LENGTHS, RowName, Split, TARGETS};
use crate::graph::op::{IGNORE_INDEX, Task};
use crate::graph::{Input, Shape};
use crate::terminal::json_line;
use crate::train::setup::programs::{Kind, Programs};
use crate::train::setup::session::Session;
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A table, with a row that names the columns.
    Csv,
    /// A JSON object a line.
    JsonLines,
}

impl Form {
    /// The form that the ending of a file's name asks for.
    ///
    /// # Errors
    /// It asks for none.
    pub fn of(path: &Path) -> Result<Form, Failure> {
        let ending = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        match ending.as_deref() {
            Some("csv") => Ok(Form::Csv),
            Some("jsonl" | "ndjson") => Ok(Form::JsonLines),
            _ => Err(Failure::Usage(format!(
                "the ending of `{}` tells no format\nhelp: end the name with .csv or .jsonl",
                path.display()
            ))),
        }
    }
}

/// What a model says of a sample, with what is true of it.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    sample: u32,
    /// The fold that says it, from 1.
    fold: Option<usize>,
    of: Of,
    said: Said,
    /// `None`: losses of samples are not told; `Some(None)`: this one has none.
    loss: Option<Option<f64>>,
}

/// Where a sample comes from.
#[derive(Debug, Clone, PartialEq)]
enum Of {
    /// A file.
    File(String),
    /// The line of a table, and its file, if there are several.
    Line(Option<String>, u32),
    /// The row of a table for which a column has this.
    Id(String, String),
    /// Nothing that has a name.
    Nothing,
}

impl Of {
    fn sample(split: &Split, sample: usize) -> Of {
        match split.row(sample) {
            Some(RowName::Id(column, id)) => Of::Id(column.to_owned(), id.to_owned()),
            Some(RowName::Line(file, line)) => Of::Line(file.map(str::to_owned), line),
            None => split.name(sample).map_or(Of::Nothing, Of::File),
        }
    }

    /// The names of the columns, and what is in them.
    fn cells(&self) -> Vec<(String, String)> {
        let cell = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        match self {
            Of::File(file) => vec![cell("file", file)],
            Of::Line(None, line) => vec![cell("line", &line.to_string())],
            Of::Line(Some(file), line) => vec![cell("file", file), cell("line", &line.to_string())],
            Of::Id(column, id) => vec![cell(column, id)],
            Of::Nothing => Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Said {
    /// A class, with the probabilities of all.
    Class { target: Option<usize>, prediction: usize, probabilities: Vec<f64> },
    /// A class for each position.
    Positions { targets: Vec<Option<usize>>, predictions: Vec<usize> },
    /// Yes or no for each label, with the probability of a yes.
    Labels { targets: Option<Vec<f32>>, probabilities: Vec<f64> },
    /// Numbers: one for each target, or one for each of several quantiles of it.
    Values { targets: Option<Vec<f32>>, predictions: Vec<f32>, quantiles: Vec<f64> },
    /// A text.
    Text { target: String, prediction: String },
}

/// Writes rows, a batch at a time.
pub struct Predictions<'a> {
    form: Form,
    /// Names in a table are no formulas of a spreadsheet.
    guard_formulas: bool,
    /// Where the rows go, for errors.
    path: &'a Path,
    file: BufWriter<&'a mut dyn Write>,
    outputs: Vec<u8>,
    begun: bool,
    /// The sample of the last row.
    last: Option<u32>,
    /// Rows of samples in batches of several lengths, or of several folds, which do not come in their order.
    held: BTreeMap<u32, String>,
    rows: u64,
    fold: Option<usize>,
    /// What writes answers, where the samples are texts that are answered.
    writer: Option<Generator>,
}

impl<'a> Predictions<'a> {
    /// Rows in that form go to `file`, which is that of `path`; in a table names get a `'` before them where a spreadsheet would
    /// run them, if `guard_formulas`.
    pub fn new(form: Form, guard_formulas: bool, path: &'a Path, file: &'a mut dyn Write) -> Self {
        let file = BufWriter::new(file);
        Predictions {
            form,
            guard_formulas,
            path,
            file,
            outputs: Vec::new(),
            begun: false,
            last: None,
            held: BTreeMap::new(),
            rows: 0,
            fold: None,
            writer: None,
        }
    }

    /// What is said from now on of texts that are answered is what this writes.
    pub fn written_by(&mut self, writer: Generator) {
        self.writer = Some(writer);
    }

    /// What comes from now on is said by a fold, the number of which is from 1. Rows are held back until the end: they are in the order of the table.
    pub fn of_fold(&mut self, fold: usize) {
        (self.fold, self.last) = (Some(fold), None);
    }

    /// Writes the rows of a batch that has been evaluated.
    ///
    /// # Errors
    /// The device failed; the file cannot be written; there is a class at each position, for which a table has no room.
    pub fn see(&mut self, session: &mut Session, batch: &Batch, split: &Split) -> Result<()> {
        self.see_with(session, batch, split, &|_, output| output)
    }

    /// The same where `with` makes of a sample's number and what the model says of it what is said.
    ///
    /// # Errors
    /// As [`Predictions::see`].
    pub fn see_with(
        &mut self,
        session: &mut Session,
        batch: &Batch,
        split: &Split,
        with: &dyn Fn(usize, Vec<f32>) -> Vec<f32>,
    ) -> Result<()> {
        let shape = session.outputs(Kind::Eval, batch.shape, &mut self.outputs)?;
        let programs = &session.programs;
        let mut texts = match &mut self.writer {
            Some(writer) => answered(writer, programs, batch)?.into_iter(),
            None => Vec::new().into_iter(),
        };
        let targets = programs.targets(&batch.buffer, batch.shape);
        let all = std::mem::take(&mut self.outputs);
        let outputs = all.as_chunks::<4>().0;
        let each = outputs.len() / batch.shape.samples;
        let target_words = targets.as_chunks::<4>().0;
        let of_each = target_words.len() / batch.shape.samples;
        let by_length = split.lengths().len() > 1;
        for (i, sample) in batch.samples().iter().enumerate() {
            let text = texts.next();
            // The sample behind one that cannot be read is in its place, and comes again in its own.
            if !by_length && self.last.is_some_and(|last| *sample <= last) {
                continue;
            }
            self.last = Some(*sample);
            let output = outputs[i * each..][..each].iter().map(|b| f32::from_ne_bytes(*b)).collect();
            let output = with(*sample as usize, output);
            let target = &target_words[i * of_each..][..of_each];
            let (said, loss) = match text {
                Some(text) => (text, None),
                None => said(programs, &output, target, &shape),
            };
            // Folds have parts of one table.
            let number = if self.fold.is_some() { split.at(*sample as usize) as u32 } else { *sample };
            let row = Row { sample: number, fold: self.fold, of: Of::sample(split, *sample as usize), said, loss };
            let text = self.text(&row, &programs.class_names)?;
            if by_length || self.fold.is_some() {
                self.held.insert(number, text);
                continue;
            }
            self.file.write_all(text.as_bytes()).with_context(|| cannot_write(self.path))?;
            self.rows += 1;
        }
        self.outputs = all;
        Ok(())
    }

    /// Writes what is left; the number of rows.
    ///
    /// # Errors
    /// It cannot be written. The error leaves the name of the file to the caller, which closes it.
    pub fn finish(mut self) -> Result<u64> {
        for text in self.held.values() {
            self.file.write_all(text.as_bytes())?;
        }
        self.rows += self.held.len() as u64;
        self.file.flush()?;
        Ok(self.rows)
    }

    fn text(&mut self, row: &Row, names: &[String]) -> Result<String> {
        if self.form == Form::JsonLines {
            return Ok(json_line(&row.json(names)) + "\n");
        }
        if matches!(row.said, Said::Positions { .. }) {
            bail!("a table has no room for a class at each position: end the name with .jsonl");
        }
        let cells = row.cells(names, self.guard_formulas);
        let mut writer = csv::Writer::from_writer(Vec::new());
        if !std::mem::replace(&mut self.begun, true) {
            let mut head = csv::Writer::from_writer(&mut self.file);
            head.write_record(cells.iter().map(|(name, _)| name)).with_context(|| cannot_write(self.path))?;
            head.flush().with_context(|| cannot_write(self.path))?;
        }
        writer.write_record(cells.iter().map(|(_, cell)| cell))?;
        Ok(String::from_utf8(writer.into_inner().map_err(|e| e.into_error())?)?)
    }
}

/// An error of the file that gets the rows.
pub(super) fn cannot_write(path: &Path) -> String {
    format!("cannot write `{}`", path.display())
}

/// What is said of a sample, and its loss where that is simple: the likelihood of a class, or a mean over its numbers.
fn said(programs: &Programs, output: &[f32], target: &[[u8; 4]], shape: &Shape) -> (Said, Option<Option<f64>>) {
    let class = |bytes: &[u8; 4], classes: usize| {
        let class = i32::from_ne_bytes(*bytes);
        let counts = programs.loss.ignore_index() != Some(class);
        usize::try_from(class).ok().filter(|class| counts && *class < classes)
    };
    let largest = |row: &[f32]| (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
    match programs.loss.task() {
        Task::Classification if target.len() == 1 => {
            let logs = log_softmax(output);
            let target = class(&target[0], output.len());
            let loss = programs.loss.is_likelihood().then(|| target.map(|class| -logs[class]));
            let probabilities = logs.iter().map(|log| log.exp()).collect();
            (Said::Class { target, prediction: largest(output), probabilities }, loss)
        }
        Task::Classification => {
            let classes = shape.last();
            let targets = target.iter().map(|bytes| class(bytes, classes)).collect();
            (Said::Positions { targets, predictions: output.chunks_exact(classes).map(largest).collect() }, None)
        }
        task => {
            let floats: Vec<f32> = target.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect();
            // The loss is that of what is learnt.
            let standard =
                programs.fields.iter().find(|field| field.is_target()).and_then(|field| field.standard.as_ref());
            let standard = standard.filter(|_| task == Task::Regression && !programs.learns_inputs);
            let each = programs.quantiles.len().max(1);
            let learnt = |list: &[f32], each: usize| {
                standard.map_or_else(|| list.to_vec(), |standard| standard.repeated(each).of(list))
            };
            let loss = match floats.is_empty() {
                true => None,
                false if each > 1 => {
                    Some(Some(mean_pinball(&programs.quantiles, &learnt(output, each), &learnt(&floats, 1))))
                }
                false => mean_loss(&programs.loss, &learnt(output, 1), &learnt(&floats, 1)).map(Some),
            };
            let order = |list: Vec<f32>| in_pytorch_order(list, shape);
            let (output, targets) = (order(output.to_vec()), (!floats.is_empty()).then(|| order(floats)));
            let said = match task {
                Task::BinaryClassification => {
                    let probabilities = output.iter().map(|x| 1.0 / (1.0 + f64::from(-x).exp())).collect();
                    Said::Labels { targets, probabilities }
                }
                Task::Classification | Task::Regression => {
                    Said::Values { targets, predictions: output, quantiles: programs.quantiles.clone() }
                }
            };
            (said, loss)
        }
    }
}

/// The answers to the texts of a batch: those of the data, and those that the model writes.
fn answered(writer: &mut Generator, programs: &Programs, batch: &Batch) -> Result<Vec<Said>> {
    let rows = |name: &str| -> Result<Vec<Vec<u32>>> {
        let number = programs.fields.iter().position(|field| field.name == name);
        let place = number.and_then(|number| programs.plan.slot.find(Input::Field(number as u32)));
        let place = place.with_context(|| format!("a batch has no place for `{name}`"))?;
        let each = programs.elements(place, batch.shape.lengths).max(1);
        let numbers = batch.buffer.bytes()[place.offset..].as_chunks::<4>().0.chunks_exact(each);
        let row = |row: &[[u8; 4]]| row.iter().map(|bytes| i32::from_ne_bytes(*bytes) as u32).collect();
        Ok(numbers.take(batch.shape.samples).map(row).collect())
    };
    let (mut texts, lengths) = (rows(INPUTS)?, rows(LENGTHS)?);
    texts.iter_mut().zip(lengths).for_each(|(text, length)| text.truncate(length[0] as usize));
    let longest = writer.capacity();
    let mut targets = rows(TARGETS)?;
    if writer.prompts().is_some() {
        // A sample has its answer behind the prompt.
        let ignored = programs.loss.ignore_index().unwrap_or(IGNORE_INDEX) as u32;
        for (text, target) in texts.iter_mut().zip(&mut targets) {
            let (prompt, answer) = parted(text, target, ignored)?;
            (*text, *target) = (prompt.to_vec(), answer.to_vec());
        }
    }
    let mut answers = Vec::with_capacity(texts.len());
    writer.answers(&texts, longest, &mut |answer| {
        answers.push(answer.to_vec());
        Ok(true)
    })?;
    let said = |(target, answer): (Vec<u32>, &Vec<u32>)| {
        // What fills it is no token, either.
        let ends = |token: &u32| writer.ends().contains(token) || *token > i32::MAX as u32;
        let target = target.split(ends).next().unwrap_or_default();
        let [target, prediction] = [target, answer].map(|tokens| writer.tokenizer().decode(tokens));
        Ok(Said::Text { target: target?, prediction: prediction? })
    };
    targets.into_iter().zip(&answers).map(said).collect()
}

/// The logarithms of the softmax of a row.
fn log_softmax(row: &[f32]) -> Vec<f64> {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|x| (f64::from(*x) - f64::from(most)).exp()).sum();
    row.iter().map(|x| f64::from(*x) - f64::from(most) - sum.ln()).collect()
}

/// A sample's numbers as PyTorch has them: images channels-first. `shape` is that of a batch.
fn in_pytorch_order(list: Vec<f32>, shape: &Shape) -> Vec<f32> {
    match shape.nhwc() {
        Some([_, h, w, c]) if list.len() == h * w * c => {
            (0..c * h * w).map(|i| list[i % (h * w) * c + i / (h * w)]).collect()
        }
        _ => list,
    }
}

impl Row {
    fn label(names: &[String], class: usize) -> String {
        names.get(class).cloned().unwrap_or_else(|| class.to_string())
    }

    /// The columns with their names.
    fn cells(&self, names: &[String], guard_formulas: bool) -> Vec<(String, String)> {
        let guarded = |name: String| if guard_formulas { crate::api::answer::guarded(name) } else { name };
        let label = |class: usize| guarded(Row::label(names, class));
        let mut cells = vec![("sample".to_owned(), self.sample.to_string())];
        cells.extend(self.fold.map(|fold| ("fold".to_owned(), fold.to_string())));
        let named = cells.len();
        cells.extend(self.of.cells().into_iter().map(|(name, cell)| (name, guarded(cell))));
        let mut cell = |name: &str, text: String| cells.push((name.to_owned(), text));
        let loss = |cell: &mut dyn FnMut(&str, String)| {
            if let Some(loss) = self.loss {
                cell("loss", loss.map_or(String::new(), |loss| loss.to_string()));
            }
        };
        // Several of a kind have names or numbers behind that of their column.
        let several =
            |what: &str, i: usize, of: usize| if of == 1 { what.to_owned() } else { format!("{what}_{}", i + 1) };
        match &self.said {
            Said::Class { target, prediction, probabilities } => {
                cell("target", target.map_or(String::new(), label));
                cell("prediction", label(*prediction));
                loss(&mut cell);
                for (class, p) in probabilities.iter().enumerate() {
                    cell(&format!("probability_{}", Row::label(names, class)), p.to_string());
                }
            }
            Said::Labels { targets, probabilities } => {
                let of = probabilities.len();
                let name = |what: &str, i: usize| match names.get(i) {
                    Some(label) if of > 1 => format!("{what}_{label}"),
                    _ => several(what, i, of),
                };
                for (i, t) in targets.iter().flatten().enumerate() {
                    cell(&name("target", i), t.to_string());
                }
                for (i, p) in probabilities.iter().enumerate() {
                    cell(&name("prediction", i), u8::from(*p > 0.5).to_string());
                }
                loss(&mut cell);
                for (i, p) in probabilities.iter().enumerate() {
                    cell(&name("probability", i), p.to_string());
                }
            }
            Said::Values { targets, predictions, quantiles } => {
                let each = quantiles.len().max(1);
                let of = predictions.len() / each;
                for (i, t) in targets.iter().flatten().enumerate() {
                    cell(&several("target", i, of), t.to_string());
                }
                for (i, x) in predictions.iter().enumerate() {
                    let name = several("prediction", i / each, of);
                    let behind = quantiles.get(i % each).map_or(String::new(), |q| format!("_q{q}"));
                    cell(&(name + &behind), x.to_string());
                }
                loss(&mut cell);
            }
            Said::Text { target, prediction } => {
                cell("target", guarded(target.clone()));
                cell("prediction", guarded(prediction.clone()));
            }
            Said::Positions { .. } => {}
        }
        if let Of::Id(column, _) = &self.of {
            let others = cells.iter().enumerate().filter(|(at, _)| *at != named).map(|(_, (name, _))| name.as_str());
            cells[named].0 = id_column(column, others);
        }
        cells
    }

    fn json(&self, names: &[String]) -> Value {
        let mut out = Map::new();
        let mut put = |name: &str, value: Value| _ = out.insert(name.to_owned(), value);
        put("sample", self.sample.into());
        self.fold.iter().for_each(|fold| put("fold", json!(fold)));
        match &self.of {
            Of::File(file) => put("file", file.as_str().into()),
            Of::Line(file, line) => {
                file.iter().for_each(|file| put("file", file.as_str().into()));
                put("line", json!(line));
            }
            Of::Id(column, id) => put(&id_column(column, []), id.as_str().into()),
            Of::Nothing => {}
        }
        match &self.said {
            Said::Class { target, prediction, probabilities } => {
                put("target", json!(target));
                put("prediction", json!(prediction));
                if !names.is_empty() {
                    put("target_label", json!(target.map(|class| Row::label(names, class))));
                    put("prediction_label", Row::label(names, *prediction).into());
                }
                put("probabilities", json!(probabilities));
            }
            Said::Positions { targets, predictions } => {
                put("target", json!(targets));
                put("prediction", json!(predictions));
            }
            Said::Text { target, prediction } => {
                put("target", json!(target));
                put("prediction", json!(prediction));
            }
            Said::Labels { targets, probabilities } => {
                if let Some(targets) = targets {
                    put("target", json!(targets));
                }
                put("prediction", probabilities.iter().map(|p| u8::from(*p > 0.5)).collect());
                put("probabilities", json!(probabilities));
            }
            Said::Values { targets, predictions, quantiles } => {
                if let Some(targets) = targets {
                    put("target", json!(targets));
                }
                put("prediction", json!(predictions));
                if !quantiles.is_empty() {
                    put("quantiles", json!(quantiles));
                }
            }
        }
        if let Some(loss) = self.loss {
            put("loss", json!(loss));
        }
        Value::Object(out)
    }
}
