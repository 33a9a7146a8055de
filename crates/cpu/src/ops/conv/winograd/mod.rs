//! 3 × 3 convolutions of stride 1 by F(4×4, 3×3) and F(2×2, 3×3): Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks",
//! CVPR 2016.
//!
//! An output tile of 4 × 4 pixels takes 36 products a channel instead of 144. With `V` the transformed 6 × 6 input tile
//! (`Bᵀ d B`), `U` the transformed kernel (`G g Gᵀ`) and ⊙ the product by element, the tile is `Aᵀ (Σ_c U ⊙ V) A`: 36
//! matrix products over channels, one for each element, with additions around them. The gradient by the input is the
//! same with the kernel rotated by 180° and its channels swapped. The gradient by the weight uses the adjoint transforms:
//! `Gᵀ (Σ_tiles V ⊙ (A dy Aᵀ)) G`.
//!
//! Tiles of 4 × 4 take fewer products, and round a little more. In a step of training the convolution itself has tiles of 2 × 2:
//! its results decide what ReLU and max-pooling let pass, and a decision that changes moves a gradient by far more than
//! rounding does.

mod adjoints;
mod grad_weight;
mod grid;
mod output;
mod pixels;
mod points;
mod pooled;
mod tail;
mod transforms;
mod weights;

pub use grad_weight::WinogradGradWeight;

use super::kernel::PooledPixelKernel;
use super::shape::{ConvProblem, Direction};
use crate::graph::op::Activation;
use grid::Grid;
use pixels::Winograd;
use points::{Four, Two};

/// Most floats of transformed weights for tiles of 4 × 4 pixels: 64 MiB. They are four times the weights, those for tiles of 2 × 2
/// less than twice.
const MOST_WEIGHTS: usize = 16 << 20;

/// Whether pixels are written in tiles of 4 × 4.
fn has_large_tiles(problem: &ConvProblem, direction: Direction) -> bool {
    let held = |grid: Grid| if grid.has_larger_weights() { 0 } else { grid.elements * grid.from * grid.to };
    let grid = || Grid::of_pixels::<Four>(problem, direction, 0);
    !problem.decides(direction) && grid().is_none_or(|grid| held(grid) <= MOST_WEIGHTS)
}

/// The kernel that writes pixels, if the problem suits it; one side of it may be pooled.
pub fn pixel_kernel(
    problem: &ConvProblem,
    direction: Direction,
    act: Option<Activation>,
) -> Option<Box<dyn PooledPixelKernel>> {
    Some(match has_large_tiles(problem, direction) {
        true => Box::new(Winograd::<Four>::new(problem, direction, act)?),
        false => Box::new(Winograd::<Two>::new(problem, direction, act)?),
    })
}

/// Multiply-adds of that kernel for each pair of an input and an output channel, and what else takes as long.
pub fn products(problem: &ConvProblem, direction: Direction) -> Option<usize> {
    Some(match has_large_tiles(problem, direction) {
        true => Grid::of_pixels::<Four>(problem, direction, 0)?.products::<Four>(problem.level),
        false => Grid::of_pixels::<Two>(problem, direction, 0)?.products::<Two>(problem.level),
    })
}

/// The same of [`WinogradGradWeight`].
pub fn weight_products(problem: &ConvProblem) -> Option<usize> {
    Some(Grid::of_weights(problem)?.sum_products())
}
