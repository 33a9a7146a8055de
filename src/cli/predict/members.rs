//! The models of several folds or seeds, which answer together.

use super::rows::Rows;
use super::{Images, is_tensors};
use crate::api::failure::Failure;
use crate::api::model::{device, load_model};
use crate::api::predictor::{Options, Predictor, Seen};
use crate::cli::args::PredictArgs;
use crate::data::table::Unseen;
use crate::data::tensors::read_fields;
use crate::data::{Loader, LoaderOptions, Position, Split};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The model of another fold or seed, for which the rows of a table become samples in its own way.
pub struct Other {
    predictor: Predictor,
    seen: Seen,
    rows: Option<Rows>,
}

impl Other {
    /// Opens the run in a folder, as the first one was.
    ///
    /// # Errors
    /// It has saved no checkpoint, or there is not enough memory.
    pub fn open(path: &Path, args: &PredictArgs, options: &Options) -> Result<Other, Failure> {
        let model = load_model(path, &args.overrides.sets())?;
        let experiment = &model.loaded.experiment;
        let seen = Seen::by(&model)?;
        let rows = Rows::of(&seen.data, experiment)?;
        let backend = device(experiment, args.threads)?;
        Ok(Other { predictor: Predictor::new(&model, seen.clone(), backend, options)?, seen, rows })
    }

    /// What it puts out for all samples of a file, one after the other.
    ///
    /// # Errors
    /// The file cannot be read, or does not fit; the device failed.
    pub fn outputs(&self, file: &Path, slots: usize) -> Result<Vec<f32>> {
        let split = match &self.rows {
            // Categories that training has not seen are reported once, for the first model.
            Some(rows) if !is_tensors(file) => rows.read(file, &mut Unseen::default())?.0,
            _ => read_fields(file, &self.seen.given)?,
        };
        self.outputs_of(&split, slots, 0)
    }

    /// What it puts out for images, one after the other. The numbers for one that cannot be read have no meaning.
    ///
    /// # Errors
    /// The device failed.
    pub fn outputs_of_images(
        &self,
        files: &[PathBuf],
        (slots, workers): (usize, usize),
        invert: bool,
    ) -> Result<Vec<f32>> {
        let images = Images { seen: &self.seen, invert };
        self.outputs_of(&Split::new(Arc::new(images.store(files)?))?, slots, workers)
    }

    fn outputs_of(&self, split: &Split, slots: usize, workers: usize) -> Result<Vec<f32>> {
        let predictor = &self.predictor;
        let width = predictor.width();
        let mut all = vec![0f32; split.len() * width];
        let buffers = (0..slots).map(|_| predictor.host_buffer()).collect::<Result<Vec<_>>>()?;
        let options = LoaderOptions {
            batch_size: predictor.batch(),
            shuffle: false,
            workers,
            end_epoch: Some(1),
            transforms: predictor.seen().transforms.clone(),
            ..LoaderOptions::default()
        };
        let mut loader = Loader::start(split, options, predictor.layout(), buffers, Position::default())?;
        while let Some(batch) = loader.next()? {
            predictor.outputs_of(batch.slot, &batch.buffer, |outputs| {
                for (row, sample) in outputs.chunks_exact(width).zip(batch.samples()) {
                    all[*sample as usize * width..][..width].copy_from_slice(row);
                }
                Ok(())
            })?;
            loader.release(batch);
        }
        Ok(all)
    }
}
