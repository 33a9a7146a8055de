//! Programs that do not train: evaluation, also in shards, and prediction.

use super::super::averages::take_averages;
use super::super::halves;
use super::super::kind::Kind;
use super::super::shards::evaluation_graphs;
use super::averages::has_mean;
use super::making::{Kinds, Making, internal, source};
use crate::config::Diagnostic;
use crate::data::{ANSWERS, Field};
use crate::graph::Input;
use crate::model::{BatchShape, Forward, Mode, PARENTS, POSITIONS, START};

/// Loss and figures, of averages where there are some.
pub const EVAL: Kinds = &[(Kind::Eval, "eval")];
/// The model's output alone.
pub const PREDICT: Kinds = &[(Kind::Predict, "predict")];
/// The model's output for tokens that follow others.
pub const GENERATE: Kinds = &[(Kind::Generate, "generate")];
/// What a model of two sequences makes of the first.
pub const ENCODE: Kinds = &[(Kind::Encode, "encode")];
/// Its output for the second.
pub const DECODE: Kinds = &[(Kind::Decode, "decode")];
/// Loss and figures of the weights themselves.
pub const EVAL_WEIGHTS: Kinds = &[(Kind::EvalWeights, "eval before averaging")];
/// The output of the weights themselves.
pub const PREDICT_WEIGHTS: Kinds = &[(Kind::PredictWeights, "predict before averaging")];
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

/// Those of texts that are answered: with the longest answers, on which nothing of it depends.
pub fn batches_to_answer(making: &Making) -> Vec<BatchShape> {
    making.sizes.answer.first().copied().into_iter().collect()
}

/// Those of answers.
pub fn batches_of_answers(making: &Making) -> Vec<BatchShape> {
    making.sizes.answer.clone()
}

/// Those that are evaluated, if there is a mean of weights later on.
pub fn before_averaging(making: &Making) -> Vec<BatchShape> {
    if has_mean(making) { making.sizes.eval.clone() } else { Vec::new() }
}

/// Those that are predicted, if there is a mean of weights later on.
pub fn to_predict_before_averaging(making: &Making) -> Vec<BatchShape> {
    if has_mean(making) { making.sizes.predict.clone() } else { Vec::new() }
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
        Kind::Predict | Kind::PredictWeights => Mode::Predict,
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
    making.heads.insert(making.sources.len(), forward.heads.clone());
    making.add(kind, batch, source(name, batch, graph, &forward));
    Ok(())
}

/// The part of a model of two sequences that does not depend on the second.
pub fn encode(making: &mut Making, kinds: Kinds, batch: BatchShape) -> Result<(), Vec<Diagnostic>> {
    let (forward, second) = whole(making, batch)?;
    let mut graph = halves::first(forward.graph, &mut making.vars, &second).map_err(|e| internal(&e.to_string()))?;
    making.passes.run(&mut graph)?;
    let (kind, name) = kinds[0];
    making.add_silent(kind, batch, format!("{name}, batch of {batch}"), graph);
    Ok(())
}

/// The part that does.
pub fn decode(making: &mut Making, kinds: Kinds, batch: BatchShape) -> Result<(), Vec<Diagnostic>> {
    let (mut forward, second) = whole(making, batch)?;
    let graph = std::mem::take(&mut forward.graph);
    let mut graph = halves::second(graph, &mut making.vars, &second, forward.prediction);
    making.passes.run(&mut graph)?;
    let (kind, name) = kinds[0];
    making.add(kind, batch, source(name, batch, graph, &forward));
    Ok(())
}

/// A model of two sequences, with averages where there are some; and the second sequence with what batches say of it.
fn whole(making: &mut Making, batch: BatchShape) -> Result<(Forward, Vec<Input>), Vec<Diagnostic>> {
    let of_answers = |field: &Field| [ANSWERS, POSITIONS, START, PARENTS].contains(&field.name.as_str());
    let second: Vec<Input> =
        making.data.inputs().filter(|(_, field)| of_answers(field)).map(|(place, _)| place).collect();
    if second.is_empty() {
        return Err(internal("answers to texts that have none"));
    }
    // Where batches say how many tokens of an answer there are already, these are kept.
    let goes_on = making.data.inputs().any(|(_, field)| field.name == START);
    let mut forward = making.forward(batch, if goes_on { Mode::Answer } else { Mode::Predict })?;
    if making.rows.is_empty() {
        making.rows.clone_from(&forward.rows);
    }
    take_averages(&mut forward.graph, &making.vars);
    Ok((forward, second))
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
