// Scaled dot-product attention and its gradients on tensor cores, after FlashAttention-2 (Dao 2023): 16-bit operands, or 32-bit
// ones rounded to TF32; sums in 32 bits. Heads are up to D wide, and what is missing of them in shared memory is 0.
//
// A block is four warps, each of which has 16 · M rows of its own: queries, or keys for the gradients by keys and values. Their
// fragments stay in registers; the other side comes by asynchronous copies, TILE rows at a time, into two stages of
// shared memory. A warp goes over a stage STEP rows at a time. Scores, weights and their gradients never leave its registers: as the sums of one
// product lie in them, they are operand A of the next. The gradients by keys and values make the scores turned, a row for each key.
#pragma once
#include "attention_parts.cuh"

namespace attention_mma {

// y = softmax(scale · q · kᵀ + bias) · v with an online softmax (Milakov & Gimelshein 2018), and the logarithms of its sums. The dynamic shared
// memory is two stages of TILE keys and values.
template <class Tile, int M, int TILE, int STEP, class J>
__device__ __forceinline__ void forward(const J &job, typename J::template Source<typename Tile::T> qkv, typename Tile::T *y, float *lse) {
    typedef typename Tile::T T;
    constexpr int ROW = Tile::ROW, OWN = 16 * M, STAGE = 2 * TILE * ROW, N = STEP / 8;
    static_assert(WARPS * OWN <= 2 * TILE, "the queries, and the results, go into a stage");
    DYNAMIC_SHARED(uint4, memory);
    T *stages = (T *)memory;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = job.row + warp * OWN;
    Rows<T> keys = job.packed(qkv, 1), values = job.packed(qkv, 2);
    // Where the keys begin and end that the block's queries see, and where they end for the warp's.
    int end = job.end_key(job.row, job.row + WARPS * OWN), own_end = job.end_key(first, first + OWN);
    const int begin = J::FAR && end > 0 ? job.first_key(job.row) / TILE : 0;
    auto fetch = [&](int tile) {
        T *stage = stages + (tile - begin) % 2 * STAGE;
        copy_rows<Tile, TILE>(stage, keys.from(tile * TILE), job.width);
        copy_rows<Tile, TILE>(stage + TILE * ROW, values.from(tile * TILE), job.width);
    };
    copy_rows<Tile, WARPS * OWN>(stages + STAGE, job.packed(qkv, 0).from(job.row), job.width);
    copies_commit();
    fetch(begin);
    copies_commit();
    copies_wait<1>();
    __syncthreads();
    Left<Tile, M, true> queries(stages + STAGE + warp * OWN * ROW);

    const float lowest = LOWEST<J>(), scale = job.scale * LOG2_E;
    float out[M][Tile::D / 8][4], top[M][2], sum[M][2];
    clear(out);
#pragma unroll
    for (int m = 0; m < M; ++m) {
        top[m][0] = top[m][1] = lowest;
        sum[m][0] = sum[m][1] = 0.0f;
    }
#pragma unroll 1
    for (int tile = begin; tile * TILE < end; ++tile) {
        copies_wait<0>();
        // The tile has arrived for all, and all are done with the one before it, whose place the next one takes.
        __syncthreads();
        if ((tile + 1) * TILE < end) {
            fetch(tile + 1);
        }
        copies_commit();
        const T *stage = stages + (tile - begin) % 2 * STAGE;
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
            if (J::FAR && job.hides_all(first, OWN, key, STEP)) {
                continue;
            }
            float scores[M][N][4];
            dots(queries, stage + start * ROW, scores);
            add_to<false>(job, first, key, scores);
            if (job.hides(first, OWN, key, STEP)) {
                hide<false>(job, first, key, scores);
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
            if (lane % 4 == 0 && query < job.query_room()) {
                lse[job.index(query)] = query < job.queries() ? top[m][h] * job.scale + logf(all) : 0.0f;
            }
        }
    }
    // Nothing was waited for, if all of the block is padding.
    copies_wait<0>();
    __syncthreads();
    i64 step = (i64)job.heads * job.width;
    write_rows<Tile, M>(stages + warp * OWN * ROW, out, by, y + job.start(0, 1) + first * step, step, job.query_room() - first, job.queries() - first, job.width);
}

// The operands of the gradient.
template <class T, class J> struct Operands {
    const T *dy;
    typename J::template Source<T> qkv;
    const float *lse, *delta;
};

// dv = Σ weight · dy and dk = Σ grad · q of a block of keys, over the queries that see them. The dynamic shared memory is two
// stages of TILE queries and gradients of results, and behind them the keys and values, unless they are KEPT in registers.
template <class Tile, int TILE, int STEP, bool KEPT, class J>
__device__ __forceinline__ void grad_keys(const J &job, const Operands<typename Tile::T, J> &operands,
                                          typename J::template Target<typename Tile::T> dqkv) {
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
        i64 at = job.index(query);
        bool there = which < 2 && query < job.queries();
        return which == 0 ? (there ? operands.lse[at] * LOG2_E : bits_to_float(0x7f800000u)) : (there ? operands.delta[at] : 0.0f);
    };
    // Keys that are padding are seen by no query.
    const int end = job.row < job.keys() ? job.end_query(job.row + BLOCK) : 0;
    int tile = job.first_query(job.row) / TILE;
    T *own = stages + (KEPT ? (tile + 1) % 2 * STAGE : 2 * STAGE);
    copy_rows<Tile, BLOCK>(own, job.whole(job.packed(operands.qkv, 1)).from(job.row), job.width);
    copy_rows<Tile, BLOCK>(own + BLOCK * ROW, job.whole(job.packed(operands.qkv, 2)).from(job.row), job.width);
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
    for (; tile * TILE < end; ++tile) {
        if (threadIdx.x < 2 * TILE) {
            rows[tile % 2][threadIdx.x / TILE][threadIdx.x % TILE] = held;
        }
        copies_wait<0>();
        __syncthreads();
        if ((tile + 1) * TILE < end) {
            fetch(tile + 1);
            held = row_of(tile + 1);
        }
        copies_commit();
        if (job.dropout.random) {
            u32 blocks = (u32)(job.key_room() + 63) / 64;
            UNROLL(1)
            for (int i = threadIdx.x; i < TILE * 16; i += THREADS) {
                u64 at = ((u64)job.head * job.query_room() + tile * TILE + i / 16) * blocks + job.row / 64;
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
            if (query >= end || first >= job.key_room()) {
                break;
            }
            if (job.hides_all(query, STEP, first, OWN)) {
                continue;
            }
            float weights[1][N][4], slopes[1][N][4];
            dots(left_keys, stage + start * ROW, weights);
            dots(left_values, stage + (TILE + start) * ROW, slopes);
            add_to<true>(job, first, query, weights);
            if (job.hides_some(query, STEP, first, OWN)) {
                hide<true>(job, first, query, weights);
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
    // Nothing was waited for, if all of the block is padding.
    copies_wait<0>();
    __syncthreads();
    T *slab = stages + warp * OWN * ROW;
    const float by_scale[1][2] = {{job.scale, job.scale}}, by_kept[1][2] = {{job.dropout.scale, job.dropout.scale}};
    i64 step = job.step(1), at = first * step;
    write_rows<Tile, 1>(slab, dk, by_scale, job.place(dqkv, 1) + at, step, job.key_room() - first, job.keys() - first, job.width);
    write_rows<Tile, 1>(slab, dv, by_kept, job.place(dqkv, 2) + at, step, job.key_room() - first, job.keys() - first, job.width);
}

// dq = Σ grad · k of a block of queries, over the keys that they see. The dynamic shared memory is two stages of TILE keys and values.
template <class Tile, int TILE, int STEP, class J>
__device__ __forceinline__ void grad_queries(const J &job, const Operands<typename Tile::T, J> &operands,
                                             typename J::template Target<typename Tile::T> dqkv) {
    typedef typename Tile::T T;
    constexpr int ROW = Tile::ROW, OWN = 16, STAGE = 2 * TILE * ROW, N = STEP / 8, BLOCK = WARPS * OWN;
    static_assert(BLOCK <= TILE, "queries and gradients of results go into a stage");
    static_assert(STEP % 16 == 0, "keys are read from a stage sixteen at a time");
    DYNAMIC_SHARED(uint4, memory);
    T *stages = (T *)memory;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = job.row + warp * OWN;
    Rows<T> keys = job.packed(operands.qkv, 1), values = job.packed(operands.qkv, 2);
    // Where the keys begin and end that the block's queries see, and where they end for the warp's.
    int end = job.end_key(job.row, job.row + BLOCK), own_end = job.end_key(first, first + OWN);
    const int begin = J::FAR && end > 0 ? job.first_key(job.row) / TILE : 0;
    auto fetch = [&](int tile) {
        T *stage = stages + (tile - begin) % 2 * STAGE;
        copy_rows<Tile, TILE>(stage, keys.from(tile * TILE), job.width);
        copy_rows<Tile, TILE>(stage + TILE * ROW, values.from(tile * TILE), job.width);
    };
    copy_rows<Tile, BLOCK>(stages + STAGE, job.packed(operands.qkv, 0).from(job.row), job.width);
    copy_rows<Tile, BLOCK>(stages + STAGE + BLOCK * ROW, job.plain(operands.dy).from(job.row), job.width);
    copies_commit();
    fetch(begin);
    copies_commit();
    float shift[2], delta[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        int query = first + h * 8 + lane / 4;
        i64 at = job.index(query);
        shift[h] = query < job.queries() ? operands.lse[at] * LOG2_E : bits_to_float(0x7f800000u);
        delta[h] = query < job.queries() ? operands.delta[at] : 0.0f;
    }
    copies_wait<1>();
    __syncthreads();
    Left<Tile, 1, true> queries(stages + STAGE + warp * OWN * ROW), grads(stages + STAGE + (BLOCK + warp * OWN) * ROW);

    const float scale = job.scale * LOG2_E;
    float dq[1][Tile::D / 8][4];
    clear(dq);
#pragma unroll 1
    for (int tile = begin; tile * TILE < end; ++tile) {
        copies_wait<0>();
        __syncthreads();
        if ((tile + 1) * TILE < end) {
            fetch(tile + 1);
        }
        copies_commit();
        const T *stage = stages + (tile - begin) % 2 * STAGE;
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
            if (J::FAR && job.hides_all(first, OWN, key, STEP)) {
                continue;
            }
            float weights[1][N][4], slopes[1][N][4];
            dots(queries, stage + start * ROW, weights);
            dots(grads, stage + (TILE + start) * ROW, slopes);
            add_to<false>(job, first, key, weights);
            if (job.hides(first, OWN, key, STEP)) {
                hide<false>(job, first, key, weights);
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
    // Nothing was waited for, if all of the block is padding.
    copies_wait<0>();
    __syncthreads();
    const float by[1][2] = {{job.scale, job.scale}};
    i64 step = job.step(0);
    write_rows<Tile, 1>(stages + warp * OWN * ROW, dq, by, job.place(dqkv, 0) + first * step, step, job.query_room() - first, job.queries() - first, job.width);
}

// dbias = Σ grad / scale of 64 queries × 64 keys of a head, over up to `each` of the `turns` samples that have the same bias. The dynamic shared
// memory is their queries, keys, gradients of results and values: blocks beside this one compute while they come.
template <class Tile>
__device__ __forceinline__ void grad_bias(Job &job, const Operands<typename Tile::T, Job> &operands, const float *bias, int biases, const int *lengths,
                                          int turns, int each, float *dbias) {
    typedef typename Tile::T T;
    constexpr int ROW = Tile::ROW, SIDE = 64, OWN = 16, N = SIDE / 8;
    DYNAMIC_SHARED(uint4, memory);
    T *stage = (T *)memory;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 tiles = (u32)(job.length + SIDE - 1) / SIDE, index = blockIdx.x;
    int key = (int)split(index, tiles) * SIDE, query = (int)split(index, tiles) * SIDE, first = query + warp * OWN;
    u32 h = split(index, (u32)job.heads), turn = split(index, (u32)biases);
    int from = (int)index * each, to = min(from + each, turns);
    // No query of the block sees a key of it.
    if (job.causal && key >= query + SIDE) {
        to = from;
    }
    const float scale = job.scale * LOG2_E;
    float sums[N][4];
#pragma unroll
    for (int i = 0; i < N * 4; ++i) {
        sums[i / 4][i % 4] = 0.0f;
    }
#pragma unroll 1
    for (int i = from; i < to; ++i) {
        job.set_head(((u32)i * biases + turn) * job.heads + h, bias, biases, lengths);
        // All are done with the sample before it.
        __syncthreads();
        copy_rows<Tile, SIDE>(stage, job.packed(operands.qkv, 0).from(query), job.width);
        copy_rows<Tile, SIDE>(stage + SIDE * ROW, job.packed(operands.qkv, 1).from(key), job.width);
        copy_rows<Tile, SIDE>(stage + 2 * SIDE * ROW, job.plain(operands.dy).from(query), job.width);
        copy_rows<Tile, SIDE>(stage + 3 * SIDE * ROW, job.packed(operands.qkv, 2).from(key), job.width);
        copies_commit();
        float shift[2], delta[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            int row = first + r * 8 + lane / 4;
            i64 at = (i64)job.head * job.length + row;
            shift[r] = row < job.count ? operands.lse[at] * LOG2_E : bits_to_float(0x7f800000u);
            delta[r] = row < job.count ? operands.delta[at] : 0.0f;
        }
        u32 kept = job.dropout.random ? kept_of_rows(job, first + lane / 4, key) : 0;
        copies_wait<0>();
        __syncthreads();
        Left<Tile, 1, false> queries(stage + warp * OWN * ROW), grads(stage + (2 * SIDE + warp * OWN) * ROW);
        float weights[1][N][4], slopes[1][N][4];
        dots(queries, stage + SIDE * ROW, weights);
        dots(grads, stage + 3 * SIDE * ROW, slopes);
        add_bias<false>(job, first, key, weights);
        hide<false>(job, first, key, weights);
#pragma unroll
        for (int e = 0; e < N * 4; ++e) {
            float slope = slopes[0][e / 4][e % 4];
            if (job.dropout.random) {
                slope = is_kept(kept, key, e / 4, e % 4) ? slope * job.dropout.scale : 0.0f;
            }
            sums[e / 4][e % 4] += power_of_2(weights[0][e / 4][e % 4] * scale - shift[e % 4 / 2]) * (slope - delta[e % 4 / 2]);
        }
    }
    i64 start = (((i64)index * biases + turn) * job.heads + h) * job.length * job.length;
#pragma unroll
    for (int e = 0; e < N * 4; ++e) {
        int row = first + row_of(e), column = key + column_of(e);
        if (row < job.length && column < job.length) {
            dbias[start + (i64)row * job.length + column] = sums[e / 4][e % 4];
        }
    }
}

}  // namespace attention_mma

// Before 8.0 nothing launches these kernels.
#if defined(RUNNER_EMULATED) || __CUDA_ARCH__ >= 800
#define ON_TENSOR_CORES(...) __VA_ARGS__
#else
#define ON_TENSOR_CORES(...)
#endif
