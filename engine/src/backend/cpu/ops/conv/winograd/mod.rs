//! 3 × 3 convolutions of stride 1 by F(2×2, 3×3): Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks",
//! CVPR 2016.
//!
//! An output tile of 2 × 2 pixels takes 16 products a channel instead of 36. With `V` the transformed 4 × 4 input tile
//! (`Bᵀ d B`), `U` the transformed kernel (`G g Gᵀ`) and ⊙ the product by element, the tile is `Aᵀ (Σ_c U ⊙ V) A`: sixteen
//! matrix products over channels, one for each element, with additions around them. The gradient by the input is the
//! same with the kernel rotated by 180° and its channels swapped. The gradient by the weight uses the adjoint transforms:
//! `Gᵀ (Σ_tiles V ⊙ (A dy Aᵀ)) G`.

mod grad_weight;
mod grid;
mod pixels;
mod pooled;
mod tail;
mod transforms;

pub use grad_weight::WinogradGradWeight;
pub use pixels::Winograd;
