//! Convolution and pooling in one, from the parts.

use super::{Tensor, conv, dims4, pool};
use crate::graph::op::{
    Activation, Conv2d, Conv2dGradInput, Conv2dGradWeight, Conv2dMaxPool, Conv2dMaxPoolGradInput,
    Conv2dMaxPoolGradWeight, GradAfter, MaxPool2d, MaxPool2dGrad, NO_GRADIENT,
};

const POOL: MaxPool2d =
    MaxPool2d { kernel: [2, 2], stride: [2, 2], padding: [0, 0], dilation: [1, 1], ceil_mode: false };

/// `[N, OH, OW, O]` of the convolution.
fn between(conv: &Conv2d, x: [usize; 4], w: [usize; 4]) -> [usize; 4] {
    let [h, width] = conv.out([x[1], x[2]], [w[1], w[2]]).expect("checked by the shape rule");
    [x[0], h, width, w[0]]
}

/// The gradient by what was pooled.
fn unpooled(dy: Tensor, positions: Tensor, between: [usize; 4]) -> Vec<f64> {
    let none = f64::from(NO_GRADIENT);
    let passed: Vec<f64> = dy.data.iter().zip(positions.data).map(|(g, p)| if *p == none { 0.0 } else { *g }).collect();
    let places: Vec<f64> = positions.data.iter().map(|p| if *p == none { 0.0 } else { *p }).collect();
    let operands = [Tensor { data: &passed, ..dy }, Tensor { data: &places, ..positions }];
    let op = MaxPool2dGrad { pool: POOL, input: [between[1], between[2]] };
    pool::max_grad(&op, &operands, &[&between]).remove(0)
}

pub(super) fn forward(op: &Conv2dMaxPool, x: &[Tensor], outputs: &[&[usize]]) -> Vec<Vec<f64>> {
    let between = between(&op.conv, x[0].dims4(), x[1].dims4());
    let plain = Conv2d { act: None, ..op.conv.clone() };
    let sums = conv::forward(&plain, x, &[&between]).remove(0);
    let mut results = pool::max(&POOL, &[Tensor { dims: &between, data: &sums }], outputs);
    let (low, high) = match op.conv.act {
        Some(Activation::Relu) => (0.0, f64::INFINITY),
        Some(Activation::Relu6) => (0.0, 6.0),
        _ => return results,
    };
    for i in 0..results[0].len() {
        let y = results[0][i];
        if y <= low || y >= high {
            results[0][i] = y.clamp(low, high);
            results[1][i] = f64::from(NO_GRADIENT);
        }
    }
    results
}

pub(super) fn grad_input(op: &Conv2dMaxPoolGradInput, x: &[Tensor], outputs: &[&[usize]]) -> Vec<Vec<f64>> {
    let between = between(&op.conv, dims4(outputs[0]), x[2].dims4());
    let dy = unpooled(x[0], x[1], between);
    let plain = Conv2dGradInput { conv: op.conv.clone(), input: op.input, after: GradAfter::default() };
    conv::grad_input(&plain, &[Tensor { dims: &between, data: &dy }, x[2]], outputs)
}

pub(super) fn grad_weight(op: &Conv2dMaxPoolGradWeight, x: &[Tensor], outputs: &[&[usize]]) -> Vec<Vec<f64>> {
    let between = between(&op.conv, x[0].dims4(), dims4(outputs[0]));
    let dy = unpooled(x[1], x[2], between);
    let plain = Conv2dGradWeight { conv: op.conv.clone(), kernel: op.kernel, bias: op.bias };
    conv::grad_weight(&plain, &[x[0], Tensor { dims: &between, data: &dy }], outputs)
}
