//! `[model] weights`: the file is read and held against the model before anything else is done, so that `check` says
//! what `train` would.

use super::adapters;
use super::state::Extra;
use super::tensors::{self, Base, Named};
use super::tied;
use crate::backend::Backend;
use crate::bulk::are_finite;
use crate::checkpoint::{self, Mismatch, Tensor};
use crate::config::language::sections::{Fitted, Lora};
use crate::config::load::paths::shown;
use crate::config::text::spelling::list;
use crate::config::{Diagnostic, Experiment};
use crate::data::text::{TextCodec, Tokenizer};
use crate::data::{DataSpec, FieldKind, listed};
use crate::graph::{DType, VarId, VarKind, Variable, Variables};
use crate::terminal::thousands;
use crate::train::setup::programs::Programs;
use crate::train::setup::session::Session;
use crate::train::setup::transfer::in_state_dict;
use anyhow::Result;
use std::collections::{BTreeSet, HashSet};
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

/// What the training has found on its data whose checkpoint `[model] weights` names; `None` if that is no checkpoint, or does not have it.
pub fn fitted(experiment: &Experiment) -> Option<Fitted> {
    let path = shown(experiment.model.weights.as_deref()?);
    Extra::of(&checkpoint::peek(&path).ok()?)?.fitted()
}

/// Reads the weights that a configuration names, for a model with the variables `vars` and samples like `data`; `None` if it names none.
///
/// # Errors
/// The file cannot be read, or does not fit; with the place in the configuration.
pub fn read(experiment: &Experiment, vars: &Variables, data: &DataSpec) -> Result<Option<Weights>, Diagnostic> {
    let model: Vec<(VarId, &Variable)> = vars.iter().filter(|(_, v)| in_state_dict(v)).collect();
    let names: Vec<&str> = model.iter().map(|(_, v)| v.name.as_str()).collect();
    let Some(named) = tensors::named(experiment, &names)? else { return Ok(None) };
    let Named { path, mut tensors, unread, narrow, are_adapters, mut notes } = named;
    let path = path.as_path();
    let at = |error: Diagnostic, label: &str| tensors::at(experiment, error, label);
    let strict = experiment.model.weights_strict;
    if let Some((layer, tie)) = tied::take_copies(experiment, &mut tensors).filter(|_| strict) {
        let error = Diagnostic::error(format!("the weights in `{}` do not fit the model", path.display()))
            .note(format!("`{layer}.weight` there is another matrix than `{tie}`, which `{layer}` takes by `tie`"))
            .help(format!("`tie = \"\"` gives `{layer}` a matrix of its own; `weights_strict = false` in `[model]` leaves that of the file out"));
        return Err(at(error, "a matrix besides"));
    }
    // Adapters are added to a model: a file need not have them.
    let own = |v: &Variable| !Lora::has(&v.name) || tensors.contains_key(&v.name);
    let names = model.iter().filter(|(_, v)| own(v)).map(|(_, v)| (v.name.as_str(), v.storage.outside.dims()));
    let mut matched = checkpoint::match_names(names, &tensors, strict).map_err(|mut mismatch| {
        mismatch.name_unread(&unread);
        if are_adapters {
            let error = Diagnostic::error(format!("the weights in `{}` are an adapter's", path.display()))
                .note("it has what LoRA adds to the weights of a model, and not these")
                .help(adapters::TO_MERGE);
            return at(error, "no weights of a whole model");
        }
        let fits = |v: &Variable| tensors.get(&v.name).is_some_and(|t| t.shape == v.storage.outside.dims());
        let fitting = model.iter().filter(|(_, v)| fits(v)).count();
        let last = vars.iter().filter(|(_, v)| v.kind == VarKind::Parameter).last().map(|(_, v)| layer(&v.name));
        let tokens = data.fields.iter().find_map(|field| match &field.kind {
            FieldKind::Tokens(tokens) => Some(tokens.number),
            _ => None,
        });
        at(misfit(path, &mismatch, (last, tokens), fitting, model.len()), &label(&mismatch))
    })?;
    matched.left_out.name_unread(&unread);
    if let Some(what) = other_tokens(experiment, data) {
        if strict {
            let error = Diagnostic::error(format!("the weights in `{}` are for other tokens", path.display()));
            let help =
                "name the tokenizer that they were trained with; `weights_strict = false` takes them all the same";
            return Err(at(error.note(what).help(help), "its tokens are others"));
        }
        notes.push(format!("they are for other tokens: {what}"));
    }
    let mut left_out: Vec<String> =
        Vec::from_iter((!matched.left_out.is_empty()).then(|| in_a_line(&matched.left_out)));
    let head = match other_classes(experiment, data) {
        None => BTreeSet::new(),
        Some(other) if strict => return Err(at(other.refuse(path, vars), "its classes are others")),
        Some(other) => {
            let head = other.head(vars);
            let head: BTreeSet<String> = head.into_iter().filter(|name| matched.names.contains(name)).collect();
            left_out.extend((!head.is_empty()).then(|| other.in_a_line(&head)));
            head
        }
    };
    let mut taken = Vec::with_capacity(matched.names.len());
    let is_taken = |name: &String| matched.names.contains(name) && !head.contains(name);
    for (id, var) in model.iter().filter(|(_, v)| is_taken(&v.name)) {
        let Some(tensor) = tensors.remove(&var.name) else { continue };
        let same = tensor.dtype == var.dtype;
        let tensor = if same { Ok(tensor) } else { tensor.cast(var.dtype) };
        let tensor = tensor.map_err(|e| {
            let e = e.named(narrow.get(&var.name).copied());
            let error = Diagnostic::error(format!("cannot take `{}` of `{}`: {e}", var.name, path.display()));
            let error = match var.dtype {
                DType::F32 => error.help("in PyTorch, `.float()` makes floats of it; weights that were quantised have a scale besides, by which they are multiplied"),
                _ => error,
            };
            at(error, "the file that `weights` names")
        })?;
        if var.kind == VarKind::Parameter && tensor.dtype == DType::F32 && !are_finite(&tensor.data) {
            let message = format!("`{}` in `{}` has numbers that are not finite, as NaN", var.name, path.display());
            let help =
                "the training that wrote the file had diverged: take an earlier checkpoint of it, or other weights";
            return Err(at(Diagnostic::error(message).help(help), "nothing can be learnt from it"));
        }
        taken.push((*id, tensor));
    }
    notes.push(format!("{} of the model's {} tensors are from `{}`", taken.len(), model.len(), path.display()));
    let left_out =
        (!left_out.is_empty()).then(|| format!("not all weights of `{}` fit: {}", path.display(), left_out.join("; ")));
    Ok(Some(Weights { tensors: taken, notes, left_out }))
}

/// Whether a checkpoint is of a text, and its tokens are not those of the tokenizer in the file `path`.
pub fn are_for_another_tokenizer(fitted: &Fitted, path: &Path) -> bool {
    let known = tokenizer_of(fitted);
    known.zip(Tokenizer::read(path).ok()).is_some_and(|(known, own)| known.differs_from(&own).is_some())
}

/// What a training on texts has found on them.
pub fn codec_of(fitted: &Fitted) -> Option<TextCodec> {
    let source = fitted.source.as_ref().filter(|source| TextCodec::is(source))?;
    TextCodec::read(source).ok()
}

/// The tokenizer of a training on texts.
pub fn tokenizer_of(fitted: &Fitted) -> Option<Tokenizer> {
    codec_of(fitted)?.tokenizer
}

/// What a token is for the weights and what for the data, where both are of a text and one is not the same.
fn other_tokens(experiment: &Experiment, data: &DataSpec) -> Option<String> {
    let own = TextCodec::of(data).ok()??.tokenizer?;
    let known = tokenizer_of(&fitted(experiment)?)?;
    let (count, token, [theirs, ours]) = known.differs_from(&own)?;
    let others = match count - 1 {
        0 => String::new(),
        1 => ", and another one differs".to_owned(),
        n => format!(", and {} others differ", thousands(n as u64)),
    };
    Some(format!("token {token} is {theirs:?} for the weights and {ours:?} for the data{others}"))
}

/// The classes that weights distinguish, and those of the data, where these are others.
struct OtherClasses {
    known: Vec<String>,
    own: Vec<String>,
}

/// Whether both the weights and the data have names of classes, and they are not the same.
fn other_classes(experiment: &Experiment, data: &DataSpec) -> Option<OtherClasses> {
    let (own, known) = (data.class_names()?.to_vec(), fitted(experiment)?.class_names?);
    (own != known).then_some(OtherClasses { known, own })
}

impl OtherClasses {
    /// The last layer with parameters, and the names of these, where it has a row for each class.
    fn head(&self, vars: &Variables) -> Vec<String> {
        let parameters = || vars.iter().map(|(_, var)| var).filter(|var| var.kind == VarKind::Parameter);
        let Some(last) = parameters().last().map(|var| layer(&var.name)) else { return Vec::new() };
        let head: Vec<&Variable> = parameters().filter(|var| layer(&var.name) == last).collect();
        let is_head = head.iter().all(|var| var.storage.outside.dims().first() == Some(&self.own.len()));
        if is_head { head.into_iter().map(|var| var.name.clone()).collect() } else { Vec::new() }
    }

    fn refuse(&self, path: &Path, vars: &Variables) -> Diagnostic {
        let anew = match self.head(vars).first() {
            Some(name) => format!("takes the rest, and `{}` starts anew", layer(name)),
            None => "takes all of them, whatever they tell apart".to_owned(),
        };
        Diagnostic::error(format!("the weights in `{}` are for other classes", path.display()))
            .note(format!("they tell {} apart, and the data has {}", listed(&self.known), listed(&self.own)))
            .help(format!(
                "`weights_strict = false` in `[model]` {anew}; if they are the same classes with other names, give those of the data the \
                 names that the weights know"
            ))
    }

    fn in_a_line(&self, head: &BTreeSet<String>) -> String {
        let names: Vec<String> = head.iter().map(|name| format!("`{name}`")).collect();
        format!(
            "{} for other classes ({}, and the data has {})",
            names.join(", "),
            listed(&self.known),
            listed(&self.own)
        )
    }
}

/// What was left out, in one line.
fn in_a_line(mismatch: &Mismatch) -> String {
    const SHOWN: usize = 4;
    let wrong: Vec<String> = mismatch.wrong_shape.iter().map(|(name, ..)| name.clone()).collect();
    let unread: Vec<String> = mismatch.unread.iter().map(|(name, _)| name.clone()).collect();
    let kinds = [
        (&unread, "in the file in a form that is not read"),
        (&wrong, "of another shape"),
        (&mismatch.missing, "not in the file"),
        (&mismatch.unexpected, "not in the model"),
    ];
    let parts = kinds.into_iter().filter(|(names, _)| !names.is_empty()).map(|(names, why)| {
        let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
        let first: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        format!("{}{more} {why}", first.join(", "))
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// The layer that a tensor is in.
fn layer(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(layer, _)| layer)
}

/// Whether a file's tensors and the model's differ in one layer of the model alone, `last`, in whose place the file may have another
/// one.
fn differs_in(mismatch: &Mismatch, last: &str) -> bool {
    let wrong = mismatch.wrong_shape.iter().map(|(name, ..)| name);
    let mut own = wrong.chain(&mismatch.missing);
    let others: BTreeSet<&str> = mismatch.unexpected.iter().map(|name| layer(name)).collect();
    let whole = format!("{last}.weight");
    own.clone().any(|name| *name == whole) && own.all(|name| layer(name) == last) && others.len() <= 1
}

/// The ending of a verb after those names.
fn third(names: &[&str]) -> &'static str {
    if names.len() == 1 { "s" } else { "" }
}

/// What a file lacks or has too much, in a few words.
fn label(mismatch: &Mismatch) -> String {
    match mismatch.len() {
        1 => "one tensor does not fit".into(),
        n => format!("{n} tensors do not fit"),
    }
}

/// The error for a file that has `fitting` of the `all` parameters and buffers of a model, whose `last` layer with parameters is
/// that; and which takes so many `tokens`, if it takes any.
fn misfit(
    path: &Path,
    mismatch: &Mismatch,
    (last, tokens): (Option<&str>, Option<usize>),
    fitting: usize,
    all: usize,
) -> Diagnostic {
    let error = Diagnostic::error(format!("the weights in `{}` do not fit the model", path.display()));
    let rows = mismatch.other_rows().filter(|(_, _, wanted)| tokens.is_some_and(|tokens| *wanted >= tokens));
    if let Some((names, has, wanted)) = rows {
        return error
            .note(format!("{mismatch}"))
            .note(format!("only {} differ{}: a vocabulary of {has} tokens instead of {wanted}", list(names.iter().copied(), "and"), third(&names)))
            .help(
                "take the tokenizer that the weights were trained with: name its file as `tokenizer` in `[data]`, or as `weights` a checkpoint \
                 of that training, which has it; `weights_strict = false` in `[model]` takes the rest, and what is of single tokens starts anew",
            );
    }
    if let Some((names, has, wanted)) = mismatch.other_classes() {
        let s = third(&names);
        let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        return error
            .note(format!("{mismatch}"))
            .note(format!(
                "only {} differ{s}: a head of another number of classes, {has} instead of {wanted}",
                names.join(", ")
            ))
            .help("`weights_strict = false` in `[model]` takes the rest");
    }
    let error = error.note(format!("{mismatch}"));
    if let Some((name, what)) = mismatch.unread.first() {
        return error.help(format!("`{name}` is {what}: {}", what.advice()));
    }
    if fitting == 0 {
        return error
            .help("nothing of the file fits: it is of another model, or its names begin otherwise; `weights_rename` in `[model]` changes names");
    }
    if let Some(last) = last.filter(|last| differs_in(mismatch, last)) {
        return error
            .note(format!("only the last layer, `{last}`, differs: the head of another task"))
            .help(format!("`weights_strict = false` in `[model]` takes the rest, and `{last}` starts anew"));
    }
    error.help(format!("`weights_strict = false` in `[model]` takes what fits: {fitting} of the model's {all} tensors"))
}

impl Weights {
    /// What goes where.
    pub fn into_tensors(self) -> Vec<(VarId, Tensor)> {
        self.tensors
    }

    /// What checkpoints leave to the file: the parameters of a model of these `variables` that its adapters are added to.
    pub fn base(&self, experiment: &Experiment, variables: &Variables) -> Option<Base> {
        experiment.model.lora.as_ref()?;
        let frozen = |id: VarId| variables[id].kind == VarKind::Parameter && !variables[id].trainable;
        let of_base = self.tensors.iter().filter(|(id, _)| frozen(*id));
        Base::new(of_base.map(|(id, tensor)| (variables[*id].name.as_str(), tensor)))
    }

    /// Puts them into a session of the same model. Each goes from memory when the device has it.
    fn put(self, session: &mut Session) -> Result<()> {
        self.tensors.into_iter().try_for_each(|(id, tensor)| session.restore(id, &tensor.data))?;
        session.begin_averages(|_| true)
    }
}

/// Compiles `programs` on `backend`. Variables have the values of `weights`, and all others their initial ones.
///
/// # Errors
/// The device has not enough memory, or failed.
pub fn session(
    weights: Option<Weights>,
    programs: Programs,
    backend: &dyn Backend,
    experiment: &Experiment,
) -> Result<Session> {
    let task = crate::model::task(experiment);
    let Some(weights) = weights else { return Session::new(programs, backend, task, experiment.seed) };
    let variables = &programs.plan.clone().variables;
    let taken: HashSet<&str> = weights.tensors.iter().map(|(id, _)| variables[*id].name.as_str()).collect();
    let mut session = Session::unset(programs, backend, task)?;
    // Drawing numbers for a large model takes seconds.
    session.initialize(experiment.seed, |var| !taken.contains(var.name.as_str()))?;
    weights.put(&mut session)?;
    Ok(session)
}
