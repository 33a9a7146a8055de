//! The passes, which turn the graph of a model's forward pass into the graph of a whole training step for a device.
//!
//! A pass is a function that rewrites a [`crate::graph::Graph`]. Passes run in the order of [`PIPELINE`], and the graph is
//! verified after each.

mod adafactor;
pub mod edit;
pub mod fuse;
pub mod grad;
pub mod keep;
pub mod lockstep;
pub mod muon;
pub mod narrow;
pub mod precision;
pub mod recompute;
pub mod rematerialize;
pub mod reorder;
pub mod shards;
pub mod simplify;
pub mod split_batch;
pub mod sync_batch_norm;
pub mod update;
pub mod update_early;
pub mod update_spec;

use crate::graph::op::Pattern;
use crate::graph::{DType, Graph, Narrows, Op, Role, ShapeError, Value, ValueId, VarId, Variables, verify};
use crate::shards::Shards;
use rematerialize::Recompute;
use shards::ShardSums;
use std::collections::HashMap;
use update::Accumulators;
use update_spec::UpdateSpec;

/// A pass.
pub struct Pass {
    /// The name in options and listings.
    pub name: &'static str,
    /// It may be left out: it changes speed and memory, but no result. (Without `grad` and `update` nothing is trained, and
    /// `precision` is for the configuration to choose.)
    pub optional: bool,
    run: fn(&mut Graph, &mut Job) -> Result<(), String>,
}

/// All passes, in order.
pub static PIPELINE: [Pass; 13] = [
    // Activations after the pooling that follows them.
    Pass {
        name: "reorder",
        optional: true,
        run: |graph, _| {
            reorder::reorder(graph);
            Ok(())
        },
    },
    // 16-bit floats where autocast has them, in mixed precision.
    Pass { name: "precision", optional: false, run: |graph, job| message_of(job.precision(graph)) },
    // The backward pass.
    Pass { name: "grad", optional: false, run: |graph, job| message_of(job.gradients(graph)) },
    // The optimizer, or the sums of gradients for it.
    Pass { name: "update", optional: false, run: |graph, job| message_of(job.update(graph)) },
    // Sums over ranks that begin while the last shard of a rank is computed.
    Pass { name: "begin_sums", optional: true, run: |graph, job| message_of(job.begin_sums(graph)) },
    // Removal of what changes nothing.
    Pass {
        name: "simplify",
        optional: true,
        run: |graph, _| {
            simplify::simplify(graph);
            Ok(())
        },
    },
    // Values computed again where they are read, where that is cheaper than to keep them.
    Pass {
        name: "recompute",
        optional: true,
        run: |graph, job| {
            // Where batch norm is taken apart there are no whole ones to look for.
            if job.synced().is_none() {
                recompute::recompute(graph, &|op, operands| job.at_once(op, operands));
            }
            Ok(())
        },
    },
    // Layers computed again for the backward pass, where that is asked for.
    Pass {
        name: "rematerialize",
        optional: true,
        run: |graph, job| {
            if let Some(training) = &job.training {
                let early = job.options.wants("update_early");
                rematerialize::rematerialize(graph, &training.recompute, &|graph| {
                    if early {
                        update_early::update_early(graph, job.device.updates_apart);
                    }
                });
            }
            Ok(())
        },
    },
    // Batch norm over all shards.
    Pass { name: "sync_batch_norm", optional: false, run: |graph, job| message_of(job.sync_batch_norm(graph)) },
    // Groups of operations that the device has one kernel for, pattern by pattern.
    Pass { name: "fusions", optional: true, run: |graph, job| job.fusions(graph) },
    // Parameters updated as soon as their gradients are there, where the device updates in parts.
    Pass {
        name: "update_early",
        optional: true,
        run: |graph, job| {
            update_early::update_early(graph, job.device.updates_apart);
            Ok(())
        },
    },
    // Values between layers in 16 bits, where all that read and write them can do it and nothing is trained.
    Pass {
        name: "narrow",
        optional: true,
        run: |graph, job| {
            if let (None, Some(narrows)) = (&job.training, job.device.narrows) {
                narrow::narrow(graph, narrows);
            }
            Ok(())
        },
    },
    // Evaluation for a part of the batch at a time, where layers write more than caches hold.
    Pass {
        name: "split_batch",
        optional: true,
        run: |graph, job| {
            if let (None, Some(line)) = (&job.training, job.device.divides_batches) {
                split_batch::split_batch(graph, line);
            }
            Ok(())
        },
    },
];

/// The name for the graph before all passes.
pub const FORWARD: &str = "forward";

fn message_of(result: Result<(), ShapeError>) -> Result<(), String> {
    result.map_err(|e| e.to_string())
}

/// The names of all passes, in the order in which they run, with those of patterns after `fusions`. If `optional`, only those that may be left out.
pub fn names(patterns: &[&'static str], optional: bool) -> Vec<&'static str> {
    let mut names = Vec::new();
    for pass in PIPELINE.iter().filter(|pass| pass.optional || !optional) {
        names.push(pass.name);
        if pass.name == "fusions" {
            names.extend(patterns);
        }
    }
    names
}

/// Which passes run: all of them by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PassOptions {
    /// Passes and patterns that are left out, if they are optional, or `precision`.
    pub without: Vec<String>,
    /// Stop after this pass or pattern, or before all of them, if it is [`FORWARD`].
    pub stop_after: Option<String>,
}

impl PassOptions {
    /// True if the pass or pattern of that name is to run, when its turn comes.
    pub fn wants(&self, name: &str) -> bool {
        !self.without.iter().any(|without| without == name)
    }

    fn stops_after(&self, name: &str) -> bool {
        self.stop_after.as_deref() == Some(name)
    }
}

/// The properties of a device that passes depend on.
#[derive(Clone, Copy)]
pub struct Device<'a> {
    /// Its fusion patterns, in the order in which the pass looks for them.
    pub fusions: &'a [Pattern],
    /// It has a kernel for a part of the parameters' update.
    pub updates_apart: bool,
    /// It can run nodes once for each part of a batch, and gains by it; a part begins at a multiple of so many bytes.
    pub divides_batches: Option<usize>,
    /// What of a program that does not train may be in memory as 16 bits.
    pub narrows: Option<Narrows>,
}

/// What the passes are to make of a graph.
pub struct Job<'a> {
    /// For what device.
    pub device: Device<'a>,
    /// The 16-bit type of mixed precision.
    pub half: Option<DType>,
    /// How it is trained; `None` if only its forward pass is wanted.
    pub training: Option<Training<'a>>,
    /// Which passes run.
    pub options: &'a PassOptions,
}

/// How a graph is trained.
pub struct Training<'a> {
    /// All variables; the optimizer's are added.
    pub vars: &'a mut Variables,
    /// The optimizer.
    pub spec: &'a UpdateSpec,
    /// What is differentiated, and what the batch weighs.
    pub loss: [ValueId; 2],
    /// What becomes of the gradients.
    pub purpose: Purpose,
    /// What is computed again for the backward pass.
    pub recompute: Recompute,
    gradients: HashMap<VarId, ValueId>,
    trained: Trained,
}

/// What becomes of gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The parameters are updated with them.
    Update,
    /// They are summed over micro-batches.
    Sum,
    /// They are summed over the shards of a step, in the order of a tree.
    Shards,
    /// They are results that the host reads, and nothing is updated.
    Output,
}

/// What training adds to a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// The loss that is reported: over micro-batches, their mean so far.
    pub loss: ValueId,
    /// The sums over micro-batches, if there are any.
    pub sums: Option<Accumulators>,
    /// The sums over shards, if there are any.
    pub shards: Option<ShardSums>,
    /// The gradients of the parameters, where they are results.
    pub outputs: Vec<(VarId, ValueId)>,
}

impl<'a> Training<'a> {
    /// Training of `loss`, of a batch with that weight, by the optimizer of `spec`.
    pub fn new(vars: &'a mut Variables, spec: &'a UpdateSpec, loss: [ValueId; 2], purpose: Purpose) -> Self {
        let trained = Trained { loss: loss[0], sums: None, shards: None, outputs: Vec::new() };
        Training { vars, spec, loss, purpose, recompute: Recompute::Nothing, gradients: HashMap::new(), trained }
    }
}

impl Job<'_> {
    /// Runs the passes on `graph`. What training has added, if it was wanted.
    ///
    /// # Errors
    /// A pass failed or left the graph inconsistent: a bug of that pass.
    pub fn run(mut self, graph: &mut Graph) -> Result<Option<Trained>, String> {
        if !self.options.stops_after(FORWARD) {
            for pass in &PIPELINE {
                if !pass.optional || self.options.wants(pass.name) {
                    (pass.run)(graph, &mut self).map_err(|e| format!("pass `{}`: {e}", pass.name))?;
                    verify(graph).map_err(|e| format!("after pass `{}`: {e}", pass.name))?;
                }
                let inside =
                    pass.name == "fusions" && self.device.fusions.iter().any(|p| self.options.stops_after(p.name));
                if inside || self.options.stops_after(pass.name) {
                    break;
                }
            }
        }
        Ok(self.training.map(|training| training.trained))
    }

    fn precision(&mut self, graph: &mut Graph) -> Result<(), ShapeError> {
        match self.half.filter(|_| self.options.wants("precision")) {
            Some(half) => precision::autocast(graph, half),
            None => Ok(()),
        }
    }

    fn gradients(&mut self, graph: &mut Graph) -> Result<(), ShapeError> {
        let Some(training) = &mut self.training else { return Ok(()) };
        let start = update::loss_gradient(graph, training.vars, training.spec, training.loss)?;
        training.trained.loss = start.loss;
        let trained = training.spec.tensors.iter().chain(&training.spec.thawed);
        let wrt: Vec<(VarId, ValueId)> = trained.filter_map(|(id, _)| Some((*id, graph.find_variable(*id)?))).collect();
        let values: Vec<ValueId> = wrt.iter().map(|(_, v)| *v).collect();
        let grads = grad::backward(graph, &[(training.loss[0], start.gradient)], &values)?;
        training.gradients = wrt.iter().zip(grads).filter_map(|((id, _), grad)| Some((*id, grad?))).collect();
        Ok(())
    }

    fn update(&mut self, graph: &mut Graph) -> Result<(), ShapeError> {
        let Some(training) = &mut self.training else { return Ok(()) };
        let Training { vars, spec, purpose, gradients, trained, .. } = training;
        let loss = trained.loss;
        let gradient = |id: VarId| gradients.get(&id).copied();
        if *purpose == Purpose::Output {
            let all = spec.tensors.iter().chain(&spec.thawed);
            trained.outputs = all.filter_map(|(id, _)| Some((*id, gradient(*id)?))).collect();
            // They are made by nodes: none is an input, or a variable.
            for (_, value) in &trained.outputs {
                graph.values[value.index()].role = Role::Output;
            }
            return Ok(());
        }
        if let (Purpose::Shards, Some(shards)) = (*purpose, spec.shards) {
            let shares = update::shares_variable(vars);
            trained.shards = Some(shards::add_shard_sums(graph, vars, (*spec, shards), shares, gradient)?);
            return Ok(());
        }
        let sums = *purpose == Purpose::Sum;
        let kept = keep::keep(graph, vars, sums)?;
        if sums {
            let mut sums = update::add_accumulation(graph, vars, spec, loss, gradient)?;
            sums.kept = kept;
            trained.sums = Some(sums);
            return Ok(());
        }
        update::add_update(graph, vars, spec, loss, gradient)?;
        kept.restore(graph, vars, loss)?;
        update::add_averages(graph, vars, spec, loss)
    }

    /// The shards whose statistics batch norm takes together.
    fn synced(&self) -> Option<Shards> {
        let training = self.training.as_ref().filter(|training| training.purpose == Purpose::Shards)?;
        training.spec.shards.filter(|_| training.spec.sync_batch_norm)
    }

    fn sync_batch_norm(&mut self, graph: &mut Graph) -> Result<(), ShapeError> {
        let Some(shards) = self.synced() else { return Ok(()) };
        self.training.as_mut().map_or(Ok(()), |training| sync_batch_norm::synchronize(graph, training.vars, shards))
    }

    fn begin_sums(&mut self, graph: &mut Graph) -> Result<(), ShapeError> {
        // Ranks exchange one message at a time, and batch norm exchanges all along.
        if self.synced().is_some() {
            return Ok(());
        }
        let Some(Training { vars, spec, trained, .. }) = &self.training else { return Ok(()) };
        trained.shards.as_ref().map_or(Ok(()), |sums| shards::begin_sums(graph, vars, spec, sums))
    }

    /// True if a pattern that is looked for takes the group `op` on these operands.
    fn at_once(&self, op: &Op, operands: &[&Value]) -> bool {
        let wanted = |pattern: &&Pattern| self.options.wants("fusions") && self.options.wants(pattern.name);
        let takes = |pattern| Pattern::any_takes(std::slice::from_ref(pattern), op, operands.to_vec());
        self.device.fusions.iter().filter(wanted).any(takes)
    }

    fn fusions(&mut self, graph: &mut Graph) -> Result<(), String> {
        for pattern in self.device.fusions {
            if self.options.wants(pattern.name) {
                fuse::fuse(graph, pattern);
                verify(graph).map_err(|e| format!("after `{}`: {e}", pattern.name))?;
            }
            if self.options.stops_after(pattern.name) {
                break;
            }
        }
        Ok(())
    }
}
