// Layer normalisation (Ba et al. 2016): each row of x [rows, length] by itself; gamma, beta [length], statistics [rows].
// rows.cuh tells how rows fall to threads; the gradients of gamma and beta go down the columns (columns.cuh).
#include "columns.cuh"
#include "rows.cuh"

// y = (x − mean) · rstd · gamma + beta; gamma and beta may be null. Unless `centered`, zero stands for the mean.
template <int TEAM, class T>
__device__ __forceinline__ void forward(const T *x, const float *gamma, const float *beta, T *y, float *mean,
                                        float *rstd, i64 rows, int length, float eps, bool keep, bool centered) {
    i64 r = team_index<TEAM>();
    if (r >= rows) {
        return;
    }
    Row<TEAM, T> row = row_of<TEAM>(x, r, length, keep);
    float sum = 0.0f;
    row.first([&](int, float v) { sum += v; });
    float near = centered ? team_sum<TEAM>(sum) / length : 0.0f;
    // About a number near the mean nothing cancels; the small sum of deviations then tells the mean itself.
    float first = 0.0f, second = 0.0f;
    row.again([&](int, float v) {
        float d = v - near;
        first += d;
        second += d * d;
    });
    first = centered ? team_sum<TEAM>(first) / length : 0.0f;
    second = team_sum<TEAM>(second) / length;
    float m = near + first;
    float var = second - first * first;
    float inv = 1.0f / sqrtf((var < 0.0f ? 0.0f : var) + eps);
    if (member<TEAM>() == 0) {
        mean[r] = m;
        rstd[r] = inv;
    }
    T *to = y + r * length;
    row.again([&](int i, float v) {
        float z = (v - m) * inv;
        to[i] = from_float<T>(z * (gamma ? gamma[i] : 1.0f) + (beta ? beta[i] : 0.0f));
    });
}

#define FORWARD(T, S, TEAM, NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(1024)                                                          \
        layer_norm_##NAME##_##S(const T *x, const float *gamma, const float *beta, T *y, float *mean,           \
                                float *rstd, i64 rows, int length, float eps, int keep, int centered) {         \
        forward<TEAM>(x, gamma, beta, y, mean, rstd, rows, length, eps, keep, centered);                        \
    }
FOR_TEAMS_AND_FLOATS(FORWARD)

// dx = rstd · (g − mean(g) − x̂ · mean(g · x̂)) with g = dy · gamma, x̂ = (x − mean) · rstd; gamma may be null. Unless
// `centered`, without the second term.
template <int TEAM, class T>
__device__ __forceinline__ void backward(const T *x, const T *dy, const float *mean, const float *rstd,
                                         const float *gamma, T *dx, i64 rows, int length, bool keep, bool centered) {
    i64 r = team_index<TEAM>();
    if (r >= rows) {
        return;
    }
    float m = mean[r], inv = rstd[r];
    Row<TEAM, T> row = row_of<TEAM>(x, r, length, keep, 0, 2), grad = row_of<TEAM>(dy, r, length, keep, 1, 2);
    float shift = 0.0f, tilt = 0.0f;
    row.first([&](int i, float v) {
        float g = to_float(grad.x[i]) * (gamma ? gamma[i] : 1.0f);
        if (keep) {
            grad.kept[i] = g;
        }
        shift += g;
        tilt += g * (v - m);
    });
    shift = centered ? team_sum<TEAM>(shift) / length : 0.0f;
    tilt = team_sum<TEAM>(tilt) / length * inv * inv;
    T *to = dx + r * length;
    row.again([&](int i, float v) {
        float g = keep ? grad.kept[i] : to_float(grad.x[i]) * (gamma ? gamma[i] : 1.0f);
        to[i] = from_float<T>((g - shift - (v - m) * tilt) * inv);
    });
}

#define BACKWARD(T, S, TEAM, NAME)                                                                                 \
    extern "C" __global__ void __launch_bounds__(1024)                                                             \
        layer_norm_grad_##NAME##_##S(const T *x, const T *dy, const float *mean, const float *rstd,                \
                                     const float *gamma, T *dx, i64 rows, int length, int keep, int centered) {    \
        backward<TEAM>(x, dy, mean, rstd, gamma, dx, rows, length, keep, centered);                                \
    }
FOR_TEAMS_AND_FLOATS(BACKWARD)

// First stage of the parameters' gradients: Σ dy, Σ dy · x̂ by column into partials [gridDim.x][2][length].
template <int V, class T>
__device__ __forceinline__ void parameter_sums(const T *x, const T *dy, const float *mean, const float *rstd,
                                               double *partials, i64 rows, i64 stretch, int length) {
    Place p = place<V>(rows, stretch, gridDim.x, length);
    const int D = ROWS_AT_ONCE / 2;
    double dys[V] = {}, dots[V] = {};
    for (i64 row = p.row; row < p.end; row += D * p.step) {
        float v[D][V], g[D][V], m[D], inv[D];
        int n = load_rows(x, p, row, length, v);
        load_rows(dy, p, row, length, g);
#pragma unroll
        for (int k = 0; k < D; k++) {
            m[k] = k < n ? mean[row + k * p.step] : 0.0f;
            inv[k] = k < n ? rstd[row + k * p.step] : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < V; j++) {
            float first = 0.0f, second = 0.0f;
#pragma unroll
            for (int k = 0; k < D; k++) {
                first += k < n ? g[k][j] : 0.0f;
                second += k < n ? g[k][j] * ((v[k][j] - m[k]) * inv[k]) : 0.0f;
            }
            dys[j] += first;
            dots[j] += second;
        }
    }
    store_partials(dys, dots, p, length, partials);
}

#define PARAMETER_SUMS(T, S, V)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256)                                                                   \
        layer_norm_parameter_sums##V##_##S(const T *x, const T *dy, const float *mean, const float *rstd,               \
                                           double *partials, i64 rows, i64 stretch, int length) {                       \
        parameter_sums<V>(x, dy, mean, rstd, partials, rows, stretch, length);                                          \
    }
FOR_PACKS(PARAMETER_SUMS)

// Second stage, by blocks of 32 columns × 32 threads; dbeta may be null.
extern "C" __global__ void __launch_bounds__(1024)
    layer_norm_parameter_totals(const double *partials, i64 blocks, int length, float *dgamma, float *dbeta) {
    int c = blockIdx.x * 32 + threadIdx.x;
    double dys, dots;
    column_totals(partials, blocks, length, c, dys, dots);
    if (threadIdx.y == 0 && c < length) {
        dgamma[c] = (float)dots;
        if (dbeta) {
            dbeta[c] = (float)dys;
        }
    }
}
