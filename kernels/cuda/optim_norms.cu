// Optimizers that look at whole tensors: LAMB and LARS, whose steps are scaled by norms, and what Muon does between products of
// matrices. All tensors are floats.
#include "optim.cuh"

// ---- Steps scaled by norms ------------------------------------------------------------------------------------------

// First pass: the sums of the squares of a chunk's parameters and of `rule.direction`, in doubles, into partials
// [gridDim.x][2].
template <int STATE, class Rule>
__device__ __forceinline__ void squares(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, Rule rule,
                                        double *partials) {
    if (!now->updates) {
        return;
    }
    Chunk c = chunks[blockIdx.x];
    Tensor t = tensors[c.tensor];
    __shared__ Rule shared;
    if (threadIdx.x == 0) {
        rule.prepare(*now, t);
        shared = rule;
    }
    __syncthreads();
    rule = shared;
    float scale = now->scale, limit = now->limit;
    i64 start = c.number * chunk;
    double parameters = 0.0, directions = 0.0;
    by_fours(min(t.length - start, (i64)chunk), [&](i64 i, int n) {
        float p[4], g[4], s[STATE][4];
        load_four(t.parameter + start + i, n, p);
        load_four(t.grad + start + i, n, g);
#pragma unroll
        for (int k = 0; k < STATE; k++) {
            load_four(t.state[k] + start + i, n, s[k]);
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float of[STATE];
#pragma unroll
            for (int k = 0; k < STATE; k++) {
                of[k] = s[k][e];
            }
            float d = rule.direction(p[e], clipped(g[e] * scale, limit), of);
#pragma unroll
            for (int k = 0; k < STATE; k++) {
                s[k][e] = of[k];
            }
            // Beyond the end there are zeros, but no direction.
            if (e < n) {
                parameters += (double)p[e] * p[e];
                directions += (double)d * d;
            }
        }
        if (Rule::WRITES) {
#pragma unroll
            for (int k = 0; k < STATE; k++) {
                store_four(t.state[k] + start + i, n, s[k]);
            }
        }
    });
    parameters = block_sum(parameters);
    directions = block_sum(directions);
    if (threadIdx.x == 0) {
        partials[2 * (i64)blockIdx.x] = parameters;
        partials[2 * (i64)blockIdx.x + 1] = directions;
    }
}

// The chunks of a tensor: 16 bytes.
struct Chunks {
    i64 first, count;
};

// A block for each tensor: how long its step is in proportion to what the rule says by itself. Trust::ratio in
// crates/engine/src/graph/op/optim.rs.
extern "C" __global__ void __launch_bounds__(256)
    trust_ratios(const Now *now, const Tensor *tensors, const Chunks *of_tensors, const double *partials, float coefficient,
                 float decay, float eps, int always_adapt, float *ratios) {
    if (!now->updates) {
        return;
    }
    Chunks own = of_tensors[blockIdx.x];
    double parameters = 0.0, directions = 0.0;
    for (i64 i = threadIdx.x; i < own.count; i += blockDim.x) {
        parameters += partials[2 * (own.first + i)];
        directions += partials[2 * (own.first + i) + 1];
    }
    parameters = sqrt(block_sum(parameters));
    directions = sqrt(block_sum(directions));
    if (threadIdx.x == 0) {
        double weight_decay = tensors[blockIdx.x].weight_decay;
        bool adapts = (always_adapt || weight_decay != 0.0) && parameters != 0.0 && directions != 0.0;
        double of = directions + decay * weight_decay * parameters + eps;
        ratios[blockIdx.x] = adapts ? (float)(coefficient * parameters / of) : 1.0f;
    }
}

// LAMB (You et al. 2020); state: exp_avg, exp_avg_sq, into which the first pass takes the gradient.
struct Lamb {
    static const bool WRITES = true;
    double beta1, beta2;
    float eps;
    float lr, decay, share1, share2, keep2, scale1, correction;

    __device__ __forceinline__ void prepare(const Now &now, const Tensor &t) {
        lr = (float)rate(now, t);
        decay = (float)t.weight_decay;
        share1 = (float)(1.0 - beta1);
        share2 = (float)(1.0 - beta2);
        keep2 = (float)beta2;
        scale1 = (float)(1.0 / now.correction1);
        correction = (float)now.correction2;
    }

    __device__ __forceinline__ float step(float p, const float (&s)[2]) const {
        return decay * p + s[0] * scale1 / (sqrtf(s[1]) / correction + eps);
    }

    __device__ __forceinline__ float direction(float p, float g, float (&s)[2]) const {
        s[0] = lerp(s[0], g, share1);
        s[1] = share2 * g * g + s[1] * keep2;
        return step(p, s);
    }

    __device__ __forceinline__ void element(float &p, float, float (&s)[2], const Tensor &) const { p -= lr * step(p, s); }
};

extern "C" __global__ void __launch_bounds__(256)
    lamb_squares_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, double beta1, double beta2,
                     float eps, double *partials) {
    Lamb rule;
    rule.beta1 = beta1;
    rule.beta2 = beta2;
    rule.eps = eps;
    squares<2>(now, tensors, chunks, chunk, rule, partials);
}

// LARS (You et al. 2017); state: momentum_buffer.
struct Lars {
    static const bool WRITES = false;
    float momentum;
    float lr, decay;

    __device__ __forceinline__ void prepare(const Now &now, const Tensor &t) {
        lr = (float)rate(now, t);
        decay = (float)t.weight_decay;
    }

    __device__ __forceinline__ float direction(float, float g, float (&)[1]) const { return g; }

    __device__ __forceinline__ void element(float &p, float g, float (&s)[1], const Tensor &) const {
        s[0] = s[0] * momentum + lr * decayed(g, p, decay);
        p -= s[0];
    }
};

extern "C" __global__ void __launch_bounds__(256)
    lars_squares_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, float momentum,
                     double *partials) {
    Lars rule;
    rule.momentum = momentum;
    squares<1>(now, tensors, chunks, chunk, rule, partials);
}

// A rule whose learning rate is scaled by the ratio of the block's tensor.
template <class Rule> struct Scaled : Rule {
    float ratio;

    __device__ __forceinline__ void prepare(const Now &now, const Tensor &t) {
        Rule::prepare(now, t);
        Rule::lr = (float)(rate(now, t) * ratio);
    }
};

extern "C" __global__ void __launch_bounds__(256)
    lamb_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, double beta1, double beta2, float eps,
             const float *ratios) {
    Scaled<Lamb> rule;
    rule.beta1 = beta1;
    rule.beta2 = beta2;
    rule.eps = eps;
    rule.ratio = ratios[chunks[blockIdx.x].tensor];
    update<2, false>(now, tensors, chunks, chunk, rule);
}

extern "C" __global__ void __launch_bounds__(256)
    lars_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, float momentum, const float *ratios) {
    Scaled<Lars> rule;
    rule.momentum = momentum;
    rule.ratio = ratios[chunks[blockIdx.x].tensor];
    update<1>(now, tensors, chunks, chunk, rule);
}

// ---- Muon (Jordan 2024), one tensor in a launch ----------------------------------------------------------------------

// The start of the iteration, first pass: takes the gradient into the momentum, writes the direction before it is divided by its
// norm, and the sum of a chunk's squares, in doubles, into partials [gridDim.x]. Zeros if nothing is updated.
extern "C" __global__ void __launch_bounds__(256)
    muon_squares_f32(const Now *now, const float *grad, float *buffer, float *direction, i64 length, int chunk, float share,
                     float ahead, int nesterov, double *partials) {
    bool updates = now->updates != 0;
    float scale = now->scale, limit = now->limit;
    i64 start = (i64)blockIdx.x * chunk;
    double sum = 0.0;
    by_fours(min(length - start, (i64)chunk), [&](i64 i, int n) {
        float d[4] = {};
        if (updates) {
            float g[4], m[4];
            load_four(grad + start + i, n, g);
            load_four(buffer + start + i, n, m);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float x = clipped(g[k] * scale, limit);
                m[k] = lerp(m[k], x, share);
                d[k] = nesterov ? lerp(x, m[k], ahead) : m[k];
                sum += (double)d[k] * d[k];
            }
            store_four(buffer + start + i, n, m);
        }
        store_four(direction + start + i, n, d);
    });
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = sum;
    }
}

// Second pass: the direction is divided by its norm, or by `eps` if that is more. Each block sums all partials, in one order.
extern "C" __global__ void __launch_bounds__(256)
    muon_scale_f32(float *direction, i64 length, int chunk, const double *partials, i64 blocks, float eps) {
    double sum = 0.0;
    for (i64 i = threadIdx.x; i < blocks; i += blockDim.x) {
        sum += partials[i];
    }
    sum = block_sum(sum);
    __shared__ float factor;
    if (threadIdx.x == 0) {
        double norm = sqrt(sum);
        // Not fmax: a norm that is NaN must show.
        factor = (float)(1.0 / (norm < eps ? (double)eps : norm));
    }
    __syncthreads();
    float by = factor;
    i64 start = (i64)blockIdx.x * chunk;
    by_fours(min(length - start, (i64)chunk), [&](i64 i, int n) {
        float d[4];
        load_four(direction + start + i, n, d);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            d[k] *= by;
        }
        store_four(direction + start + i, n, d);
    });
}

// out = a · I + b · gram + c · square, matrices of `side` rows.
extern "C" __global__ void __launch_bounds__(256)
    muon_polynomial_f32(const float *gram, const float *square, float *out, i64 side, int chunk, float a, float b, float c) {
    i64 start = (i64)blockIdx.x * chunk;
    by_fours(min(side * side - start, (i64)chunk), [&](i64 i, int n) {
        float g[4], s[4];
        load_four(gram + start + i, n, g);
        load_four(square + start + i, n, s);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            bool diagonal = (start + i + k) % (side + 1) == 0;
            g[k] = (diagonal ? a : 0.0f) + (c * s[k] + b * g[k]);
        }
        store_four(out + start + i, n, g);
    });
}

// parameter = parameter · (1 − rate · decay) − length_of_step · rate · direction.
extern "C" __global__ void __launch_bounds__(256)
    muon_f32(const Now *now, float *parameter, const float *direction, i64 length, int chunk, double lr_scale,
             double weight_decay, float length_of_step) {
    if (!now->updates) {
        return;
    }
    __shared__ float shared[2];
    if (threadIdx.x == 0) {
        double lr = (now->lr - now->floor) * lr_scale + now->floor;
        shared[0] = (float)(1.0 - lr * weight_decay);
        shared[1] = (float)(lr * length_of_step);
    }
    __syncthreads();
    float keep = shared[0], rate = shared[1];
    i64 start = (i64)blockIdx.x * chunk;
    by_fours(min(length - start, (i64)chunk), [&](i64 i, int n) {
        float p[4], d[4];
        load_four(parameter + start + i, n, p);
        load_four(direction + start + i, n, d);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            p[k] = p[k] * keep - rate * d[k];
        }
        store_four(parameter + start + i, n, p);
    });
}
