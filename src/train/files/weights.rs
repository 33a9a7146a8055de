//! `[model] weights`: the file is read and held against the model before anything else is done, so that `check` says
//! what `train` would.

use super::folder::file;
use crate::checkpoint::{self, Mismatch, Tensor};
use crate::config::load::paths::shown;
use crate::config::{Diagnostic, Experiment};
use crate::graph::{VarId, Variable, Variables};
use crate::train::setup::session::Session;
use crate::train::setup::transfer::in_state_dict;
use anyhow::Result;
use std::path::Path;

/// The parameters and buffers that a model starts from.
#[derive(Debug)]
pub struct Weights {
    /// What goes where.
    tensors: Vec<(VarId, Tensor)>,
    /// What was done to get at them, and what was left out, for the user to know.
    pub notes: Vec<String>,
    /// What did not fit, if that is allowed: the warning about it.
    pub left_out: Option<String>,
}

/// Reads the weights that a configuration names, for a model with the variables `vars`; `None` if it names none.
///
/// # Errors
/// The file cannot be read, or does not fit; with the place in the configuration.
pub fn read(experiment: &Experiment, vars: &Variables) -> Result<Option<Weights>, Diagnostic> {
    let Some(path) = experiment.model.weights.as_deref().map(shown) else { return Ok(None) };
    let path = path.as_path();
    let at = |error: Diagnostic, label: &str| match experiment.nearest_span("model.weights") {
        Some(span) => error.at(span, label),
        None => error,
    };
    let unreadable = |e: checkpoint::CheckpointError| {
        let error = Diagnostic::error(format!("cannot take the weights in `{}`: {}", path.display(), e.reason));
        let best = path.join(file::BEST);
        let error = match best.is_file() {
            true => error.help(format!("it is a run's: its best weights are in `{}`", best.display())),
            false => error,
        };
        at(error, "the file that `weights` names")
    };
    let checkpoint::Loaded { mut tensors, mut notes } = checkpoint::load_tensors(path).map_err(unreadable)?;
    let model: Vec<(VarId, &Variable)> = vars.iter().filter(|(_, v)| in_state_dict(v)).collect();
    notes.extend(checkpoint::unwrap_names(model.iter().map(|(_, v)| v.name.as_str()), &mut tensors));
    let names = model.iter().map(|(_, v)| (v.name.as_str(), v.storage.outside.dims()));
    let strict = experiment.model.weights_strict;
    let matched = checkpoint::match_names(names, &tensors, strict).map_err(|mismatch| {
        let fits = |v: &Variable| tensors.get(&v.name).is_some_and(|t| t.shape == v.storage.outside.dims());
        let fitting = model.iter().filter(|(_, v)| fits(v)).count();
        at(misfit(path, &mismatch, fitting, model.len()), &label(&mismatch))
    })?;
    let mut taken = Vec::with_capacity(matched.names.len());
    for (id, var) in model.iter().filter(|(_, v)| matched.names.contains(&v.name)) {
        let Some(tensor) = tensors.remove(&var.name) else { continue };
        if tensor.dtype == var.dtype {
            taken.push((*id, tensor));
            continue;
        }
        let tensor = tensor.cast(var.dtype).map_err(|e| {
            let error = Diagnostic::error(format!("cannot take `{}` of `{}`: {e}", var.name, path.display()));
            at(error, "the file that `weights` names")
        })?;
        taken.push((*id, tensor));
    }
    let left_out = (!matched.left_out.is_empty())
        .then(|| format!("not all weights of `{}` fit\n{}", path.display(), matched.left_out));
    Ok(Some(Weights { tensors: taken, notes, left_out }))
}

/// What a file lacks or has too much, in a few words.
fn label(mismatch: &Mismatch) -> String {
    match mismatch.len() {
        1 => "one tensor does not fit".into(),
        n => format!("{n} tensors do not fit"),
    }
}

/// The error for a file that has `fitting` of the `all` parameters and buffers of a model.
fn misfit(path: &Path, mismatch: &Mismatch, fitting: usize, all: usize) -> Diagnostic {
    let error = Diagnostic::error(format!("the weights in `{}` do not fit the model", path.display()));
    if let Some((names, has, wanted)) = mismatch.other_classes() {
        let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        let s = if names.len() == 1 { "s" } else { "" };
        return error
            .note(format!("{mismatch}"))
            .note(format!(
                "only {} differ{s}: a head of another number of classes, {has} instead of {wanted}",
                names.join(", ")
            ))
            .help("`weights_strict = false` in `[model]` takes the rest");
    }
    let error = error.note(format!("{mismatch}"));
    if fitting == 0 {
        return error.help("nothing of the file fits: it is of another model, or its names begin otherwise");
    }
    error.help(format!("`weights_strict = false` in `[model]` takes what fits: {fitting} of the model's {all} tensors"))
}

impl Weights {
    /// Puts them into a session of the same model. Each goes from memory when the device has it.
    ///
    /// # Errors
    /// The device failed.
    pub fn put(self, session: &mut Session) -> Result<()> {
        self.tensors.into_iter().try_for_each(|(id, tensor)| session.restore(id, &tensor.data))
    }
}
