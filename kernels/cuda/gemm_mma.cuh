// Tiled matrix product on tensor cores: 16-bit operands, or 32-bit ones rounded to TF32; sums in 32 bits. Tiles are copied
// as they are to a ring of STAGES buffers in shared memory, ahead of the one that is multiplied.
#pragma once

#include "gemm_operand.cuh"
#include "gemm_ptx.cuh"
#include "gemm_store.cuh"

// BM × BN sums a block, WM × WN of them a warp. Kind is bf16, f16 or Tf32.
template <class Kind, int BM, int BN, int WM, int WN, int STAGES> struct Mma {
    typedef typename Storage<Kind>::T Element;
    typedef Element T;
    static constexpr int M = BM, N = BN;
    static constexpr int WARPS_M = BM / WM, WARPS_N = BN / WN, THREADS = 32 * WARPS_M * WARPS_N;
    // Blocks that a multiprocessor is to hold: leaves 128 registers a thread.
    static constexpr int BLOCKS = 512 / THREADS;
    // Terms a tile (64 bytes), and terms an instruction.
    static constexpr int BK = 64 / sizeof(T), STEP = 32 / sizeof(T);
    static constexpr int ROW_SLAB = BN + 8;

    // Dynamic shared memory: a ring of tiles of 64 bytes a row and 16 between rows.
    static constexpr int SHARED_BYTES = STAGES * (BM + BN) * 80;

    // Rows are 16 or 32 bytes longer than their elements, so that the lanes of a fragment load meet all banks.
    template <class Operand, int OUTERS> struct Tile {
        static constexpr int ROW = Operand::ALONG_K ? BK + 16 / (int)sizeof(T) : OUTERS + 8;
        static constexpr int ELEMENTS = (Operand::ALONG_K ? OUTERS : BK) * ROW;
    };

    // Starts copying the tile at `first_k`.
    template <int ROW, class Operand, class Load>
    static __device__ __forceinline__ void fetch(const Operand &operand, const Load &load, T *tile, int first_k) {
        if (load.wide) {
            load.template each<Load::WIDE, 16>(first_k, [&](int, int o, int k, const T *p) {
                copy_16(tile + (Operand::ALONG_K ? o * ROW + k : k * ROW + o), p, operand.any());
            });
        } else {
            // Few at a time where each needs an address of its own: registers are scarce.
            load.template each<1, (Operand::ALONG_K ? 4 : 2)>(first_k, [&](int, int o, int k, const T *p) {
                tile[Operand::ALONG_K ? o * ROW + k : k * ROW + o] = p != nullptr ? *p : T{};
            });
        }
    }

    // Rows number `pass` of the warp's sums, to `to` on. A loop over I with `I == pass` in it would do, but the compiler takes
    // the one for the other before it unrolls the loop, and then indexes the sums by `pass`: they go to the stack.
    template <int I> static __device__ __forceinline__ void put_rows(const float (&sums)[WM / 16][WN / 8][4], int pass, float *to) {
        if constexpr (I < WM / 16) {
            if (I == pass) {
#pragma unroll
                for (int j = 0; j < WN / 8; j++) {
                    *(float2 *)(to + j * 8) = make_float2(sums[I][j][0], sums[I][j][1]);
                    *(float2 *)(to + j * 8 + 8 * ROW_SLAB) = make_float2(sums[I][j][2], sums[I][j][3]);
                }
            }
            put_rows<I + 1>(sums, pass, to);
        }
    }

    // The tile at (first_m, first_n) of A · Bᵀ over k_begin ≤ k < k_end.
    template <bool FINISH, class A, class B, class Place>
    static __device__ __forceinline__ void run(const A &a, const B &b, bool wide_a, bool wide_b, int first_m, int first_n, int k_begin,
                                               int k_end, const Result &result, const Place &place_of) {
        typedef TileLoad<A, BM, BK, THREADS> LoadA;
        typedef TileLoad<B, BN, BK, THREADS> LoadB;
        typedef Tile<A, BM> TileA;
        typedef Tile<B, BN> TileB;
        constexpr int STAGE = TileA::ELEMENTS + TileB::ELEMENTS;
        static_assert(STAGES * STAGE * (int)sizeof(T) <= SHARED_BYTES, "the ring fits");
        static_assert(WARPS_M * 16 * ROW_SLAB * 4 <= SHARED_BYTES, "a slab of sums fits");
        DYNAMIC_SHARED(uint4, memory);
        __shared__ i64 places[BM];
        __shared__ typename A::Outer table_a[LoadA::TABLE];
        __shared__ typename B::Outer table_b[LoadB::TABLE];
        T *ring = (T *)memory;
        LoadA load_a(a, table_a, first_m, wide_a);
        LoadB load_b(b, table_b, first_n, wide_b);
        // Now, so that what it is computed from need not be kept in registers.
        for (int r = threadIdx.x; r < BM; r += THREADS) {
            places[r] = first_m + r < result.m ? place_of(first_m + r) : 0;
        }
        __syncthreads();

        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        int warp_m = warp / WARPS_N, warp_n = warp % WARPS_N;
        float sums[WM / 16][WN / 8][4];
#pragma unroll
        for (int i = 0; i < WM / 16; i++) {
#pragma unroll
            for (int j = 0; j < WN / 8; j++) {
                sums[i][j][0] = sums[i][j][1] = sums[i][j][2] = sums[i][j][3] = 0.0f;
            }
        }
        // The first STAGES - 1 rounds only fetch. A group of copies is ended for every tile, even past the last: so waiting
        // can count groups.
        int slot = 0;
#pragma unroll 1
        for (int k = k_begin - (STAGES - 1) * BK; k < k_end; k += BK) {
            if (k >= k_begin) {
                copies_wait<STAGES - 2>();
                // All threads' copies of this tile have arrived, and all warps are done with the tile before it, whose place
                // the next fetch takes.
                __syncthreads();
            }
            int ahead = k + (STAGES - 1) * BK, place = slot == 0 ? STAGES - 1 : slot - 1;
            if (ahead < k_end) {
                fetch<TileA::ROW>(a, load_a, ring + place * STAGE, ahead);
                fetch<TileB::ROW>(b, load_b, ring + place * STAGE + TileA::ELEMENTS, ahead);
            }
            copies_commit();
            int current = slot;
            slot = slot == STAGES - 1 ? 0 : slot + 1;
            if (k < k_begin) {
                continue;
            }
            const T *tile_a = ring + current * STAGE, *tile_b = tile_a + TileA::ELEMENTS;
#pragma unroll
            for (int kk = 0; kk < BK; kk += STEP) {
                u32 qb[WN / 16][4];
#pragma unroll
                for (int j = 0; j < WN / 16; j++) {
                    load_fragment<B::ALONG_K, TileB::ROW>(qb[j], tile_b, warp_n * WN + j * 16, kk);
                }
#pragma unroll
                for (int i = 0; i < WM / 16; i++) {
                    u32 qa[4];
                    load_fragment<A::ALONG_K, TileA::ROW>(qa, tile_a, warp_m * WM + i * 16, kk);
#pragma unroll
                    for (int j = 0; j < WN / 8; j++) {
                        multiply<Kind>(sums[i][j], qa, qb[j / 2][j % 2], qb[j / 2][2 + j % 2]);
                    }
                }
            }
        }
        copies_wait<0>();
        __syncthreads();

        // 16 of each warp's rows at a time.
        float *slab = (float *)memory;
#pragma unroll 1
        for (int pass = 0; pass < WM / 16; pass++) {
            put_rows<0>(sums, pass, slab + (warp_m * 16 + lane / 4) * ROW_SLAB + warp_n * WN + lane % 4 * 2);
            __syncthreads();
            store_slab<FINISH, WARPS_M * 16, BN, ROW_SLAB, THREADS>(slab, places, first_m, first_n, result,
                                                                    [&](int r) { return r / 16 * WM + pass * 16 + r % 16; });
            __syncthreads();
        }
    }
};
