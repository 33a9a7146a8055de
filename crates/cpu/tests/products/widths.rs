//! Convolutions whose operands lie in memory as floats or rounded to bf16.

use crate::conv::all_cases;
use crate::conv_bf16::draw_bf16;
use crate::gemm::bf16::pack::rounded;
use crate::gemm::numbers::{Numbers, NumbersMut, Rounded};
use crate::gemm::tile::{EpilogueOperands, Finish};
use crate::graph::op::Activation;
use crate::ops::conv::Conv2dKernel;
use crate::ops::elementwise::ActivationFinish;
use crate::reference::{Workspace, draw, on_every_level};
use crate::simd::bf16::{Bf16Unit, Instructions};
use half::bf16;

/// The numbers as they lie in memory when they are rounded.
fn in_memory(numbers: &[f32]) -> Vec<bf16> {
    numbers.iter().map(|x| bf16::from_bits(rounded(*x))).collect()
}

/// In each width of source, residual and result: the bits of a kernel of floats on the same numbers, its results rounded at the end, after activations that
/// are bounds and those that are not. Of the cases every third.
#[test]
fn operands_in_either_width() {
    let mut tried = 0;
    for (op, s, _) in
        all_cases().step_by(3).filter(|(op, s, _)| Conv2dKernel::takes_rounded(op, *s, Bf16Unit::Plain, op.groups == 1))
    {
        tried += 1;
        let (x, w, residual) = (draw_bf16(s.x_len(), 1), draw(s.w_len(&op), 2), draw_bf16(s.y_len(&op), 3));
        let (scale, bias) = (draw(s.outputs, 4), draw(s.outputs, 5));
        let act = [None, Some(Activation::Relu), Some(Activation::Silu)][tried % 3];
        let unit = if s.w_len(&op) * s.y_len(&op) > 1 << 22 { Bf16Unit::detect() } else { Some(Bf16Unit::Plain) };
        let unit = unit.unwrap_or(Bf16Unit::Plain);
        for width in 0..8 {
            let is = |bit: usize| width >> bit & 1 == 1;
            if op.groups > 1 && is(1) {
                continue;
            }
            let widths = Rounded { source: is(0), summand: is(1), result: is(2) };
            on_every_level(|level, pool| {
                let how = Instructions { level, bf16: Some(unit) };
                let added = op.groups == 1;
                let run = |kernel: &Conv2dKernel, widths: Rounded, y: NumbersMut| {
                    let finish = kernel.remaining_act().map(|act| ActivationFinish { level, act });
                    let (short, short_residual) = (in_memory(&x), in_memory(&residual));
                    let operands = EpilogueOperands {
                        scale: Some(&scale),
                        bias: Some(&bias),
                        residual: Some(&residual[..]).filter(|_| added && !widths.summand),
                        rounded_residual: Some(&short_residual[..]).filter(|_| added && widths.summand),
                        finish: finish.as_ref().map(|finish| finish as &dyn Finish),
                        ..EpilogueOperands::default()
                    };
                    let source = if widths.source { Numbers::Rounded(&short) } else { Numbers::Single(&x) };
                    let mut workspace = Workspace::new(kernel.workspace_bytes());
                    kernel.run_numbers(pool, source, &w, operands, y, workspace.bytes().into());
                };
                let none = Rounded::default();
                let kernel = Conv2dKernel::rounded(&op, act, s, how, pool.threads(), none);
                let mut expected = vec![f32::NAN; s.y_len(&op)];
                run(&kernel, none, NumbersMut::Single(&mut expected));
                let kernel = Conv2dKernel::rounded(&op, act, s, how, pool.threads(), widths);
                if widths.result {
                    let mut y = vec![bf16::NAN; s.y_len(&op)];
                    run(&kernel, widths, NumbersMut::Rounded(&mut y));
                    assert!(y == in_memory(&expected), "{level} {op:?} {s:?} {widths:?}");
                } else {
                    let mut y = vec![f32::NAN; s.y_len(&op)];
                    run(&kernel, widths, NumbersMut::Single(&mut y));
                    assert!(y == expected, "{level} {op:?} {s:?} {widths:?}");
                }
                expected
            });
        }
    }
    assert!(tried > 10, "only {tried} cases have a kernel");
}
