// Layer normalisation (Ba et al. 2016): each row of x [rows, length] by itself; gamma, beta [length], statistics [rows].
// All elements are 32-bit floats, but where a cast is part of the operation. rows.cuh tells how rows fall to threads; the
// gradients of gamma and beta go down the columns (columns.cuh).
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
FOR_TEAMS(FORWARD, float, f32)

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
FOR_TEAMS(BACKWARD, float, f32)

// First stage of the parameters' gradients: Σ dy, Σ dy · x̂ by column into partials [gridDim.x][2][length].
template <int V, class T>
__device__ __forceinline__ void parameter_sums(const T *x, const T *dy, const float *mean, const float *rstd,
                                               double *partials, i64 rows, int length) {
    Place p = place_of_sums<V, DOT_ROWS>(rows, gridDim.x, length);
    double dys[V] = {}, dots[V] = {};
    float once[V] = {}, twice[V] = {}, m[DOT_ROWS], inv[DOT_ROWS];
    Pack<T, V> v[DOT_ROWS], g[DOT_ROWS];
    for_batches<DOT_ROWS>(
        p, length,
        [&](i64 at, i64 row, int k) {
            v[k] = *(const Pack<T, V> *)(x + at);
            g[k] = *(const Pack<T, V> *)(dy + at);
            m[k] = mean[row];
            inv[k] = rstd[row];
        },
        [&](int k) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                float d = to_float(g[k].at[j]);
                once[j] += d;
                twice[j] += d * ((to_float(v[k].at[j]) - m[k]) * inv[k]);
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
    store_partials(dys, dots, p, length, partials);
}

#define PARAMETER_SUMS(T, S, V)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                                \
        layer_norm_parameter_sums##V##_##S(const T *x, const T *dy, const float *mean, const float *rstd,               \
                                           double *partials, i64 rows, int length) {                                    \
        parameter_sums<V>(x, dy, mean, rstd, partials, rows, length);                                                   \
    }
FOR_SINGLE_PACKS(PARAMETER_SUMS)

// Second stage, by blocks of 8 columns × 128 threads; dbeta may be null.
extern "C" __global__ void __launch_bounds__(1024)
    layer_norm_parameter_totals(const double *partials, i64 blocks, int length, float *dgamma, float *dbeta) {
    int c = total_column();
    double dys, dots;
    column_totals(partials, blocks, length, c, dys, dots);
    if (threadIdx.y == 0 && c < length) {
        dgamma[c] = (float)dots;
        if (dbeta) {
            dbeta[c] = (float)dys;
        }
    }
}

// ---- Rows of whole packs --------------------------------------------------------------------------------------------

// A warp a row of at most 1024 elements, which it keeps in registers: KEPT elements of a thread, in packs of 16 bytes of x. Many
// rows are best so. What comes in and what goes out may have types of their own: the casts around the operation.
// `WARPS` and `ROWS_OF_WARP` as in crates/engine/src/backend/cuda/lower/layer_norm.rs.
constexpr int KEPT = 32, WARPS = 4, ROWS_OF_WARP = 8, LONGEST = 32 * KEPT;

// Elements of a thread's packs, in an order that all kernels below keep: f(k, c) for the packs from column c on.
template <int N, class F> __device__ __forceinline__ void for_own(int length, F f) {
#pragma unroll
    for (int k = 0; k < KEPT / N; k++) {
        int c = ((int)(threadIdx.x & 31) + 32 * k) * N;
        if (c < length) {
            f(k, c);
        }
    }
}

// A pack of `p`, or of ones if it is null.
template <int N> __device__ __forceinline__ void factors(const float *p, int c, float (&v)[N]) {
#pragma unroll
    for (int j = 0; j < N; j++) {
        v[j] = 1.0f;
    }
    if (p) {
        load_columns(p + c, v);
    }
}

// As `forward`.
template <class T, class Y>
__device__ __forceinline__ void forward_packs(const T *x, const float *gamma, const float *beta, Y *y, float *mean, float *rstd,
                                              i64 rows, int length, float eps, bool centered) {
    constexpr int N = PACK<T>;
    i64 r = thread_index() >> 5;
    if (r >= rows) {
        return;
    }
    float v[KEPT / N][N];
    for_own<N>(length, [&](int k, int c) { load(x + r * length + c, v[k]); });
    float sum = 0.0f;
    for_own<N>(length, [&](int k, int) {
#pragma unroll
        for (int j = 0; j < N; j++) {
            sum += v[k][j];
        }
    });
    float near = centered ? warp_sum(sum) / length : 0.0f;
    float first = 0.0f, second = 0.0f;
    for_own<N>(length, [&](int k, int) {
#pragma unroll
        for (int j = 0; j < N; j++) {
            float d = v[k][j] - near;
            first += d;
            second += d * d;
        }
    });
    first = centered ? warp_sum(first) / length : 0.0f;
    second = warp_sum(second) / length;
    float m = near + first;
    float var = second - first * first;
    float inv = 1.0f / sqrtf((var < 0.0f ? 0.0f : var) + eps);
    if ((threadIdx.x & 31) == 0) {
        mean[r] = m;
        rstd[r] = inv;
    }
    for_own<N>(length, [&](int k, int c) {
        float scale[N], z[N];
        factors(gamma, c, scale);
#pragma unroll
        for (int j = 0; j < N; j++) {
            z[j] = (v[k][j] - m) * inv * scale[j];
        }
        if (beta) {
            float offset[N];
            load_columns(beta + c, offset);
#pragma unroll
            for (int j = 0; j < N; j++) {
                z[j] += offset[j];
            }
        }
        store(y + r * length + c, z);
    });
}

#define FORWARD_PACKS(T, Y, S)                                                                                          \
    extern "C" __global__ void __launch_bounds__(32 * WARPS)                                                            \
        layer_norm_packs_##S(const T *x, const float *gamma, const float *beta, Y *y, float *mean, float *rstd,         \
                             i64 rows, int length, float eps, int centered) {                                          \
        forward_packs(x, gamma, beta, y, mean, rstd, rows, length, eps, centered);                                      \
    }
FORWARD_PACKS(float, float, f32)
FORWARD_PACKS(float, bf16, f32_bf16)
FORWARD_PACKS(float, f16, f32_f16)

// As `backward`, and with `partials` the block's Σ dy, Σ dy · x̂ by column, into partials [gridDim.x][2][length]: 32-bit floats
// within the rows of a warp, doubles from there on.
template <class T, class D>
__device__ __forceinline__ void backward_packs(const T *x, const D *dy, const float *mean, const float *rstd,
                                               const float *gamma, T *dx, double *partials, i64 rows, int length,
                                               bool centered) {
    constexpr int N = PACK<T>;
    __shared__ __align__(16) float sums[WARPS][LONGEST];
    int warp = threadIdx.x >> 5;
    float dys[KEPT / N][N] = {}, dots[KEPT / N][N] = {};
    i64 first = (i64)blockIdx.x * (WARPS * ROWS_OF_WARP) + warp, end = min(first + WARPS * ROWS_OF_WARP - warp, rows);
    UNROLL(1)
    for (i64 r = first; r < end; r += WARPS) {
        float v[KEPT / N][N], g[KEPT / N][N];
        for_own<N>(length, [&](int k, int c) {
            load(x + r * length + c, v[k]);
            load(dy + r * length + c, g[k]);
        });
        float m = mean[r], inv = rstd[r], shift = 0.0f, tilt = 0.0f;
        for_own<N>(length, [&](int k, int c) {
            float scale[N];
            factors(gamma, c, scale);
#pragma unroll
            for (int j = 0; j < N; j++) {
                float d = v[k][j] - m;
                dys[k][j] += g[k][j];
                dots[k][j] += g[k][j] * (d * inv);
                g[k][j] *= scale[j];
                v[k][j] = d;
                shift += g[k][j];
                tilt += g[k][j] * d;
            }
        });
        shift = centered ? warp_sum(shift) / length : 0.0f;
        tilt = warp_sum(tilt) / length * inv * inv;
        for_own<N>(length, [&](int k, int c) {
            float z[N];
#pragma unroll
            for (int j = 0; j < N; j++) {
                z[j] = (g[k][j] - shift - v[k][j] * tilt) * inv;
            }
            store(dx + r * length + c, z);
        });
    }
    if (!partials) {
        return;
    }
    double *to = partials + (i64)blockIdx.x * 2 * length;
    auto join = [&](const float (&own)[KEPT / N][N], double *row) {
        for_own<N>(length, [&](int k, int c) { store(&sums[warp][c], own[k]); });
        __syncthreads();
        for (int c = threadIdx.x; c < length; c += 32 * WARPS) {
            double sum = 0.0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                sum += sums[w][c];
            }
            row[c] = sum;
        }
    };
    join(dys, to);
    __syncthreads();
    join(dots, to + length);
}

#define BACKWARD_PACKS(T, D, S)                                                                                         \
    extern "C" __global__ void __launch_bounds__(32 * WARPS)                                                            \
        layer_norm_grad_packs_##S(const T *x, const D *dy, const float *mean, const float *rstd, const float *gamma,    \
                                  T *dx, double *partials, i64 rows, int length, int centered) {                        \
        backward_packs(x, dy, mean, rstd, gamma, dx, partials, rows, length, centered);                                 \
    }
BACKWARD_PACKS(float, float, f32)
BACKWARD_PACKS(float, bf16, bf16_f32)
BACKWARD_PACKS(float, f16, f16_f32)
