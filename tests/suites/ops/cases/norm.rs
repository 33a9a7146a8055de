use super::ACTIVATIONS;
use crate::case::{Case, Draw, Operand};
use runner::graph::DType;
use runner::graph::op::{
    Activation, ActivationGrad, ActivationOp, BatchNorm, BatchNormApply, BatchNormGrad, BatchNormInfer,
    BatchNormStatistics, Binary, BinaryKind, Cast, Conv2d, Conv2dGradWeight, Fused, GroupNorm, LayerNorm,
    LayerNormGrad, LocalResponseNorm, Op, Source,
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

/// Running mean, running variance, and the number of batches seen.
fn running(d: &mut Draw, c: usize, batches: f64) -> Vec<Operand> {
    vec![d.normal([c]), d.positive([c]), Operand::new(DType::I64, Vec::new(), vec![batches])]
}

/// `group`, which ends with a convolution, with the statistics of its result; it has that many operands.
fn then_statistics(group: Fused, operands: usize, track: bool) -> Fused {
    let op = BatchNormStatistics { eps: 1e-5, momentum: track.then_some(0.1), track };
    let last = group.steps.len() - 1;
    let rest = (operands..operands + 3 * usize::from(track)).map(Source::Operand);
    let group = group.then(op, [Source::Step(last)].into_iter().chain(rest).collect());
    group.with_result(last, 0).with_result(last + 1, 1)
}

/// The statistics of what is there, and of what a convolution makes.
fn norm_statistics() -> Vec<Case> {
    let plain = Conv2d { stride: [1, 1], padding: [0; 4], dilation: [1, 1], groups: 1, bias: false };
    let around =
        |groups: usize, stride: usize| Conv2d { stride: [stride; 2], padding: [1; 4], groups, ..plain.clone() };
    let biased = |conv: &Conv2d| Conv2d { bias: true, ..conv.clone() };
    // Products: blocks of rows and of columns, rows taken together, a sum that is split, scalar products. Depthwise, strided,
    // grouped, of a few pixels, and by Winograd.
    let convs: [(Conv2d, [usize; 4], [usize; 4]); 11] = [
        (plain.clone(), [3, 12, 12, 20], [300, 1, 1, 20]),
        (biased(&plain), [2, 30, 40, 8], [24, 1, 1, 8]),
        (plain.clone(), [4, 9, 9, 13], [100, 1, 1, 13]),
        (plain.clone(), [1, 3, 3, 2100], [17, 1, 1, 2100]),
        (plain.clone(), [2, 1, 1, 700], [9, 1, 1, 700]),
        (biased(&around(72, 2)), [2, 40, 41, 72], [72, 3, 3, 1]),
        (around(5, 1), [3, 9, 8, 5], [5, 3, 3, 1]),
        (biased(&around(1, 2)), [2, 33, 31, 3], [16, 3, 3, 3]),
        (around(2, 1), [2, 20, 20, 12], [20, 3, 3, 6]),
        (around(1, 1), [6, 2, 2, 96], [80, 3, 3, 96]),
        (around(1, 1), [2, 24, 24, 32], [40, 3, 3, 32]),
    ];
    let mut list = Vec::new();
    for (at, (conv, x, w)) in convs.iter().enumerate() {
        let (track, operands) = (at % 2 == 0, 2 + usize::from(conv.bias));
        let op = then_statistics(Fused::of(conv.clone().into(), operands), operands, track);
        list.push(Case::new(format!("{conv:?} of {x:?}, {w:?} and statistics, track {track}"), op, |d| {
            let mut all = vec![data(d, x), d.normal(*w)];
            all.extend(conv.bias.then(|| d.normal([w[0]])));
            all.extend(if track { running(d, w[0], 4.0) } else { Vec::new() });
            all
        }));
    }
    for shape in [&[3, 5, 4, 7][..], &[4, 3], &[2, 9, 9, 1], &[300, 33], &[2, 24, 13, 64]] {
        for (momentum, track) in [(Some(0.2), true), (None, true), (None, false)] {
            let (op, c) = (BatchNormStatistics { eps: 1e-3, momentum, track }, shape[shape.len() - 1]);
            list.push(Case::new(format!("statistics of {shape:?}, {op:?}"), op, |d| {
                [vec![data(d, shape)], if track { running(d, c, 3.0) } else { Vec::new() }].concat()
            }));
        }
    }
    list
}

/// A convolution of what is normalised, without and with the statistics of its results, and the gradient by its weight.
fn norm_read(conv: &Conv2d, [x, w]: [&[usize]; 2], affine: bool, act: Option<Activation>) -> Vec<Case> {
    let (c, apply) = (x[3], BatchNormApply { affine });
    let known = 3 + 2 * usize::from(affine);
    let behind = |product: Op, further: usize| {
        let (own, mut op) = (known, Fused::of(apply.clone().into(), known));
        if let Some(act) = act {
            op = op.then(ActivationOp { act }, vec![Source::Step(0)]);
        }
        let last = op.steps.len();
        let rest = (own..own + further).map(Source::Operand);
        op.then(product, [Source::Step(last - 1)].into_iter().chain(rest).collect())
    };
    let bias = usize::from(conv.bias);
    let grad = Conv2dGradWeight { conv: Conv2d { bias: false, ..conv.clone() }, kernel: [w[1], w[2]], bias: conv.bias };
    let [oh, ow] = conv.out([x[1], x[2]], [w[1], w[2]]).unwrap();
    let read = behind(conv.clone().into(), 1 + bias);
    let last = read.steps.len() - 1;
    let with_statistics = then_statistics(read.clone(), known + 1 + bias, affine);
    let by_weight = behind(grad.into(), 1);
    let by_weight = if conv.bias { by_weight.with_result(last, 1) } else { by_weight };
    let what = format!("{conv:?} of normalised {x:?}, {w:?}, affine {affine}, {act:?}");
    let of_conv = |d: &mut Draw| [vec![d.normal(w)], (0..bias).map(|_| d.normal([w[0]])).collect()].concat();
    vec![
        Case::new(what.clone(), read, |d| [vec![data(d, x)], statistics(d, c, affine), of_conv(d)].concat()),
        Case::new(format!("{what}, and statistics"), with_statistics, |d| {
            let operands = [vec![data(d, x)], statistics(d, c, affine), of_conv(d)].concat();
            [operands, if affine { running(d, w[0], 2.0) } else { Vec::new() }].concat()
        }),
        Case::new(format!("gradient by the weight of {what}"), by_weight, |d| {
            [vec![data(d, x)], statistics(d, c, affine), vec![d.normal([x[0], oh, ow, w[0]])]].concat()
        }),
    ]
}

/// Matrix products with short and long sums, one panel and several, and depthwise convolutions.
fn norm_reads() -> Vec<Case> {
    let plain = Conv2d { stride: [1, 1], padding: [0; 4], dilation: [1, 1], groups: 1, bias: false };
    let depthwise =
        |groups: usize, stride: usize| Conv2d { stride: [stride; 2], padding: [1; 4], groups, ..plain.clone() };
    let biased = |conv: &Conv2d| Conv2d { bias: true, ..conv.clone() };
    let shapes: [(Conv2d, [usize; 4], [usize; 4]); 7] = [
        (plain.clone(), [2, 5, 7, 24], [40, 1, 1, 24]),
        (biased(&plain), [1, 9, 9, 65], [7, 1, 1, 65]),
        (plain.clone(), [3, 8, 8, 330], [70, 1, 1, 330]),
        (plain.clone(), [2, 25, 24, 9], [9, 1, 1, 9]),
        (depthwise(24, 1), [2, 6, 5, 24], [24, 3, 3, 1]),
        (biased(&depthwise(17, 2)), [3, 9, 8, 17], [17, 3, 3, 1]),
        (depthwise(72, 2), [1, 40, 41, 72], [72, 3, 3, 1]),
    ];
    let mut list = Vec::new();
    for (at, (conv, x, w)) in shapes.iter().enumerate() {
        for (affine, act) in
            [(true, Some(Activation::Hardswish)), (at % 2 == 0, None), (at % 2 == 1, Some(Activation::Relu))]
        {
            list.extend(norm_read(conv, [x, w], affine, act));
        }
    }
    for act in ACTIVATIONS {
        list.extend(norm_read(&plain, [&[2, 3, 4, 6], &[5, 1, 1, 6]], true, Some(act)));
    }
    list
}

pub fn cases() -> Vec<Case> {
    let mut list = norm_reads();
    list.extend(norm_statistics());
    let plain = BatchNorm { eps: 1e-5, momentum: Some(0.1), affine: true, track: true };
    for shape in [&[3, 5, 4, 7][..], &[4, 3], &[2, 9, 9, 1], &[9, 33], &[2, 4, 3, 64], &[3, 5, 5, 24], &[419, 36]] {
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
    for (shape, groups) in [
        (vec![2, 3, 5, 6], 3),
        (vec![3, 4, 4, 8], 1),
        (vec![2, 2, 2, 5], 5),
        (vec![4, 12], 2),
        (vec![2, 7, 34], 2),
        (vec![2, 150, 16], 4),
    ] {
        for affine in [false, true] {
            // A large one shows where it is added.
            let op = GroupNorm { groups, eps: if affine { 0.1 } else { 1e-5 }, affine };
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
    let shapes = [(vec![4, 9], 1), (vec![2, 3, 5, 7], 1), (vec![2, 3, 5, 7], 3), (vec![3, 2, 33], 2)];
    // Rows of whole packs, in numbers that no block of rows divides.
    let packs = [(vec![37, 128], 1), (vec![5, 2, 160], 1), (vec![1025, 4, 72], 2)];
    for (shape, dims) in shapes.into_iter().chain(packs) {
        for (weight, bias, centered) in
            [(false, false, true), (true, false, true), (true, true, true), (false, false, false), (true, false, false)]
        {
            let op = LayerNorm { dims, eps: if weight { 0.1 } else { 1e-5 }, weight, bias, centered };
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

/// Layer normalisation of 32-bit floats with casts from and to the type `half`, and batch normalisation in that type with a sum
/// after it.
pub fn with_casts(half: DType) -> Vec<Case> {
    let mut list = Vec::new();
    for (rows, length) in [(37, 128), (5, 64), (1030, 300)] {
        for (weight, bias, centered) in [(true, true, true), (true, false, false), (false, false, true)] {
            let norm = LayerNorm { dims: 1, eps: if weight { 0.1 } else { 1e-5 }, weight, bias, centered };
            let parameters = usize::from(weight) + usize::from(bias);
            let op = Fused::of(norm.into(), 1 + parameters).then(Cast { to: half }, vec![Source::Step(0)]);
            let op = op.with_result(0, 1).with_result(0, 2);
            let what = format!("{rows} rows of {length}, weight {weight}, bias {bias}, centered {centered}");
            list.push(Case::new(format!("layer norm of {what}, cast to {half}"), op, |d| {
                let rest: Vec<Operand> = (0..parameters).map(|_| d.normal([length])).collect();
                [vec![data(d, &[rows, length])], rest].concat()
            }));
            let norm = LayerNormGrad { dims: 1, weight, bias, centered };
            let from = [Source::Operand(1), Source::Step(0)].into_iter();
            let from = from.chain((2..4 + usize::from(weight)).map(Source::Operand)).collect();
            let op = Fused::of(Cast { to: DType::F32 }.into(), 1).then(norm, from);
            let op = (1..=parameters).fold(op, |op, output| op.with_result(1, output));
            list.push(Case::new(format!("gradient of the layer norm of {what}, cast from {half}"), op, |d| {
                let dy = d.normal([rows, length]).cast(half);
                let statistics = [d.normal([rows]), d.positive([rows])];
                let gamma = weight.then(|| d.normal([length]));
                [vec![dy, d.normal([rows, length])], statistics.into(), Vec::from_iter(gamma)].concat()
            }));
        }
    }
    // At the end of a residual block.
    for shape in [&[2, 5, 3, 24][..], &[3, 7, 7, 12], &[419, 5]] {
        for (affine, track, act) in [(true, true, Some(Activation::Relu)), (false, false, None)] {
            let op = BatchNorm { eps: 1e-5, momentum: Some(0.1), affine, track };
            let mut case = batch_norm(shape, op, 3.0);
            let operands = case.operands.len();
            let from = if affine {
                [Source::Step(0), Source::Operand(operands)]
            } else {
                [Source::Operand(operands), Source::Step(0)]
            };
            let op = Fused::of(case.op, operands).then(Binary { kind: BinaryKind::Add }, from.into());
            let op = match act {
                Some(act) => op.then(ActivationOp { act }, vec![Source::Step(1)]),
                None => op,
            };
            case.op = op.with_result(0, 1).with_result(0, 2).into();
            case.operands.push(Draw::new(&case.name).normal(shape));
            for i in [0, operands] {
                case.operands[i] = case.operands[i].cast(half);
            }
            case.operands.iter_mut().for_each(|o| o.wrt = false);
            case.name = format!("{} and a sum in {half}, {act:?}", case.name);
            list.push(case);
        }
    }
    list
}
