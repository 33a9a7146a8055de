//! Transposes the source into planes. With a stride of 2, even and odd rows and columns have planes of their own (phases), so
//! that the pixels that neighbours in the result read lie side by side as well.

use super::layout::{Picks, ToPlanes};
use super::{PlanarPart, Planes, odd_lines};
use crate::run::threads::Parts;
use crate::simd::{Kernel, MAX_LANES, Simd, SimdLevel};
use std::ops::Range;

impl Planes {
    /// Rows of a plane that a strip of `rows` rows reads.
    fn read_rows(&self, rows: usize) -> usize {
        rows + self.reach[0] / self.stride
    }

    /// Floats from one plane to the next of what is read: an odd number of cache lines, so that planes lie in different sets
    /// of the cache. Rows are written in whole vectors, and so are the zeros after them.
    pub fn source_floats(&self) -> usize {
        let [height, width] = self.reach.map(|reach| reach / self.stride);
        let read = self.vectors(self.strip) * self.lanes + height * self.pitch + width;
        odd_lines(self.start + (read + MAX_LANES).max(self.read_rows(self.strip) * self.pitch + 2 * MAX_LANES))
    }

    /// Floats of a plane that has not been split into phases yet.
    fn whole_floats(&self) -> usize {
        odd_lines(self.origin[1] + 4 * self.read_rows(self.strip) * self.pitch + 2 * MAX_LANES)
    }

    /// Channels read at a time, a multiple of [`MAX_LANES`] as they are transposed in squares.
    fn source_channels(&self) -> usize {
        (self.block * self.from).next_multiple_of(MAX_LANES)
    }

    /// Floats that [`Planes::read`] needs.
    pub fn read_floats(&self) -> usize {
        let planes = self.source_channels() * self.phases() * self.source_floats();
        planes + if self.stride == 2 { self.source_channels() * self.whole_floats() } else { 0 }
    }

    /// Planes of a channel.
    pub fn phases(&self) -> usize {
        self.stride * self.stride
    }

    /// What a pixel's place is counted from in the first plane read of those from channel `channel` on.
    pub fn source_base(&self, channel: usize) -> usize {
        channel * self.phases() * self.source_floats() + self.start - self.origin[1]
    }

    /// Where the floats lie that a pixel is multiplied with, from its place in the first plane: by channel and position.
    pub fn offsets(&self) -> impl Iterator<Item = u32> {
        let plane = self.source_floats();
        let offset = move |c: usize, [row, column]: [usize; 2]| {
            let phase = row % self.stride * self.stride + column % self.stride;
            let place = row / self.stride * self.pitch + column / self.stride;
            ((c * self.phases() + phase) * plane + place) as u32
        };
        (0..self.from).flat_map(move |c| self.taps.iter().map(move |&tap| offset(c, tap)))
    }

    /// Transposes the source pixels of a part into planes, for some groups.
    pub fn read(
        &self,
        level: SimdLevel,
        source: &[f32],
        part: &PlanarPart,
        groups: Range<usize>,
        picks: &Picks,
        scratch: &mut [f32],
    ) {
        let channels = groups.len() * self.from;
        let rows = self.read_rows(part.rows.len());
        let (planes, whole) = scratch.split_at_mut(self.source_channels() * self.phases() * self.source_floats());
        let to_planes = ToPlanes {
            source,
            pixel: self.groups * self.from,
            channel: groups.start * self.from,
            channels,
            image: part.image,
            size: self.source,
            first: (part.rows.start * self.stride) as isize - self.origin[0] as isize,
            rows: rows * self.stride,
            left: self.start,
            pitch: self.pitch * self.stride,
            picks,
            planes: Parts::new(&mut *planes),
            plane: self.source_floats(),
        };
        if self.stride == 1 {
            return level.run(to_planes);
        }
        level.run(ToPlanes { planes: Parts::new(&mut *whole), plane: self.whole_floats(), ..to_planes });
        level.run(Split { planes: self, rows, channels, whole, to: planes });
    }
}

/// Splits planes into the four phases of a stride of 2.
struct Split<'a> {
    planes: &'a Planes,
    /// Rows of each of the four.
    rows: usize,
    channels: usize,
    whole: &'a [f32],
    to: &'a mut [f32],
}

impl Kernel for Split<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (p, plane, whole) = (self.planes, self.planes.source_floats(), self.planes.whole_floats());
        assert!(self.whole.len() >= self.channels * whole && self.to.len() >= 4 * self.channels * plane);
        assert!(self.rows <= p.read_rows(p.strip));
        let (mut even, mut odd) = ([0; MAX_LANES], [0; MAX_LANES]);
        for lane in 0..S::LANES as u32 {
            (even[lane as usize], odd[lane as usize]) = (2 * lane, 2 * lane + 1);
        }
        for c in 0..self.channels {
            let to = self.to[4 * c * plane..4 * (c + 1) * plane].as_mut_ptr();
            // SAFETY: a whole plane has these rows and two vectors more, and a split one a vector more; what is written
            // after a row is overwritten by the next.
            unsafe {
                let (even, odd) = (s.picks(even.as_ptr()), s.picks(odd.as_ptr()));
                for row in 0..2 * self.rows {
                    let from = self.whole.as_ptr().add(c * whole + row * 2 * p.pitch);
                    let to = to.add(row % 2 * 2 * plane + row / 2 * p.pitch);
                    for x in (0..p.pitch).step_by(S::LANES) {
                        let (a, b) = (s.load(from.add(2 * x)), s.load(from.add(2 * x + S::LANES)));
                        s.store(to.add(x), s.pick(even, a, b));
                        s.store(to.add(plane + x), s.pick(odd, a, b));
                    }
                }
            }
            for plane in self.to[4 * c * plane..4 * (c + 1) * plane].chunks_exact_mut(plane) {
                plane[self.rows * p.pitch..].fill(0.0);
            }
        }
    }
}
