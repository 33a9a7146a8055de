use crate::case::{Case, Draw, Operand};
use runner::graph::op::{
    AccumulateGrad, GradBlocks, GradSquares, MeanLoss, NormOfSquares, Part, Receivers, ShardBegin, ShardGather,
    ShardMean, ShardReduce, ShardSum,
};
use runner::graph::{DType, Input};
use runner::shards::Shards;

fn place(slot: i32, merged: i32, shards: i32) -> Operand {
    Operand::new(DType::I32, [4], [slot, merged, shards, 1].map(f64::from).to_vec()).input(Input::Shard)
}

/// Whole numbers.
fn whole(d: &mut Draw, dtype: DType, shape: &[usize]) -> Operand {
    Operand { dtype, ..d.normal(shape).map(|x| (1000.0 * x).round()) }
}

/// Tensors of every type, each with `slots` sums.
fn tensors(d: &mut Draw, slots: usize) -> Vec<Operand> {
    let mut list = Vec::new();
    for shape in [vec![1], vec![3, 45], vec![2, 3, 3, 5], vec![5003]] {
        list.extend((0..=slots).map(|_| d.normal(shape.clone())));
    }
    for (dtype, shape) in [(DType::F64, vec![8]), (DType::F64, vec![2]), (DType::I64, vec![1])] {
        list.extend((0..=slots).map(|_| whole(d, dtype, &shape)));
    }
    list
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (slots, slot, merged) in [(1, 0, 0), (1, 0, 1), (3, 0, 0), (3, 0, 3), (3, 1, 1), (3, 1, 2), (3, 2, 0)] {
        let name = format!("a shard's sum in slot {slot} of {slots} after {merged} others");
        list.push(Case::new(name, ShardSum { slots }, |d| {
            std::iter::once(place(slot, merged, 4)).chain(tensors(d, slots)).collect()
        }));
    }
    // A place that no shard has reaches no memory but that of the slots.
    for (slot, merged) in [(-1, 2), (7, 9), (1, 5)] {
        let name = format!("a shard's sum in slot {slot} of 2 after {merged} others");
        list.push(Case::new(name, ShardSum { slots: 2 }, |d| {
            std::iter::once(place(slot, merged, 4)).chain(tensors(d, 2)).collect()
        }));
    }
    let sums = |d: &mut Draw| {
        let sums = [d.normal([7]), d.normal([7]), whole(d, DType::F64, &[8]), whole(d, DType::F64, &[8])];
        std::iter::once(place(0, 0, 4)).chain(sums).collect::<Vec<_>>()
    };
    let reduce = |to, bucket| ShardReduce { slots: 2, shards: Shards::alone(4), to, bucket };
    list.push(Case::new("the sums of all ranks, of which there is one", reduce(Receivers::All, None), sums));
    list.push(Case::new(
        "the sums of all ranks for their owners",
        reduce(Receivers::Owners(vec![0, 0]), Some(0)),
        sums,
    ));
    let begin = ShardBegin { reduce: reduce(Receivers::Parts, Some(0)) };
    list.push(Case::new("the sums of all ranks, begun ahead", begin, sums));
    let gather = ShardGather { parts: vec![(7, 0), (3, 0), (5, 0)] };
    list.push(Case::new("what belongs to all ranks", gather, |d| vec![d.normal([7]), whole(d, DType::F64, &[8])]));
    let blocks = |first, start, len| GradBlocks { first, part: Part { start, len } };
    for (gradients, lengths) in [
        (vec![blocks(0, 0, 5)], vec![5]),
        (vec![blocks(70, 0, 1), blocks(0, 0, 9000), blocks(9, 0, 62_001)], vec![1, 9000, 62_001]),
        (vec![blocks(3, 1024, 1500), blocks(0, 2048, 2048)], vec![2524, 10_000]),
        (vec![], vec![]),
    ] {
        list.push(Case::new(format!("squares of gradients of {lengths:?} elements"), GradSquares { gradients }, |d| {
            let gradients: Vec<Operand> = lengths.iter().map(|n| d.normal([*n])).collect();
            std::iter::once(whole(d, DType::F64, &[72])).chain(gradients).collect()
        }));
    }
    for n in [1, 62, 5000] {
        list.push(Case::new(format!("the norm of {n} sums of squares"), NormOfSquares {}, |d| {
            let squares = Operand { dtype: DType::F64, ..d.normal([n]).map(|x| x * x) };
            vec![Operand::new(DType::F32, [4], vec![0.1, 3.0, 2.0, 0.0]), squares]
        }));
    }
    for loss in [0.5, f64::NAN, f64::INFINITY] {
        list.push(Case::new(format!("the mean over 3 shards for a loss of {loss}"), ShardMean {}, |d| {
            let loss = Operand::new(DType::F32, [1], vec![loss]);
            let thrice = |d: &mut Draw, shape: &[usize]| {
                let counts = whole(d, DType::I64, shape);
                Operand { data: counts.data.iter().map(|n| 3.0 * n).collect(), ..counts }
            };
            let floats = [d.normal([3, 700]), d.normal([3, 700]), d.normal([5]), d.normal([5])];
            let counts = [whole(d, DType::I64, &[1]), thrice(d, &[1])];
            [loss, place(0, 0, 3)].into_iter().chain(floats).chain(counts).collect()
        }));
    }
    for (sum, shares) in [(1.5, 2.75), (0.0, 0.0), (f64::NAN, 1.0), (f64::INFINITY, 0.0)] {
        list.push(Case::new(format!("the mean loss of {sum} over {shares}"), MeanLoss {}, |_| {
            vec![Operand::new(DType::F64, [2], vec![sum, shares])]
        }));
    }
    list.push(Case::new("sums of figures", AccumulateGrad {}, |d| {
        vec![whole(d, DType::F64, &[8]), whole(d, DType::F64, &[8])]
    }));
    list
}
