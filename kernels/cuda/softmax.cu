// Softmax and its logarithm over the last axis: rows of `length` elements, row-major. rows.cuh tells how rows fall to threads.
#include "rows.cuh"

// y = e^(x − max) / Σ e^(x − max).
template <int TEAM, class T>
__device__ __forceinline__ void forward(const T *x, T *y, i64 rows, int length, bool keep) {
    i64 r = team_index<TEAM>();
    if (r >= rows) {
        return;
    }
    Row<TEAM, T> row = row_of<TEAM>(x, r, length, keep);
    float top = minus_infinity();
    row.first([&](int, float v) { top = fmaxf(top, v); });
    top = team_max<TEAM>(top);
    float sum = 0.0f;
    row.again([&](int i, float v) {
        float e = expf(v - top);
        sum += e;
        if (row.kept) {
            row.kept[i] = e;
        }
    });
    sum = team_sum<TEAM>(sum);
    T *to = y + r * length;
    row.again([&](int i, float v) { to[i] = from_float<T>((row.kept ? v : expf(v - top)) / sum); });
}

#define FORWARD(T, S, TEAM, NAME)                                                               \
    extern "C" __global__ void __launch_bounds__(1024)                                          \
        softmax_##NAME##_##S(const T *x, T *y, i64 rows, int length, int keep) {                \
        forward<TEAM>(x, y, rows, length, keep);                                                \
    }
FOR_TEAMS(FORWARD, float, f32)

// dx = y · (dy − Σ dy · y).
template <int TEAM, class T>
__device__ __forceinline__ void backward(const T *y, const T *dy, T *dx, i64 rows, int length, bool keep) {
    i64 r = team_index<TEAM>();
    if (r >= rows) {
        return;
    }
    Row<TEAM, T> out = row_of<TEAM>(y, r, length, keep, 0, 2), grad = row_of<TEAM>(dy, r, length, keep, 1, 2);
    float dot = 0.0f;
    out.first([&](int i, float v) {
        float g = to_float(grad.x[i]);
        if (keep) {
            grad.kept[i] = g;
        }
        dot += g * v;
    });
    dot = team_sum<TEAM>(dot);
    T *to = dx + r * length;
    out.again([&](int i, float v) {
        float g = keep ? grad.kept[i] : to_float(grad.x[i]);
        to[i] = from_float<T>(v * (g - dot));
    });
}

#define BACKWARD(T, S, TEAM, NAME)                                                                         \
    extern "C" __global__ void __launch_bounds__(1024)                                                     \
        softmax_grad_##NAME##_##S(const T *y, const T *dy, T *dx, i64 rows, int length, int keep) {        \
        backward<TEAM>(y, dy, dx, rows, length, keep);                                                     \
    }
FOR_TEAMS(BACKWARD, float, f32)

// y = x − max − ln Σ e^(x − max).
template <int TEAM, class T>
__device__ __forceinline__ void log_forward(const T *x, T *y, i64 rows, int length, bool keep) {
    i64 r = team_index<TEAM>();
    if (r >= rows) {
        return;
    }
    Row<TEAM, T> row = row_of<TEAM>(x, r, length, keep);
    float top = minus_infinity();
    row.first([&](int, float v) { top = fmaxf(top, v); });
    top = team_max<TEAM>(top);
    // The largest elements' own terms are 1 each, and counted apart: a sum near 1 has few digits of its logarithm.
    float tops = 0.0f, rest = 0.0f;
    row.again([&](int, float v) {
        if (v >= top) {
            tops += 1.0f;
        } else {
            rest += expf(v - top);
        }
    });
    tops = team_sum<TEAM>(tops);
    rest = team_sum<TEAM>(rest);
    float log = log1pf(tops - 1.0f + rest);
    T *to = y + r * length;
    row.again([&](int i, float v) { to[i] = from_float<T>(v - top - log); });
}

#define LOG_FORWARD(T, S, TEAM, NAME)                                                           \
    extern "C" __global__ void __launch_bounds__(1024)                                          \
        log_softmax_##NAME##_##S(const T *x, T *y, i64 rows, int length, int keep) {            \
        log_forward<TEAM>(x, y, rows, length, keep);                                            \
    }
FOR_TEAMS(LOG_FORWARD, float, f32)

// dx = dy − eʸ · Σ dy.
template <int TEAM, class T>
__device__ __forceinline__ void log_backward(const T *y, const T *dy, T *dx, i64 rows, int length, bool keep) {
    i64 r = team_index<TEAM>();
    if (r >= rows) {
        return;
    }
    Row<TEAM, T> grad = row_of<TEAM>(dy, r, length, keep);
    float sum = 0.0f;
    grad.first([&](int, float g) { sum += g; });
    sum = team_sum<TEAM>(sum);
    const T *out = y + r * length;
    T *to = dx + r * length;
    grad.again([&](int i, float g) { to[i] = from_float<T>(g - expf(to_float(out[i])) * sum); });
}

#define LOG_BACKWARD(T, S, TEAM, NAME)                                                                         \
    extern "C" __global__ void __launch_bounds__(1024)                                                         \
        log_softmax_grad_##NAME##_##S(const T *y, const T *dy, T *dx, i64 rows, int length, int keep) {        \
        log_backward<TEAM>(y, dy, dx, rows, length, keep);                                                     \
    }
FOR_TEAMS(LOG_BACKWARD, float, f32)
