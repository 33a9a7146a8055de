//! From pixels to planes and back.

use crate::backend::cpu::simd::{Kernel, MAX_LANES, Simd};

/// Channels up to which lanes are picked out of as many vectors; more are transposed in squares.
const FEW: usize = 4;

/// For channels up to [`FEW`], by channel (from pixels) or vector (to pixels): which lanes to take of the first vector and the
/// second, of those and the third, and so on.
pub struct Picks {
    to_planes: Vec<[u32; MAX_LANES]>,
    to_pixels: Vec<[u32; MAX_LANES]>,
}

impl Picks {
    /// The tables for `channels` channels; none if they are too many.
    pub fn new(channels: usize, lanes: usize) -> Picks {
        let mut picks = Picks { to_planes: Vec::new(), to_pixels: Vec::new() };
        for (at, other) in (0..channels).flat_map(|at| (1..channels).map(move |other| (at, other))) {
            if channels > FEW {
                break;
            }
            // `find(lane)`: the vector and its lane that belong here.
            let table = |find: &dyn Fn(usize) -> (usize, usize)| {
                let mut table = [0; MAX_LANES];
                for (lane, pick) in table.iter_mut().enumerate().take(lanes) {
                    *pick = match find(lane) {
                        (vector, from) if vector == other => lanes + from,
                        (0, from) if other == 1 => from,
                        _ => lane,
                    } as u32;
                }
                table
            };
            let float = |pixel: usize| pixel * channels + at;
            picks.to_planes.push(table(&|lane| (float(lane) / lanes, float(lane) % lanes)));
            let float = |lane: usize| at * lanes + lane;
            picks.to_pixels.push(table(&|lane| (float(lane) % channels, float(lane) / channels)));
        }
        picks
    }
}

/// `N` vectors turned into as many by picking lanes.
///
/// # Safety
/// `tables` are those of `N` channels.
#[inline(always)]
unsafe fn pick<S: Simd, const N: usize>(s: S, tables: &[[u32; MAX_LANES]], from: [S::V; N]) -> [S::V; N] {
    let mut to = [from[0]; N];
    for i in 0..N {
        for other in 1..N {
            // SAFETY: the caller's promise; a table has as many numbers as the widest vector has lanes.
            let picks = unsafe { s.picks(tables.get_unchecked(i * (N - 1) + other - 1).as_ptr()) };
            to[i] = s.pick(picks, to[i], from[other]);
        }
    }
    to
}

/// Copies channels of some rows of an image to planes, with zeros above, below and between the rows.
pub struct ToPlanes<'a> {
    /// The images.
    pub source: &'a [f32],
    /// Floats in a pixel, and which of them are wanted: the first, and how many.
    pub pixel: usize,
    /// See `pixel`.
    pub channel: usize,
    /// See `pixel`.
    pub channels: usize,
    /// Which image, its height and width.
    pub image: usize,
    /// See `image`.
    pub size: [usize; 2],
    /// First row, less than 0 for zeros above the image, and how many.
    pub first: isize,
    /// See `first`.
    pub rows: usize,
    /// Zeros to the left.
    pub left: usize,
    /// Floats from one row of a plane to the next.
    pub pitch: usize,
    /// The planes, as many as fill whole squares, and floats in each.
    pub planes: &'a mut [f32],
    /// See `planes`.
    pub plane: usize,
    /// Of `pixel` channels.
    pub picks: &'a Picks,
}

impl Kernel for ToPlanes<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [height, width] = self.size;
        assert!(self.planes.len() >= self.channels.next_multiple_of(MAX_LANES) * self.plane);
        assert!(self.plane >= self.rows * self.pitch + self.left + 2 * MAX_LANES && width <= self.pitch);
        let few = self.channels == self.pixel && self.channels <= FEW;
        // SAFETY: as asserted, rows of whole vectors end inside the plane. What they leave behind the row is overwritten
        // by the zeros and by the next row.
        unsafe {
            self.zeros(s, 0, self.left);
            for r in 0..self.rows {
                let row = self.first + r as isize;
                let at = r * self.pitch + self.left;
                if row < 0 || row as usize >= height {
                    self.zeros(s, at, self.pitch);
                    continue;
                }
                let from = (self.image * height + row as usize) * width * self.pixel + self.channel;
                let to = self.planes.as_ptr().cast_mut().add(at);
                match self.channels {
                    1 if few => self.few::<S, 1>(s, from, to),
                    2 if few => self.few::<S, 2>(s, from, to),
                    3 if few => self.few::<S, 3>(s, from, to),
                    4 if few => self.few::<S, 4>(s, from, to),
                    _ => self.squares(s, from, to),
                }
                self.zeros(s, at + width, self.pitch - width);
            }
            let end = self.rows * self.pitch + self.left;
            self.zeros(s, end, (self.plane - end).saturating_sub(MAX_LANES));
        }
    }
}

impl ToPlanes<'_> {
    /// Writes `len` zeros or a few more to every plane.
    ///
    /// # Safety
    /// The planes have them.
    #[inline(always)]
    unsafe fn zeros<S: Simd>(&self, s: S, at: usize, len: usize) {
        for c in 0..self.channels {
            let to = self.planes.as_ptr().cast_mut().wrapping_add(c * self.plane + at);
            for i in (0..len).step_by(S::LANES) {
                // SAFETY: the caller's promise.
                unsafe { s.store(to.add(i), s.zero()) };
            }
        }
    }

    /// A row of pixels of `N` channels.
    ///
    /// # Safety
    /// The planes have room for whole vectors.
    #[inline(always)]
    unsafe fn few<S: Simd, const N: usize>(&self, s: S, from: usize, to: *mut f32) {
        let width = self.size[1];
        for x in (0..width).step_by(S::LANES) {
            let at = from + x * N;
            let mut edge: [f32; FEW * MAX_LANES];
            // SAFETY: whole vectors are read only where the source has them, and else their copy.
            unsafe {
                let mut p = self.source.as_ptr().wrapping_add(at);
                if at + N * S::LANES > self.source.len() {
                    let left = (width - x).min(S::LANES) * N;
                    edge = [0.0; FEW * MAX_LANES];
                    edge[..left].copy_from_slice(&self.source[at..at + left]);
                    p = edge.as_ptr();
                }
                let mut v = [s.zero(); N];
                for i in 0..N {
                    v[i] = s.load(p.add(i * S::LANES));
                }
                for (c, v) in pick(s, &self.picks.to_planes, v).into_iter().enumerate() {
                    s.store(to.add(c * self.plane + x), v);
                }
            }
        }
    }

    /// A row of pixels in squares of `LANES` pixels and channels.
    ///
    /// # Safety
    /// The planes have room for whole squares.
    #[inline(always)]
    unsafe fn squares<S: Simd>(&self, s: S, from: usize, to: *mut f32) {
        let (width, step) = (self.size[1], self.pixel);
        for x in (0..width).step_by(S::LANES) {
            for c in (0..self.channels).step_by(S::LANES) {
                let at = from + x * step + c;
                // SAFETY: whole squares are read only where the source has them, and else their copy.
                unsafe {
                    let to = to.add(c * self.plane + x);
                    let p = self.source.as_ptr().wrapping_add(at);
                    if at + (S::LANES - 1) * step + S::LANES <= self.source.len() {
                        s.transpose(p, step, to, self.plane);
                        continue;
                    }
                    let mut edge = [0.0; MAX_LANES * MAX_LANES];
                    let n = (self.channels - c).min(S::LANES);
                    for i in 0..(width - x).min(S::LANES) {
                        s.store(edge.as_mut_ptr().add(i * S::LANES), s.load_part(p.add(i * step), n));
                    }
                    s.transpose(edge.as_ptr(), S::LANES, to, self.plane);
                }
            }
        }
    }
}

/// Copies planes to channels of some rows of an image.
pub struct ToPixels<'a> {
    /// The planes, as many as fill whole squares, and floats in each.
    pub planes: &'a [f32],
    /// See `planes`.
    pub plane: usize,
    /// Floats from one row of a plane to the next.
    pub pitch: usize,
    /// Rows and columns.
    pub size: [usize; 2],
    /// The rows of pixels: their first float that is written, and how many there are from there to the end of the last pixel.
    pub dest: *mut f32,
    /// See `dest`.
    pub len: usize,
    /// Floats in a pixel, and how many are written.
    pub pixel: usize,
    /// See `pixel`.
    pub channels: usize,
    /// Of `pixel` channels.
    pub picks: &'a Picks,
}

impl Kernel for ToPixels<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [rows, width] = self.size;
        assert!(self.planes.len() >= self.channels.next_multiple_of(MAX_LANES) * self.plane);
        assert!(rows > 0 && self.plane >= (rows - 1) * self.pitch + width.next_multiple_of(S::LANES));
        let few = self.channels == self.pixel && self.channels <= FEW;
        for r in 0..rows {
            let from = self.planes.as_ptr().wrapping_add(r * self.pitch);
            let to = r * width * self.pixel;
            // SAFETY: as asserted, the planes have whole vectors for every row, and the caller's destination all rows.
            unsafe {
                match self.channels {
                    1 if few => self.few::<S, 1>(s, from, to),
                    2 if few => self.few::<S, 2>(s, from, to),
                    3 if few => self.few::<S, 3>(s, from, to),
                    4 if few => self.few::<S, 4>(s, from, to),
                    _ => self.squares(s, from, to),
                }
            }
        }
    }
}

impl ToPixels<'_> {
    /// A row of pixels of `N` channels.
    ///
    /// # Safety
    /// The planes have whole vectors.
    #[inline(always)]
    unsafe fn few<S: Simd, const N: usize>(&self, s: S, from: *const f32, to: usize) {
        for x in (0..self.size[1]).step_by(S::LANES) {
            // SAFETY: what is written lies within the destination's length; behind a row the next one follows.
            unsafe {
                let mut v = [s.zero(); N];
                for (c, v) in v.iter_mut().enumerate() {
                    *v = s.load(from.add(c * self.plane + x));
                }
                let at = to + x * N;
                for (i, v) in pick(s, &self.picks.to_pixels, v).into_iter().enumerate() {
                    let at = at + i * S::LANES;
                    if at + S::LANES <= self.len {
                        s.store(self.dest.add(at), v);
                    } else if at < self.len {
                        s.store_part(self.dest.add(at), v, self.len - at);
                    }
                }
            }
        }
    }

    /// A row of pixels in squares of `LANES` pixels and channels.
    ///
    /// # Safety
    /// The planes have whole vectors.
    #[inline(always)]
    unsafe fn squares<S: Simd>(&self, s: S, from: *const f32, to: usize) {
        let width = self.size[1];
        for x in (0..width).step_by(S::LANES) {
            for c in (0..self.channels).step_by(S::LANES) {
                let n = (self.channels - c).min(S::LANES);
                let at = to + x * self.pixel + c;
                // A square may leave something behind its channels where the next pixel follows, which is written after it,
                // and pixels behind the row where the next row does.
                let whole = n == S::LANES || n == self.pixel;
                // SAFETY: what is written lies within the destination's length.
                unsafe {
                    let (from, to) = (from.add(c * self.plane + x), self.dest.wrapping_add(at));
                    if whole && at + (S::LANES - 1) * self.pixel + S::LANES <= self.len {
                        s.transpose(from, self.plane, to, self.pixel);
                        continue;
                    }
                    let mut edge = [0.0; MAX_LANES * MAX_LANES];
                    s.transpose(from, self.plane, edge.as_mut_ptr(), S::LANES);
                    for i in 0..(width - x).min(S::LANES) {
                        s.store_part(to.add(i * self.pixel), s.load(edge.as_ptr().add(i * S::LANES)), n);
                    }
                }
            }
        }
    }
}
