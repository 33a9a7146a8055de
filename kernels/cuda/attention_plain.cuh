// Scaled dot-product attention and its gradients for any type and width, without tensor cores: attention_mma.cuh has those with them.
//
// A block of 256 threads has a head's 64 queries (or keys) × 64 columns of the result and goes over the keys (or queries)
// 64 at a time: scores from shared memory to registers, weights back to shared memory, and their product with the other
// operand's columns into registers. Wider heads are more blocks, which make the same scores again. `J` is what a block works on, a `Job` or a
// `FarJob`.
#pragma once
#include "attention.cuh"

// Queries, keys and columns of a block.
constexpr int SIDE = 64;
// Terms of a score that are staged at once.
constexpr int DEPTH = 32;
// Results of a thread in each direction.
constexpr int EACH = 4;
// Threads in each direction.
constexpr int THREADS = SIDE / EACH;
// Four neighbours in a row of shared memory, which are one read.
typedef Pack<float, 4> Four;
// Floats from row to row in shared memory: whole `Four`s, and those of eight neighbours in a column lie in different banks.
constexpr int STAGED = DEPTH + 4, WIDE = SIDE + 4;

// Shared memory of a block: rows of two operands or columns of one, and a table of weights.
struct alignas(sizeof(Four)) Shared {
    float stage[2 * SIDE * STAGED];
    float table[SIDE * WIDE];
};

// A thread's rows and columns of a block: rows side by side, columns THREADS apart.
__device__ __forceinline__ int own_row(int i) { return (int)(threadIdx.x / THREADS) * EACH + i; }
__device__ __forceinline__ int own_column(int j) { return (int)(threadIdx.x % THREADS) + j * THREADS; }

// Copies SIDE rows of W columns from `column` on; what is not there is 0.
template <int W, class T>
__device__ __forceinline__ void stage(const Rows<T> &rows, int column, int width, float *to, int pitch) {
    // As many addresses at once as there are registers for, beside the sums.
    UNROLL(4)
    for (int i = threadIdx.x; i < SIDE * W; i += THREADS * THREADS) {
        int r = i / W, c = i % W;
        bool there = r < rows.count && column + c < width;
        to[r * pitch + c] = there ? to_float(rows.at[r * rows.step + column + c]) : 0.0f;
    }
}

typedef float Each[EACH][EACH];

// Puts what a thread's weights are multiplied by where its weights will be, those of the queries from `query` on and keys
// from `key` on: `attention_draw` in crates/engine/src/random.rs, whose 64 columns are those of a block, and whose words are the EACH keys
// of a thread. Nobody reads the table meanwhile. Not unrolled, as the draws take many registers.
template <class J> __device__ __forceinline__ void make_mask(Shared &shared, const J &job, int query, int key) {
    u32 blocks = (u32)(job.key_room() + SIDE - 1) / SIDE;
    UNROLL(1)
    for (int i = 0; i < EACH; ++i) {
        u64 row = (u64)job.head * job.query_room() + query + own_row(i);
        Draws draws = dropout_draws<1>(job.dropout.random, job.dropout.stream,
                                       (row * blocks + key / SIDE) * THREADS + own_column(0));
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            shared.table[own_row(i) * WIDE + own_column(j)] =
                draws.word[j] >= job.dropout.threshold ? job.dropout.scale : 0.0f;
        }
    }
}

__device__ __forceinline__ void clear(Each &sums) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            sums[i][j] = 0.0f;
        }
    }
}

// sums[i][j] = a[own_row(i)] · b[own_column(j)].
template <class T>
__device__ __forceinline__ void dots(Shared &shared, const Rows<T> &a, const Rows<T> &b, int width, Each &sums) {
    clear(sums);
    float *left = shared.stage, *right = shared.stage + SIDE * STAGED;
    for (int start = 0; start < width; start += DEPTH) {
        __syncthreads();
        stage<DEPTH>(a, start, width, left, STAGED);
        stage<DEPTH>(b, start, width, right, STAGED);
        __syncthreads();
        UNROLL(1)
        for (int k = 0; k < DEPTH; k += 4) {
            Four x[EACH], y[EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                x[i] = *(const Four *)(left + own_row(i) * STAGED + k);
                y[i] = *(const Four *)(right + own_column(i) * STAGED + k);
            }
#pragma unroll
            for (int term = 0; term < 4; ++term) {
#pragma unroll
                for (int i = 0; i < EACH; ++i) {
#pragma unroll
                    for (int j = 0; j < EACH; ++j) {
                        sums[i][j] += x[i].at[term] * y[j].at[term];
                    }
                }
            }
        }
    }
}

// sums += values · the block's columns of `rows`, the values being those of all threads by row (or, TURNED, by column).
template <bool TURNED, class T, class J>
__device__ __forceinline__ void add_product(Shared &shared, const Each &values, const Rows<T> &rows, const J &job,
                                            Each &sums) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            shared.table[own_row(i) * WIDE + own_column(j)] = values[i][j];
        }
    }
    stage<SIDE>(rows, job.column, job.width, shared.stage, WIDE);
    __syncthreads();
    // TURNED, a thread's rows of the result are neighbours in a row of the table; else the terms of one are.
    static_assert(EACH == 4, "a thread's rows are a `Four`");
    UNROLL(1)
    for (int k = 0; k < SIDE; k += 4) {
        Four x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i] = *(const Four *)(shared.table + (TURNED ? (k + i) * WIDE + own_row(0) : own_row(i) * WIDE + k));
        }
#pragma unroll
        for (int term = 0; term < 4; ++term) {
            float y[EACH];
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                y[j] = shared.stage[(k + term) * WIDE + own_column(j)];
            }
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
#pragma unroll
                for (int j = 0; j < EACH; ++j) {
                    sums[i][j] += (TURNED ? x[term].at[i] : x[i].at[term]) * y[j];
                }
            }
        }
    }
}

// Writes the block's rows and columns, each row times a factor: of `room` rows, of which those from `count` on are padding, and 0.
template <class T, class J>
__device__ __forceinline__ void write(const J &job, int room, int count, T *to, i64 step, const Each &sums, const float (&by)[EACH]) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            int row = job.row + own_row(i), column = job.column + own_column(j);
            if (row < room && column < job.width) {
                to[row * step + column] = from_float<T>(row < count ? sums[i][j] * by[i] : 0.0f);
            }
        }
    }
}

// Over the THREADS threads that share rows: half a warp, in every one of them.
__device__ __forceinline__ float row_sum(float x) {
    for (int offset = THREADS / 2; offset > 0; offset >>= 1) {
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    }
    return x;
}

__device__ __forceinline__ float row_max(float x) {
    for (int offset = THREADS / 2; offset > 0; offset >>= 1) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    }
    return x;
}

// y = softmax(scale · q · kᵀ) · v with an online softmax (Milakov & Gimelshein 2018), and the logarithms of its sums; BIASED, with what is
// added to the scores.
template <bool BIASED, class J, class T>
__device__ __forceinline__ void forward(const J &job, typename J::template Source<T> qkv, T *y, float *lse) {
    __shared__ Shared shared;
    Rows<T> queries = job.packed(qkv, 0).from(job.row), keys = job.packed(qkv, 1), values = job.packed(qkv, 2);
    const float lowest = LOWEST<J>();
    float top[EACH], sum[EACH], by[EACH];
    Each out;
    clear(out);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        top[i] = lowest;
        sum[i] = 0.0f;
    }
    int end = job.end_key(job.row, job.row + SIDE);
    for (int start = J::FAR ? job.first_key(job.row) / SIDE * SIDE : 0; start < end; start += SIDE) {
        Each scores;
        dots(shared, queries, keys.from(start), job.width, scores);
        if (job.dropout.random) {
            make_mask(shared, job, job.row, start);
        }
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            // Rows that are not there see what the last one sees, so that their weights are numbers, too.
            int query = min(job.row + own_row(i), job.queries() - 1);
            float most = top[i];
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                bool seen = job.sees(query, start + own_column(j));
                scores[i][j] = seen ? scores[i][j] * job.scale : lowest;
                if constexpr (BIASED) {
                    scores[i][j] += seen ? job.added(query, start + own_column(j)) : 0.0f;
                }
                if (J::FAR && seen) {
                    scores[i][j] -= job.slope() * job.scale * fabsf((float)(query - start - own_column(j)));
                }
                most = fmaxf(most, scores[i][j]);
            }
            most = row_max(most);
            float factor = expf(top[i] - most), added = 0.0f;
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                scores[i][j] = expf(scores[i][j] - most);
                added += scores[i][j];
                out[i][j] *= factor;
            }
            sum[i] = sum[i] * factor + row_sum(added);
            top[i] = most;
            if (job.dropout.random) {
#pragma unroll
                for (int j = 0; j < EACH; ++j) {
                    scores[i][j] *= shared.table[own_row(i) * WIDE + own_column(j)];
                }
            }
        }
        add_product<false>(shared, scores, values.from(start), job, out);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        by[i] = 1.0f / sum[i];
        int row = job.row + own_row(i);
        if (job.column == 0 && own_column(0) == 0 && row < job.query_room()) {
            lse[job.index(row)] = row < job.queries() ? top[i] + logf(sum[i]) : 0.0f;
        }
    }
    write(job, job.query_room(), job.queries(), y + job.start(0, 1), (i64)job.heads * job.width, out, by);
}

// The operands of the gradient.
template <class T, class J> struct Saved {
    const T *dy;
    typename J::template Source<T> qkv;
    const float *lse, *delta;
};

// Weights of the block's queries and keys from `query` and `key` on, and the gradients by q · k.
template <class T, class J>
__device__ __forceinline__ void weights(Shared &shared, const J &job, const Saved<T, J> &saved, int query, int key,
                                        Each &weight, Each &grad) {
    dots(shared, job.packed(saved.qkv, 0).from(query), job.packed(saved.qkv, 1).from(key), job.width, weight);
    dots(shared, job.plain(saved.dy).from(query), job.packed(saved.qkv, 2).from(key), job.width, grad);
    if (job.dropout.random) {
        make_mask(shared, job, query, key);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        int row = query + own_row(i);
        i64 at = job.index(min(row, job.query_room() - 1));
        float shift = saved.lse[at], delta = saved.delta[at];
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            bool seen = job.sees(row, key + own_column(j));
            float all = seen ? expf(weight[i][j] * job.scale - shift) : 0.0f;
            if constexpr (J::FAR) {
                float slope = job.slope() * job.scale * fabsf((float)(row - key - own_column(j)));
                all = seen ? expf(weight[i][j] * job.scale - slope - shift) : 0.0f;
            } else if (job.bias && seen) {
                all = expf(weight[i][j] * job.scale + job.added(row, key + own_column(j)) - shift);
            }
            float kept = job.dropout.random ? shared.table[own_row(i) * WIDE + own_column(j)] : 1.0f;
            weight[i][j] = all * kept;
            grad[i][j] = seen ? all * (grad[i][j] * kept - delta) * job.scale : 0.0f;
        }
    }
}

// dv = Σ weight · dy and dk = Σ grad · q of a block of keys, over the queries that see them.
template <class T, class J>
__device__ __forceinline__ void grad_keys(const J &job, const Saved<T, J> &saved, typename J::template Target<T> dqkv) {
    __shared__ Shared shared;
    Each dk, dv, weight, grad;
    clear(dk);
    clear(dv);
    int end = job.row < job.keys() ? job.end_query(job.row + SIDE) : 0;
    for (int start = J::FAR ? job.first_query(job.row) / SIDE * SIDE : job.first_query(job.row); start < end; start += SIDE) {
        weights(shared, job, saved, start, job.row, weight, grad);
        add_product<true>(shared, weight, job.plain(saved.dy).from(start), job, dv);
        add_product<true>(shared, grad, job.packed(saved.qkv, 0).from(start), job, dk);
    }
    const float by[EACH] = {1.0f, 1.0f, 1.0f, 1.0f};
    write(job, job.key_room(), job.keys(), job.place(dqkv, 1), job.step(1), dk, by);
    write(job, job.key_room(), job.keys(), job.place(dqkv, 2), job.step(2), dv, by);
}

// dq = Σ grad · k of a block of queries, over the keys that they see.
template <class T, class J>
__device__ __forceinline__ void grad_queries(const J &job, const Saved<T, J> &saved, typename J::template Target<T> dqkv) {
    __shared__ Shared shared;
    Each dq, weight, grad;
    clear(dq);
    int end = job.end_key(job.row, job.row + SIDE);
    for (int start = J::FAR ? job.first_key(job.row) / SIDE * SIDE : 0; start < end; start += SIDE) {
        weights(shared, job, saved, job.row, start, weight, grad);
        add_product<false>(shared, grad, job.packed(saved.qkv, 1).from(start), job, dq);
    }
    const float by[EACH] = {1.0f, 1.0f, 1.0f, 1.0f};
    write(job, job.query_room(), job.queries(), job.place(dqkv, 0), job.step(0), dq, by);
}

// dbias = Σ grad / scale of SIDE queries × SIDE keys of a head, over up to `each` of the `turns` samples that have the same bias.
template <class T>
__device__ __forceinline__ void grad_bias(Job &job, const Saved<T, Job> &saved, const float *bias, int biases, const int *lengths,
                                          int turns, int each, float *dbias) {
    __shared__ Shared shared;
    u32 tiles = (job.length + SIDE - 1) / SIDE, index = blockIdx.x;
    int key = (int)split(index, tiles) * SIDE, query = (int)split(index, tiles) * SIDE;
    u32 h = split(index, (u32)job.heads), turn = split(index, (u32)biases);
    int first = (int)index * each, last = min(first + each, turns);
    Each sums, weight, grad;
    clear(sums);
    for (int i = first; i < last; ++i) {
        job.set_head(((u32)i * biases + turn) * job.heads + h, bias, biases, lengths);
        weights(shared, job, saved, query, key, weight, grad);
#pragma unroll
        for (int r = 0; r < EACH; ++r) {
#pragma unroll
            for (int c = 0; c < EACH; ++c) {
                sums[r][c] += grad[r][c];
            }
        }
    }
    i64 start = (((i64)index * biases + turn) * job.heads + h) * job.length * job.length;
#pragma unroll
    for (int r = 0; r < EACH; ++r) {
#pragma unroll
        for (int c = 0; c < EACH; ++c) {
            int row = query + own_row(r), column = key + own_column(c);
            if (row < job.length && column < job.length) {
                dbias[start + (i64)row * job.length + column] = sums[r][c] / job.scale;
            }
        }
    }
}
