//! Steps whose shards are computed together: which shards a rank has, and a program for all of them.

use super::kind::Kind;
use crate::graph::{Graph, VarId, Variables, verify};
use crate::model::BatchShape;
use crate::passes::lockstep::lockstep;
use crate::plan::Source;
use crate::shards::Shards;
use std::collections::HashSet;

/// What one shard computes of a step.
pub struct OfShard {
    /// In which phase of training.
    pub kind: Kind,
    /// Its name in listings.
    pub name: &'static str,
    /// The shape of the shard.
    pub batch: BatchShape,
    /// After all passes.
    pub graph: Graph,
    /// The variables that each shard has for itself.
    pub own: HashSet<VarId>,
}

/// A program for all shards that a rank has of a step: its kind, with the samples of all of them, and its graph.
pub type Joined = ((Kind, BatchShape), Source);

/// The shapes of the shards that a rank has, in every step that it has other ones in. `steps` are the samples of all ranks, `full` those of a shard.
pub fn steps(steps: &[usize], full: usize, (shards, rank): (Shards, usize)) -> Vec<Vec<BatchShape>> {
    let mut list: Vec<Vec<BatchShape>> = Vec::new();
    for samples in steps {
        let own = shards.of(rank).filter(|shard| shard * full < *samples);
        let of_rank = own.map(|shard| full.min(samples - shard * full).into()).collect();
        if !list.contains(&of_rank) {
            list.push(of_rank);
        }
    }
    list
}

/// The programs of a rank: their kinds with the samples of all shards together, and their graphs. The host reads no loss of them, but that of the update.
///
/// # Errors
/// A bug of the passes.
pub fn join(of_shards: &[OfShard], steps: &[Vec<BatchShape>], vars: &mut Variables) -> Result<Vec<Joined>, String> {
    let mut programs = Vec::new();
    for step in steps {
        for (at, first) in of_shards.iter().enumerate() {
            if of_shards[..at].iter().any(|other| other.kind == first.kind) {
                continue;
            }
            let of = |batch: &BatchShape| {
                let found = of_shards.iter().find(|shard| (shard.kind, shard.batch) == (first.kind, *batch));
                found.map(|shard| &shard.graph).ok_or_else(|| format!("there is no shard of {batch} samples"))
            };
            let shards = step.iter().map(of).collect::<Result<Vec<_>, _>>()?;
            let graph = lockstep(&first.graph, &shards, vars, &first.own)?;
            verify(&graph).map_err(|e| format!("shards together: {e}"))?;
            let samples: usize = step.iter().map(|shard| shard.samples).sum();
            let name = format!("{}, {} shards with {samples} samples", first.name, step.len());
            programs.push(((first.kind, samples.into()), Source { name, graph, loss: None, prediction: None }));
        }
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the shards in all steps of a rank.
    fn sizes(of_steps: &[usize], full: usize, shards: Shards, rank: usize) -> Vec<Vec<usize>> {
        let list = steps(of_steps, full, (shards, rank));
        list.into_iter().map(|step| step.into_iter().map(|shard| shard.samples).collect()).collect()
    }

    #[test]
    fn every_rank_has_its_shards_of_every_step() {
        let shards = Shards { count: 4, ranks: 2 };
        assert_eq!(sizes(&[12, 8], 3, shards, 0), [[3, 3]], "the smaller step has the same shards here");
        assert_eq!(sizes(&[12, 8], 3, shards, 1), [vec![3, 3], vec![2]]);
        assert_eq!(sizes(&[12, 4], 3, shards, 0), [vec![3, 3], vec![3, 1]]);
        assert_eq!(sizes(&[12, 4], 3, shards, 1), [vec![3, 3], vec![]], "it has no shard, and takes part in the sums");
    }
}
