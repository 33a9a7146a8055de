use super::ACTIVATIONS;
use crate::case::{Case, Draw};
use runner::graph::op::{Activation, ActivationOp, BatchNormInfer, Conv2d, Conv2dGradInput, Fused, Source};

const PLAIN: Conv2d = Conv2d { stride: [1, 1], padding: [0; 4], dilation: [1, 1], groups: 1, bias: true };

/// The case of `conv` on an image `[N, H, W, I]` with a kernel `[O, KH, KW]`.
fn case(name: String, conv: Conv2d, x: [usize; 4], [o, kh, kw]: [usize; 3]) -> Case {
    let (groups, bias) = (conv.groups, conv.bias);
    Case::new(name, conv, |d| {
        let mut operands = vec![d.normal(x).wrt(), d.normal([o, kh, kw, x[3] / groups]).wrt()];
        if bias {
            operands.push(d.normal([o]).wrt());
        }
        operands
    })
}

/// A convolution of drawn shape and arguments.
fn drawn(number: usize) -> Case {
    let mut d = Draw::new(&format!("convolution {number}"));
    loop {
        let groups = d.between(1, 3);
        let channels = groups * d.between(1, 4);
        let outputs = groups * d.between(1, 5);
        let (n, h, w) = (d.between(1, 3), d.between(1, 11), d.between(1, 11));
        let kernel = [d.between(1, 5), d.between(1, 5)];
        let conv = Conv2d {
            stride: [d.between(1, 3), d.between(1, 3)],
            padding: [d.between(0, 2), d.between(0, 2), d.between(0, 2), d.between(0, 2)],
            dilation: [d.between(1, 2), d.between(1, 2)],
            groups,
            bias: d.coin(),
        };
        if conv.out([h, w], kernel).is_some() {
            let name =
                format!("drawn convolution {number}: [{n}, {h}, {w}, {channels}], {outputs}×{kernel:?}, {conv:?}");
            return case(name, conv, [n, h, w, channels], [outputs, kernel[0], kernel[1]]);
        }
    }
}

/// A convolution of drawn shape and arguments, as usual networks have them: a library takes it.
fn drawn_whole(number: usize) -> Case {
    let mut d = Draw::new(&format!("whole convolution {number}"));
    loop {
        let groups = d.between(1, 2);
        let channels = groups * 8 * d.between(1, 2);
        let outputs = groups * 8 * d.between(1, 3);
        let (n, h, w) = (d.between(1, 2), d.between(1, 8), d.between(1, 8));
        let kernel = [d.between(1, 4), d.between(1, 4)];
        let [top, left] = kernel.map(|side| d.between(0, side - 1));
        let conv = Conv2d {
            stride: [d.between(1, 3), d.between(1, 3)],
            padding: [top, top, left, left],
            dilation: [d.between(1, 2), d.between(1, 2)],
            groups,
            bias: d.coin(),
        };
        if conv.out([h, w], kernel).is_some() {
            let name = format!(
                "drawn whole convolution {number}: [{n}, {h}, {w}, {channels}], {outputs}×{kernel:?}, {conv:?}"
            );
            return case(name, conv, [n, h, w, channels], [outputs, kernel[0], kernel[1]]);
        }
    }
}

/// `conv` with batch normalisation behind it, and `act` behind that.
fn norm(
    name: &str,
    (conv, act): (Conv2d, Option<Activation>),
    affine: bool,
    x: [usize; 4],
    [o, kh, kw]: [usize; 3],
) -> Case {
    let (groups, bias) = (conv.groups, conv.bias);
    let name = format!("{name}, normalised: {x:?}, {o}×{kh}×{kw}, {act:?}, affine {affine}");
    let (first, own) = (2 + usize::from(bias), 2 + 2 * usize::from(affine));
    let from = std::iter::once(Source::Step(0)).chain((first..first + own).map(Source::Operand)).collect();
    let mut group = Fused::of(conv.into(), first).then(BatchNormInfer { eps: 1e-3, affine }, from);
    if let Some(act) = act {
        group = group.then(ActivationOp { act }, vec![Source::Step(1)]);
    }
    Case::new(name, group, |d| {
        let mut operands = vec![d.normal(x), d.normal([o, kh, kw, x[3] / groups])];
        operands.extend(bias.then(|| d.normal([o])));
        if affine {
            operands.extend([d.normal([o]), d.normal([o])]);
        }
        operands.extend([d.normal([o]), d.positive([o])]);
        operands
    })
}

/// Every way that a convolution is computed, with normalisation after it.
fn normalised() -> Vec<Case> {
    let plain = Conv2d { bias: false, ..PLAIN };
    let same = Conv2d { padding: [1; 4], ..PLAIN };
    let acts = [None, Some(Activation::Relu), Some(Activation::Relu6), Some(Activation::Hardswish)];
    let mut list = Vec::new();
    for (act, affine) in acts.into_iter().flat_map(|act| [(act, true), (act, false)]) {
        let with = |conv: &Conv2d| (conv.clone(), act);
        list.extend([
            norm("direct", with(&same), affine, [2, 7, 5, 3], [19, 3, 3]),
            norm("1×1", with(&plain), affine, [2, 5, 4, 20], [35, 1, 1]),
            // A long sum over few rows, in pieces.
            norm("1×1, few pixels", with(&PLAIN), affine, [1, 5, 4, 1100], [9, 1, 1]),
            norm("1×1, fewer pixels", with(&PLAIN), affine, [1, 1, 3, 40], [9, 1, 1]),
            norm("depthwise", with(&Conv2d { groups: 19, ..same.clone() }), affine, [1, 8, 7, 19], [19, 3, 3]),
            norm("groups", with(&Conv2d { groups: 2, ..same.clone() }), affine, [2, 5, 6, 8], [6, 3, 3]),
            norm("transforms", with(&same), affine, [2, 12, 14, 24], [35, 3, 3]),
            norm("few pixels", with(&same), affine, [5, 2, 2, 16], [18, 3, 3]),
        ]);
    }
    list
}

/// Transposed convolutions with gradients of their own: of images `[N, OH, OW, O]` to images of `[h, w]`, with a kernel `[KH, KW, I]`.
fn transposed() -> Vec<Case> {
    let plain = Conv2d { bias: false, ..PLAIN };
    let twice = Conv2d { stride: [2, 2], ..plain.clone() };
    let list = [
        ("2×2, stride 2", twice.clone(), [8, 10], [2, 4, 5, 6], [2, 2, 5]),
        ("many channels", twice.clone(), [6, 6], [1, 3, 3, 32], [2, 2, 24]),
        ("3×3", plain.clone(), [6, 7], [2, 4, 5, 3], [3, 3, 4]),
        ("3×3, one row more", Conv2d { padding: [1; 4], ..twice.clone() }, [8, 7], [1, 4, 4, 5], [3, 3, 2]),
        ("gaps", Conv2d { stride: [3, 4], ..plain.clone() }, [8, 8], [1, 3, 2, 4], [2, 1, 3]),
        (
            "dilated",
            Conv2d { stride: [1, 3], dilation: [2, 3], padding: [1, 1, 2, 2], ..plain.clone() },
            [6, 9],
            [2, 4, 3, 3],
            [3, 3, 2],
        ),
        ("1×1", plain.clone(), [3, 4], [2, 3, 4, 7], [1, 1, 5]),
        ("groups", Conv2d { groups: 2, ..twice.clone() }, [6, 8], [2, 3, 4, 4], [2, 2, 3]),
        ("depthwise", Conv2d { groups: 6, padding: [1; 4], ..twice }, [6, 6], [1, 3, 3, 6], [4, 4, 1]),
    ];
    list.map(|(name, conv, input, dy, [kh, kw, i])| {
        let op = Conv2dGradInput { conv, input };
        let operands = |d: &mut Draw| vec![d.normal(dy).wrt(), d.normal([dy[3], kh, kw, i]).wrt()];
        Case::new(format!("transposed convolution: {name}"), op, operands)
    })
    .into()
}

pub fn cases() -> Vec<Case> {
    let same = Conv2d { padding: [1; 4], ..PLAIN };
    let strided = Conv2d { stride: [2, 2], padding: [1; 4], ..PLAIN };
    let no_bias = |conv: &Conv2d| Conv2d { bias: false, ..conv.clone() };
    let mut list = vec![
        case("3×3 on one channel".into(), PLAIN, [2, 9, 9, 1], [8, 3, 3]),
        case("3×3, many channels".into(), PLAIN, [1, 6, 7, 32], [33, 3, 3]),
        case("3×3, same size".into(), same.clone(), [2, 7, 5, 3], [5, 3, 3]),
        case("3×3, same size, many channels".into(), no_bias(&same), [2, 8, 8, 16], [32, 3, 3]),
        case("3×3, stride 2".into(), strided.clone(), [2, 9, 8, 4], [6, 3, 3]),
        case("1×1".into(), no_bias(&PLAIN), [3, 5, 4, 7], [9, 1, 1]),
        case("1×1, many channels".into(), PLAIN, [1, 3, 3, 48], [40, 1, 1]),
        case("1×1, stride 2".into(), Conv2d { stride: [2, 2], ..no_bias(&PLAIN) }, [2, 7, 7, 5], [6, 1, 1]),
        case("7×7, stride 2".into(), Conv2d { stride: [2, 2], padding: [3; 4], ..PLAIN }, [1, 13, 13, 3], [4, 7, 7]),
        case("depthwise 3×3".into(), Conv2d { groups: 6, ..same.clone() }, [2, 6, 5, 6], [6, 3, 3]),
        case(
            "depthwise 5×5, stride 2".into(),
            Conv2d { groups: 19, padding: [2; 4], stride: [2, 2], ..no_bias(&PLAIN) },
            [1, 8, 7, 19],
            [19, 5, 5],
        ),
        case("depthwise, twice the channels".into(), Conv2d { groups: 4, ..same.clone() }, [1, 5, 5, 4], [8, 3, 3]),
        case("two groups".into(), Conv2d { groups: 2, ..same.clone() }, [2, 5, 6, 8], [6, 3, 3]),
        case("dilated".into(), Conv2d { dilation: [2, 3], padding: [2, 2, 3, 3], ..PLAIN }, [1, 8, 9, 3], [4, 3, 3]),
        case("even kernel, same size".into(), Conv2d { padding: [0, 1, 1, 2], ..PLAIN }, [1, 6, 6, 2], [3, 2, 4]),
        case("the kernel is the image".into(), PLAIN, [3, 4, 5, 2], [6, 4, 5]),
        case("more stride than kernel".into(), Conv2d { stride: [3, 4], ..PLAIN }, [1, 10, 11, 2], [3, 2, 2]),
        case("one pixel, mostly padding".into(), same.clone(), [2, 1, 1, 3], [4, 3, 3]),
    ];
    list.extend((0..24).map(drawn));
    list.extend((0..8).map(drawn_whole));
    for wanted in [[true, false, false], [false, true, false], [false, false, true], [true, false, true]] {
        let mut case = case(format!("conv2d, gradients wanted {wanted:?}"), same.clone(), [2, 4, 5, 3], [4, 3, 3]);
        for (o, w) in case.operands.iter_mut().zip(wanted) {
            o.wrt = w;
        }
        list.push(case);
    }
    for act in ACTIVATIONS {
        for (kind, conv, x, kernel) in [
            ("3×3", same.clone(), [2, 6, 6, 5], [18, 3, 3]),
            ("1×1", PLAIN, [2, 4, 4, 9], [17, 1, 1]),
            ("depthwise", Conv2d { groups: 5, ..strided.clone() }, [1, 7, 6, 5], [5, 3, 3]),
        ] {
            list.push(case(format!("{kind} convolution and {act:?}"), conv, x, kernel).activated(Some(act)));
        }
    }
    list.extend(transposed());
    list.extend(normalised());
    list
}
