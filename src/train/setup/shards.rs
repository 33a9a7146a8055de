//! Evaluation in shards: each has a part of the batches, and the figures are summed over all shards in the order of a tree, as in training.

use crate::graph::op::{KeepState, Receivers, SHARD_INPUTS, ShardReduce, ShardSum, ZeroGrad};
use crate::graph::{DType, Graph, Input, Shape, ShapeError, VarId, Variables};
use crate::model::eval_sums;
use crate::passes::shards::sums;
use crate::shards::Shards;
use std::ops::Range;

/// The graphs that take the sums of a shard's evaluation into those over all shards, and that make these the evaluation's.
///
/// # Errors
/// None, unless there is a bug.
pub fn evaluation_graphs(vars: &mut Variables, shards: Shards) -> Result<[Graph; 2], ShapeError> {
    let slots = shards.slots();
    let gathered: Vec<VarId> = eval_sums(vars);
    let totals: Vec<Vec<VarId>> = gathered.iter().map(|of| sums(vars, *of, slots)).collect();

    let mut shard = Graph::new();
    let mut operands = vec![shard.input(Input::Shard, DType::I32, Shape::from([SHARD_INPUTS]))];
    for (of, sums) in gathered.iter().zip(&totals) {
        operands.push(shard.variable(vars, *of));
        operands.extend(sums.iter().map(|sum| shard.variable(vars, *sum)));
    }
    shard.add(ShardSum { slots }, &operands)?;
    let cleared: Vec<_> = gathered.iter().map(|of| shard.variable(vars, *of)).collect();
    shard.add(ZeroGrad {}, &cleared)?;

    let mut total = Graph::new();
    let mut operands = vec![total.input(Input::Shard, DType::I32, Shape::from([SHARD_INPUTS]))];
    if shards.ranks > 1 {
        operands.extend(totals.iter().flatten().map(|sum| total.variable(vars, *sum)));
        total.add(ShardReduce { slots, shards, to: Receivers::All, bucket: None }, &operands)?;
    }
    let copied: Vec<_> = gathered
        .iter()
        .zip(&totals)
        .flat_map(|(of, sums)| [total.variable(vars, sums[0]), total.variable(vars, *of)])
        .collect();
    total.add(KeepState { once: false }, &copied)?;
    Ok([shard, total])
}

/// The batches of a shard, where all have `batches` together.
pub fn batches_of(shard: usize, shards: Shards, batches: usize) -> Range<usize> {
    let bound = |shard: usize| (shard as u64 * batches as u64 / shards.count as u64) as usize;
    bound(shard)..bound(shard + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_divide_the_batches() {
        for batches in [0, 1, 5, 12, 100] {
            for count in [1, 2, 12] {
                let all = (0..count).flat_map(|shard| batches_of(shard, Shards::alone(count), batches));
                assert!(all.eq(0..batches), "{batches} {count}");
            }
        }
    }
}
