//! Convolutions in bf16, by every unit.

use crate::conv::{all_cases, compare, for_each_product};
use crate::gemm::bf16::pack::rounded;
use crate::gemm::memory::Memory;
use crate::graph::op;
use crate::ops::conv::{Conv2dGradInputKernel, Conv2dGradWeightKernel, Conv2dKernel, ConvShape};
use crate::plan::Kept;
use crate::reference::{Sum, Workspace, draw, on_every_level};
use crate::run::frame::KeptMemory;
use crate::simd::SimdLevel;
use crate::simd::bf16::{Bf16Unit, Instructions};

/// Drawn numbers that bf16 has.
pub fn draw_bf16(n: usize, seed: u64) -> Vec<f32> {
    draw(n, seed).into_iter().map(|x| f32::from_bits(u32::from(rounded(x)) << 16)).collect()
}

/// Calls `f` with every unit for bf16, and asserts that the bits of what it returns are the same. A unit that single precision may beat
/// has its bits in the place of them.
fn with_every_unit(level: SimdLevel, mut f: impl FnMut(Instructions) -> Vec<f32>) -> Vec<f32> {
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let mut units = Bf16Unit::supported();
    let mut of = |bf16: Option<Bf16Unit>| f(Instructions { level, bf16 });
    let first = of(units.next());
    for unit in units {
        let other = bits(&of(Some(unit)));
        let same = other == bits(&first) || !unit.is_far_faster() && other == bits(&of(None));
        assert!(same, "{level}: the bits of {unit} are its own");
    }
    first
}

/// A unit that single precision may beat makes convolutions in bf16 where that has no way to multiply less often.
#[test]
fn a_unit_that_winograd_beats_leaves_convolutions_to_it() {
    let conv = |stride: usize, padding: usize| op::Conv2d {
        stride: [stride; 2],
        padding: [padding; 4],
        dilation: [1, 1],
        groups: 1,
        bias: false,
    };
    let shape = |side: usize, channels: usize, kernel: usize| ConvShape {
        images: 128,
        input: [side; 2],
        channels,
        kernel: [kernel; 2],
        outputs: 64,
    };
    for (op, s, wanted) in [
        (conv(1, 1), shape(32, 64, 3), false),
        (conv(1, 1), shape(4, 512, 3), false),
        (conv(1, 1), shape(28, 1, 3), false),
        (conv(2, 1), shape(32, 64, 3), true),
        (conv(2, 3), shape(64, 3, 7), true),
        (conv(1, 2), shape(14, 32, 5), true),
        (conv(2, 0), shape(32, 64, 1), true),
    ] {
        let how = |unit| Instructions { level: SimdLevel::detect(), bf16: Some(unit) };
        let of = |unit| Conv2dKernel::new(&op, None, s, how(unit), 2, false).name();
        let [tiles, slower] = [Bf16Unit::Amx, Bf16Unit::Avx512].map(of);
        assert_eq!(slower == tiles, wanted, "{op:?} {s:?}: {slower}");
        let grad = op::Conv2dGradInput { conv: op.clone(), input: s.input };
        let of = |unit| Conv2dGradInputKernel::new(&grad, s, how(unit), 2).name();
        assert_eq!(
            of(Bf16Unit::Amx) == of(Bf16Unit::Avx512),
            wanted || s.channels == 1,
            "gradient by the input, {op:?} {s:?}"
        );
    }
}

/// In bf16: on factors that it has, the results are those of single precision up to the rounding of sums. All three kernels, by turns
/// with kept weights; of every level the same bits. Plain code takes long: of the cases every eighth, with `RUNNER_CONVOLUTIONS=all` all.
#[test]
fn products_in_bf16() {
    let step = if std::env::var("RUNNER_CONVOLUTIONS").is_ok_and(|cases| cases == "all") { 1 } else { 8 };
    for (op, s, _) in all_cases().step_by(step) {
        let (x, w, dy) = (draw_bf16(s.x_len(), 1), draw_bf16(s.w_len(&op), 2), draw_bf16(s.y_len(&op), 4));
        let [mut y, mut dx, mut dw] = [s.y_len(&op), s.x_len(), s.w_len(&op)].map(|n| vec![Sum::default(); n]);
        for_each_product(&op, &s, |from, weight, to| {
            y[to].add(x[from], w[weight]);
            dx[from].add(dy[to], w[weight]);
            dw[weight].add(x[from], dy[to]);
        });
        let what = format!("{op:?} {s:?}");
        let forward = on_every_level(|level, pool| {
            with_every_unit(level, |how| {
                let kernel = Conv2dKernel::new(&op, None, s, how, pool.threads(), false);
                let mut y = vec![f32::NAN; s.y_len(&op)];
                kernel.run(pool, &x, &w, None, &mut y, Workspace::new(kernel.workspace_bytes()).bytes());
                if let Some(Kept { bytes, workspace, .. }) = kernel.kept() {
                    let (mut packed, mut workspace) = (Workspace::new(bytes), Workspace::new(workspace));
                    for ready in [false, true] {
                        let mut again = vec![f32::NAN; y.len()];
                        let w = if ready { vec![f32::NAN; w.len()] } else { w.clone() };
                        let kept = Some(KeptMemory { bytes: packed.bytes(), ready });
                        kernel.run(pool, &x, &w, None, &mut again, Memory { workspace: workspace.bytes(), kept });
                        assert!(again == y, "{level} {what}: kept weights, ready {ready}");
                    }
                }
                y
            })
        });
        compare(&y, forward, 1.5, &what);
        let by_input = on_every_level(|level, pool| {
            with_every_unit(level, |how| {
                let op = op::Conv2dGradInput { conv: op.clone(), input: s.input };
                let kernel = Conv2dGradInputKernel::new(&op, s, how, pool.threads());
                let mut dx = vec![f32::NAN; s.x_len()];
                kernel.run(pool, &dy, &w, None, &mut dx, Workspace::new(kernel.workspace_bytes()).bytes());
                dx
            })
        });
        compare(&dx, by_input, 1.5, &format!("gradient by the input, {what}"));
        let by_weight = on_every_level(|level, pool| {
            with_every_unit(level, |how| {
                let op = op::Conv2dGradWeight { conv: op.clone(), kernel: s.kernel, bias: true };
                let kernel = Conv2dGradWeightKernel::new(&op, s, how, pool.threads());
                let (mut dw, mut db) = (vec![f32::NAN; s.w_len(&op.conv)], vec![f32::NAN; s.outputs]);
                let mut workspace = Workspace::new(kernel.workspace_bytes());
                kernel.run(pool, &x, &dy, &mut dw, Some(&mut db), workspace.bytes());
                assert!(db.iter().all(|db| db.is_finite()));
                dw
            })
        });
        compare(&dw, by_weight, 1.5, &format!("gradient by the weight, {what}"));
    }
}
