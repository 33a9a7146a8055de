//! What a training has fitted on a table: how its rows become samples, and those of others for the same model.

use super::super::Split;
use super::super::classes::Classes;
use super::super::field::{DataSpec, Field, FieldKind, Standard};
use super::super::sheet::Sheet;
use super::aside::Room;
use super::codec::{ColumnCodec, Read};
use super::names::quoted;
use super::raw::Raw;
use super::series::Series;
use super::text::{Format, expect_rows, of_bytes, of_input, open};
use super::tokens::TokensCodec;
use super::unseen::Unseen;
use super::windows::{Asked, Windows};
use crate::terminal::counted;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// How a table becomes samples, as it was fitted in training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableCodec {
    /// The columns that the model takes, in the order of their numbers in a sample.
    pub columns: Vec<ColumnCodec>,
    /// A column of which the model takes the tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokensCodec>,
    /// The fields that the model takes beside lengths, in their order, where there are several and it names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takes: Vec<String>,
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
    /// Which rows make a sample, if those are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
}

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
    pub(super) fn field(&self, name: impl Into<String>) -> Field {
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

    /// That of a checkpoint, which may come from any source; `None` if it is none that a training has fitted.
    pub fn read(written: &Value) -> Option<TableCodec> {
        let codec: TableCodec = serde_json::from_value(written.clone()).ok()?;
        let tokens = codec.tokens.as_ref();
        let columns = each_once(codec.columns.iter().map(|column| &column.name).chain(tokens.map(|one| &one.column)));
        let columns = columns && codec.columns.iter().all(ColumnCodec::is_sane);
        let columns = columns && tokens.is_none_or(TokensCodec::is_sane);
        let of_one_column = |head: &Head| head.target.is_sane() && head.target.columns().len() == 1;
        let heads = codec.heads.is_empty() || each_once(codec.heads.iter().map(|head| &head.name));
        let heads = heads && codec.heads.iter().all(of_one_column);
        let windows = codec.windows.as_ref().is_none_or(Windows::is_sane);
        (columns && codec.target.is_sane() && heads && windows && codec.format.is_sane()).then_some(codec)
    }

    /// How its tables are written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The columns of the target.
    pub fn targets_named(&self) -> Vec<String> {
        self.target.columns().to_vec()
    }

    /// The column that says what an answer is for: the one that names the rows. A forecast is for a series, and a window without an `id` is of one.
    pub fn row_id(&self) -> Option<&str> {
        let windows = self.windows.as_ref();
        let series = windows.and_then(|own| own.series.as_ref()).map(|(name, _)| name.as_str());
        match windows.is_some_and(|own| own.horizon > 0) {
            true => series.or(self.id.as_deref()),
            false => self.id.as_deref().or(series),
        }
    }

    /// What the numbers that are learnt are called: as the columns of the target or, where those of several rows are learnt, by their place after the window, too.
    pub fn answers_named(&self) -> Vec<String> {
        let columns = self.targets_named();
        self.windows.as_ref().map_or_else(|| columns.clone(), |windows| windows.named(&columns))
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

    /// How many numbers a row has.
    pub fn width(&self) -> usize {
        self.columns.iter().map(ColumnCodec::width).sum()
    }

    /// Bytes of the numbers of a sample.
    pub fn bytes(&self) -> usize {
        size_of::<f32>() * self.width() * self.windows.as_ref().map_or(1, |windows| windows.rows)
    }

    /// The columns, each with its places in a row.
    pub fn placed(&self) -> impl Iterator<Item = (Range<usize>, &ColumnCodec)> {
        self.columns.iter().scan(0, |end, column| {
            let begin = *end;
            *end += column.width();
            Some((begin..*end, column))
        })
    }

    /// The names of the columns that it takes to make samples for the model.
    pub fn taken(&self) -> impl Iterator<Item = &str> {
        self.reads(false).into_iter().map(|(name, _)| name)
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
        self.vectors().map(|(places, _)| places).collect()
    }

    /// The columns of these.
    pub fn categories_named(&self) -> impl Iterator<Item = &str> {
        self.vectors().map(|(_, column)| column.name.as_str())
    }

    fn vectors(&self) -> impl Iterator<Item = (Range<usize>, &ColumnCodec)> {
        self.placed().filter(|(places, column)| (column.is_category() || column.is_text()) && !places.is_empty())
    }

    /// The windows that a trained model answers for, if a sample is one; `None`: all rows.
    ///
    /// # Errors
    /// The column that orders rows is missing in one of them, or two rows of a series have the same there; no series has as many rows as the model takes.
    pub fn asked(&self, raw: &Raw) -> Result<Option<Asked>> {
        let (Some(windows), Some(series)) = (&self.windows, self.series(raw)?) else { return Ok(None) };
        let rows = windows.answered(&series);
        if rows.is_empty() {
            let [count, longest] = series.measures();
            let has = match count {
                0 => "there are no rows".to_owned(),
                1 => format!("there are {longest}"),
                _ => format!("the longest of {count} series has {longest}"),
            };
            bail!("the model takes {} of a series one after the other, and {has}", counted(windows.rows, "row"));
        }
        Ok(Some(Asked { series, rows }))
    }

    /// The series that the rows of a table are of, if several make a sample.
    ///
    /// # Errors
    /// The column that orders rows is missing in one of them, or two rows of a series have the same there.
    pub(super) fn series(&self, raw: &Raw) -> Result<Option<Arc<Series>>> {
        self.windows.as_ref().map(|windows| windows.series_of(raw)).transpose()
    }

    /// The samples whose targets are in `rows`, by the numbers of their rows or, of windows, of the last of those.
    pub(super) fn learnable(&self, series: Option<&Series>, rows: Vec<u32>) -> Vec<u32> {
        match (&self.windows, series) {
            (Some(windows), Some(series)) => windows.all(series, &rows),
            _ => rows,
        }
    }

    /// How the cells of each column are read, with the names of the columns; with `targets` also those of what is learnt, and of what rows weigh.
    pub fn reads(&self, targets: bool) -> Vec<(&str, Read)> {
        let mut all: Vec<(&str, Read)> = self.columns.iter().map(|codec| (codec.name.as_str(), codec.read())).collect();
        all.extend(self.tokens.iter().map(|tokens| (tokens.column.as_str(), Read::Text)));
        let keys = self.windows.iter().flat_map(Windows::keys);
        all.extend(keys.filter(|(name, _)| !self.columns.iter().any(|codec| codec.name == *name)));
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
    Raw::read_some(&text, &codec.reads(false), codec.row_id(), codec.decimal, (most, None))
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
    let raw = Raw::read(text, &codec.reads(false), codec.row_id(), codec.decimal, aside.as_ref())?;
    expect_rows(text, text.path(), raw.rows())?;
    let reads = codec.reads(true);
    let known: HashSet<&str> = reads.iter().map(|(name, _)| *name).chain(codec.id.as_deref()).collect();
    unseen.look_at_columns(text.names().iter().filter(|name| !known.contains(name.as_str())));
    if let Some(id) = codec.id.as_ref().filter(|id| text.column(id).is_none()) {
        unseen.note(&[format!("`{}` has no column `{id}`, which would name its rows", text.path().display())]);
    }
    let skipped = raw.skipped_in_words("have no prediction");
    unseen.skip(skipped.with_context(|| format!("`{}`", text.path().display()))?);
    unseen.note(&raw.zones_in_words(&codec.columns));
    let rows: Vec<u32> = (0..raw.rows() as u32).filter(|row| !raw.skips(*row)).collect();
    unseen.look(&codec.columns, &raw, &rows)?;
    let at = || format!("`{}`", text.path().display());
    let asked = codec.asked(&raw).with_context(at)?;
    let (all, _) = codec.samples(&raw, asked.as_ref().map(|asked| &asked.series), false, &room).with_context(at)?;
    if let (Some(asked), Some(windows)) = (asked, &codec.windows) {
        unseen.note(&windows.notes_on(&asked));
        return Ok(all.select(&asked.rows));
    }
    Ok(if rows.len() < raw.rows() { all.select(&rows) } else { all })
}
