use crate::case::{Case, Draw};
use runner::graph::DType;
use runner::graph::op::{
    Activation, ActivationOp, BatchNormInfer, Conv2d, Conv2dGradInput, Conv2dGradWeight, Fused, MaxPool2d,
    MaxPool2dGrad, Source,
};

const SAME: Conv2d = Conv2d { stride: [1, 1], padding: [1; 4], dilation: [1, 1], groups: 1, bias: true };

const PAIRS: MaxPool2d =
    MaxPool2d { kernel: [2, 2], stride: [2, 2], padding: [0, 0], dilation: [1, 1], ceil_mode: false };

/// A convolution with pooling and `act` behind it and its gradients, for an image `[N, H, W, I]` and a kernel `[O, KH, KW]`.
fn cases_of(
    name: &str,
    (conv, act): (Conv2d, Option<Activation>),
    x: [usize; 4],
    [o, kh, kw]: [usize; 3],
) -> [Case; 3] {
    let w = [o, kh, kw, x[3] / conv.groups];
    let [h, width] = conv.out([x[1], x[2]], [kh, kw]).unwrap();
    let y = [x[0], h / 2, width / 2, o];
    let name = format!("{name} and pooling: {x:?}, {o}×{kh}×{kw}");
    let bias = conv.bias;
    let grad = |d: &mut Draw| [d.normal(y), d.below(DType::U8, y, 4)];
    let mut group = Fused::of(conv.clone().into(), 2 + usize::from(bias)).then(PAIRS, vec![Source::Step(0)]);
    if let Some(act) = act {
        group = group.then(ActivationOp { act }, vec![Source::Step(1)]);
    }
    let forward = Case::new(name.clone(), group.with_result(1, 1), |d| {
        let mut operands = vec![d.normal(x), d.normal(w)];
        operands.extend(bias.then(|| d.normal([o])));
        operands
    });
    let spread = Fused::of(MaxPool2dGrad { pool: PAIRS, input: [h, width] }.into(), 2);
    let by_input = Conv2dGradInput { conv: Conv2d { bias: false, ..conv.clone() }, input: [x[1], x[2]] };
    let by_input = spread.clone().then(by_input, vec![Source::Step(0), Source::Operand(2)]);
    let by_input = Case::new(format!("{name}, by input"), by_input, |d| {
        let [dy, at] = grad(d);
        vec![dy, at, d.normal(w)]
    });
    let by_weight = Conv2dGradWeight { conv, kernel: [kh, kw], bias };
    let by_weight = spread.then(by_weight, vec![Source::Operand(2), Source::Step(0)]);
    let by_weight = if bias { by_weight.with_result(1, 1) } else { by_weight };
    let by_weight = Case::new(format!("{name}, by weight"), by_weight, |d| {
        let [dy, at] = grad(d);
        vec![dy, at, d.normal(x)]
    });
    [forward, by_input, by_weight]
}

/// A convolution with the statistics of batch normalisation, pooling and `act` after it.
fn normalised((conv, act): (Conv2d, Option<Activation>), x: [usize; 4], [o, kh, kw]: [usize; 3], affine: bool) -> Case {
    let (w, first) = ([o, kh, kw, x[3] / conv.groups], 2 + usize::from(conv.bias));
    let own = (first..first + 2 + 2 * usize::from(affine)).map(Source::Operand);
    let name = format!("{conv:?}, {act:?}, normalisation, affine {affine}, and pooling: {x:?}, {o}×{kh}×{kw}");
    let mut group = Fused::of(conv.clone().into(), first)
        .then(BatchNormInfer { eps: 1e-3, affine }, [Source::Step(0)].into_iter().chain(own).collect())
        .then(PAIRS, vec![Source::Step(1)]);
    if let Some(act) = act {
        group = group.then(ActivationOp { act }, vec![Source::Step(2)]);
    }
    Case::new(name, group.with_result(2, 1), |d| {
        let mut operands = vec![d.normal(x), d.normal(w)];
        // Some factors are negative: the largest of the pixels is then the least of the products.
        operands.extend((0..usize::from(conv.bias) + 2 * usize::from(affine)).map(|_| d.normal([o])));
        operands.extend([d.normal([o]), d.positive([o])]);
        operands
    })
}

/// Drawn shapes and arguments.
fn drawn(number: usize) -> [Case; 3] {
    let mut d = Draw::new(&format!("convolution and pooling {number}"));
    loop {
        let groups = d.between(1, 2);
        let conv = Conv2d {
            stride: [d.between(1, 2), d.between(1, 2)],
            padding: [d.between(0, 3), d.between(0, 2), d.between(0, 3), d.between(0, 2)],
            dilation: [d.between(1, 2), d.between(1, 2)],
            groups,
            bias: d.coin(),
        };
        let act = [None, Some(Activation::Relu), Some(Activation::Relu6)][d.between(0, 2)];
        let x = [d.between(1, 3), d.between(1, 11), d.between(1, 11), groups * d.between(1, 4)];
        let kernel = [groups * d.between(1, 5), d.between(1, 4), d.between(1, 4)];
        if conv.out([x[1], x[2]], [kernel[1], kernel[2]]).is_some_and(|[h, w]| h >= 2 && w >= 2) {
            return cases_of(&format!("drawn convolution {number}"), (conv, act), x, kernel);
        }
    }
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for act in [None, Some(Activation::Relu), Some(Activation::Hardtanh { low: -0.4, high: 0.7 })] {
        list.extend(cases_of(&format!("one channel, {act:?}"), (SAME, act), [2, 9, 8, 1], [18, 3, 3]));
        // Enough tiles and channels for transforms.
        list.extend(cases_of(&format!("many channels, {act:?}"), (SAME, act), [2, 14, 12, 25], [35, 3, 3]));
    }
    let relu = Some(Activation::Relu);
    let wide = Conv2d { padding: [0, 2, 2, 1], ..SAME };
    list.extend(cases_of("other padding", (wide, relu), [2, 13, 15, 24], [24, 3, 3]));
    list.extend(cases_of("odd sides", (SAME, relu), [3, 11, 13, 24], [27, 3, 3]));
    // More rows than a strip has.
    list.extend(cases_of("a large image", (SAME, relu), [1, 99, 61, 3], [24, 3, 3]));
    let plain = Conv2d { bias: false, ..SAME };
    for (act, affine) in [(None, true), (relu, true), (relu, false)] {
        for conv in [&SAME, &plain] {
            list.push(normalised((conv.clone(), act), [2, 9, 8, 1], [18, 3, 3], affine));
            list.push(normalised((conv.clone(), act), [2, 14, 12, 25], [35, 3, 3], affine));
        }
        let strided = Conv2d { stride: [2, 1], groups: 2, ..plain.clone() };
        list.push(normalised((strided, act), [3, 21, 13, 6], [10, 5, 5], affine));
    }
    list.extend((0..16).flat_map(drawn));
    list
}
