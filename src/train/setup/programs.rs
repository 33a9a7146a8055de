//! The programs of an experiment: one for every kind of step and shape of batch, over one set of variables.

use super::averages::{average_graph, statistics_graph, take_averages};
use super::gradients::{self, GradientOf};
pub use super::kind::Kind;
use super::muon::Split;
use super::shards::evaluation_graphs;
use super::together::{self, OfShard};
use super::trained::{self, LayerRate, Phases};
use super::{lints, precision, recompute};
use crate::backend::{Backend, HostBuffer};
use crate::config::language::values::Precision;
use crate::config::{Diagnostic, Experiment};
use crate::data::{DataSpec, Field};
use crate::graph::op::{Figure, Loss};
use crate::graph::{DType, Graph, Input, ValueId, VarKind, Variables};
use crate::model::{self, BatchShape, Forward, LayerRow, Mode};
use crate::passes::rematerialize::Recompute;
use crate::passes::simplify::simplify;
use crate::passes::update::{shard_update_graph, update_graph};
use crate::passes::update_spec::UpdateSpec;
use crate::passes::{self, Device, Job, PassOptions, Purpose, Trained, Training};
use crate::plan::{Plan, SlotInput, Source};
use crate::shards::Shards;
use std::collections::HashMap;
use std::sync::Arc;

/// The programs to make: kinds with shapes of batches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Shapes of training batches; the largest first. Empty: no training.
    pub train: Vec<BatchShape>,
    /// Samples of the steps of training, of all ranks together, where shards of a step meet. Empty: a full one.
    pub steps: Vec<usize>,
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
        let train = |batch: usize| Sizes::of(batch, data.train, loading.drop_last);
        let steps = train(loading.batch_size).iter().map(|step| step.samples).collect();
        Sizes { train: train(experiment.micro_batch()), steps, eval, predict: Vec::new() }
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
    /// The names of the classes, where the source knows them.
    pub class_names: Vec<String>,
    /// What the model learns by.
    pub loss: Loss,
    /// Whether it learns what it is given, so that the data's targets do not matter.
    pub learns_inputs: bool,
    /// The figures that evaluation measures besides those that the loss comes with.
    pub asked: Vec<Figure>,
    /// What is probably not meant, if there are programs for training; without what `[lint]` allows.
    pub warnings: Vec<Diagnostic>,
    /// What `layer_decay` makes of the learning rates, the lowest layer first; empty without it.
    pub decays: Vec<LayerRate>,
    /// What Muon updates, if there is Muon.
    pub split: Option<Split>,
    /// Number of parameters that are frozen at first and trained later.
    pub thawed: usize,
    /// What programs of [`Kind::Gradients`] put out, by their numbers in the plan.
    pub gradients: HashMap<usize, Vec<GradientOf>>,
    /// The shards of a step, and how ranks have divided them, if a batch is cut into shards.
    pub shards: Option<Shards>,
    /// All shards that a rank has of a step are computed together: [`Kind::Train`] and [`Kind::TrainFrozen`] are for all samples that it has.
    pub together: bool,
}

impl Programs {
    /// The program of that kind for batches of that shape.
    pub fn find(&self, kind: Kind, batch: impl Into<BatchShape>) -> Option<usize> {
        let wanted = (kind, batch.into());
        self.kinds.iter().position(|k| *k == wanted)
    }

    /// The bytes of what is learnt of the first `samples` samples of a batch; empty where that is not in the batch, because
    /// the model learns what it is given.
    pub fn targets<'a>(&self, batch: &'a HostBuffer, samples: usize) -> &'a [u8] {
        let is = |at: &&SlotInput| match at.input {
            Input::Field(n) => self.fields.get(n as usize).is_some_and(Field::is_target),
            _ => false,
        };
        let Some(at) = self.plan.slot.inputs.iter().find(is).filter(|_| !self.learns_inputs) else { return &[] };
        let each = at.shape.len() / at.shape.dims()[0] * at.dtype.bytes();
        &batch.bytes()[at.offset..][..samples * each]
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
    let half = precision::half(precision, backend);
    let device = device(backend);
    let shards = shards(experiment, backend);
    let mut vars = Variables::new();
    let mut sources = Vec::new();
    let mut kinds = Vec::new();
    let mut rows = Vec::new();
    let mut phases: Option<Phases> = None;
    let mut sums = [None, None];
    let mut shard_sums = [None, None];
    let mut warnings = Vec::new();
    let together = shards.filter(|_| experiment.distributed.sync_batch_norm);
    let of_shard = sizes.train.first().map_or(1, |batch| batch.samples);
    let steps = if sizes.steps.is_empty() { vec![of_shard * experiment.shards()] } else { sizes.steps.clone() };
    let mut of_shards = Vec::new();
    for batch in &sizes.train {
        let forward = model::forward(experiment, data, &mut vars, *batch, Mode::Train)?;
        let phases = match &mut phases {
            Some(phases) => phases,
            none => none.insert(trained::phases(experiment, &mut vars, precision, &forward, (shards, rank(backend)))?),
        };
        if rows.is_empty() {
            lints::require_batch_norm(experiment, &forward.graph).map_err(|error| vec![error])?;
            rows = forward.rows.clone();
            warnings = model::lints(experiment, data, &forward);
            warnings.extend(lints::lints(experiment, data, &vars));
        }
        let again = recompute::layers(experiment, &forward.graph)?;
        let phases = in_phases(phases, TRAIN).zip(sums.iter_mut().zip(&mut shard_sums));
        for ((spec, kind, name), (sums, shard_sums)) in phases {
            let how = (half, &again);
            let (graph, trained) = train_graph(experiment, &mut vars, spec, &forward, how, (options, device))?;
            *sums = trained.sums.or(sums.take());
            *shard_sums = trained.shards.or(shard_sums.take());
            if let (Some(_), Some(sums)) = (together, &*shard_sums) {
                of_shards.push(OfShard { kind, name, batch: *batch, graph, own: sums.own.clone() });
                continue;
            }
            kinds.push((kind, *batch));
            let source = source(&format!("{name}, batch of {batch}"), graph, &forward);
            sources.push(Source { loss: Some(trained.loss), ..source });
        }
    }
    if let Some(shards) = together.filter(|_| !of_shards.is_empty()) {
        let steps = together::steps(&steps, of_shard, (shards, rank(backend)));
        for (kind, source) in together::join(&of_shards, &steps, &mut vars).map_err(|e| internal(&e))? {
            kinds.push(kind);
            sources.push(source);
        }
    }
    let of_updates = phases.iter().flat_map(|phases| in_phases(phases, UPDATE)).zip(sums.iter().zip(&shard_sums));
    for ((spec, kind, name), sums) in of_updates {
        let made = match sums {
            (Some(sums), _) => update_graph(&mut vars, spec, sums).map(|graph| (graph, None)),
            (None, Some(sums)) => shard_update_graph(&mut vars, spec, sums).map(|(graph, loss)| (graph, Some(loss))),
            (None, None) => continue,
        };
        let (mut graph, loss) = made.map_err(|e| internal(&e.to_string()))?;
        if options.wants("simplify") {
            simplify(&mut graph);
            crate::graph::verify(&graph).map_err(|e| internal(&e))?;
        }
        kinds.push((kind, 0.into()));
        sources.push(Source { name: name.into(), graph, loss, prediction: None });
    }
    let mut evaluations = vec![(Mode::Eval, Kind::Eval, &sizes.eval), (Mode::Predict, Kind::Predict, &sizes.predict)];
    let averages = phases.as_ref().filter(|phases| !phases.averaged.is_empty());
    if let Some(phases) = averages {
        let graph = average_graph(&mut vars, &phases.spec, &phases.averaged).map_err(|e| internal(&e.to_string()))?;
        kinds.push((Kind::Average, 0.into()));
        sources.push(Source { name: "average".into(), graph, loss: None, prediction: None });
        evaluations.push((Mode::Eval, Kind::EvalWeights, &sizes.eval));
    }
    if averages.is_some() || experiment.optimizer.rule.is_schedule_free() {
        let whole: Vec<BatchShape> = steps.iter().map(|samples| BatchShape::from(*samples)).collect();
        for batch in if together.is_some() { &whole } else { &sizes.train } {
            let forward = model::forward(experiment, data, &mut vars, *batch, Mode::Train)?;
            let Some(mut graph) = statistics_graph(&forward, &mut vars) else { break };
            let job = Job { device, half, training: None, options };
            job.run(&mut graph).map_err(|e| internal(&e))?;
            kinds.push((Kind::Statistics, *batch));
            let name = format!("statistics, batch of {batch}");
            sources.push(Source { name, graph, loss: None, prediction: None });
        }
    }
    let mut put_out = HashMap::new();
    if let Some(phases) = phases.as_ref().filter(|_| experiment.log.tensorboard) {
        let spec = gradients::of_a_batch(&phases.spec);
        for batch in &sizes.train {
            let forward = model::forward(experiment, data, &mut vars, *batch, Mode::Train)?;
            let graph = gradients::without_effects(&forward);
            let mut training = Training::new(&mut vars, &spec, loss_of(&forward)?, Purpose::Output);
            training.recompute = recompute::layers(experiment, &graph)?;
            let (graph, trained) = after_passes(graph, training, half, (options, device))?;
            put_out.insert(sources.len(), gradients::outputs(&trained, &spec));
            kinds.push((Kind::Gradients, *batch));
            let name = format!("gradients, batch of {batch}");
            sources.push(Source { name, graph, loss: None, prediction: None });
        }
    }
    for (mode, kind, list) in evaluations {
        for batch in list {
            let mut forward = model::forward(experiment, data, &mut vars, *batch, mode)?;
            if rows.is_empty() {
                rows = forward.rows.clone();
            }
            let mut graph = std::mem::take(&mut forward.graph);
            if kind != Kind::EvalWeights {
                take_averages(&mut graph, &vars);
            }
            let job = Job { device, half, training: None, options };
            job.run(&mut graph).map_err(|e| internal(&e))?;
            kinds.push((kind, *batch));
            let name = match kind {
                Kind::Predict => "predict",
                Kind::EvalWeights => "eval before averaging",
                _ => "eval",
            };
            sources.push(source(&format!("{name}, batch of {batch}"), graph, &forward));
        }
    }
    if let Some(shards) = shards.filter(|_| !sizes.eval.is_empty()) {
        let graphs = evaluation_graphs(&mut vars, shards).map_err(|e| internal(&e.to_string()))?;
        for (graph, (kind, name)) in graphs.into_iter().zip(EVALUATION) {
            kinds.push((kind, 0.into()));
            sources.push(Source { name: name.into(), graph, loss: None, prediction: None });
        }
    }
    if sizes.train.is_empty() {
        let errors = trained::freeze(experiment, &mut vars);
        if !errors.is_empty() {
            return Err(errors);
        }
    }
    let (decays, split, thawed) =
        phases.map_or((Vec::new(), None, 0), |phases| (phases.decays, phases.split, phases.thawed));
    let plan = Plan::laid_out(Arc::new(vars), sources, |g, n| backend.node_memory(g, n), !backend.shares_memory());
    let (fields, class_names) = (data.fields.clone(), data.class_names().map(<[String]>::to_vec).unwrap_or_default());
    let learns_inputs = experiment.loss.target().is_some();
    let warnings = experiment.lint.told(warnings);
    let (plan, loss, asked) = (Arc::new(plan), experiment.loss.describe(), experiment.asked_figures());
    Ok(Programs {
        plan,
        rows,
        precision,
        kinds,
        fields,
        class_names,
        loss,
        learns_inputs,
        asked,
        warnings,
        decays,
        split,
        thawed,
        gradients: put_out,
        shards,
        together: together.is_some(),
    })
}

/// The programs of a step in the phases of training: the kind and the name of that of the last phase, and of the one before, in
/// which parameters are frozen.
type InPhases = [(Kind, &'static str); 2];
const TRAIN: InPhases = [(Kind::Train, "train"), (Kind::TrainFrozen, "train while frozen")];
const EVALUATION: InPhases = [(Kind::EvalShard, "eval, end of a shard"), (Kind::EvalTotal, "eval, all shards")];
const UPDATE: InPhases = [(Kind::Update, "update"), (Kind::UpdateFrozen, "update while frozen")];

fn in_phases(phases: &Phases, kinds: InPhases) -> impl Iterator<Item = (&UpdateSpec, Kind, &'static str)> {
    let specs = std::iter::once(&phases.spec).chain(&phases.frozen);
    specs.zip(kinds).map(|(spec, (kind, name))| (spec, kind, name))
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
    let batch = experiment.micro_batch();
    let forward = model::forward(experiment, data, &mut vars, batch, Mode::Train)?;
    let precision = experiment.precision;
    let shards = (shards(experiment, backend), rank(backend));
    let spec = trained::phases(experiment, &mut vars, precision, &forward, shards)?.spec;
    let how = (precision::half_of(precision), &recompute::layers(experiment, &forward.graph)?);
    Ok(train_graph(experiment, &mut vars, &spec, &forward, how, (options, device(backend)))?.0)
}

/// The names of all passes and fusion patterns; only those that may be left out, if `optional`.
pub fn pass_names(optional: bool) -> Vec<&'static str> {
    // The patterns of GPUs have the same names.
    passes::names(&crate::backend::cpu::fusions::FUSIONS, optional)
}

/// The shards of a step, divided among all ranks of the backend.
fn shards(experiment: &Experiment, backend: &dyn Backend) -> Option<Shards> {
    let ranks = backend.team().map_or(1, |team| team.ranks());
    experiment.distributed.shards.map(|_| Shards { count: experiment.micro_batches(), ranks })
}

fn rank(backend: &dyn Backend) -> usize {
    backend.team().map_or(0, |team| team.rank())
}

fn device(backend: &dyn Backend) -> Device<'static> {
    Device {
        fusions: backend.fusions(),
        updates_apart: backend.updates_apart(),
        divides_batches: backend.divides_batches(),
    }
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
    (half, recompute): (Option<DType>, &Recompute),
    passes: (&PassOptions, Device),
) -> Result<(Graph, Trained), Vec<Diagnostic>> {
    let purpose = match (experiment.distributed.shards, experiment.train.accumulate) {
        (Some(_), _) => Purpose::Shards,
        (None, 1) => Purpose::Update,
        (None, _) => Purpose::Sum,
    };
    let mut training = Training::new(vars, spec, loss_of(forward)?, purpose);
    training.recompute = recompute.clone();
    after_passes(forward.graph.clone(), training, half, passes)
}

/// The loss that a forward graph of training has, and what its batch weighs.
fn loss_of(forward: &Forward) -> Result<[ValueId; 2], Vec<Diagnostic>> {
    let loss = forward.loss.ok_or_else(|| internal("a training graph without a loss"))?;
    Ok([loss.value, loss.weight])
}

/// Runs the passes on `graph`.
fn after_passes(
    mut graph: Graph,
    training: Training,
    half: Option<DType>,
    (options, device): (&PassOptions, Device),
) -> Result<(Graph, Trained), Vec<Diagnostic>> {
    let job = Job { device, half, training: Some(training), options };
    let trained = job.run(&mut graph).map_err(|e| internal(&e))?;
    Ok((graph, trained.ok_or_else(|| internal("a graph that is not trained"))?))
}
