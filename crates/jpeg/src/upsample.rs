//! Chroma at the size of luma. A sample in between is ¾ of the nearer neighbour and ¼ of the other ("triangle" or "fancy" upsampling), rounded up and
//! down in turn; beyond the edge there is the sample at the edge. Components of one or two samples across are repeated instead, where they are half as wide.

/// Twice as wide: `sums` are the samples times `times` (1, or 4 where rows are mixed already) with one neighbour on each side.
/// `out` has two for each but the neighbours.
#[inline(always)]
pub(crate) fn double<const TIMES: u16>(sums: &[u16], out: &mut [u8]) {
    // To 4·TIMES: a half, and 1 less on every other place.
    let (shift, left, right) = if TIMES == 1 { (2, 1, 2) } else { (4, 8, 7) };
    let count = out.len() / 2;
    let (before, middle, after) = (&sums[..count], &sums[1..][..count], &sums[2..][..count]);
    for (((pair, before), middle), after) in out.as_chunks_mut::<2>().0.iter_mut().zip(before).zip(middle).zip(after) {
        let middle = 3 * middle;
        *pair = [((middle + before + left) >> shift) as u8, ((middle + after + right) >> shift) as u8];
    }
}

/// A row between two: ¾ of the nearer one. `lower` says on which side of it.
#[inline(always)]
pub(crate) fn between(near: &[u8], far: &[u8], lower: bool, out: &mut [u8]) {
    let bias = if lower { 2 } else { 1 };
    for ((out, near), far) in out.iter_mut().zip(near).zip(far) {
        *out = ((3 * u16::from(*near) + u16::from(*far) + bias) >> 2) as u8;
    }
}

/// Four times a row between two.
#[inline(always)]
pub(crate) fn four_times(near: &[u8], far: &[u8], out: &mut [u16]) {
    for ((out, near), far) in out.iter_mut().zip(near).zip(far) {
        *out = 3 * u16::from(*near) + u16::from(*far);
    }
}

/// The samples as they are.
#[inline(always)]
pub(crate) fn once(near: &[u8], out: &mut [u16]) {
    for (out, near) in out.iter_mut().zip(near) {
        *out = u16::from(*near);
    }
}

/// Each sample twice.
#[inline(always)]
pub(crate) fn repeat(samples: &[u8], out: &mut [u8]) {
    for (pair, sample) in out.as_chunks_mut::<2>().0.iter_mut().zip(samples) {
        *pair = [*sample; 2];
    }
}
