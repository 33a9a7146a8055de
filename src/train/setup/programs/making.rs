//! What the programs of an experiment are made of, and what has been made of them so far.

use super::super::gradients::GradientOf;
use super::super::kind::Kind;
use super::super::precision;
use super::super::together::OfShard;
use super::super::trained::{self, Phases};
use super::Sizes;
use crate::backend::Backend;
use crate::config::language::values::Precision;
use crate::config::{Diagnostic, Experiment};
use crate::data::DataSpec;
use crate::graph::{DType, Graph, ValueId, Variables};
use crate::model::{self, BatchShape, Forward, LayerRow, Mode};
use crate::passes::rematerialize::Recompute;
use crate::passes::shards::ShardSums;
use crate::passes::update::Accumulators;
use crate::passes::update_spec::UpdateSpec;
use crate::passes::{Device, Job, PassOptions, Purpose, Trained, Training};
use crate::plan::Source;
use crate::shards::Shards;
use std::collections::HashMap;

/// The kinds of a family with their names.
pub type Kinds = &'static [(Kind, &'static str)];

/// The kind and the name of the program of the last phase of training, and of the one before, in which parameters are frozen, with the update of each.
pub fn in_phases(phases: &Phases, kinds: Kinds) -> impl Iterator<Item = (&UpdateSpec, Kind, &'static str)> {
    let specs = std::iter::once(&phases.spec).chain(&phases.frozen);
    specs.zip(kinds).map(|(spec, (kind, name))| (spec, *kind, *name))
}

/// The sums that the update of a phase is made from, where it is a program of its own.
#[derive(Default)]
pub struct Sums {
    /// Over micro-batches.
    pub of_batches: Option<Accumulators>,
    /// Over shards.
    pub of_shards: Option<ShardSums>,
}

/// Programs while they are made.
pub struct Making<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Its data.
    pub data: &'a DataSpec,
    /// What is asked for.
    pub sizes: &'a Sizes,
    /// What they compute in.
    pub precision: Precision,
    /// The shards of a step, divided among all ranks.
    pub shards: Option<Shards>,
    /// Which of these this is.
    pub rank: usize,
    /// The variables of all of them.
    pub vars: Variables,
    /// Those that are made.
    pub sources: Vec<Source>,
    /// Their kinds and shapes.
    pub kinds: Vec<(Kind, BatchShape)>,
    /// The layers, as the first of them has them.
    pub rows: Vec<LayerRow>,
    /// How parameters are trained, once there is a graph of training.
    pub phases: Option<Phases>,
    /// What updates are made from, in the order of phases.
    pub sums: [Sums; 2],
    /// Shards that are to be computed together.
    pub of_shards: Vec<OfShard>,
    /// What is probably not meant.
    pub warnings: Vec<Diagnostic>,
    /// What programs of [`Kind::Gradients`] put out, by their numbers.
    pub gradients: HashMap<usize, Vec<GradientOf>>,
    /// What programs put out for heads, by their numbers.
    pub heads: HashMap<usize, Vec<ValueId>>,
    /// The passes, which can be run while something is borrowed.
    pub passes: Passes<'a>,
}

/// What passes do to a graph.
#[derive(Clone, Copy)]
pub struct Passes<'a> {
    device: Device<'static>,
    half: Option<DType>,
    options: &'a PassOptions,
}

impl<'a> Making<'a> {
    /// Nothing is made yet.
    pub fn new(
        experiment: &'a Experiment,
        data: &'a DataSpec,
        sizes: &'a Sizes,
        backend: &dyn Backend,
        options: &'a PassOptions,
    ) -> Self {
        let precision = precision::supported(experiment.precision, backend);
        let ranks = backend.team().map_or(1, |team| team.ranks());
        Making {
            experiment,
            data,
            sizes,
            precision,
            shards: experiment.distributed.shards.map(|_| Shards { count: experiment.micro_batches(), ranks }),
            rank: backend.team().map_or(0, |team| team.rank()),
            vars: Variables::new(),
            sources: Vec::new(),
            kinds: Vec::new(),
            rows: Vec::new(),
            phases: None,
            sums: Default::default(),
            of_shards: Vec::new(),
            warnings: Vec::new(),
            gradients: HashMap::new(),
            heads: HashMap::new(),
            passes: Passes::new(backend, precision::half(precision, backend), options),
        }
    }

    /// The shards of a step, if all that a rank has are computed together.
    pub fn together(&self) -> Option<Shards> {
        self.shards.filter(|_| self.experiment.distributed.sync_batch_norm)
    }

    /// The samples of the steps of training, of all ranks together, and those of a full shard.
    pub fn steps(&self) -> (Vec<usize>, usize) {
        let of_shard = self.sizes.train.first().map_or(1, |batch| batch.samples);
        let asked = &self.sizes.steps;
        let steps = if asked.is_empty() { vec![of_shard * self.experiment.shards()] } else { asked.clone() };
        (steps, of_shard)
    }

    /// The forward graph for batches of that shape.
    pub fn forward(&mut self, batch: BatchShape, mode: Mode) -> Result<Forward, Vec<Diagnostic>> {
        model::forward(self.experiment, self.data, &mut self.vars, batch, mode)
            .map_err(|errors| trained::mistakes(self.experiment, &self.vars, errors))
    }

    /// Takes a program in.
    pub fn add(&mut self, kind: Kind, batch: impl Into<BatchShape>, source: Source) {
        self.kinds.push((kind, batch.into()));
        self.sources.push(source);
    }

    /// Takes in one of which neither a loss nor a prediction is asked.
    pub fn add_silent(&mut self, kind: Kind, batch: BatchShape, name: String, graph: Graph) {
        self.add(kind, batch, Source { name, graph, loss: None, prediction: None });
    }
}

impl<'a> Passes<'a> {
    /// Those for a device, with 16-bit values of type `half`.
    pub fn new(backend: &dyn Backend, half: Option<DType>, options: &'a PassOptions) -> Self {
        let device = Device {
            fusions: backend.fusions(),
            updates_apart: backend.updates_apart(),
            divides_batches: backend.divides_batches(),
            narrows: backend.narrows(),
        };
        Passes { device, half, options }
    }

    /// Whether the pass of that name is to run.
    pub fn wants(&self, pass: &str) -> bool {
        self.options.wants(pass)
    }

    /// Runs them on a graph that is not trained.
    pub fn run(&self, graph: &mut Graph) -> Result<(), Vec<Diagnostic>> {
        let job = Job { device: self.device, half: self.half, training: None, options: self.options };
        job.run(graph).map(drop).map_err(|e| internal(&e))
    }

    /// Runs them on a graph that is.
    pub fn train(&self, mut graph: Graph, training: Training) -> Result<(Graph, Trained), Vec<Diagnostic>> {
        let job = Job { device: self.device, half: self.half, training: Some(training), options: self.options };
        let trained = job.run(&mut graph).map_err(|e| internal(&e))?;
        Ok((graph, trained.ok_or_else(|| internal("a graph that is not trained"))?))
    }
}

/// The graph of a training step after all passes.
pub fn train_graph(
    experiment: &Experiment,
    vars: &mut Variables,
    spec: &UpdateSpec,
    forward: &Forward,
    recompute: &Recompute,
    passes: Passes,
) -> Result<(Graph, Trained), Vec<Diagnostic>> {
    let purpose = match (experiment.distributed.shards, experiment.train.accumulate) {
        (Some(_), _) => Purpose::Shards,
        (None, 1) => Purpose::Update,
        (None, _) => Purpose::Sum,
    };
    let mut training = Training::new(vars, spec, loss_of(forward)?, purpose);
    training.recompute = recompute.clone();
    passes.train(forward.graph.clone(), training)
}

/// The loss that a forward graph of training has, and what its batch weighs.
pub fn loss_of(forward: &Forward) -> Result<[ValueId; 2], Vec<Diagnostic>> {
    let loss = forward.loss.ok_or_else(|| internal("a training graph without a loss"))?;
    Ok([loss.value, loss.weight])
}

/// A program as the plan takes it.
pub fn source(name: &str, batch: BatchShape, graph: Graph, forward: &Forward) -> Source {
    let loss = forward.loss.map(|loss| loss.value);
    Source { name: format!("{name}, batch of {batch}"), graph, loss, prediction: Some(forward.prediction) }
}

/// A bug of this program, reported as an error rather than as a panic.
pub fn internal(message: &str) -> Vec<Diagnostic> {
    vec![Diagnostic::error(format!("internal error: {message}")).help("this is a bug of runner; please report it")]
}
