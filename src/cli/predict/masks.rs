//! The class of every pixel as image files.

use crate::api::answer::{Answer, Of};
use crate::api::failure::Failure;
use crate::cli::own_image::{encode, expect_own};
use crate::cli::palette::colour;
use crate::files::output::Output;
use crate::graph::Shape;
use anyhow::{Context, Result};
use png::ColorType;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// A folder that masks are written into.
pub struct Masks<'a> {
    folder: &'a Path,
}

impl<'a> Masks<'a> {
    /// Those of `files` go into `folder`, which is made if it is not there; none takes the place of one of them or of the `others` that the
    /// command reads. A sample's classes have the shape `positions`, and there are `classes`.
    ///
    /// # Errors
    /// They are no masks, two of them would have one name, or one would take the place of a file that is read or that `predict` has not written.
    pub fn new(
        folder: &'a Path,
        files: &[PathBuf],
        others: &[PathBuf],
        positions: &Shape,
        classes: Option<usize>,
    ) -> Result<Self, Failure> {
        if positions.rank() != 2 || classes.is_none_or(|classes| classes > 256) {
            return Err(Failure::Usage(
                "`--masks` is for models with a class for every pixel of an image, of at most 256".into(),
            ));
        }
        let masks = Masks { folder };
        let mut names: HashMap<PathBuf, &Path> = HashMap::new();
        // The system knows a file by any of its names.
        let read: HashSet<PathBuf> = match folder.is_dir() {
            true => files.iter().chain(others).filter_map(|file| file.canonicalize().ok()).collect(),
            false => HashSet::new(),
        };
        for file in files {
            let mask = masks.path(Of { file, sample: None, row: None });
            if mask.canonicalize().is_ok_and(|mask| read.contains(&mask)) {
                return Err(Failure::Usage(format!(
                    "the mask of `{}` would take the place of `{}`, which this command reads\nhelp: let `--masks` name another folder",
                    file.display(),
                    mask.display()
                )));
            }
            expect_own(&mask, "--masks")?;
            if let Some(other) = names.insert(mask, file).filter(|other| *other != file) {
                return Err(Failure::Usage(format!(
                    "the masks of `{}` and `{}` would have one name\nhelp: do them one after the other, into different folders",
                    other.display(),
                    file.display()
                )));
            }
        }
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
        Ok(masks)
    }

    fn path(&self, of: Of) -> PathBuf {
        let mut name = of.file.file_stem().unwrap_or_default().to_owned();
        if let Some(sample) = of.sample {
            name.push(format!("-{sample}"));
        }
        name.push(".png");
        self.folder.join(name)
    }

    /// Writes what the model says of a sample.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, of: Of, answer: &Answer) -> Result<()> {
        let Answer::Positions(classes, shape) = answer else { return Ok(()) };
        let path = self.path(of);
        expect_own(&path, "--masks")?;
        let numbers: Vec<u8> = classes.iter().map(|class| *class as u8).collect();
        let sides = [shape.dims()[0], shape.dims()[1]].map(|side| side as u32);
        let palette = (0..=u8::MAX).flat_map(colour).collect();
        let file =
            encode(sides, ColorType::Indexed, Some(palette), &numbers).context("cannot make a PNG file of a mask")?;
        let written = Output::at(&path)?.put(&file);
        written.with_context(|| format!("cannot write `{}`", path.display()))
    }
}
