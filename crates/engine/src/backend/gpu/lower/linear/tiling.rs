//! How a matrix product is divided among the blocks of a launch: the kernel (tensor cores or not), its tile, and the slices of
//! split-K. It depends on shapes, element type and kind of device alone, so sums have the same order in every run.

use crate::backend::gpu::launch::{Kernel, Module};
use crate::backend::gpu::target::Target;
use crate::graph::DType;

/// A batch of products `D[m, n] = Σ_k A[m, k] · B[n, k]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Terms of each sum: K.
    pub k: usize,
    /// Products of this size that one launch does: groups, and phases of a strided gradient.
    pub copies: usize,
    /// The third tile that the product's kernels are compiled for, besides 128 × 128 and 64 × 64.
    pub thin: Tile,
}

/// Rows and columns that a block computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile(usize, usize);

impl Tile {
    /// For results of few columns.
    pub const COLUMN: Tile = Tile(128, 32);
    /// For results of few rows, few columns, or both, whose sums are long.
    pub const SMALL: Tile = Tile(32, 32);

    const LARGE: Tile = Tile(128, 128);
    const MEDIUM: Tile = Tile(64, 64);

    fn name(self) -> String {
        format!("{}x{}", self.0, self.1)
    }

    /// Threads of a block, as `kernels/cuda/gemm_tiles.cuh` has them.
    fn threads(self) -> u32 {
        match self {
            Tile::LARGE => 256,
            Tile::SMALL => 64,
            _ => 128,
        }
    }

    /// Dynamic shared memory of a tensor-core kernel: stages of both operands' tiles, 80 bytes a row.
    fn ring_bytes(self) -> usize {
        let stages = if self.0 == self.1 && self != Tile::LARGE { 4 } else { 3 };
        stages * (self.0 + self.1) * 80
    }

    fn count(self, m: usize, n: usize) -> usize {
        m.div_ceil(self.0) * n.div_ceil(self.1)
    }

    /// Elements computed, with those of partial tiles past the result's edges.
    fn area(self, m: usize, n: usize) -> usize {
        self.count(m, n) * self.0 * self.1
    }

    /// Blocks of the slices of a long sum that fill a large GPU, all of whose multiprocessors hold as many as the kernels are
    /// compiled for: a block alone waits for memory most of the time. It is a constant, so that no sum depends on the device.
    fn wanted_blocks(self) -> usize {
        if self == Tile::LARGE { 132 } else { 132 * 512 / self.threads() as usize }
    }
}

/// Fewest terms of a slice of split-K: its partial sums are written and read once more.
const SHORTEST_SLICE: usize = 128;

/// Most bytes of workspace for the partial sums of all slices.
const MOST_SLICE_BYTES: usize = 64 << 20;

/// How a product is launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiling {
    engine: &'static str,
    suffix: &'static str,
    tile: Tile,
    /// Terms of a slice: a multiple of the terms that a kernel loads at a time.
    pub slice: usize,
    /// Slices of the terms.
    pub slices: usize,
    blocks: usize,
    copies: usize,
}

impl Tiling {
    /// The tiling of `product` for operands of type `dtype`.
    pub fn choose(target: &Target, dtype: DType, product: Product) -> Tiling {
        let ampere = target.capability >= 80;
        let (engine, suffix) = match dtype {
            DType::F32 if target.tf32 && ampere => ("mma", "tf32"),
            // Tensor cores multiply IEEE halves on every device that the program supports.
            DType::F16 => ("mma", "f16"),
            DType::BF16 if ampere => ("mma", "bf16"),
            DType::BF16 => ("simt", "bf16"),
            _ => ("simt", "f32"),
        };
        let tile = match product.tile() {
            // What is the fastest choice on no device is compiled for one tile alone.
            _ if (engine, suffix) == ("simt", "bf16") => Tile::MEDIUM,
            // Without asynchronous copies many small blocks hide the latency of memory better.
            Tile::LARGE if engine == "mma" && !ampere => Tile::MEDIUM,
            tile => tile,
        };
        let terms = match (engine, suffix, tile) {
            ("mma", "tf32", _) => 16,
            ("mma", ..) => 32,
            (_, _, Tile::LARGE) => 8,
            _ => 16,
        };
        let (slice, slices) = product.slices(tile, terms);
        let blocks = tile.count(product.m, product.n);
        Tiling { engine, suffix, tile, slice, slices, blocks, copies: product.copies }
    }

    /// The launch of a product's kernel, without arguments.
    pub fn kernel(&self, module: Module, product: &str) -> Kernel {
        let name = format!("{product}_{}_{}_{}", self.engine, self.tile.name(), self.suffix);
        let shared = if self.engine == "mma" { self.tile.ring_bytes() } else { 0 };
        let z = self.slices * self.copies;
        Kernel::new(module, name).grid(self.blocks, 1, z).block(self.tile.threads(), 1).shared(shared)
    }

    /// Bytes of the sums of all slices of a result of so many elements; 0 if there is one slice.
    pub fn partial_bytes(&self, elements: usize) -> usize {
        if self.slices > 1 { super::sums::aligned(self.slices * elements * 4) } else { 0 }
    }
}

impl Product {
    fn tile(&self) -> Tile {
        let Product { m, n, k, copies, thin } = *self;
        let medium = Tile::MEDIUM.area(m, n);
        if (m <= 32 || n <= 32) && thin.area(m, n) * 2 <= medium {
            return thin;
        }
        // Large tiles read operands least often, but must not compute many elements in vain, nor leave multiprocessors idle.
        let large = Tile::LARGE.count(m, n) * copies * (k / SHORTEST_SLICE).max(1);
        let fits = Tile::LARGE.area(m, n) * 3 <= medium * 4;
        if fits && large >= Tile::LARGE.wanted_blocks() { Tile::LARGE } else { Tile::MEDIUM }
    }

    /// Terms of a slice, and how many slices.
    fn slices(&self, tile: Tile, terms: usize) -> (usize, usize) {
        let blocks = tile.count(self.m, self.n) * self.copies;
        let slice_bytes = self.m.saturating_mul(self.n).saturating_mul(self.copies).saturating_mul(4);
        let most = (self.k / SHORTEST_SLICE).min(MOST_SLICE_BYTES / slice_bytes);
        let wanted = (tile.wanted_blocks() / blocks).min(most).max(1);
        let slice = self.k.div_ceil(wanted).next_multiple_of(terms);
        (slice, self.k.div_ceil(slice))
    }
}

/// Bits of a kernel's `wide` argument: which operands may be read, and whether results may be written, 16 bytes at a time.
/// Each is given by lengths that must be whole numbers of 16 bytes.
pub fn wide(dtype: DType, a: &[usize], b: &[usize], result: &[usize]) -> usize {
    let all = |lengths: &[usize], piece: usize| lengths.iter().all(|n| n % piece == 0);
    let piece = 16 / dtype.bytes();
    all(a, piece) as usize | (all(b, piece) as usize) << 1 | (all(result, 4) as usize) << 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(m: usize, n: usize, k: usize, thin: Tile) -> Tiling {
        let target = Target::new(90);
        Tiling::choose(&target, DType::F32, Product { m, n, k, copies: 1, thin })
    }

    #[test]
    fn slices_cover_the_terms_without_an_empty_one() {
        for k in [1, 7, 127, 128, 129, 1000, 3136, 200_704] {
            for (m, n) in [(1, 1), (32, 9), (256, 128), (64, 576), (2048, 512), (4096, 4096)] {
                let t = choose(m, n, k, Tile::SMALL);
                assert!(t.slices * t.slice >= k && (t.slices - 1) * t.slice < k, "{m} {n} {k}: {t:?}");
                assert!(t.slices == 1 || t.slices * m * n * 4 <= MOST_SLICE_BYTES, "{m} {n} {k}: {t:?}");
            }
        }
    }

    #[test]
    fn few_tiles_with_long_sums_are_sliced_and_large_products_are_not() {
        let dense = choose(256, 128, 3136, Tile::COLUMN);
        assert!(dense.blocks * dense.slices >= 132, "{dense:?}");
        let first_weight = choose(32, 9, 200_704, Tile::SMALL);
        assert_eq!((first_weight.tile, first_weight.slices), (Tile::SMALL, 1046));
        let square = choose(4096, 4096, 4096, Tile::COLUMN);
        assert_eq!((square.tile, square.slices), (Tile::LARGE, 1));
        assert_eq!(choose(200_704, 32, 9, Tile::COLUMN).tile, Tile::COLUMN);
    }

    #[test]
    fn the_engine_follows_the_device() {
        let product = Product { m: 64, n: 64, k: 64, copies: 1, thin: Tile::COLUMN };
        let name = |capability, tf32, dtype| {
            Tiling::choose(&Target { tf32, ..Target::new(capability) }, dtype, product).kernel(Module::Matmul, "p").name
        };
        assert_eq!(name(75, true, DType::F32), "p_simt_64x64_f32");
        assert_eq!(name(80, true, DType::F32), "p_mma_64x64_tf32");
        assert_eq!(name(90, false, DType::F32), "p_simt_64x64_f32");
        assert_eq!(name(75, false, DType::BF16), "p_simt_64x64_bf16");
        assert_eq!(name(80, false, DType::BF16), "p_mma_64x64_bf16");
        assert_eq!(name(75, false, DType::F16), "p_mma_64x64_f16");
    }
}
