// Group normalisation (Wu & He 2018): x [N, positions, C], each sample's channels in groups of `width` = C / groups
// neighbours. Statistics [N, groups]. A sample is a segment of rows (columns.cuh): `rows` is the number of positions.
#include "columns.cuh"

// First stage of the statistics: Σ x, Σ x² by channel into partials [N · splits][2][C].
template <int V, class T>
__device__ __forceinline__ void moments(const T *x, double *partials, i64 rows, int splits, int columns) {
    Place p = place_of_sums<V, MOMENT_ROWS>(rows, splits, columns);
    double sum[V] = {}, square[V] = {};
    column_moments(x, p, columns, sum, square);
    store_partials(sum, square, p, columns, partials);
}

#define MOMENTS(T, S, V)                                                                                                \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                                \
        group_norm_moments##V##_##S(const T *x, double *partials, i64 rows, int splits, int columns) {                 \
        moments<V>(x, partials, rows, splits, columns);                                                                \
    }
FOR_SINGLE_PACKS(MOMENTS)

// A warp a group: its two sums over `splits` rows of the table and the group's channels, with the channels' weights.
__device__ __forceinline__ void group_totals(const double *partials, i64 sample, int group, int splits, int columns,
                                             int width, const float *weights, double &a, double &b) {
    const double *from = partials + sample * splits * 2 * columns + group * width;
    a = 0.0;
    b = 0.0;
    for (i64 i = threadIdx.x & 31; i < (i64)splits * width; i += 32) {
        i64 split = i / width;
        int c = (int)(i % width);
        double weight = weights ? weights[group * width + c] : 1.0f;
        a += weight * from[split * 2 * columns + c];
        b += weight * from[(split * 2 + 1) * columns + c];
    }
    a = warp_sum(a);
    b = warp_sum(b);
}

// Second stage, a warp for each of `sets` = N · groups: mean and 1 / sqrt(var + eps).
extern "C" __global__ void __launch_bounds__(256)
    group_norm_statistics(const double *partials, i64 sets, int groups, i64 rows, int splits, int columns, double eps,
                          float *mean, float *rstd) {
    i64 set = thread_index() >> 5;
    if (set >= sets) {
        return;
    }
    int width = columns / groups;
    double sum, square;
    group_totals(partials, set / groups, (int)(set % groups), splits, columns, width, nullptr, sum, square);
    double n = (double)rows * width;
    double m = sum / n;
    double var = square / n - m * m;
    var = var < 0.0 ? 0.0 : var;  // NaN stays.
    if ((threadIdx.x & 31) == 0) {
        mean[set] = (float)m;
        rstd[set] = (float)(1.0 / sqrt(var + eps));
    }
}

// Third stage: y = (x − mean) · rstd · gamma + beta; gamma and beta may be null.
template <int V, class T>
__device__ __forceinline__ void apply(const T *x, T *y, const float *mean, const float *rstd, const float *gamma,
                                      const float *beta, int groups, i64 rows, i64 stretch, int splits, int columns) {
    Place p = place<V>(rows, stretch, splits, columns);
    if (p.row >= p.end) {
        return;
    }
    auto parameters = [&](float (&center)[V], float (&factor)[V], float (&offset)[V]) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            int c = p.column + j;
            i64 set = p.segment * groups + c / (columns / groups);
            center[j] = mean[set];
            factor[j] = rstd[set] * (gamma ? gamma[c] : 1.0f);
            offset[j] = beta ? beta[c] : 0.0f;
        }
    };
    normalise_as<NO_ACTIVATION, V>(x, y, p, columns, parameters, NO_ACTIVATION, 0.0f, 0.0f);
}

#define APPLY(T, S, V)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) group_norm_apply##V##_##S(                                        \
        const T *x, T *y, const float *mean, const float *rstd, const float *gamma, const float *beta, int groups,     \
        i64 rows, i64 stretch, int splits, int columns) {                                                              \
        apply<V>(x, y, mean, rstd, gamma, beta, groups, rows, stretch, splits, columns);                               \
    }
FOR_SINGLE_PACKS(APPLY)

// Gradient, first stage: Σ dy, Σ dy · (x − mean) by sample and channel into partials [N · splits][2][C].
template <int V, class T>
__device__ __forceinline__ void grad_sums(const T *x, const T *dy, const float *mean, double *partials, int groups,
                                          i64 rows, int splits, int columns) {
    Place p = place_of_sums<V, DOT_ROWS>(rows, splits, columns);
    float center[V] = {};
    double dys[V] = {}, dots[V] = {};
    if (p.column < columns) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            center[j] = mean[p.segment * groups + (p.column + j) / (columns / groups)];
        }
    }
    column_dots(x, dy, p, columns, center, dys, dots);
    store_partials(dys, dots, p, columns, partials);
}

#define GRAD_SUMS(T, S, V)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                                \
        group_norm_grad_sums##V##_##S(const T *x, const T *dy, const float *mean, double *partials, int groups,        \
                                      i64 rows, int splits, int columns) {                                             \
        grad_sums<V>(x, dy, mean, partials, groups, rows, splits, columns);                                            \
    }
FOR_SINGLE_PACKS(GRAD_SUMS)

// Gradient, second stage, a warp for each of `sets` = N · groups: table [2][sets] of the group's mean(dy · gamma), and of
// rstd² · mean(dy · gamma · (x − mean)).
extern "C" __global__ void __launch_bounds__(256)
    group_norm_grad_totals(const double *partials, i64 sets, int groups, i64 rows, int splits, int columns,
                           const float *rstd, const float *gamma, float *table) {
    i64 set = thread_index() >> 5;
    if (set >= sets) {
        return;
    }
    int width = columns / groups;
    double dys, dots;
    group_totals(partials, set / groups, (int)(set % groups), splits, columns, width, gamma, dys, dots);
    double n = (double)rows * width, inv = rstd[set];
    if ((threadIdx.x & 31) == 0) {
        table[set] = (float)(dys / n);
        table[sets + set] = (float)(dots * inv * inv / n);
    }
}

// Gradients of gamma and beta from the same partials, by blocks of 8 channels × 128 threads:
// dgamma = Σ over samples of rstd · Σ dy · (x − mean), dbeta = Σ dy.
extern "C" __global__ void __launch_bounds__(1024)
    group_norm_grad_parameters(const double *partials, i64 blocks, int groups, int splits, int columns,
                               const float *rstd, float *dgamma, float *dbeta) {
    int c = total_column();
    double dys = 0.0, dots = 0.0;
    if (c < columns) {
        int group = c / (columns / groups);
#pragma unroll 4
        for (i64 i = threadIdx.y; i < blocks; i += TOTAL_ROWS) {
            dys += partials[i * 2 * columns + c];
            dots += partials[(i * 2 + 1) * columns + c] * rstd[i / splits * groups + group];
        }
    }
    sum_over_y(dys, dots);
    if (threadIdx.y == 0 && c < columns) {
        dgamma[c] = (float)dots;
        dbeta[c] = (float)dys;
    }
}

// Gradient, third stage: dx = (dy · gamma − table[0] − (x − mean) · table[1]) · rstd.
template <int V, class T>
__device__ __forceinline__ void grad_apply(const T *x, const T *dy, T *dx, const float *mean, const float *rstd,
                                           const float *gamma, const float *table, i64 sets, int groups, i64 rows,
                                           i64 stretch, int splits, int columns) {
    Place p = place<V>(rows, stretch, splits, columns);
    if (p.row >= p.end) {
        return;
    }
    auto parameters = [&](float (&center)[V], float (&scale)[V], float (&shift)[V], float (&tilt)[V], float (&factor)[V]) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            int c = p.column + j;
            i64 set = p.segment * groups + c / (columns / groups);
            center[j] = mean[set];
            scale[j] = gamma ? gamma[c] : 1.0f;
            shift[j] = table[set];
            tilt[j] = table[sets + set];
            factor[j] = rstd[set];
        }
    };
    normalise_grad<V>(x, dy, dx, p, columns, parameters);
}

#define GRAD_APPLY(T, S, V)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) group_norm_grad_apply##V##_##S(                                  \
        const T *x, const T *dy, T *dx, const float *mean, const float *rstd, const float *gamma, const float *table, \
        i64 sets, int groups, i64 rows, i64 stretch, int splits, int columns) {                                       \
        grad_apply<V>(x, dy, dx, mean, rstd, gamma, table, sets, groups, rows, stretch, splits, columns);             \
    }
FOR_SINGLE_PACKS(GRAD_APPLY)

// ---- Normalisation over neighbouring channels -----------------------------------------------------------------------

// A thread for an element of x [n], whose last axis has `channels`. s = k + part · Σ x² over the channels from `before` before to
// `behind` behind; y = x · s^exponent.
extern "C" __global__ void __launch_bounds__(256)
    local_response_norm(const float *x, float *y, float *s, i64 n, int channels, int before, int behind, float part, float k,
                        float exponent) {
    for (i64 i = thread_index(); i < n; i += thread_count()) {
        int c = (int)(i % channels);
        int first = max(c - before, 0), last = min(c + behind, channels - 1);
        const float *row = x + (i - c);
        float squares = 0.0f;
        UNROLL(1)
        for (int j = first; j <= last; ++j) {
            squares += row[j] * row[j];
        }
        float sum = k + part * squares;
        s[i] = sum;
        y[i] = row[c] * powf(sum, exponent);
    }
}

// dx = dy · s^exponent − factor · x · Σ dy · x · s^(exponent − 1) over the channels that have this one among theirs.
extern "C" __global__ void __launch_bounds__(256)
    local_response_norm_grad(const float *x, const float *s, const float *dy, float *dx, i64 n, int channels, int before,
                             int behind, float factor, float exponent) {
    for (i64 i = thread_index(); i < n; i += thread_count()) {
        int c = (int)(i % channels);
        int first = max(c - before, 0), last = min(c + behind, channels - 1);
        i64 row = i - c;
        float sum = 0.0f;
        UNROLL(1)
        for (int j = first; j <= last; ++j) {
            sum += dy[row + j] * x[row + j] * powf(s[row + j], exponent - 1.0f);
        }
        dx[i] = dy[i] * powf(s[i], exponent) - factor * x[i] * sum;
    }
}
