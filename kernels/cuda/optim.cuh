// What the kernels of the update have in common (optim.cu, optim_norms.cu).
//
// Tensors are cut into chunks of `chunk` elements (a multiple of 4), one a block. `chunks` says of each block its tensor
// and which of the tensor's chunks is its own; crates/engine/src/backend/cuda/lower/optim.rs makes these tables.
#pragma once
#include "common.cuh"

struct Chunk {
    i64 tensor;
    i64 number;
};

// Calls f(i, count) for the thread's share of n elements: those from i on, four of them but at the end.
template <class F> __device__ __forceinline__ void by_fours(i64 n, F f) {
    for (i64 i = (i64)threadIdx.x * 4; i < n; i += (i64)blockDim.x * 4) {
        f(i, n - i < 4 ? (int)(n - i) : 4);
    }
}

// Four elements from `from` on, or the first `n` of them.
__device__ __forceinline__ void load_four(const float *from, int n, float (&x)[4]) {
    if (n == 4) {
        float4 v = *(const float4 *)from;
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            x[k] = k < n ? from[k] : 0.0f;
        }
    }
}

__device__ __forceinline__ void store_four(float *to, int n, const float (&x)[4]) {
    if (n == 4) {
        *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (k < n) {
                to[k] = x[k];
            }
        }
    }
}

// What all tensors' updates need of this step.
struct Now {
    // The scheduled learning rate, and the part of it that no tensor's factor changes.
    double lr, floor;
    // Adam's 1 − beta1^step and sqrt(1 − beta2^step).
    double correction1, correction2;
    // NAdam's share of the gradient in a step; that of the mean is in the place of correction1.
    double of_gradient;
    // Number of this step, from 1.
    i64 step;
    // Factor of every gradient, and the largest absolute value of its elements.
    float scale, limit;
    // 0 if the loss, or a scaled gradient, is not finite: then nothing is updated.
    int updates;
};

// A tensor: 64 bytes. State that the rule does without is null.
struct Tensor {
    float *parameter;
    const float *grad;
    float *state[3];
    i64 length;
    double lr_scale, weight_decay;
};

// a + w · (b − a)
__device__ __forceinline__ float lerp(float a, float b, float w) { return w * (b - a) + a; }

// An element of a gradient that is no further from 0 than `limit`; what is not a number stays.
__device__ __forceinline__ float clipped(float g, float limit) { return g > limit ? limit : g < -limit ? -limit : g; }

// A scaled gradient with `decay` times the parameter.
__device__ __forceinline__ float decayed(float g, float p, float decay) { return decay != 0.0f ? decay * p + g : g; }

// Updates the block's chunk: `rule.prepare` once, then `rule.element` for each element. STATE is the number of places of
// `Tensor::state` that the rule may use, and KEEPS whether it changes them.
template <int STATE, bool KEEPS = true, class Rule>
__device__ __forceinline__ void update(const Now *now, const Tensor *tensors, const Chunk *chunks, int chunk, Rule rule) {
    if (!now->updates) {
        return;
    }
    Chunk c = chunks[blockIdx.x];
    Tensor t = tensors[c.tensor];
    // Doubles are slow on many devices: one thread works out what all need.
    __shared__ Rule shared;
    if (threadIdx.x == 0) {
        rule.prepare(*now, t);
        shared = rule;
    }
    __syncthreads();
    rule = shared;
    float scale = now->scale, limit = now->limit;
    i64 start = c.number * chunk;
    by_fours(min(t.length - start, (i64)chunk), [&](i64 i, int n) {
        float p[4], g[4], s[STATE][4];
        load_four(t.parameter + start + i, n, p);
        load_four(t.grad + start + i, n, g);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            g[k] = clipped(g[k] * scale, limit);
        }
#pragma unroll
        for (int k = 0; k < STATE; k++) {
            if (t.state[k]) {
                load_four(t.state[k] + start + i, n, s[k]);
            }
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float of[STATE];
#pragma unroll
            for (int k = 0; k < STATE; k++) {
                of[k] = t.state[k] ? s[k][e] : 0.0f;
            }
            rule.element(p[e], g[e], of, t);
#pragma unroll
            for (int k = 0; k < STATE; k++) {
                s[k][e] = of[k];
            }
        }
        store_four(t.parameter + start + i, n, p);
#pragma unroll
        for (int k = 0; KEEPS && k < STATE; k++) {
            if (t.state[k]) {
                store_four(t.state[k] + start + i, n, s[k]);
            }
        }
    });
}

// A tensor's learning rate.
__device__ __forceinline__ double rate(const Now &now, const Tensor &t) {
    return (now.lr - now.floor) * t.lr_scale + now.floor;
}
