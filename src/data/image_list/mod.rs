//! Photos with their labels in a list: CSV, TSV or JSON Lines, as `metadata.csv` of Hugging Face's `ImageFolder`. They, and masks that
//! are their labels, are read when a batch asks for them.

mod labels;
mod look;
mod numbers;
mod parted;
mod table;

pub use look::{Columns, is_list_of_photos};
pub use numbers::{Numbers, numbers};
pub use parted::{Parted, parted};

use super::classes::alike;
use super::field::{INPUTS, Role, TARGETS};
use super::found::Found;
use super::image_folder::photos::{Files, Masks, Photos, Targets, bytes_of_paths};
use super::image_folder::twice;
use super::progress::Event;
use super::unreadable::most_unreadable;
use super::weights::{no_weight, weight, weighted};
use super::wrong_columns::WrongColumns;
use super::{Classes, DataSpec, Dataset, Describes, Field, FieldKind, Footprint, Split, Survey};
use crate::files;
use crate::graph::op::TargetRange;
use anyhow::{Context, Result, anyhow, bail, ensure};
use labels::{Line, Raw, Words, classes, shown};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::{Cell, Table};

/// The name of a list in a folder, without its ending.
const METADATA: &str = "metadata";
/// Columns of the photos' names; the first that is there counts.
const IMAGE_COLUMNS: [&str; 5] = ["file_name", "image", "filename", "path", "file"];
/// Columns of the labels.
const LABEL_COLUMNS: [&str; 2] = ["label", "class"];
/// Columns of the masks' names.
const MASK_COLUMNS: [&str; 4] = ["mask", "mask_file_name", "mask_path", "label"];
/// The column that says which part a photo belongs to.
const SPLIT: &str = "split";
/// What the parts are called there, and as folders.
const PARTS: [&[&str]; 3] = [&["train", "training"], &["val", "valid", "validation", "dev"], &["test"]];
/// How many names a message shows.
const SHOWN: usize = 3;

/// The options of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageListOptions {
    /// The list, or a folder that has one.
    pub path: PathBuf,
    /// Another list, of the photos that are validated on.
    pub val_path: Option<PathBuf>,
    /// The folder that names are relative to; `None`: that of each list.
    pub root: Option<PathBuf>,
    /// The column of the photos' names.
    pub image_column: Option<String>,
    /// The columns of the labels; empty: the usual ones.
    pub label_columns: Vec<String>,
    /// What the labels are.
    pub kind: Kind,
    /// The column with what a photo weighs in the loss.
    pub sample_weight: Option<String>,
    /// The names of the classes, in order.
    pub classes: Option<Vec<String>>,
    /// The classes are those that a model was trained on, and not a matter of the list.
    pub trained: bool,
    /// A photo that is not there or cannot be read ends the run; else it is left out.
    pub strict: bool,
}

/// What the labels are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A class a photo.
    Class,
    /// Any number of classes a photo.
    Classes {
        /// What stands between them in a text.
        separator: String,
    },
    /// Numbers.
    Numbers {
        /// Those that the loss is for, if they are not all.
        range: Option<TargetRange>,
    },
    /// A class for every pixel of a photo, in an image file of its own.
    Mask {
        /// The values that the classes have in the files, in order; `None` of one that no file has.
        values: Vec<Option<u8>>,
        /// The value that pixels have in the files which count for nothing, and what stands for it in a batch.
        ignored: Option<(u8, i32)>,
    },
}

/// What the lists that were described last hold.
static FOUND: Found<ImageListOptions, Lists> = Found::new();

/// What the lists hold: photos that are trained on, validated on and tested on.
struct Lists {
    spec: DataSpec,
    parts: [Part; 3],
    /// How many numbers a label has.
    width: usize,
    notes: Vec<String>,
}

/// The photos of a part.
#[derive(Default)]
struct Part {
    /// The folder that their paths are relative to.
    folder: PathBuf,
    paths: Vec<Box<Path>>,
    labels: Raw,
    targets: Vec<u8>,
    /// A mask for each, if those are the labels.
    masks: Vec<Box<Path>>,
    /// What each weighs, if they weigh differently.
    weights: Vec<f32>,
    /// Photos that are not there, and the first few of them with their lines.
    missing: usize,
    first: Vec<String>,
}

impl Part {
    fn held_bytes(&self) -> usize {
        let weights = size_of_val(&self.weights[..]);
        bytes_of_paths(&self.paths) + self.targets.len() + bytes_of_paths(&self.masks) + weights
    }
}

impl Describes for &ImageListOptions {
    fn describe(&self) -> Result<DataSpec> {
        match self.known() {
            // What the model depends on is known without the files.
            Some(spec) if !files::is_there(&self.path) => Ok(spec),
            _ => FOUND.look(self, || self.lists(), |lists| lists.spec.clone()),
        }
    }

    fn open(&self, _: &mut dyn FnMut(Event)) -> Result<Dataset> {
        let Lists { spec, parts, mut notes, .. } = FOUND.take(self, || self.lists())?;
        let tested = !parts[2].paths.is_empty();
        let [train, val, test] = parts.map(|part| {
            let targets = match &self.kind {
                Kind::Mask { values, ignored } => {
                    let files = Files::new(part.folder.clone(), part.masks, self.strict)?;
                    Targets::Masks(Box::new(Masks::new(files, values, *ignored)))
                }
                _ => Targets::Values(part.targets),
            };
            let (photos, identities) = Files::identified(part.folder, part.paths, self.strict)?;
            let of_photos = spec.fields.iter().filter(|field| field.role != Role::Weight).cloned().collect();
            let split = Split::new(Arc::new(Photos::new(photos, targets, of_photos, self.strict)))?;
            let split = match &self.sample_weight {
                Some(column) => weighted(&split, part.weights, &format!("the column `{column}`"))?,
                None => split,
            };
            anyhow::Ok((split, identities))
        });
        let test = if tested { Some(test?.0) } else { None };
        let ((train, trained), (val, validated)) = (train?, val?);
        let names = spec.classes().and_then(|classes| classes.names.as_deref());
        notes.extend(twice::notes(&self.path, (&train, &trained), (&val, &validated), names));
        Ok(Dataset { test, notes, ..Dataset::new(spec, train, val) })
    }

    fn footprint(&self) -> Footprint {
        // Errors are reported when it is opened.
        let held = |lists: &Lists| lists.parts.iter().map(Part::held_bytes).sum();
        Footprint { held: FOUND.look(self, || self.lists(), held).unwrap_or_default(), ..Footprint::default() }
    }

    fn survey(&self) -> Option<[Survey; 2]> {
        let of = |part: &Part| {
            let mut survey = Survey::of_files(&part.folder, &part.paths);
            survey.decoding += Survey::of_files(&part.folder, &part.masks).decoding;
            survey
        };
        FOUND.look(self, || self.lists(), |lists| [of(&lists.parts[0]), of(&lists.parts[1])]).ok()
    }
}

impl ImageListOptions {
    /// What the samples look like, as far as the options determine it.
    fn known(&self) -> Option<DataSpec> {
        match self.kind {
            Kind::Class | Kind::Classes { .. } | Kind::Mask { .. } => Some(self.spec(self.classes.clone()?, 0)),
            Kind::Numbers { .. } => {
                Some(self.spec(Vec::new(), Some(self.label_columns.len()).filter(|columns| *columns > 0)?))
            }
        }
    }

    fn spec(&self, classes: Vec<String>, width: usize) -> DataSpec {
        let number = classes.len();
        let named = || Classes::named(classes);
        let target = match self.kind {
            Kind::Class => Field::target(TARGETS, FieldKind::Category(named()), []),
            Kind::Classes { .. } => Field::target(TARGETS, FieldKind::Labels(named()), [number]),
            Kind::Numbers { .. } => {
                // A column may have a list of numbers, which have no names; and may be given twice.
                let own = |at: usize, name: &String| !self.label_columns[..at].contains(name);
                let named = self.label_columns.len() == width;
                let named = named && self.label_columns.iter().enumerate().all(|(at, name)| own(at, name));
                let columns = if named { self.label_columns.clone() } else { Vec::new() };
                Field { columns, ..Field::target(TARGETS, FieldKind::Number, [width]) }
            }
            // As its photo, of any size.
            Kind::Mask { .. } => Field::target(TARGETS, FieldKind::Mask(named()), [0, 0]),
        };
        let weight = self.sample_weight.iter().map(|_| Field::sample_weight());
        DataSpec::new([Field::photo(INPUTS, 3), target].into_iter().chain(weight).collect())
    }

    /// Reads the lists.
    fn lists(&self) -> Result<Lists> {
        let (mut words, mut parts, mut width) = (Words::default(), <[Part; 3]>::default(), None);
        let found = self.found()?;
        for (at, list) in found.iter().enumerate() {
            let Some(list) = list else { continue };
            // The first may have a column that says which part a photo belongs to, of those that have no list of their own.
            let open = [0, 1, 2].map(|part| part == at || at == 0 && found[part].is_none());
            let mut reading =
                Reading { options: self, list, at, open, words: &mut words, parts: &mut parts, width: &mut width };
            reading.read()?;
            ensure!(
                parts[at].paths.len() + parts[at].missing > 0,
                "`{}` names no photos{}",
                list.display(),
                if at == 0 { " to train on" } else { "" }
            );
        }
        let (names, classes) = match self.kind {
            Kind::Numbers { .. } => (Vec::new(), Vec::new()),
            Kind::Class | Kind::Classes { .. } => classes(&words, self.classes.as_deref(), self.trained)?,
            // What is in the files is not looked at yet.
            Kind::Mask { .. } => (self.classes.clone().context("masks tell no names of classes")?, Vec::new()),
        };
        let own = self.kind == Kind::Class && self.classes.is_none();
        let mut notes: Vec<String> = alike(&self.path, &names).filter(|_| self.classes.is_none()).into_iter().collect();
        notes.extend(parted::other_than_classes(&self.path, &names).filter(|_| own));
        for (at, part) in parts.iter_mut().enumerate() {
            let list = found[at].as_ref().or(found[0].as_ref());
            part.targets = std::mem::take(&mut part.labels).targets(&self.kind, &classes, names.len())?;
            notes.extend(self.missing(part, list.unwrap_or(&self.path))?);
        }
        let [train, val, _] = parts.each_ref().map(|part| part.paths.len());
        let width = width.unwrap_or(1);
        let spec = DataSpec { train: Some(train), val: Some(val), ..self.spec(names, width) };
        Ok(Lists { spec, parts, width, notes })
    }

    /// The list of each part; there is one of those that are trained on.
    fn found(&self) -> Result<[Option<PathBuf>; 3]> {
        let [train, val, test] = lists_in(&self.path)?;
        let val = match &self.val_path {
            Some(path) => lists_in(path)?.into_iter().next().flatten(),
            None => val,
        };
        Ok([train, val, test])
    }

    /// The note about photos that are not there.
    fn missing(&self, part: &Part, list: &Path) -> Result<Option<String>> {
        if part.missing == 0 {
            return Ok(None);
        }
        let more = if part.missing > SHOWN { format!(" and {} more", part.missing - SHOWN) } else { String::new() };
        let all = part.missing + part.paths.len();
        let what = format!(
            "`{}`: {} of {all} photos{} are not there: {}{more}",
            list.display(),
            part.missing,
            if matches!(self.kind, Kind::Mask { .. }) { " or their masks" } else { "" },
            part.first.join(", ")
        );
        let folder = if part.folder.as_os_str().is_empty() { Path::new(".") } else { &part.folder };
        let mut root = format!("names are relative to `{}`, unless `root` is another folder", folder.display());
        if !cfg!(windows) && part.first.iter().any(|name| name.contains('\\')) {
            root += "; they have `\\` in them, which is a part of a name here: write `/` between folders";
        }
        if self.strict || part.paths.is_empty() || part.missing > most_unreadable(all) {
            bail!("{what}; {root}");
        }
        Ok(Some(format!("{what}, which are left out; {root}")))
    }
}

/// Whether photos are named by a list: `path` is one, or a folder that has one in it, or in its folders for each part.
pub fn is_list(path: &Path) -> bool {
    lists_in(path).is_ok()
}

/// The list that `path` is; or of a folder, the one in it, or those in its folders for each part.
fn lists_in(path: &Path) -> Result<[Option<PathBuf>; 3]> {
    if !path.is_dir() {
        return Ok([Some(path.to_owned()), None, None]);
    }
    let in_folder = |folder: &Path| {
        let names = table::ENDINGS.iter().map(|ending| folder.join(format!("{METADATA}.{ending}")));
        names.into_iter().find(|path| files::is_there(path))
    };
    if let Some(list) = in_folder(path) {
        return Ok([Some(list), None, None]);
    }
    let mut inside: Vec<PathBuf> = std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path()).collect();
    inside.sort_unstable();
    // A name in other letters is that of the part, too.
    let is = |folder: &Path, name: &str| folder.file_name().is_some_and(|found| found.eq_ignore_ascii_case(name));
    let lists = PARTS.map(|names| {
        let exact = names.iter().find_map(|name| in_folder(&path.join(name)));
        let any =
            || inside.iter().filter(|folder| names.iter().any(|name| is(folder, name))).find_map(|f| in_folder(f));
        exact.or_else(any)
    });
    ensure!(
        lists[0].is_some(),
        "the folder `{}` has no list: `{METADATA}.csv`, `{METADATA}.tsv` or `{METADATA}.jsonl` is looked for in it, and in \
         `train`; let `path` name the list, if it has another name",
        path.display()
    );
    Ok(lists)
}

/// A list that is being read.
struct Reading<'a> {
    options: &'a ImageListOptions,
    list: &'a Path,
    /// The part that it is of, and those that its column `split` may name.
    at: usize,
    open: [bool; 3],
    words: &'a mut Words,
    parts: &'a mut [Part; 3],
    /// How many numbers a label has, if that is known.
    width: &'a mut Option<usize>,
}

impl Reading<'_> {
    /// Adds the photos of the list to their parts.
    fn read(&mut self) -> Result<()> {
        let folder =
            self.options.root.clone().unwrap_or_else(|| self.list.parent().unwrap_or(Path::new("")).to_owned());
        for (part, _) in self.parts.iter_mut().zip(self.open).filter(|(_, open)| *open) {
            part.folder.clone_from(&folder);
        }
        let table = Table::open(self.list)?;
        let columns = table.columns();
        let mut chosen = self.columns(columns, self.options.image_column.as_slice(), &IMAGE_COLUMNS, "image_column")?;
        let usual: &[&str] = if self.has_masks() { &MASK_COLUMNS } else { &LABEL_COLUMNS };
        chosen.extend(self.columns(columns, &self.options.label_columns, usual, "label_column")?);
        let names: Vec<String> = chosen.iter().map(|at| columns[*at].clone()).collect();
        let weight = self.options.sample_weight.as_slice();
        if !weight.is_empty() {
            chosen.extend(self.columns(columns, weight, &[], "sample_weight")?);
        }
        let split = columns.iter().position(|name| name == SPLIT).filter(|_| self.at == 0);
        chosen.extend(split);
        table.each(&chosen, |line, cells| {
            let (named, others) = cells.split_at(names.len());
            let (weight, split) = others.split_at(weight.len());
            self.add(line, &names, named, (weight.first(), split.first()))
        })
    }

    fn has_masks(&self) -> bool {
        matches!(self.options.kind, Kind::Mask { .. })
    }

    /// The places of the columns that are given, else of the first of the usual ones.
    fn columns(&self, columns: &[String], given: &[String], usual: &[&str], key: &'static str) -> Result<Vec<usize>> {
        let place = || {
            let there: Vec<String> = columns.iter().map(|name| format!("`{}`", shown(name))).collect();
            format!("its columns are {}", there.join(", "))
        };
        let list = self.list.display();
        let find = |name: &str| columns.iter().position(|column| column == name);
        let found: Vec<usize> = match given {
            [] => {
                let usual: Vec<&str> = usual.iter().copied().filter(|name| find(name).is_some()).take(1).collect();
                usual.into_iter().filter_map(find).collect()
            }
            given => {
                let each = given.iter().map(|name| {
                    let message = || format!("`{list}` has no column `{name}`: {}", place());
                    find(name).ok_or_else(|| WrongColumns::of(key, name, "the list has no such column", message()))
                });
                each.collect::<Result<_, _>>()?
            }
        };
        let masks = key == "label_column" && !self.has_masks() && MASK_COLUMNS.iter().any(|name| find(name).is_some());
        ensure!(
            !found.is_empty(),
            "`{list}` has no column {}: {}; name the right one with `{key}` in `[data]`{}",
            usual.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or "),
            place(),
            if masks { ", or write `label_kind = \"mask\"` there, if its labels are masks" } else { "" }
        );
        let twice = found.iter().find(|at| columns.iter().filter(|name| **name == columns[**at]).count() > 1);
        ensure!(twice.is_none(), "`{list}` has the column `{}` twice", twice.map_or("", |at| &columns[*at]));
        Ok(found)
    }

    /// Adds the photo of a line.
    fn add(
        &mut self,
        line: u64,
        names: &[String],
        cells: &[Cell],
        (weight, split): (Option<&Cell>, Option<&Cell>),
    ) -> Result<()> {
        let place = Line { file: self.list, number: line, trained: false };
        let column = self.options.sample_weight.as_deref().unwrap_or_default();
        let weight = weight.map(|cell| weight_in(cell, place, column)).transpose()?;
        let Cell::Text(name) = &cells[0] else { bail!("{place}: there is no photo: `{}` names none", names[0]) };
        let at = match split {
            None => self.at,
            Some(Cell::Text(word)) => {
                let part = PARTS.iter().position(|words| words.iter().any(|known| known.eq_ignore_ascii_case(word)));
                part.with_context(|| {
                    format!("{place}: `{SPLIT}` is `{}`: `train`, `val` or `test` is expected", shown(word))
                })?
            }
            Some(_) => bail!("{place}: `{SPLIT}` is empty: `train`, `val` or `test` is expected"),
        };
        ensure!(
            self.open[at],
            "{place}: `{SPLIT}` says `{}`, and there is another list for those: leave out one of the two",
            PARTS[at][0]
        );
        let mask = match (self.has_masks(), &cells[1]) {
            (false, _) => None,
            (true, Cell::Text(mask)) => Some(mask),
            (true, _) => bail!("{place}: there is no mask: `{}` names none", names[1]),
        };
        let part = &mut self.parts[at];
        let before = part.labels.values();
        if mask.is_none() {
            let line = Line { trained: at == 0, ..place };
            part.labels.add(&self.options.kind, &names[1..], &cells[1..], self.words, line)?;
        }
        if matches!(self.options.kind, Kind::Numbers { .. }) {
            let width = part.labels.values() - before;
            let expected = *self.width.get_or_insert(width);
            ensure!(
                width == expected && width > 0,
                "{place}: the label has {width} numbers, and those before {expected}"
            );
        }
        let mut files = std::iter::once(name).chain(mask);
        let Some((file, reason)) = files.find_map(|file| Some((file, lacking(&part.folder, file)?))) else {
            part.paths.push(Path::new(name).into());
            part.masks.extend(mask.map(|mask| Path::new(mask).into()));
            part.weights.extend(weight);
            return Ok(());
        };
        if mask.is_none() {
            part.labels.remove_last(&self.options.kind, self.width.unwrap_or_default());
        }
        part.missing += 1;
        if part.first.len() < SHOWN {
            part.first.push(format!("`{}` (line {line}{reason})", shown(file)));
        }
        Ok(())
    }
}

/// What a photo weighs, by what the list has in `column`.
fn weight_in(cell: &Cell, place: Line, column: &str) -> Result<f32> {
    let weight = match cell {
        Cell::Text(text) => weight(text),
        Cell::Missing | Cell::Absent => weight(""),
        Cell::List(_) => Err("a list".to_owned()),
    };
    weight.map_err(|has| anyhow!(no_weight(&place.to_string(), column, &has)))
}

/// Why there is no such file, with a colon before it where that is more than that it is not there; `None`: it is there.
fn lacking(folder: &Path, name: &str) -> Option<String> {
    match files::uninterrupted(|| std::fs::metadata(folder.join(name))) {
        Ok(metadata) if !metadata.is_dir() => None,
        Ok(_) => Some(": a folder".to_owned()),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Some(String::new()),
        Err(e) => Some(format!(": {e}")),
    }
}

#[cfg(test)]
mod tests;
