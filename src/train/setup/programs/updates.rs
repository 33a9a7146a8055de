//! Programs of updates that are made from sums over micro-batches or shards.

use super::super::kind::Kind;
use super::making::{Kinds, Making, in_phases, internal};
use crate::config::Diagnostic;
use crate::graph::verify;
use crate::model::BatchShape;
use crate::passes::simplify::simplify;
use crate::passes::update::{shard_update_graph, update_graph};
use crate::plan::Source;

/// In the last phase of training, and before parameters are thawed.
pub const KINDS: Kinds = &[(Kind::Update, "update"), (Kind::UpdateFrozen, "update while frozen")];

/// It reads no batch.
pub fn after_training(making: &Making) -> Vec<BatchShape> {
    making.phases.iter().map(|_| 0.into()).collect()
}

/// The update of each phase that has sums.
pub fn update(making: &mut Making, kinds: Kinds, batch: BatchShape) -> Result<(), Vec<Diagnostic>> {
    let Some(phases) = making.phases.take() else { return Ok(()) };
    for (phase, (spec, kind, name)) in in_phases(&phases, kinds).enumerate() {
        let sums = &making.sums[phase];
        let made = match (&sums.of_batches, &sums.of_shards) {
            (Some(sums), _) => update_graph(&mut making.vars, spec, sums).map(|graph| (graph, None)),
            (None, Some(sums)) => {
                shard_update_graph(&mut making.vars, spec, sums).map(|(graph, loss)| (graph, Some(loss)))
            }
            (None, None) => continue,
        };
        let (mut graph, loss) = made.map_err(|e| internal(&e.to_string()))?;
        if making.passes.wants("simplify") {
            simplify(&mut graph);
            verify(&graph).map_err(|e| internal(&e))?;
        }
        making.add(kind, batch, Source { name: name.into(), graph, loss, prediction: None });
    }
    making.phases = Some(phases);
    Ok(())
}
