//! Products in bf16: what packs factors, blocks on every unit, whole products.

use crate::gemm::bf16::block::{BLOCK, Block, Blocks, RESULTS, Results};
use crate::gemm::bf16::pack::{Packer, PairRows, Pairing, RoundRows, rounded};
use crate::gemm::bf16::product::TileProduct;
use crate::gemm::bf16::{PANEL, SIDE, STEP, TILE};
use crate::gemm::product::ProductSpec;
use crate::gemm::tile::EpilogueOperands;
use crate::graph::op::Activation;
use crate::reference::{Sum, Workspace, draw, on_every_level};
use crate::simd::bf16::Bf16Unit;
use crate::simd::lanes::{get, put};
use crate::simd::{Kernel, Simd, SimdLevel};
use half::bf16;

/// `n` floats with any exponent, denormal and huge ones among them, drawn from `seed`.
fn draw_bits(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    (0..n).map(|_| f32::from_bits(next())).map(|x| if x.is_finite() { x } else { 1.5 }).collect()
}

fn to_bf16(x: f32) -> f32 {
    f32::from_bits(u32::from(rounded(x)) << 16)
}

#[test]
fn rounding_is_to_nearest_even_and_keeps_what_is_no_number() {
    for x in draw_bits(100_000, 3).into_iter().chain([0.0, -0.0, f32::INFINITY, f32::MAX, -f32::MAX]) {
        let want = if x.is_subnormal() { half::bf16::from_f32(0.0f32.copysign(x)) } else { half::bf16::from_f32(x) };
        assert_eq!(rounded(x), want.to_bits(), "{x:e}");
    }
    for bits in [0x7f80_0001u32, 0xffff_ffff, 0x7fc0_0000, 0xff80_8000] {
        assert!(half::bf16::from_bits(rounded(f32::from_bits(bits))).is_nan(), "{bits:x}");
    }
}

#[test]
fn every_packer_gives_the_same_numbers() {
    let odd = [f32::NAN, f32::INFINITY, f32::from_bits(0x7f80_0001), f32::from_bits(0x007f_ffff), -0.0];
    let from: Vec<f32> = odd.into_iter().chain(draw_bits(6000, 5)).collect();
    // Packing needs no unit.
    let all = || Bf16Unit::ALL.into_iter().flat_map(|unit| SimdLevel::supported().map(move |level| (unit, level)));
    for (unit, level) in all() {
        let packer = Packer::new(unit, level);
        for (rows, columns) in [(1usize, 1usize), (16, 32), (5, 33), (20, 64), (17, 40), (32, 31)] {
            let (padded, whole) = (columns.next_multiple_of(STEP), rows.next_multiple_of(SIDE));
            let (step, to_step) = (columns.max(rows) + 3, padded + STEP);
            let mut to = vec![7u16; whole * to_step];
            let r =
                RoundRows { from: from.as_ptr(), from_step: step, rows, columns, to: to.as_mut_ptr(), to_step, padded };
            // SAFETY: both sides are long enough.
            unsafe { packer.rows(r) };
            let expect = |to: &[u16], of: &dyn Fn(usize, usize) -> f32, what: &str| {
                for row in 0..rows {
                    for k in 0..padded {
                        let want = if k < columns { rounded(of(row, k)) } else { 0 };
                        assert_eq!(to[row * to_step + k], want, "{level} {what} {rows} x {columns}: ({row}, {k})");
                    }
                }
            };
            expect(&to, &|row, k| from[row * step + k], "rows");
            let mut to = vec![7u16; whole * to_step];
            // SAFETY: as above.
            unsafe { packer.turned_rows(RoundRows { to: to.as_mut_ptr(), ..r }) };
            expect(&to, &|row, k| from[row + k * step], "turned rows");
        }
        for (terms, columns) in [(32, 32), (1, 1), (31, 16), (7, 17), (32, 5)] {
            let step = PANEL + 5;
            let mut pairs = vec![7u16; 2 * TILE];
            let p = PairRows { from: from.as_ptr(), from_step: step, terms, columns, to: pairs.as_mut_ptr() };
            let expect = |pairs: &[u16], of: &dyn Fn(usize, usize) -> f32, what: &str| {
                for (at, &got) in pairs[..columns.div_ceil(SIDE) * TILE].iter().enumerate() {
                    let n = at / TILE * SIDE + at % TILE % STEP / 2;
                    let k = Pairing::of(unit).terms(at % TILE / STEP)[at % 2];
                    let want = if n < columns && k < terms { rounded(of(k, n)) } else { 0 };
                    assert_eq!(got, want, "{unit} {level} {what} {terms} x {columns}: ({k}, {n})");
                }
            };
            // SAFETY: as above.
            unsafe { packer.pairs(p) };
            expect(&pairs, &|k, n| from[k * step + n], "pairs");
            pairs.fill(7);
            // SAFETY: as above.
            unsafe { packer.turned_pairs(p) };
            expect(&pairs, &|k, n| from[k + n * step], "turned pairs");
        }
    }
}

/// Sixty-four-byte aligned numbers.
#[repr(align(64))]
struct Aligned<T, const N: usize>([T; N]);

/// The bits of a block of `unit`, for drawn numbers.
fn block(
    (unit, level): (Bf16Unit, SimdLevel),
    (shape, last): ([usize; 2], usize),
    (a, b, c): (&[u16], &[u16], &[f32]),
) -> Vec<u32> {
    let mut results = Box::new(Aligned([0f32; BLOCK]));
    results.0.copy_from_slice(c);
    let place = |at: usize| {
        let k = Pairing::of(unit).terms(at % TILE / STEP)[at % 2];
        at / TILE * TILE + k / 2 * STEP + at % STEP / 2 * 2 + k % 2
    };
    let b: Vec<u16> = (0..b.len()).map(|at| b[place(at)]).collect();
    // Rows of three steps, of which the last and the first are summed.
    let args = Block {
        a: a.as_ptr(),
        a_step: 3 * STEP * 2,
        runs: &[2 * STEP as u32 * 2, 0],
        steps: 1,
        last,
        b: b.as_ptr(),
        c: Results::block(results.0.as_mut_ptr()),
        accumulate: c[0] != 0.0,
    };
    // SAFETY: all operands are as long as whole tiles.
    unsafe { Blocks::new(unit, level).run(shape, &args) };
    let used = |at: &usize| at / RESULTS / 2 * SIDE + at % RESULTS / SIDE < shape[0] && at / RESULTS % 2 < shape[1];
    (0..BLOCK).filter(used).map(|at| results.0[at].to_bits()).collect()
}

/// The plain form has the bits of the instruction, denormal numbers and huge ones included, and so has every level.
#[test]
fn units_have_the_same_bits() {
    let units: Vec<_> = Bf16Unit::supported().collect();
    if units.len() == 1 {
        eprintln!("neither AMX nor AVX512-BF16 here: plain code is compared with itself alone");
    }
    for round in 0..40 {
        let numbers = |n: usize, seed: u64| -> Vec<u16> {
            let seed = seed + 10 * round;
            let drawn = if round % 2 == 0 { draw(n, seed) } else { draw_bits(n, seed) };
            drawn.into_iter().map(|x| (x.to_bits() >> 16) as u16).collect()
        };
        let (mut a, mut b) = (numbers(PANEL * 3 * STEP, 1), numbers(4 * TILE, 2));
        // Every number of terms in the last step.
        let last = 1 + round as usize * 13 % STEP;
        (0..a.len()).filter(|at| at % STEP >= last).for_each(|at| a[at] = 0);
        (0..b.len()).filter(|at| at % TILE / STEP * 2 + at % 2 >= last).for_each(|at| b[at] = 0);
        let mut c = if round % 4 < 2 { draw(BLOCK, 3 + round) } else { draw_bits(BLOCK, 3 + round) };
        if round % 8 >= 4 {
            c.fill(0.0);
        }
        for shape in [1, 4, 7, 16, 17, 25, PANEL].into_iter().flat_map(|rows| [[rows, 1], [rows, 2]]) {
            let want = block((Bf16Unit::Plain, SimdLevel::Scalar), (shape, last), (&a, &b, &c));
            for (unit, level) in units.iter().flat_map(|unit| SimdLevel::supported().map(move |level| (*unit, level))) {
                let got = block((unit, level), (shape, last), (&a, &b, &c));
                let nan = |bits: u32| f32::from_bits(bits).is_nan();
                let other = got.iter().zip(&want).filter(|(x, y)| x != y && !(nan(**x) && nan(**y))).count();
                assert_eq!(other, 0, "{unit} {level} {shape:?}, {last} terms, round {round}");
            }
        }
    }
}

/// Runs `spec` with every unit on every level, compares bits, and values with a plain triple loop over rounded factors.
fn check(spec: ProductSpec, with_bias: bool) {
    let ProductSpec { m, n, k, .. } = spec;
    let reach = |rows: usize, columns: usize, s: [usize; 2]| {
        if rows * columns == 0 { 0 } else { (rows - 1) * s[0] + (columns - 1) * s[1] + 1 }
    };
    let a = draw(reach(m, k, spec.a), 1);
    let b = draw(reach(k, n, spec.b), 2);
    let bias = with_bias.then(|| draw(n, 3));
    let residual = with_bias.then(|| draw((m - 1) * spec.c + n, 4));
    let mut first: Option<Vec<f32>> = None;
    let slow = m * n * k > 1 << 20;
    for unit in Bf16Unit::supported().filter(|unit| !slow || *unit == Bf16Unit::detect().unwrap_or(Bf16Unit::Plain)) {
        let results = on_every_level(|level, pool| {
            if slow && level != SimdLevel::detect() {
                return Vec::new();
            }
            let [c, kept] = [false, true].map(|keeps| {
                let product = TileProduct::new(spec, (unit, level), pool.threads(), None, keeps);
                let mut workspace = Workspace::new(product.workspace_bytes());
                let mut c = vec![7.0; (m - 1) * spec.c + n + 3];
                let operands = EpilogueOperands {
                    bias: bias.as_deref(),
                    residual: residual.as_deref(),
                    ..EpilogueOperands::default()
                };
                product.run(pool, a[..].into(), b[..].into(), operands, &mut c, workspace.bytes());
                c
            });
            assert!(c == kept, "{level} {spec:?}");
            c
        });
        for (level, c) in results.into_iter().filter(|(_, c)| !c.is_empty()) {
            let first = first.get_or_insert_with(|| c.clone());
            assert!(
                c.iter().zip(&*first).all(|(x, y)| x.to_bits() == y.to_bits()),
                "{unit} {level} {spec:?}: other bits"
            );
        }
    }
    let c = first.expect("a unit has computed it");
    for i in 0..m {
        for j in 0..n {
            let mut sum = Sum::default();
            for l in 0..k {
                sum.add(to_bf16(a[i * spec.a[0] + l * spec.a[1]]), to_bf16(b[l * spec.b[0] + j * spec.b[1]]));
            }
            if let (Some(bias), Some(residual)) = (&bias, &residual) {
                sum.add(bias[j], 1.0);
                sum.add(residual[i * spec.c + j], 1.0);
            }
            let sum = sum.map(|x| if spec.act.is_some() { x.max(0.0) } else { x });
            sum.assert_near(c[i * spec.c + j], &format!("{spec:?} at ({i}, {j})"));
        }
    }
    for i in 1..m {
        assert!(c[(i - 1) * spec.c + n..i * spec.c].iter().all(|&x| x == 7.0), "wrote between rows");
    }
    assert!(c[(m - 1) * spec.c + n..].iter().all(|&x| x == 7.0), "wrote beyond the end");
}

/// Vectors round, and widen, as one number does; what does not fill a vector is left alone.
#[test]
fn numbers_are_rounded_in_memory_as_factors_are() {
    struct There<'a>(&'a [f32], &'a mut [bf16]);
    impl Kernel for There<'_> {
        type Output = ();
        fn run<S: Simd>(self, s: S) {
            for (x, y) in self.0.chunks(S::LANES).zip(self.1.chunks_mut(S::LANES)) {
                put(s, y, 0, x.len(), get(s, x, 0, x.len()));
            }
        }
    }
    struct Back<'a>(&'a [bf16], &'a mut [f32]);
    impl Kernel for Back<'_> {
        type Output = ();
        fn run<S: Simd>(self, s: S) {
            for (x, y) in self.0.chunks(S::LANES).zip(self.1.chunks_mut(S::LANES)) {
                put(s, y, 0, x.len(), get(s, x, 0, x.len()));
            }
        }
    }
    let odd = [f32::NAN, f32::INFINITY, f32::from_bits(0x7f80_0001), f32::from_bits(0x807f_ffff), -0.0, f32::MAX];
    for len in [1usize, 7, 16, 31, 3000] {
        let x: Vec<f32> = odd.into_iter().chain(draw_bits(3000, 7)).take(len).collect();
        for level in SimdLevel::supported() {
            let (mut y, mut z) = (vec![bf16::ONE; len + 3], vec![1.0; len + 3]);
            level.run(There(&x, &mut y[..len]));
            level.run(Back(&y[..len], &mut z[..len]));
            for ((x, y), z) in x.iter().zip(&y).zip(&z) {
                assert_eq!((y.to_bits(), z.to_bits()), (rounded(*x), u32::from(rounded(*x)) << 16), "{level}: {x:e}");
            }
            assert!(y[len..] == [bf16::ONE; 3] && z[len..] == [1.0; 3], "{level}");
        }
    }
}

#[test]
fn products_of_all_shapes() {
    let shapes = [
        (1, 1, 1),
        (1, 10, 300),
        (3, 33, 5),
        (16, 32, 64),
        (33, 16, 33),
        (100, 47, 70),
        (700, 20, 40),
        (40, 300, 2000),
        (65, 30, 1100),
        (20, 20, 3000),
        // More panels than a cache has room for, for one thread and two by groups of them.
        (330, 520, 1030),
        (5, 7, 0),
    ];
    for (m, n, k) in shapes {
        for (a, b) in [([k, 1], [1, k]), ([k + 3, 1], [n, 1]), ([1, m], [n + 1, 1]), ([1, m + 5], [1, k])] {
            let relu = (m % 2 == 0).then_some(Activation::Relu);
            check(ProductSpec { m, n, k, a, b, c: n + m % 3, act: relu }, k % 2 == 0);
        }
    }
}
