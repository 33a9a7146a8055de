// Scaled dot-product attention and its gradients on tensor cores, after FlashAttention-2 (Dao 2023): 16-bit operands, or 32-bit
// ones rounded to TF32; sums in 32 bits. Heads are up to D wide, and what is missing of them in shared memory is 0.
//
// A block is four warps, each of which has 16 · M rows of its own: queries, or keys for the gradients by keys and values. Their
// fragments stay in registers; the other side comes by asynchronous copies, TILE rows at a time, into two stages of
// shared memory. A warp goes over a stage STEP rows at a time. Scores, weights and their gradients never leave its registers: as the sums of one
// product lie in them, they are operand A of the next. The gradients by keys and values make the scores turned, a row for each key.
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
// `to` is their first, `step` elements from the next, and `count` of them are there.
template <class Tile, int M, class T>
__device__ __forceinline__ void write_rows(T *slab, const float (&sums)[M][Tile::D / 8][4], const float (&by)[M][2], T *to, i64 step, int count, int width) {
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
            *(uint4 *)(to + r * step + c) = *(const uint4 *)(slab + r * Tile::ROW + c);
        }
    }
    __syncwarp();
}

// Which weights of rows `row` and `row` + 8 and of the 64 keys from `key` on, a multiple of 64, are kept, of those that the lane has sums
// of: bit 16 h + 4 w + 2 e + o for key 16 w + 8 e + 2t + o. See `attention_draw` in engine/src/random.rs.
__device__ __forceinline__ u32 kept_of_rows(const Job &job, int row, int key) {
    u32 blocks = (u32)(job.length + 63) / 64, bits = 0;
    UNROLL(1)
    for (int i = 0; i < 8; ++i) {
        int h = i / 4, e = i / 2 % 2, o = i % 2;
        u64 at = ((u64)job.head * job.length + row + h * 8) * blocks + key / 64;
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

// y = softmax(scale · q · kᵀ + bias) · v with an online softmax (Milakov & Gimelshein 2018), and the logarithms of its sums. The dynamic shared
// memory is two stages of TILE keys and values.
template <class Tile, int M, int TILE, int STEP>
__device__ __forceinline__ void forward(const Job &job, const typename Tile::T *qkv, typename Tile::T *y, float *lse) {
    typedef typename Tile::T T;
    constexpr int ROW = Tile::ROW, OWN = 16 * M, STAGE = 2 * TILE * ROW, N = STEP / 8;
    static_assert(WARPS * OWN <= 2 * TILE, "the queries, and the results, go into a stage");
    DYNAMIC_SHARED(uint4, memory);
    T *stages = (T *)memory;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = job.row + warp * OWN;
    Rows<T> keys = job.packed(qkv, 1), values = job.packed(qkv, 2);
    auto fetch = [&](int tile) {
        T *stage = stages + tile % 2 * STAGE;
        copy_rows<Tile, TILE>(stage, keys.from(tile * TILE), job.width);
        copy_rows<Tile, TILE>(stage + TILE * ROW, values.from(tile * TILE), job.width);
    };
    copy_rows<Tile, WARPS * OWN>(stages + STAGE, job.packed(qkv, 0).from(job.row), job.width);
    copies_commit();
    fetch(0);
    copies_commit();
    copies_wait<1>();
    __syncthreads();
    Left<Tile, M, true> queries(stages + STAGE + warp * OWN * ROW);

    const float lowest = bits_to_float(0xff800000u), scale = job.scale * LOG2_E;
    float out[M][Tile::D / 8][4], top[M][2], sum[M][2];
    clear(out);
#pragma unroll
    for (int m = 0; m < M; ++m) {
        top[m][0] = top[m][1] = lowest;
        sum[m][0] = sum[m][1] = 0.0f;
    }
    // Where the keys end that the block's queries see, and the warp's.
    int end = job.causal ? min(job.row + WARPS * OWN, job.length) : job.length;
    int own_end = first < job.length ? (job.causal ? min(first + OWN, job.length) : job.length) : 0;
#pragma unroll 1
    for (int tile = 0; tile * TILE < end; ++tile) {
        copies_wait<0>();
        // The tile has arrived for all, and all are done with the one before it, whose place the next one takes.
        __syncthreads();
        if ((tile + 1) * TILE < end) {
            fetch(tile + 1);
        }
        copies_commit();
        const T *stage = stages + tile % 2 * STAGE;
        u32 kept[M];
        if (job.dropout.random && tile * TILE < own_end) {
#pragma unroll
            for (int m = 0; m < M; ++m) {
                kept[m] = kept_of_rows(job, first + m * 16 + lane / 4, tile * TILE / 64 * 64);
            }
        }
#pragma unroll 1
        for (int start = 0; start < TILE; start += STEP) {
            int key = tile * TILE + start;
            if (key >= own_end) {
                break;
            }
            float scores[M][N][4];
            dots(queries, stage + start * ROW, scores);
            if (job.bias) {
                float unscaled = 1.0f / job.scale;
#pragma unroll
                for (int m = 0; m < M; ++m) {
#pragma unroll
                    for (int i = 0; i < N * 4; ++i) {
                        int query = first + m * 16 + i % 4 / 2 * 8 + lane / 4, column = key + i / 4 * 8 + lane % 4 * 2 + i % 2;
                        if (query < job.length && column < job.length) {
                            scores[m][i / 4][i % 4] += job.added(query, column) * unscaled;
                        }
                    }
                }
            }
            if (key + STEP > job.length || (job.causal && key + STEP - 1 > first)) {
#pragma unroll
                for (int m = 0; m < M; ++m) {
#pragma unroll
                    for (int i = 0; i < N * 4; ++i) {
                        int query = first + m * 16 + i % 4 / 2 * 8 + lane / 4, column = key + i / 4 * 8 + lane % 4 * 2 + i % 2;
                        // Rows that are not there see what they would see, so that their weights are numbers, too.
                        bool seen = column < job.length && (!job.causal || column <= query);
                        scores[m][i / 4][i % 4] = seen ? scores[m][i / 4][i % 4] : lowest;
                    }
                }
            }
            float most[M][2];
            bool more = false;
#pragma unroll
            for (int m = 0; m < M; ++m) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    float of_row = top[m][h];
#pragma unroll
                    for (int j = 0; j < N; ++j) {
                        of_row = fmaxf(of_row, fmaxf(scores[m][j][2 * h], scores[m][j][2 * h + 1]));
                    }
                    of_row = fmaxf(of_row, __shfl_xor_sync(0xffffffffu, of_row, 1));
                    most[m][h] = fmaxf(of_row, __shfl_xor_sync(0xffffffffu, of_row, 2));
                    more = more || most[m][h] > top[m][h];
                }
            }
            // Else all factors are 1.
            if (__any_sync(0xffffffffu, more)) {
#pragma unroll
                for (int m = 0; m < M; ++m) {
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        float factor = power_of_2((top[m][h] - most[m][h]) * scale);
                        top[m][h] = most[m][h];
                        sum[m][h] *= factor;
#pragma unroll
                        for (int j = 0; j < Tile::D / 8; ++j) {
                            out[m][j][2 * h] *= factor;
                            out[m][j][2 * h + 1] *= factor;
                        }
                    }
                }
            }
#pragma unroll
            for (int m = 0; m < M; ++m) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    float shift = top[m][h] * scale, added = 0.0f;
#pragma unroll
                    for (int i = 0; i < N * 2; ++i) {
                        float &score = scores[m][i / 2][2 * h + i % 2];
                        score = power_of_2(score * scale - shift);
                        added += score;
                    }
                    // A lane's own part; the other three add theirs at the end.
                    sum[m][h] += added;
                }
            }
            if (job.dropout.random) {
#pragma unroll
                for (int m = 0; m < M; ++m) {
#pragma unroll
                    for (int i = 0; i < N * 4; ++i) {
                        scores[m][i / 4][i % 4] = is_kept(kept[m], key, i / 4, i % 4) ? scores[m][i / 4][i % 4] : 0.0f;
                    }
                }
            }
            add_product<Tile>(scores, stage + (TILE + start) * ROW, out);
        }
    }
    float by[M][2];
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float all = sum[m][h];
            all += __shfl_xor_sync(0xffffffffu, all, 1);
            all += __shfl_xor_sync(0xffffffffu, all, 2);
            by[m][h] = job.dropout.scale / all;
            int query = first + m * 16 + h * 8 + lane / 4;
            if (lane % 4 == 0 && query < job.length) {
                lse[(i64)job.head * job.length + query] = top[m][h] * job.scale + logf(all);
            }
        }
    }
    __syncthreads();
    i64 step = (i64)job.heads * job.width;
    write_rows<Tile, M>(stages + warp * OWN * ROW, out, by, y + job.start(0, 1) + first * step, step, job.length - first, job.width);
}

// The operands of the gradient.
template <class T> struct Operands {
    const T *dy, *qkv;
    const float *lse, *delta;
};

// dv = Σ weight · dy and dk = Σ grad · q of a block of keys, over the queries that see them. The dynamic shared memory is two
// stages of TILE queries and gradients of results, and behind them the keys and values, unless they are KEPT in registers.
template <class Tile, int TILE, int STEP, bool KEPT>
__device__ __forceinline__ void grad_keys(const Job &job, const Operands<typename Tile::T> &operands, typename Tile::T *dqkv) {
    typedef typename Tile::T T;
    constexpr int ROW = Tile::ROW, OWN = 16, STAGE = 2 * TILE * ROW, N = STEP / 8, BLOCK = WARPS * OWN;
    static_assert(!KEPT || BLOCK <= TILE, "keys and values go into a stage");
    DYNAMIC_SHARED(uint4, memory);
    // Of the queries of a stage, the logarithms of base 2 and the products of results and their gradients.
    __shared__ float rows[2][2][TILE];
    // Which weights are kept of a query of the tile and keys 16 w + c of the block: bit w.
    __shared__ u8 kept[TILE][16];
    T *stages = (T *)memory;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = job.row + warp * OWN;
    Rows<T> queries = job.packed(operands.qkv, 0), grads = job.plain(operands.dy);
    auto fetch = [&](int tile) {
        T *stage = stages + tile % 2 * STAGE;
        copy_rows<Tile, TILE>(stage, queries.from(tile * TILE), job.width);
        copy_rows<Tile, TILE>(stage + TILE * ROW, grads.from(tile * TILE), job.width);
    };
    // Queries that are not there have no weights.
    auto row_of = [&](int tile) {
        int which = threadIdx.x / TILE, query = tile * TILE + threadIdx.x % TILE;
        i64 at = (i64)job.head * job.length + query;
        bool there = which < 2 && query < job.length;
        return which == 0 ? (there ? operands.lse[at] * LOG2_E : bits_to_float(0x7f800000u)) : (there ? operands.delta[at] : 0.0f);
    };
    int tile = job.causal ? job.row / TILE : 0;
    T *own = stages + (KEPT ? (tile + 1) % 2 * STAGE : 2 * STAGE);
    copy_rows<Tile, BLOCK>(own, job.packed(operands.qkv, 1).from(job.row), job.width);
    copy_rows<Tile, BLOCK>(own + BLOCK * ROW, job.packed(operands.qkv, 2).from(job.row), job.width);
    copies_commit();
    fetch(tile);
    copies_commit();
    float held = row_of(tile);
    copies_wait<1>();
    __syncthreads();
    Left<Tile, 1, KEPT> left_keys(own + warp * OWN * ROW), left_values(own + (BLOCK + warp * OWN) * ROW);

    const float scale = job.scale * LOG2_E;
    float dk[1][Tile::D / 8][4], dv[1][Tile::D / 8][4];
    clear(dk);
    clear(dv);
#pragma unroll 1
    for (; tile * TILE < job.length; ++tile) {
        if (threadIdx.x < 2 * TILE) {
            rows[tile % 2][threadIdx.x / TILE][threadIdx.x % TILE] = held;
        }
        copies_wait<0>();
        __syncthreads();
        if ((tile + 1) * TILE < job.length) {
            fetch(tile + 1);
            held = row_of(tile + 1);
        }
        copies_commit();
        if (job.dropout.random) {
            u32 blocks = (u32)(job.length + 63) / 64;
            UNROLL(1)
            for (int i = threadIdx.x; i < TILE * 16; i += THREADS) {
                u64 at = ((u64)job.head * job.length + tile * TILE + i / 16) * blocks + job.row / 64;
                Draws draws = dropout_draws<1>(job.dropout.random, job.dropout.stream, at * 16 + i % 16);
                u32 bits = 0;
#pragma unroll
                for (int w = 0; w < 4; ++w) {
                    bits |= (u32)(draws.word[w] >= job.dropout.threshold) << w;
                }
                kept[i / 16][i % 16] = (u8)bits;
            }
            __syncthreads();
        }
        const T *stage = stages + tile % 2 * STAGE;
#pragma unroll 1
        for (int start = 0; start < TILE; start += STEP) {
            int query = tile * TILE + start;
            if (query >= job.length || first >= job.length) {
                break;
            }
            if (job.causal && query + STEP - 1 < first) {
                continue;
            }
            float weights[1][N][4], slopes[1][N][4];
            dots(left_keys, stage + start * ROW, weights);
            dots(left_values, stage + (TILE + start) * ROW, slopes);
            if (job.bias) {
                float unscaled = 1.0f / job.scale;
#pragma unroll
                for (int i = 0; i < N * 4; ++i) {
                    int key = first + i % 4 / 2 * 8 + lane / 4, row = query + i / 4 * 8 + lane % 4 * 2 + i % 2;
                    if (key < job.length && row < job.length) {
                        weights[0][i / 4][i % 4] += job.added(row, key) * unscaled;
                    }
                }
            }
            if (job.causal && query < first + OWN - 1) {
#pragma unroll
                for (int i = 0; i < N * 4; ++i) {
                    int key = first + i % 4 / 2 * 8 + lane / 4, row = query + i / 4 * 8 + lane % 4 * 2 + i % 2;
                    weights[0][i / 4][i % 4] = key <= row ? weights[0][i / 4][i % 4] : bits_to_float(0xff800000u);
                }
            }
#pragma unroll
            for (int j = 0; j < N; ++j) {
                int at = start + j * 8 + lane % 4 * 2;
                float2 shift = *(const float2 *)&rows[tile % 2][0][at], delta = *(const float2 *)&rows[tile % 2][1][at];
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    float &weight = weights[0][j][e], &slope = slopes[0][j][e];
                    weight = power_of_2(weight * scale - (e % 2 ? shift.y : shift.x));
                    float by = e % 2 ? delta.y : delta.x;
                    if (job.dropout.random) {
                        bool keep = kept[at + e % 2][e / 2 * 8 + lane / 4] >> warp & 1;
                        slope = weight * ((keep ? slope * job.dropout.scale : 0.0f) - by);
                        weight = keep ? weight : 0.0f;
                    } else {
                        slope = weight * (slope - by);
                    }
                }
            }
            add_product<Tile>(weights, stage + (TILE + start) * ROW, dv);
            add_product<Tile>(slopes, stage + start * ROW, dk);
        }
    }
    __syncthreads();
    T *slab = stages + warp * OWN * ROW;
    const float by_scale[1][2] = {{job.scale, job.scale}}, by_kept[1][2] = {{job.dropout.scale, job.dropout.scale}};
    i64 step = (i64)3 * job.heads * job.width, at = first * step;
    write_rows<Tile, 1>(slab, dk, by_scale, dqkv + job.start(1, 3) + at, step, job.length - first, job.width);
    write_rows<Tile, 1>(slab, dv, by_kept, dqkv + job.start(2, 3) + at, step, job.length - first, job.width);
}

// dq = Σ grad · k of a block of queries, over the keys that they see. The dynamic shared memory is two stages of TILE keys and values.
template <class Tile, int TILE, int STEP>
__device__ __forceinline__ void grad_queries(const Job &job, const Operands<typename Tile::T> &operands, typename Tile::T *dqkv) {
    typedef typename Tile::T T;
    constexpr int ROW = Tile::ROW, OWN = 16, STAGE = 2 * TILE * ROW, N = STEP / 8, BLOCK = WARPS * OWN;
    static_assert(BLOCK <= TILE, "queries and gradients of results go into a stage");
    DYNAMIC_SHARED(uint4, memory);
    T *stages = (T *)memory;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = job.row + warp * OWN;
    Rows<T> keys = job.packed(operands.qkv, 1), values = job.packed(operands.qkv, 2);
    auto fetch = [&](int tile) {
        T *stage = stages + tile % 2 * STAGE;
        copy_rows<Tile, TILE>(stage, keys.from(tile * TILE), job.width);
        copy_rows<Tile, TILE>(stage + TILE * ROW, values.from(tile * TILE), job.width);
    };
    copy_rows<Tile, BLOCK>(stages + STAGE, job.packed(operands.qkv, 0).from(job.row), job.width);
    copy_rows<Tile, BLOCK>(stages + STAGE + BLOCK * ROW, job.plain(operands.dy).from(job.row), job.width);
    copies_commit();
    fetch(0);
    copies_commit();
    float shift[2], delta[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        int query = first + h * 8 + lane / 4;
        i64 at = (i64)job.head * job.length + query;
        shift[h] = query < job.length ? operands.lse[at] * LOG2_E : bits_to_float(0x7f800000u);
        delta[h] = query < job.length ? operands.delta[at] : 0.0f;
    }
    copies_wait<1>();
    __syncthreads();
    Left<Tile, 1, true> queries(stages + STAGE + warp * OWN * ROW), grads(stages + STAGE + (BLOCK + warp * OWN) * ROW);

    const float scale = job.scale * LOG2_E;
    float dq[1][Tile::D / 8][4];
    clear(dq);
    int end = job.causal ? min(job.row + BLOCK, job.length) : job.length;
    int own_end = first < job.length ? (job.causal ? min(first + OWN, job.length) : job.length) : 0;
#pragma unroll 1
    for (int tile = 0; tile * TILE < end; ++tile) {
        copies_wait<0>();
        __syncthreads();
        if ((tile + 1) * TILE < end) {
            fetch(tile + 1);
        }
        copies_commit();
        const T *stage = stages + tile % 2 * STAGE;
        u32 kept = 0;
        if (job.dropout.random && tile * TILE < own_end) {
            kept = kept_of_rows(job, first + lane / 4, tile * TILE / 64 * 64);
        }
#pragma unroll 1
        for (int start = 0; start < TILE; start += STEP) {
            int key = tile * TILE + start;
            if (key >= own_end) {
                break;
            }
            float weights[1][N][4], slopes[1][N][4];
            dots(queries, stage + start * ROW, weights);
            dots(grads, stage + (TILE + start) * ROW, slopes);
            if (job.bias) {
                float unscaled = 1.0f / job.scale;
#pragma unroll
                for (int i = 0; i < N * 4; ++i) {
                    int query = first + i % 4 / 2 * 8 + lane / 4, column = key + i / 4 * 8 + lane % 4 * 2 + i % 2;
                    if (query < job.length && column < job.length) {
                        weights[0][i / 4][i % 4] += job.added(query, column) * unscaled;
                    }
                }
            }
            if (key + STEP > job.length || (job.causal && key + STEP - 1 > first)) {
#pragma unroll
                for (int i = 0; i < N * 4; ++i) {
                    int query = first + i % 4 / 2 * 8 + lane / 4, column = key + i / 4 * 8 + lane % 4 * 2 + i % 2;
                    bool seen = column < job.length && (!job.causal || column <= query);
                    weights[0][i / 4][i % 4] = seen ? weights[0][i / 4][i % 4] : bits_to_float(0xff800000u);
                }
            }
#pragma unroll
            for (int i = 0; i < N * 4; ++i) {
                float &slope = slopes[0][i / 4][i % 4];
                float weight = power_of_2(weights[0][i / 4][i % 4] * scale - shift[i % 4 / 2]);
                if (job.dropout.random) {
                    slope = is_kept(kept, key, i / 4, i % 4) ? slope * job.dropout.scale : 0.0f;
                }
                slope = weight * (slope - delta[i % 4 / 2]);
            }
            add_product<Tile>(slopes, stage + start * ROW, dq);
        }
    }
    __syncthreads();
    const float by[1][2] = {{job.scale, job.scale}};
    i64 step = (i64)3 * job.heads * job.width;
    write_rows<Tile, 1>(stages + warp * OWN * ROW, dq, by, dqkv + job.start(0, 3) + first * step, step, job.length - first, job.width);
}

}  // namespace attention_mma

// Before 8.0 nothing launches these kernels.
#if defined(RUNNER_EMULATED) || __CUDA_ARCH__ >= 800
#define ON_TENSOR_CORES(...) __VA_ARGS__
#else
#define ON_TENSOR_CORES(...)
#endif

// For heads of up to D elements: BLOCKS are how many a multiprocessor is to hold. All have 256 rows in shared memory: two stages of 64 of each of two
// operands, or of 32, and 64 of the block's own. engine/src/backend/cuda/lower/attention.rs has the same numbers.
#define ATTENTION_MMA(KIND, T, S, D, FORWARD_BLOCKS, FORWARD_M, BLOCKS, KEYS_TILE, KEYS_KEPT)                                                              \
    extern "C" __global__ void __launch_bounds__(128, FORWARD_BLOCKS)                                                                             \
        attention_mma_##D##_##S(const T *qkv, T *y, float *lse, const float *bias, int biases, int length, int heads, int width,          \
                                int causal, float scale, const u32 *random, u32 stream, u32 threshold, float kept) {                      \
        ON_TENSOR_CORES(Job job(length, heads, width, causal, scale, Dropout{random, stream, threshold, kept});                           \
                        job.of_block(64 * FORWARD_M, D, bias, biases);                                                                    \
                        attention_mma::forward<attention_mma::Tile<KIND, D>, FORWARD_M, 64, 32>(job, qkv, y, lse);)                       \
    }                                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS)                                                                             \
        attention_mma_grad_keys_##D##_##S(const T *dy, const T *qkv, const float *lse, const float *delta, T *dqkv, const float *bias,    \
                                          int biases, int length, int heads, int width, int causal, float scale, const u32 *random,       \
                                          u32 stream, u32 threshold, float kept) {                                                        \
        ON_TENSOR_CORES(Job job(length, heads, width, causal, scale, Dropout{random, stream, threshold, kept});                           \
                        job.of_block(64, D, bias, biases);                                                                                \
                        attention_mma::Operands<T> operands{dy, qkv, lse, delta};                                                         \
                        attention_mma::grad_keys<attention_mma::Tile<KIND, D>, KEYS_TILE, 32, KEYS_KEPT>(job, operands, dqkv);)           \
    }                                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS)                                                                             \
        attention_mma_grad_queries_##D##_##S(const T *dy, const T *qkv, const float *lse, const float *delta, T *dqkv, const float *bias, \
                                             int biases, int length, int heads, int width, int causal, float scale, const u32 *random,    \
                                             u32 stream, u32 threshold, float kept) {                                                     \
        ON_TENSOR_CORES(Job job(length, heads, width, causal, scale, Dropout{random, stream, threshold, kept});                           \
                        job.of_block(64, D, bias, biases);                                                                                \
                        attention_mma::Operands<T> operands{dy, qkv, lse, delta};                                                         \
                        attention_mma::grad_queries<attention_mma::Tile<KIND, D>, 64, 32>(job, operands, dqkv);)                          \
    }
#define ATTENTION_MMA_16(T, S)                      \
    ATTENTION_MMA(T, T, S, 32, 3, 2, 3, 64, true)   \
    ATTENTION_MMA(T, T, S, 64, 2, 2, 3, 64, true)   \
    ATTENTION_MMA(T, T, S, 96, 2, 1, 2, 32, false)  \
    ATTENTION_MMA(T, T, S, 128, 2, 1, 2, 32, false)
ATTENTION_MMA_16(bf16, bf16)
ATTENTION_MMA_16(f16, f16)
ATTENTION_MMA(Tf32, float, tf32, 32, 2, 1, 2, 64, true)
ATTENTION_MMA(Tf32, float, tf32, 64, 2, 1, 2, 32, false)
