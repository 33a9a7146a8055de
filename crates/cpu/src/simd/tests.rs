use super::*;

/// Applies every operation to one vector and writes the results below one another.
struct Ops<'a> {
    a: &'a [f32],
    b: &'a [f32],
    out: &'a mut Vec<(&'static str, Vec<f32>)>,
}

impl Kernel for Ops<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (a, b) in self.a.chunks(S::LANES).zip(self.b.chunks(S::LANES)) {
            let n = a.len();
            // SAFETY: no more than `n` floats are read.
            let (va, vb) = unsafe { (s.load_part(a.as_ptr(), n), s.load_part(b.as_ptr(), n)) };
            let results = [
                ("add", s.add(va, vb)),
                ("sub", s.sub(va, vb)),
                ("mul", s.mul(va, vb)),
                ("div", s.div(va, vb)),
                ("max", s.max(va, vb)),
                ("min", s.min(va, vb)),
                ("sqrt", s.sqrt(s.abs(va))),
                ("abs", s.abs(va)),
                ("neg", s.neg(va)),
                ("round", s.round(va)),
                ("gt", s.select(s.gt(va, vb), va, vb)),
                ("ge", s.select(s.ge(va, vb), s.splat(1.0), s.zero())),
                ("gt_or_nan", s.select(s.gt_or_nan(va, vb), va, vb)),
                ("eq", s.select(s.eq(va, vb), s.splat(1.0), s.zero())),
            ];
            for (name, v) in results {
                let mut lanes = [7.0f32; MAX_LANES + 1];
                // SAFETY: `n <= MAX_LANES`.
                unsafe { s.store_part(lanes.as_mut_ptr(), v, n) };
                assert!(lanes[n..].iter().all(|&x| x == 7.0), "{name} wrote beyond {n} lanes");
                match self.out.iter_mut().find(|(have, _)| *have == name) {
                    Some((_, all)) => all.extend(&lanes[..n]),
                    None => self.out.push((name, lanes[..n].to_vec())),
                }
            }
        }
    }
}

#[test]
fn operations_match_plain_arithmetic() {
    let a: Vec<f32> = (0..53).map(|i| (i as f32 - 26.0) * 0.75).collect();
    let b: Vec<f32> = (0..53).map(|i| if i % 5 == 0 { a[i] } else { (i as f32 * 7.3) % 11.0 - 4.0 }).collect();
    for level in SimdLevel::supported() {
        let mut out = Vec::new();
        level.run(Ops { a: &a, b: &b, out: &mut out });
        for (name, got) in out {
            for i in 0..a.len() {
                let (x, y) = (a[i], b[i]);
                let want = match name {
                    "add" => x + y,
                    "sub" => x - y,
                    "mul" => x * y,
                    "div" => x / y,
                    "max" | "gt" | "gt_or_nan" => x.max(y),
                    "min" => x.min(y),
                    "sqrt" => x.abs().sqrt(),
                    "abs" => x.abs(),
                    "neg" => -x,
                    "round" => x.round_ties_even(),
                    "ge" => (x >= y) as u8 as f32,
                    "eq" => (x == y) as u8 as f32,
                    _ => unreachable!(),
                };
                assert!(got[i] == want || got[i].is_nan() && want.is_nan(), "{level} {name}({x}, {y}) = {}", got[i]);
            }
        }
    }
}

struct Bytes;

impl Kernel for Bytes {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for start in 0..=u8::MAX as usize + 1 - S::LANES {
            let from: Vec<u8> = (start..start + S::LANES).map(|i| i as u8).collect();
            let mut to = [7; MAX_LANES + 1];
            // SAFETY: both have `LANES` bytes.
            unsafe { s.store_bytes(to.as_mut_ptr(), s.add(s.load_bytes(from.as_ptr()), s.zero())) };
            assert_eq!(&to[..S::LANES], &from, "{}", S::LEVEL);
            assert!(to[S::LANES..].iter().all(|&x| x == 7), "{} wrote too much", S::LEVEL);
            // SAFETY: as above.
            let floats = s.to_array(unsafe { s.load_bytes(from.as_ptr()) });
            assert!(from.iter().zip(floats).all(|(&byte, float)| f32::from(byte) == float), "{}", S::LEVEL);
        }
    }
}

#[test]
fn bytes_become_floats_and_return() {
    SimdLevel::supported().for_each(|level| level.run(Bytes));
}

struct NotNumbers;

impl Kernel for NotNumbers {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let win = |a: f32, b: f32| {
            let m = s.gt_or_nan(s.splat(a), s.splat(b));
            s.to_array(s.select(m, s.splat(1.0), s.zero()))[S::LANES - 1] == 1.0
        };
        assert!(win(f32::NAN, 1.0) && win(f32::NAN, f32::NAN) && win(2.0, 1.0), "{}", S::LEVEL);
        assert!(!win(1.0, f32::NAN) && !win(1.0, 1.0) && !win(1.0, 2.0), "{}", S::LEVEL);
    }
}

#[test]
fn not_a_number_wins_over_numbers() {
    SimdLevel::supported().for_each(|level| level.run(NotNumbers));
}

struct Transpose;

impl Kernel for Transpose {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (n, from_step, to_step) = (S::LANES, S::LANES + 3, S::LANES + 5);
        let from: Vec<f32> = (0..n * from_step).map(|i| i as f32).collect();
        let mut to = vec![-1.0; n * to_step];
        // SAFETY: both have `LANES` rows of their step.
        unsafe { s.transpose(from.as_ptr(), from_step, to.as_mut_ptr(), to_step) };
        for (at, &x) in to.iter().enumerate() {
            let (r, c) = (at / to_step, at % to_step);
            let want = if c < n { (c * from_step + r) as f32 } else { -1.0 };
            assert_eq!(x, want, "{} row {r}, column {c}", S::LEVEL);
        }
    }
}

#[test]
fn squares_are_transposed() {
    SimdLevel::supported().for_each(|level| level.run(Transpose));
}

struct Exp<'a>(&'a mut [f32]);

impl Kernel for Exp<'_> {
    type Output = (f32, f32);
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f32, f32) {
        let mut total = s.zero();
        let mut best = s.splat(f32::NEG_INFINITY);
        for x in self.0.chunks_exact_mut(S::LANES) {
            // SAFETY: the chunk has `LANES` floats.
            let v = unsafe { s.load(x.as_ptr()) };
            total = s.fma(v, s.splat(0.5), total);
            best = s.max(v, best);
            // SAFETY: as above.
            unsafe { s.store(x.as_mut_ptr(), s.exp(v)) };
        }
        (s.sum(total), s.max_lane(best))
    }
}

#[test]
fn exp_is_good_to_two_ulp() {
    let n = 1 << 14;
    let x: Vec<f32> = (0..n).map(|i| -104.0 + 193.0 * i as f32 / n as f32).collect();
    for level in SimdLevel::supported() {
        let mut y = x.clone();
        level.run(Exp(&mut y));
        for (&x, &y) in x.iter().zip(&y) {
            let want = (x as f64).exp();
            // Half the distance of neighbours is lost anyway; subnormals are 2⁻¹⁴⁹ apart.
            let ulp = (want * f32::EPSILON as f64).max(f64::powi(2.0, -149));
            if want as f32 == f32::INFINITY {
                assert_eq!(y, f32::INFINITY, "{level} exp({x})");
            } else {
                assert!((y as f64 - want).abs() <= 2.0 * ulp, "{level} exp({x}) = {y}, not {want}");
            }
        }
        let mut special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0].repeat(4);
        level.run(Exp(&mut special));
        assert!(special[0].is_nan() && special[1] == f32::INFINITY && special[2] == 0.0 && special[3] == 1.0);
    }
}

/// One instruction multiplies by a power of two, or several: both round once, also to subnormal numbers.
#[test]
fn exp_has_the_same_bits_wherever_multiply_adds_are_fused() {
    let mut first: Option<Vec<u32>> = None;
    for level in SimdLevel::supported().filter(|level| *level != SimdLevel::Scalar) {
        let mut x: Vec<f32> = (0..1 << 16).map(|i| -106.0 + 197.0 * i as f32 / (1 << 16) as f32).collect();
        level.run(Exp(&mut x));
        let bits: Vec<u32> = x.into_iter().map(f32::to_bits).collect();
        let first = first.get_or_insert_with(|| bits.clone());
        assert!(*first == bits, "{level}");
    }
}

#[test]
fn lanes_are_reduced() {
    for level in SimdLevel::supported() {
        let mut x: Vec<f32> = (0..64).map(|i| ((i * 37) % 64) as f32).collect();
        assert_eq!(level.run(Exp(&mut x)), (1008.0, 63.0), "{level}");
    }
}

struct Halves;

impl Kernel for Halves {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let x: Vec<f32> = (0..S::LANES).map(|i| (i as f32 * 1.7).sin()).collect();
        // SAFETY: there are `LANES` floats.
        let v = unsafe { s.load(x.as_ptr()) };
        let mut sums = x.clone();
        while sums.len() > 1 {
            let half = sums.len() / 2;
            sums = (0..half).map(|i| sums[i] + sums[half + i]).collect();
        }
        assert_eq!(s.sum(v).to_bits(), sums[0].to_bits(), "{}", S::LEVEL);
        assert_eq!(s.max_lane(v), x.iter().copied().fold(f32::MIN, f32::max), "{}", S::LEVEL);
        for n in 0..=S::LANES {
            let kept = s.to_array(s.first(v, n));
            assert_eq!(kept[..n], x[..n], "{}", S::LEVEL);
            assert!(kept[n..].iter().all(|&x| x == 0.0), "{} keeps more than {n}", S::LEVEL);
        }
    }
}

#[test]
fn lanes_are_added_by_halves() {
    SimdLevel::supported().for_each(|level| level.run(Halves));
}

struct Picks;

impl Kernel for Picks {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let x: Vec<f32> = (0..2 * S::LANES).map(|i| i as f32).collect();
        for seed in 0..50 {
            let picks: Vec<u32> =
                (0..S::LANES as u32).map(|i| (i * (2 * seed + 1) + seed) % (2 * S::LANES) as u32).collect();
            // SAFETY: there are two vectors of floats, and one of numbers that are small enough.
            let (got, one) = unsafe {
                let (a, b, picks) = (s.load(x.as_ptr()), s.load(x.as_ptr().add(S::LANES)), s.picks(picks.as_ptr()));
                (s.to_array(s.pick(picks, a, b)), s.to_array(s.permute(picks, b)))
            };
            for (i, &pick) in picks.iter().enumerate() {
                assert_eq!(got[i], x[pick as usize], "{} {picks:?}", S::LEVEL);
                assert_eq!(one[i], x[S::LANES + pick as usize % S::LANES], "{} {picks:?}", S::LEVEL);
            }
        }
    }
}

#[test]
fn lanes_are_picked_from_two_vectors() {
    SimdLevel::supported().for_each(|level| level.run(Picks));
}

#[test]
fn unknown_levels_are_refused() {
    for level in SimdLevel::supported() {
        assert_eq!(SimdLevel::from_name(level.name()).unwrap(), level);
    }
    let said = SimdLevel::from_name("sse9").unwrap_err().to_string();
    assert!(said.contains("RUNNER_SIMD=sse9") && said.contains("scalar"), "{said}");
    let foreign = if cfg!(target_arch = "x86_64") { "neon" } else { "avx2" };
    assert!(SimdLevel::from_name(foreign).unwrap_err().to_string().contains("lacks"));
}
