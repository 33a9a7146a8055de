//! Sums that begin beside the computation of a rank's last shard.

use super::{Delivery, How, Prepared, TENSORS, To, on_all, on_cpu, on_gpu, prepare, write_place};
use runner::backend::Backend;
use runner::graph::op::{Binary, BinaryKind, Receivers, SHARD_INPUTS, ShardBegin, ShardReduce};
use runner::graph::{DType, Graph, Input, Role, Shape, ValueId, VarId, VarKind, Variable, Variables};
use runner::shards::Shards;
use std::sync::Arc;

/// Elements of what is computed beside the sums, and how many values of it live at once.
const LENGTH: usize = 50_000;
const ALIVE: usize = 6;

/// A step that begins two sums while it computes something, and an update that waits for them. And what the step has computed.
fn programs(shards: Shards) -> (Arc<Variables>, [Graph; 2], ValueId, Vec<Delivery>) {
    let (mut vars, mut deliveries) = (Variables::new(), Vec::new());
    let [mut step, mut update] = [Graph::new(), Graph::new()];
    let add = |vars: &mut Variables, name: String, (dtype, length): (DType, usize)| {
        vars.get_or_add(Variable::zeros(name, dtype, [length], VarKind::Buffer))
    };
    let x = add(&mut vars, "x".into(), (DType::F32, LENGTH));
    let x = step.variable(&vars, x);
    let mut values = vec![x];
    let owners: Vec<usize> = (0..TENSORS.len()).map(|at| (at + 1) % shards.ranks).collect();
    for (bucket, to) in [Receivers::Parts, Receivers::Owners(owners.clone())].into_iter().enumerate() {
        let mut sums = Vec::new();
        for (at, of) in TENSORS.into_iter().enumerate() {
            let to = if bucket == 0 { To::Part } else { To::Owner(owners[at]) };
            let slots = (0..shards.slots()).map(|slot| add(&mut vars, format!("{bucket}.{at}.{slot}"), of));
            let slots: Vec<VarId> = slots.collect();
            deliveries.push(Delivery { variable: slots[0], dtype: of.0, length: of.1, to });
            sums.extend(slots);
        }
        let operands = |graph: &mut Graph| -> Vec<ValueId> {
            let place = graph.input(Input::Shard, DType::I32, Shape::from([SHARD_INPUTS]));
            std::iter::once(place).chain(sums.iter().map(|sum| graph.variable(&vars, *sum))).collect()
        };
        let reduce = ShardReduce { slots: shards.slots(), shards, to, bucket: Some(bucket) };
        let of_step = operands(&mut step);
        step.add(ShardBegin { reduce: reduce.clone() }, &of_step).unwrap();
        let of_update = operands(&mut update);
        update.add(reduce, &of_update).unwrap();
        // What is computed after it takes memory that the sums still use, if that is theirs no longer.
        for _ in 0..ALIVE {
            let last = values[values.len() - 1];
            values.push(step.add1(Binary { kind: BinaryKind::Add }, &[last, x]).unwrap());
        }
    }
    let mut sum = x;
    for value in &values {
        sum = step.add1(Binary { kind: BinaryKind::Add }, &[sum, *value]).unwrap();
    }
    step.values[sum.index()].role = Role::Output;
    (Arc::new(vars), [step, update], sum, deliveries)
}

/// What a rank gets and has computed in steps of so many shards: after its last shard, if it has one in that step, and after the update.
fn run(backend: &dyn Backend, shards: Shards, steps: &[usize]) -> Vec<[Vec<Vec<u8>>; 2]> {
    let rank = backend.team().unwrap().rank();
    let (vars, graphs, computed, deliveries) = programs(shards);
    let Prepared { plan, mut executable, mut batch, given } = prepare(backend, &vars, graphs);
    let mut results = Vec::new();
    for present in steps {
        given.iter().for_each(|(id, bytes)| executable.upload(*id, bytes).unwrap());
        let mut run = |program: usize, last: bool| -> Vec<Vec<u8>> {
            write_place(&mut batch, &plan, *present, last);
            executable.run(program, 0, &batch).unwrap();
            executable.wait_slot(0).unwrap();
            let part = |of: &Delivery| {
                let bytes = of.bytes(rank, shards.ranks);
                let mut result = vec![0; bytes.len()];
                executable.download_part(of.variable, bytes.start, &mut result).unwrap();
                result
            };
            let mut results: Vec<Vec<u8>> = deliveries.iter().map(part).collect();
            if program == 0 {
                let mut result = vec![0; LENGTH * 4];
                executable.output(0, computed, &mut result).unwrap();
                results.push(result);
            }
            results
        };
        // Only the last of its shards begins the sums; a rank without shards makes them in its update, while the others have begun.
        let own = shards.of(rank);
        let own = own.end.min(*present).saturating_sub(own.start);
        let begun = match own {
            0 => Vec::new(),
            _ => {
                (1..own).for_each(|_| drop(run(0, false)));
                run(0, true)
            }
        };
        results.push([begun, run(1, false)]);
    }
    executable.leave().unwrap();
    results
}

/// What has begun is over at the end of the step, and the update leaves it as it is.
pub fn sums(ranks: usize, hows: &[(&str, How)]) {
    let shards = Shards { count: 6, ranks };
    let steps = [6, 1, 4, 6];
    let expected = on_all(ranks, on_cpu, |backend| run(backend, shards, &steps));
    for (name, how) in hows {
        let found = on_all(ranks, |member| Box::new(how(on_gpu(member))), |backend| run(backend, shards, &steps));
        for (rank, (found, expected)) in found.iter().zip(&expected).enumerate() {
            for (step, ([begun, found], [computed, expected])) in found.iter().zip(expected).enumerate() {
                let of = format!("rank {rank} of {ranks}, step {step}, {name}");
                assert!(found == expected, "the update: {of}");
                if let Some(computed) = computed.last() {
                    let (last, sums) = begun.split_last().unwrap();
                    assert!(last == computed, "what is computed beside the sums: {of}");
                    assert!(sums == expected, "the sums are not there behind the step: {of}");
                }
            }
        }
    }
}
