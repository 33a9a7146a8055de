//! Which parameters are trained, with which options each, and from when on.

use super::adapters::{self, all_layers};
use super::depth::{LayerRate, Layers};
use super::muon::{Split, muon};
use super::patterns::no_match;
use crate::config::language::pattern::Pattern;
use crate::config::language::sections::{NoDecay, OptimizerRule};
use crate::config::language::values::Precision;
use crate::config::{Diagnostic, Experiment, LayerNode, Span};
use crate::graph::op::TensorOptions;
use crate::graph::{DType, VarId, VarKind, Variables};
use crate::model::Forward;
use crate::passes::update::GRAD_SCALER;
use crate::passes::update_spec::{ClipAdaptive, Division, UpdateSpec};
use crate::shards::Shards;
use std::collections::HashSet;

/// The updates of an experiment.
#[derive(Debug, Clone)]
pub struct Phases {
    /// Until the end.
    pub spec: UpdateSpec,
    /// Variables of which the mean at the ends of epochs is kept.
    pub averaged: Vec<VarId>,
    /// Before parameters are thawed, if that happens.
    pub frozen: Option<UpdateSpec>,
    /// Number of parameters that are frozen at first and trained later.
    pub thawed: usize,
    /// What `layer_decay` makes of the learning rates, the lowest layer first.
    pub decays: Vec<LayerRate>,
    /// What Muon updates, if there is Muon.
    pub split: Option<Split>,
}

/// Applies `freeze`, and gathers the optimizer's options of each parameter. `full` is the graph of a full batch.
///
/// # Errors
/// Patterns that name nothing; nothing is trained.
pub fn phases(
    experiment: &Experiment,
    vars: &mut Variables,
    precision: Precision,
    full: &Forward,
    (shards, rank): (Option<Shards>, usize),
) -> Result<Phases, Vec<Diagnostic>> {
    let mut errors = freeze(experiment, vars);
    let o = &experiment.optimizer;
    let names = parameters(vars);
    let all_names = || names.iter().map(|(_, name)| name.as_str());
    let layers = Layers::new(all_names());
    let decays = o.layer_decay.map_or_else(Vec::new, |decay| layers.rates(decay, all_names()));
    let (muon, split) = match &o.rule {
        OptimizerRule::Muon(options) => match muon(options, vars, &names) {
            Ok((muon, split)) => (Some(muon), Some(split)),
            Err(unfit) => {
                errors.extend(unfit);
                (None, None)
            }
        },
        _ => (None, None),
    };
    // What AdamW has of its own beside Muon.
    let rest = |id: &VarId| match &o.rule {
        OptimizerRule::Muon(options) if !muon.as_ref().is_some_and(|muon| muon.parameters.contains(id)) => {
            options.rest()
        }
        rule => [rule.lr(), rule.weight_decay()],
    };
    let norms: HashSet<&str> =
        full.rows.iter().filter(|row| row.kind.contains("norm")).map(|row| row.path.as_str()).collect();
    let options = |(id, name): &(VarId, String)| {
        let group = o.groups.iter().find(|g| g.patterns.iter().any(|p| p.matches(name)));
        let base = o.rule.lr();
        let [lr, decay] = rest(id);
        let share = decays.iter().find(|rate| rate.layer == layers.of(name)).map_or(1.0, |rate| rate.share);
        let share = if base != 0.0 { share * (lr / base) } else { share };
        // A base rate of zero leaves nothing to scale.
        let lr_scale = group.and_then(|g| g.lr).filter(|_| base != 0.0).map_or(share, |l| l / base) as f32;
        let without = o.no_decay.iter().any(|kind| match kind {
            NoDecay::Norm => norms.contains(vars[*id].origin.as_str()),
            NoDecay::Bias => name.ends_with("bias"),
        });
        let decay = if without { 0.0 } else { decay };
        let decay = group.and_then(|g| g.weight_decay).unwrap_or(decay);
        (*id, TensorOptions { lr_scale, weight_decay: decay as f32 })
    };
    let (tensors, frozen): (Vec<_>, Vec<_>) = names.iter().partition(|(id, _)| vars[*id].trainable);
    let [tensors, frozen] = [tensors, frozen].map(|list| list.into_iter().map(options).collect::<Vec<_>>());
    // Where adapters are wrong, that is why.
    if tensors.is_empty() && (errors.is_empty() || experiment.model.lora.is_none()) {
        errors.push(nothing_to_train(experiment, names.is_empty()));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let scaler = (precision == Precision::Fp16).then_some(GRAD_SCALER);
    let clip_norm = experiment.train.clip_grad_norm.map(|c| c as f32);
    let clip_value = experiment.train.clip_grad_value.map(|c| c as f32);
    let clip_adaptive = experiment.train.clip_grad_adaptive.map(|c| clip_adaptive(experiment, c, &names));
    let micro_batch = full.loss.filter(|_| experiment.updates_apart()).map(|loss| loss.items as f32);
    // Evaluation reads the average that is a part of the state without a schedule: all ranks have it.
    let divided = shards.filter(|shards| shards.ranks > 1 && !o.rule.is_schedule_free());
    let all = || tensors.iter().chain(&frozen).map(|(id, _)| *id);
    let algorithm = o.rule.describe();
    let by_parts = algorithm.is_elementwise() && muon.is_none() && clip_adaptive.is_none();
    let division = divided.map(|shards| match (rank, shards.ranks) {
        rank if by_parts => Division::by_parts(rank),
        rank => Division::by_parameters(vars, all(), rank),
    });
    let spec = UpdateSpec {
        algorithm,
        muon,
        clip_norm,
        clip_value,
        clip_adaptive,
        scaler,
        micro_batch,
        shards,
        sync_batch_norm: experiment.distributed.sync_batch_norm,
        division,
        averaged: averaged(experiment, vars, &tensors),
        tensors,
        thawed: Vec::new(),
    };
    let swa = experiment.optimizer.swa.is_some();
    let of = |list: &[(VarId, TensorOptions)]| list.iter().filter(|_| swa).map(|(id, _)| *id).collect();
    if experiment.model.thaw_after.is_none() {
        let averaged = of(&spec.tensors);
        return Ok(Phases { spec, averaged, frozen: None, thawed: 0, decays, split });
    }
    // They are trained in the end, and so count as trainable.
    frozen.iter().for_each(|(id, _)| vars.set_trainable(*id, true));
    let thawed = frozen.iter().map(|(id, _)| vars[*id].shape.len()).sum();
    let all: Vec<_> = spec.tensors.iter().chain(&frozen).copied().collect();
    let later = UpdateSpec { averaged: averaged(experiment, vars, &all), thawed: frozen, ..spec.clone() };
    Ok(Phases { spec: later, averaged: of(&all), frozen: Some(spec), thawed, decays, split })
}

/// Which gradients are clipped by the norms of their weights. The least norm of weights is that of the paper.
fn clip_adaptive(experiment: &Experiment, factor: f64, names: &[(VarId, String)]) -> ClipAdaptive {
    let patterns = || experiment.train.clip_grad_adaptive_except.iter().flatten();
    let except = names.iter().filter(|(_, name)| patterns().any(|pattern| pattern.matches(name)));
    ClipAdaptive { factor: factor as f32, eps: 1e-3, except: except.map(|(id, _)| *id).collect() }
}

/// The variables that change while these parameters are trained, of which averages are kept if they are asked for.
fn averaged(experiment: &Experiment, vars: &Variables, tensors: &[(VarId, TensorOptions)]) -> Vec<VarId> {
    if experiment.optimizer.ema.is_none() {
        return Vec::new();
    }
    let buffers = vars.iter().filter(|(_, v)| v.kind == VarKind::Buffer && v.dtype == DType::F32).map(|(id, _)| id);
    tensors.iter().map(|(id, _)| *id).chain(buffers).collect()
}

fn parameters(vars: &Variables) -> Vec<(VarId, String)> {
    vars.iter().filter(|(_, v)| v.kind == VarKind::Parameter).map(|(id, v)| (id, v.name.clone())).collect()
}

/// Marks the parameters that `freeze` names; reports patterns that name none.
pub fn freeze(experiment: &Experiment, vars: &mut Variables) -> Vec<Diagnostic> {
    let names = parameters(vars);
    let mut errors = unfitting(experiment, &names, &[]);
    if let Some(lora) = &experiment.model.lora {
        errors.extend(adapters::alone(&experiment.model, lora, &names, vars));
    }
    for pattern in &experiment.model.freeze {
        for (id, _) in names.iter().filter(|(_, n)| pattern.matches(n)) {
            vars.set_trainable(*id, false);
        }
    }
    errors
}

/// The patterns that name no parameter, and would not name one of the layers at the paths `unknown` either, of which it is not known what
/// parameters they have.
fn unfitting(experiment: &Experiment, names: &[(VarId, String)], unknown: &[&str]) -> Vec<Diagnostic> {
    let Experiment { model, optimizer, train, .. } = experiment;
    let rules = model.init.iter().flat_map(|rule| rule.keys.patterns.iter().flatten());
    let groups = optimizer.groups.iter().flat_map(|group| &group.patterns);
    let clipped = train.clip_grad_adaptive_except.iter().flatten();
    let all = (rules.chain(groups).map(|pattern| ("match", pattern)))
        .chain(model.freeze.iter().map(|pattern| ("freeze", pattern)))
        .chain(clipped.map(|pattern| ("clip_grad_adaptive_except", pattern)));
    let fits = |pattern: &Pattern| names.iter().any(|(_, name)| pattern.matches(name));
    let nothing = all.filter(|(_, pattern)| !fits(pattern) && !unknown.iter().any(|path| pattern.may_be_of(path)));
    let error = |(key, pattern)| no_match(pattern, names, key);
    match names {
        // They are those of layers that are not known.
        [] if !unknown.is_empty() => nothing.map(|unmatched| Diagnostic { help: None, ..error(unmatched) }).collect(),
        _ => nothing.map(error).collect(),
    }
}

/// What is wrong with a model of which no graph can be made: `errors` of its layers, and patterns that name no parameter of the others.
pub fn mistakes(experiment: &Experiment, vars: &Variables, mut errors: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let wrong = |node: &LayerNode| {
        let is_here = |span: Span| span == node.span || node.fields.values().any(|field| *field == span);
        node.doubtful || errors.iter().filter_map(Diagnostic::span).any(is_here)
    };
    let layers = all_layers(&experiment.model.layers);
    let unknown: Vec<&str> = layers.into_iter().filter(|node| wrong(node)).map(|node| &*node.path).collect();
    let patterns = unfitting(experiment, &parameters(vars), &unknown);
    errors.extend(patterns);
    errors
}

fn nothing_to_train(experiment: &Experiment, no_parameters: bool) -> Diagnostic {
    let error = Diagnostic::error("there is no parameter to train");
    let (key, label, help) = if no_parameters {
        ("model.layers", "no layer has parameters", "add a `linear` or a `conv2d`")
    } else {
        ("model.freeze", "freezes all parameters", "leave those out that are to be trained")
    };
    let error = error.help(help);
    match experiment.nearest_span(key) {
        Some(span) => error.at(span, label),
        None => error,
    }
}
