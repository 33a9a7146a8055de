// Losses and their gradients. Logits [rows, length] are row-major; rows.cuh tells how rows fall to threads. Losses are
// summed in doubles: by thread, by block into partials [gridDim.x][2], and over the blocks by a second launch, which a
// launch of one block does without.
#include "rows.cuh"

// What a block does with its sums, of which each thread has parts: the losses, and the weights of what they are the mean
// of. A mean over `count` elements, where that is not 0, does without the weights; the batch then weighs `items`. Otherwise it
// weighs `items` times the weights: 1 for rows, and for numbers that have weights one by their number in a sample.
__device__ __forceinline__ void store_mean(double total, double weights, double count, double items, double *partials,
                                           float *loss, float *weight) {
    total = block_sum(total);
    if (count == 0.0) {
        weights = block_sum(weights);
    }
    if (threadIdx.x > 0) {
        return;
    }
    if (gridDim.x > 1) {
        partials[2 * (i64)blockIdx.x] = total;
        partials[2 * (i64)blockIdx.x + 1] = weights;
        return;
    }
    double by = count == 0.0 ? weights : count;
    loss[0] = by > 0.0 ? (float)(total / by) : 0.0f;
    weight[0] = (float)(count == 0.0 ? weights * items : items);
}

// Second stage; one block.
extern "C" __global__ void __launch_bounds__(256)
    loss_mean(const double *partials, int blocks, double count, double items, float *loss, float *weight) {
    double total = 0.0, weights = 0.0;
    for (int i = threadIdx.x; i < blocks; i += blockDim.x) {
        total += partials[2 * i];
        weights += partials[2 * i + 1];
    }
    store_mean(total, weights, count, items, nullptr, loss, weight);
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

// As crates/engine/src/graph/op/loss.rs numbers them.
enum RowLoss { CROSS_ENTROPY = 0, FOCAL = 1, NLL = 2 };

// A row's or a number's own weight; 1 where there are none.
__device__ __forceinline__ float own_weight(const float *own, i64 i) {
    return own ? own[i] : 1.0f;
}

// What is the same for all rows of a cross entropy: the label smoothing, the target that does not count, the weights of the
// classes (null: all are 1) and their sum, the form of the loss and its parameter.
struct Rule {
    float smoothing;
    int ignored;
    const float *weights;
    float all_weights;
    int form;
    float gamma;

    // By which the loss of a row is multiplied, for the logarithm of the target's probability.
    __device__ __forceinline__ float focus(float log) const {
        return form == FOCAL && gamma > 0.0f ? powf(-expm1f(log), gamma) : 1.0f;
    }

    // By which its gradient is. Of what is surely right nothing is left.
    __device__ __forceinline__ float focus_slope(float log) const {
        if (form != FOCAL || gamma == 0.0f) {
            return 1.0f;
        }
        float off = -expm1f(log);
        return off == 0.0f ? 0.0f : powf(off, gamma) - gamma * powf(off, gamma - 1.0f) * expf(log) * log;
    }

    __device__ __forceinline__ float weight(bool known, int target) const {
        return weights && known ? weights[target] : 1.0f;
    }
};

// Cross entropy: the weighted mean over the rows that count of
// (1 − smoothing) · w[target] · (lse − x[target]) + smoothing / length · Σ w · (lse − x) (Szegedy et al. 2016).
// A target that is no class makes the loss NaN.
template <int TEAM, class T>
__device__ __forceinline__ void cross_entropy(const T *x, const int *targets, const float *own, Rule rule,
                                              double *partials, float *loss, float *weight, i64 rows, int length,
                                              bool keep) {
    double total = 0.0, weights = 0.0;
    double smoothing = rule.smoothing;
    for (i64 r = team_index<TEAM>(); r < rows; r += team_count<TEAM>()) {
        int target = targets[r];
        if (target == rule.ignored) {
            continue;
        }
        Row<TEAM, T> row = row_of<TEAM>(x, r, length, keep);
        float top;
        double log = rule.form == NLL ? 0.0 : log_sum(row, top) + top, sum = 0.0;
        if (rule.smoothing != 0.0f) {
            row.again([&](int i, float v) { sum += rule.weights ? (double)rule.weights[i] * v : (double)v; });
            sum = team_sum<TEAM>(sum);
        }
        if (member<TEAM>() == 0) {
            bool known = target >= 0 && target < length;
            double at = known ? (double)to_float(row.x[target]) : (double)bits_to_float(0x7fc00000u);
            double w = rule.weight(known, target), share = w, of_row = own_weight(own, r);
            if (rule.form == FOCAL) {
                share *= rule.focus((float)(at - log));
            }
            total += of_row * ((1.0 - smoothing) * (log - at) * share);
            if (rule.smoothing != 0.0f) {
                double flat = rule.weights ? (rule.all_weights * log - sum) / length : log - sum / length;
                total += of_row * (smoothing * flat);
            }
            weights += of_row * w;
        }
    }
    store_mean(total, weights, 0.0, 1.0, partials, loss, weight);
}

#define CROSS_ENTROPY(T, S, TEAM, NAME)                                                                                \
    extern "C" __global__ void __launch_bounds__(1024)                                                                 \
        cross_entropy_##NAME##_##S(const T *x, const int *targets, const float *own, double *partials, float *loss,    \
                                   float *weight, i64 rows, int length, float smoothing, int ignored,                  \
                                   const float *weights, float all_weights, int form, float gamma, int keep) {         \
        Rule rule = {smoothing, ignored, weights, all_weights, form, gamma};                                           \
        cross_entropy<TEAM>(x, targets, own, rule, partials, loss, weight, rows, length, keep);                        \
    }
FOR_TEAMS_AND_FLOATS(CROSS_ENTROPY)

// dx = dloss / weight · ((1 − smoothing) · w[target] · (softmax(x) − onehot(target)) + smoothing / length · (Σ w ·
// softmax(x) − w)), and 0 for rows that do not count. The sum of exponentials is made anew: where the net is sure of itself,
// the rounded log-sum-exp would leave few digits of softmax(x) − 1.
template <int TEAM, class T>
__device__ __forceinline__ void cross_entropy_grad(const T *x, const int *targets, const float *own, Rule rule,
                                                   const float *weight, const float *dloss, T *dx, i64 rows, int length,
                                                   bool keep) {
    i64 r = team_index<TEAM>();
    if (r >= rows) {
        return;
    }
    int target = targets[r];
    T *to = dx + r * length;
    if (target == rule.ignored) {
        for (int i = member<TEAM>(); i < length; i += members<TEAM>()) {
            to[i] = from_float<T>(0.0f);
        }
        return;
    }
    bool known = target >= 0 && target < length;
    float factor = weight[0] > 0.0f ? own_weight(own, r) * (dloss[0] / weight[0]) : 0.0f;
    float flat = rule.smoothing / (float)length;
    float hot = (1.0f - rule.smoothing) * rule.weight(known, target);
    if (rule.form == NLL) {
        for (int i = member<TEAM>(); i < length; i += members<TEAM>()) {
            to[i] = from_float<T>(i == target ? -hot * factor : 0.0f);
        }
        return;
    }
    Row<TEAM, T> row = row_of<TEAM>(x, r, length, keep);
    float top;
    float log = (float)log_sum(row, top);
    float at = known ? to_float(row.x[target]) - top - log : 0.0f;
    if (rule.form == FOCAL && known) {
        factor *= rule.focus_slope(at);
    }
    float share = hot + flat * rule.all_weights;
    row.again([&](int i, float v) {
        float p = expf(v - top - log);
        to[i] = from_float<T>((rule.weights ? p * share - flat * rule.weights[i] : p - flat) * factor);
    });
    // The target's by the thread that wrote it: p − 1 would have few digits where the net is sure of itself.
    if (known && member<TEAM>() == target % members<TEAM>()) {
        float off = expm1f(at), rest = rule.smoothing - flat;
        if (rule.weights) {
            off *= hot;
            rest = flat * (rule.all_weights * expf(at) - rule.weights[target]);
        }
        to[target] = from_float<T>((off + rest) * factor);
    }
}

#define CROSS_ENTROPY_GRAD(T, S, TEAM, NAME)                                                                           \
    extern "C" __global__ void __launch_bounds__(1024)                                                                 \
        cross_entropy_grad_##NAME##_##S(const T *x, const int *targets, const float *own, const float *weight,         \
                                        const float *dloss, T *dx, i64 rows, int length, float smoothing, int ignored, \
                                        const float *weights, float all_weights, int form, float gamma, int keep) {    \
        Rule rule = {smoothing, ignored, weights, all_weights, form, gamma};                                           \
        cross_entropy_grad<TEAM>(x, targets, own, rule, weight, dloss, dx, rows, length, keep);                        \
    }
FOR_TEAMS_AND_FLOATS(CROSS_ENTROPY_GRAD)

// ---- Cross entropy against the shares of all classes ----------------------------------------------------------------

// What counts of class i of a row: its share, smoothed and weighted.
__device__ __forceinline__ float counted(const float *shares, const float *weights, float smoothing, int length, int i) {
    float smoothed = (1.0f - smoothing) * shares[i] + smoothing / (float)length;
    return weights ? smoothed * weights[i] : smoothed;
}

// The mean over all rows of Σ counted · (lse − x), from the largest element on down.
template <int TEAM, class T>
__device__ __forceinline__ void soft_cross_entropy(const T *x, const float *targets, const float *own, float smoothing,
                                                   const float *weights, double *partials, float *loss, float *weight,
                                                   i64 rows, int length, bool keep) {
    double total = 0.0, all_own = 0.0;
    for (i64 r = team_index<TEAM>(); r < rows; r += team_count<TEAM>()) {
        const float *shares = targets + r * length;
        Row<TEAM, T> row = row_of<TEAM>(x, r, length, keep);
        float top;
        double log = log_sum(row, top), all = 0.0, below = 0.0;
        // Not unrolled: the sums would take more registers than a thread of a large block has.
#pragma unroll 1
        for (int i = member<TEAM>(); i < length; i += members<TEAM>()) {
            float count = counted(shares, weights, smoothing, length, i);
            all += count;
            below += (double)count * (top - (row.kept ? row.kept[i] : to_float(row.x[i])));
        }
        all = team_sum<TEAM>(all);
        below = team_sum<TEAM>(below);
        if (member<TEAM>() == 0) {
            double of_row = own_weight(own, r);
            total += of_row * (log * all + below);
            all_own += of_row;
        }
    }
    store_mean(total, all_own, own ? 0.0 : (double)rows, own ? 1.0 : (double)rows, partials, loss, weight);
}

// dx = dloss / weight · (softmax(x) · Σ counted − counted).
template <int TEAM, class T>
__device__ __forceinline__ void soft_cross_entropy_grad(const T *x, const float *targets, const float *own,
                                                        float smoothing, const float *weights, const float *weight,
                                                        const float *dloss, T *dx, i64 rows, int length, bool keep) {
    i64 r = team_index<TEAM>();
    if (r >= rows) {
        return;
    }
    const float *shares = targets + r * length;
    T *to = dx + r * length;
    Row<TEAM, T> row = row_of<TEAM>(x, r, length, keep);
    float top;
    float log = (float)log_sum(row, top);
    double sum = 0.0;
    row.again([&](int i, float) { sum += counted(shares, weights, smoothing, length, i); });
    float all = (float)team_sum<TEAM>(sum);
    float factor = weight[0] > 0.0f ? own_weight(own, r) * (dloss[0] / weight[0]) : 0.0f;
    row.again([&](int i, float v) {
        float p = expf(v - top - log);
        to[i] = from_float<T>((p * all - counted(shares, weights, smoothing, length, i)) * factor);
    });
}

#define SOFT_CROSS_ENTROPY(T, S, TEAM, NAME)                                                                           \
    extern "C" __global__ void __launch_bounds__(1024)                                                                 \
        soft_cross_entropy_##NAME##_##S(const T *x, const float *targets, const float *own, double *partials,          \
                                        float *loss, float *weight, i64 rows, int length, float smoothing,             \
                                        const float *weights, int keep) {                                              \
        soft_cross_entropy<TEAM>(x, targets, own, smoothing, weights, partials, loss, weight, rows, length, keep);     \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(1024)                                                                 \
        soft_cross_entropy_grad_##NAME##_##S(const T *x, const float *targets, const float *own, const float *weight,  \
                                             const float *dloss, T *dx, i64 rows, int length, float smoothing,         \
                                             const float *weights, int keep) {                                         \
        soft_cross_entropy_grad<TEAM>(x, targets, own, smoothing, weights, weight, dloss, dx, rows, length, keep);     \
    }
FOR_TEAMS_AND_FLOATS(SOFT_CROSS_ENTROPY)

// ---- The mean of a function of prediction and target ----------------------------------------------------------------

// As crates/engine/src/backend/cuda/lower/loss.rs numbers them; `p` is the parameter that some have.
enum Elementwise {
    MSE = 0, L1 = 1, SMOOTH_L1 = 2, HUBER = 3, BCE_WITH_LOGITS = 4, QUANTILE = 5, POISSON_NLL = 6, GAMMA_NLL = 7, TWEEDIE = 8
};

// What is added to the mean of a distribution of positive numbers.
#define LEAST_MEAN 1e-8f

__device__ __forceinline__ double element_loss(int kind, float p, float x, float t) {
    double d = x - t, size = fabs(d);
    switch (kind) {
    case MSE: return d * d;
    case L1: return size;
    case SMOOTH_L1: return size < p ? 0.5 * d * d / p : size - 0.5 * p;
    case HUBER: return size <= p ? 0.5 * d * d : p * (size - 0.5 * p);
    case QUANTILE: return d < 0.0 ? -p * d : (1.0f - p) * d;
    case POISSON_NLL: return x - (double)t * logf(x + LEAST_MEAN);
    case GAMMA_NLL: return logf(x + LEAST_MEAN) + t / (x + LEAST_MEAN);
    case TWEEDIE: {
        float m = x + LEAST_MEAN;
        double power = powf(m, 1.0f - p);
        return m * power / (2.0f - p) - t * power / (1.0f - p);
    }
    default: return fmaxf(x, 0.0f) - (double)x * t + log1pf(expf(-fabsf(x)));
    }
}

// The derivative by x.
__device__ __forceinline__ float element_slope(int kind, float p, float x, float t) {
    float d = x - t, sign = d > 0.0f ? 1.0f : d < 0.0f ? -1.0f : d;
    switch (kind) {
    case MSE: return 2.0f * d;
    case L1: return sign;
    case SMOOTH_L1: return fabsf(d) < p ? d / p : sign;
    case HUBER: return fabsf(d) <= p ? d : p * sign;
    case QUANTILE: return d < 0.0f ? -p : (1.0f - p) * sign;
    case POISSON_NLL: return 1.0f - t / (x + LEAST_MEAN);
    case GAMMA_NLL: return (x + LEAST_MEAN - t) / ((x + LEAST_MEAN) * (x + LEAST_MEAN));
    case TWEEDIE: return powf(x + LEAST_MEAN, -p) * (x + LEAST_MEAN - t);
    default: return sigmoid(x) - t;
    }
}

// The mean over n elements: where they have no weights, `count` is their number and `items` what the batch weighs.
template <class T>
__device__ __forceinline__ void elementwise(const T *x, const float *t, const float *own, double *partials, float *loss,
                                            float *weight, i64 n, double count, double items, int kind, float p) {
    double total = 0.0, weights = 0.0;
#pragma unroll 4
    for (i64 i = thread_index(); i < n; i += thread_count()) {
        double of_number = own_weight(own, i);
        total += of_number * element_loss(kind, p, to_float(x[i]), t[i]);
        weights += of_number;
    }
    store_mean(total, weights, count, items, partials, loss, weight);
}

// By which slopes are multiplied: dloss / n, or where numbers have weights dloss by the sum of these, which is what the batch
// weighs by `items`.
__device__ __forceinline__ double slope_factor(const float *own, const float *weight, const float *dloss, i64 n,
                                               double items) {
    if (!own) {
        return 1.0 / (double)n * dloss[0];
    }
    return weight[0] > 0.0f ? dloss[0] / (weight[0] / items) : 0.0;
}

// dx = factor · derivative.
template <class T>
__device__ __forceinline__ void elementwise_grad(const T *x, const float *t, const float *own, const float *weight,
                                                 const float *dloss, T *dx, i64 n, double items, int kind, float p) {
    float factor = (float)slope_factor(own, weight, dloss, n, items);
    for (i64 i = thread_index(); i < n; i += thread_count()) {
        dx[i] = from_float<T>(factor * own_weight(own, i) * element_slope(kind, p, to_float(x[i]), t[i]));
    }
}

#define ELEMENTWISE(T, S)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        elementwise_loss_##S(const T *x, const float *t, const float *own, double *partials, float *loss,              \
                             float *weight, i64 n, double count, double items, int kind, float p) {                    \
        elementwise(x, t, own, partials, loss, weight, n, count, items, kind, p);                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        elementwise_loss_grad_##S(const T *x, const float *t, const float *own, const float *weight,                   \
                                  const float *dloss, T *dx, i64 n, double items, int kind, float p) {                 \
        elementwise_grad(x, t, own, weight, dloss, dx, n, items, kind, p);                                             \
    }
FOR_FLOATS(ELEMENTWISE)

// ---- Binary cross-entropy in which elements weigh differently --------------------------------------------------------

// What a yes weighs, for each of `labels` labels or (null) 1 for all; the parameters of a focal loss, of which alpha is
// negative where there is none.
struct Binary {
    const float *pos_weight;
    int labels;
    float alpha, gamma;
};

// The loss of element i (crates/engine/src/graph/op/loss.rs has the formula), and its derivative by x.
__device__ __forceinline__ float2 weighted_binary(const Binary &rule, i64 i, float x, float t) {
    float weight = rule.pos_weight ? rule.pos_weight[i % rule.labels] : 1.0f;
    float e = expf(-fabsf(x)), tail = log1pf(e);
    // The larger and the smaller of sigmoid(x) and sigmoid(-x).
    float large = 1.0f / (1.0f + e), small = e / (1.0f + e);
    float yes = x >= 0.0f ? large : small, no = x >= 0.0f ? small : large;
    float entropy = weight * t * (fmaxf(-x, 0.0f) + tail) + (1.0f - t) * (fmaxf(x, 0.0f) + tail);
    float slope = (1.0f - t) * yes - weight * t * no;
    float share = rule.alpha < 0.0f ? 1.0f : rule.alpha * t + (1.0f - rule.alpha) * (1.0f - t);
    if (rule.gamma != 0.0f) {
        float off = t * no + (1.0f - t) * yes;
        float power = powf(off, rule.gamma);
        float bend = off == 0.0f ? 0.0f : rule.gamma * power / off * yes * no * (1.0f - 2.0f * t) * entropy;
        slope = power * slope + bend;
        entropy *= power;
    }
    return make_float2(share * entropy, share * slope);
}

#define WEIGHTED_BINARY(T, S)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        weighted_binary_##S(const T *x, const float *t, const float *own, double *partials, float *loss,               \
                            float *weight, i64 n, double count, double items, const float *pos_weight, int labels,     \
                            float alpha, float gamma) {                                                                \
        Binary rule = {pos_weight, labels, alpha, gamma};                                                              \
        double total = 0.0, weights = 0.0;                                                                             \
        for (i64 i = thread_index(); i < n; i += thread_count()) {                                                     \
            double of_number = own_weight(own, i);                                                                     \
            total += of_number * weighted_binary(rule, i, to_float(x[i]), t[i]).x;                                     \
            weights += of_number;                                                                                      \
        }                                                                                                              \
        store_mean(total, weights, count, items, partials, loss, weight);                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        weighted_binary_grad_##S(const T *x, const float *t, const float *own, const float *weight,                    \
                                 const float *dloss, T *dx, i64 n, double items, const float *pos_weight, int labels,  \
                                 float alpha, float gamma) {                                                           \
        Binary rule = {pos_weight, labels, alpha, gamma};                                                              \
        float factor = (float)slope_factor(own, weight, dloss, n, items);                                              \
        for (i64 i = thread_index(); i < n; i += thread_count()) {                                                     \
            float slope = weighted_binary(rule, i, to_float(x[i]), t[i]).y;                                            \
            dx[i] = from_float<T>(factor * own_weight(own, i) * slope);                                                \
        }                                                                                                              \
    }
FOR_FLOATS(WEIGHTED_BINARY)
