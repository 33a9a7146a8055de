//! Depthwise convolutions: the sizes that have kernels of their own on a GPU, what remains of rows, columns, channels and strips, and
//! their neighbours that have none. Gradients stand for themselves; the rules are held to differences in `conv`.

use super::ACTIVATIONS;
use crate::case::Case;
use runner::graph::Op;
use runner::graph::op::{Conv2d, Conv2dGradInput, Conv2dGradWeight};

fn case<const N: usize>(name: String, op: impl Into<Op>, shapes: [Vec<usize>; N]) -> Case {
    Case::new(name, op, |d| shapes.into_iter().map(|shape| d.normal(shape)).collect())
}

/// A convolution of images `[N, H, W, C]` by square kernels, and its gradients.
fn conv(list: &mut Vec<Case>, what: &str, x: [usize; 4], kernel: usize, stride: usize, padding: [usize; 4]) {
    let channels = x[3];
    let conv = Conv2d { stride: [stride; 2], padding, dilation: [1, 1], groups: channels, bias: true };
    let name =
        |op: &str| format!("depthwise {op} {x:?}, {kernel}×{kernel}, stride {stride}, padding {padding:?}: {what}");
    let [oh, ow] = conv.out([x[1], x[2]], [kernel; 2]).expect("the kernel fits");
    let (input, w, y) = (x.to_vec(), vec![channels, kernel, kernel, 1], vec![x[0], oh, ow, channels]);
    list.push(case(name("conv2d"), conv.clone(), [input.clone(), w.clone(), vec![channels]]));
    let grad_input = Conv2dGradInput { conv: conv.clone(), input: [x[1], x[2]] };
    list.push(case(name("conv2d_grad_input"), grad_input, [y.clone(), w]));
    let grad_weight = Conv2dGradWeight { conv, kernel: [kernel; 2], bias: true };
    list.push(case(name("conv2d_grad_weight"), grad_weight, [input, y]));
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (kernel, stride) in [(3, 1), (3, 2), (5, 1), (5, 2), (7, 1), (7, 2)] {
        let half = kernel / 2;
        let same = [half; 4];
        conv(&mut list, "one pixel", [2, 1, 1, 24], kernel, stride, same);
        conv(&mut list, "a small image", [3, 7, 7, 96], kernel, stride, same);
        conv(&mut list, "an even image", [2, 8, 14, 8], kernel, stride, same);
        conv(&mut list, "odd sizes, no padding", [2, 11, 16, 8], kernel, stride, [0; 4]);
        conv(&mut list, "strips", [1, 31, 9, 8], kernel, stride, same);
        conv(&mut list, "other padding before than behind", [2, 9, 10, 8], kernel, stride, [half, 0, 1, kernel - 1]);
        conv(&mut list, "more padding than kernel", [1, 4, 5, 8], kernel, stride, [kernel, 1, kernel + 1, 2]);
        conv(&mut list, "several blocks of channels", [2, 3, 4, 264], kernel, stride, same);
    }
    conv(&mut list, "more items than threads", [70, 1, 16, 1024], 5, 1, [2; 4]);
    // What has no kernels of its own: channels that fill no pack, other sizes of kernels.
    conv(&mut list, "six channels", [2, 6, 5, 6], 3, 1, [1; 4]);
    conv(&mut list, "seven channels", [2, 6, 5, 7], 5, 2, [2; 4]);
    conv(&mut list, "a large kernel", [1, 9, 10, 8], 9, 1, [4; 4]);
    for act in ACTIVATIONS {
        let conv = Conv2d { stride: [1, 1], padding: [1; 4], dilation: [1, 1], groups: 8, bias: true };
        let shapes = [vec![2, 6, 6, 8], vec![8, 3, 3, 1], vec![8]];
        list.push(case(format!("depthwise convolution of packs and {act:?}"), conv, shapes).activated(Some(act)));
    }
    list
}
