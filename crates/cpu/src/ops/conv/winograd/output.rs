//! Pixels from transformed tiles.

use super::grid::{TilePanel, element_floats};
use super::points::Points;
use super::transforms::output_tile;
use crate::gemm::tile::{Epilogue, EpilogueOperands};
use crate::graph::op::Activation;
use crate::run::threads::Parts;
use crate::simd::{Kernel, Simd};
use std::marker::PhantomData;

/// Turns transformed tiles into pixels, with all that is done to them.
pub struct Output<'a, P> {
    /// Sizes of tiles.
    pub points: PhantomData<P>,
    /// Of which tiles and channels.
    pub panel: TilePanel<'a>,
    /// Applied to the pixels.
    pub act: Option<Activation>,
    /// Transformed pixels.
    pub output: &'a [f32],
    /// What else is done to the pixels.
    pub operands: EpilogueOperands<'a>,
    /// Where they go.
    pub dest: Parts<'a, f32>,
}

impl<P: Points> Kernel for Output<'_, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let TilePanel { grid: k, tiles, channel, channels, width: columns } = self.panel;
        let ([height, width], element) = (k.dest, element_floats(k.block, columns));
        let bounds = Epilogue::of(self.act);
        let (low, high) = (s.splat(bounds.low), s.splat(bounds.high));
        let epilogue = bounds.with(self.operands, channel, self.dest.as_ptr());
        let Epilogue { scale, bias, .. } = epilogue;
        let mut positions = k.positions(tiles.start);
        for t in 0..tiles.len() {
            let [image, row, column] = positions.step();
            let mut c = 0;
            while c < channels {
                let left = channels - c;
                // SAFETY: rows of the transformed tiles are whole panels; pixels inside the image belong to one tile, and
                // these channels of theirs to this call.
                unsafe {
                    let bias = if bias.is_null() { s.zero() } else { s.load_part(bias.add(c), left) };
                    let scale = if scale.is_null() { s.splat(1.0) } else { s.load_part(scale.add(c), left) };
                    let pixels = output_tile::<P, S>(s, self.output.as_ptr().add(t * columns + c), element);
                    for i in 0..P::TILE * P::TILE {
                        let (pixel, tile) = (pixels[i / P::TILE][i % P::TILE], P::TILE);
                        let (y, x) = (tile * row + i / tile, tile * column + i % tile);
                        if y < height && x < width {
                            let at = ((image * height + y) * width + x) * k.to + channel + c;
                            let to = self.dest.as_ptr().add(at);
                            let mut value = s.fma(pixel, scale, bias);
                            if epilogue.has_matrix() {
                                value = epilogue.apply_matrices(s, value, to, left);
                            }
                            let value = s.min(high, s.max(low, value));
                            if left >= S::LANES {
                                s.store(to, value);
                            } else {
                                s.store_part(to, value, left);
                            }
                        }
                    }
                }
                c += S::LANES;
            }
        }
    }
}
