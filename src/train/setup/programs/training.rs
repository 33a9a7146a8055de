//! Programs of training: a step of a batch, or of all shards of it that a rank has.

use super::super::kind::Kind;
use super::super::together::{self, OfShard};
use super::super::{lints, recompute, trained};
use super::making::{Kinds, Making, in_phases, internal, source, train_graph};
use crate::config::Diagnostic;
use crate::model::{self, BatchShape, Mode};
use crate::plan::Source;

/// In the last phase of training, and before parameters are thawed.
pub const KINDS: Kinds = &[(Kind::Train, "train"), (Kind::TrainFrozen, "train while frozen")];

/// All that are trained on.
pub fn batches(making: &Making) -> Vec<BatchShape> {
    making.sizes.train.clone()
}

/// Forward, backward, and the update or the sums for it. Shards that are computed together are kept for [`join`].
pub fn step(making: &mut Making, kinds: Kinds, batch: BatchShape) -> Result<(), Vec<Diagnostic>> {
    let forward = making.forward(batch, Mode::Train)?;
    let (experiment, passes, together) = (making.experiment, making.passes, making.together());
    let phases = match making.phases.take() {
        Some(phases) => phases,
        None => {
            let divided = (making.shards, making.rank);
            trained::phases(experiment, &mut making.vars, making.precision, &forward, divided)?
        }
    };
    if making.rows.is_empty() {
        lints::require_batch_norm(experiment, &forward.graph).map_err(|error| vec![error])?;
        making.rows.clone_from(&forward.rows);
        making.warnings = model::lints(experiment, making.data, &forward);
        making.warnings.extend(lints::lints(experiment, making.data, &making.vars));
    }
    let again = recompute::layers(experiment, &forward.graph)?;
    for (phase, (spec, kind, name)) in in_phases(&phases, kinds).enumerate() {
        let (graph, trained) = train_graph(experiment, &mut making.vars, spec, &forward, &again, passes)?;
        let sums = &mut making.sums[phase];
        sums.of_batches = trained.sums.or(sums.of_batches.take());
        sums.of_shards = trained.shards.or(sums.of_shards.take());
        if let (Some(_), Some(sums)) = (together, &sums.of_shards) {
            making.of_shards.push(OfShard { kind, name, batch, graph, own: sums.own.clone() });
            continue;
        }
        making.add(kind, batch, Source { loss: Some(trained.loss), ..source(name, batch, graph, &forward) });
    }
    making.phases = Some(phases);
    Ok(())
}

/// One call makes all of them, if there are shards that are computed together.
pub fn joined(making: &Making) -> Vec<BatchShape> {
    if making.of_shards.is_empty() { Vec::new() } else { vec![0.into()] }
}

/// A program for all shards that this rank has of a step.
pub fn join(making: &mut Making, _: Kinds, _: BatchShape) -> Result<(), Vec<Diagnostic>> {
    let Some(shards) = making.together() else { return Ok(()) };
    let (steps, of_shard) = making.steps();
    let steps = together::steps(&steps, of_shard, (shards, making.rank));
    let joined = together::join(&making.of_shards, &steps, &mut making.vars).map_err(|e| internal(&e))?;
    for ((kind, batch), source) in joined {
        making.add(kind, batch, source);
    }
    Ok(())
}
