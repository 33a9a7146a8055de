// Row-major matrices of which each column is reduced or has parameters of its own: images [N·H·W, C] by channel.
//
// A launch: blockDim = (columns / V of a tile, rows side by side), both powers of two with 256 threads together;
// gridDim = (segments · splits, tiles). The rows fall into segments that do not mix (the samples of group
// normalisation; one for batch normalisation), each cut into `splits` stretches of `stretch` rows, one a block. A thread
// keeps to V neighbouring columns. engine/src/backend/cuda/lower/columns.rs chooses these numbers, by shape alone.
//
// Sums: 32-bit floats within a few rows, doubles from there on, first by block, in a table of partial sums
// [gridDim.x][2][columns], then over the blocks, in order.
#pragma once
#include "common.cuh"

// Rows of one matrix that a thread loads before it works on the first.
#define ROWS_AT_ONCE 8

// What a thread works on.
struct Place {
    i64 segment;
    // Its rows: `row`, `row + step`, … before `end`; none if its columns are past the last.
    i64 row, end, step;
    // The first of its V columns.
    int column;
};

template <int V> __device__ __forceinline__ Place place(i64 rows, i64 stretch, int splits, int columns) {
    Place p;
    p.segment = blockIdx.x / (u32)splits;
    i64 begin = (blockIdx.x % (u32)splits) * stretch;
    i64 end = min(begin + stretch, rows);
    p.row = p.segment * rows + begin + threadIdx.y;
    p.step = blockDim.y;
    p.column = (int)(blockIdx.y * blockDim.x + threadIdx.x) * V;
    p.end = p.column < columns ? p.segment * rows + end : 0;
    return p;
}

// Loads up to D rows from `row` on; how many there are.
template <int D, int V, class T>
__device__ __forceinline__ int load_rows(const T *x, const Place &p, i64 row, int columns, float (&v)[D][V]) {
    int n = 0;
#pragma unroll
    for (int k = 0; k < D; k++) {
        if (row + k * p.step < p.end) {
            load<V>(x + (row + k * p.step) * columns + p.column, v[k]);
            n = k + 1;
        }
    }
    return n;
}

// Adds Σ x and Σ x² of the thread's rows. The few rows of a batch are summed about their own mean, so that nothing is
// lost where the mean is large against the deviation; doubles hold the rest.
template <int V, class T>
__device__ __forceinline__ void column_moments(const T *x, const Place &p, int columns, double (&sum)[V],
                                               double (&square)[V]) {
    for (i64 row = p.row; row < p.end; row += ROWS_AT_ONCE * p.step) {
        float v[ROWS_AT_ONCE][V];
        int n = load_rows(x, p, row, columns, v);
        float share = 1.0f / n;
#pragma unroll
        for (int j = 0; j < V; j++) {
            float mean = 0.0f, first = 0.0f, second = 0.0f;
#pragma unroll
            for (int k = 0; k < ROWS_AT_ONCE; k++) {
                mean += k < n ? v[k][j] : 0.0f;
            }
            mean *= share;
#pragma unroll
            for (int k = 0; k < ROWS_AT_ONCE; k++) {
                float d = k < n ? v[k][j] - mean : 0.0f;
                first += d;
                second += d * d;
            }
            double m = mean;
            sum[j] += m * n + first;
            square[j] += m * (m * n + 2.0 * first) + second;
        }
    }
}

// Adds Σ dy and Σ dy · (x − mean) of the thread's rows.
template <int V, class T>
__device__ __forceinline__ void column_dots(const T *x, const T *dy, const Place &p, int columns, const float (&mean)[V],
                                            double (&dys)[V], double (&dots)[V]) {
    const int D = ROWS_AT_ONCE / 2;
    for (i64 row = p.row; row < p.end; row += D * p.step) {
        float v[D][V], g[D][V];
        int n = load_rows(x, p, row, columns, v);
        load_rows(dy, p, row, columns, g);
#pragma unroll
        for (int j = 0; j < V; j++) {
            float first = 0.0f, second = 0.0f;
#pragma unroll
            for (int k = 0; k < D; k++) {
                first += k < n ? g[k][j] : 0.0f;
                second += k < n ? g[k][j] * (v[k][j] - mean[j]) : 0.0f;
            }
            dys[j] += first;
            dots[j] += second;
        }
    }
}

// The block's sums into its row of the table [gridDim.x][2][columns]. All threads of the block must call it.
template <int V>
__device__ __forceinline__ void store_partials(const double (&a)[V], const double (&b)[V], const Place &p, int columns,
                                               double *partials) {
    __shared__ double sums[2][V][256];
    int thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
    for (int j = 0; j < V; j++) {
        sums[0][j][thread] = a[j];
        sums[1][j][thread] = b[j];
    }
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                sums[0][j][thread] += sums[0][j][thread + half * blockDim.x];
                sums[1][j][thread] += sums[1][j][thread + half * blockDim.x];
            }
        }
    }
    if (threadIdx.y == 0 && p.column < columns) {
        double *to = partials + (i64)blockIdx.x * 2 * columns + p.column;
#pragma unroll
        for (int j = 0; j < V; j++) {
            to[j] = sums[0][j][thread];
            to[columns + j] = sums[1][j][thread];
        }
    }
}

// Sums over the y side of a block of 32 × 32 threads, in those with threadIdx.y = 0. All must call it.
__device__ __forceinline__ void sum_over_y(double &a, double &b) {
    __shared__ double sums[2][32][33];
    sums[0][threadIdx.y][threadIdx.x] = a;
    sums[1][threadIdx.y][threadIdx.x] = b;
    for (int half = 16; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) {
            sums[0][threadIdx.y][threadIdx.x] += sums[0][threadIdx.y + half][threadIdx.x];
            sums[1][threadIdx.y][threadIdx.x] += sums[1][threadIdx.y + half][threadIdx.x];
        }
    }
    a = sums[0][threadIdx.y][threadIdx.x];
    b = sums[1][threadIdx.y][threadIdx.x];
}

// Sums of one column over the table's `blocks` rows, in the threads with threadIdx.y = 0 of a block of 32 × 32. All
// must call it; `column` may be past the last.
__device__ __forceinline__ void column_totals(const double *partials, i64 blocks, int columns, int column, double &a,
                                              double &b) {
    a = 0.0;
    b = 0.0;
    if (column < columns) {
#pragma unroll 4
        for (i64 i = threadIdx.y; i < blocks; i += 32) {
            a += partials[i * 2 * columns + column];
            b += partials[(i * 2 + 1) * columns + column];
        }
    }
    sum_over_y(a, b);
}

// y = act((x − mean) · factor + offset) for the thread's rows. ACT is the activation, or −1 for `act`, which costs a
// choice an element. `y` may be `x`.
template <int ACT, int V, class T>
__device__ __forceinline__ void normalise_as(const T *x, T *y, const Place &p, int columns, const float (&mean)[V],
                                             const float (&factor)[V], const float (&offset)[V], int act, float slope, float extra) {
    const int D = ACT < 0 ? 1 : ROWS_AT_ONCE;
    for (i64 row = p.row; row < p.end; row += D * p.step) {
        float v[D][V];
        int n = load_rows(x, p, row, columns, v);
#pragma unroll
        for (int k = 0; k < D; k++) {
            if (k < n) {
#pragma unroll
                for (int j = 0; j < V; j++) {
                    float z = (v[k][j] - mean[j]) * factor[j] + offset[j];
                    v[k][j] = activate(ACT < 0 ? act : ACT, slope, extra, z);
                }
                store<V>(y + (row + k * p.step) * columns + p.column, v[k]);
            }
        }
    }
}

template <int V, class T>
__device__ __forceinline__ void normalise(const T *x, T *y, const Place &p, int columns, const float (&mean)[V],
                                          const float (&factor)[V], const float (&offset)[V], int act, float slope, float extra) {
    if (act == NO_ACTIVATION) {
        normalise_as<NO_ACTIVATION>(x, y, p, columns, mean, factor, offset, act, slope, extra);
    } else if (act == RELU) {
        normalise_as<RELU>(x, y, p, columns, mean, factor, offset, act, slope, extra);
    } else {
        normalise_as<-1>(x, y, p, columns, mean, factor, offset, act, slope, extra);
    }
}

// dx = (dy · scale − shift − (x − mean) · tilt) · factor for the thread's rows.
template <int V, class T>
__device__ __forceinline__ void normalise_grad(const T *x, const T *dy, T *dx, const Place &p, int columns,
                                               const float (&mean)[V], const float (&scale)[V], const float (&shift)[V],
                                               const float (&tilt)[V], const float (&factor)[V]) {
    const int D = ROWS_AT_ONCE / 2;
    for (i64 row = p.row; row < p.end; row += D * p.step) {
        float v[D][V], g[D][V];
        int n = load_rows(x, p, row, columns, v);
        load_rows(dy, p, row, columns, g);
#pragma unroll
        for (int k = 0; k < D; k++) {
            if (k < n) {
#pragma unroll
                for (int j = 0; j < V; j++) {
                    g[k][j] = (g[k][j] * scale[j] - shift[j] - (v[k][j] - mean[j]) * tilt[j]) * factor[j];
                }
                store<V>(dx + (row + k * p.step) * columns + p.column, g[k]);
            }
        }
    }
}

// FOR_PACKS(M) defines M(type, suffix, V) for every float storage type, and for columns by fours and one by one.
#define FOR_PACKS(M) M(float, f32, 4) M(bf16, bf16, 4) M(f16, f16, 4) M(float, f32, 1) M(bf16, bf16, 1) M(f16, f16, 1)
