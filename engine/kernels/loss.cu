// Losses and their gradients. Logits [rows, length] are row-major; rows.cuh tells how rows fall to threads. Losses are
// summed in doubles: by thread, by block into partials [gridDim.x], and over the blocks by a second launch, which a
// launch of one block does without.
#include "rows.cuh"

// What a block does with its sum, in all of whose threads `total` is a part.
__device__ __forceinline__ void store_mean(double total, double count, double *partials, float *loss) {
    total = block_sum(total);
    if (threadIdx.x == 0) {
        if (gridDim.x == 1) {
            loss[0] = (float)(total / count);
        } else {
            partials[blockIdx.x] = total;
        }
    }
}

// loss = Σ partials / count; one block.
extern "C" __global__ void __launch_bounds__(256)
    loss_mean(const double *partials, int blocks, double count, float *loss) {
    double total = 0.0;
    for (int i = threadIdx.x; i < blocks; i += blockDim.x) {
        total += partials[i];
    }
    store_mean(total, count, nullptr, loss);
}

// Logarithm of Σ e^(x − top), with `top` the largest element.
template <int TEAM, class T> __device__ __forceinline__ double log_sum(const Row<TEAM, T> &row, float &top) {
    float most = minus_infinity();
    row.first([&](int, float v) { most = fmaxf(most, v); });
    top = most = team_max<TEAM>(most);
    double sum = 0.0;
    row.again([&](int, float v) { sum += expf(v - most); });
    return log(team_sum<TEAM>(sum));
}

// Cross entropy: each row's log-sum-exp, and the mean over rows of
// (1 − smoothing) · (lse − x[target]) + smoothing / length · Σ (lse − x) (Szegedy et al. 2016).
// A target that is no class makes the loss NaN.
template <int TEAM, class T>
__device__ __forceinline__ void cross_entropy(const T *x, const int *targets, float *lse, double *partials, float *loss,
                                              i64 rows, int length, float smoothing, bool keep) {
    double total = 0.0;
    for (i64 r = team_index<TEAM>(); r < rows; r += team_count<TEAM>()) {
        Row<TEAM, T> row = row_of<TEAM>(x, r, length, keep);
        float top;
        double log = log_sum(row, top) + top, sum = 0.0;
        if (smoothing != 0.0f) {
            row.again([&](int, float v) { sum += v; });
            sum = team_sum<TEAM>(sum);
        }
        if (member<TEAM>() == 0) {
            int target = targets[r];
            bool known = target >= 0 && target < length;
            double at = known ? (double)to_float(row.x[target]) : (double)bits_to_float(0x7fc00000u);
            lse[r] = (float)log;
            total += (1.0 - smoothing) * (log - at);
            if (smoothing != 0.0f) {
                total += smoothing * (log - sum / length);
            }
        }
    }
    store_mean(total, (double)rows, partials, loss);
}

#define CROSS_ENTROPY(T, S, TEAM, NAME)                                                                             \
    extern "C" __global__ void __launch_bounds__(1024)                                                              \
        cross_entropy_##NAME##_##S(const T *x, const int *targets, float *lse, double *partials, float *loss,       \
                                   i64 rows, int length, float smoothing, int keep) {                               \
        cross_entropy<TEAM>(x, targets, lse, partials, loss, rows, length, smoothing, keep);                        \
    }
FOR_TEAMS_AND_FLOATS(CROSS_ENTROPY)

// dx = dloss / rows · (softmax(x) − (1 − smoothing) · onehot(target) − smoothing / length). The sum of exponentials is
// made anew: where the net is sure of itself, the rounded log-sum-exp would leave few digits of softmax(x) − 1.
template <int TEAM, class T>
__device__ __forceinline__ void cross_entropy_grad(const T *x, const int *targets, const float *dloss, T *dx, i64 rows,
                                                   int length, float smoothing, bool keep) {
    i64 r = team_index<TEAM>();
    if (r >= rows) {
        return;
    }
    Row<TEAM, T> row = row_of<TEAM>(x, r, length, keep);
    float top;
    float log = (float)log_sum(row, top);
    float factor = dloss[0] / (float)rows, flat = smoothing / (float)length;
    int target = targets[r];
    T *to = dx + r * length;
    row.again([&](int i, float v) {
        float d = expf(v - top - log) - flat;
        to[i] = from_float<T>((i == target ? d - (1.0f - smoothing) : d) * factor);
    });
}

#define CROSS_ENTROPY_GRAD(T, S, TEAM, NAME)                                                                  \
    extern "C" __global__ void __launch_bounds__(1024)                                                        \
        cross_entropy_grad_##NAME##_##S(const T *x, const int *targets, const float *dloss, T *dx, i64 rows,  \
                                        int length, float smoothing, int keep) {                              \
        cross_entropy_grad<TEAM>(x, targets, dloss, dx, rows, length, smoothing, keep);                       \
    }
FOR_TEAMS_AND_FLOATS(CROSS_ENTROPY_GRAD)

// Mean of (x − t)² over n elements.
template <class T>
__device__ __forceinline__ void mse(const T *x, const float *t, double *partials, float *loss, i64 n) {
    double total = 0.0;
#pragma unroll 4
    for (i64 i = thread_index(); i < n; i += thread_count()) {
        double d = to_float(x[i]) - t[i];
        total += d * d;
    }
    store_mean(total, (double)n, partials, loss);
}

// dx = 2 · dloss / n · (x − t).
template <class T>
__device__ __forceinline__ void mse_grad(const T *x, const float *t, const float *dloss, T *dx, i64 n) {
    float factor = (float)(2.0 / (double)n * dloss[0]);
    for (i64 i = thread_index(); i < n; i += thread_count()) {
        dx[i] = from_float<T>(factor * (to_float(x[i]) - t[i]));
    }
}

#define MSE(T, S)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        mse_##S(const T *x, const float *t, double *partials, float *loss, i64 n) {                                    \
        mse(x, t, partials, loss, n);                                                                                  \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        mse_grad_##S(const T *x, const float *t, const float *dloss, T *dx, i64 n) {                                   \
        mse_grad(x, t, dloss, dx, n);                                                                                  \
    }
FOR_FLOATS(MSE)
