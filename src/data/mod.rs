//! Data sets and the batches made of them. This layer knows neither models nor configuration files: plain options go
//! in, batches come out.
//!
//! A sample consists of [`Field`]s. A [`Source`] is described without being read ([`describe`]) and opened ([`open`], or
//! [`obtain`] with download and fallback); a [`Split`] is a view of its samples, wherever those are ([`Store`]), and a
//! [`Loader`] makes batches of a split ahead of need.

pub mod cifar;
mod digest;
pub mod digits;
pub mod fetch;
mod field;
mod fingerprint;
mod footprint;
pub mod idx;
mod image_file;
mod known;
mod loader;
pub mod mnist;
mod set;
mod split;
mod store;
pub mod synthetic;
pub mod tensors;
mod transforms;
mod unreadable;
mod verify;

pub use field::{DataSpec, Field, INPUTS, TARGETS, TargetSpec, UnknownField, transformed};
pub use fingerprint::Fingerprint;
pub use footprint::{Footprint, footprint};
pub use image_file::image_sample;
pub use loader::{Batch, Loader, LoaderOptions, Position, Shard};
pub use set::{Dataset, Split};
pub use split::HoldOut;
pub use store::{Memory, Rows, Store, Unreadable, Values};
pub use transforms::{Transform, output_shape};
pub use unreadable::{Unread, most_unreadable};

use anyhow::{Context, Result};
use known::Known;
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
    /// The bundled hand-written digits: grey images of 8×8, ten classes.
    Digits,
    /// Tensors in a file.
    Tensors(tensors::TensorsOptions),
    /// Made-up samples.
    Synthetic(synthetic::SyntheticOptions),
}

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
}

/// What the samples look like, without reading them: files need not exist for the sets that are known.
///
/// # Errors
/// Options that make no sense, or a file of tensors that cannot be read.
pub fn describe(source: &Source) -> Result<DataSpec> {
    // How many there are in a set of one's own only its files tell.
    let of =
        |files: &Files, spec: DataSpec| if files.verify { spec } else { DataSpec { train: None, val: None, ..spec } };
    match source {
        Source::Mnist(files) => Ok(of(files, mnist::spec(mnist::Variant::Digits))),
        Source::FashionMnist(files) => Ok(of(files, mnist::spec(mnist::Variant::Fashion))),
        Source::Cifar10(files) => Ok(of(files, cifar::spec())),
        Source::Digits => Ok(digits::spec()),
        Source::Tensors(options) => tensors::describe(options),
        Source::Synthetic(options) => synthetic::spec(options),
    }
}

/// Opens a source: its samples are read whole into memory.
///
/// # Errors
/// Files are not there ([`MissingFiles`], found by `downcast_ref`), cannot be read, or do not hold what they should.
pub fn open(source: &Source) -> Result<Dataset> {
    read(source, &mut |_| ())
}

fn read(source: &Source, progress: &mut dyn FnMut(fetch::Event)) -> Result<Dataset> {
    match source {
        Source::Mnist(files) => mnist::open(mnist::Variant::Digits, files),
        Source::FashionMnist(files) => mnist::open(mnist::Variant::Fashion, files),
        Source::Cifar10(files) => cifar::open(files, progress),
        Source::Digits => digits::open(),
        Source::Tensors(options) => tensors::open(options),
        Source::Synthetic(options) => synthetic::open(options),
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
pub fn obtain(source: &Source, missing: &Missing, progress: &mut dyn FnMut(fetch::Event)) -> Result<Dataset> {
    let mut reason = match read(source, progress) {
        Err(e) if e.is::<MissingFiles>() => e,
        other => return other,
    };
    if missing.download
        && let Some((set, root)) = fetch::Known::of(source)
    {
        match fetch::download(set, root, &missing.mirrors, progress) {
            Ok(()) => return read(source, progress),
            Err(e) => reason = e.context(format!("the files of {} are not there, and the download failed", set.name())),
        }
    }
    if !missing.fallback_digits {
        return Err(reason);
    }
    let mut data = digits::resized_like(&describe(source)?)
        .with_context(|| format!("no fallback, either, after this failure: {reason:#}"))?;
    let why = format!("{reason:#}");
    data.note = data.note.map(|note| format!("{note} Reason: {why}"));
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
