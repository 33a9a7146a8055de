// Tiled matrix product by fused multiply-adds: exact 32-bit arithmetic, on every GPU. Tiles go from memory through
// registers to one of two buffers in shared memory while the other is multiplied; each thread holds TM × TN sums.
#pragma once

#include "gemm_operand.cuh"
#include "gemm_store.cuh"

// Elements from an address (zeros if null) to floats.
__device__ __forceinline__ void load_floats(float (&v)[1], const float *p) { v[0] = p != nullptr ? *p : 0.0f; }
__device__ __forceinline__ void load_floats(float (&v)[1], const bf16 *p) { v[0] = p != nullptr ? to_float(*p) : 0.0f; }
__device__ __forceinline__ void load_floats(float (&v)[4], const float *p) {
    float4 x = p != nullptr ? *(const float4 *)p : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
}
__device__ __forceinline__ void load_floats(float (&v)[8], const bf16 *p) {
    uint4 x = p != nullptr ? *(const uint4 *)p : make_uint4(0, 0, 0, 0);
    u32 pairs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = bits_to_float(pairs[i] << 16);
        v[2 * i + 1] = bits_to_float(pairs[i] & 0xffff0000u);
    }
}

// The elements of a tile that one thread carries from memory to shared memory.
template <class Load, int ROW> struct Carried {
    float v[Load::ELEMENTS];

    template <int V> __device__ __forceinline__ void read_pieces(const Load &load, int first_k) {
        load.template each<V, Load::ELEMENTS>(first_k, [&](int pass, int, int, const typename Load::T *p) {
            float piece[V];
            load_floats(piece, p);
#pragma unroll
            for (int j = 0; j < V; j++) {
                v[pass * V + j] = piece[j];
            }
        });
    }
    __device__ __forceinline__ void read(const Load &load, int first_k) {
        if (load.wide) {
            read_pieces<Load::WIDE>(load, first_k);
        } else {
            read_pieces<1>(load, first_k);
        }
    }

    // The same pieces to the tile, laid out [k][outer] with rows ROW apart.
    template <int V, bool ALONG_K, int CONTIGUOUS, int THREADS> __device__ __forceinline__ void write_pieces(float *tile) const {
        constexpr int PER_ROW = CONTIGUOUS / V, STEP = THREADS / PER_ROW;
        int along = (int)threadIdx.x % PER_ROW * V, across = threadIdx.x / PER_ROW;
#pragma unroll
        for (int i = 0; i < Load::ELEMENTS; i++) {
            int c = along + i % V, r = across + i / V * STEP;
            tile[ALONG_K ? c * ROW + r : r * ROW + c] = v[i];
        }
    }
};

// BM × BN sums a block, BK terms at a time.
template <class T, int BM, int BN, int BK, int TM, int TN> struct Simt {
    typedef T Element;
    static constexpr int M = BM, N = BN;
    static constexpr int THREADS = (BM / TM) * (BN / TN);
    // Blocks that a multiprocessor is to hold: leaves 128 registers a thread.
    static constexpr int BLOCKS = 512 / THREADS;
    // Four floats more, so that writing a tile across its rows meets all banks.
    static constexpr int ROW_A = BM + 4, ROW_B = BN + 4, ROW_SLAB = BN + 4;
    static constexpr int TILE_A = BK * ROW_A, TILE_B = BK * ROW_B, SLAB = (BM / TM) * ROW_SLAB;
    static constexpr int FLOATS = 2 * (TILE_A + TILE_B) > SLAB ? 2 * (TILE_A + TILE_B) : SLAB;

    // A thread's rows (columns) are quads spread over the tile, so that neighbours read neighbouring 16 bytes.
    template <int SIDE, int PER_THREAD> static __device__ __forceinline__ int place(int thread, int i) {
        return i / 4 * (SIDE / (PER_THREAD / 4)) + thread * 4 + i % 4;
    }

    // Row number `pass` of the thread's sums. As in gemm_mma.cuh, a loop over I would put the sums on the stack.
    template <int I> static __device__ __forceinline__ void put_row(const float (&sums)[TM][TN], int pass, float *to, int tx) {
        if constexpr (I < TM) {
            if (I == pass) {
#pragma unroll
                for (int j = 0; j < TN; j += 4) {
                    *(float4 *)(to + place<BN, TN>(tx, j)) =
                        make_float4(sums[I][j], sums[I][j + 1], sums[I][j + 2], sums[I][j + 3]);
                }
            }
            put_row<I + 1>(sums, pass, to, tx);
        }
    }

    // The tile at (first_m, first_n) of A · Bᵀ over k_begin ≤ k < k_end.
    template <bool FINISH, class A, class B, class Place>
    static __device__ __forceinline__ void run(const A &a, const B &b, bool wide_a, bool wide_b, int first_m, int first_n, int k_begin,
                                               int k_end, const Result &result, const Place &place_of) {
        typedef TileLoad<A, BM, BK, THREADS> LoadA;
        typedef TileLoad<B, BN, BK, THREADS> LoadB;
        __shared__ float4 memory[FLOATS / 4];
        __shared__ i64 places[BM];
        __shared__ typename A::Outer table_a[LoadA::TABLE];
        __shared__ typename B::Outer table_b[LoadB::TABLE];
        float *tiles_a = (float *)memory, *tiles_b = tiles_a + 2 * TILE_A;
        LoadA load_a(a, table_a, first_m, wide_a);
        LoadB load_b(b, table_b, first_n, wide_b);
        // Now, so that what it is computed from need not be kept in registers.
        for (int r = threadIdx.x; r < BM; r += THREADS) {
            places[r] = first_m + r < result.m ? place_of(first_m + r) : 0;
        }
        __syncthreads();

        int tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
        float sums[TM][TN];
#pragma unroll
        for (int i = 0; i < TM; i++) {
#pragma unroll
            for (int j = 0; j < TN; j++) {
                sums[i][j] = 0.0f;
            }
        }
        Carried<LoadA, ROW_A> next_a;
        Carried<LoadB, ROW_B> next_b;
        auto write = [&](int buffer) {
            float *to_a = tiles_a + buffer * TILE_A, *to_b = tiles_b + buffer * TILE_B;
            if (wide_a) {
                next_a.template write_pieces<LoadA::WIDE, A::ALONG_K, LoadA::CONTIGUOUS, THREADS>(to_a);
            } else {
                next_a.template write_pieces<1, A::ALONG_K, LoadA::CONTIGUOUS, THREADS>(to_a);
            }
            if (wide_b) {
                next_b.template write_pieces<LoadB::WIDE, B::ALONG_K, LoadB::CONTIGUOUS, THREADS>(to_b);
            } else {
                next_b.template write_pieces<1, B::ALONG_K, LoadB::CONTIGUOUS, THREADS>(to_b);
            }
        };
        // The first round only fetches.
        int buffer = 1;
#pragma unroll 1
        for (int k = k_begin - BK; k < k_end; k += BK, buffer ^= 1) {
            bool more = k + BK < k_end;
            if (more) {
                next_a.read(load_a, k + BK);
                next_b.read(load_b, k + BK);
            }
            if (k >= k_begin) {
                const float *tile_a = tiles_a + buffer * TILE_A, *tile_b = tiles_b + buffer * TILE_B;
#pragma unroll 8
                for (int kk = 0; kk < BK; kk++) {
                    float4 va[TM / 4], vb[TN / 4];
#pragma unroll
                    for (int i = 0; i < TM / 4; i++) {
                        va[i] = *(const float4 *)(tile_a + kk * ROW_A + place<BM, TM>(ty, 4 * i));
                    }
#pragma unroll
                    for (int j = 0; j < TN / 4; j++) {
                        vb[j] = *(const float4 *)(tile_b + kk * ROW_B + place<BN, TN>(tx, 4 * j));
                    }
#pragma unroll
                    for (int i = 0; i < TM / 4; i++) {
                        const float rows[4] = {va[i].x, va[i].y, va[i].z, va[i].w};
#pragma unroll
                        for (int j = 0; j < TN / 4; j++) {
#pragma unroll
                            for (int p = 0; p < 4; p++) {
                                float *s = sums[4 * i + p] + 4 * j;
                                s[0] = fmaf(rows[p], vb[j].x, s[0]);
                                s[1] = fmaf(rows[p], vb[j].y, s[1]);
                                s[2] = fmaf(rows[p], vb[j].z, s[2]);
                                s[3] = fmaf(rows[p], vb[j].w, s[3]);
                            }
                        }
                    }
                }
            }
            if (more) {
                write(buffer ^ 1);
            }
            __syncthreads();
        }

        // One of each thread's rows at a time.
        float *slab = (float *)memory;
#pragma unroll 1
        for (int pass = 0; pass < TM; pass++) {
            put_row<0>(sums, pass, slab + ty * ROW_SLAB, tx);
            __syncthreads();
            store_slab<FINISH, BM / TM, BN, ROW_SLAB, THREADS>(slab, places, first_m, first_n, result,
                                                               [&](int r) { return place<BM, TM>(r, pass); });
            __syncthreads();
        }
    }
};
