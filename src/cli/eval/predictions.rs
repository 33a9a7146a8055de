//! What a model says of every sample of an evaluation, a row each: as a table, or as JSON Lines.

use super::learnt::{Learnt, Outputs, targets};
use super::said::Said;
use crate::api::cells::id_column;
use crate::api::failure::Failure;
use crate::api::generate::Generator;
use crate::api::what::{expect_apart, output};
use crate::cli::args::EvalArgs;
use crate::data::text::parted;
use crate::data::{Batch, DataSpec, Field, FieldKind, INPUTS, LENGTHS, RowName, Split, TARGETS};
use crate::files::output::Output;
use crate::graph::op::{IGNORE_INDEX, Task};
use crate::graph::{Input, Shape};
use crate::terminal::json_line;
use crate::train::setup::programs::Programs;
use crate::train::setup::session::Session;
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Why answers are not written to a table.
const NO_ROOM: &str = "a table has no room for a class at each position: end the name with .jsonl";

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A table, with a row that names the columns.
    Csv,
    /// A JSON object a line.
    JsonLines,
}

impl Form {
    /// The form that the ending of a file's name asks for; a stream without one is a table.
    ///
    /// # Errors
    /// It asks for none.
    pub fn of(path: &Path) -> Result<Form, Failure> {
        let ending = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        match ending.as_deref() {
            Some("csv") => Ok(Form::Csv),
            Some("jsonl" | "ndjson") => Ok(Form::JsonLines),
            _ if Output::at(path).is_ok_and(|out| out.is_stream()) => Ok(Form::Csv),
            _ => Err(Failure::Usage(format!(
                "the ending of `{}` names no format\nhelp: end the name with .csv or .jsonl",
                path.display()
            ))),
        }
    }
}

/// Where answers are written, if they are to be, beside which figures are printed.
///
/// # Errors
/// Nothing can be written there, or JSON would be as well.
pub fn rows_to(args: &EvalArgs) -> Result<Option<Output>, Failure> {
    let out = args.predictions.as_deref().map(output).transpose()?;
    if let Some(out) = &out {
        expect_apart(out, "--predictions", args.output.json)?;
    }
    Ok(out)
}

/// Refuses a table of answers that have a class at each position, before they are found; `task`: that of the model.
///
/// # Errors
/// The file is a table, and has no room for those.
pub fn expect_room(path: &Path, data: &DataSpec, task: Task) -> Result<(), Failure> {
    // A mask is of any size.
    let positions = data.target().is_some_and(|(_, target)| target.shape.len() != 1);
    if task == Task::Classification && positions && !writes_answers(&data.fields) && Form::of(path)? == Form::Csv {
        return Err(Failure::Usage(NO_ROOM.into()));
    }
    Ok(())
}

/// Whether samples are texts with answers: as many tokens as a text has, and tokens as the target.
pub fn writes_answers(fields: &[Field]) -> bool {
    let is_answer = |field: &Field| field.is_target() && matches!(field.kind, FieldKind::Tokens(_));
    fields.iter().any(|field| field.kind == FieldKind::Length) && fields.iter().any(is_answer)
}

/// What a model says of a sample, with what is true of it.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    sample: u32,
    /// The fold that says it, from 1.
    fold: Option<usize>,
    of: Of,
    /// Of a window of rows: its series and the time of its last row, with the names of their columns.
    series: Vec<(String, String)>,
    /// Of the main target, then of those of heads, with their names.
    said: Vec<(Option<String>, Said)>,
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

/// Writes rows, a batch at a time.
pub struct Predictions<'a> {
    form: Form,
    /// Names in a table are no formulas of a spreadsheet.
    guard_formulas: bool,
    /// Where the rows go, for errors.
    path: &'a Path,
    file: BufWriter<&'a mut dyn Write>,
    begun: bool,
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
            begun: false,
            held: BTreeMap::new(),
            rows: 0,
            fold: None,
            writer: None,
        }
    }

    /// From now on `writer` writes the answers to texts.
    pub fn written_by(&mut self, writer: Generator) {
        self.writer = Some(writer);
    }

    /// Rows from now on are those of a fold, the number of which is from 1. They are held back until the end: all are in the order of the table.
    pub fn of_fold(&mut self, fold: usize) {
        self.fold = Some(fold);
    }

    /// Writes the rows of a batch that has been evaluated.
    ///
    /// # Errors
    /// The device failed; the file cannot be written; there is a class at each position, for which a table has no room.
    pub fn see(&mut self, session: &mut Session, batch: &Batch, split: &Split) -> Result<()> {
        self.see_with(session, batch, split, &|_, output| output)
    }

    /// The same; `with` makes the output to write from a sample's number and the model's output.
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
        let outputs = Outputs::of(session, batch)?;
        let programs = &session.programs;
        let mut texts = match &mut self.writer {
            Some(writer) => answered(writer, programs, batch)?.into_iter(),
            None => Vec::new().into_iter(),
        };
        let (learnt, widths) = (Learnt::all(programs), outputs.widths());
        let by_length = split.lengths().len() > 1;
        for (i, sample) in batch.samples().iter().enumerate() {
            let text = texts.next();
            // The next sample is in the place of one that cannot be read, and comes again in its own.
            if batch.replaced().contains(&i) {
                continue;
            }
            let said = match text {
                Some(text) => vec![(None, text)],
                None => {
                    let output = with(*sample as usize, outputs.sample(i));
                    let mut rest = &output[..];
                    let each = learnt.iter().zip(&widths).zip(targets(programs, batch, i));
                    let said = each.map(|((learnt, width), target)| {
                        let own = rest.split_off(..*width).unwrap_or_default();
                        // A head says one thing of a sample.
                        let shape = if learnt.head.is_some() { &Shape::default() } else { &outputs.shape };
                        (learnt.head.map(str::to_owned), learnt.said(own, target, shape))
                    });
                    said.collect()
                }
            };
            // Folds have parts of one table.
            let number = if self.fold.is_some() { split.at(*sample as usize) as u32 } else { *sample };
            let (of, series) = (Of::sample(split, *sample as usize), split.series(*sample as usize));
            let row = Row { sample: number, fold: self.fold, of, series, said };
            let text = self.text(&row, &learnt)?;
            if by_length || self.fold.is_some() {
                self.held.insert(number, text);
                continue;
            }
            self.file.write_all(text.as_bytes()).with_context(|| cannot_write(self.path))?;
            self.rows += 1;
        }
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

    fn text(&mut self, row: &Row, learnt: &[Learnt]) -> Result<String> {
        if self.form == Form::JsonLines {
            return Ok(json_line(&row.json(learnt)) + "\n");
        }
        if row.said.iter().any(|(_, said)| said.has_positions()) {
            bail!(NO_ROOM);
        }
        let cells = row.cells(learnt, self.guard_formulas);
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
        // A sample has its answer after the prompt.
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
        Ok(Said::text(target?, prediction?))
    };
    targets.into_iter().zip(&answers).map(said).collect()
}

impl Row {
    /// The columns with their names; `learnt` has those of the classes and of the numbers of each target.
    fn cells(&self, learnt: &[Learnt], guard_formulas: bool) -> Vec<(String, String)> {
        let guarded = |name: String| if guard_formulas { crate::api::cells::guarded(name) } else { name };
        let mut cells = vec![("sample".to_owned(), self.sample.to_string())];
        cells.extend(self.fold.map(|fold| ("fold".to_owned(), fold.to_string())));
        let named = cells.len();
        cells.extend(self.of.cells().into_iter().map(|(name, cell)| (name, guarded(cell))));
        cells.extend(self.series.iter().map(|(name, cell)| (id_column(name, []), guarded(cell.clone()))));
        for ((head, said), learnt) in self.said.iter().zip(learnt) {
            let own = said.cells((learnt.names, learnt.columns), &guarded).into_iter().map(|(name, cell)| match head {
                Some(head) => (format!("{head}_{name}"), cell),
                None => (name, cell),
            });
            cells.extend(own);
        }
        if let Of::Id(column, _) = &self.of {
            let others = cells.iter().enumerate().filter(|(at, _)| *at != named).map(|(_, (name, _))| name.as_str());
            cells[named].0 = id_column(column, others);
        }
        cells
    }

    fn json(&self, learnt: &[Learnt]) -> Value {
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
        self.series.iter().for_each(|(column, text)| put(&id_column(column, []), text.as_str().into()));
        let mut heads = Map::new();
        for ((head, said), learnt) in self.said.iter().zip(learnt) {
            match head {
                Some(head) => _ = heads.insert(head.clone(), said.json(learnt.names).into()),
                None => out.extend(said.json(learnt.names)),
            }
        }
        if !heads.is_empty() {
            out.insert("heads".to_owned(), heads.into());
        }
        Value::Object(out)
    }
}
