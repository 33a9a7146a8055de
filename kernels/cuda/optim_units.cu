// Optimizers that came after those of optim.cu and optim_norms.cu: Adafactor, AdamW without a schedule; and the clipping of gradients by
// the norms of their units. All tensors are floats.
#include "optim.cuh"

// ---- Adafactor (Shazeer & Stern 2018) -------------------------------------------------------------------------------

// A tensor as matrices, [outer, lines, second, inner]: crates/engine/src/graph/op/adafactor.rs. 104 bytes.
struct Factored {
    float *parameter;
    const float *grad;
    // Means of squares over `second`, [outer, lines, inner], and over the lines, [outer, second, inner]; null where there are only means
    // of elements, which are the first ones.
    float *first;
    float *other;
    // 1 / the mean over all rows of their means, [outer, inner].
    float *scales;
    i64 outer, lines, second, inner;
    // Lines are rows, not columns.
    i64 by_rows;
    double lr_scale, weight_decay;
    i64 length;
};

// Results that a block makes where it sums `terms` numbers for each, which lie `inner` apart: with few of them side by side, a warp
// makes one. `per_block` in crates/engine/src/backend/cuda/lower/adafactor.rs is the same.
__device__ __forceinline__ i64 per_block(i64 terms, i64 inner) { return inner < 32 && terms > 1 ? 64 : 256; }

// Calls put(i, sum) for the results of block `number`, once each: the sums of term(x) over the numbers that a result is of.
template <class Term, class Put>
__device__ __forceinline__ void sums_of(const float *x, i64 number, i64 results, i64 terms, i64 inner, Term term, Put put) {
    i64 size = per_block(terms, inner);
    i64 start = number * size, end = min(start + size, results);
    if (size == 256) {
        i64 i = start + threadIdx.x;
        if (i < end) {
            const float *from = x + i / inner * terms * inner + i % inner;
            float sum = 0.0f;
            for (i64 k = 0; k < terms; k++) {
                sum += term(from[k * inner]);
            }
            put(i, sum);
        }
        return;
    }
    int lane = threadIdx.x & 31;
    for (i64 i = start + (threadIdx.x >> 5); i < end; i += blockDim.x >> 5) {
        const float *from = x + i / inner * terms * inner + i % inner;
        float sum = 0.0f;
        for (i64 k = lane; k < terms; k += 32) {
            sum += term(from[k * inner]);
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            put(i, sum);
        }
    }
}

// The share of a new square in the means.
__device__ __forceinline__ float newest(const Now *now, double beta2_decay) {
    return (float)pow((double)now->step, beta2_decay);
}

// Takes the gradient into the means over `second`; chunks: per_block(second, inner) means each.
extern "C" __global__ void __launch_bounds__(256)
    adafactor_first_f32(const Now *now, const Factored *tensors, const Chunk *chunks, double beta2_decay) {
    if (!now->updates) {
        return;
    }
    Chunk c = chunks[blockIdx.x];
    Factored t = tensors[c.tensor];
    __shared__ float shared;
    if (threadIdx.x == 0) {
        shared = newest(now, beta2_decay);
    }
    __syncthreads();
    float share = shared, scale = now->scale, limit = now->limit, by = 1.0f / (float)t.second;
    float *means = t.first;
    sums_of(
        t.grad, c.number, t.outer * t.lines * t.inner, t.second, t.inner,
        [&](float g) {
            g = clipped(g * scale, limit);
            return g * g;
        },
        [&](i64 i, float sum) { means[i] = lerp(means[i], sum * by, share); });
}

// Lines from which on each of a block's warps sums some of them, for the same 32 means.
static const int MANY_LINES = 16;

// Takes the gradient into the means over the lines; chunks: 32 means each if there are many lines, else 256.
extern "C" __global__ void __launch_bounds__(256)
    adafactor_second_f32(const Now *now, const Factored *tensors, const Chunk *chunks, double beta2_decay) {
    if (!now->updates) {
        return;
    }
    Chunk c = chunks[blockIdx.x];
    Factored t = tensors[c.tensor];
    __shared__ float shared;
    __shared__ float partial[8][32];
    if (threadIdx.x == 0) {
        shared = newest(now, beta2_decay);
    }
    __syncthreads();
    float share = shared, scale = now->scale, limit = now->limit, by = 1.0f / (float)t.lines;
    bool many = t.lines >= MANY_LINES;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    i64 line = t.second * t.inner, results = t.outer * line;
    i64 i = many ? c.number * 32 + lane : c.number * 256 + threadIdx.x;
    float sum = 0.0f;
    if (i < results) {
        const float *from = t.grad + i / line * t.lines * line + i % line;
        for (i64 k = many ? warp : 0; k < t.lines; k += many ? 8 : 1) {
            float g = clipped(from[k * line] * scale, limit);
            sum += g * g;
        }
    }
    if (many) {
        partial[warp][lane] = sum;
        __syncthreads();
        if (warp > 0) {
            return;
        }
        sum = 0.0f;
        for (int k = 0; k < 8; k++) {
            sum += partial[k][lane];
        }
    }
    if (i < results) {
        t.other[i] = lerp(t.other[i], sum * by, share);
    }
}

// What products of both means are scaled with; chunks: per_block(rows, inner) matrices each.
extern "C" __global__ void __launch_bounds__(256)
    adafactor_scales_f32(const Now *now, const Factored *tensors, const Chunk *chunks, float eps) {
    if (!now->updates) {
        return;
    }
    Chunk c = chunks[blockIdx.x];
    Factored t = tensors[c.tensor];
    i64 rows = t.by_rows ? t.lines : t.second;
    float by = 1.0f / (float)rows;
    float *scales = t.scales;
    sums_of(
        t.by_rows ? t.first : t.other, c.number, t.outer * t.inner, rows, t.inner, [](float x) { return x; },
        [&](i64 i, float sum) {
            float mean = sum * by;
            // Not fmaxf: a mean that is NaN must show.
            scales[i] = 1.0f / (mean < eps ? eps : mean);
        });
}

// Walks elements one after the other with what their mean squares are made of.
struct Places {
    i64 line, column, inner, matrix;

    __device__ __forceinline__ Places(const Factored &t, i64 at) {
        i64 row = at / t.inner;
        inner = at - row * t.inner;
        line = row / t.second;
        column = row - line * t.second;
        matrix = line / t.lines;
    }

    __device__ __forceinline__ void next(const Factored &t) {
        if (++inner < t.inner) {
            return;
        }
        inner = 0;
        if (++column < t.second) {
            return;
        }
        column = 0;
        line++;
        matrix = line / t.lines;
    }

    // An element's mean square, not below eps².
    __device__ __forceinline__ float square(const Factored &t, float eps) const {
        float mean = t.first[line * t.inner + inner];
        float other = t.other[(matrix * t.second + column) * t.inner + inner];
        float square = mean * t.scales[matrix * t.inner + inner] * other;
        return square < eps * eps ? eps * eps : square;
    }
};

// Calls f(i, n, p, steps) for the block's elements by fours: the parameters, and their steps before they are scaled. `points`: the mean
// of an element is that of its row and its column.
template <class F>
__device__ __forceinline__ void steps_of(const Now *now, const Factored &t, i64 start, int chunk, float eps, int points, F f) {
    float scale = now->scale, limit = now->limit;
    by_fours(min(t.length - start, (i64)chunk), [&](i64 i, int n) {
        float p[4], g[4], v[4] = {};
        load_four(t.parameter + start + i, n, p);
        load_four(t.grad + start + i, n, g);
        if (t.other) {
            Places at(t, start + i);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (k < n) {
                    v[k] = at.square(t, eps);
                    at.next(t);
                }
            }
        } else {
            load_four(t.first + start + i, n, v);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float square = points ? v[k] * v[k] / (v[k] < eps ? eps : v[k]) : v[k];
                v[k] = square < eps * eps ? eps * eps : square;
            }
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            // Beyond the end there is no step.
            g[k] = k < n ? clipped(g[k] * scale, limit) / sqrtf(v[k]) : 0.0f;
        }
        f(i, n, p, g);
    });
}

// The sums of the squares of a chunk's parameters and steps, in doubles, into partials [gridDim.x][2].
extern "C" __global__ void __launch_bounds__(256)
    adafactor_squares_f32(const Now *now, const Factored *tensors, const Chunk *chunks, int chunk, float eps, int points,
                          double *partials) {
    if (!now->updates) {
        return;
    }
    Chunk c = chunks[blockIdx.x];
    Factored t = tensors[c.tensor];
    double parameters = 0.0, steps = 0.0;
    steps_of(now, t, c.number * chunk, chunk, eps, points, [&](i64, int, const float(&p)[4], const float(&d)[4]) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            parameters += (double)p[k] * p[k];
            steps += (double)d[k] * d[k];
        }
    });
    parameters = block_sum(parameters);
    steps = block_sum(steps);
    if (threadIdx.x == 0) {
        partials[2 * (i64)blockIdx.x] = parameters;
        partials[2 * (i64)blockIdx.x + 1] = steps;
    }
}

// The chunks of a tensor: 16 bytes.
struct Chunks {
    i64 first, count;
};

// A block for each tensor: the factor of its step, and that of the parameter, into rates [gridDim.x][2].
extern "C" __global__ void __launch_bounds__(256)
    adafactor_rates_f32(const Now *now, const Factored *tensors, const Chunks *of_tensors, const double *partials, float least,
                        float d, float *rates) {
    if (!now->updates) {
        return;
    }
    Chunks own = of_tensors[blockIdx.x];
    double parameters = 0.0, steps = 0.0;
    for (i64 i = threadIdx.x; i < own.count; i += blockDim.x) {
        parameters += partials[2 * (own.first + i)];
        steps += partials[2 * (own.first + i) + 1];
    }
    parameters = block_sum(parameters);
    steps = block_sum(steps);
    if (threadIdx.x == 0) {
        double n = (double)tensors[blockIdx.x].length;
        double lr = (now->lr - now->floor) * tensors[blockIdx.x].lr_scale + now->floor;
        double size = sqrt(parameters / n), step = sqrt(steps / n) / d;
        double rho = 1.0 / sqrt((double)now->step);
        rates[2 * (i64)blockIdx.x] = (float)((size > least ? size : least) * (lr < rho ? lr : rho) / (step > 1.0 ? step : 1.0));
        rates[2 * (i64)blockIdx.x + 1] = (float)(1.0 - lr * tensors[blockIdx.x].weight_decay);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    adafactor_f32(const Now *now, const Factored *tensors, const Chunk *chunks, int chunk, float eps, int points,
                  const float *rates) {
    if (!now->updates) {
        return;
    }
    Chunk c = chunks[blockIdx.x];
    Factored t = tensors[c.tensor];
    float rate = rates[2 * c.tensor], keep = rates[2 * c.tensor + 1];
    i64 start = c.number * chunk;
    steps_of(now, t, start, chunk, eps, points, [&](i64 i, int n, float(&p)[4], const float(&d)[4]) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            p[k] = p[k] * keep - rate * d[k];
        }
        store_four(t.parameter + start + i, n, p);
    });
}

// ---- AdamW without a schedule (Defazio et al. 2024) ------------------------------------------------------------------

// 1^e + 2^e + … + n^e: `power_sum` in crates/engine/src/graph/op/schedule_free.rs.
__device__ __forceinline__ double antiderivative(double e, double x) {
    double third = e * (e - 1.0) * (e - 2.0);
    double fifth = third * (e - 3.0) * (e - 4.0);
    return pow(x, e) *
           (x / (e + 1.0) + 0.5 + (e / 12.0 + (fifth / 30240.0 / (x * x) - third / 720.0) / (x * x)) / x);
}

__device__ __forceinline__ double power_sum(double e, double n) {
    const double direct = 64.0;
    if (e == 0.0) {
        return n;
    }
    double sum = 0.0;
    for (double term = 1.0; term <= (n < direct ? n : direct); term += 1.0) {
        sum += pow(term, e);
    }
    return n > direct ? sum + (antiderivative(e, n) - antiderivative(e, direct)) : sum;
}

// Behind optimizer_begin, by one thread: the warm-up of the learning rate, and in the place of `of_gradient` the share of the newest point
// in the average. ScheduleFree in crates/engine/src/graph/op/schedule_free.rs, which makes `offset`.
extern "C" __global__ void __launch_bounds__(32)
    schedule_free_begin(Now *now, double warmup_steps, double r, double lr_power, double offset) {
    if (threadIdx.x > 0 || !now->updates) {
        return;
    }
    double t = (double)now->step;
    if (t < warmup_steps) {
        now->lr *= t / warmup_steps;
        now->floor *= t / warmup_steps;
    }
    double power = t <= warmup_steps ? r + lr_power : r;
    double before = t <= warmup_steps ? 0.0 : offset;
    now->of_gradient = pow(t, power) / (before + power_sum(power, t));
}

// State: z, exp_avg_sq, average.
struct ScheduleFreeAdamW {
    double beta1, beta2;
    float eps;
    float lr, decay, share, in_average, share2, keep2, correction;
    int first;

    __device__ __forceinline__ void prepare(const Now &now, const Tensor &t) {
        lr = (float)rate(now, t);
        decay = (float)t.weight_decay;
        share = (float)now.of_gradient;
        in_average = (float)beta1;
        share2 = (float)(1.0 - beta2);
        keep2 = (float)beta2;
        correction = (float)now.correction2;
        first = now.step <= 1;
    }

    __device__ __forceinline__ void element(float &p, float g, float (&s)[3], const Tensor &) const {
        s[1] = share2 * g * g + s[1] * keep2;
        float step = decayed(g / (sqrtf(s[1]) / correction + eps), p, decay);
        // All begin at the parameter.
        s[0] = (first ? p : s[0]) - lr * step;
        s[2] = lerp(first ? p : s[2], s[0], share);
        p = lerp(s[0], s[2], in_average);
    }
};

extern "C" __global__ void __launch_bounds__(256)
    schedule_free_adamw_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, double beta1, double beta2,
                            float eps) {
    ScheduleFreeAdamW rule;
    rule.beta1 = beta1;
    rule.beta2 = beta2;
    rule.eps = eps;
    update<3>(now, tensors, chunks, chunk, rule);
}

// ---- Adaptive clipping (Brock et al. 2021) ---------------------------------------------------------------------------

// A block for each unit of a tensor [before, units, after]: AdaptiveClip::scale in crates/engine/src/graph/op/adaptive_clip.rs. `to` may be
// `grad`. `loss_scale` is null, or the scaler's factor of the loss.
extern "C" __global__ void __launch_bounds__(256)
    adaptive_clip_f32(const float *schedule, const float *loss_scale, const float *grad, const float *parameter, float *to,
                      i64 before, i64 units, i64 after, float factor, float eps) {
    double gradients = 0.0, weights = 0.0;
    for (i64 row = blockIdx.x; row < before * units; row += units) {
        for (i64 i = row * after + threadIdx.x; i < (row + 1) * after; i += blockDim.x) {
            gradients += (double)grad[i] * grad[i];
            weights += (double)parameter[i] * parameter[i];
        }
    }
    gradients = block_sum(gradients);
    weights = block_sum(weights);
    __shared__ float shared;
    if (threadIdx.x == 0) {
        double norm = sqrt(gradients) * fabs((double)(schedule[1] / schedule[2] / (loss_scale ? loss_scale[0] : 1.0f)));
        double size = sqrt(weights);
        double limit = (size > eps ? size : (double)eps) * factor;
        // A norm that is NaN must show.
        shared = norm < limit ? 1.0f : (float)(limit / (norm < 1e-6 ? 1e-6 : norm));
    }
    __syncthreads();
    float by = shared;
    for (i64 row = blockIdx.x; row < before * units; row += units) {
        for (i64 i = row * after + threadIdx.x; i < (row + 1) * after; i += blockDim.x) {
            to[i] = grad[i] * by;
        }
    }
}
