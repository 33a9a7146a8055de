use super::ACTIVATIONS;
use crate::case::{Case, Draw, Operand};
use runner::graph::DType;
use runner::graph::op::{
    Activation, ActivationGrad, BatchNorm, BatchNormApply, BatchNormGrad, BatchNormInfer, Fused, GroupNorm, LayerNorm,
    LocalResponseNorm, Source,
};

/// Data whose mean and spread are not those that a normalisation makes.
fn data(d: &mut Draw, shape: &[usize]) -> Operand {
    d.normal(shape).map(|x| 1.5 * x + 0.7)
}

fn batch_norm(shape: &[usize], op: BatchNorm, batches: f64) -> Case {
    let (c, affine, track) = (shape[shape.len() - 1], op.affine, op.track);
    let BatchNorm { eps, momentum, .. } = op;
    let what = format!("eps {eps}, momentum {momentum:?}, affine {affine}, track {track}");
    Case::new(format!("batch norm of {shape:?}, {batches} batches seen, {what}"), op, |d| {
        let mut operands = vec![data(d, shape)];
        if affine {
            operands.extend([d.normal([c]), d.normal([c])]);
        }
        operands.iter_mut().for_each(|o| o.wrt = true);
        if track {
            let counter = Operand::new(DType::I64, Vec::new(), vec![batches]);
            operands.extend([d.normal([c]), d.positive([c]), counter]);
        }
        operands
    })
}

fn batch_norm_infer(shape: &[usize], affine: bool) -> Case {
    let c = shape[shape.len() - 1];
    let op = BatchNormInfer { eps: 1e-3, affine };
    Case::new(format!("inference batch norm of {shape:?}, {op:?}"), op, |d| {
        let mut operands = vec![data(d, shape)];
        if affine {
            operands.extend([d.normal([c]), d.normal([c])]);
        }
        operands.extend([d.normal([c]), d.positive([c])]);
        operands
    })
}

/// `mean`, `invstd`, and `gamma` and `beta` if `affine`.
fn statistics(d: &mut Draw, c: usize, affine: bool) -> Vec<Operand> {
    let mut operands = vec![d.normal([c]), d.positive([c])];
    operands.extend((0..2 * usize::from(affine)).map(|_| d.normal([c])));
    operands
}

fn batch_norm_apply(shape: &[usize], affine: bool) -> Case {
    let op = BatchNormApply { affine };
    Case::new(format!("batch norm of {shape:?} once more, {op:?}"), op, |d| {
        [vec![data(d, shape)], statistics(d, shape[shape.len() - 1], affine)].concat()
    })
}

/// The gradients of `act` and of the batch normalisation before it.
fn norm_grad(shape: &[usize], affine: bool, act: Activation) -> Case {
    let own = 3 + 2 * usize::from(affine);
    let mut from = vec![Source::Operand(0), Source::Step(1), Source::Operand(1), Source::Operand(2)];
    from.extend(affine.then_some(Source::Operand(3)));
    let mut op = Fused::of(BatchNormApply { affine }.into(), own)
        .then(ActivationGrad { act }, vec![Source::Step(0), Source::Operand(own)])
        .then(BatchNormGrad { affine }, from);
    if affine {
        op = op.with_result(2, 1).with_result(2, 2);
    }
    Case::new(format!("gradients of {act:?} and of batch norm of {shape:?}, affine {affine}"), op, |d| {
        [vec![data(d, shape)], statistics(d, shape[shape.len() - 1], affine), vec![d.normal(shape)]].concat()
    })
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    let plain = BatchNorm { eps: 1e-5, momentum: Some(0.1), affine: true, track: true };
    for shape in [&[3, 5, 4, 7][..], &[4, 3], &[2, 9, 9, 1], &[9, 33], &[2, 4, 3, 64]] {
        for affine in [false, true] {
            for track in [false, true] {
                list.push(batch_norm(shape, BatchNorm { affine, track, ..plain.clone() }, 5.0));
            }
            list.push(batch_norm_infer(shape, affine));
            list.push(batch_norm_apply(shape, affine));
            list.push(norm_grad(shape, affine, Activation::Hardswish));
        }
        for batches in [0.0, 3.0] {
            list.push(batch_norm(shape, BatchNorm { momentum: None, eps: 0.1, ..plain.clone() }, batches));
        }
    }
    for act in ACTIVATIONS {
        for mut case in [batch_norm(&[2, 3, 5, 6], plain.clone(), 1.0), batch_norm_infer(&[2, 3, 5, 6], true)] {
            case.name = format!("{}, {act:?}", case.name);
            list.push(case.activated(Some(act)));
        }
        list.push(norm_grad(&[2, 3, 5, 6], true, act));
    }
    for (shape, groups) in
        [(vec![2, 3, 5, 6], 3), (vec![3, 4, 4, 8], 1), (vec![2, 2, 2, 5], 5), (vec![4, 12], 2), (vec![2, 7, 34], 2)]
    {
        for affine in [false, true] {
            let op = GroupNorm { groups, eps: 1e-5, affine };
            list.push(Case::new(format!("group norm of {shape:?}, {op:?}"), op, |d| {
                let c = shape[shape.len() - 1];
                let mut operands = vec![data(d, &shape).wrt()];
                if affine {
                    operands.extend([d.normal([c]).wrt(), d.normal([c]).wrt()]);
                }
                operands
            }));
        }
    }
    for (shape, dims) in [(vec![4, 9], 1), (vec![2, 3, 5, 7], 1), (vec![2, 3, 5, 7], 3), (vec![3, 2, 33], 2)] {
        for (weight, bias, centered) in
            [(false, false, true), (true, false, true), (true, true, true), (false, false, false), (true, false, false)]
        {
            let op = LayerNorm { dims, eps: 1e-5, weight, bias, centered };
            list.push(Case::new(format!("layer norm of {shape:?}, {op:?}"), op, |d| {
                let tail = &shape[shape.len() - dims..];
                let mut operands = vec![data(d, &shape).wrt()];
                for _ in 0..usize::from(weight) + usize::from(bias) {
                    operands.push(d.normal(tail).wrt());
                }
                operands
            }));
        }
    }
    for (shape, size) in [(vec![2, 3, 2, 5], 3), (vec![4, 19], 4), (vec![1, 2, 2, 3], 7), (vec![3, 6], 1)] {
        let op = LocalResponseNorm { size, alpha: 0.7, beta: 0.6, k: 0.8 };
        list.push(Case::new(format!("local response norm of {shape:?}, {size} neighbours"), op, |d| {
            vec![d.normal(shape).wrt()]
        }));
    }
    list
}
