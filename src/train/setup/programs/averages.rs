//! Programs of averages of weights: the mean over epochs, and batch norm's statistics with averages.

use super::super::averages::{average_graph, statistics_graph};
use super::super::kind::Kind;
use super::making::{Kinds, Making, internal};
use crate::config::Diagnostic;
use crate::model::{BatchShape, Mode};

/// The mean over epochs.
pub const AVERAGE: Kinds = &[(Kind::Average, "average")];
/// The statistics.
pub const STATISTICS: Kinds = &[(Kind::Statistics, "statistics")];

/// Whether there is a mean over epochs.
pub fn has_mean(making: &Making) -> bool {
    making.phases.as_ref().is_some_and(|phases| !phases.averaged.is_empty())
}

/// It reads no batch.
pub fn at_ends_of_epochs(making: &Making) -> Vec<BatchShape> {
    if has_mean(making) { vec![0.into()] } else { Vec::new() }
}

/// The weights are taken into their mean.
pub fn average(making: &mut Making, kinds: Kinds, batch: BatchShape) -> Result<(), Vec<Diagnostic>> {
    let Some(phases) = &making.phases else { return Ok(()) };
    let graph = average_graph(&mut making.vars, &phases.spec, &phases.averaged);
    let graph = graph.map_err(|e| internal(&e.to_string()))?;
    let (kind, name) = kinds[0];
    making.add_silent(kind, batch, name.into(), graph);
    Ok(())
}

/// Those of training; whole steps, where their shards meet in batch norm.
pub fn batches(making: &Making) -> Vec<BatchShape> {
    match has_mean(making) || making.experiment.optimizer.rule.is_schedule_free() {
        true if making.together().is_some() => making.steps().0.into_iter().map(BatchShape::from).collect(),
        true => making.sizes.train.clone(),
        false => Vec::new(),
    }
}

/// Batch norm's statistics of a batch of training with averages of weights; none without batch norm.
pub fn statistics(making: &mut Making, kinds: Kinds, batch: BatchShape) -> Result<(), Vec<Diagnostic>> {
    let forward = making.forward(batch, Mode::Train)?;
    let Some(mut graph) = statistics_graph(&forward, &mut making.vars) else { return Ok(()) };
    making.passes.run(&mut graph)?;
    let (kind, name) = kinds[0];
    making.add_silent(kind, batch, format!("{name}, batch of {batch}"), graph);
    Ok(())
}
