//! The models of several folds, which answer together.

use super::rows::Rows;
use crate::api::failure::Failure;
use crate::api::model::{device, load_model};
use crate::api::predictor::{Options, Predictor, Seen};
use crate::cli::args::PredictArgs;
use crate::data::table::Unseen;
use crate::data::{Loader, LoaderOptions, Position};
use anyhow::{Context, Result};
use std::path::Path;

/// The model of another fold, for which the rows of a table become samples in its own way.
pub struct Other {
    predictor: Predictor,
    rows: Rows,
}

impl Other {
    /// Opens the run in a folder, as the first fold was.
    ///
    /// # Errors
    /// It has saved no checkpoint, or there is not enough memory.
    pub fn open(path: &Path, args: &PredictArgs, options: &Options) -> Result<Other, Failure> {
        let model = load_model(path, &args.overrides.sets())?;
        let experiment = &model.loaded.experiment;
        let seen = Seen::by(&model)?;
        let rows = Rows::of(&seen.data, experiment)?.context("the models of folds take rows of tables")?;
        let backend = device(experiment, args.threads)?;
        Ok(Other { predictor: Predictor::new(&model, seen, backend, options)?, rows })
    }

    /// What it puts out for all rows of a file, one behind the other.
    ///
    /// # Errors
    /// The file cannot be read, or does not fit; the device failed.
    pub fn outputs(&self, file: &Path, slots: usize) -> Result<Vec<f32>> {
        let Other { predictor, rows } = self;
        // Categories that training has not seen are reported once, for the first fold.
        let (split, _) = rows.read(file, &mut Unseen::default())?;
        let width = predictor.outputs();
        let mut all = vec![0f32; split.len() * width];
        let buffers = (0..slots).map(|_| predictor.host_buffer()).collect::<Result<Vec<_>>>()?;
        let options = LoaderOptions {
            batch_size: predictor.batch(),
            shuffle: false,
            workers: 0,
            end_epoch: Some(1),
            ..LoaderOptions::default()
        };
        let mut loader = Loader::start(&split, options, predictor.layout(), buffers, Position::default())?;
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
