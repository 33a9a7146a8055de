// The tile shapes that products are compiled for, and a macro over them. Lowering chooses by shape
// (crates/engine/src/backend/cuda/lower/linear/tiling.rs), so a name's shape is part of the kernel's name.
#pragma once

#include "gemm_mma.cuh"
#include "gemm_simt.cuh"

// Fused multiply-adds: terms a tile are few where the sums a thread are many.
template <class T> using Simt128x128 = Simt<T, 128, 128, 8, 8, 8>;
template <class T> using Simt64x64 = Simt<T, 64, 64, 16, 8, 4>;
template <class T> using Simt128x32 = Simt<T, 128, 32, 16, 8, 4>;
template <class T> using Simt32x32 = Simt<T, 32, 32, 16, 4, 4>;

// Tensor cores: as many stages as leave room for two blocks a multiprocessor, with at most 60 KiB of shared memory each.
template <class Kind> using Mma128x128 = Mma<Kind, 128, 128, 64, 32, 3>;
template <class Kind> using Mma64x64 = Mma<Kind, 64, 64, 32, 32, 4>;
template <class Kind> using Mma128x32 = Mma<Kind, 128, 32, 32, 32, 3>;
template <class Kind> using Mma32x32 = Mma<Kind, 32, 32, 16, 32, 4>;

// FOR_TILES(M, THIN) is M(engine, tile, class, name's ending) for every kernel of a product. The third tile is `THIN`:
// 128x32 where a product may have many rows and few columns, 32x32 where it may have few of both. f16 has tensor cores on
// every GPU; bf16 and TF32 from sm_80 on, and below it products of bf16 run on Simt in one shape.
#define FOR_TILES(M, THIN)                    \
    M(simt, 128x128, Simt128x128<float>, f32) \
    M(simt, 64x64, Simt64x64<float>, f32)     \
    M(simt, THIN, Simt##THIN<float>, f32)     \
    M(mma, 64x64, Mma64x64<f16>, f16)         \
    M(mma, THIN, Mma##THIN<f16>, f16)         \
    FOR_OLD_TILES(M)                          \
    FOR_NEW_TILES(M, THIN)

#if defined(RUNNER_EMULATED) || __CUDA_ARCH__ < 800
#define FOR_OLD_TILES(M) M(simt, 64x64, Simt64x64<bf16>, bf16)
#else
#define FOR_OLD_TILES(M)
#endif

#if defined(RUNNER_EMULATED) || __CUDA_ARCH__ >= 800
#define FOR_NEW_TILES(M, THIN)              \
    M(mma, 128x128, Mma128x128<f16>, f16)   \
    M(mma, 128x128, Mma128x128<bf16>, bf16) \
    M(mma, 64x64, Mma64x64<bf16>, bf16)     \
    M(mma, THIN, Mma##THIN<bf16>, bf16)     \
    M(mma, 128x128, Mma128x128<Tf32>, tf32) \
    M(mma, 64x64, Mma64x64<Tf32>, tf32)     \
    M(mma, THIN, Mma##THIN<Tf32>, tf32)
#else
#define FOR_NEW_TILES(M, THIN)
#endif

// The tile of a block, and its slice of k: tiles go along n first, so that blocks that run together share rows of A.
struct BlockTile {
    int m, n, k_begin, k_end;

    template <class Tile> static __device__ __forceinline__ BlockTile of(int n, int k, int k_slice, int slice) {
        int tiles_n = (n + Tile::N - 1) / Tile::N, tile_m = blockIdx.x / tiles_n;
        int begin = slice * k_slice;
        return BlockTile{tile_m * Tile::M, ((int)blockIdx.x - tile_m * tiles_n) * Tile::N, begin, min(begin + k_slice, k)};
    }
};

// Where slice `slice` of `elements` sums goes; null if there is one slice alone, which writes the result.
__device__ __forceinline__ float *partial_of(float *partials, int slice, i64 elements) {
    return partials != nullptr ? partials + slice * elements : nullptr;
}

// Bits of the `wide` argument.
enum { WIDE_A = 1, WIDE_B = 2, WIDE_RESULT = 4 };
