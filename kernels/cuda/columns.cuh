// Row-major matrices of which each column is reduced or has parameters of its own: images [N·H·W, C] by channel.
//
// A launch: blockDim = (columns / V of a tile, rows side by side), both powers of two with 256 threads together;
// gridDim = (segments · splits, tiles). The rows fall into segments that do not mix (the samples of group
// normalisation; one for batch normalisation), and those of a segment to `splits` blocks. A thread keeps to V
// neighbouring columns, 16 bytes where they are a multiple of that. crates/engine/src/backend/cuda/lower/columns.rs chooses these
// numbers, by shape alone.
//
// Reductions go from the last row to the first, all blocks side by side, and what follows them from the first to the last:
// the rows that were read last are then still in the L2 cache.
//
// Sums: 32-bit floats within a few rows, doubles from there on, first by block, in a table of partial sums
// [gridDim.x][2][columns], then over the blocks, in order.
#pragma once
#include "common.cuh"

// Batches of rows whose sums are 32-bit floats.
#define BATCHES_OF_FLOATS 2

// A block that adds partial sums: so many columns × so many rows of the table side by side. As `SUMMED` in
// crates/engine/src/backend/cuda/lower/columns.rs.
constexpr int TOTAL_COLUMNS = 8, TOTAL_ROWS = 128;

// What a thread works on.
struct Place {
    i64 segment;
    // Its first row, and the end of the rows; none if its columns are past the last.
    i64 row, end;
    // From one of its rows to the next.
    i64 step;
    // In a reduction, from one batch of rows to the next, which is before it, and the number of them.
    i64 stride;
    int batches;
    // The first of its V columns.
    int column;
};

// For a reduction by batches of D rows a thread: every `splits`-th batch of the segment from the block's own number on, the last
// one first.
template <int V, int D> __device__ __forceinline__ Place place_of_sums(i64 rows, int splits, int columns) {
    Place p;
    u32 batch = D * blockDim.y, own = blockIdx.x % (u32)splits;
    u32 all = (u32)((rows + batch - 1) / batch);
    p.segment = blockIdx.x / (u32)splits;
    p.step = blockDim.y;
    p.stride = -(i64)splits * batch;
    p.column = (int)(blockIdx.y * blockDim.x + threadIdx.x) * V;
    p.batches = p.column < columns && own < all ? (int)((all - own - 1) / (u32)splits + 1) : 0;
    p.row = p.segment * rows + ((i64)own - (i64)splits * (1 - p.batches)) * batch + threadIdx.y;
    p.end = (p.segment + 1) * rows;
    return p;
}

// For what goes over all elements: the block's own `stretch` of rows, one after the other.
template <int V> __device__ __forceinline__ Place place(i64 rows, i64 stretch, int splits, int columns) {
    Place p;
    p.segment = blockIdx.x / (u32)splits;
    i64 begin = (blockIdx.x % (u32)splits) * stretch;
    p.row = p.segment * rows + begin + threadIdx.y;
    p.step = blockDim.y;
    p.stride = p.step;
    p.column = (int)(blockIdx.y * blockDim.x + threadIdx.x) * V;
    p.end = p.column < columns ? p.segment * rows + min(begin + stretch, rows) : 0;
    p.batches = 0;
    return p;
}

// V numbers of columns, from p on.
template <int V> __device__ __forceinline__ void load_columns(const float *p, float (&v)[V]) {
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int quad = 0; quad < V; quad += 4) {
            float four[4];
            load(p + quad, four);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                v[quad + j] = four[j];
            }
        }
    } else {
        load(p, v);
    }
}

// Calls load(at, r, k) for the D rows of each batch, where `at` is the thread's first element of row r, and then row(k); fold()
// once in some batches and at the end.
template <int D, class L, class R, class F>
__device__ __forceinline__ void for_batches(const Place &p, int columns, L load, R row, F fold) {
    i64 first = p.row, at = p.row * columns + p.column, step = p.step * columns;
    UNROLL(1)
    for (int i = 0; i < p.batches; i++) {
        if (first + (D - 1) * p.step < p.end) {
#pragma unroll
            for (int k = 0; k < D; k++) {
                load(at + k * step, first + k * p.step, k);
            }
#pragma unroll
            for (int k = 0; k < D; k++) {
                row(k);
            }
        } else {
            // The last rows of the matrix.
            UNROLL(1)
            for (i64 r = first, last = at; r < p.end; r += p.step, last += step) {
                load(last, r, 0);
                row(0);
            }
        }
        if (i % BATCHES_OF_FLOATS == BATCHES_OF_FLOATS - 1) {
            fold();
        }
        first += p.stride;
        at += p.stride * columns;
    }
    fold();
}

// Rows of a batch, of which a thread has 128 bytes on their way at once; rows that are read ahead: 64 bytes.
constexpr int MOMENT_ROWS = 8, DOT_ROWS = 4, MAP_ROWS = 4, MAP_GRAD_ROWS = 2;

// Adds Σ x and Σ x² of the thread's rows. They are summed about the first of them, so that nothing is lost where the mean
// is large against the deviation; doubles hold the rest.
template <int V, class T>
__device__ __forceinline__ void column_moments(const T *x, const Place &p, int columns, double (&sum)[V],
                                               double (&square)[V]) {
    if (p.batches == 0 || p.row >= p.end && p.batches == 1) {
        return;
    }
    // The first row that it certainly has.
    i64 first = p.row < p.end ? p.row : p.row + p.stride;
    float shift[V], once[V] = {}, twice[V] = {};
    load(x + first * columns + p.column, shift);
    Pack<T, V> v[MOMENT_ROWS];
    int n = 0;
    for_batches<MOMENT_ROWS>(
        p, columns, [&](i64 at, i64, int k) { v[k] = *(const Pack<T, V> *)(x + at); },
        [&](int k) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                float d = to_float(v[k].at[j]) - shift[j];
                once[j] += d;
                twice[j] += d * d;
            }
            n++;
        },
        [&] {
#pragma unroll
            for (int j = 0; j < V; j++) {
                sum[j] += once[j];
                square[j] += twice[j];
                once[j] = twice[j] = 0.0f;
            }
        });
#pragma unroll
    for (int j = 0; j < V; j++) {
        double s = shift[j];
        square[j] += s * (2.0 * sum[j] + s * n);
        sum[j] += s * n;
    }
}

// Adds Σ dy and Σ dy · (x − mean) of the thread's rows.
template <int V, class T>
__device__ __forceinline__ void column_dots(const T *x, const T *dy, const Place &p, int columns, const float (&mean)[V],
                                            double (&dys)[V], double (&dots)[V]) {
    float once[V] = {}, twice[V] = {};
    Pack<T, V> v[DOT_ROWS], g[DOT_ROWS];
    for_batches<DOT_ROWS>(
        p, columns,
        [&](i64 at, i64, int k) {
            v[k] = *(const Pack<T, V> *)(x + at);
            g[k] = *(const Pack<T, V> *)(dy + at);
        },
        [&](int k) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                float d = to_float(g[k].at[j]);
                once[j] += d;
                twice[j] += d * (to_float(v[k].at[j]) - mean[j]);
            }
        },
        [&] {
#pragma unroll
            for (int j = 0; j < V; j++) {
                dys[j] += once[j];
                dots[j] += twice[j];
                once[j] = twice[j] = 0.0f;
            }
        });
}

// Sums of V columns over the threads of a block that have them, in those with threadIdx.y = 0. All threads of the block must call
// it.
template <int V> __device__ __forceinline__ void block_columns(const double (&own)[V], double (&sums)[V][256]) {
    int thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
    for (int j = 0; j < V; j++) {
        sums[j][thread] = own[j];
    }
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                sums[j][thread] += sums[j][thread + half * blockDim.x];
            }
        }
    }
}

// The block's sums into its row of the table [gridDim.x][2][columns]. All threads of the block must call it.
template <int V>
__device__ __forceinline__ void store_partials(const double (&a)[V], const double (&b)[V], const Place &p, int columns,
                                               double *partials) {
    __shared__ double sums[V][256];
    double *to = partials + (i64)blockIdx.x * 2 * columns + p.column;
    bool stores = threadIdx.y == 0 && p.column < columns;
    block_columns(a, sums);
    if (stores) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            to[j] = sums[j][threadIdx.x];
        }
    }
    __syncthreads();
    block_columns(b, sums);
    if (stores) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            to[columns + j] = sums[j][threadIdx.x];
        }
    }
}

// Sums over the y side of a block of TOTAL_COLUMNS × TOTAL_ROWS threads, in those with threadIdx.y = 0. All must call it.
__device__ __forceinline__ void sum_over_y(double &a, double &b) {
    __shared__ double sums[2][TOTAL_ROWS][TOTAL_COLUMNS];
    sums[0][threadIdx.y][threadIdx.x] = a;
    sums[1][threadIdx.y][threadIdx.x] = b;
    for (int half = TOTAL_ROWS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) {
            sums[0][threadIdx.y][threadIdx.x] += sums[0][threadIdx.y + half][threadIdx.x];
            sums[1][threadIdx.y][threadIdx.x] += sums[1][threadIdx.y + half][threadIdx.x];
        }
    }
    a = sums[0][threadIdx.y][threadIdx.x];
    b = sums[1][threadIdx.y][threadIdx.x];
}

// The column of a thread of such a block.
__device__ __forceinline__ int total_column() { return blockIdx.x * TOTAL_COLUMNS + threadIdx.x; }

// Sums of one column over the table's `blocks` rows, in the threads with threadIdx.y = 0 of a block of TOTAL_COLUMNS × TOTAL_ROWS.
// All must call it; `column` may be past the last.
__device__ __forceinline__ void column_totals(const double *partials, i64 blocks, int columns, int column, double &a,
                                              double &b) {
    a = 0.0;
    b = 0.0;
    if (column < columns) {
#pragma unroll 4
        for (i64 i = threadIdx.y; i < blocks; i += TOTAL_ROWS) {
            a += partials[i * 2 * columns + column];
            b += partials[(i * 2 + 1) * columns + column];
        }
    }
    sum_over_y(a, b);
}

// The rows of a thread that are on their way: row(0) is read next.
template <int D, int V, class T> struct Ahead {
    Pack<T, V> rows[D];

    // The first of them; `at` is the thread's first element of its first row, `step` goes from a row to the next.
    __device__ __forceinline__ Ahead(const T *x, const Place &p, i64 at, i64 step) {
#pragma unroll
        for (int k = 0; k < D; k++) {
            if (p.row + k * p.step < p.end) {
                rows[k] = *(const Pack<T, V> *)(x + at + k * step);
            }
        }
    }

    // The next row, whose first element is `at`; sends for the one that is D rows behind it, if there is one.
    __device__ __forceinline__ void next(const T *x, const Place &p, i64 row, i64 at, i64 step, float (&v)[V]) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            v[j] = to_float(rows[0].at[j]);
        }
#pragma unroll
        for (int k = 1; k < D; k++) {
            rows[k - 1] = rows[k];
        }
        if (row + D * p.step < p.end) {
            rows[D - 1] = *(const Pack<T, V> *)(x + at + D * step);
        }
    }
};

// y = act((x − mean) · factor + offset) for the thread's rows; `parameters` gives these numbers, once the first rows are on their
// way. ACT is the activation, or −1 for `act`. `y` may be `x`.
template <int ACT, int V, class T, class P>
__device__ __forceinline__ void normalise_as(const T *x, T *y, const Place &p, int columns, P parameters, int act,
                                             float slope, float extra) {
    i64 at = p.row * columns + p.column, step = p.step * columns;
    Ahead<MAP_ROWS, V, T> ahead(x, p, at, step);
    float mean[V], factor[V], offset[V];
    parameters(mean, factor, offset);
    UNROLL(1)
    for (i64 row = p.row; row < p.end; row += p.step, at += step) {
        float z[V];
        ahead.next(x, p, row, at, step, z);
#pragma unroll
        for (int j = 0; j < V; j++) {
            z[j] = (z[j] - mean[j]) * factor[j] + offset[j];
        }
        activate_joined_all(ACT < 0 ? act : ACT, slope, extra, z);
        store<V>(y + at, z);
    }
}

template <int V, class T, class P>
__device__ __forceinline__ void normalise(const T *x, T *y, const Place &p, int columns, P parameters, int act,
                                          float slope, float extra) {
    if (act == NO_ACTIVATION) {
        normalise_as<NO_ACTIVATION, V>(x, y, p, columns, parameters, act, slope, extra);
    } else if (act == RELU) {
        normalise_as<RELU, V>(x, y, p, columns, parameters, act, slope, extra);
    } else {
        normalise_as<-1, V>(x, y, p, columns, parameters, act, slope, extra);
    }
}

// y = (x − mean) · factor + offset + other for the thread's rows, or with `relu` what is greater than 0 of it. `y` may be `x` or
// `other`.
template <int V, class T, class P>
__device__ __forceinline__ void normalise_sum(const T *x, const T *other, T *y, const Place &p, int columns, P parameters,
                                              bool relu) {
    i64 at = p.row * columns + p.column, step = p.step * columns;
    Ahead<MAP_GRAD_ROWS, V, T> ahead_x(x, p, at, step), ahead_other(other, p, at, step);
    float mean[V], factor[V], offset[V];
    parameters(mean, factor, offset);
    UNROLL(1)
    for (i64 row = p.row; row < p.end; row += p.step, at += step) {
        float z[V], s[V];
        ahead_x.next(x, p, row, at, step, z);
        ahead_other.next(other, p, row, at, step, s);
#pragma unroll
        for (int j = 0; j < V; j++) {
            float sum = (z[j] - mean[j]) * factor[j] + offset[j] + s[j];
            z[j] = relu ? activate(RELU, 0.0f, 0.0f, sum) : sum;
        }
        store<V>(y + at, z);
    }
}

// dx = (dy · scale − shift − (x − mean) · tilt) · factor for the thread's rows; `parameters` gives these numbers, once the first rows
// are on their way.
template <int V, class T, class P>
__device__ __forceinline__ void normalise_grad(const T *x, const T *dy, T *dx, const Place &p, int columns, P parameters) {
    i64 at = p.row * columns + p.column, step = p.step * columns;
    Ahead<MAP_GRAD_ROWS, V, T> ahead_x(x, p, at, step), ahead_dy(dy, p, at, step);
    float mean[V], scale[V], shift[V], tilt[V], factor[V];
    parameters(mean, scale, shift, tilt, factor);
    UNROLL(1)
    for (i64 row = p.row; row < p.end; row += p.step, at += step) {
        float v[V], g[V];
        ahead_x.next(x, p, row, at, step, v);
        ahead_dy.next(dy, p, row, at, step, g);
#pragma unroll
        for (int j = 0; j < V; j++) {
            g[j] = (g[j] * scale[j] - shift[j] - (v[j] - mean[j]) * tilt[j]) * factor[j];
        }
        store<V>(dx + at, g);
    }
}

// FOR_SINGLE_PACKS(M) defines M(type, suffix, V) for 32-bit floats: for columns by packs of 16 bytes, and one by one. FOR_PACKS(M)
// does so for every float storage type, and for columns of 16-bit floats by fours, too.
#define FOR_SINGLE_PACKS(M) M(float, f32, 4) M(float, f32, 1)
#define FOR_PACKS(M)                                                                                                           \
    FOR_SINGLE_PACKS(M) M(bf16, bf16, 8) M(f16, f16, 8) M(bf16, bf16, 4) M(f16, f16, 4) M(bf16, bf16, 1) M(f16, f16, 1)
