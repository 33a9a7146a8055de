//! What commands are given: a configuration, or a checkpoint that carries one; and the device for it.

use super::failure::{Failure, warn};
use crate::backend::Backend;
use crate::checkpoint::{self, Meta};
use crate::config::{self, Experiment, Loaded};
use crate::data::DataSpec;
use crate::passes::PassOptions;
use crate::train::device::{Selected, Wanted, select};
use crate::train::folder::file;
use crate::train::input;
use crate::train::precision;
use crate::train::programs::{self, Programs, Sizes};
use crate::train::report::say;
use crate::train::session::Session;
use crate::train::state;
use anyhow::Context;
use std::path::{Path, PathBuf};

/// A model with its weights' source.
pub struct Model {
    /// The configuration.
    pub loaded: Loaded,
    /// The checkpoint, if one was given, and what it says of its run.
    pub checkpoint: Option<(PathBuf, Meta)>,
}

/// Reads a configuration and shows its warnings.
///
/// # Errors
/// All mistakes in it.
pub fn load_config(path: &Path, sets: &[String]) -> Result<Loaded, Failure> {
    let loaded = config::load(path, sets)?;
    warn(&loaded.sources, &loaded.warnings);
    Ok(loaded)
}

/// Reads a checkpoint with its configuration, or a configuration that names weights.
///
/// # Errors
/// The file cannot be read, is broken, or is a configuration without `[model] weights`.
pub fn load_model(path: &Path, sets: &[String]) -> Result<Model, Failure> {
    if path.extension().is_some_and(|e| e == "toml") {
        let loaded = load_config(path, sets)?;
        if loaded.experiment.model.weights.is_none() {
            return Err(Failure::Usage(format!(
                "`{}` names no weights: there is nothing to evaluate\nhelp: give a checkpoint of a run instead, or set `[model] weights`",
                path.display()
            )));
        }
        return Ok(Model { loaded, checkpoint: None });
    }
    if path.is_dir() {
        let best = path.join(file::BEST);
        return Err(Failure::Usage(format!(
            "`{}` is a folder\nhelp: give a checkpoint of the run, such as `{}`",
            path.display(),
            best.display()
        )));
    }
    let meta = checkpoint::verify(path).map_err(anyhow::Error::new)?;
    let name = format!("the configuration in {}", path.display());
    let loaded = config::load_str(&name, &meta.config, sets)?;
    Ok(Model { loaded, checkpoint: Some((path.to_path_buf(), meta)) })
}

/// The device that the experiment asks for. Says so if it has not the precision that the experiment asks for.
///
/// # Errors
/// It is not there.
pub fn device(experiment: &Experiment, threads: Option<usize>) -> Result<Box<dyn Backend>, Failure> {
    let backend = say_why(select(&Wanted::of(experiment, threads))?);
    if let Some(note) = precision::note(experiment.precision, backend.as_ref()) {
        say(&format!("note: {note}"));
    }
    Ok(backend)
}

/// Tells why the device is not the one that would have been taken first, if so.
pub fn say_why(selected: Selected) -> Box<dyn Backend> {
    if let Some(note) = &selected.note {
        say(note);
    }
    selected.backend
}

/// What the data looks like, without reading it.
///
/// # Errors
/// A file of tensors is not there or not right; the validation split leaves nothing.
pub fn describe_data(loaded: &Loaded) -> Result<DataSpec, Failure> {
    input::describe(&loaded.experiment)
        .map_err(|error| Failure::Config { sources: loaded.sources.clone(), diagnostics: vec![error] })
}

/// Builds the programs with the passes of `options`, with mistakes shown in the configuration's text.
///
/// # Errors
/// Layers, loss or data do not fit each other.
pub fn build(
    loaded: &Loaded,
    data: &DataSpec,
    sizes: &Sizes,
    backend: &dyn Backend,
    options: &PassOptions,
) -> Result<Programs, Failure> {
    programs::build(&loaded.experiment, data, sizes, backend, options)
        .map_err(|diagnostics| Failure::Config { sources: loaded.sources.clone(), diagnostics })
}

impl Model {
    /// A session with the model's weights, for programs that do not train.
    ///
    /// # Errors
    /// The device has not enough memory; the weights do not fit.
    pub fn session(&self, programs: Programs, backend: &dyn Backend) -> Result<Session, Failure> {
        let experiment = &self.loaded.experiment;
        let task = crate::build::task(experiment);
        let mut session = Session::unset(programs, backend, task)?;
        match &self.checkpoint {
            Some((path, meta)) => state::load_checkpoint(&mut session, meta, path, state::in_state_dict)?,
            None => {
                session.initialize(experiment.seed, |_| true)?;
                load_weights(&mut session, experiment)?;
            }
        }
        Ok(session)
    }
}

/// Loads `[model] weights`, if there are any, and tells what did not fit.
///
/// # Errors
/// The file cannot be read, or does not fit.
pub fn load_weights(session: &mut Session, experiment: &Experiment) -> Result<(), Failure> {
    let Some(path) = &experiment.model.weights else { return Ok(()) };
    let (left_out, notes) =
        state::load_weights(session, path, experiment.model.weights_strict).context("`[model] weights`")?;
    for note in notes {
        say(&format!("weights: {note}"));
    }
    if !left_out.is_empty() {
        say(&format!("warning: not all weights of `{}` fit\n{left_out}", path.display()));
    }
    Ok(())
}
