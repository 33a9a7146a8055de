//! Products that reach what a GPU's kernels divide: large and thin tiles, slices of long sums, phases of strided
//! gradients, groups. Backward operations stand for themselves here, so that differences are not taken of so many numbers.

use crate::case::Case;
use runner::graph::Op;
use runner::graph::op::{Conv2d, Conv2dGradInput, Conv2dGradWeight, Linear, LinearGradInput, LinearGradWeight};

fn case<const N: usize>(name: String, op: impl Into<Op>, shapes: [Vec<usize>; N]) -> Case {
    Case::new(name, op, |d| shapes.into_iter().map(|shape| d.normal(shape)).collect())
}

/// A product of `rows` by `inputs` by `outputs`, and its gradients.
fn linear(list: &mut Vec<Case>, what: &str, [rows, inputs, outputs]: [usize; 3]) {
    let name = |op: &str| format!("{op} {rows}×{inputs} to {outputs}: {what}");
    let (x, w, y) = (vec![rows, inputs], vec![outputs, inputs], vec![rows, outputs]);
    let forward = Linear { bias: true };
    list.push(case(name("linear"), forward, [x.clone(), w.clone(), vec![outputs]]));
    list.push(case(name("linear_grad_input"), LinearGradInput {}, [y.clone(), w]));
    list.push(case(name("linear_grad_weight"), LinearGradWeight { bias: true }, [x, y]));
}

/// Products whose results have large tiles. Each of the three in the one shape that does it with short sums: the other two
/// are thin there.
fn large(list: &mut Vec<Case>) {
    let forward = Linear { bias: true };
    list.push(case("a large result".into(), forward, [vec![1500, 20], vec![1452, 20], vec![1452]]));
    let operands = [vec![1500, 20], vec![20, 1452]];
    list.push(case("a large gradient of the input".into(), LinearGradInput {}, operands));
    let operands = [vec![20, 1450], vec![20, 1452]];
    list.push(case("a large gradient of the weight".into(), LinearGradWeight { bias: true }, operands));
}

/// A convolution of images `[N, H, W, I]` by a kernel `[O, KH, KW]`, and its gradients.
fn conv(list: &mut Vec<Case>, what: &str, conv: &Conv2d, x: [usize; 4], [outputs, kh, kw]: [usize; 3]) {
    let name = |op: &str| format!("{op} {x:?} to {outputs}, {kh}×{kw}: {what}");
    let [oh, ow] = conv.out([x[1], x[2]], [kh, kw]).expect("the kernel fits");
    let (input, w, y) = (x.to_vec(), vec![outputs, kh, kw, x[3] / conv.groups], vec![x[0], oh, ow, outputs]);
    list.push(case(name("conv2d"), conv.clone(), [input.clone(), w.clone(), vec![outputs]]));
    let grad_input = Conv2dGradInput { conv: conv.clone(), input: [x[1], x[2]] };
    list.push(case(name("conv2d_grad_input"), grad_input, [y.clone(), w]));
    let grad_weight = Conv2dGradWeight { conv: conv.clone(), kernel: [kh, kw], bias: true };
    list.push(case(name("conv2d_grad_weight"), grad_weight, [input, y]));
}

pub fn cases() -> Vec<Case> {
    let plain = Conv2d { stride: [1, 1], padding: [0; 4], dilation: [1, 1], groups: 1, bias: true };
    let same = Conv2d { padding: [1; 4], ..plain.clone() };
    let strided = Conv2d { stride: [2, 2], ..same.clone() };
    let mut list = Vec::new();
    linear(&mut list, "thin results", [100, 40, 20]);
    linear(&mut list, "few rows, long sums", [20, 1000, 33]);
    linear(&mut list, "sums of many rows", [1000, 24, 40]);
    linear(&mut list, "thin gradients of the input, long sums", [150, 24, 400]);
    linear(&mut list, "thin gradients of the weight, long sums", [400, 24, 150]);
    linear(&mut list, "thin results, long sums", [150, 400, 24]);
    linear(&mut list, "few outputs, sums of many rows", [400, 200, 20]);
    linear(&mut list, "few rows, long sums both ways", [20, 300, 400]);
    large(&mut list);
    conv(&mut list, "long sums", &same, [2, 5, 4, 64], [40, 3, 3]);
    conv(&mut list, "sums of many pixels", &same, [2, 12, 13, 8], [36, 3, 3]);
    conv(&mut list, "thin results", &same, [2, 9, 9, 3], [16, 3, 3]);
    conv(&mut list, "phases of long sums", &strided, [1, 9, 8, 48], [72, 3, 3]);
    let stretched = Conv2d { stride: [3, 2], dilation: [2, 2], padding: [2, 1, 3, 2], ..plain.clone() };
    conv(&mut list, "phases without taps", &stretched, [2, 9, 10, 12], [16, 3, 4]);
    conv(&mut list, "groups", &Conv2d { groups: 2, ..same.clone() }, [2, 6, 7, 24], [40, 3, 3]);
    conv(&mut list, "groups and phases", &Conv2d { groups: 3, ..strided.clone() }, [2, 7, 6, 27], [33, 3, 3]);
    conv(&mut list, "a pixel", &plain, [2, 5, 7, 20], [36, 1, 1]);
    // Images of few channels, which are unfolded where the work is worth it.
    let stem = Conv2d { stride: [2, 2], padding: [3, 2, 3, 3], ..plain.clone() };
    conv(&mut list, "unfolded into squares", &stem, [2, 44, 45, 3], [32, 7, 7]);
    conv(&mut list, "unfolded into patches", &Conv2d { stride: [8, 8], ..plain.clone() }, [2, 96, 97, 3], [80, 8, 8]);
    let apart = Conv2d { stride: [6, 5], padding: [1, 0, 2, 1], ..plain.clone() };
    conv(&mut list, "unfolded into patches that are apart", &apart, [2, 63, 60, 3], [136, 5, 4]);
    conv(&mut list, "unfolded into what a kernel meets", &same, [2, 34, 34, 3], [72, 3, 3]);
    list
}
