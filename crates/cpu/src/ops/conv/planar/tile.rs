//! The register tiles: results of some channels for some vectors of pixels, and sums of products over all pixels.

use crate::simd::{Routine, Simd, SimdLevel};

/// Channels of the largest tile.
pub const MAX_CHANNELS: usize = 6;

/// Vectors of the largest tile.
const MAX_VECTORS: usize = 8;

/// Arguments of a tile of `R` channels and `V` vectors of pixels.
pub struct PixelTile<'a> {
    /// The first pixel, in the first plane read.
    pub source: *const f32,
    /// The sum: offsets from a pixel.
    pub offsets: &'a [u32],
    /// The weights, `[offset][R]`.
    pub weights: *const f32,
    /// The first pixel, in the first plane written, and floats from plane to plane.
    pub dest: *mut f32,
    /// See `dest`.
    pub plane: usize,
    /// `R` factors, or null.
    pub scale: *const f32,
    /// `R` summands, or null.
    pub bias: *const f32,
    /// Bounds of the result.
    pub bounds: [f32; 2],
}

/// Unrolls the loop over channels: if the compiler did not unroll it, the accumulators would lie in memory.
macro_rules! each {
    ($r:ident < $rows:ident => $body:expr) => { each!($r $rows $body; 0 1 2 3 4 5) };
    ($r:ident $rows:ident $body:expr; $($i:literal)*) => { $(if $i < $rows {
        let $r: usize = $i;
        $body
    })* };
}

/// [`PixelTile`] as a routine.
struct PixelRoutine<const R: usize, const V: usize>;

impl<const R: usize, const V: usize> Routine for PixelRoutine<R, V> {
    type Args = *const PixelTile<'static>;

    // Sums, and at least a vector of each side.
    const REGISTERS: usize = R * V + 2;

    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, t: *const PixelTile<'static>) {
        // SAFETY: the caller passes a tile whose addresses are all valid, as [`Tiles::pixels`] demands.
        unsafe {
            let t = &*t;
            let mut acc = [[s.zero(); V]; R];
            let mut w = t.weights;
            for &offset in t.offsets {
                let from = t.source.add(offset as usize);
                let mut x = [s.zero(); V];
                for v in 0..V {
                    x[v] = s.load(from.add(v * S::LANES));
                }
                for r in 0..R {
                    let w = s.splat(*w.add(r));
                    for v in 0..V {
                        acc[r][v] = s.fma(w, x[v], acc[r][v]);
                    }
                }
                w = w.add(R);
            }
            // Only in evaluation, from batch normalisation.
            if !t.scale.is_null() {
                each!(r < R => for v in 0..V {
                    acc[r][v] = s.mul(acc[r][v], s.splat(*t.scale.add(r)));
                });
            }
            let mut bias = [s.zero(); R];
            if !t.bias.is_null() {
                for r in 0..R {
                    bias[r] = s.splat(*t.bias.add(r));
                }
            }
            let (low, high) = (s.splat(t.bounds[0]), s.splat(t.bounds[1]));
            each!(r < R => for v in 0..V {
                // The sum comes second, so that NaN stays.
                let x = s.min(high, s.max(low, s.add(acc[r][v], bias[r])));
                s.store(t.dest.add(r * t.plane + v * S::LANES), x);
            });
        }
    }
}

/// Arguments of a tile of sums over pixels: `R` planes times `Q` places of others.
pub struct SumTile<'a> {
    /// The first pixel of the `R` planes, and floats from plane to plane.
    pub rows: *const f32,
    /// See `rows`.
    pub plane: usize,
    /// The first pixel in the first of the other planes, and the `Q` places by their offset from it.
    pub source: *const f32,
    /// See `source`.
    pub offsets: &'a [u32],
    /// Vectors of pixels.
    pub vectors: usize,
    /// The sums, a vector each, `[R][Q]`.
    pub sums: *mut f32,
    /// Adds to them.
    pub accumulate: bool,
}

/// [`SumTile`] as a routine.
struct SumRoutine<const R: usize, const Q: usize>;

impl<const R: usize, const Q: usize> Routine for SumRoutine<R, Q> {
    type Args = *const SumTile<'static>;

    // Sums, and at least a vector of each side.
    const REGISTERS: usize = R * Q + 2;

    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, t: *const SumTile<'static>) {
        // SAFETY: the caller passes a tile whose addresses are all valid, as [`Tiles::sums`] demands.
        unsafe {
            let t = &*t;
            let mut offsets = [0; Q];
            for q in 0..Q {
                offsets[q] = *t.offsets.get_unchecked(q) as usize;
            }
            let mut acc = [[s.zero(); Q]; R];
            for v in 0..t.vectors {
                let mut rows = [s.zero(); R];
                for r in 0..R {
                    rows[r] = s.load(t.rows.add(r * t.plane + v * S::LANES));
                }
                let source = t.source.add(v * S::LANES);
                for q in 0..Q {
                    let x = s.load(source.add(offsets[q]));
                    for r in 0..R {
                        acc[r][q] = s.fma(rows[r], x, acc[r][q]);
                    }
                }
            }
            let sums = |r: usize, q: usize| t.sums.add((r * Q + q) * S::LANES);
            if t.accumulate {
                each!(r < R => for q in 0..Q {
                    acc[r][q] = s.add(s.load(sums(r, q)), acc[r][q]);
                });
            }
            each!(r < R => for q in 0..Q {
                s.store(sums(r, q), acc[r][q]);
            });
        }
    }
}

type PixelFn = unsafe fn(*const PixelTile<'static>);
type SumFn = unsafe fn(*const SumTile<'static>);

/// The tiles of a level.
#[derive(Clone, Copy)]
pub struct Tiles {
    /// By channels less one, and vectors less one.
    pixels: [[PixelFn; MAX_VECTORS]; MAX_CHANNELS],
    /// Vectors of the largest tile, by channels less one.
    most: [usize; MAX_CHANNELS],
    /// By rows less one.
    sums: [SumFn; MAX_CHANNELS],
    /// Places of a tile of sums, by rows less one.
    places: [usize; MAX_CHANNELS],
    /// Channels of the largest tile of sums.
    pub rows: usize,
    /// The level.
    pub level: SimdLevel,
}

impl Tiles {
    /// The tiles of `level`.
    pub fn new(level: SimdLevel) -> Tiles {
        macro_rules! pixels {
            ($($r:literal)*) => { [$(pixels!(row $r: 1 2 3 4 5 6 7 8)),*] };
            (row $r:literal: $($v:literal)*) => { [$(level.routine::<PixelRoutine<$r, $v>>()),*] };
        }
        macro_rules! sums {
            ($($r:literal: $q:literal),*) => { ([$(level.routine::<SumRoutine<$r, $q>>()),*], [$($q),*]) };
        }
        // Sums, a vector for each of one side, and one of the other fit the registers.
        let (most, (sums, places), rows) = match level {
            SimdLevel::Avx512 | SimdLevel::Neon => ([8, 8, 7, 6, 5, 4], sums!(1: 9, 2: 9, 3: 9, 4: 6, 5: 5, 6: 4), 6),
            SimdLevel::Avx2 => ([8, 5, 3, 2, 2, 2], sums!(1: 9, 2: 6, 3: 3, 4: 2, 5: 2, 6: 1), 5),
            SimdLevel::Scalar => ([4, 2, 1, 1, 1, 1], sums!(1: 3, 2: 2, 3: 1, 4: 1, 5: 1, 6: 1), 4),
        };
        Tiles { pixels: pixels!(1 2 3 4 5 6), most, sums, places, rows, level }
    }

    /// Vectors of the largest tile of `channels` channels.
    pub fn vectors(&self, channels: usize) -> usize {
        self.most[channels - 1]
    }

    /// Places of a tile of sums with `rows` planes.
    pub fn places(&self, rows: usize) -> usize {
        self.places[rows - 1]
    }

    /// Computes a tile of `channels` channels and `vectors` vectors, at most [`Tiles::vectors`].
    ///
    /// # Safety
    /// Every float that the arguments reach is valid. No other thread writes the floats that are read, or reads or writes those that are written.
    #[inline]
    pub unsafe fn pixels(&self, channels: usize, vectors: usize, tile: &PixelTile) {
        debug_assert!(vectors > 0 && vectors <= self.vectors(channels));
        // SAFETY: the caller's promise; the routine keeps nothing of the tile.
        unsafe { self.pixels[channels - 1][vectors - 1](std::ptr::from_ref(tile).cast()) }
    }

    /// Computes a tile of sums of `rows` planes and [`Tiles::places`] places.
    ///
    /// # Safety
    /// As [`Tiles::pixels`].
    #[inline]
    pub unsafe fn sums(&self, rows: usize, tile: &SumTile) {
        debug_assert!(tile.offsets.len() >= self.places(rows));
        // SAFETY: the caller's promise; the routine keeps nothing of the tile.
        unsafe { self.sums[rows - 1](std::ptr::from_ref(tile).cast()) }
    }
}
