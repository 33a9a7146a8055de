//! Programs of gradients that are looked at and not used.

use super::super::gradients::{of_a_batch, outputs, without_effects};
use super::super::kind::Kind;
use super::super::recompute;
use super::making::{Kinds, Making, loss_of};
use crate::config::Diagnostic;
use crate::model::{BatchShape, Mode};
use crate::passes::{Purpose, Training};

/// Of a batch of training.
pub const KINDS: Kinds = &[(Kind::Gradients, "gradients")];

/// Those of training, if event files show gradients.
pub fn batches(making: &Making) -> Vec<BatchShape> {
    let shown = making.phases.is_some() && making.experiment.log.tensorboard;
    if shown { making.sizes.train.clone() } else { Vec::new() }
}

/// The gradients of a batch.
pub fn look(making: &mut Making, kinds: Kinds, batch: BatchShape) -> Result<(), Vec<Diagnostic>> {
    let forward = making.forward(batch, Mode::Train)?;
    let Some(phases) = &making.phases else { return Ok(()) };
    let spec = of_a_batch(&phases.spec);
    let graph = without_effects(&forward);
    let recompute = recompute::layers(making.experiment, &graph)?;
    let passes = making.passes;
    let mut training = Training::new(&mut making.vars, &spec, loss_of(&forward)?, Purpose::Output);
    training.recompute = recompute;
    let (graph, trained) = passes.train(graph, training)?;
    let (kind, name) = kinds[0];
    making.gradients.insert(making.sources.len(), outputs(&trained, &spec));
    making.add_silent(kind, batch, format!("{name}, batch of {batch}"), graph);
    Ok(())
}
