//! The programs of an experiment: one for every kind of step and shape of batch, over one set of variables.

mod averages;
mod evaluation;
mod gradients;
mod making;
mod training;
mod updates;

use super::depth::LayerRate;
use super::gradients::GradientOf;
pub use super::kind::Kind;
use super::muon::Split;
use super::trained;
use super::{input, precision, recompute};
use crate::backend::{Backend, HostBuffer, pattern_names};
use crate::config::language::sections::Head;
use crate::config::language::values::Precision;
use crate::config::{Diagnostic, Experiment, Rest};
use crate::data::text::Spans;
use crate::data::{DataSpec, Field, Lengths, Role};
use crate::graph::op::{Figure, Loss, Task};
use crate::graph::{Graph, Input, ValueId, VarKind, Variables};
use crate::model::{self, BatchShape, LayerRow, Mode};
use crate::passes::{self, PassOptions};
use crate::plan::{Plan, SlotInput};
use crate::shards::Shards;
use making::{Kinds, Making, Passes, train_graph};
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
    /// Shapes of batches of tokens that follow others.
    pub generate: Vec<BatchShape>,
    /// Shapes of batches of answers that are written, which have the first length in common.
    pub answer: Vec<BatchShape>,
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
        let each = |sizes: Vec<BatchShape>| Sizes::of_lengths(sizes, &data.lengths);
        // Texts are written one at a time.
        let predict = experiment.writes_samples().then(|| 1.into()).into_iter().collect();
        Sizes { train: each(train(experiment.micro_batch())), steps, eval: each(eval), predict, ..Sizes::default() }
    }

    /// The same where batches differ in length: full ones of each, the longest first, and a last one of the longest.
    pub fn of_lengths(sizes: Vec<BatchShape>, lengths: &[Lengths]) -> Vec<BatchShape> {
        let Some(longest) = lengths.last() else { return sizes };
        let of = |batch: &BatchShape, lengths: Lengths| BatchShape { lengths, ..*batch };
        let shorter =
            sizes.first().into_iter().flat_map(|full| lengths.iter().rev().skip(1).map(|length| of(full, *length)));
        sizes.iter().map(|batch| of(batch, *longest)).chain(shorter).collect()
    }

    /// The sizes that batches of `batch` out of `samples` have; `samples` is not always known.
    pub fn of(batch: usize, samples: Option<usize>, drop_last: bool) -> Vec<BatchShape> {
        let Some(n) = samples else { return vec![batch.into()] };
        let rest = if drop_last { 0 } else { n % batch };
        [if n >= batch { batch } else { 0 }, rest].into_iter().filter(|s| *s > 0).map(BatchShape::from).collect()
    }
}

/// All programs of an experiment, planned.
#[derive(Debug, Clone)]
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
    /// The names of the classes or labels, where the source knows them.
    pub class_names: Vec<String>,
    /// What the model learns by.
    pub loss: Loss,
    /// What it learns beside its main target.
    pub heads: Vec<HeadOf>,
    /// What programs put out for those, by their numbers in the plan.
    pub head_outputs: HashMap<usize, Vec<ValueId>>,
    /// The quantiles of each target that it puts out, if there are several.
    pub quantiles: Vec<f64>,
    /// Bytes of a text that a target stands for, on average over the validation.
    pub bytes_per_token: Option<f64>,
    /// Whether it learns what it is given, so that the data's targets do not matter.
    pub learns_inputs: bool,
    /// What it learns are numbers that come after windows of series.
    pub forecasts_numbers: bool,
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

/// A head of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadOf {
    /// What it is called.
    pub name: String,
    /// What it learns by.
    pub loss: Loss,
    /// What its loss is multiplied by in the sum that training makes smaller.
    pub weight: f64,
}

impl HeadOf {
    /// Those of an experiment.
    pub fn all(experiment: &Experiment) -> Vec<HeadOf> {
        let of =
            |head: &Head| HeadOf { name: head.name().to_owned(), loss: head.loss.0.describe(), weight: head.weight };
        experiment.heads.iter().map(of).collect()
    }

    /// What it is measured by.
    pub fn task(&self) -> Task {
        self.loss.task()
    }
}

impl Programs {
    /// Whether the figure of the loss is the mean negative log-likelihood of the targets, all of which weigh the same.
    pub fn loss_is_likelihood(&self) -> bool {
        let weighs = self.fields.iter().any(|field| field.role == Role::Weight);
        self.loss.is_likelihood() && self.heads.is_empty() && !weighs
    }

    /// The fields that are learnt: the main target's, then those of heads.
    pub fn learnt(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| field.is_target())
    }

    /// The program of that kind for batches of that shape.
    pub fn find(&self, kind: Kind, batch: impl Into<BatchShape>) -> Option<usize> {
        let wanted = (kind, batch.into());
        self.kinds.iter().position(|k| *k == wanted)
    }

    /// The elements of a sample of an input, in a batch of these lengths.
    pub fn elements(&self, input: &SlotInput, lengths: Lengths) -> usize {
        let field = match input.input {
            Input::Field(n) => self.fields.get(n as usize).filter(|field| !field.lengths.is_empty()),
            _ => None,
        };
        match field {
            Some(field) => field.shape_of(lengths).len(),
            None => input.shape.len() / input.shape.dims().first().copied().unwrap_or(1).max(1),
        }
    }

    /// The bytes of what is learnt of the samples of a batch; empty where that is not in the batch, because the model learns what it is given.
    pub fn targets<'a>(&self, batch: &'a HostBuffer, shape: BatchShape) -> &'a [u8] {
        self.targets_of(0, batch, shape)
    }

    /// The same of the main target, 0, or of a head, whose numbers are from 1.
    pub fn targets_of<'a>(&self, number: usize, batch: &'a HostBuffer, shape: BatchShape) -> &'a [u8] {
        let mut targets = self.fields.iter().enumerate().filter(|(_, field)| field.is_target());
        let target = targets.nth(number).map(|(number, _)| Input::Field(number as u32));
        let is = |at: &&SlotInput| Some(at.input) == target;
        let there = |_: &&SlotInput| number > 0 || !self.learns_inputs;
        let Some(at) = self.plan.slot.inputs.iter().find(is).filter(there) else { return &[] };
        let each = self.elements(at, shape.lengths) * at.dtype.bytes();
        &batch.bytes()[at.offset..][..shape.samples * each]
    }

    /// The floats that say what the samples of a batch weigh; empty where all weigh the same.
    pub fn sample_weights<'a>(&self, batch: &'a HostBuffer, shape: BatchShape) -> &'a [[u8; 4]] {
        let weight = self.fields.iter().position(|field| field.role == Role::Weight);
        let place = weight.and_then(|number| self.plan.slot.find(Input::Field(number as u32)));
        place.map_or(&[], |at| &batch.bytes()[at.offset..].as_chunks().0[..shape.samples])
    }

    /// Number of trainable and of all parameters.
    pub fn parameters(&self) -> (usize, usize) {
        let all = self.plan.variables.iter().filter(|(_, v)| v.kind == VarKind::Parameter);
        all.fold((0, 0), |(t, n), (_, v)| (t + v.trainable as usize * v.shape.len(), n + v.shape.len()))
    }
}

/// How the programs of a family are made.
struct Recipe {
    /// Kinds of programs, with their names in listings.
    kinds: &'static [(Kind, &'static str)],
    /// The shapes of batches that there are programs for; one without samples for those that read no batch; none if there are no such programs.
    shapes: fn(&Making) -> Vec<BatchShape>,
    /// Makes those for batches of a shape.
    make: fn(&mut Making, Kinds, BatchShape) -> Result<(), Vec<Diagnostic>>,
}

/// In the order in which programs stand in the plan. Some need what earlier ones have found: phases of training, sums, variables.
#[rustfmt::skip]
const RECIPES: [Recipe; 14] = [
    Recipe { kinds: training::KINDS, shapes: training::batches, make: training::step },
    Recipe { kinds: training::KINDS, shapes: training::joined, make: training::join },
    Recipe { kinds: updates::KINDS, shapes: updates::after_training, make: updates::update },
    Recipe { kinds: averages::AVERAGE, shapes: averages::at_ends_of_epochs, make: averages::average },
    Recipe { kinds: averages::STATISTICS, shapes: averages::batches, make: averages::statistics },
    Recipe { kinds: gradients::KINDS, shapes: gradients::batches, make: gradients::look },
    Recipe { kinds: evaluation::EVAL, shapes: evaluation::batches, make: evaluation::of_averages },
    Recipe { kinds: evaluation::PREDICT, shapes: evaluation::batches_to_predict, make: evaluation::of_averages },
    Recipe { kinds: evaluation::GENERATE, shapes: evaluation::batches_to_go_on, make: evaluation::of_averages },
    Recipe { kinds: evaluation::ENCODE, shapes: evaluation::batches_to_answer, make: evaluation::encode },
    Recipe { kinds: evaluation::DECODE, shapes: evaluation::batches_of_answers, make: evaluation::decode },
    Recipe { kinds: evaluation::EVAL_WEIGHTS, shapes: evaluation::before_averaging, make: evaluation::of_weights },
    Recipe {
        kinds: evaluation::PREDICT_WEIGHTS,
        shapes: evaluation::to_predict_before_averaging,
        make: evaluation::of_weights,
    },
    Recipe { kinds: evaluation::SHARDS, shapes: evaluation::in_shards, make: evaluation::sums },
];

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
    let mut making = Making::new(experiment, data, sizes, backend, options);
    for recipe in &RECIPES {
        for batch in (recipe.shapes)(&making) {
            (recipe.make)(&mut making, recipe.kinds, batch)?;
        }
    }
    let Making { mut vars, sources, kinds, rows, warnings, gradients, heads, phases, precision, shards, .. } = making;
    if sizes.train.is_empty() {
        let errors = trained::freeze(experiment, &mut vars);
        if !errors.is_empty() {
            return Err(errors);
        }
    }
    let (decays, split, thawed) =
        phases.map_or((Vec::new(), None, 0), |phases| (phases.decays, phases.split, phases.thawed));
    let plan = Plan::laid_out(Arc::new(vars), sources, |g, n| backend.node_memory(g, n), !backend.shares_memory());
    Ok(Programs {
        plan: Arc::new(plan),
        rows,
        precision,
        kinds,
        fields: data.fields.clone(),
        class_names: data.label_names().map(<[String]>::to_vec).unwrap_or_default(),
        loss: experiment.engine_loss(),
        heads: HeadOf::all(experiment),
        head_outputs: heads,
        quantiles: experiment.loss.quantiles().to_vec(),
        bytes_per_token: data.bytes_per_token,
        learns_inputs: experiment.loss.target().is_some(),
        forecasts_numbers: experiment.forecasts_numbers(),
        asked: asked_figures(experiment, data),
        warnings: experiment.lint.without_allowed(warnings),
        decays,
        split,
        thawed,
        gradients,
        shards,
        together: shards.is_some() && experiment.distributed.sync_batch_norm,
    })
}

/// What else is wrong with a configuration that has mistakes: data that cannot be described, layers that do not fit each other or the data,
/// patterns that name no parameter.
pub fn mistakes(Rest { experiment, loss, learns, .. }: &Rest) -> Vec<Diagnostic> {
    let mut experiment = experiment.clone();
    if !learns {
        experiment.heads.clear();
    }
    let data = match input::describe(&experiment) {
        Ok(data) => data,
        Err(error) => return vec![error],
    };
    let mode = match (learns, loss) {
        (true, _) => Mode::Train,
        (false, true) => Mode::Eval,
        (false, false) => Mode::Predict,
    };
    let mut vars = Variables::new();
    let batch = Sizes::of_lengths(vec![experiment.micro_batch().into()], &data.lengths)[0];
    let errors = model::forward(&experiment, &data, &mut vars, batch, mode).err().unwrap_or_default();
    trained::mistakes(&experiment, &vars, errors)
}

/// The figures that are asked for and, where tags make spans, those of spans. Bits a byte are left out where the text did not say how many bytes a token has, unless
/// they are named.
fn asked_figures(experiment: &Experiment, data: &DataSpec) -> Vec<Figure> {
    let (asked, spans) = (experiment.asked_figures(), Spans::of_target(data).is_some());
    let all = experiment.loss.describe().task().asked_figures().iter().copied();
    let known = data.bytes_per_token.is_some() || experiment.named_figures().contains(&Figure::BitsPerByte);
    let is_known = |figure: &Figure| *figure != Figure::BitsPerByte || known;
    all.filter(|figure| asked.contains(figure) && is_known(figure) || spans && figure.is_of_spans()).collect()
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
    let sizes = Sizes { train: vec![experiment.micro_batch().into()], ..Sizes::default() };
    let mut making = Making::new(experiment, data, &sizes, backend, options);
    let forward = making.forward(sizes.train[0], Mode::Train)?;
    let (precision, divided) = (experiment.precision, (making.shards, making.rank));
    let spec = trained::phases(experiment, &mut making.vars, precision, &forward, divided)?.spec;
    let again = recompute::layers(experiment, &forward.graph)?;
    let passes = Passes::new(backend, precision::half_of(precision), options);
    Ok(train_graph(experiment, &mut making.vars, &spec, &forward, &again, passes)?.0)
}

/// The names of all passes and fusion patterns; only those that may be left out, if `optional`.
pub fn pass_names(optional: bool) -> Vec<&'static str> {
    passes::names(&pattern_names(), optional)
}
