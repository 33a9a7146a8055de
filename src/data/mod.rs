//! Data sets and the batches made of them. This layer knows neither models nor configuration files: plain options go
//! in, batches come out.
//!
//! A sample consists of [`Field`]s. A [`Source`] is described without being read ([`describe`]) and opened ([`open`], or
//! [`obtain`] with download and fallback); a [`Split`] is a view of its samples, wherever those are ([`Store`]), and a
//! [`Loader`] makes batches of a split ahead of need.

mod cache;
pub mod cifar;
mod claims;
mod classes;
mod dataset;
mod declared_colours;
mod decoders;
mod digest;
pub mod digits;
pub mod fetch;
mod field;
mod fingerprint;
mod fit;
mod footprint;
mod found;
mod held;
mod hold_out;
pub mod idx;
mod image_file;
pub mod image_folder;
pub mod image_list;
mod known;
mod labels;
mod lengths;
mod loader;
mod mask_file;
mod memory;
pub mod mnist;
mod naive;
mod named_images;
mod parallel;
mod photo;
pub mod progress;
mod row_names;
mod sheet;
mod split;
mod store;
mod survey;
pub mod synthetic;
pub mod table;
mod target_names;
pub mod tensors;
pub mod text;
mod tokenizer;
mod transforms;
mod unreadable;
mod values;
mod verify;
pub mod webdataset;
mod weights;
mod wrong_columns;
mod wrong_file;

pub use cache::{Cache, Keep, Kept, kept_in};
pub use classes::Classes;
pub use dataset::Dataset;
pub use field::{
    ANSWERS, BatchShape, DataSpec, Field, FieldKind, INPUTS, LENGTHS, Length, Lengths, MAX_LENGTHS, PAIR_START, Role,
    Standard, TARGETS, UnknownField, mask, transformed,
};
pub use fingerprint::Fingerprint;
pub use fit::check_tokens;
pub use footprint::Footprint;
pub use held::{UnknownClasses, listed};
pub use hold_out::HoldOut;
pub use image_file::{changed_sample, image_bytes, image_claims, image_measures, image_sample, photo_sample};
pub use image_folder::{images_below, unread_in_words};
pub use loader::{Batch, BatchError, Loader, LoaderOptions, Mix, Mixing, Own, Position};
pub use mask_file::read_mask;
pub use memory::Memory;
pub use naive::NaiveErrors;
pub use named_images::NamedImages;
pub use row_names::RowName;
pub use split::Split;
pub use store::{Rows, Store, Unreadable};
pub use survey::{Survey, Taken};
pub use target_names::target_names;
pub use transforms::{
    Augment, AugmentChanges, ColorJitter, Image, Interpolation, Operation, Policy, Size, Transform, bytes_per_pixel,
    fixed, output_shape,
};
pub use unreadable::{Unread, most_unreadable};
pub use values::Values;
pub use wrong_columns::{WrongColumn, WrongColumns};
pub use wrong_file::WrongFile;

use crate::files;
use anyhow::{Context, Result};
use known::Known;
use progress::Event;
use std::fmt;
use std::path::PathBuf;

/// Where samples come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// MNIST: grey images of 28×28, ten digits. The folder with the four IDX files.
    Mnist(Files),
    /// Fashion-MNIST: the same shape and file names, ten kinds of clothing.
    FashionMnist(Files),
    /// CIFAR-10, binary version: colour images of 32×32, ten classes. The folder with the files or the archive.
    Cifar10(Files),
    /// CIFAR-100; true: its superclasses.
    Cifar100(Files, bool),
    /// The bundled hand-written digits: grey images of 8×8, ten classes.
    Digits,
    /// Photos in folders, a folder a class.
    ImageFolder(image_folder::ImageFolderOptions),
    /// Photos in a list.
    ImageList(image_list::ImageListOptions),
    /// Photos in tar archives.
    WebDataset(webdataset::WebDatasetOptions),
    /// Tensors in a file.
    Tensors(tensors::TensorsOptions),
    /// The rows of a table.
    Table(Box<table::TableOptions>),
    /// Text, or tokens of one.
    Text(Box<text::TextOptions>),
    /// Texts with a class each.
    LabelledTexts(Box<text::LabelledOptions>),
    /// Sentences whose words have a tag each.
    TaggedTexts(Box<text::TaggedOptions>),
    /// Texts with an answer each.
    AnsweredTexts(Box<text::AnsweredOptions>),
    /// Texts with an answer each that goes on with a prompt.
    PromptedTexts(Box<text::PromptedOptions>),
    /// Made-up samples.
    Synthetic(synthetic::SyntheticOptions),
}

/// Most classes that there may be.
const MAX_CLASSES: usize = 1 << 24;

/// The files of a public set, or of one in its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The folder.
    pub root: PathBuf,
    /// They must be those of the public set, by their checksums.
    pub verify: bool,
}

impl Files {
    /// Those of the public set in the folder `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Files { root: root.into(), verify: true }
    }

    /// The description of the public set as that of these files. The number of samples in a set of one's own is known from
    /// its files alone.
    fn counted(&self, spec: DataSpec) -> DataSpec {
        if self.verify { spec } else { DataSpec { train: None, val: None, ..spec } }
    }
}

/// What a source describes. Each has a file of this folder; the rest of the folder knows it by its line in [`Source`] alone.
trait Describes {
    /// What the samples look like, without reading them.
    fn describe(&self) -> Result<DataSpec>;

    /// Opens it: its samples are there afterwards.
    fn open(&self, progress: &mut dyn FnMut(Event)) -> Result<Dataset>;

    /// The memory that it takes, before it is opened. Sets in a known format with another number of samples take another
    /// amount: that is known when they have been read.
    fn footprint(&self) -> Footprint;

    /// What its photos are like, those that are trained on and those that are validated on, by the headers of some of them.
    fn survey(&self) -> Option<[Survey; 2]> {
        None
    }

    /// The public set that its files are those of, and the folder that they are read from, if they can be downloaded.
    fn public(&self) -> Option<(Known, PathBuf)> {
        None
    }
}

impl Source {
    fn set(&self) -> Box<dyn Describes + '_> {
        match self {
            Source::Mnist(files) => Box::new(mnist::Mnist(mnist::Variant::Digits, files)),
            Source::FashionMnist(files) => Box::new(mnist::Mnist(mnist::Variant::Fashion, files)),
            Source::Cifar10(files) => Box::new(cifar::Cifar(cifar::Variant::Ten, files)),
            Source::Cifar100(files, coarse) => Box::new(cifar::Cifar(cifar::Variant::hundred(*coarse), files)),
            Source::Digits => Box::new(digits::Digits),
            Source::ImageFolder(options) => Box::new(options),
            Source::ImageList(options) => Box::new(options),
            Source::WebDataset(options) => Box::new(options),
            Source::Tensors(options) => Box::new(options),
            Source::Table(options) => Box::new(&**options),
            Source::Text(options) => Box::new(&**options),
            Source::LabelledTexts(options) => Box::new(&**options),
            Source::TaggedTexts(options) => Box::new(&**options),
            Source::AnsweredTexts(options) => Box::new(&**options),
            Source::PromptedTexts(options) => Box::new(&**options),
            Source::Synthetic(options) => Box::new(options),
        }
    }
}

/// What the samples look like, without reading them: files need not exist for the sets that are known.
///
/// # Errors
/// Options that make no sense, or a file of tensors that cannot be read.
pub fn describe(source: &Source) -> Result<DataSpec> {
    source.set().describe()
}

/// What `source` takes of memory. Sets that are known need not be there; of tensors the file's size is looked at.
pub fn footprint(source: &Source) -> Footprint {
    source.set().footprint()
}

/// What the photos of a source are like, those that are trained on and those that are validated on; `None`: it has none, or they are
/// not there.
pub fn survey(source: &Source) -> Option<[Survey; 2]> {
    source.set().survey()
}

/// Opens a source: its samples are read whole into memory.
///
/// # Errors
/// Files are not there ([`MissingFiles`], found by `downcast_ref`), cannot be read, or do not hold what they should.
pub fn open(source: &Source) -> Result<Dataset> {
    source.set().open(&mut |_| ())
}

/// The fields of samples that a source makes by what it has fitted, as a checkpoint has that; `None`: no source has written it.
pub fn fields_of(fitted: &serde_json::Value) -> Option<Vec<Field>> {
    match text::TextCodec::is(fitted) {
        true => text::TextCodec::read(fitted).ok().map(|codec| codec.fields()),
        false => table::TableCodec::read(fitted).map(|codec| codec.fields()),
    }
}

/// What to do if a source's files are not there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Missing {
    /// Download them first.
    pub download: bool,
    /// Base addresses to download from; empty: those that are built in.
    pub mirrors: Vec<String>,
    /// If all else fails, take the bundled digits in the shape that the source would have had, and say so in
    /// [`Dataset::note`].
    pub fallback_digits: bool,
}

/// Reads a source, and does as `missing` says if its files are not there. Files that are there and are wrong are an
/// error always.
///
/// # Errors
/// As [`open`]; the download failed and there is no fallback.
pub fn obtain(source: &Source, missing: &Missing, progress: &mut dyn FnMut(Event)) -> Result<Dataset> {
    let mut set = obtained(source, missing, progress)?;
    set.notes.extend(tokenizer::dropout_in_words(&set.spec));
    Ok(set)
}

fn obtained(source: &Source, missing: &Missing, progress: &mut dyn FnMut(Event)) -> Result<Dataset> {
    let set = source.set();
    let mut reason = match set.open(progress) {
        Err(e) if e.is::<MissingFiles>() => e,
        other => return other,
    };
    if missing.download
        && let Some((known, root)) = set.public()
    {
        match fetch::download(known, &root, &missing.mirrors, progress) {
            Ok(()) => return set.open(progress),
            Err(e) => {
                // All that the user brings by hand where there is no network.
                let files = reason.downcast_ref::<MissingFiles>().map(|missing| missing.files.join(", "));
                reason = e.context(format!(
                    "{}: not found: {}; if they are elsewhere, `--set data.root=FOLDER` says where. The download failed",
                    known.name(),
                    files.unwrap_or_default()
                ))
            }
        }
    }
    if !missing.fallback_digits {
        return Err(reason);
    }
    let mut data = digits::resized_like(&describe(source)?)
        .with_context(|| format!("no fallback, either, after this failure: {reason:#}"))?;
    let why = format!("{reason:#}");
    data.note = data.note.map(|note| format!("{note}. Reason: {why}"));
    Ok(data)
}

/// A source's files are not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingFiles {
    /// The source's name in a configuration.
    pub source: &'static str,
    /// What was looked for and not found.
    pub files: Vec<String>,
    /// Where.
    pub folders: Vec<PathBuf>,
    /// The command that brings them.
    pub fetch: String,
}

/// Whether an error is that files of a set are not there.
pub fn is_missing(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<WrongFile>() {
        Some(wrong) => is_missing(&wrong.error),
        None => error.is::<MissingFiles>() || files::is_missing(error),
    }
}

impl fmt::Display for MissingFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folders: Vec<String> = self.folders.iter().map(|p| p.display().to_string()).collect();
        write!(
            f,
            "{}: not found: {}; looked in: {}. To get them, run `{}` or set `download = true`; if they are elsewhere, \
             set `root`",
            self.source,
            self.files.join(", "),
            folders.join(", "),
            self.fetch
        )
    }
}

impl std::error::Error for MissingFiles {}

#[cfg(test)]
mod tests;
