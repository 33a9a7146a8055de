//! Programs that do not train: evaluation, also in shards, and prediction.

use super::super::averages::take_averages;
use super::super::kind::Kind;
use super::super::shards::evaluation_graphs;
use super::averages::has_mean;
use super::making::{Kinds, Making, internal, source};
use crate::config::Diagnostic;
use crate::model::{BatchShape, Mode};

/// Loss and figures, of averages where there are some.
pub const EVAL: Kinds = &[(Kind::Eval, "eval")];
/// The model's output alone.
pub const PREDICT: Kinds = &[(Kind::Predict, "predict")];
/// The model's output for tokens that follow others.
pub const GENERATE: Kinds = &[(Kind::Generate, "generate")];
/// Loss and figures of the weights themselves.
pub const EVAL_WEIGHTS: Kinds = &[(Kind::EvalWeights, "eval before averaging")];
/// The sums over shards.
pub const SHARDS: Kinds = &[(Kind::EvalShard, "eval, end of a shard"), (Kind::EvalTotal, "eval, all shards")];

/// All that are evaluated.
pub fn batches(making: &Making) -> Vec<BatchShape> {
    making.sizes.eval.clone()
}

/// All that are predicted.
pub fn batches_to_predict(making: &Making) -> Vec<BatchShape> {
    making.sizes.predict.clone()
}

/// All whose tokens follow others.
pub fn batches_to_go_on(making: &Making) -> Vec<BatchShape> {
    making.sizes.generate.clone()
}

/// Those that are evaluated, if there is a mean of weights later on.
pub fn before_averaging(making: &Making) -> Vec<BatchShape> {
    if has_mean(making) { making.sizes.eval.clone() } else { Vec::new() }
}

/// The model with averages in the place of what they are averages of.
pub fn of_averages(making: &mut Making, kinds: Kinds, batch: BatchShape) -> Result<(), Vec<Diagnostic>> {
    evaluate(making, kinds, batch, true)
}

/// The model with its weights.
pub fn of_weights(making: &mut Making, kinds: Kinds, batch: BatchShape) -> Result<(), Vec<Diagnostic>> {
    evaluate(making, kinds, batch, false)
}

fn evaluate(making: &mut Making, kinds: Kinds, batch: BatchShape, averages: bool) -> Result<(), Vec<Diagnostic>> {
    let (kind, name) = kinds[0];
    let mode = match kind {
        Kind::Predict => Mode::Predict,
        Kind::Generate => Mode::Generate,
        _ => Mode::Eval,
    };
    let mut forward = making.forward(batch, mode)?;
    if making.rows.is_empty() {
        making.rows.clone_from(&forward.rows);
    }
    let mut graph = std::mem::take(&mut forward.graph);
    if averages {
        take_averages(&mut graph, &making.vars);
    }
    making.passes.run(&mut graph)?;
    making.add(kind, batch, source(name, batch, graph, &forward));
    Ok(())
}

/// They read no batch.
pub fn in_shards(making: &Making) -> Vec<BatchShape> {
    let evaluates = making.shards.is_some() && !making.sizes.eval.is_empty();
    if evaluates { vec![0.into()] } else { Vec::new() }
}

/// The sums of a shard are taken into those over all shards, and these are made the evaluation's.
pub fn sums(making: &mut Making, kinds: Kinds, batch: BatchShape) -> Result<(), Vec<Diagnostic>> {
    let Some(shards) = making.shards else { return Ok(()) };
    let graphs = evaluation_graphs(&mut making.vars, shards).map_err(|e| internal(&e.to_string()))?;
    for (graph, (kind, name)) in graphs.into_iter().zip(kinds) {
        making.add_silent(*kind, batch, (*name).into(), graph);
    }
    Ok(())
}
