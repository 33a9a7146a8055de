// What all kernels share: element types, conversions, reductions with a fixed order, activations.
//
// The kernels are compiled twice: by NVRTC for GPUs, and as C++ for the emulated driver of the tests, which defines
// RUNNER_EMULATED and supplies what a GPU has and C++ lacks (threadIdx, __syncthreads, __shfl_*_sync, …). They use no
// header but those of this folder, so that nothing of a CUDA toolkit is needed to build them.
//
// Rules that every kernel keeps:
// - `extern "C" __global__ void name_type(...)`: no mangled names, the element type last (`softmax_bf16`).
// - Arithmetic is in 32-bit floats (64 where a comment says so), whatever the storage type.
// - The order of every sum depends on sizes alone: no atomics on floats, no dependence on the number of blocks that run.
// - Sizes that may pass 2^31 are `long long`; offsets into tensors always are.
#pragma once

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// ---- 16-bit floats: storage only, arithmetic happens in float -------------------------------------------------------

// The upper half of a float.
struct bf16 {
    unsigned short bits;
};

// IEEE 754 binary16.
struct f16 {
    unsigned short bits;
};

__device__ __forceinline__ float bits_to_float(u32 bits) {
#ifdef RUNNER_EMULATED
    return emulated::bit_cast<float>(bits);
#else
    return __uint_as_float(bits);
#endif
}

__device__ __forceinline__ u32 float_to_bits(float x) {
#ifdef RUNNER_EMULATED
    return emulated::bit_cast<u32>(x);
#else
    return __float_as_uint(x);
#endif
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(u8 x) { return (float)x; }
__device__ __forceinline__ float to_float(bf16 x) { return bits_to_float((u32)x.bits << 16); }
__device__ __forceinline__ float to_float(f16 x) {
#ifdef RUNNER_EMULATED
    return emulated::half_to_float(x.bits);
#else
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#endif
}

// The nearest value of type T, ties to even; NaN stays NaN.
template <class T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x) {
#if !defined(RUNNER_EMULATED) && __CUDA_ARCH__ >= 800
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    u32 bits = float_to_bits(x);
    // Adding just under half of the last place kept, and one more if that place is odd, carries into it as rounding does.
    u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return bf16{(unsigned short)(nan ? 0x7fc0u : rounded)};
#endif
}
template <> __device__ __forceinline__ f16 from_float<f16>(float x) {
#ifdef RUNNER_EMULATED
    return f16{emulated::float_to_half(x)};
#else
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#endif
}

// False for infinities and NaN.
__device__ __forceinline__ bool is_finite(float x) { return (float_to_bits(x) & 0x7f800000u) != 0x7f800000u; }

// ---- Indices --------------------------------------------------------------------------------------------------------

// Number of this thread in the whole launch, and the number of all of them: for loops that stride over elements.
__device__ __forceinline__ i64 thread_index() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 thread_count() { return (i64)gridDim.x * blockDim.x; }

// Takes the innermost index off a row-major one: gives index % size and leaves index / size. Divisions are in 32 bits
// throughout, for one in 64 is a subroutine of a hundred instructions: large tensors are walked by rows.
__device__ __forceinline__ u32 split(u32 &index, u32 size) {
    u32 quotient = index / size, remainder = index - quotient * size;
    index = quotient;
    return remainder;
}

// A matrix is walked by blocks whose y counts rows and whose x counts columns, or what else a row is made of; the grid's
// x is over rows, its y over columns, with a stride where they are more. The host's part is `Kernel::over_rows`.
__device__ __forceinline__ u32 matrix_row() { return blockIdx.x * blockDim.y + threadIdx.y; }
__device__ __forceinline__ i64 matrix_column() { return (i64)blockIdx.y * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 matrix_column_step() { return (i64)gridDim.y * blockDim.x; }

// ---- Packs: neighbours moved by one instruction ---------------------------------------------------------------------

template <class T, int N> struct alignas(sizeof(T) * N) Pack {
    T at[N];
};

// Elements of 16 bytes, the most that a thread loads or stores at once.
template <class T> constexpr int PACK = 16 / (int)sizeof(T);

// The N elements from p on, as floats. p is a multiple of N elements, or N is 1.
template <int N, class T> __device__ __forceinline__ void load(const T *p, float (&v)[N]) {
    Pack<T, N> pack = *(const Pack<T, N> *)p;
#pragma unroll
    for (int j = 0; j < N; ++j) {
        v[j] = to_float(pack.at[j]);
    }
}

template <int N, class T> __device__ __forceinline__ void store(T *p, const float (&v)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (int j = 0; j < N; ++j) {
        pack.at[j] = from_float<T>(v[j]);
    }
    *(Pack<T, N> *)p = pack;
}

// Calls f.pack<N>(i) for the packs of N among n elements, i being the first of each, and f.pack<1>(i) for those that fill
// no pack. The threads of the launch, at least N, stride over them.
template <int N, class F> __device__ __forceinline__ void for_packs(i64 n, const F &f) {
    i64 whole = n - n % N;
    for (i64 i = thread_index() * N; i < whole; i += thread_count() * N) {
        f.template pack<N>(i);
    }
    i64 i = whole + thread_index();
    if (i < n) {
        f.template pack<1>(i);
    }
}

// ---- Reductions -----------------------------------------------------------------------------------------------------

// Sum over the 32 threads of a warp, in every thread: a butterfly, the same order every time. All threads must call it.
template <class S> __device__ __forceinline__ S warp_sum(S x) {
    for (int offset = 16; offset > 0; offset >>= 1) {
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    }
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
    for (int offset = 16; offset > 0; offset >>= 1) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    }
    return x;
}

// Sum over the threads of a block of at most 1024, a multiple of 32 in x alone; in every thread. All must call it.
template <class S> __device__ __forceinline__ S block_sum(S x) {
    __shared__ S partial[32];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    x = warp_sum(x);
    __syncthreads();  // `partial` may still be read from the call before.
    if (lane == 0) {
        partial[warp] = x;
    }
    __syncthreads();
    return warp_sum(lane < warps ? partial[lane] : S(0));
}

__device__ __forceinline__ float block_max(float x) {
    __shared__ float partial[32];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    x = warp_max(x);
    __syncthreads();
    if (lane == 0) {
        partial[warp] = x;
    }
    __syncthreads();
    return warp_max(lane < warps ? partial[lane] : partial[0]);
}

// ---- Activations ----------------------------------------------------------------------------------------------------

// As `Activation::facts` in crates/engine/src/graph/op/activation.rs numbers them; torch.nn defines them.
enum Activation {
    NO_ACTIVATION = 0,
    RELU = 1,
    HARDTANH = 2,
    LEAKY_RELU = 3,
    ELU = 4,
    GELU = 5,
    GELU_TANH = 6,
    SILU = 7,
    TANH = 8,
    SIGMOID = 9,
    HARDSIGMOID = 10,
    HARDSWISH = 11,
    MISH = 12,
    SOFTPLUS = 13,
    SELU = 14,
    SOFTSIGN = 15,
    LOG_SIGMOID = 16,
    TANHSHRINK = 17,
    HARDSHRINK = 18,
    SOFTSHRINK = 19,
    WAVE = 20,
};

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// ln(1 + eˣ); only numbers up to 1 go through the exponential, so that nothing overflows.
__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

// 1 / x within one unit in the last place, for x from 1 on, where a division would take a dozen instructions.
__device__ __forceinline__ float reciprocal(float x) {
#ifdef RUNNER_EMULATED
    return 1.0f / x;
#else
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// The distribution function of the standard normal and its density at x (Abramowitz & Stegun 26.2.17: within 7.5e-8). One
// exponential serves both, and the tail is not a difference, so that small results keep their digits.
struct Normal {
    float cdf, density;
    __device__ __forceinline__ explicit Normal(float x) {
        float t = reciprocal(1.0f + 0.2316419f * fabsf(x));
        density = 0.39894228f * expf(-0.5f * x * x);
        float p = (((1.3302744f * t - 1.8212559f) * t + 1.7814779f) * t - 0.35656378f) * t + 0.31938153f;
        float tail = density * (p * t);
        cdf = x > 0.0f ? 1.0f - tail : tail;
    }
};

// What mish multiplies x with, tanh(ln(1 + e)) = n / (n + 2) for n = e² + 2e, where e is the exponential of x up to 20: beyond
// that it is 1, and nothing overflows. No fminf, which would lose a NaN.
struct MishGate {
    float x, e, n, r;
    __device__ __forceinline__ explicit MishGate(float of) {
        x = of > 20.0f ? 20.0f : of;
        e = expf(x);
        n = e * (e + 2.0f);
        r = 1.0f / (n + 2.0f);
    }
};

// sin(x + shift · π) for a shift of 0, 1/2 or 1. What is left of x less a multiple of π goes through an odd minimax polynomial. Like
// what calls it, it is a template, so that its table is in no module that has no use for it.
template <typename Float> __device__ __forceinline__ Float wave(Float x, float shift) {
    float r;
    u32 odd;
    if (fabsf(x) <= 8192.0f) {
        // π in four parts, of which the first three have so few digits that the products are exact.
        float turns = rintf(fmaf(x, 0.31830987f, shift)), off = turns - shift;
        r = fmaf(off, -3.140625f, x);
        r = fmaf(off, -9.675026e-4f, r);
        r = fmaf(off, -1.5099067e-7f, r);
        r = fmaf(off, -5.126688e-12f, r);
        odd = (u32)(int)turns & 1;
    } else {
        // x is `digits` times a power of two. Of the bits of 1/π (here behind a word of zeros) those count that make no multiples of 2, 96 from the first on; the
        // product with them is x / π modulo 2, in parts of 2^-63 (Payne and Hanek 1983).
        static const u32 INVERSE_PI[8] = {0,          0x517cc1b7, 0x27220a94, 0xfe13abe8,
                                          0xfa9a6ee0, 0x6db14acc, 0x9e21c820, 0xff28b1d5};
        u32 bits = float_to_bits(x), exponent = bits >> 23 & 255, digits = (bits & 0x7fffff) | 0x800000;
        u32 start = exponent - 119, shift_by = start & 31;
        const u32 *word = INVERSE_PI + (start >> 5);
        u64 pair = (u64)word[1] << 32 | word[2];
        u32 high = (u32)(((u64)word[0] << 32 | word[1]) >> (32 - shift_by));
        u32 middle = (u32)(pair >> (32 - shift_by));
        u32 low = (u32)(((u64)word[2] << 32 | word[3]) >> (32 - shift_by));
        u64 product = ((u64)digits * low >> 32) + (u64)digits * middle;
        product += (u64)(digits * high) << 32;
        if (bits >> 31) {
            product = 0 - product;
        }
        product += (u64)(shift * 2.0f) << 62;
        u64 turns = (product + (1ull << 62)) >> 63;
        odd = (u32)turns;
        r = (float)(i64)(product - (turns << 63)) * 3.4061215800865545e-19f;
        if (exponent == 255) {
            r = x - x;
        }
    }
    float z = r * r;
    float bend = (((-2.5502594e-8f * z + 2.762705e-6f) * z - 1.9843093e-4f) * z + 8.3333505e-3f) * z - 1.6666667e-1f;
    float y = r * z * bend + r;
    return odd ? -y : y;
}

// SELU's two constants.
constexpr float SELU_SCALE = 1.0507010f, SELU_ALPHA = 1.6732632f;

// act(x) for the activations up to HARDSWISH, which products, convolutions, normalisations and sums apply to their results; the
// rest would make their code much longer. `slope` and `extra` are the constants of the formula: the two ends of HARDTANH
// (ReLU6 is the one from 0 to 6); what leaky ReLU and ELU multiply with, and ELU's factor in the exponent (CELU is one with
// another than 1); softplus's beta and threshold; what the shrinkages take off; WAVE's
// shift (the cosine is the sine with one of 1/2). Comparisons are written so that NaN passes through.
__device__ __forceinline__ float activate(int act, float slope, float extra, float x) {
    switch (act) {
    case RELU: return x < 0.0f ? 0.0f : x;
    case HARDTANH: return x < slope ? slope : (x > extra ? extra : x);
    case LEAKY_RELU: return x > 0.0f ? x : slope * x;
    case ELU: return x > 0.0f ? x : slope * expm1f(extra * x);
    case GELU: return x * Normal(x).cdf;
    case GELU_TANH: return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case SILU: return x * sigmoid(x);
    case TANH: return tanhf(x);
    case SIGMOID: return sigmoid(x);
    case HARDSIGMOID: return x <= -3.0f ? 0.0f : (x >= 3.0f ? 1.0f : (x + 3.0f) / 6.0f);
    case HARDSWISH: return x <= -3.0f ? 0.0f : (x >= 3.0f ? x : x * (x + 3.0f) / 6.0f);
    default: return x;
    }
}

// The same for the rest of them.
template <typename Float> __device__ __forceinline__ float activate_rest(int act, float slope, float extra, Float x) {
    switch (act) {
    case MISH: {
        MishGate gate(x);
        return x * (gate.n * gate.r);
    }
    case SOFTPLUS: return slope * x > extra ? x : softplus(slope * x) / slope;
    case SELU: return x > 0.0f ? SELU_SCALE * x : SELU_SCALE * SELU_ALPHA * expm1f(x);
    case SOFTSIGN: return x / (1.0f + fabsf(x));
    case LOG_SIGMOID: return -softplus(-x);
    case TANHSHRINK: {
        // Near 0 the difference would leave few digits: tanh's polynomial there, as the CPU has it.
        float z = x * x;
        float p = (((-5.7049887e-3f * z + 2.063909e-2f) * z - 5.3739716e-2f) * z + 1.3331442e-1f) * z - 3.333328e-1f;
        return fabsf(x) > 0.625f ? x - tanhf(x) : -(z * p) * x;
    }
    case WAVE: return wave(x, slope);
    case HARDSHRINK: return fabsf(x) <= slope ? 0.0f : x;
    case SOFTSHRINK: return x - fminf(fmaxf(x, -slope), slope);
    default: return activate(act, slope, extra, x);
    }
}

// dy · act'(x), with torch's values at kinks. `saved` is act(x) where Activation::grad_from_output says so, else x.
template <typename Float>
__device__ __forceinline__ float activate_grad(int act, float slope, float extra, Float saved, float dy) {
    Float s = saved;
    switch (act) {
    case RELU: return s > 0.0f ? dy : 0.0f;
    case HARDTANH: return s <= slope || s >= extra ? 0.0f : dy;
    case LEAKY_RELU: return s > 0.0f ? dy : slope * dy;
    // With a negative scale the output's sign does not tell the input's, and the input is saved.
    case ELU: return s > 0.0f ? dy : dy * (slope >= 0.0f ? (s + slope) * extra : slope * expf(s));
    case GELU: {
        Normal normal(s);
        return dy * (normal.cdf + s * normal.density);
    }
    case GELU_TANH: {
        float t = tanhf(0.79788456f * (s + 0.044715f * s * s * s));
        float inner = 0.79788456f * (1.0f + 3.0f * 0.044715f * s * s);
        return dy * 0.5f * (1.0f + t + s * (1.0f - t * t) * inner);
    }
    case SILU: {
        float g = sigmoid(s);
        return dy * g * (1.0f + s * (1.0f - g));
    }
    case TANH: return dy * (1.0f - s * s);
    case SIGMOID: return dy * s * (1.0f - s);
    case HARDSIGMOID: return s > 0.0f && s < 1.0f ? dy / 6.0f : 0.0f;
    case HARDSWISH: return s <= -3.0f ? 0.0f : (s >= 3.0f ? dy : dy * (s / 3.0f + 0.5f));
    case MISH: {
        // With the gate g, (1 − g²) · sigmoid(x) is 4e (1 + e) / (n + 2)².
        MishGate gate(s);
        return dy * (gate.n * gate.r + 4.0f * gate.x * (gate.e * gate.r * ((gate.e + 1.0f) * gate.r)));
    }
    case SOFTPLUS: return slope * s > extra ? dy : dy * sigmoid(slope * s);
    case SELU: return dy * (s > 0.0f ? SELU_SCALE : s + SELU_SCALE * SELU_ALPHA);
    case SOFTSIGN: {
        float r = 1.0f / (1.0f + fabsf(s));
        return dy * (r * r);
    }
    case LOG_SIGMOID: return dy * -expm1f(s);
    case TANHSHRINK: {
        float t = tanhf(s);
        return dy * (t * t);
    }
    case WAVE: return dy * wave(s, slope + 0.5f);
    case HARDSHRINK:
    case SOFTSHRINK: return s == 0.0f ? 0.0f : dy;
    default: return dy;
    }
}

// Expands CASE(act) to a case for every activation, so that N elements share one decision: those that `activate` has, and all.
#define FOR_JOINED_ACTIVATIONS(CASE)                                                                                     \
    CASE(RELU) CASE(HARDTANH) CASE(LEAKY_RELU) CASE(ELU) CASE(GELU) CASE(GELU_TANH) CASE(SILU) CASE(TANH) CASE(SIGMOID) \
    CASE(HARDSIGMOID) CASE(HARDSWISH)
#define FOR_ACTIVATIONS(CASE)                                                                                            \
    FOR_JOINED_ACTIVATIONS(CASE) CASE(MISH) CASE(SOFTPLUS) CASE(SELU) CASE(SOFTSIGN) CASE(LOG_SIGMOID) CASE(TANHSHRINK)  \
    CASE(HARDSHRINK) CASE(SOFTSHRINK) CASE(WAVE)

// v = act(v) for N elements, with an activation that `activate` has.
template <int N> __device__ __forceinline__ void activate_joined_all(int act, float slope, float extra, float (&v)[N]) {
    switch (act) {
#define CASE(ACT)                             \
    case ACT:                                 \
        for (int j = 0; j < N; ++j) {         \
            v[j] = activate(ACT, slope, extra, v[j]); \
        }                                     \
        break;
        FOR_JOINED_ACTIVATIONS(CASE)
#undef CASE
    default: break;
    }
}

// The same with any.
template <int N> __device__ __forceinline__ void activate_all(int act, float slope, float extra, float (&v)[N]) {
    switch (act) {
#define CASE(ACT)                             \
    case ACT:                                 \
        for (int j = 0; j < N; ++j) {         \
            v[j] = activate_rest(ACT, slope, extra, v[j]); \
        }                                     \
        break;
        FOR_ACTIVATIONS(CASE)
#undef CASE
    default: break;
    }
}

// dy = dy · act' for N elements.
template <int N>
__device__ __forceinline__ void activate_grad_all(int act, float slope, float extra, const float (&saved)[N], float (&dy)[N]) {
    switch (act) {
#define CASE(ACT)                                              \
    case ACT:                                                  \
        for (int j = 0; j < N; ++j) {                          \
            dy[j] = activate_grad(ACT, slope, extra, saved[j], dy[j]); \
        }                                                      \
        break;
        FOR_ACTIVATIONS(CASE)
#undef CASE
    default: break;
    }
}

// ---- Loops ----------------------------------------------------------------------------------------------------------

// How many times the compiler is to unroll the loop that follows.
#ifdef RUNNER_EMULATED
#define UNROLL(times)
#else
#define PRAGMA(text) _Pragma(#text)
#define UNROLL(times) PRAGMA(unroll (times))
#endif

// ---- Instantiation --------------------------------------------------------------------------------------------------

// FOR_FLOATS(M) defines M(type, suffix) for every float storage type.
#define FOR_FLOATS(M) M(float, f32) M(bf16, bf16) M(f16, f16)

// Shared memory whose size the launch gives.
#ifdef RUNNER_EMULATED
#define DYNAMIC_SHARED(type, name) type *name = (type *)emulated::dynamic_shared()
#else
#define DYNAMIC_SHARED(type, name)                  \
    extern __shared__ __align__(16) u8 name##_raw[]; \
    type *name = (type *)name##_raw
#endif
