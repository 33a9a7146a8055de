//! Operands of the kernels that also work on pooled pixels: each side is either pixels, or the maxima of 2 × 2 windows with
//! their positions.

use crate::gemm::prologue::Source;
use crate::gemm::tile::Epilogue;
use crate::graph::op::Activation;
use crate::run::threads::Parts;

/// The gradient of a pooled image, and where its maxima lay.
#[derive(Clone, Copy)]
pub struct PooledGrad<'a> {
    /// `[N, OH / 2, OW / 2, O]`
    pub dy: &'a [f32],
    /// Positions within windows: `row · 2 + column`.
    pub index: &'a [u8],
}

/// The pixels that a kernel reads.
#[derive(Clone, Copy)]
pub enum PixelSource<'a> {
    /// Pixels, with a prologue for kernels that were made for one.
    Plain(Source<'a>),
    /// The gradient of pooled pixels: each window's lies at the position of its maximum, and the other pixels are 0.
    Pooled(PooledGrad<'a>),
}

/// The pixels that a kernel writes.
pub enum PixelDest<'a> {
    /// Pixels.
    Plain(&'a mut [f32]),
    /// The maxima of windows, and their positions.
    Pooled(&'a mut [f32], &'a mut [u8]),
}

/// [`PixelDest`], for the tasks to share.
#[derive(Clone, Copy)]
pub enum PixelDestParts<'a> {
    /// Pixels.
    Plain(Parts<'a, f32>),
    /// The maxima of windows, and their positions.
    Pooled(Parts<'a, f32>, Parts<'a, u8>),
}

impl<'a> PixelDest<'a> {
    /// The same for the tasks to share.
    pub fn parts(self) -> PixelDestParts<'a> {
        match self {
            PixelDest::Plain(pixels) => PixelDestParts::Plain(Parts::new(pixels)),
            PixelDest::Pooled(y, index) => PixelDestParts::Pooled(Parts::new(y), Parts::new(index)),
        }
    }
}

/// The bounds that an activation after the pooling applies to the maxima.
pub fn pooled_bounds(act: Option<Activation>) -> Option<[f32; 2]> {
    act.map(|act| {
        let Epilogue { low, high, .. } = Epilogue::of(Some(act));
        [low, high]
    })
}
