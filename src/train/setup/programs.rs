//! The programs of an experiment: one for every kind of step and shape of batch, over one set of variables.

use super::{lints, precision};
use crate::backend::Backend;
use crate::config::language::pattern::Pattern;
use crate::config::language::values::Precision;
use crate::config::{Diagnostic, Experiment};
use crate::data::{DataSpec, Field};
use crate::graph::op::{Figure, TensorOptions};
use crate::graph::{Graph, VarId, VarKind, Variables};
use crate::model::{self, BatchShape, Forward, LayerRow, Mode};
use crate::passes::simplify::simplify;
use crate::passes::update::{GRAD_SCALER, UpdateSpec, update_graph};
use crate::passes::{self, Device, Job, PassOptions, Trained, Training};
use crate::plan::{Plan, Source};
use std::sync::Arc;

/// What a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Forward, backward, and the update (or, with accumulation, the sums for it).
    Train,
    /// The update from sums over micro-batches.
    Update,
    /// Loss and metrics.
    Eval,
    /// The model's output alone.
    Predict,
}

/// The programs to make: kinds with shapes of batches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Shapes of training batches; the largest first. Empty: no training.
    pub train: Vec<BatchShape>,
    /// Shapes of evaluation batches.
    pub eval: Vec<BatchShape>,
    /// Shapes of batches to predict.
    pub predict: Vec<BatchShape>,
}

impl Sizes {
    /// The batches that a run on `data` sees, in training and in evaluation.
    pub fn of_run(experiment: &Experiment, data: &DataSpec) -> Self {
        let loading = &experiment.data.loading;
        let eval = match data.val {
            Some(0) => Vec::new(),
            n => Sizes::of(loading.eval_batch_size(), n, false),
        };
        Sizes { train: Sizes::of(loading.batch_size, data.train, loading.drop_last), eval, predict: Vec::new() }
    }

    /// The sizes that batches of `batch` out of `samples` have; `samples` is not always known.
    pub fn of(batch: usize, samples: Option<usize>, drop_last: bool) -> Vec<BatchShape> {
        let Some(n) = samples else { return vec![batch.into()] };
        let rest = if drop_last { 0 } else { n % batch };
        [if n >= batch { batch } else { 0 }, rest].into_iter().filter(|s| *s > 0).map(BatchShape::from).collect()
    }
}

/// All programs of an experiment, planned.
#[derive(Debug)]
pub struct Programs {
    /// Memory and graphs.
    pub plan: Arc<Plan>,
    /// The layers, with shapes for the largest batch.
    pub rows: Vec<LayerRow>,
    /// What the programs compute in: what the experiment asks for, if the device has it.
    pub precision: Precision,
    /// Kind and shape of batches of each program of the plan, in its order. An update reads no batch: no samples.
    pub kinds: Vec<(Kind, BatchShape)>,
    /// The fields of a batch, by their numbers.
    pub fields: Vec<Field>,
    /// The figures of evaluation that come from counts of classes.
    pub counted: Vec<Figure>,
    /// What is probably not meant, if there are programs for training; without what `[lint]` allows.
    pub warnings: Vec<Diagnostic>,
}

impl Programs {
    /// The program of that kind for batches of that shape.
    pub fn find(&self, kind: Kind, batch: impl Into<BatchShape>) -> Option<usize> {
        let wanted = (kind, batch.into());
        self.kinds.iter().position(|k| *k == wanted)
    }

    /// Number of trainable and of all parameters.
    pub fn parameters(&self) -> (usize, usize) {
        let all = self.plan.variables.iter().filter(|(_, v)| v.kind == VarKind::Parameter);
        all.fold((0, 0), |(t, n), (_, v)| (t + v.trainable as usize * v.shape.len(), n + v.shape.len()))
    }
}

/// Builds, differentiates, optimises and plans everything that `sizes` asks for.
///
/// # Errors
/// Everything in the experiment that does not fit, with its place.
pub fn build(
    experiment: &Experiment,
    data: &DataSpec,
    sizes: &Sizes,
    backend: &dyn Backend,
    options: &PassOptions,
) -> Result<Programs, Vec<Diagnostic>> {
    let precision = precision::supported(experiment.precision, backend);
    let device = device(backend);
    let mut vars = Variables::new();
    let mut sources = Vec::new();
    let mut kinds = Vec::new();
    let mut rows = Vec::new();
    let mut spec = None;
    let mut sums = None;
    let mut warnings = Vec::new();
    for batch in &sizes.train {
        let forward = model::forward(experiment, data, &mut vars, *batch, Mode::Train)?;
        let spec = match &mut spec {
            Some(s) => s,
            none => none.insert(update_spec(experiment, &mut vars, precision, &forward)?),
        };
        if rows.is_empty() {
            rows = forward.rows.clone();
            warnings = model::lints(experiment, data, &forward);
            warnings.extend(lints::lints(experiment, data, &vars));
        }
        let (graph, trained) = train_graph(experiment, &mut vars, spec, &forward, precision, (options, device))?;
        sums = trained.sums.or(sums);
        kinds.push((Kind::Train, *batch));
        let source = source(&format!("train, batch of {batch}"), graph, &forward);
        sources.push(Source { loss: Some(trained.loss), ..source });
    }
    if let (Some(sums), Some(spec)) = (&sums, &spec) {
        let mut graph = update_graph(&mut vars, spec, sums).map_err(|e| internal(&e.to_string()))?;
        if options.wants("simplify") {
            simplify(&mut graph);
            crate::graph::verify(&graph).map_err(|e| internal(&e))?;
        }
        kinds.push((Kind::Update, 0.into()));
        sources.push(Source { name: "update".into(), graph, loss: None, prediction: None });
    }
    for (mode, kind, list) in [(Mode::Eval, Kind::Eval, &sizes.eval), (Mode::Predict, Kind::Predict, &sizes.predict)] {
        for batch in list {
            let mut forward = model::forward(experiment, data, &mut vars, *batch, mode)?;
            if rows.is_empty() {
                rows = forward.rows.clone();
            }
            let mut graph = std::mem::take(&mut forward.graph);
            let job = Job { device, half: precision::half(precision), training: None, options };
            job.run(&mut graph).map_err(|e| internal(&e))?;
            kinds.push((kind, *batch));
            let name = if kind == Kind::Eval { "eval" } else { "predict" };
            sources.push(source(&format!("{name}, batch of {batch}"), graph, &forward));
        }
    }
    if sizes.train.is_empty() {
        let errors = freeze(experiment, &mut vars);
        if !errors.is_empty() {
            return Err(errors);
        }
    }
    let plan = Plan::laid_out(Arc::new(vars), sources, |g, n| backend.workspace(g, n), !backend.shares_memory());
    let fields = data.fields.clone();
    Ok(Programs {
        plan: Arc::new(plan),
        rows,
        precision,
        kinds,
        fields,
        counted: experiment.counted_figures(),
        warnings: experiment.lint.told(warnings),
    })
}

/// The graph of the training step on `backend` after the passes that `options` lets run, but in the precision that the
/// experiment asks for, whatever the device: to look into a pass.
///
/// # Errors
/// As [`build()`].
pub fn graph_after(
    experiment: &Experiment,
    data: &DataSpec,
    backend: &dyn Backend,
    options: &PassOptions,
) -> Result<Graph, Vec<Diagnostic>> {
    let mut vars = Variables::new();
    let batch = experiment.data.loading.batch_size;
    let forward = model::forward(experiment, data, &mut vars, batch, Mode::Train)?;
    let precision = experiment.precision;
    let spec = update_spec(experiment, &mut vars, precision, &forward)?;
    Ok(train_graph(experiment, &mut vars, &spec, &forward, precision, (options, device(backend)))?.0)
}

/// The names of all passes and fusion patterns; only those that may be left out, if `optional`.
pub fn pass_names(optional: bool) -> Vec<&'static str> {
    // The patterns of GPUs have the same names.
    passes::names(&crate::backend::cpu::fusions::FUSIONS, optional)
}

fn device(backend: &dyn Backend) -> Device<'static> {
    Device { fusions: backend.fusions(), updates_apart: backend.updates_apart() }
}

fn source(name: &str, graph: Graph, forward: &Forward) -> Source {
    let loss = forward.loss.map(|loss| loss.value);
    Source { name: name.into(), graph, loss, prediction: Some(forward.prediction) }
}

/// A bug of this program, reported as an error rather than as a panic.
fn internal(message: &str) -> Vec<Diagnostic> {
    vec![Diagnostic::error(format!("internal error: {message}")).help("this is a bug of runner; please report it")]
}

fn train_graph(
    experiment: &Experiment,
    vars: &mut Variables,
    spec: &UpdateSpec,
    forward: &Forward,
    precision: Precision,
    (options, device): (&PassOptions, Device),
) -> Result<(Graph, Trained), Vec<Diagnostic>> {
    let mut graph = forward.graph.clone();
    let loss = forward.loss.ok_or_else(|| internal("a training graph without a loss"))?;
    let accumulate = experiment.train.accumulate > 1;
    let training = Some(Training::new(vars, spec, [loss.value, loss.weight], accumulate));
    let job = Job { device, half: precision::half(precision), training, options };
    let trained = job.run(&mut graph).map_err(|e| internal(&e))?;
    Ok((graph, trained.ok_or_else(|| internal("a graph that is not trained"))?))
}

/// Applies `freeze`, and gathers the optimizer's options of each parameter. `full` is the graph of a full batch.
fn update_spec(
    experiment: &Experiment,
    vars: &mut Variables,
    precision: Precision,
    full: &Forward,
) -> Result<UpdateSpec, Vec<Diagnostic>> {
    let mut errors = freeze(experiment, vars);
    let o = &experiment.optimizer;
    let names = parameters(vars);
    for pattern in o.groups.iter().flat_map(|g| &g.patterns) {
        if !names.iter().any(|(_, n)| pattern.matches(n)) {
            errors.push(no_match(pattern, &names, "match"));
        }
    }
    let tensors: Vec<(VarId, TensorOptions)> = names
        .iter()
        .filter(|(id, _)| vars[*id].trainable)
        .map(|(id, name)| {
            let group = o.groups.iter().find(|g| g.patterns.iter().any(|p| p.matches(name)));
            let lr = group.and_then(|g| g.lr);
            let base = o.rule.lr();
            // A base rate of zero leaves nothing to scale.
            let lr_scale = lr.filter(|_| base != 0.0).map_or(1.0, |l| l / base) as f32;
            let decay = group.and_then(|g| g.weight_decay).unwrap_or(o.rule.weight_decay());
            (*id, TensorOptions { lr_scale, weight_decay: decay as f32 })
        })
        .collect();
    if tensors.is_empty() {
        errors.push(nothing_to_train(experiment, names.is_empty()));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let algorithm = o.rule.describe();
    let scaler = (precision == Precision::Fp16).then_some(GRAD_SCALER);
    let clip_norm = experiment.train.clip_grad_norm.map(|c| c as f32);
    let micro_batch = full.loss.filter(|_| experiment.train.accumulate > 1).map(|loss| loss.items as f32);
    Ok(UpdateSpec { algorithm, clip_norm, scaler, micro_batch, tensors })
}

fn parameters(vars: &Variables) -> Vec<(VarId, String)> {
    vars.iter().filter(|(_, v)| v.kind == VarKind::Parameter).map(|(id, v)| (id, v.name.clone())).collect()
}

/// Marks the parameters that `freeze` names; reports patterns that name none.
fn freeze(experiment: &Experiment, vars: &mut Variables) -> Vec<Diagnostic> {
    let mut errors = Vec::new();
    let names = parameters(vars);
    for pattern in &experiment.model.freeze {
        let mut found = false;
        for (id, _) in names.iter().filter(|(_, n)| pattern.matches(n)) {
            vars.set_trainable(*id, false);
            found = true;
        }
        if !found {
            errors.push(no_match(pattern, &names, "freeze"));
        }
    }
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

/// The error for a pattern that fits no parameter's name.
fn no_match(pattern: &Pattern, names: &[(VarId, String)], key: &str) -> Diagnostic {
    let error =
        Diagnostic::error(format!("`{}` in `{key}` fits no parameter", pattern.text)).at(pattern.span, "fits nothing");
    // What could have been meant: a name, or all names that begin with the same layers.
    let groups = names.iter().flat_map(|(_, n)| n.match_indices('.').map(|(dot, _)| format!("{}.*", &n[..dot])));
    let similar = names
        .iter()
        .map(|(_, n)| n.clone())
        .chain(groups)
        .map(|n| (strsim::jaro_winkler(&pattern.text, &n), n))
        .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(&a.1)))
        .filter(|(score, _)| *score > 0.8);
    if let Some((_, name)) = similar {
        return error.help(format!("did you mean `{name}`?"));
    }
    let first: Vec<&str> = names.iter().take(4).map(|(_, n)| n.as_str()).collect();
    error.help(match names.len() {
        0 => "the model has no parameters".to_string(),
        1..=4 => format!("the parameters are called {}", first.join(", ")),
        _ => format!("parameters are called {}, …", first.join(", ")),
    })
}
