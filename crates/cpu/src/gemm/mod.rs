//! Single-precision matrix products: a register tile, packing, and cache blocks around them.

pub mod any_product;
pub mod bf16;
mod dots;
pub mod memory;
pub mod numbers;
pub mod pack;
pub mod product;
pub mod prologue;
pub mod sums;
pub mod tile;

#[cfg(test)]
pub mod reference;

/// Bytes at whose multiples every block of workspace starts: a cache line and the widest vector.
pub const ALIGN: usize = 64;

/// Floats in a cache line.
pub const LINE: usize = ALIGN / 4;

/// `n` floats rounded up to whole cache lines.
pub const fn round_up(n: usize) -> usize {
    n.div_ceil(LINE) * LINE
}

/// Workspace as floats.
///
/// # Panics
/// It does not start at a multiple of [`ALIGN`], or has fewer than `floats`.
pub fn workspace_floats(workspace: &mut [u8], floats: usize) -> &mut [f32] {
    assert!(workspace.as_ptr().addr().is_multiple_of(ALIGN), "workspace starts at a multiple of {ALIGN}");
    assert!(workspace.len() >= floats * 4, "workspace has {} of {} bytes", workspace.len(), floats * 4);
    // SAFETY: aligned and long enough; any bytes are floats.
    unsafe { std::slice::from_raw_parts_mut(workspace.as_mut_ptr().cast(), floats) }
}
