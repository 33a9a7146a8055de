// The update: gradient sums, the gradient's norm, optimizers whose elements change by themselves, over all tensors in one launch.
// All tensors are floats. Optimizers that look at whole tensors are in optim_norms.cu.
#include "optim.cuh"

// sum += grad.
extern "C" __global__ void __launch_bounds__(256) accumulate_f32(const float *grad, float *sum, i64 n) {
    i64 fours = n / 4;
    for (i64 i = thread_index(); i < fours; i += thread_count()) {
        float4 a = ((const float4 *)grad)[i], b = ((const float4 *)sum)[i];
        ((float4 *)sum)[i] = make_float4(b.x + a.x, b.y + a.y, b.z + a.z, b.w + a.w);
    }
    i64 rest = fours * 4 + thread_index();
    if (rest < n) {
        sum[rest] += grad[rest];
    }
}

extern "C" __global__ void __launch_bounds__(256) accumulate_f64(const double *grad, double *sum, i64 n) {
    for (i64 i = thread_index(); i < n; i += thread_count()) {
        sum[i] += grad[i];
    }
}

// Adds a micro-batch to the sums (Σ share · loss, Σ share), by one thread: mean = the mean loss so far.
extern "C" __global__ void __launch_bounds__(32)
    accumulate_loss(const float *loss, const float *weight, float full, double *sums, float *mean, float *share) {
    if (threadIdx.x > 0) {
        return;
    }
    float part = weight[0] / full;
    sums[0] += (double)part * loss[0];
    sums[1] += part;
    mean[0] = (float)(sums[1] > 0.0 ? sums[0] / sums[1] : sums[0]);
    share[0] = part;
}

// The step's scalars with the gradient scale that makes a mean of sums over micro-batches, by one thread.
extern "C" __global__ void __launch_bounds__(32) mean_scale(const float *schedule, const double *sums, float *to) {
    if (threadIdx.x > 0) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        to[i] = schedule[i];
    }
    to[1] = sums[1] > 0.0 ? (float)(schedule[1] / sums[1]) : 0.0f;
}

// A tensor of kernels that know no state; 16 bytes.
struct Span {
    float *data;
    i64 length;
};

// All elements of all tensors = 0.
extern "C" __global__ void __launch_bounds__(256) zero_f32(const Span *tensors, const Chunk *chunks, int chunk) {
    Chunk c = chunks[blockIdx.x];
    Span t = tensors[c.tensor];
    float *data = t.data + c.number * chunk;
    by_fours(min(t.length - c.number * chunk, (i64)chunk), [&](i64 i, int n) {
        const float zero[4] = {};
        store_four(data + i, n, zero);
    });
}

// ---- The norm of all gradients together -----------------------------------------------------------------------------

// First stage: the sum of a chunk's squares, in doubles, into partials [gridDim.x].
extern "C" __global__ void __launch_bounds__(256)
    grad_squares_f32(const Span *tensors, const Chunk *chunks, int chunk, double *partials) {
    Chunk c = chunks[blockIdx.x];
    Span t = tensors[c.tensor];
    const float *data = t.data + c.number * chunk;
    double sum = 0.0;
    by_fours(min(t.length - c.number * chunk, (i64)chunk), [&](i64 i, int n) {
        float g[4];
        load_four(data + i, n, g);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            sum += (double)g[k] * g[k];
        }
    });
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = sum;
    }
}

// Second stage, one block: norm = |gradient scale / loss scale| · sqrt(Σ partials).
extern "C" __global__ void __launch_bounds__(1024)
    grad_norm(const double *partials, i64 blocks, const float *schedule, float *norm) {
    double sum = 0.0;
    for (i64 i = threadIdx.x; i < blocks; i += blockDim.x) {
        sum += partials[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        norm[0] = (float)(sqrt(sum) * fabs((double)(schedule[1] / schedule[2])));
    }
}

// ---- Optimizers -----------------------------------------------------------------------------------------------------

// NAdam's momentum in step t (Dozat 2016).
__device__ __forceinline__ double nadam_momentum(double t, double beta1, double decay) {
    return beta1 * (1.0 - 0.5 * pow(0.96, t * decay));
}

// What NAdam makes of the step's number: Nadam::at in crates/engine/src/graph/op/optim.rs.
__device__ __forceinline__ void nadam_shares(Now &n, double beta1, double decay) {
    double product = 1.0;
    for (i64 t = 1; t <= n.step; t++) {
        product *= nadam_momentum((double)t, beta1, decay);
        // Too small to matter.
        if (product < 1e-20) {
            product = 0.0;
            break;
        }
    }
    double next = nadam_momentum((double)(n.step + 1), beta1, decay);
    n.of_gradient = (1.0 - nadam_momentum((double)n.step, beta1, decay)) / (1.0 - product);
    n.correction1 = next / (1.0 - product * next);
}

// Before the update, by one thread: counts the step, and works out what depends on it. schedule: learning rate, gradient
// scale, loss scale, floor of the learning rate. `norm` is null if gradients are neither clipped nor scaled; `clip_norm`
// is infinite if they are not clipped. `scale` is null, or the scaler's factor of the loss, and so of the gradients and
// their norm. `counter` is null where nothing depends on the number of the step.
extern "C" __global__ void __launch_bounds__(32)
    optimizer_begin(const float *schedule, const float *loss, const float *norm, float clip_norm, const float *scale,
                    float clip_value, double beta1, double beta2, double momentum_decay, i64 *counter, Now *now) {
    if (threadIdx.x > 0) {
        return;
    }
    Now n;
    // Scaled gradients that are not finite are no reason to worry: the next ones will be scaled less.
    n.updates = is_finite(loss[0]) && (!scale || is_finite(norm[0])) ? 1 : 0;
    n.step = 0;
    if (counter) {
        n.step = *counter + n.updates;
        *counter = n.step;
    }
    n.lr = schedule[0];
    n.floor = schedule[3];
    float loss_scale = scale ? scale[0] : 1.0f;
    n.scale = schedule[1] / schedule[2] / loss_scale;
    if (norm) {
        float factor = clip_norm / (norm[0] / loss_scale + 1e-6f);
        // Not fminf: a norm that is NaN must show in the parameters.
        n.scale *= factor > 1.0f ? 1.0f : factor;
    }
    n.limit = clip_value;
    n.correction1 = 1.0 - pow(beta1, (double)n.step);
    n.correction2 = sqrt(1.0 - pow(beta2, (double)n.step));
    n.of_gradient = 0.0;
    if (momentum_decay >= 0.0) {
        nadam_shares(n, beta1, momentum_decay);
    }
    *now = n;
}

// Gradient descent; state: momentum_buffer. Nesterov's look-ahead as in Sutskever et al. 2013.
struct Sgd {
    float momentum, dampening;
    int nesterov;
    float lr, decay;
    int first;

    __device__ __forceinline__ void prepare(const Now &now, const Tensor &t) {
        lr = (float)rate(now, t);
        decay = (float)t.weight_decay;
        first = now.step <= 1;
    }

    __device__ __forceinline__ void element(float &p, float g, float (&s)[1], const Tensor &t) const {
        float d = decayed(g, p, decay);
        if (t.state[0]) {
            float v = first ? d : s[0] * momentum + (1.0f - dampening) * d;
            s[0] = v;
            d = nesterov ? momentum * v + d : v;
        }
        p -= lr * d;
    }
};

extern "C" __global__ void __launch_bounds__(256)
    sgd_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, float momentum, float dampening,
            int nesterov) {
    Sgd rule;
    rule.momentum = momentum;
    rule.dampening = dampening;
    rule.nesterov = nesterov;
    update<1>(now, tensors, chunks, chunk, rule);
}

// Adam (Kingma & Ba 2015), AdamW (Loshchilov & Hutter 2019) if `decoupled`; state: exp_avg, exp_avg_sq, and
// max_exp_avg_sq for AMSGrad (Reddi et al. 2018).
struct Adam {
    double beta1, beta2;
    float eps;
    int decoupled;
    float step_size, correction, decay, keep, share1, share2, keep2;

    __device__ __forceinline__ void prepare(const Now &now, const Tensor &t) {
        double lr = rate(now, t);
        step_size = (float)(-lr / now.correction1);
        correction = (float)now.correction2;
        decay = decoupled ? 0.0f : (float)t.weight_decay;
        keep = decoupled ? (float)(1.0 - lr * t.weight_decay) : 1.0f;
        share1 = (float)(1.0 - beta1);
        share2 = (float)(1.0 - beta2);
        keep2 = (float)beta2;
    }

    __device__ __forceinline__ void element(float &p, float g, float (&s)[3], const Tensor &t) const {
        float w = p * keep;
        float d = decayed(g, w, decay);
        float m = lerp(s[0], d, share1);
        float v = share2 * d * d + s[1] * keep2;
        s[0] = m;
        s[1] = v;
        if (t.state[2]) {
            // Not fmaxf: NaN must show.
            v = s[2] > v || s[2] != s[2] ? s[2] : v;
            s[2] = v;
        }
        p = w + step_size * m / (sqrtf(v) / correction + eps);
    }
};

extern "C" __global__ void __launch_bounds__(256)
    adam_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, double beta1, double beta2,
             float eps, int decoupled) {
    Adam rule;
    rule.beta1 = beta1;
    rule.beta2 = beta2;
    rule.eps = eps;
    rule.decoupled = decoupled;
    update<3>(now, tensors, chunks, chunk, rule);
}

// RMSprop (Hinton 2012); state: square_avg, momentum_buffer, grad_avg.
struct RmsProp {
    double alpha;
    float eps, momentum;
    float lr, decay, share, keep;

    __device__ __forceinline__ void prepare(const Now &now, const Tensor &t) {
        lr = (float)rate(now, t);
        decay = (float)t.weight_decay;
        share = (float)(1.0 - alpha);
        keep = (float)alpha;
    }

    __device__ __forceinline__ void element(float &p, float g, float (&s)[3], const Tensor &t) const {
        float d = decayed(g, p, decay);
        float v = share * d * d + s[0] * keep;
        s[0] = v;
        if (t.state[2]) {
            float m = lerp(s[2], d, share);
            s[2] = m;
            v -= m * m;
        }
        float step = d / (sqrtf(v) + eps);
        if (t.state[1]) {
            step = s[1] * momentum + step;
            s[1] = step;
        }
        p -= lr * step;
    }
};

extern "C" __global__ void __launch_bounds__(256)
    rmsprop_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, double alpha, float eps,
                float momentum) {
    RmsProp rule;
    rule.alpha = alpha;
    rule.eps = eps;
    rule.momentum = momentum;
    update<3>(now, tensors, chunks, chunk, rule);
}

// What rules with two decays have in common: means of the gradient and of its square, weight decay of either kind.
struct TwoMeans {
    double beta1, beta2;
    float eps;
    int decoupled;
    float decay, keep, share1, share2, keep2;

    __device__ __forceinline__ void prepare_means(double lr, const Tensor &t) {
        decay = decoupled ? 0.0f : (float)t.weight_decay;
        keep = decoupled ? (float)(1.0 - lr * t.weight_decay) : 1.0f;
        share1 = (float)(1.0 - beta1);
        share2 = (float)(1.0 - beta2);
        keep2 = (float)beta2;
    }

    // Takes the gradient into both means.
    __device__ __forceinline__ void means(float d, float (&s)[2]) const {
        s[0] = lerp(s[0], d, share1);
        s[1] = share2 * d * d + s[1] * keep2;
    }
};

// NAdam (Dozat 2016); state: exp_avg, exp_avg_sq.
struct Nadam : TwoMeans {
    float of_gradient, of_mean, correction;

    __device__ __forceinline__ void prepare(const Now &now, const Tensor &t) {
        double lr = rate(now, t);
        prepare_means(lr, t);
        of_gradient = (float)(-lr * now.of_gradient);
        of_mean = (float)(-lr * now.correction1);
        correction = (float)now.correction2;
    }

    __device__ __forceinline__ void element(float &p, float g, float (&s)[2], const Tensor &t) const {
        float w = p * keep;
        float d = decayed(g, w, decay);
        means(d, s);
        p = w + (of_gradient * d + of_mean * s[0]) / (sqrtf(s[1]) / correction + eps);
    }
};

extern "C" __global__ void __launch_bounds__(256)
    nadam_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, double beta1, double beta2,
              float eps, int decoupled) {
    Nadam rule;
    rule.beta1 = beta1;
    rule.beta2 = beta2;
    rule.eps = eps;
    rule.decoupled = decoupled;
    update<2>(now, tensors, chunks, chunk, rule);
}

// RAdam (Liu et al. 2020); state: exp_avg, exp_avg_sq.
struct Radam : TwoMeans {
    float step_size;
    int rectified;

    __device__ __forceinline__ void prepare(const Now &now, const Tensor &t) {
        double lr = rate(now, t);
        prepare_means(lr, t);
        // radam_rectification in crates/engine/src/graph/op/optim.rs.
        double left = now.correction2 * now.correction2;
        double limit = 2.0 / (1.0 - beta2) - 1.0;
        double length = limit - 2.0 * (double)now.step * (1.0 - left) / left;
        double size = -lr / now.correction1;
        rectified = length > 5.0;
        if (rectified) {
            double ratio = (length - 4.0) * (length - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * length);
            size *= sqrt(ratio) * now.correction2;
        }
        step_size = (float)size;
    }

    __device__ __forceinline__ void element(float &p, float g, float (&s)[2], const Tensor &t) const {
        float w = p * keep;
        means(decayed(g, w, decay), s);
        float step = step_size * s[0];
        p = w + (rectified ? step / (sqrtf(s[1]) + eps) : step);
    }
};

extern "C" __global__ void __launch_bounds__(256)
    radam_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, double beta1, double beta2,
              float eps, int decoupled) {
    Radam rule;
    rule.beta1 = beta1;
    rule.beta2 = beta2;
    rule.eps = eps;
    rule.decoupled = decoupled;
    update<2>(now, tensors, chunks, chunk, rule);
}

// Adagrad (Duchi et al. 2011); state: sum.
struct Adagrad {
    double lr_decay;
    float eps;
    float lr, decay;

    __device__ __forceinline__ void prepare(const Now &now, const Tensor &t) {
        lr = (float)(rate(now, t) / (1.0 + (double)(now.step - 1) * lr_decay));
        decay = (float)t.weight_decay;
    }

    __device__ __forceinline__ void element(float &p, float g, float (&s)[1], const Tensor &t) const {
        float d = decayed(g, p, decay);
        s[0] += d * d;
        p -= lr * d / (sqrtf(s[0]) + eps);
    }
};

extern "C" __global__ void __launch_bounds__(256)
    adagrad_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, double lr_decay, float eps) {
    Adagrad rule;
    rule.lr_decay = lr_decay;
    rule.eps = eps;
    update<1>(now, tensors, chunks, chunk, rule);
}

// Adadelta (Zeiler 2012); state: square_avg, acc_delta.
struct Adadelta {
    double rho;
    float eps;
    float lr, decay, share, keep;

    __device__ __forceinline__ void prepare(const Now &now, const Tensor &t) {
        lr = (float)rate(now, t);
        decay = (float)t.weight_decay;
        share = (float)(1.0 - rho);
        keep = (float)rho;
    }

    __device__ __forceinline__ void element(float &p, float g, float (&s)[2], const Tensor &t) const {
        float d = decayed(g, p, decay);
        s[0] = share * d * d + s[0] * keep;
        float step = sqrtf((s[1] + eps) / (s[0] + eps)) * d;
        s[1] = share * step * step + s[1] * keep;
        p -= lr * step;
    }
};

extern "C" __global__ void __launch_bounds__(256)
    adadelta_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, double rho, float eps) {
    Adadelta rule;
    rule.rho = rho;
    rule.eps = eps;
    update<2>(now, tensors, chunks, chunk, rule);
}

// Adamax (Kingma & Ba 2015); state: exp_avg, exp_inf.
struct Adamax {
    double beta1, beta2;
    float eps;
    float step_size, decay, share, keep;

    __device__ __forceinline__ void prepare(const Now &now, const Tensor &t) {
        step_size = (float)(rate(now, t) / now.correction1);
        decay = (float)t.weight_decay;
        share = (float)(1.0 - beta1);
        keep = (float)beta2;
    }

    __device__ __forceinline__ void element(float &p, float g, float (&s)[2], const Tensor &t) const {
        float d = decayed(g, p, decay);
        s[0] = lerp(s[0], d, share);
        float kept = s[1] * keep, size = fabsf(d) + eps;
        // Not fmaxf: NaN must show.
        s[1] = kept > size ? kept : size;
        p -= step_size * s[0] / s[1];
    }
};

extern "C" __global__ void __launch_bounds__(256)
    adamax_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, double beta1, double beta2,
               float eps) {
    Adamax rule;
    rule.beta1 = beta1;
    rule.beta2 = beta2;
    rule.eps = eps;
    update<2>(now, tensors, chunks, chunk, rule);
}

// Lion (Chen et al. 2023) with its decoupled weight decay; state: exp_avg.
struct Lion {
    double beta1, beta2;
    float lr, keep, share1, share2;

    __device__ __forceinline__ void prepare(const Now &now, const Tensor &t) {
        double r = rate(now, t);
        lr = (float)r;
        keep = (float)(1.0 - r * t.weight_decay);
        share1 = (float)(1.0 - beta1);
        share2 = (float)(1.0 - beta2);
    }

    __device__ __forceinline__ void element(float &p, float g, float (&s)[1], const Tensor &t) const {
        float step = lerp(s[0], g, share1);
        s[0] = lerp(s[0], g, share2);
        // Zero and NaN are their own sign.
        p = p * keep - lr * (step > 0.0f ? 1.0f : step < 0.0f ? -1.0f : step);
    }
};

extern "C" __global__ void __launch_bounds__(256)
    lion_f32(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, double beta1, double beta2) {
    Lion rule;
    rule.beta1 = beta1;
    rule.beta2 = beta2;
    update<1>(now, tensors, chunks, chunk, rule);
}

// ---- State that a bad step leaves as it was -------------------------------------------------------------------------

// A variable and its copy, in words of four bytes; 24 bytes.
struct Pair {
    const unsigned *from;
    unsigned *to;
    i64 words;
};

// Copies from each `from` to its `to`: always (`when` 0), if *flag is zero (1), or unless *flag is finite (2).
extern "C" __global__ void __launch_bounds__(256)
    copy_state(const float *flag, const Pair *pairs, const Chunk *chunks, int chunk, int when) {
    if ((when == 1 && flag[0] != 0.0f) || (when == 2 && is_finite(flag[0]))) {
        return;
    }
    Chunk c = chunks[blockIdx.x];
    Pair p = pairs[c.tensor];
    i64 start = c.number * chunk;
    i64 end = min(p.words, start + chunk);
    for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) {
        p.to[i] = p.from[i];
    }
}

// *mark = 1.
extern "C" __global__ void __launch_bounds__(32) set_mark(float *mark) {
    if (threadIdx.x == 0) {
        mark[0] = 1.0f;
    }
}

// ---- Loss scaling ---------------------------------------------------------------------------------------------------

// Dynamic loss scaling (Micikevicius et al. 2018), by one thread, after the update: the scale shrinks if the gradients'
// norm is not finite, and grows after `interval` updates in a row with a norm that is, unless it would become infinite. After
// a loss that is not finite nothing changes.
extern "C" __global__ void __launch_bounds__(32)
    update_scale(const float *norm, float growth, float backoff, int interval, float *scale, i64 *tracker,
                 const float *loss) {
    if (threadIdx.x > 0 || !is_finite(loss[0])) {
        return;
    }
    i64 updates = *tracker + 1;
    if (!is_finite(norm[0])) {
        *scale *= backoff;
        updates = 0;
    } else if (updates >= interval) {
        float grown = *scale * growth;
        if (is_finite(grown)) {
            *scale = grown;
        }
        updates = 0;
    }
    *tracker = updates;
}
