//! Transposes pixels to planes and back.

use crate::run::threads::Parts;
use crate::simd::{Kernel, MAX_LANES, Simd};

/// Most channels for which each vector of a plane is picked from as many vectors of pixels; more are transposed in squares.
const FEW: usize = 4;

/// A buffer for a square of pixels and channels at an edge. Its rows are cache lines, so that they can be read back at once.
#[repr(align(64))]
struct Square([f32; MAX_LANES * MAX_LANES]);

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

/// The tables of `N` channels, in registers.
///
/// # Safety
/// `tables` are those of `N` channels.
#[inline(always)]
unsafe fn load<S: Simd, const N: usize>(s: S, tables: &[[u32; MAX_LANES]]) -> [[S::P; N]; N] {
    let none = [0; MAX_LANES];
    // SAFETY: the caller's promise; a table has as many numbers as the widest vector has lanes.
    let mut picks = [[unsafe { s.picks(none.as_ptr()) }; N]; N];
    for i in 0..N {
        for other in 1..N {
            // SAFETY: as above.
            picks[i][other] = unsafe { s.picks(tables.get_unchecked(i * (N - 1) + other - 1).as_ptr()) };
        }
    }
    picks
}

/// `N` vectors turned into as many by picking lanes.
#[inline(always)]
fn pick<S: Simd, const N: usize>(s: S, picks: &[[S::P; N]; N], from: [S::V; N]) -> [S::V; N] {
    let mut to = [from[0]; N];
    for i in 0..N {
        for other in 1..N {
            to[i] = s.pick(picks[i][other], to[i], from[other]);
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
    pub planes: Parts<'a, f32>,
    /// See `planes`.
    pub plane: usize,
    /// Of `pixel` channels.
    pub picks: &'a Picks,
}

impl Kernel for ToPlanes<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.size[1];
        assert!(self.planes.len() >= self.channels.next_multiple_of(MAX_LANES) * self.plane);
        assert!(self.plane >= self.rows * self.pitch + self.left + 2 * MAX_LANES && width <= self.pitch);
        // SAFETY: as asserted, rows of whole vectors end inside the plane. What they leave behind the row is overwritten
        // by the zeros and by the next row.
        unsafe {
            match self.channels {
                1 if self.pixel == 1 => self.few::<S, 1>(s),
                2 if self.pixel == 2 => self.few::<S, 2>(s),
                3 if self.pixel == 3 => self.few::<S, 3>(s),
                4 if self.pixel == 4 => self.few::<S, 4>(s),
                _ => self.squares(s),
            }
            let end = self.rows * self.pitch + self.left;
            self.zeros(s, end, self.plane - end - MAX_LANES);
        }
    }
}

impl ToPlanes<'_> {
    /// The first float of row `r`, unless it lies outside the image.
    #[inline(always)]
    fn row(&self, r: usize) -> Option<usize> {
        let [height, width] = self.size;
        let row = usize::try_from(self.first + r as isize).ok().filter(|&row| row < height)?;
        Some((self.image * height + row) * width * self.pixel + self.channel)
    }

    /// Zeros to the left of the first row.
    ///
    /// # Safety
    /// The planes have whole vectors of them.
    #[inline(always)]
    unsafe fn margin<S: Simd>(&self, s: S) {
        // SAFETY: the caller's promise.
        unsafe { self.zeros(s, 0, self.left) };
    }

    /// Zeros in row `r` from column `x` on.
    ///
    /// # Safety
    /// The planes have whole vectors of them.
    #[inline(always)]
    unsafe fn gap<S: Simd>(&self, s: S, r: usize, x: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.zeros(s, r * self.pitch + self.left + x, self.pitch.saturating_sub(x)) };
    }

    /// Writes `len` zeros, rounded up to whole vectors, to every plane.
    ///
    /// # Safety
    /// The planes have them.
    #[inline(always)]
    unsafe fn zeros<S: Simd>(&self, s: S, at: usize, len: usize) {
        for c in 0..self.channels {
            let to = self.planes.as_ptr().wrapping_add(c * self.plane + at);
            // SAFETY: the caller's promise.
            unsafe {
                // Nearly always: within a cache line, where a whole vector may not be.
                if len < S::LANES {
                    s.store_part(to, s.zero(), len);
                    continue;
                }
                for i in (0..len).step_by(S::LANES) {
                    s.store(to.add(i), s.zero());
                }
            }
        }
    }

    /// All rows of pixels of `N` channels.
    ///
    /// # Safety
    /// The planes have room for whole vectors.
    #[inline(always)]
    unsafe fn few<S: Simd, const N: usize>(&self, s: S) {
        let width = self.size[1];
        // SAFETY: the tables are those of `pixel` channels, which are `N`; the source has the row, and the planes whole vectors.
        unsafe {
            let picks = load::<S, N>(s, &self.picks.to_planes);
            self.margin(s);
            for r in 0..self.rows {
                let to = self.planes.as_ptr().add(r * self.pitch + self.left);
                let Some(from) = self.row(r) else {
                    self.gap(s, r, 0);
                    continue;
                };
                let from = self.source[from..from + width * N].as_ptr();
                let mut x = 0;
                while x + S::LANES <= width {
                    let mut v = [s.zero(); N];
                    for i in 0..N {
                        v[i] = s.load(from.add(x * N + i * S::LANES));
                    }
                    self.put(s, pick(s, &picks, v), to.add(x));
                    x += S::LANES;
                }
                if x < width {
                    let mut v = [s.zero(); N];
                    for i in 0..N {
                        let left = ((width - x) * N).saturating_sub(i * S::LANES);
                        v[i] = s.load_part(from.wrapping_add(x * N + i * S::LANES), left);
                    }
                    // With zeros after the row.
                    self.put(s, pick(s, &picks, v), to.add(x));
                    x += S::LANES;
                }
                self.gap(s, r, x);
            }
        }
    }

    /// A vector of each plane.
    ///
    /// # Safety
    /// The planes have room for whole vectors.
    #[inline(always)]
    unsafe fn put<S: Simd, const N: usize>(&self, s: S, planes: [S::V; N], to: *mut f32) {
        for c in 0..N {
            // SAFETY: the caller's promise.
            unsafe { s.store(to.add(c * self.plane), planes[c]) };
        }
    }

    /// All rows of pixels in squares of `LANES` pixels and channels.
    ///
    /// # Safety
    /// The planes have room for whole squares.
    #[inline(always)]
    unsafe fn squares<S: Simd>(&self, s: S) {
        let (width, step) = (self.size[1], self.pixel);
        let mut edge = Square([0.0; MAX_LANES * MAX_LANES]);
        // SAFETY: the source has the row, and the planes have whole squares. Those after which the source ends are copied;
        // what the others have after their row is overwritten by zeros.
        unsafe {
            self.margin(s);
            for r in 0..self.rows {
                let to = self.planes.as_ptr().add(r * self.pitch + self.left);
                let Some(from) = self.row(r) else {
                    self.gap(s, r, 0);
                    continue;
                };
                for x in (0..width).step_by(S::LANES) {
                    let pixels = (width - x).min(S::LANES);
                    for c in (0..self.channels).step_by(S::LANES) {
                        let (at, n) = (from + x * step + c, (self.channels - c).min(S::LANES));
                        let (p, to) = (self.source.as_ptr().add(at), to.add(c * self.plane + x));
                        if at + (S::LANES - 1) * step + S::LANES <= self.source.len() {
                            s.transpose_part([S::LANES, n], p, step, to, self.plane);
                            continue;
                        }
                        for i in 0..pixels {
                            s.store(edge.0.as_mut_ptr().add(i * S::LANES), s.load_part(p.add(i * step), n));
                        }
                        s.transpose_part([S::LANES, n], edge.0.as_ptr(), S::LANES, to, self.plane);
                    }
                }
                self.gap(s, r, width);
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
        // SAFETY: as asserted, the planes have whole vectors for every row, and the caller's destination all rows.
        unsafe {
            match self.channels {
                1 if self.pixel == 1 => self.few::<S, 1>(s),
                2 if self.pixel == 2 => self.few::<S, 2>(s),
                3 if self.pixel == 3 => self.few::<S, 3>(s),
                4 if self.pixel == 4 => self.few::<S, 4>(s),
                _ => {
                    for r in 0..rows {
                        self.squares(s, self.planes.as_ptr().add(r * self.pitch), r * width * self.pixel);
                    }
                }
            }
        }
    }
}

impl ToPixels<'_> {
    /// All rows of pixels of `N` channels.
    ///
    /// # Safety
    /// The planes have whole vectors.
    #[inline(always)]
    unsafe fn few<S: Simd, const N: usize>(&self, s: S) {
        let [rows, width] = self.size;
        // SAFETY: the tables are those of `pixel` channels, which are `N`; what is written lies within the destination's
        // length, and after a row the next one follows.
        unsafe {
            let picks = load::<S, N>(s, &self.picks.to_pixels);
            for r in 0..rows {
                let from = self.planes.as_ptr().add(r * self.pitch);
                let mut x = 0;
                while x < width {
                    let mut v = [s.zero(); N];
                    for c in 0..N {
                        v[c] = s.load(from.add(c * self.plane + x));
                    }
                    let v = pick(s, &picks, v);
                    let at = (r * width + x) * N;
                    let to = self.dest.add(at);
                    if at + N * S::LANES <= self.len {
                        for i in 0..N {
                            s.store(to.add(i * S::LANES), v[i]);
                        }
                    } else {
                        for i in 0..N {
                            let left = (self.len - at).saturating_sub(i * S::LANES);
                            s.store_part(to.wrapping_add(i * S::LANES), v[i], left);
                        }
                    }
                    x += S::LANES;
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
                // and pixels after the row where the next row does.
                let whole = n == S::LANES || n == self.pixel;
                // SAFETY: what is written lies within the destination's length.
                unsafe {
                    let (from, to) = (from.add(c * self.plane + x), self.dest.wrapping_add(at));
                    let pixels = (width - x).min(S::LANES);
                    if whole && at + (S::LANES - 1) * self.pixel + S::LANES <= self.len {
                        s.transpose_part([n, pixels], from, self.plane, to, self.pixel);
                        continue;
                    }
                    let mut edge = Square([0.0; MAX_LANES * MAX_LANES]);
                    s.transpose_part([n, pixels], from, self.plane, edge.0.as_mut_ptr(), S::LANES);
                    for i in 0..pixels {
                        s.store_part(to.add(i * self.pixel), s.load(edge.0.as_ptr().add(i * S::LANES)), n);
                    }
                }
            }
        }
    }
}
