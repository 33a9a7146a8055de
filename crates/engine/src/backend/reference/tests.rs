use super::*;
use crate::graph::op::{
    Algorithm, BatchNorm, Binary, BinaryKind, Conv2d, CrossEntropy, Dropout, GradNorm, Linear, LossGrad, LossOp,
    MaxPool2d, Metrics, OptimizerStep, Permute, Softmax, Task, TensorOptions,
};
use crate::graph::{DType, Role, Shape, VarId};

/// The outputs of `op` on operands given as shape and elements.
fn run(op: impl Into<Op>, operands: &[(&[usize], &[f64])]) -> Vec<Vec<f64>> {
    let mut graph = Graph::new();
    let mut values = Values::new();
    let mut ids = Vec::new();
    for (i, (dims, data)) in operands.iter().enumerate() {
        let id = graph.add_value(DType::F32, Shape::from(*dims), Role::State(VarId(i as u32)));
        values.insert(id, data.to_vec());
        ids.push(id);
    }
    let outputs = graph.add(op, &ids).unwrap();
    evaluate(&graph, &mut values);
    outputs.iter().map(|o| values[o].clone()).collect()
}

#[test]
fn products_by_hand() {
    let y = run(
        Linear { bias: true },
        &[(&[1, 2], &[1.0, 2.0]), (&[2, 2], &[1.0, 10.0, 100.0, 1000.0]), (&[2], &[0.5, 0.25])],
    );
    assert_eq!(y, [[21.5, 2100.25]]);
    // Two channels of a 1×3 image, padded on the right alone; the kernel takes a pixel and its right neighbour.
    let conv = Conv2d { stride: [1, 1], padding: [0, 0, 0, 1], dilation: [1, 1], groups: 1, bias: false };
    let y =
        run(conv, &[(&[1, 1, 3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), (&[1, 1, 2, 2], &[1.0, 10.0, 100.0, 1000.0])]);
    assert_eq!(y, [[4321.0, 6543.0, 65.0]]);
}

#[test]
fn windows_by_hand() {
    let pool = MaxPool2d { kernel: [1, 2], stride: [1, 2], padding: [0, 0], dilation: [1, 1], ceil_mode: true };
    let y = run(pool, &[(&[1, 1, 5, 1], &[3.0, 3.0, 1.0, 2.0, -7.0])]);
    // The first of equals; the last window has one pixel.
    assert_eq!(y, [[3.0, 2.0, -7.0], [0.0, 1.0, 0.0]]);
}

#[test]
fn broadcasts_and_axes_by_hand() {
    let add = Binary { kind: BinaryKind::Add };
    assert_eq!(run(add, &[(&[2, 1], &[1.0, 2.0]), (&[1, 2], &[10.0, 20.0])]), [[11.0, 21.0, 12.0, 22.0]]);
    let y = run(Permute { perm: vec![1, 0] }, &[(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])]);
    assert_eq!(y, [[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]]);
}

#[test]
fn sums_by_hand() {
    let y = run(Softmax {}, &[(&[1, 2], &[0.0, 3f64.ln()])]);
    assert!((y[0][0] - 0.25).abs() < 1e-15 && (y[0][1] - 0.75).abs() < 1e-15);
    let norm = run(GradNorm {}, &[(&[4], &[0.1, 0.5, 2.0, 0.0]), (&[1], &[3.0]), (&[2], &[0.0, -4.0])]);
    assert_eq!(norm, [[1.25]]);
}

#[test]
fn dropout_scales_what_it_keeps() {
    let y = run(Dropout { p: 0.5, stream: 1 }, &[(&[100], &[1.0; 100]), (&[4], &[1.0, 2.0, 3.0, 4.0])]);
    let kept = y[0].iter().filter(|v| **v != 0.0).count();
    assert!(y[0].iter().all(|v| *v == 0.0 || *v == 2.0) && (30..70).contains(&kept), "{kept}");
}

/// The operands that `op` updates, afterwards; `operands` as for [`run`].
fn updated(op: impl Into<Op>, operands: &[(&[usize], &[f64])]) -> Vec<Vec<f64>> {
    let op = op.into();
    let tensors: Vec<Tensor> = operands.iter().map(|(dims, data)| Tensor { dims, data }).collect();
    let outputs: Vec<&[usize]> = Vec::new();
    compute(&op, &tensors, &outputs)
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (f, e) in found.iter().zip(expected) {
        assert!((f - e).abs() < 1e-6, "{found:?} is not {expected:?}");
    }
}

/// One update of the parameter 2 with the gradient 4, of which the schedule leaves 1: learning rate 0.5, scales 0.5
/// and 2. `state` holds the state tensors; returns counter, parameter, state.
fn update(algorithm: Algorithm, weight_decay: f32, steps: f64, loss: f64, state: &[f64]) -> Vec<f64> {
    let tensors = vec![TensorOptions { lr_scale: 1.0, weight_decay }];
    let loss = [loss];
    let steps = [steps];
    let mut operands: Vec<(&[usize], &[f64])> =
        vec![(&[4], &[0.5, 0.5, 2.0, 0.0]), (&[1], &loss), (&[1], &steps), (&[1], &[2.0]), (&[1], &[4.0])];
    operands.extend(state.chunks(1).map(|s| (&[1][..], s)));
    updated(
        OptimizerStep {
            algorithm,
            clip_norm: None,
            clip_value: None,
            scaled: false,
            counts: true,
            tensors,
            parts: Vec::new(),
        },
        &operands,
    )
    .concat()
}

#[test]
fn gradient_descent_by_hand() {
    let sgd = |momentum, dampening, nesterov| Algorithm::Sgd { momentum, dampening, nesterov };
    close(&update(sgd(0.0, 0.0, false), 0.0, 7.0, 1.0, &[]), &[8.0, 1.5]);
    // Weight decay makes the gradient 1 + 0.25 · 2.
    close(&update(sgd(0.0, 0.0, false), 0.25, 7.0, 1.0, &[]), &[8.0, 1.25]);
    // The first velocity is the gradient, whatever the dampening.
    close(&update(sgd(0.5, 0.75, false), 0.0, 0.0, 1.0, &[3.0]), &[1.0, 1.5, 1.0]);
    close(&update(sgd(0.5, 0.75, false), 0.0, 1.0, 1.0, &[3.0]), &[2.0, 2.0 - 0.5 * 1.75, 1.75]);
    close(&update(sgd(0.5, 0.0, true), 0.0, 1.0, 1.0, &[3.0]), &[2.0, 2.0 - 0.5 * (1.0 + 0.5 * 2.5), 2.5]);
    close(&update(sgd(0.5, 0.0, true), 0.0, 1.0, f64::NAN, &[3.0]), &[1.0, 2.0, 3.0]);
}

#[test]
fn adaptive_steps_by_hand() {
    let adam = |decoupled, amsgrad| Algorithm::Adam { beta1: 0.5, beta2: 0.75, eps: 0.0, decoupled, amsgrad };
    // The first step is as long as the learning rate.
    close(&update(adam(false, false), 0.0, 0.0, 1.0, &[0.0, 0.0]), &[1.0, 1.5, 0.5, 0.25]);
    close(&update(adam(true, false), 0.5, 0.0, 1.0, &[0.0, 0.0]), &[1.0, 2.0 * 0.75 - 0.5, 0.5, 0.25]);
    // Second step: mean 1.5 / 0.75, mean square 4 / 0.4375.
    let expected = [2.0, 2.0 - 0.5 * 2.0 / (4.0f64 / 0.4375).sqrt(), 1.5, 4.0];
    close(&update(adam(false, false), 0.0, 1.0, 1.0, &[2.0, 5.0]), &expected);
    let expected = [2.0, 2.0 - 0.5 * 2.0 / (7.0f64 / 0.4375).sqrt(), 1.5, 4.0, 7.0];
    close(&update(adam(false, true), 0.0, 1.0, 1.0, &[2.0, 5.0, 7.0]), &expected);

    let rms = |momentum, centered| Algorithm::RmsProp { alpha: 0.75, eps: 1.0, momentum, centered };
    close(&update(rms(0.0, false), 0.0, 3.0, 1.0, &[5.0]), &[4.0, 2.0 - 0.5 / 3.0, 4.0]);
    close(
        &update(rms(0.5, false), 0.0, 3.0, 1.0, &[5.0, 1.0]),
        &[4.0, 2.0 - 0.5 * (0.5 + 1.0 / 3.0), 4.0, 0.5 + 1.0 / 3.0],
    );
    // Mean 0.75 · 1 + 0.25, so a variance of 4 − 1.
    let step = 1.0 / (3f64.sqrt() + 1.0);
    close(&update(rms(0.0, true), 0.0, 3.0, 1.0, &[5.0, 1.0]), &[4.0, 2.0 - 0.5 * step, 4.0, 1.0]);
}

#[test]
fn running_statistics_by_hand() {
    let x: &[f64] = &[1.0, 3.0];
    for (momentum, mean, var) in [(Some(0.25), 0.75 * 10.0 + 0.25 * 2.0, 0.75 * 8.0 + 0.25 * 2.0), (None, 6.0, 5.0)] {
        let op = BatchNorm { eps: 0.0, momentum, affine: false, track: true };
        let results = updated(op, &[(&[2, 1], x), (&[1], &[10.0]), (&[1], &[8.0]), (&[], &[1.0])]);
        // The variance of the two is 1 over their number, 2 over one less.
        close(&results.concat(), &[-1.0, 1.0, 2.0, 1.0, mean, var, 2.0]);
    }
}

#[test]
fn losses_and_metrics_by_hand() {
    // Probabilities 1/4 and 3/4.
    let logits: &[f64] = &[0.0, 3f64.ln()];
    for (label_smoothing, expected) in [(0.0, 4f64.ln()), (0.5, 0.75 * 4f64.ln() + 0.25 * (4.0f64 / 3.0).ln())] {
        let results =
            updated(LossOp::from(CrossEntropy::smoothed(label_smoothing)), &[(&[1, 2], logits), (&[1], &[0.0])]);
        close(&results.concat(), &[expected, 1.0]);
    }
    let sums = updated(
        Metrics { task: Task::Classification, ignore_index: None },
        &[(&[1], &[0.5]), (&[1], &[2.0]), (&[2, 2], &[1.0, 1.0, 0.0, 2.0]), (&[2], &[0.0, 0.0]), (&[8], &[1.0; 8])],
    );
    close(&sums[0], &[2.0, 3.0, 2.0, 1.0, 1.0, 3.0, 1.0, 1.0]);
    let sums = updated(
        Metrics { task: Task::Regression, ignore_index: None },
        &[(&[1], &[0.5]), (&[1], &[2.0]), (&[2, 1], &[1.0, 5.0]), (&[2], &[2.0, 2.0]), (&[8], &[0.0; 8])],
    );
    close(&sums[0], &[1.0, 2.0, 0.0, 4.0, 10.0, 2.0, 0.0, 0.0]);
}

/// `torch.nn.CrossEntropyLoss` with probabilities as targets, and its gradient.
#[test]
fn shares_of_classes_as_in_pytorch() {
    let (x, t): ([f64; 6], [f64; 6]) = ([0.5, -1.25, 2.0, 3.0, 0.25, -0.75], [0.75, 0.25, 0.0, 0.0, 0.375, 0.625]);
    let plain = (
        [2.814476724668907],
        [
            -0.28658990894627784,
            -0.10963662983678178,
            0.39622653878305963,
            0.45979311218199004,
            -0.15810640974062962,
            -0.3016867024413605,
        ],
    );
    let smoothed = (
        [3.5928578519169654],
        [
            -0.07581105762504002,
            -0.2559500684877157,
            0.33176112611275566,
            0.6508956664950427,
            -0.3216411350637844,
            -0.32925453143125843,
        ],
    );
    let weight = vec![0.5, 2.0, 1.25];
    for (label_smoothing, weight, (loss, dx)) in [(0.0, Vec::new(), plain), (0.25, weight, smoothed)] {
        let op = CrossEntropy { weight, ..CrossEntropy::smoothed(label_smoothing) };
        let operands: [(&[usize], &[f64]); 2] = [(&[2, 3], &x), (&[2, 3], &t)];
        let result = run(LossOp::from(op.clone()), &operands);
        close(&result.concat(), &[loss[0], 2.0]);
        let operands = [operands[0], operands[1], (&[1], &[2.0]), (&[1], &[1.0])];
        close(&run(LossGrad { loss: op.into(), weighted: false }, &operands).concat(), &dx);
    }
}
