// What the kernels of attention on tensor cores are made of: rows in shared memory, products of a warp's rows, and what becomes of
// scores before they are weights. Fragments are those of gemm_ptx.cuh.
#pragma once
#include "attention.cuh"
#include "gemm_ptx.cuh"

namespace attention_mma {

constexpr int WARPS = 4, THREADS = 32 * WARPS;
constexpr float LOG2_E = 1.44269504f;

// 2ˣ, of denormal results 0.
__device__ __forceinline__ float power_of_2(float x) {
#ifdef RUNNER_EMULATED
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// Two 16-bit floats in a register, the first one below.
template <class T> __device__ __forceinline__ u32 pair_of(float first, float second) {
    return (u32)from_float<T>(first).bits | (u32)from_float<T>(second).bits << 16;
}
#if !defined(RUNNER_EMULATED) && __CUDA_ARCH__ >= 800
template <> __device__ __forceinline__ u32 pair_of<bf16>(float first, float second) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
    return y;
}
template <> __device__ __forceinline__ u32 pair_of<f16>(float first, float second) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
    return y;
}
#endif

// How rows of a head lie in shared memory, and the lane's place in fragments (see gemm_ptx.cuh).
template <class Kind_, int D_> struct Tile {
    typedef Kind_ Kind;
    typedef typename Storage<Kind>::T T;
    static constexpr int D = D_;
    // Elements from row to row: 16 bytes more than there are, so that the lanes of a fragment load meet all banks.
    static constexpr int ROW = D + 16 / (int)sizeof(T);
    // Terms of an instruction, and how often they go into a row.
    static constexpr int TERMS = 32 / (int)sizeof(T), SLICES = D / TERMS;
    // 16 bytes, and how often they go into a row.
    static constexpr int WIDE = PACK<T>, PACKS = D / WIDE;
};

// Starts copying N rows to `to`; what is not there is 0. Addresses go on from row to row, as registers are scarce.
template <class Tile, int N, class T> __device__ __forceinline__ void copy_rows(T *to, const Rows<T> &rows, int width) {
    if constexpr (THREADS % Tile::PACKS == 0) {
        int r = threadIdx.x / Tile::PACKS, c = threadIdx.x % Tile::PACKS * Tile::WIDE;
        constexpr int AT_ONCE = THREADS / Tile::PACKS;
        const T *from = rows.at + r * rows.step + c;
        i64 step = AT_ONCE * rows.step;
        int count = c < width ? rows.count - r : 0;
        to += r * Tile::ROW + c;
#pragma unroll
        for (int i = 0; i < N / AT_ONCE; ++i) {
            copy_16(to + i * AT_ONCE * Tile::ROW, i * AT_ONCE < count ? from : nullptr, rows.at);
            from += step;
        }
    } else {
#pragma unroll
        for (int i = 0; i < N * Tile::PACKS / THREADS; ++i) {
            int at = i * THREADS + threadIdx.x, r = at / Tile::PACKS, c = at % Tile::PACKS * Tile::WIDE;
            bool there = r < rows.count && c < width;
            copy_16(to + r * Tile::ROW + c, there ? rows.at + r * rows.step + c : nullptr, rows.at);
        }
    }
}

// 16 · M rows of an operand A: fragments in registers if KEPT, else rows in shared memory.
template <class Tile, int M, bool KEPT> struct Left {
    u32 fragments[M][Tile::SLICES][4];

    __device__ __forceinline__ explicit Left(const typename Tile::T *rows) {
#pragma unroll
        for (int m = 0; m < M; ++m) {
#pragma unroll
            for (int k = 0; k < Tile::SLICES; ++k) {
                load_fragment<true, Tile::ROW>(fragments[m][k], rows, m * 16, k * Tile::TERMS);
            }
        }
    }

    __device__ __forceinline__ void get(int m, int k, u32 (&q)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            q[i] = fragments[m][k][i];
        }
    }
};
template <class Tile, int M> struct Left<Tile, M, false> {
    const typename Tile::T *rows;

    __device__ __forceinline__ explicit Left(const typename Tile::T *rows) : rows(rows) {}

    __device__ __forceinline__ void get(int m, int k, u32 (&q)[4]) const {
        load_fragment<true, Tile::ROW>(q, rows, m * 16, k * Tile::TERMS);
    }
};

template <int M, int N> __device__ __forceinline__ void clear(float (&sums)[M][N][4]) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
            sums[m][j][0] = sums[m][j][1] = sums[m][j][2] = sums[m][j][3] = 0.0f;
        }
    }
}

// sums = a · the 8 · N rows from `rows` on, turned.
template <class Tile, int M, int N, bool KEPT>
__device__ __forceinline__ void dots(const Left<Tile, M, KEPT> &a, const typename Tile::T *rows, float (&sums)[M][N][4]) {
    clear(sums);
#pragma unroll
    for (int k = 0; k < Tile::SLICES; ++k) {
        u32 left[M][4];
#pragma unroll
        for (int m = 0; m < M; ++m) {
            a.get(m, k, left[m]);
        }
#pragma unroll
        for (int j = 0; j < N / 2; ++j) {
            u32 right[4];
            load_fragment<true, Tile::ROW>(right, rows, j * 16, k * Tile::TERMS);
#pragma unroll
            for (int m = 0; m < M; ++m) {
                multiply<typename Tile::Kind>(sums[m][2 * j], left[m], right[0], right[2]);
                multiply<typename Tile::Kind>(sums[m][2 * j + 1], left[m], right[1], right[3]);
            }
        }
    }
}

// What sums of 16 × 8 · N are as operand A: its piece number k. Of 32-bit floats a lane has the terms 2t and 2t + 1 of eight, not t and
// t + 4: the other operand's rows are read in that order, too.
template <class T> struct AsLeft {
    template <int N> static __device__ __forceinline__ void piece(const float (&sums)[N][4], int k, u32 (&q)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float *of = &sums[2 * k + i / 2][i % 2 * 2];
            q[i] = pair_of<T>(of[0], of[1]);
        }
    }
    // 16 columns from `column` on of rows k and up, as operand B.
    template <int ROW> static __device__ __forceinline__ void columns(u32 (&q)[4], const T *rows, int column, int k) {
        load_fragment<false, ROW>(q, rows, column, k);
    }
};
template <> struct AsLeft<float> {
    template <int N> static __device__ __forceinline__ void piece(const float (&sums)[N][4], int k, u32 (&q)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            q[i] = to_tf32(sums[k][i % 2 * 2 + i / 2]);
        }
    }
    template <int ROW> static __device__ __forceinline__ void columns(u32 (&q)[4], const float *rows, int column, int k) {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            q[i] = to_tf32(rows[(k + lane % 4 * 2 + i / 2) * ROW + column + i % 2 * 8 + lane / 4]);
        }
    }
};

// out += values · the 8 · N rows from `rows` on.
template <class Tile, int M, int N>
__device__ __forceinline__ void add_product(const float (&values)[M][N][4], const typename Tile::T *rows, float (&out)[M][Tile::D / 8][4]) {
    typedef AsLeft<typename Tile::T> Values;
#pragma unroll
    for (int k = 0; k < N * 8 / Tile::TERMS; ++k) {
        u32 left[M][4];
#pragma unroll
        for (int m = 0; m < M; ++m) {
            Values::piece(values[m], k, left[m]);
        }
#pragma unroll
        for (int j = 0; j < Tile::D / 16; ++j) {
            u32 right[4];
            Values::template columns<Tile::ROW>(right, rows, j * 16, k * Tile::TERMS);
#pragma unroll
            for (int m = 0; m < M; ++m) {
                multiply<typename Tile::Kind>(out[m][2 * j], left[m], right[0], right[2]);
                multiply<typename Tile::Kind>(out[m][2 * j + 1], left[m], right[1], right[3]);
            }
        }
    }
}

// Writes a warp's rows, each times its factor, by 16 bytes. `slab` is the warp's alone.
// `to` is their first, `step` elements from the next, and `count` of them are there; from `kept` on they are 0.
template <class Tile, int M, class T>
__device__ __forceinline__ void write_rows(T *slab, const float (&sums)[M][Tile::D / 8][4], const float (&by)[M][2], T *to, i64 step, int count, int kept, int width) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            T *row = slab + (m * 16 + h * 8 + lane / 4) * Tile::ROW + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < Tile::D / 8; ++j) {
                float v[2] = {sums[m][j][2 * h] * by[m][h], sums[m][j][2 * h + 1] * by[m][h]};
                if constexpr (sizeof(T) == 2) {
                    *(u32 *)(row + j * 8) = pair_of<T>(v[0], v[1]);
                } else {
                    *(float2 *)(row + j * 8) = make_float2(v[0], v[1]);
                }
            }
        }
    }
    __syncwarp();
#pragma unroll 4
    for (int i = lane; i < 16 * M * Tile::PACKS; i += 32) {
        int r = i / Tile::PACKS, c = i % Tile::PACKS * Tile::WIDE;
        if (r < count && c < width) {
            uint4 pack = *(const uint4 *)(slab + r * Tile::ROW + c);
            *(uint4 *)(to + r * step + c) = r < kept ? pack : make_uint4(0, 0, 0, 0);
        }
    }
    __syncwarp();
}

// Which weights of rows `row` and `row` + 8 and of the 64 keys from `key` on, a multiple of 64, are kept, of those that the lane has sums
// of: bit 16 h + 4 w + 2 e + o for key 16 w + 8 e + 2t + o. See `attention_draw` in crates/engine/src/random.rs.
template <class J> __device__ __forceinline__ u32 kept_of_rows(const J &job, int row, int key) {
    u32 blocks = (u32)(job.key_room() + 63) / 64, bits = 0;
    UNROLL(1)
    for (int i = 0; i < 8; ++i) {
        int h = i / 4, e = i / 2 % 2, o = i % 2;
        u64 at = ((u64)job.head * job.query_room() + row + h * 8) * blocks + key / 64;
        Draws draws = dropout_draws<1>(job.dropout.random, job.dropout.stream, at * 16 + e * 8 + threadIdx.x % 4 * 2 + o);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            bits |= (u32)(draws.word[w] >= job.dropout.threshold) << (16 * h + 4 * w + 2 * e + o);
        }
    }
    return bits;
}

// The bit of element e of the sums number j of a step, whose first key is `key`.
__device__ __forceinline__ bool is_kept(u32 bits, int key, int j, int e) {
    return bits >> (key % 64 / 16 * 4) >> (e / 2 * 16 + j / 2 * 4 + j % 2 * 2 + e % 2) & 1;
}

// Row and column of element i of a warp's sums.
__device__ __forceinline__ int row_of(int i) { return i % 4 / 2 * 8 + threadIdx.x % 32 / 4; }
__device__ __forceinline__ int column_of(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

// Adds the bias to scores that are not scaled yet, of queries from `row` and keys from `column` on, or TURNED the other way round.
template <bool TURNED, int M, int N>
__device__ __forceinline__ void add_bias(const Job &job, int row, int column, float (&scores)[M][N][4]) {
    float unscaled = 1.0f / job.scale;
    // As `hide` does it: turned, padding has no say, and registers are scarce.
    int count = TURNED ? job.length : job.count;
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int i = 0; i < N * 4; ++i) {
            int r = row + m * 16 + row_of(i), c = column + column_of(i);
            if (r < count && c < count) {
                scores[m][i / 4][i % 4] += (TURNED ? job.added(c, r) : job.added(r, c)) * unscaled;
            }
        }
    }
}

// Adds what is added to scores that are not scaled yet: the bias, if there is one, or what comes of the distance of two positions.
template <bool TURNED, int M, int N, class J>
__device__ __forceinline__ void add_to(const J &job, int row, int column, float (&scores)[M][N][4]) {
    if constexpr (!J::FAR) {
        if (job.bias) {
            add_bias<TURNED>(job, row, column, scores);
        }
    } else if (job.slope() != 0.0f) {
#pragma unroll
        for (int m = 0; m < M; ++m) {
#pragma unroll
            for (int i = 0; i < N * 4; ++i) {
                int r = row + m * 16 + row_of(i), c = column + column_of(i);
                scores[m][i / 4][i % 4] -= job.slope() * fabsf((float)(r - c));
            }
        }
    }
}

// Gives those scores whose keys are not seen the lowest value. Queries that are not there see what they would see, so that
// their weights are numbers, too. TURNED, a row is a key: one that is not there has a row whose results are not used.
template <bool TURNED, int M, int N, class J>
__device__ __forceinline__ void hide(const J &job, int row, int column, float (&scores)[M][N][4]) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int i = 0; i < N * 4; ++i) {
            int r = row + m * 16 + row_of(i), c = column + column_of(i), query = TURNED ? c : r, key = TURNED ? r : c;
            bool seen = (TURNED || key < job.keys()) && job.is_near(query, key);
            scores[m][i / 4][i % 4] = seen ? scores[m][i / 4][i % 4] : LOWEST<J>();
        }
    }
}

}  // namespace attention_mma
