//! What a training has fitted on a table: how its rows become samples, and those of others for the same model.

use super::super::Split;
use super::super::classes::Classes;
use super::super::field::{DataSpec, Field, FieldKind, INPUTS, Standard, TARGETS};
use super::super::parallel::parallel;
use super::super::sheet::Sheet;
use super::super::store::Memory;
use super::super::values::{Values, bytes_of};
use super::aside::{Aside, Room};
use super::codec::{Cells, ColumnCodec, Read};
use super::names::quoted;
use super::raw::Raw;
use super::text::{Format, expect_rows, of_bytes, of_input, open};
use super::unseen::Unseen;
use crate::graph::DType;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// How a table becomes samples, as it was fitted in training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableCodec {
    /// The columns that the model takes, in the order of their numbers in a sample.
    pub columns: Vec<ColumnCodec>,
    /// What is learnt.
    pub target: Target,
    /// What else is learnt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heads: Vec<Head>,
    /// What stands before the fraction of a number.
    pub decimal: char,
    /// The column that names a row.
    pub id: Option<String>,
    /// The column with what a row weighs in the loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_weight: Option<String>,
    /// How its tables are written.
    #[serde(flatten)]
    pub format: Format,
    /// How many bins the model cuts each number into, if it does.
    #[serde(default)]
    pub bins: Option<usize>,
}

/// Rows whose numbers are made by a thread at a time.
const ROWS: usize = 1024;
/// Rows and columns of a block of them that is made column by column: it stays in the cache until the last column is there.
const BLOCK: usize = 128;
const COLUMNS: usize = 64;

/// What is learnt of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// One of some classes: the texts of a column.
    Classes {
        /// The column.
        column: String,
        /// The texts, in the order of their numbers.
        names: Vec<String>,
    },
    /// Numbers.
    Numbers {
        /// The columns.
        columns: Vec<String>,
        /// What they are standardised by.
        standard: Option<Standard>,
    },
}

/// What a head learns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// What it is called.
    pub name: String,
    /// Its target, of one column.
    pub target: Target,
}

impl Target {
    /// Whether a training can have fitted it.
    fn is_sane(&self) -> bool {
        match self {
            Target::Classes { names, .. } => each_once(names.iter()),
            Target::Numbers { columns, standard } => {
                let fits = |standard: &Standard| {
                    let sizes = [standard.mean.len(), standard.deviation.len()] == [columns.len(); 2];
                    sizes && standard.deviation.iter().all(|deviation| deviation.is_finite() && *deviation > 0.0)
                };
                !columns.is_empty() && standard.as_ref().is_none_or(fits)
            }
        }
    }

    /// Its columns.
    pub fn columns(&self) -> &[String] {
        match self {
            Target::Classes { column, .. } => std::slice::from_ref(column),
            Target::Numbers { columns, .. } => columns,
        }
    }

    /// How its cells are read.
    fn read(&self) -> Read {
        match self {
            Target::Classes { .. } => Read::Text,
            Target::Numbers { .. } => Read::Number,
        }
    }

    /// It as a field of samples.
    fn field(&self, name: impl Into<String>) -> Field {
        match self {
            Target::Classes { names, .. } => {
                Field::target(name, FieldKind::Category(Classes::named(names.clone())), [])
            }
            Target::Numbers { columns, standard } => {
                let field = Field::target(name, FieldKind::Number, [columns.len()]);
                Field { standard: standard.clone(), ..field }
            }
        }
    }
}

/// Whether there are some names, and none twice.
fn each_once<'a>(names: impl Iterator<Item = &'a String>) -> bool {
    let mut sorted: Vec<&String> = names.collect();
    sorted.sort_unstable();
    !sorted.is_empty() && sorted.windows(2).all(|pair| pair[0] != pair[1])
}

impl TableCodec {
    /// That of a data set, if it is a table.
    pub fn of(spec: &DataSpec) -> Option<TableCodec> {
        TableCodec::read(spec.fitted.as_ref()?)
    }

    /// That of a checkpoint, which may come from anybody; `None` if it is none that a training has fitted.
    pub fn read(written: &Value) -> Option<TableCodec> {
        let codec: TableCodec = serde_json::from_value(written.clone()).ok()?;
        let columns = each_once(codec.columns.iter().map(|column| &column.name));
        let columns = columns && codec.columns.iter().all(ColumnCodec::is_sane);
        let of_one_column = |head: &Head| head.target.is_sane() && head.target.columns().len() == 1;
        let heads = codec.heads.is_empty() || each_once(codec.heads.iter().map(|head| &head.name));
        let heads = heads && codec.heads.iter().all(of_one_column);
        (columns && codec.target.is_sane() && heads && codec.format.is_sane()).then_some(codec)
    }

    /// How its tables are written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The columns of the target.
    pub fn targets_named(&self) -> Vec<String> {
        self.target.columns().to_vec()
    }

    /// All targets: the main one, then those of heads.
    pub(super) fn learnt(&self) -> impl Iterator<Item = &Target> {
        std::iter::once(&self.target).chain(self.heads.iter().map(|head| &head.target))
    }

    /// The classes of each target that has some, with its column.
    pub fn classes(&self) -> Vec<(&String, &[String])> {
        let all = self.learnt().filter_map(|target| match target {
            Target::Classes { column, names } => Some((column, &names[..])),
            Target::Numbers { .. } => None,
        });
        all.collect()
    }

    /// Refuses other heads than those that were trained: names, each with its column.
    ///
    /// # Errors
    /// There are others, or they learn other columns.
    pub fn expect_heads(&self, asked: &[(&String, &String)]) -> Result<()> {
        let own = self.heads.iter().map(|head| (&head.name, &head.target.columns()[0]));
        if own.eq(asked.iter().copied()) {
            return Ok(());
        }
        let listed = |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { quoted(&names) };
        bail!(
            "the model has other heads than the configuration: it was trained with {}, and `heads` asks for {}",
            listed(self.heads.iter().map(|head| head.name.clone()).collect()),
            listed(asked.iter().map(|(name, _)| (*name).clone()).collect())
        )
    }

    /// As it is kept.
    ///
    /// # Errors
    /// A number is not finite.
    pub fn written(&self) -> Result<Arc<Value>> {
        Ok(Arc::new(serde_json::to_value(self)?))
    }

    /// How many numbers a sample has.
    pub fn width(&self) -> usize {
        self.columns.iter().map(ColumnCodec::width).sum()
    }

    /// The columns, each with its places in a sample.
    pub fn placed(&self) -> impl Iterator<Item = (Range<usize>, &ColumnCodec)> {
        self.columns.iter().scan(0, |end, column| {
            let begin = *end;
            *end += column.width();
            Some((begin..*end, column))
        })
    }

    /// The places in a sample of the numbers that are cut into bins, and where the bins of each begin and end.
    pub fn binned(&self) -> Vec<(usize, &[f32])> {
        let all = self.placed().map(|(places, column)| (places.start, column.edges()));
        all.filter(|(_, edges)| !edges.is_empty()).collect()
    }

    /// The places in a sample of columns that are one number each, whether cells may be missing or not.
    pub fn numbers(&self) -> Vec<usize> {
        let all = self.placed().filter(|(_, column)| column.is_one_number());
        all.map(|(places, _)| places.start).collect()
    }

    /// The places of each category and of the words of each text, with that of a missing cell.
    pub fn categories(&self) -> Vec<Range<usize>> {
        let vectors = |column: &ColumnCodec| column.is_category() || column.is_text();
        let all = self.placed().filter(|(places, column)| vectors(column) && !places.is_empty());
        all.map(|(places, _)| places).collect()
    }

    /// The fields of its samples.
    pub fn fields(&self) -> Vec<Field> {
        let target = self.target.field(TARGETS);
        let heads = self.heads.iter().map(|head| head.target.field(format!("{TARGETS}_{}", head.name)));
        let weight = self.sample_weight.iter().map(|_| Field::sample_weight());
        let inputs = Field::numbers(INPUTS, DType::F32, [self.width()]);
        [inputs, target].into_iter().chain(heads).chain(weight).collect()
    }

    /// The numbers that the model takes of all rows, one row behind the other.
    ///
    /// # Errors
    /// There are too many for this machine.
    pub fn inputs(&self, raw: &Raw) -> Result<Vec<f32>> {
        let (width, rows) = (self.width(), raw.rows());
        let mut inputs = vec![0f32; width.checked_mul(rows).context("the table is too large")?];
        let blocks = inputs.chunks_mut((ROWS * width).max(1)).zip((0..).step_by(ROWS));
        let done = parallel(blocks.collect(), |(block, first)| self.encode(raw, first, block));
        done.into_iter().collect::<Result<()>>()?;
        Ok(inputs)
    }

    /// Writes those of the rows from `first` on, as many as `out` has place for.
    fn encode(&self, raw: &Raw, first: usize, out: &mut [f32]) -> Result<()> {
        let width = self.width();
        let rows = first..first + out.len() / width;
        let placed: Vec<(Range<usize>, &ColumnCodec)> = self.placed().collect();
        for columns in placed.chunks(COLUMNS) {
            let pieces = columns.iter().map(|(_, codec)| raw.some(&codec.name, rows.clone()));
            let pieces = pieces.collect::<Result<Vec<_>>>()?;
            for (block, first) in out.chunks_mut(BLOCK * width).zip(rows.clone().step_by(BLOCK)) {
                for ((places, codec), piece) in columns.iter().zip(&pieces) {
                    let places = block.chunks_exact_mut(width).map(|row| &mut row[places.clone()]);
                    codec.encode_from(&piece.cells, first - piece.first, places);
                }
            }
        }
        Ok(())
    }

    /// Writes those of all rows to a file; where they are, and how many bytes they have.
    fn inputs_aside(&self, raw: &Raw, file: &Aside) -> Result<(u64, u64, DType)> {
        let (width, rows) = (self.width(), raw.rows());
        let each = (size_of::<f32>() * width) as u64;
        let bytes = each.checked_mul(rows as u64).context("the table is too large")?;
        let begin = file.place(bytes);
        let done = parallel((0..rows).step_by(ROWS).collect(), |first| {
            let mut block = vec![0f32; width * ROWS.min(rows - first)];
            self.encode(raw, first, &mut block)?;
            file.put(bytes_of(&block), begin + first as u64 * each)
        });
        done.into_iter().collect::<Result<()>>()?;
        Ok((begin, bytes, DType::F32))
    }

    /// The samples of all rows of a table, in memory or in a file, as there is `room`. `targets`: with what is learnt.
    ///
    /// # Errors
    /// A class is not known; the file cannot be written.
    pub fn samples(&self, raw: &Raw, targets: bool, room: &Room) -> Result<Split> {
        let rows = raw.rows();
        let mut fields = self.fields();
        fields.truncate(if targets { fields.len() } else { 1 });
        let each: usize = fields.iter().map(Field::bytes).sum();
        let aside = room.aside((rows as u64).saturating_mul(each as u64))?;
        let mut others = Vec::new();
        if targets {
            for target in self.learnt() {
                others.push(self.values(target, raw)?);
            }
            others.extend(self.weights(raw)?);
        }
        let values = match aside {
            None => [Values::Floats(self.inputs(raw)?)].into_iter().chain(others).collect(),
            Some(file) => {
                let mut places = vec![self.inputs_aside(raw, &file)?];
                for values in others {
                    let bytes = values.bytes();
                    places.push((file.add(bytes)?, bytes.len() as u64, values.dtype()));
                }
                file.mapped(&places)?.into_iter().map(Values::Mapped).collect::<Vec<_>>()
            }
        };
        let list = fields.into_iter().zip(values).collect();
        Split::new(Arc::new(Memory::new(list, rows)?.named(Arc::clone(raw.names()))))
    }

    fn weights(&self, raw: &Raw) -> Result<Option<Values>> {
        let Some(name) = &self.sample_weight else { return Ok(None) };
        Ok(match &*raw.column(name)? {
            Cells::Numbers(values) => Some(Values::Floats(values.iter().map(|value| *value as f32).collect())),
            Cells::Texts(..) => None,
        })
    }

    /// The first row with a text that is none of the known ones, and the text; rows are left out in which anything is missing that is learnt.
    fn first_unknown<'a>(
        &self,
        raw: &Raw,
        (numbers, texts): (&[Option<u32>], &'a [String]),
        known: &HashMap<&str, i32>,
    ) -> Result<Option<(usize, &'a str)>> {
        if texts.iter().all(|text| known.contains_key(text.as_str())) {
            return Ok(None);
        }
        let columns = self.learnt().flat_map(Target::columns).map(|name| raw.column(name));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let unknown = |row: usize| {
            let text = texts[numbers[row]? as usize].as_str();
            let whole = columns.iter().all(|cells| !cells.is_missing(row as u32)) && !raw.skips(row as u32);
            (whole && !known.contains_key(text)).then_some((row, text))
        };
        Ok((0..raw.rows()).find_map(unknown))
    }

    /// What all rows have of a target.
    fn values(&self, target: &Target, raw: &Raw) -> Result<Values> {
        match target {
            Target::Classes { column, names } => {
                let cells = raw.column(column)?;
                let Cells::Texts(numbers, texts) = &*cells else {
                    bail!("the target `{column}` was not read as a text")
                };
                let known: HashMap<&str, i32> = names.iter().map(String::as_str).zip(0..).collect();
                if let Some((row, text)) = self.first_unknown(raw, (numbers, texts), &known)? {
                    let names: Vec<String> = names.iter().take(12).map(|name| format!("`{name}`")).collect();
                    bail!(
                        "{}: the target `{column}` has `{text}`, which the model does not know: it was trained on {}",
                        raw.names().at(row),
                        names.join(", ")
                    );
                }
                let number = |number: u32| known.get(texts[number as usize].as_str()).copied().unwrap_or(-1);
                let of = |cell: &Option<u32>| cell.map_or(-1, number);
                Ok(Values::Ints(numbers.iter().map(of).collect()))
            }
            Target::Numbers { columns, .. } => {
                let mut all = vec![f32::NAN; columns.len() * raw.rows()];
                for (at, name) in columns.iter().enumerate() {
                    if let Cells::Numbers(values) = &*raw.column(name)? {
                        let places = all.iter_mut().skip(at).step_by(columns.len());
                        places.zip(values).for_each(|(to, from)| *to = *from as f32);
                    }
                }
                Ok(Values::Floats(all))
            }
        }
    }

    /// How the cells of each column are read, with the names of the columns; with `targets` also those of what is learnt, and of what rows weigh.
    pub fn reads(&self, targets: bool) -> Vec<(&str, Read)> {
        let mut all: Vec<(&str, Read)> = self.columns.iter().map(|codec| (codec.name.as_str(), codec.read())).collect();
        if targets {
            for target in self.learnt() {
                all.extend(target.columns().iter().map(|name| (name.as_str(), target.read())));
            }
            all.extend(self.sample_weight.iter().map(|name| (name.as_str(), Read::Number)));
        }
        all
    }
}

/// Reads the rows of a table that is in memory, and that messages call `name`, without what was learnt; `most` of them are allowed.
///
/// # Errors
/// As [`read_rows`]; [`super::TooManyRows`], found by `downcast_ref`.
pub fn read_text(name: &str, bytes: Vec<u8>, codec: &TableCodec, most: usize) -> Result<Raw> {
    let text = of_bytes(Path::new(name), bytes, codec.format())?;
    Raw::read_some(&text, &codec.reads(false), codec.id.as_deref(), codec.decimal, (most, None))
}

/// Reads the rows of standard input, CSV or JSON Lines, for a model that is trained, as [`read_rows`] reads those of a file.
///
/// # Errors
/// As [`read_rows`].
pub fn read_input(bytes: Vec<u8>, codec: &TableCodec, skip: bool, unseen: &mut Unseen) -> Result<Split> {
    let text = of_input(bytes, codec.format())?;
    samples_of(&text.skipping(skip), codec, unseen)
}

/// Reads the rows of a table for a model that is trained, without what was learnt. What no training row has is added to `unseen`, and so are
/// rows that cannot be read, if it is to `skip` them.
///
/// # Errors
/// The file cannot be read; a column that the model takes is not there; a cell is not what it was in training, with its line.
pub fn read_rows(path: &Path, codec: &TableCodec, skip: bool, unseen: &mut Unseen) -> Result<Split> {
    samples_of(&open(path, codec.format())?.skipping(skip), codec, unseen)
}

fn samples_of(text: &Sheet, codec: &TableCodec, unseen: &mut Unseen) -> Result<Split> {
    let room = Room::default();
    let aside = room.aside(text.bytes_as_numbers())?;
    let raw = Raw::read(text, &codec.reads(false), codec.id.as_deref(), codec.decimal, aside.as_ref())?;
    expect_rows(text, text.path(), raw.rows())?;
    let reads = codec.reads(true);
    let known: HashSet<&str> = reads.iter().map(|(name, _)| *name).chain(codec.id.as_deref()).collect();
    unseen.look_at_columns(text.names().iter().filter(|name| !known.contains(name.as_str())));
    let skipped = raw.skipped_in_words("have no prediction");
    unseen.skip(skipped.with_context(|| format!("`{}`", text.path().display()))?);
    unseen.look(&codec.columns, &raw)?;
    let all = codec.samples(&raw, false, &room).with_context(|| format!("`{}`", text.path().display()))?;
    let rows: Vec<u32> = (0..raw.rows() as u32).filter(|row| !raw.skips(*row)).collect();
    Ok(if rows.len() < raw.rows() { all.select(&rows) } else { all })
}
