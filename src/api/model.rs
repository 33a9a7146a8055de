//! What commands are given: a configuration, or a checkpoint that carries one; and the device for it.

pub use super::failure::refuse;
use super::failure::{Failure, refused, warn};
use super::pretrained;
use super::reading::{expect_own_columns, expect_own_tokenizer, expect_own_tokens, is_of, other_mask_values, written};
use super::what::{checkpoint_of, expect_checkpoint, expect_configuration};
use crate::backend::Backend;
use crate::checkpoint::{self, Best, Meta, Tensor};
use crate::config::declare::tagged::Tagged;
use crate::config::experiment::Validation;
use crate::config::language::sections::{ClassWeights, Fitted, Tokenizer};
use crate::config::load::paths::shown;
use crate::config::text::diagnostics::SourceKind;
use crate::config::{self, Diagnostic, Experiment, Loaded};
use crate::data::{DataSpec, listed};
use crate::files;
use crate::graph::Variables;
use crate::passes::PassOptions;
use crate::terminal::{heard_by, listener, say};
use crate::train::files::folder::file;
use crate::train::files::provenance;
use crate::train::files::state::{self, Extra};
use crate::train::files::tensors::Base;
use crate::train::files::weights::{self, Weights};
use crate::train::setup::device::{Selected, Wanted, select};
use crate::train::setup::input::{self, Samples, text_without_reading};
use crate::train::setup::lints;
use crate::train::setup::precision;
use crate::train::setup::programs::{self, Programs, Sizes};
use crate::train::setup::session::Session;
use crate::train::setup::transfer::in_state_dict;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

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
    load_config_of(path, sets, None)
}

/// The same for a run that goes on with what its training has found on the data.
///
/// # Errors
/// All mistakes in it.
pub fn load_config_of(path: &Path, sets: &[String], fitted: Option<&Fitted>) -> Result<Loaded, Failure> {
    expect_configuration(path)?;
    let ask = |experiment: &Experiment| match fitted {
        Some(fitted) => Ok(input::counts_of(fitted, experiment)),
        None => match weights::fitted(experiment).filter(|fitted| has_its_tokens(experiment, fitted)) {
            // Text becomes tokens as it did for the weights.
            Some(fitted) => Ok(input::counts_of(&fitted, experiment)),
            // Without the data, the checkpoint whose weights are taken says it.
            None => input::counts(experiment).or_else(|error| {
                weights::fitted(experiment).map(|fitted| input::counts_of(&fitted, experiment)).ok_or(error)
            }),
        },
    };
    let mut loaded = config::load_asking(path, sets, &ask).map_err(with_all_mistakes)?;
    warn(&loaded.sources, &loaded.warnings);
    if fitted.is_none() {
        hold_to_weights(&mut loaded.experiment);
    }
    Ok(loaded)
}

/// Adds the mistakes of data and model, as far as the other mistakes leave them to be checked.
fn with_all_mistakes(mut failure: config::Failure) -> config::Failure {
    if let Some(rest) = failure.rest.take() {
        failure.diagnostics.extend(programs::mistakes(&rest));
    }
    failure
}

/// Whether the texts of the data become tokens as they did for the checkpoint whose weights a model starts from: unless the configuration names the file of
/// another tokenizer. That is meant: whether the weights are for it is judged when they are read.
fn has_its_tokens(experiment: &Experiment, fitted: &Fitted) -> bool {
    let source = &experiment.data.source;
    let other = match source.tokenizer() {
        Some(Tokenizer::File(path)) => weights::are_for_another_tokenizer(fitted, &shown(path)),
        _ => false,
    };
    source.has_tokens() && fitted.source.is_some() && !other
}

/// Holds the data to the checkpoint whose weights a model starts from, where its classes are the same in another order, or where the
/// data is not there.
fn hold_to_weights(experiment: &mut Experiment) {
    let Some(fitted) = weights::fitted(experiment) else { return };
    let source = &experiment.data.source;
    if source.has_tokens() && fitted.source.is_some() && !has_its_tokens(experiment, &fitted) {
        return;
    }
    if fitted.source.is_some() && source.is_counted_by_reading() {
        let path = experiment.model.weights.as_deref().map(shown).unwrap_or_default();
        let path = path.display();
        say(&match source {
            _ if source.table().is_some() => {
                format!("weights: rows become samples as they did for `{path}`, column by column")
            }
            _ => {
                let known = weights::tokenizer_of(&fitted);
                let named = source.tokenizer().filter(|_| experiment.span_of("data.tokenizer").is_some());
                let unused = known.zip(named).filter(|(known, named)| !is_of(named, known));
                let unused = unused.map(|(known, named)| {
                    format!(
                        ", by its tokenizer ({}); `tokenizer = \"{}\"` of the configuration is not used",
                        known.in_words(),
                        written(named)
                    )
                });
                format!("weights: text becomes tokens as it did for `{path}`{}", unused.unwrap_or_default())
            }
        });
        experiment.data.fitted = Some(fitted);
        return;
    }
    let Some(known) = &fitted.class_names else { return };
    let Ok(spec) = input::describe(experiment) else {
        // Other faults of the data are reported where it is read.
        if experiment.data.source.paths().first().is_some_and(|(_, path)| !files::is_there(path)) {
            experiment.data.fitted = Some(fitted);
        }
        return;
    };
    let own = spec.class_names().unwrap_or_default();
    if own != *known && own.len() == known.len() && known.iter().all(|name| own.contains(name)) {
        let path = experiment.model.weights.as_deref().map(shown).unwrap_or_default();
        say(&format!("weights: the classes of the data are numbered as in `{}`: {}", path.display(), listed(known)));
        // A list of weights is in the order in which the configuration has its classes.
        if let Some(Some(ClassWeights::Numbers(weights))) = experiment.loss.class_weights()
            && weights.len() == own.len()
        {
            let of = |name: &String| own.iter().position(|own| own == name).map_or(1.0, |at| weights[at]);
            *weights = known.iter().map(of).collect();
        }
        experiment.data.fitted = Some(fitted);
    }
}

/// Reads a checkpoint with its configuration, that of a run's folder, or a configuration that names weights.
///
/// # Errors
/// The file cannot be read, is broken, or is a configuration without `[model] weights`.
pub fn load_model(path: &Path, sets: &[String]) -> Result<Model, Failure> {
    let model = load_any_model(path, sets)?;
    if model.checkpoint.is_none() && model.loaded.experiment.model.weights.is_none() {
        return Err(Failure::Usage(format!(
            "`{}` names no weights, and a model without them has learnt nothing\nhelp: give a checkpoint of a run instead, or set `[model] weights`",
            path.display()
        )));
    }
    Ok(model)
}

/// As [`load_model`]; a configuration need not name weights.
///
/// # Errors
/// The file cannot be read, or is broken.
pub fn load_any_model(path: &Path, sets: &[String]) -> Result<Model, Failure> {
    if path.extension().is_some_and(|e| e == "toml") {
        return Ok(Model { loaded: load_config(path, sets)?, checkpoint: None });
    }
    let path = &checkpoint_of(path)?;
    expect_checkpoint(path)?;
    let meta = checkpoint::verify(path).map_err(anyhow::Error::new)?;
    let mut loaded = config::load_effective(&carried_by(path), &meta.config, sets)?;
    if !sets.is_empty() {
        let own = config::load_effective(&carried_by(path), &meta.config, &[])?.experiment;
        expect_own_columns(&loaded.experiment, &own).map_err(|error| refuse(&loaded, error))?;
        let fitted = Extra::of(&meta).and_then(|extra| extra.fitted());
        expect_own_tokenizer(&loaded.experiment, &own, fitted.as_ref()).map_err(|error| refuse(&loaded, error))?;
        expect_own_tokens(&loaded.experiment, &own, fitted.as_ref()).map_err(|error| refuse(&loaded, error))?;
        if let Some(other) = other_mask_values(&loaded.experiment, &own) {
            say(&format!("warning: {other}"));
        }
    }
    hold(&mut loaded, &meta);
    Ok(Model { loaded, checkpoint: Some((path.clone(), meta)) })
}

/// Holds all data that is read for a configuration to what the training of a checkpoint has found on its own.
pub fn hold(loaded: &mut Loaded, meta: &Meta) {
    loaded.experiment.data.fitted = Extra::of(meta).and_then(|extra| extra.fitted());
}

/// What a sample looks like, as a checkpoint says; nothing if its version did not keep it.
pub fn kept_sample(meta: &Meta) -> Option<DataSpec> {
    Extra::of(meta)?.sample?.spec()
}

/// What messages call the configuration that a checkpoint carries.
pub fn carried_by(checkpoint: &Path) -> String {
    format!("the configuration in {}", checkpoint.display())
}

/// The device that the experiment asks for. Says so if it has not the precision that the experiment asks for.
///
/// # Errors
/// It is not there.
pub fn device(experiment: &Experiment, threads: Option<usize>) -> Result<Box<dyn Backend>, Failure> {
    Ok(usable(select(&Wanted::of(experiment, threads))?, experiment))
}

/// The same for a command that trains, which also says why it is not the device that would be preferred.
///
/// # Errors
/// As for [`device`].
pub fn training_device(experiment: &Experiment, threads: Option<usize>) -> Result<Box<dyn Backend>, Failure> {
    let selected = select(&Wanted::of(experiment, threads))?;
    if let Some(note) = &selected.note {
        say(note);
    }
    Ok(usable(selected, experiment))
}

fn usable(Selected { backend, .. }: Selected, experiment: &Experiment) -> Box<dyn Backend> {
    if let Some(note) = precision::note(experiment.precision, backend.as_ref()) {
        say(&format!("note: {note}"));
    }
    backend
}

/// Reports notes about how the device computes, such as another precision.
pub fn say_notes(backend: &dyn Backend) {
    backend.notes().iter().for_each(|note| say(note));
}

/// What the data looks like, without reading it.
///
/// # Errors
/// A file of tensors is not there or not right; the validation split leaves nothing.
pub fn describe_data(loaded: &Loaded) -> Result<DataSpec, Failure> {
    input::describe(&loaded.experiment).map_err(|error| refuse(loaded, error))
}

/// Does `work`, and says every second what the device takes so long for.
fn with_progress<T>(backend: &dyn Backend, work: impl FnOnce() -> T) -> T {
    if !backend.is_asynchronous() {
        return work();
    }
    std::thread::scope(|scope| {
        let (working, ended) = mpsc::channel::<()>();
        let listener = listener();
        let watch = move || {
            heard_by(listener, || {
                let mut shown = None;
                while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                    let progress = backend.progress();
                    if let Some(text) = progress.as_ref().filter(|_| progress != shown) {
                        say(text);
                    }
                    shown = progress;
                }
            })
        };
        // Without that thread there are no messages; the work is done all the same.
        let _ = std::thread::Builder::new().spawn_scoped(scope, watch);
        let done = work();
        drop(working);
        done
    })
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
    with_progress(backend, || programs::build(&loaded.experiment, data, sizes, backend, options))
        .map_err(|diagnostics| Failure::Config { sources: loaded.sources.clone(), diagnostics })
}

/// Builds the programs of a run on `data` and shows what is probably not meant, but for what is in `shown`. What an effective configuration says was shown
/// when its run was started.
///
/// # Errors
/// As [`build`]; `drop_last` leaves nothing to train on.
pub fn build_run(
    loaded: &Loaded,
    data: &DataSpec,
    backend: &dyn Backend,
    options: &PassOptions,
    shown: &[Diagnostic],
) -> Result<Programs, Failure> {
    let experiment = &loaded.experiment;
    lints::require_a_batch(experiment, data).map_err(|error| refuse(loaded, error))?;
    let programs = build(loaded, data, &Sizes::of_run(experiment, data), backend, options)?;
    let known = |warning: &Diagnostic| {
        warning.span().is_some_and(|s| loaded.sources.get(s.source).kind == SourceKind::Effective)
    };
    let new = programs.warnings.iter().filter(|warning| !shown.contains(warning) && !known(warning));
    let new: Vec<Diagnostic> = new.cloned().collect();
    warn(&loaded.sources, &new);
    Ok(programs)
}

/// The files that a configuration is written in, and those that it names.
pub fn read_files(loaded: &Loaded) -> Vec<PathBuf> {
    let sources = loaded.sources.iter().filter(|(_, source)| source.kind == SourceKind::File);
    let experiment = &loaded.experiment;
    let named = experiment.data.source.paths().into_iter().map(|(_, path)| path).chain(&experiment.model.weights);
    sources.map(|(_, source)| PathBuf::from(&source.name)).chain(named.cloned()).collect()
}

impl Model {
    /// The files that it is made of, and those that its configuration names.
    pub fn files(&self) -> Vec<PathBuf> {
        let checkpoint = self.checkpoint.iter().map(|(path, _)| path.clone());
        checkpoint.chain(read_files(&self.loaded)).collect()
    }

    /// A word on what it was trained on, if that is not the data that its configuration names.
    pub fn trained_on(&self) -> Option<String> {
        let (_, meta) = self.checkpoint.as_ref()?;
        let extra = Extra::of(meta)?;
        let source = self.loaded.experiment.data.source.type_name();
        extra.data_note.map(|_| format!("the model was trained on the bundled digits, not on {source}"))
    }

    /// A word on samples that are not those of its training though they are of the same source.
    pub fn other_data(&self, samples: &Samples) -> Option<String> {
        let (path, meta) = self.checkpoint.as_ref()?;
        // If the user names another source, the difference is no news.
        let own = config::load_effective(&carried_by(path), &meta.config, &[]).ok()?.experiment;
        if own.data.source.type_name() != self.loaded.experiment.data.source.type_name() {
            return None;
        }
        let extra = Extra::of(meta)?;
        let what = provenance::difference(&extra, samples)?;
        let held_out = provenance::held_out_anew(&self.loaded.experiment);
        Some(format!("the data is not that of the training: {what} differ{held_out}"))
    }

    /// By which figure, and on what, the checkpoint was chosen, if it is the `best` of its run.
    pub fn chosen(&self) -> Option<(Best, Validation)> {
        let (path, meta) =
            self.checkpoint.as_ref().filter(|(path, _)| path.file_name() == Some(file::BEST.as_ref()))?;
        // As it was then, whatever the command line says now.
        let own = config::load_effective(&carried_by(path), &meta.config, &[]).ok()?.experiment;
        let of_validation = own.checkpoint.monitor().of_validation();
        Some((meta.best.clone().filter(|_| of_validation)?, own.validation()))
    }

    /// The description of a sample, from the checkpoint where it has one, or of texts from the configuration, so that no file of data is needed.
    ///
    /// # Errors
    /// Neither has one, and the data's file cannot be read.
    pub fn sample(&self) -> Result<DataSpec, Failure> {
        let known = match &self.checkpoint {
            Some((_, meta)) => kept_sample(meta),
            None => text_without_reading(&self.loaded.experiment).map_err(|error| refused(&self.loaded, error))?,
        };
        known.map_or_else(|| describe_data(&self.loaded), Ok)
    }

    /// A session with the model's weights, for programs that do not train, on samples like `data`.
    ///
    /// # Errors
    /// The device has not enough memory; the weights do not fit.
    pub fn session(&self, programs: Programs, data: &DataSpec, backend: &dyn Backend) -> Result<Session, Failure> {
        let experiment = &self.loaded.experiment;
        if let Some((path, meta)) = &self.checkpoint {
            let mut session = Session::unset(programs, backend, crate::model::task(experiment))?;
            say_notes(backend);
            state::load_checkpoint(&mut session, meta, path, base_of(&self.loaded, path, meta)?, in_state_dict)?;
            return Ok(session);
        }
        let weights = read_weights(&self.loaded, &programs.plan.variables, data)?;
        let session = weights::session(weights, programs, backend, experiment)?;
        say_notes(backend);
        Ok(session)
    }
}

/// What the checkpoint at `path`, whose state is `meta`, leaves to the file that its training started from; `None` if it holds the whole
/// model.
///
/// # Errors
/// That file cannot be had or read, or is another one.
pub fn base_of(loaded: &Loaded, path: &Path, meta: &Meta) -> Result<Option<BTreeMap<String, Tensor>>, Failure> {
    let Some(base) = Base::of(meta) else { return Ok(None) };
    pretrained::fetch_missing(&loaded.experiment)?;
    base.read(&loaded.experiment, path).map(Some).map_err(|error| refuse(loaded, error))
}

/// Reads `[model] weights`, if there are any, for a model of these `variables` and samples like `data`, and reports what was done with them.
/// Those of a name are fetched.
///
/// # Errors
/// The file cannot be had or read, or does not fit.
pub fn read_weights(loaded: &Loaded, variables: &Variables, data: &DataSpec) -> Result<Option<Weights>, Failure> {
    pretrained::fetch_missing(&loaded.experiment)?;
    let weights = weights::read(&loaded.experiment, variables, data).map_err(|error| refuse(loaded, error))?;
    if let Some(weights) = &weights {
        for note in &weights.notes {
            say(&format!("weights: {note}"));
        }
        if let Some(left_out) = &weights.left_out {
            say(&format!("warning: {left_out}"));
        }
    }
    Ok(weights)
}
