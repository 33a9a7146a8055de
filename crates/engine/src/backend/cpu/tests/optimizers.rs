use super::harness::{Tensor, assert_close, outputs, run};
use crate::graph::op::{AccumulateGrad, Algorithm, GradNorm, OptimizerStep, TensorOptions};

/// One tensor of the recurrences, in double precision.
struct Reference {
    p: Vec<f64>,
    state: Vec<Vec<f64>>,
}

/// The update of `torch.optim`, element by element, written from its documentation.
fn reference_step(a: &Algorithm, t: &mut Reference, grad: &[f64], lr: f64, decay: f64, step: i32) {
    for i in 0..t.p.len() {
        let mut g = grad[i];
        if decay != 0.0 && !matches!(a, Algorithm::Adam { decoupled: true, .. }) {
            g += decay * t.p[i];
        }
        match *a {
            Algorithm::Sgd { momentum, dampening, nesterov } => {
                let (mu, tau) = (momentum as f64, dampening as f64);
                if mu != 0.0 {
                    let b = &mut t.state[0][i];
                    *b = if step == 1 { g } else { mu * *b + (1.0 - tau) * g };
                    g = if nesterov { g + mu * *b } else { *b };
                }
                t.p[i] -= lr * g;
            }
            Algorithm::Adam { beta1, beta2, eps, decoupled, amsgrad } => {
                if decoupled {
                    t.p[i] -= lr * decay * t.p[i];
                }
                t.state[0][i] = beta1 * t.state[0][i] + (1.0 - beta1) * g;
                t.state[1][i] = beta2 * t.state[1][i] + (1.0 - beta2) * g * g;
                let mut v = t.state[1][i];
                if amsgrad {
                    t.state[2][i] = t.state[2][i].max(v);
                    v = t.state[2][i];
                }
                let root = v.sqrt() / (1.0 - beta2.powi(step)).sqrt() + eps as f64;
                t.p[i] -= lr / (1.0 - beta1.powi(step)) * t.state[0][i] / root;
            }
            Algorithm::RmsProp { alpha, eps, momentum, centered } => {
                t.state[0][i] = alpha * t.state[0][i] + (1.0 - alpha) * g * g;
                let mut v = t.state[0][i];
                if centered {
                    let mean = t.state.last_mut().unwrap();
                    mean[i] = alpha * mean[i] + (1.0 - alpha) * g;
                    v -= mean[i] * mean[i];
                }
                let d = g / (v.sqrt() + eps as f64);
                if momentum != 0.0 {
                    t.state[1][i] = momentum as f64 * t.state[1][i] + d;
                    t.p[i] -= lr * t.state[1][i];
                } else {
                    t.p[i] -= lr * d;
                }
            }
            _ => unreachable!("is held against the reference alone"),
        }
    }
}

fn algorithms() -> Vec<Algorithm> {
    let sgd = |momentum, dampening, nesterov| Algorithm::Sgd { momentum, dampening, nesterov };
    let adam = |decoupled, amsgrad| Algorithm::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-3, decoupled, amsgrad };
    let rmsprop = |momentum, centered| Algorithm::RmsProp { alpha: 0.99, eps: 1e-3, momentum, centered };
    vec![
        sgd(0.0, 0.0, false),
        sgd(0.9, 0.0, false),
        sgd(0.9, 0.5, false),
        sgd(0.9, 0.0, true),
        adam(false, false),
        adam(false, true),
        adam(true, false),
        adam(true, true),
        rmsprop(0.0, false),
        rmsprop(0.9, false),
        rmsprop(0.0, true),
        rmsprop(0.9, true),
    ]
}

const LENGTHS: [usize; 4] = [3, 1000, 40_001, 1];

#[test]
fn steps_follow_the_recurrences() {
    for algorithm in algorithms() {
        for clip_norm in [None, Some(0.5), Some(1e6)] {
            let slots = algorithm.slots().count();
            let options = [(1.0, 0.0), (0.5, 0.01), (1.0, 0.1), (2.0, 0.0)]
                .map(|(lr_scale, weight_decay)| TensorOptions { lr_scale, weight_decay });
            let op = OptimizerStep {
                algorithm,
                clip_norm,
                clip_value: None,
                scaled: false,
                counts: true,
                tensors: options.to_vec(),
                parts: Vec::new(),
            };
            let schedule = [0.01f32, 0.5, 4.0, 0.004];
            let mut want: Vec<Reference> = Vec::new();
            let mut operands = vec![Tensor::from_f32([4], &schedule), Tensor::from_f32([1], &[1.0])];
            operands.extend(clip_norm.map(|_| Tensor::from_f32([1], &[0.0])));
            operands.push(Tensor::from_i64([1], &[0]));
            for (i, n) in LENGTHS.into_iter().enumerate() {
                let p = Tensor::normal([n], i as u64);
                want.push(Reference { p: p.doubles(), state: vec![vec![0.0; n]; slots] });
                operands.push(p);
                operands.extend((0..=slots).map(|_| Tensor::from_f32([n], &vec![0.0; n])));
            }
            for step in 1..=3 {
                let norm = 5.0f32;
                if clip_norm.is_some() {
                    operands[2] = Tensor::from_f32([1], &[norm]);
                }
                let clip = clip_norm.map_or(1.0, |c| (c as f64 / (norm as f64 + 1e-6)).min(1.0));
                for (t, (n, o)) in LENGTHS.into_iter().zip(&options).enumerate() {
                    let g = Tensor::normal([n], 100 * step as u64 + t as u64);
                    let scaled: Vec<f64> = g.doubles().iter().map(|g| g * 0.125 * clip).collect();
                    let [lr, floor] = [0.01f32, 0.004].map(|x| x as f64);
                    let lr = (lr - floor) * o.lr_scale as f64 + floor;
                    reference_step(&algorithm, &mut want[t], &scaled, lr, o.weight_decay as f64, step);
                    operands[op.head() + t * op.stride() + 1] = g;
                }
                let outcomes = run(op.clone(), &operands);
                for got in &outcomes {
                    assert_eq!(got.operands[op.head() - 1].i64s(), [step as i64]);
                    for (t, want) in want.iter().enumerate() {
                        let at = op.head() + t * op.stride();
                        // Decay and gradient may cancel, and what they leave is divided by its own size, which RMSprop
                        // does not correct for the few steps seen; the centred square is a difference as well.
                        let tolerance = match algorithm {
                            Algorithm::Sgd { .. } => 5e-7,
                            Algorithm::RmsProp { .. } => 2e-5,
                            _ => 3e-6,
                        };
                        assert_close(&format!("{algorithm:?}"), &got.operands[at], &want.p, tolerance, 0.3);
                        for (k, state) in want.state.iter().enumerate() {
                            let what = format!("{algorithm:?}: state {k}");
                            assert_close(&what, &got.operands[at + 2 + k], state, tolerance, 1.0);
                        }
                    }
                }
                operands = outcomes.into_iter().next_back().unwrap().operands;
            }
        }
    }
}

#[test]
fn a_loss_that_is_not_finite_updates_nothing() {
    let algorithm = Algorithm::Sgd { momentum: 0.9, dampening: 0.0, nesterov: false };
    let tensors = vec![TensorOptions { lr_scale: 1.0, weight_decay: 0.1 }];
    let op = OptimizerStep {
        algorithm,
        clip_norm: None,
        clip_value: None,
        scaled: false,
        counts: true,
        tensors,
        parts: Vec::new(),
    };
    for loss in [f32::NAN, f32::INFINITY] {
        let operands = [
            Tensor::from_f32([4], &[0.1, 1.0, 1.0, 0.0]),
            Tensor::from_f32([1], &[loss]),
            Tensor::from_i64([1], &[7]),
            Tensor::normal([100], 1),
            Tensor::normal([100], 2),
            Tensor::normal([100], 3),
        ];
        for got in run(op.clone(), &operands) {
            assert_eq!(got.operands, operands);
        }
    }
}

#[test]
fn norm_of_all_gradients() {
    let grads: Vec<Tensor> = LENGTHS.iter().enumerate().map(|(i, n)| Tensor::normal([*n], i as u64)).collect();
    let sum: f64 = grads.iter().flat_map(Tensor::doubles).map(|g| g * g).sum();
    let mut operands = vec![Tensor::from_f32([4], &[0.1, 0.5, 8.0, 0.0])];
    operands.extend(grads);
    for got in outputs(GradNorm {}, &operands) {
        assert_close("norm", &got[0], &[sum.sqrt() / 16.0], 3e-7, 0.0);
    }
}

#[test]
fn gradients_accumulate() {
    let (g, sum) = (Tensor::normal([40_001], 1), Tensor::normal([40_001], 2));
    let want: Vec<f32> = g.f32s().iter().zip(sum.f32s()).map(|(a, b)| a + b).collect();
    for got in run(AccumulateGrad {}, &[g, sum]) {
        assert_eq!(got.operands[1].f32s(), want);
    }
}
