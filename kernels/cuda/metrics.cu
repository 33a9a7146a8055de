// Running sums of metrics: doubles totals [8], of which crates/engine/src/graph/op/metrics.rs names the places. A batch's counts and
// errors are summed by block into partials [gridDim.x][2] and added by a second launch, which a launch of one block does
// without. A loss that is not finite is counted, and its batch left out.
#include "rows.cuh"

enum Slot { LOSS = 0, WEIGHT = 1, CORRECT = 2, ABS_ERROR = 3, SQUARED_ERROR = 4, ITEMS = 5, NOT_FINITE = 6 };

// Adds the sums of one batch, in all threads of the one block that runs: if `elements` is 0, `a` is what is right of `b`
// items; else they are the absolute and the squared error of so many.
__device__ __forceinline__ void add_batch(double a, double b, const float *loss, const float *weight, double elements,
                                          double *totals) {
    if (threadIdx.x > 0) {
        return;
    }
    if (!is_finite(loss[0])) {
        totals[NOT_FINITE] += 1.0;
        return;
    }
    totals[LOSS] += (double)loss[0] * weight[0];
    totals[WEIGHT] += weight[0];
    if (elements == 0.0) {
        totals[CORRECT] += a;
        totals[ITEMS] += b;
    } else {
        totals[ABS_ERROR] += a;
        totals[SQUARED_ERROR] += b;
        totals[ITEMS] += elements;
    }
}

// What a block does with its sums, of which each thread has a part.
__device__ __forceinline__ void store_sums(double a, double b, const float *loss, const float *weight, double elements,
                                           double *partials, double *totals) {
    a = block_sum(a);
    b = block_sum(b);
    if (gridDim.x == 1) {
        add_batch(a, b, loss, weight, elements, totals);
    } else if (threadIdx.x == 0) {
        partials[2 * (i64)blockIdx.x] = a;
        partials[2 * (i64)blockIdx.x + 1] = b;
    }
}

// Second stage; one block.
extern "C" __global__ void __launch_bounds__(256)
    metrics_totals(const double *partials, int blocks, const float *loss, const float *weight, double elements,
                   double *totals) {
    double a = 0.0, b = 0.0;
    for (int i = threadIdx.x; i < blocks; i += blockDim.x) {
        a += partials[2 * i];
        b += partials[2 * i + 1];
    }
    store_sums(a, b, loss, weight, elements, nullptr, totals);
}

// Of the rows of x [rows, length] whose target is not `ignored`, if that is to be heeded: how many, and how many have their
// largest element where the target says; the first of equals counts.
template <int TEAM, class T>
__device__ __forceinline__ void accuracy(const T *x, const int *targets, const float *loss, const float *weight,
                                         double *partials, double *totals, i64 rows, int length, int ignored, bool heed) {
    double right = 0.0, items = 0.0;
    for (i64 r = team_index<TEAM>(); r < rows; r += team_count<TEAM>()) {
        const T *row = x + r * length;
        int target = targets[r];
        if (heed && target == ignored) {
            continue;
        }
        bool known = target >= 0 && target < length;
        float best = to_float(row[known ? target : 0]);
        int larger = known ? 0 : 1;
        for (int i = member<TEAM>(); i < length; i += members<TEAM>()) {
            float v = to_float(row[i]);
            // Written so that NaN is never right.
            larger += i == target || (i < target ? v < best : v <= best) ? 0 : 1;
        }
        bool is_right = team_sum<TEAM>(larger) == 0;
        if (member<TEAM>() == 0) {
            right += is_right ? 1.0 : 0.0;
            items += 1.0;
        }
    }
    store_sums(right, items, loss, weight, 0.0, partials, totals);
}

#define ACCURACY(T, S, TEAM, NAME)                                                                                   \
    extern "C" __global__ void __launch_bounds__(1024)                                                               \
        accuracy_##NAME##_##S(const T *x, const int *targets, const float *loss, const float *weight,                \
                              double *partials, double *totals, i64 rows, int length, int ignored, int heed) {       \
        accuracy<TEAM>(x, targets, loss, weight, partials, totals, rows, length, ignored, heed);                     \
    }
FOR_TEAMS_AND_FLOATS(ACCURACY)

// Of n elements, how many logits are on their target's side.
template <class T>
__device__ __forceinline__ void binary_accuracy(const T *x, const float *t, const float *loss, const float *weight,
                                                double *partials, double *totals, i64 n) {
    double right = 0.0, items = 0.0;
    for (i64 i = thread_index(); i < n; i += thread_count()) {
        right += (to_float(x[i]) > 0.0f) == (t[i] > 0.5f) ? 1.0 : 0.0;
        items += 1.0;
    }
    store_sums(right, items, loss, weight, 0.0, partials, totals);
}

// Σ |x − t| and Σ (x − t)² over n elements.
template <class T>
__device__ __forceinline__ void errors(const T *x, const float *t, const float *loss, const float *weight, double *partials,
                                       double *totals, i64 n) {
    double absolute = 0.0, squared = 0.0;
#pragma unroll 4
    for (i64 i = thread_index(); i < n; i += thread_count()) {
        double d = to_float(x[i]) - t[i];
        absolute += fabs(d);
        squared += d * d;
    }
    store_sums(absolute, squared, loss, weight, (double)n, partials, totals);
}

#define ELEMENTS(T, S)                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        binary_accuracy_##S(const T *x, const float *t, const float *loss, const float *weight, double *partials,      \
                            double *totals, i64 n) {                                                                   \
        binary_accuracy(x, t, loss, weight, partials, totals, n);                                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        errors_##S(const T *x, const float *t, const float *loss, const float *weight, double *partials,               \
                   double *totals, i64 n) {                                                                            \
        errors(x, t, loss, weight, partials, totals, n);                                                               \
    }
FOR_FLOATS(ELEMENTS)

// ---- Counts of classes ----------------------------------------------------------------------------------------------

// Places in the counts of a batch, as crates/engine/src/graph/op/class_counts.rs has them: of the ranks of targets, three for each
// class, and of the pairs of classes.
enum { RANKS = 10 };

__device__ __forceinline__ void count_class(u32 *counts, int predicted, int target) {
    if (predicted == target) {
        atomicAdd(&counts[RANKS + 3 * target], 1u);
    }
    atomicAdd(&counts[RANKS + 3 * predicted + 1], 1u);
    atomicAdd(&counts[RANKS + 3 * target + 2], 1u);
}

// Of the rows of x [rows, length] whose target is a class and not `ignored`, if that is to be heeded. Whole numbers, so that
// the order of the additions does not matter.
template <int TEAM, class T>
__device__ __forceinline__ void class_counts(const T *x, const int *targets, u32 *counts, i64 rows, int length, int ignored,
                                             bool heed, bool matrix) {
    for (i64 r = team_index<TEAM>(); r < rows; r += team_count<TEAM>()) {
        const T *row = x + r * length;
        int target = targets[r];
        if ((heed && target == ignored) || target < 0 || target >= length) {
            continue;
        }
        float at = to_float(row[target]), most = minus_infinity();
        int rank = 0;
        for (int i = member<TEAM>(); i < length; i += members<TEAM>()) {
            float v = to_float(row[i]);
            rank += v > at || (v == at && i < target) ? 1 : 0;
            most = fmaxf(most, v);
        }
        rank = team_sum<TEAM>(rank);
        most = team_max<TEAM>(most);
        // The number of elements is exact as a float, and the first of the largest has the largest negative.
        float first = -(float)length;
        for (int i = member<TEAM>(); i < length; i += members<TEAM>()) {
            first = to_float(row[i]) == most ? fmaxf(first, -(float)i) : first;
        }
        int predicted = (int)-team_max<TEAM>(first);
        if (member<TEAM>() == 0 && predicted < length) {
            if (rank < RANKS) {
                atomicAdd(&counts[rank], 1u);
            }
            count_class(counts, predicted, target);
            if (matrix) {
                atomicAdd(&counts[RANKS + 3 * (i64)length + (i64)target * length + predicted], 1u);
            }
        }
    }
}

#define CLASS_COUNTS(T, S, TEAM, NAME)                                                                                 \
    extern "C" __global__ void __launch_bounds__(1024)                                                                 \
        class_counts_##NAME##_##S(const T *x, const int *targets, u32 *counts, i64 rows, int length, int ignored,      \
                                  int heed, int matrix) {                                                              \
        class_counts<TEAM>(x, targets, counts, rows, length, ignored, heed, matrix);                                   \
    }
FOR_TEAMS(CLASS_COUNTS, float, f32)

// Of n elements of which each `labels` are of one item: three counts for each label.
extern "C" __global__ void __launch_bounds__(256)
    label_counts_f32(const float *x, const float *t, u32 *counts, i64 n, int labels) {
    for (i64 i = thread_index(); i < n; i += thread_count()) {
        u32 *of = counts + RANKS + 3 * (i % labels);
        bool predicted = x[i] > 0.0f, is = t[i] > 0.5f;
        if (predicted && is) {
            atomicAdd(&of[0], 1u);
        }
        if (predicted) {
            atomicAdd(&of[1], 1u);
        }
        if (is) {
            atomicAdd(&of[2], 1u);
        }
    }
}

// Adds a batch's n counts to the running ones, unless its loss is not finite.
extern "C" __global__ void __launch_bounds__(256)
    add_counts(const u32 *counts, const float *loss, double *totals, i64 n) {
    i64 i = thread_index();
    if (i < n && is_finite(loss[0])) {
        totals[i] += counts[i];
    }
}

// ---- Sums for each output of a regression ---------------------------------------------------------------------------

// Of n elements of which element i is of the output i mod `outputs`: five sums for each, as crates/engine/src/graph/op/error_sums.rs
// has them. A block has every gridDim.x-th output, and adds in one order.
extern "C" __global__ void __launch_bounds__(256)
    error_sums_f32(const float *x, const float *t, const float *loss, double *totals, i64 n, int outputs) {
    // What a percentage error takes a target to be at least: the epsilon of doubles.
    const double least = 2.220446049250313e-16;
    for (int output = blockIdx.x; output < outputs; output += gridDim.x) {
        double sums[5] = {0.0, 0.0, 0.0, 0.0, 0.0};
        for (i64 i = output + (i64)outputs * threadIdx.x; i < n; i += (i64)outputs * blockDim.x) {
            double target = t[i], error = (double)x[i] - target;
            sums[0] += target;
            sums[1] += target * target;
            sums[2] += error * error;
            sums[3] += fabs(error) / fmax(fabs(target), least);
            sums[4] += fabs(error);
        }
#pragma unroll
        for (int k = 0; k < 5; ++k) {
            double sum = block_sum(sums[k]);
            if (threadIdx.x == 0 && is_finite(loss[0])) {
                totals[5 * (i64)output + k] += sum;
            }
        }
    }
}
