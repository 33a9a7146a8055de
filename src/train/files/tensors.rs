//! The tensors of the file that `[model] weights` names, by the model's own names; and those of them that a checkpoint with adapters
//! leaves to that file.

use super::adapters;
use super::folder::file;
use crate::checkpoint::{self, Choose, Loaded, Meta, Tensor, Unread};
use crate::config::load::paths::shown;
use crate::config::{self, Diagnostic, Experiment};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

/// Checkpoints with adapters that start from one another; more are a circle.
const MOST_BASES: usize = 16;

/// The tensors of a file of weights.
pub(super) struct Named {
    /// The file.
    pub path: PathBuf,
    /// By the names that the model has for them.
    pub tensors: BTreeMap<String, Tensor>,
    /// Tensors that are not read.
    pub unread: BTreeMap<String, Unread>,
    /// Of whole numbers whose type is another one in the file: PyTorch's name of that.
    pub narrow: BTreeMap<String, &'static str>,
    /// Whether they are adapters alone.
    pub are_adapters: bool,
    /// What was done to get at them, for the user to know.
    pub notes: Vec<String>,
}

/// The error at the key that names the file.
pub(super) fn at(experiment: &Experiment, error: Diagnostic, label: &str) -> Diagnostic {
    match experiment.nearest_span("model.weights") {
        Some(span) => error.at(span, label),
        None => error,
    }
}

/// Reads the file that `[model] weights` names, for a model whose tensors are `wanted`; `None` if it names none.
///
/// # Errors
/// It cannot be read; a rule of `weights_rename` fits nothing. With the place in the configuration.
pub(super) fn named(experiment: &Experiment, wanted: &[&str]) -> Result<Option<Named>, Diagnostic> {
    named_after(experiment, wanted, 0)
}

/// The same, after so many checkpoints whose base was asked for.
fn named_after(experiment: &Experiment, wanted: &[&str], bases: usize) -> Result<Option<Named>, Diagnostic> {
    let Some(path) = experiment.model.weights.as_deref().map(shown) else { return Ok(None) };
    let set: HashSet<&str> = wanted.iter().copied().collect();
    let rules = &experiment.model.weights_rename;
    let renamed = |name: &str| rules.iter().find_map(|rule| rule.apply(name)).unwrap_or_else(|| name.to_owned());
    let fits = |names: &[&str]| {
        let is_wanted = |name: &&&str| checkpoint::unwrapped(&renamed(name), |name| set.contains(name)).is_some();
        names.iter().filter(is_wanted).count()
    };
    let choose = Choose { key: experiment.model.weights_key.as_deref(), fits: Some(&fits) };
    let mut loaded = checkpoint::load_chosen(&path, &choose).map_err(|error| unreadable(experiment, &path, &error))?;
    complete(experiment, &path, &mut loaded, bases)?;
    let Loaded { mut tensors, unread, narrow, mut notes } = loaded;
    let own = |name: &str| {
        let name = renamed(name);
        checkpoint::unwrapped(&name, |name| set.contains(name)).map(str::to_owned).unwrap_or(name)
    };
    let strange: Vec<String> = unread.keys().cloned().collect();
    let unread = unread.into_iter().map(|(name, what)| (own(&name), what)).collect();
    let narrow = narrow.into_iter().map(|(name, dtype)| (own(&name), dtype)).collect();
    let are_adapters = adapters::are_alone(tensors.keys().map(String::as_str));
    notes.extend(rename(experiment, &path, &mut tensors, &strange)?);
    notes.extend(checkpoint::unwrap_names(wanted.iter().copied(), &mut tensors));
    Ok(Some(Named { path, tensors, unread, narrow, are_adapters, notes }))
}

fn unreadable(experiment: &Experiment, path: &Path, error: &checkpoint::CheckpointError) -> Diagnostic {
    let missing = error.is_missing();
    let error = Diagnostic::error(format!("cannot take the weights in `{}`: {}", path.display(), error.reason));
    let best = path.join(file::BEST);
    let error = match best.is_file() {
        true => error.help(format!("it is a run's: its best weights are in `{}`", best.display())),
        false => error,
    };
    at(experiment, error.missing(missing), "the file that `weights` names")
}

/// Adds what a checkpoint with adapters leaves to the file that its own training started from.
fn complete(experiment: &Experiment, path: &Path, loaded: &mut Loaded, bases: usize) -> Result<(), Diagnostic> {
    let Some((meta, base)) = checkpoint::peek(path).ok().and_then(|meta| Base::of(&meta).map(|base| (meta, base)))
    else {
        return Ok(());
    };
    let problem = |why: String| {
        let error = Diagnostic::error(format!("cannot take the weights in `{}`: {why}", path.display()));
        at(experiment, error, "a checkpoint that holds adapters, and not the weights that they are added to")
    };
    if bases == MOST_BASES {
        return Err(problem(format!("{MOST_BASES} checkpoints with adapters start from one another")));
    }
    let own = config::load_effective(&path.display().to_string(), &meta.config, &[])
        .map_err(|failure| problem(format!("the configuration in it: {failure}")))?;
    let tensors = base.read_after(&own.experiment, path, bases + 1).map_err(|error| {
        // The place is in a configuration that the user has not written.
        problem(error.message).missing(error.missing).help(format!(
            "`runner export {} FILE.safetensors` makes one file of both where the weights are; give that",
            path.display()
        ))
    })?;
    loaded.tensors.extend(tensors);
    Ok(())
}

/// The parameters that a checkpoint leaves to the file of `[model] weights`: adapters are added to them, and training does not change
/// them. As in PEFT, a checkpoint holds what was trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Base {
    /// The names of the parameters.
    names: BTreeSet<String>,
    /// The BLAKE3 digest of their names, shapes and values: the file may move, or come in another format, but not change.
    blake3: String,
}

impl Base {
    /// That of a checkpoint with this state; `None` if it holds the whole model.
    pub fn of(meta: &Meta) -> Option<Base> {
        serde_json::from_value(meta.extra.get("base")?.clone()).ok()
    }

    /// That of these parameters; `None` if there are none.
    pub fn new<'a>(tensors: impl Iterator<Item = (&'a str, &'a Tensor)>) -> Option<Base> {
        let tensors: BTreeMap<&str, &Tensor> = tensors.collect();
        let names: BTreeSet<String> = tensors.keys().map(|name| (*name).to_owned()).collect();
        (!names.is_empty()).then(|| Base { names, blake3: digest(&tensors) })
    }

    /// Whether a parameter is among them.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Reads them for a checkpoint at `path` with the configuration `experiment`.
    ///
    /// # Errors
    /// The file is not there, or has other values.
    pub fn read(&self, experiment: &Experiment, path: &Path) -> Result<BTreeMap<String, Tensor>, Diagnostic> {
        self.read_after(experiment, path, 0)
    }

    fn read_after(
        &self,
        experiment: &Experiment,
        path: &Path,
        bases: usize,
    ) -> Result<BTreeMap<String, Tensor>, Diagnostic> {
        const HELP: &str = "`--set model.weights=FILE` names the file where it is now, and `runner export` writes a file of the whole model";
        let wanted: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let holds = format!("`{}` holds adapters, and not the weights that they are added to", path.display());
        let named = match named_after(experiment, &wanted, bases) {
            Err(error) => return Err(error.note(holds).help(HELP)),
            Ok(None) => {
                let error = Diagnostic::error(holds).note("its configuration names no `[model] weights`");
                return Err(error.help(HELP));
            }
            Ok(Some(named)) => named,
        };
        let mut tensors = named.tensors;
        tensors.retain(|name, _| self.names.contains(name));
        let taken: BTreeMap<&str, &Tensor> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        if taken.len() < self.names.len() || digest(&taken) != self.blake3 {
            let error =
                Diagnostic::error(format!("the weights in `{}` are not those of the training", named.path.display()));
            let lacking = self.names.iter().find(|name| !tensors.contains_key(*name));
            let error = match lacking {
                Some(name) => error.note(format!("it has no `{name}`")),
                None => error.note("their values are others"),
            };
            return Err(at(experiment, error.note(holds).help(HELP), "the file that `weights` names"));
        }
        Ok(tensors)
    }
}

fn digest(tensors: &BTreeMap<&str, &Tensor>) -> String {
    let mut hash = blake3::Hasher::new();
    for (name, Tensor { dtype, shape, data }) in tensors {
        hash.update(format!("{name} {dtype:?} {shape:?} {}\n", data.len()).as_bytes());
        hash.update(data);
    }
    hash.finalize().to_hex().to_string()
}

/// Gives tensors the names that `weights_rename` says, of which some may be for those that are not read. What was done, for the user to know.
fn rename(
    experiment: &Experiment,
    path: &Path,
    tensors: &mut BTreeMap<String, Tensor>,
    unread: &[String],
) -> Result<Option<String>, Diagnostic> {
    let rules = &experiment.model.weights_rename;
    if rules.is_empty() {
        return Ok(None);
    }
    let at = |error: Diagnostic, rule: usize, label: &str| match experiment
        .nearest_span(&format!("model.weights_rename.{rule}.from"))
    {
        Some(span) => error.at(span, label),
        None => error,
    };
    let mut used = vec![0usize; rules.len()];
    let mut renamed: BTreeMap<String, Tensor> = BTreeMap::new();
    let names: Vec<String> = tensors.keys().take(4).cloned().collect();
    for (name, tensor) in std::mem::take(tensors) {
        let by = rules.iter().enumerate().find_map(|(i, rule)| Some((i, rule.apply(&name)?)));
        let new = by.as_ref().map_or(&name, |(_, new)| new);
        if let Some((i, _)) = &by {
            used[*i] += 1;
        }
        if renamed.contains_key(new) {
            let error = Diagnostic::error(format!(
                "`weights_rename` gives two tensors of `{}` the name `{new}`",
                path.display()
            ))
            .note(format!("`{name}` is the second of them"));
            return Err(at(error, by.map_or(0, |(i, _)| i), "two tensors cannot have one name"));
        }
        let new = by.map_or(name, |(_, new)| new);
        renamed.insert(new, tensor);
    }
    *tensors = renamed;
    let fits = |rule: usize| unread.iter().any(|name| rules[rule].apply(name).is_some());
    if let Some(unused) = (0..used.len()).find(|rule| used[*rule] == 0 && !fits(*rule)) {
        let names = names.join(", ");
        let error = Diagnostic::error(format!("a rule of `weights_rename` fits no tensor of `{}`", path.display()))
            .help(format!("the tensors are called {names}, …; the first rule that fits a name counts"));
        return Err(at(error, unused, "fits nothing"));
    }
    let all: usize = used.iter().sum();
    Ok(Some(format!("gave {all} tensor{} other names, as `weights_rename` says", if all == 1 { "" } else { "s" })))
}
