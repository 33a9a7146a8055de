//! Sources whose files are read whole to describe them: what describing and opening such a source have in common.

use super::super::dataset::Dataset;
use super::super::field::DataSpec;
use super::super::found::Found;
use super::super::progress::Event;
use super::super::tokenizer::{Choice, Tokenizer};
use super::super::wrong_file::WrongFile;
use super::super::{Describes, Footprint, Split};
use super::TextCodec;
use crate::files;
use crate::files::pattern;
use anyhow::Result;
use std::path::Path;

/// Samples that are read.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What they are.
    pub spec: DataSpec,
    /// Those that are trained on.
    pub train: Split,
    /// Those that are validated on.
    pub val: Split,
    /// What the user should know of them.
    pub notes: Vec<String>,
    /// Bytes of memory besides, while tokens are made of them.
    pub reading: usize,
}

/// Bytes of memory that a text takes besides its own: the places of it and of its row, and what an allocation takes.
const OF_TEXT: usize = 100;

/// Bytes of memory that texts take while tokens are made of them, one text after the other.
pub fn working_memory<'a>(texts: impl Iterator<Item = &'a str>, codec: &TextCodec) -> usize {
    let mut longest = 0;
    let mut all = 0usize;
    for text in texts {
        longest = longest.max(codec.tokenizer.as_ref().map_or(0, |tokenizer| tokenizer.working_memory(text)));
        all = all.saturating_add(text.len() + OF_TEXT);
    }
    all.saturating_add(longest)
}

/// Options by which samples are read.
pub trait Load: PartialEq + Clone + 'static {
    /// What was read last.
    fn found() -> &'static Found<Self, Loaded>;

    /// Reads the files.
    ///
    /// # Errors
    /// They cannot be read, or do not fit the options.
    fn load(&self) -> Result<Loaded>;

    /// What reading would find out, where the options say all of it: asked for where there is no file, as for a model that another program has trained.
    ///
    /// # Errors
    /// The tokenizer cannot be read.
    fn codec_of_options(&self) -> Result<Option<TextCodec>> {
        Ok(None)
    }

    /// The file.
    fn path(&self) -> &Path;
}

/// The tokenizer of a model that was trained on samples of another kind, else the one that the options choose for these texts.
///
/// # Errors
/// A file of a tokenizer cannot be read, or is none.
pub fn tokenizer(fitted: Option<&TextCodec>, choice: &Choice, texts: &[&str]) -> Result<Tokenizer> {
    match fitted.and_then(|codec| codec.tokenizer.as_ref()) {
        Some(tokenizer) => Ok(tokenizer.clone()),
        None => Tokenizer::choose(choice, texts),
    }
}

/// Whether the options alone say all of a model: the number of its classes is known, and its tokenizer does not depend on a text.
pub fn is_known_without_the_file(choice: &Choice, classes: Option<&Vec<String>>) -> bool {
    classes.is_some() && matches!(choice, Choice::Bytes | Choice::Json(_))
}

impl<T: Load> Describes for &T {
    fn describe(&self) -> Result<DataSpec> {
        if !files::is_there(self.path())
            && pattern::paths(self.path()).is_err()
            && let Some(codec) = self.codec_of_options()?
        {
            let lengths = codec.samples.lengths();
            return Ok(DataSpec { fitted: Some(codec.written()?), lengths, ..DataSpec::new(codec.fields()) });
        }
        T::found().look(self, || self.load(), |loaded| loaded.spec.clone())
    }

    fn open(&self, _: &mut dyn FnMut(Event)) -> Result<Dataset> {
        let loaded = T::found().look(self, || self.load(), Loaded::clone);
        // A model may have been built without the file.
        let missing = !files::is_there(self.path());
        let loaded = loaded.map_err(|error| match missing && !error.is::<WrongFile>() {
            true => WrongFile::of("path")(error),
            false => error,
        });
        let Loaded { spec, train, val, notes, .. } = loaded?;
        Ok(Dataset { notes, ..Dataset::new(spec, train, val) })
    }

    fn footprint(&self) -> Footprint {
        let bytes = |loaded: &Loaded| Footprint {
            held: loaded.train.held_bytes() + loaded.val.held_bytes(),
            reading: loaded.reading,
            ..Footprint::default()
        };
        T::found().look(self, || self.load(), bytes).unwrap_or_default()
    }
}
