//! Linear layers and their gradients.

use crate::graph::op::{self, Activation};
use crate::ops::linear::{LinearGradInputKernel, LinearGradWeightKernel, LinearKernel, LinearShape};
use crate::reference::{Sum, Workspace, draw, on_every_level};
use crate::simd::SimdLevel;

const SHAPES: [(usize, usize, usize); 6] =
    [(1, 7, 10), (5, 3, 33), (64, 40, 10), (33, 100, 3), (150, 17, 31), (700, 5, 6)];

#[test]
fn forward() {
    for (rows, inputs, outputs) in SHAPES {
        let (x, w, b) = (draw(rows * inputs, 1), draw(outputs * inputs, 2), draw(outputs, 3));
        let results = on_every_level(|level, pool| {
            let shape = LinearShape { rows, inputs, outputs };
            let kernel = LinearKernel::new(Some(Activation::Relu), shape, level, pool.threads(), false);
            assert_eq!(kernel.remaining_act(), None);
            let mut y = vec![f32::NAN; rows * outputs];
            let mut workspace = Workspace::new(kernel.workspace_bytes());
            kernel.run(pool, x[..].into(), &w, Some(&b[..]), &mut y, workspace.bytes());
            y
        });
        for (level, y) in results {
            for (at, &y) in y.iter().enumerate() {
                let (r, o) = (at / outputs, at % outputs);
                let mut sum = Sum::default();
                (0..inputs).for_each(|i| sum.add(x[r * inputs + i], w[o * inputs + i]));
                sum.add(b[o], 1.0);
                sum.map(|x| x.max(0.0)).assert_near(y, &format!("{level} y[{r}, {o}]"));
            }
        }
    }
}

#[test]
fn activations_that_are_no_bounds_are_left_to_the_caller() {
    let shape = LinearShape { rows: 20, inputs: 3, outputs: 4 };
    for (act, left) in [(Activation::Relu6, None), (Activation::Gelu, Some(Activation::Gelu))] {
        assert_eq!(LinearKernel::new(Some(act), shape, SimdLevel::detect(), 1, false).remaining_act(), left);
    }
}

#[test]
fn gradients() {
    for (rows, inputs, outputs) in SHAPES {
        let (x, w, dy) = (draw(rows * inputs, 1), draw(outputs * inputs, 2), draw(rows * outputs, 3));
        let shape = LinearShape { rows, inputs, outputs };
        let by_input = on_every_level(|level, pool| {
            let kernel = LinearGradInputKernel::new(shape, level, pool.threads());
            let mut dx = vec![f32::NAN; rows * inputs];
            kernel.run(pool, &dy, &w, None, &mut dx, Workspace::new(kernel.workspace_bytes()).bytes());
            dx
        });
        for (level, dx) in by_input {
            for (at, &dx) in dx.iter().enumerate() {
                let (r, i) = (at / inputs, at % inputs);
                let mut sum = Sum::default();
                (0..outputs).for_each(|o| sum.add(dy[r * outputs + o], w[o * inputs + i]));
                sum.assert_near(dx, &format!("{level} dx[{r}, {i}]"));
            }
        }
        let by_weight = on_every_level(|level, pool| {
            let op = op::LinearGradWeight { bias: true };
            let kernel = LinearGradWeightKernel::new(&op, shape, level, pool.threads());
            let mut dw = vec![f32::NAN; (inputs + 1) * outputs];
            let (w, b) = dw.split_at_mut(inputs * outputs);
            kernel.run(pool, x[..].into(), &dy, w, Some(b), Workspace::new(kernel.workspace_bytes()).bytes());
            dw
        });
        for (level, dw) in by_weight {
            for (at, &dw) in dw.iter().enumerate() {
                let mut sum = Sum::default();
                for r in 0..rows {
                    if at < inputs * outputs {
                        sum.add(dy[r * outputs + at / inputs], x[r * inputs + at % inputs]);
                    } else {
                        sum.add(dy[r * outputs + at - inputs * outputs], 1.0);
                    }
                }
                sum.assert_near(dw, &format!("{level} dw at {at}"));
            }
        }
    }
}
