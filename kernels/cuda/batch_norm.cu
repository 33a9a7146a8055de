// Batch normalisation (Ioffe & Szegedy 2015): each channel of x [rows, C] over all rows. Tensors are row-major, per-channel
// vectors [C] of floats. columns.cuh tells how rows and channels fall to threads, and how sums are made.
#include "columns.cuh"

// First stage of the statistics: Σ x, Σ x² into partials [gridDim.x][2][C].
template <int V, class T>
__device__ __forceinline__ void moments(const T *x, double *partials, i64 rows, int columns) {
    Place p = place_of_sums<V, MOMENT_ROWS>(rows, gridDim.x, columns);
    double sum[V] = {}, square[V] = {};
    column_moments(x, p, columns, sum, square);
    store_partials(sum, square, p, columns, partials);
}

#define MOMENTS(T, S, V)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                       \
        batch_norm_moments##V##_##S(const T *x, double *partials, i64 rows, int columns) {                     \
        moments<V>(x, partials, rows, columns);                                                                \
    }
FOR_PACKS(MOMENTS)

// Second stage, by blocks of 8 channels × 128 threads: mean and 1 / sqrt(var + eps). With running statistics (`counter`
// is not null) these move by `momentum`, or if that is negative to the average over all batches seen, of which the
// counter tells the number before this one; it is increased by the launch after this, when no block reads it any more.
extern "C" __global__ void __launch_bounds__(1024)
    batch_norm_statistics(const double *partials, i64 blocks, i64 rows, int columns, double eps, double momentum,
                          float *mean, float *invstd, float *running_mean, float *running_var, const i64 *counter) {
    int c = total_column();
    double sum, square;
    column_totals(partials, blocks, columns, c, sum, square);
    if (threadIdx.y > 0 || c >= columns) {
        return;
    }
    double m = sum / rows;
    double var = square / rows - m * m;
    var = var < 0.0 ? 0.0 : var;  // NaN stays.
    mean[c] = (float)m;
    invstd[c] = (float)(1.0 / sqrt(var + eps));
    if (counter) {
        double weight = momentum < 0.0 ? 1.0 / (double)(*counter + 1) : momentum;
        double unbiased = var * ((double)rows / (double)(rows - 1));
        running_mean[c] = (float)((1.0 - weight) * running_mean[c] + weight * m);
        running_var[c] = (float)((1.0 - weight) * running_var[c] + weight * unbiased);
    }
}

// factor = factor · gamma and offset = beta of the thread's columns; gamma and beta may be null.
template <int V>
__device__ __forceinline__ void scaled(const float *gamma, const float *beta, const Place &p, float (&factor)[V],
                                       float (&offset)[V]) {
    if (gamma) {
        float by[V];
        load_columns(gamma + p.column, by);
#pragma unroll
        for (int j = 0; j < V; j++) {
            factor[j] *= by[j];
        }
    }
    if (beta) {
        load_columns(beta + p.column, offset);
    } else {
#pragma unroll
        for (int j = 0; j < V; j++) {
            offset[j] = 0.0f;
        }
    }
}

// Third stage: y = act((x − mean) · invstd · gamma + beta); gamma and beta may be null. Increases the counter of batches,
// if there is one. With SUM, `other` is added before the activation, which is ReLU or none.
template <bool SUM, int V, class T>
__device__ __forceinline__ void apply(const T *x, const T *other, T *y, const float *mean, const float *invstd,
                                      const float *gamma, const float *beta, i64 *counter, int act, float slope, float extra,
                                      i64 rows, i64 stretch, int columns) {
    Place p = place<V>(rows, stretch, gridDim.x, columns);
    if (counter && blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0 && threadIdx.y == 0) {
        *counter += 1;
    }
    if (p.row >= p.end) {
        return;
    }
    auto parameters = [&](float (&center)[V], float (&factor)[V], float (&offset)[V]) {
        load_columns(mean + p.column, center);
        load_columns(invstd + p.column, factor);
        scaled(gamma, beta, p, factor, offset);
    };
    if constexpr (SUM) {
        normalise_sum<V>(x, other, y, p, columns, parameters, act == RELU);
    } else {
        normalise<V>(x, y, p, columns, parameters, act, slope, extra);
    }
}

#define APPLY(T, S, V)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) batch_norm_apply##V##_##S(                                        \
        const T *x, T *y, const float *mean, const float *invstd, const float *gamma, const float *beta, i64 *counter, \
        int act, float slope, float extra, i64 rows, i64 stretch, int columns) {                                       \
        apply<false, V, T>(x, nullptr, y, mean, invstd, gamma, beta, counter, act, slope, extra, rows, stretch, columns); \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 3) batch_norm_apply_sum##V##_##S(                                 \
        const T *x, const T *other, T *y, const float *mean, const float *invstd, const float *gamma,                  \
        const float *beta, i64 *counter, int act, float slope, float extra, i64 rows, i64 stretch, int columns) {      \
        apply<true, V, T>(x, other, y, mean, invstd, gamma, beta, counter, act, slope, extra, rows, stretch, columns); \
    }
FOR_PACKS(APPLY)

// y = act((x − mean) / sqrt(var + eps) · gamma + beta) with the running statistics. `y` may be `x`.
template <int V, class T>
__device__ __forceinline__ void infer(const T *x, T *y, const float *mean, const float *var, const float *gamma,
                                      const float *beta, float eps, int act, float slope, float extra, i64 rows, i64 stretch,
                                      int columns) {
    Place p = place<V>(rows, stretch, gridDim.x, columns);
    if (p.row >= p.end) {
        return;
    }
    auto parameters = [&](float (&center)[V], float (&factor)[V], float (&offset)[V]) {
        load_columns(mean + p.column, center);
        load_columns(var + p.column, factor);
#pragma unroll
        for (int j = 0; j < V; j++) {
            factor[j] = 1.0f / sqrtf(factor[j] + eps);
        }
        scaled(gamma, beta, p, factor, offset);
    };
    normalise<V>(x, y, p, columns, parameters, act, slope, extra);
}

#define INFER(T, S, V)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) batch_norm_infer##V##_##S(                                  \
        const T *x, T *y, const float *mean, const float *var, const float *gamma, const float *beta, float eps, \
        int act, float slope, float extra, i64 rows, i64 stretch, int columns) {                                 \
        infer<V>(x, y, mean, var, gamma, beta, eps, act, slope, extra, rows, stretch, columns);                  \
    }
FOR_PACKS(INFER)

// Gradient, first stage: Σ dy, Σ dy · (x − mean) into partials [gridDim.x][2][C].
template <int V, class T>
__device__ __forceinline__ void grad_sums(const T *x, const T *dy, const float *mean, double *partials, i64 rows,
                                          int columns) {
    Place p = place_of_sums<V, DOT_ROWS>(rows, gridDim.x, columns);
    float center[V] = {};
    double dys[V] = {}, dots[V] = {};
    if (p.column < columns) {
        load_columns(mean + p.column, center);
    }
    column_dots(x, dy, p, columns, center, dys, dots);
    store_partials(dys, dots, p, columns, partials);
}

#define GRAD_SUMS(T, S, V)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                           \
        batch_norm_grad_sums##V##_##S(const T *x, const T *dy, const float *mean, double *partials, i64 rows,     \
                                      int columns) {                                                              \
        grad_sums<V>(x, dy, mean, partials, rows, columns);                                                       \
    }
FOR_PACKS(GRAD_SUMS)

// Gradient, second stage, by blocks of 8 channels × 128 threads: table [2][C] of the mean of dy, and of
// invstd² · mean(dy · (x − mean)); dgamma and dbeta unless they are null.
extern "C" __global__ void __launch_bounds__(1024)
    batch_norm_grad_totals(const double *partials, i64 blocks, i64 rows, int columns, const float *invstd, float *table,
                           float *dgamma, float *dbeta) {
    int c = total_column();
    double dys, dots;
    column_totals(partials, blocks, columns, c, dys, dots);
    if (threadIdx.y > 0 || c >= columns) {
        return;
    }
    double inv = invstd[c];
    table[c] = (float)(dys / rows);
    table[columns + c] = (float)(dots * inv * inv / rows);
    if (dgamma) {
        dgamma[c] = (float)(dots * inv);
        dbeta[c] = (float)dys;
    }
}

// Gradient, third stage: dx = (dy − table[0] − (x − mean) · table[1]) · invstd · gamma.
template <int V, class T>
__device__ __forceinline__ void grad_apply(const T *x, const T *dy, T *dx, const float *mean, const float *invstd,
                                           const float *gamma, const float *table, i64 rows, i64 stretch, int columns) {
    Place p = place<V>(rows, stretch, gridDim.x, columns);
    if (p.row >= p.end) {
        return;
    }
    auto parameters = [&](float (&center)[V], float (&scale)[V], float (&shift)[V], float (&tilt)[V], float (&factor)[V]) {
        load_columns(mean + p.column, center);
        load_columns(table + p.column, shift);
        load_columns(table + columns + p.column, tilt);
        load_columns(invstd + p.column, factor);
        float none[V];
        scaled(gamma, nullptr, p, factor, none);
#pragma unroll
        for (int j = 0; j < V; j++) {
            scale[j] = 1.0f;
        }
    };
    normalise_grad<V>(x, dy, dx, p, columns, parameters);
}

#define GRAD_APPLY(T, S, V)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) batch_norm_grad_apply##V##_##S(                                   \
        const T *x, const T *dy, T *dx, const float *mean, const float *invstd, const float *gamma, const float *table, \
        i64 rows, i64 stretch, int columns) {                                                                           \
        grad_apply<V>(x, dy, dx, mean, invstd, gamma, table, rows, stretch, columns);                                   \
    }
FOR_PACKS(GRAD_APPLY)

// Over all shards of a step. Second stage of a shard's sums, by blocks of 8 channels × 128 threads: Σ x, Σ x² and the number of
// rows as sums [2 C + 1].
extern "C" __global__ void __launch_bounds__(1024)
    batch_norm_sums(const double *partials, i64 blocks, i64 rows, int columns, double *sums) {
    int c = total_column();
    double sum, square;
    column_totals(partials, blocks, columns, c, sum, square);
    if (threadIdx.y > 0 || c >= columns) {
        return;
    }
    sums[c] = sum;
    sums[columns + c] = square;
    if (c == 0) {
        sums[2 * columns] = (double)rows;
    }
}

// The statistics of all rows from their sums; running statistics as batch_norm_statistics moves them.
extern "C" __global__ void __launch_bounds__(256)
    batch_norm_from_sums(const double *sums, int columns, double eps, double momentum, float *mean, float *invstd,
                         float *running_mean, float *running_var, const i64 *counter) {
    int c = blockIdx.x * 256 + threadIdx.x;
    if (c >= columns) {
        return;
    }
    double rows = sums[2 * columns];
    double m = sums[c] / rows;
    double var = sums[columns + c] / rows - m * m;
    var = var < 0.0 ? 0.0 : var;  // NaN stays.
    mean[c] = (float)m;
    invstd[c] = (float)(1.0 / sqrt(var + eps));
    if (counter) {
        double weight = momentum < 0.0 ? 1.0 / (double)(*counter + 1) : momentum;
        double unbiased = var * (rows / (rows > 2.0 ? rows - 1.0 : 1.0));
        running_mean[c] = (float)((1.0 - weight) * running_mean[c] + weight * m);
        running_var[c] = (float)((1.0 - weight) * running_var[c] + weight * unbiased);
    }
}

// Adds one to the counter of batches.
extern "C" __global__ void batch_norm_count(i64 *counter) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *counter += 1;
    }
}

// Second stage of a shard's sums for the gradient, by blocks of 8 channels × 128 threads: Σ dy, Σ dy · (x − mean) as sums [2 C];
// the shard's dgamma and dbeta unless they are null.
extern "C" __global__ void __launch_bounds__(1024)
    batch_norm_grad_sum(const double *partials, i64 blocks, int columns, const float *invstd, double *sums, float *dgamma,
                        float *dbeta) {
    int c = total_column();
    double dys, dots;
    column_totals(partials, blocks, columns, c, dys, dots);
    if (threadIdx.y > 0 || c >= columns) {
        return;
    }
    sums[c] = dys;
    sums[columns + c] = dots;
    if (dgamma) {
        dgamma[c] = (float)(dots * invstd[c]);
        dbeta[c] = (float)dys;
    }
}

// The table of batch_norm_grad_apply from the sums over all shards, whose number of rows is behind those of the forward pass.
extern "C" __global__ void __launch_bounds__(256)
    batch_norm_grad_means(const double *sums, const double *grad_sums, int columns, const float *invstd, float *table) {
    int c = blockIdx.x * 256 + threadIdx.x;
    if (c >= columns) {
        return;
    }
    double rows = sums[2 * columns], inv = invstd[c];
    table[c] = (float)(grad_sums[c] / rows);
    table[columns + c] = (float)(grad_sums[columns + c] * inv * inv / rows);
}
