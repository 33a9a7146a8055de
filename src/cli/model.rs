//! What commands are given: a configuration, or a checkpoint that carries one; and the device for it.

use super::failure::{Failure, warn};
use crate::backend::Backend;
use crate::checkpoint::{self, Checkpoint};
use crate::config::diagnostics::Diagnostic;
use crate::config::values::Precision;
use crate::config::{self, Experiment, Loaded};
use crate::data::DataSpec;
use crate::passes::PassOptions;
use crate::train::device::select;
use crate::train::folder::file;
use crate::train::input;
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
    /// The checkpoint, if one was given.
    pub checkpoint: Option<(PathBuf, Checkpoint)>,
}

/// Reads a configuration and shows its warnings.
///
/// # Errors
/// All mistakes in it.
pub fn load_config(path: &Path, sets: &[String]) -> Result<Loaded, Failure> {
    let loaded = config::load(path, sets)?;
    warn(&loaded.sources, &loaded.warnings);
    check_precision(&loaded)?;
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
    let checkpoint = checkpoint::read(path).map_err(anyhow::Error::new)?;
    let name = format!("the configuration in {}", path.display());
    let loaded = config::load_str(&name, &checkpoint.meta.config, sets)?;
    check_precision(&loaded)?;
    Ok(Model { loaded, checkpoint: Some((path.to_path_buf(), checkpoint)) })
}

/// The CPU computes in single precision alone.
fn check_precision(loaded: &Loaded) -> Result<(), Failure> {
    if loaded.experiment.precision == Precision::Fp32 {
        return Ok(());
    }
    let mut error =
        Diagnostic::error("the CPU computes in `fp32` only").help("set `precision = \"fp32\"`, or leave it out");
    if let Some(span) = loaded.experiment.nearest_span("precision") {
        error = error.at(span, "not on this device");
    }
    Err(Failure::Config { sources: loaded.sources.clone(), diagnostics: vec![error] })
}

/// The device that the experiment asks for.
///
/// # Errors
/// It is not there.
pub fn device(experiment: &Experiment, threads: Option<usize>) -> Result<Box<dyn Backend>, Failure> {
    Ok(select(experiment.device, threads)?)
}

/// What the data looks like, without reading it.
///
/// # Errors
/// A file of tensors is not there or not right; the validation split leaves nothing.
pub fn describe_data(loaded: &Loaded) -> Result<DataSpec, Failure> {
    input::describe(&loaded.experiment)
        .map_err(|error| Failure::Config { sources: loaded.sources.clone(), diagnostics: vec![error] })
}

/// Builds the programs, with mistakes shown in the configuration's text.
///
/// # Errors
/// Layers, loss or data do not fit each other.
pub fn build(loaded: &Loaded, data: &DataSpec, sizes: &Sizes, backend: &dyn Backend) -> Result<Programs, Failure> {
    programs::build(&loaded.experiment, data, sizes, backend, &PassOptions::default())
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
        let mut session = Session::new(programs, backend, task, experiment.seed)?;
        match &self.checkpoint {
            Some((path, checkpoint)) => {
                let mut tensors = checkpoint.tensors.clone();
                tensors.retain(|name, _| !name.starts_with(checkpoint::OPTIMIZER_PREFIX));
                state::load(&mut session, &tensors, path, true, state::in_state_dict)?;
            }
            None => load_weights(&mut session, experiment)?,
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
