// Scaled dot-product attention and its gradients, after FlashAttention-2 (Dao 2023): no matrix of scores in device memory. Positions of one
// sequence see each other, all of them or those before; attention_far.cu has what else there is.
//
// qkv [samples, length, 3, heads, width], y and dy [samples, length, heads, width], lse and delta [samples, heads, length].
#include "attention_mma.cuh"
#include "attention_plain.cuh"

// With a bias it takes more registers, so that is a kernel of its own: as many as there are for two blocks.
#define FORWARD_OF(NAME, BIASED, BOUNDS, T, S)                                                                                          \
    extern "C" __global__ void __launch_bounds__ BOUNDS                                                                                 \
        NAME##_##S(const T *qkv, T *y, float *lse, const float *bias, int biases, const int *lengths, int length, int heads, int width, \
                   int causal, float scale, const u32 *random, u32 stream, u32 threshold, float kept) {                                 \
        Job job(length, heads, width, causal, scale, Dropout{random, stream, threshold, kept});                                         \
        job.of_block(SIDE, SIDE, BIASED ? bias : nullptr, biases, lengths);                                                             \
        forward<BIASED, Job, T>(job, qkv, y, lse);                                                                                              \
    }
#define FORWARD(T, S) FORWARD_OF(attention, false, (256), T, S) FORWARD_OF(attention_biased, true, (256, 2), T, S)
FOR_FLOATS(FORWARD)

// Σ dy · y over a lane's part of a row, N elements at a time: every LANES-th N.
template <int N, int LANES, class T> __device__ __forceinline__ float part_of_products(const T *dy, const T *y, int width) {
    float sum = 0.0f;
    for (int i = threadIdx.x % LANES * N; i < width; i += LANES * N) {
        float a[N], b[N];
        load<N>(dy + i, a);
        load<N>(y + i, b);
#pragma unroll
        for (int j = 0; j < N; ++j) {
            sum += a[j] * b[j];
        }
    }
    return sum;
}

// delta = Σ dy · y of each head of each position: eight lanes for each.
template <class T>
__device__ __forceinline__ void products(const T *dy, const T *y, float *delta, i64 rows, int length, int heads,
                                         int width) {
    constexpr int LANES = 8;
    i64 row = thread_index() / LANES, at = row * width;
    float sum = 0.0f;
    if (row < rows) {
        sum = width % PACK<T> == 0 ? part_of_products<PACK<T>, LANES>(dy + at, y + at, width)
                                   : part_of_products<1, LANES>(dy + at, y + at, width);
    }
    for (int offset = LANES / 2; offset > 0; offset >>= 1) {
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    }
    if (row < rows && threadIdx.x % LANES == 0) {
        u32 position = (u32)(row / heads), head = (u32)(row - (i64)position * heads), sample = position / length;
        delta[((i64)sample * heads + head) * length + (position - sample * length)] = sum;
    }
}

#define PRODUCTS(T, S)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                    \
        attention_delta_##S(const T *dy, const T *y, float *delta, i64 rows, int length, int heads,     \
                            int width) {                                                                 \
        products(dy, y, delta, rows, length, heads, width);                                              \
    }
FOR_FLOATS(PRODUCTS)

#define GRAD(NAME, T, S)                                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                                           \
        attention_##NAME##_##S(const T *dy, const T *qkv, const float *lse, const float *delta, T *dqkv,                        \
                               const float *bias, int biases, const int *lengths, int length, int heads, int width, int causal, \
                               float scale, const u32 *random, u32 stream, u32 threshold, float kept) {                         \
        Job job(length, heads, width, causal, scale, Dropout{random, stream, threshold, kept});                                 \
        job.of_block(SIDE, SIDE, bias, biases, lengths);                                                                        \
        NAME(job, Saved<T, Job>{dy, qkv, lse, delta}, dqkv);                                                                         \
    }
#define GRAD_BIAS(T, S)                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                                                  \
        attention_grad_bias_##S(const T *dy, const T *qkv, const float *lse, const float *delta, float *dbias,                            \
                                int turns, int each, const float *bias, int biases, const int *lengths, int length, int heads, int width, \
                                int causal, float scale, const u32 *random, u32 stream, u32 threshold, float kept) {                      \
        Job job(length, heads, width, causal, scale, Dropout{random, stream, threshold, kept});                                           \
        grad_bias(job, Saved<T, Job>{dy, qkv, lse, delta}, bias, biases, lengths, turns, each, dbias);                                         \
    }
#define GRADS(T, S) GRAD(grad_keys, T, S) GRAD(grad_queries, T, S) GRAD_BIAS(T, S)
FOR_FLOATS(GRADS)

// For heads of up to D elements: BLOCKS are how many a multiprocessor is to hold. All have 256 rows in shared memory: two stages of 64 of each of two
// operands, or of 32, and 64 of the block's own; for the gradient by the bias one stage of 64 of four. crates/engine/src/backend/cuda/lower/attention.rs has the same numbers.
#define ATTENTION_MMA(KIND, T, S, D, FORWARD_BLOCKS, FORWARD_M, BLOCKS, KEYS_TILE, KEYS_KEPT)                                                              \
    extern "C" __global__ void __launch_bounds__(128, FORWARD_BLOCKS)                                                                                      \
        attention_mma_##D##_##S(const T *qkv, T *y, float *lse, const float *bias, int biases, const int *lengths, int length, int heads, int width,       \
                                int causal, float scale, const u32 *random, u32 stream, u32 threshold, float kept) {                                       \
        ON_TENSOR_CORES(Job job(length, heads, width, causal, scale, Dropout{random, stream, threshold, kept});                                            \
                        job.of_block(64 * FORWARD_M, D, bias, biases, lengths);                                                                            \
                        attention_mma::forward<attention_mma::Tile<KIND, D>, FORWARD_M, 64, 32>(job, qkv, y, lse);)                                        \
    }                                                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS)                                                                                              \
        attention_mma_grad_keys_##D##_##S(const T *dy, const T *qkv, const float *lse, const float *delta, T *dqkv, const float *bias,                     \
                                          int biases, const int *lengths, int length, int heads, int width, int causal, float scale, const u32 *random,    \
                                          u32 stream, u32 threshold, float kept) {                                                                         \
        ON_TENSOR_CORES(Job job(length, heads, width, causal, scale, Dropout{random, stream, threshold, kept});                                            \
                        job.of_block(64, D, bias, biases, lengths);                                                                                        \
                        attention_mma::Operands<T, Job> operands{dy, qkv, lse, delta};                                                                          \
                        attention_mma::grad_keys<attention_mma::Tile<KIND, D>, KEYS_TILE, 32, KEYS_KEPT>(job, operands, dqkv);)                            \
    }                                                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS)                                                                                              \
        attention_mma_grad_queries_##D##_##S(const T *dy, const T *qkv, const float *lse, const float *delta, T *dqkv, const float *bias,                  \
                                             int biases, const int *lengths, int length, int heads, int width, int causal, float scale, const u32 *random, \
                                             u32 stream, u32 threshold, float kept) {                                                                      \
        ON_TENSOR_CORES(Job job(length, heads, width, causal, scale, Dropout{random, stream, threshold, kept});                                            \
                        job.of_block(64, D, bias, biases, lengths);                                                                                        \
                        attention_mma::Operands<T, Job> operands{dy, qkv, lse, delta};                                                                          \
                        attention_mma::grad_queries<attention_mma::Tile<KIND, D>, 64, 32>(job, operands, dqkv);)                                           \
    }
#define ATTENTION_MMA_BIAS(T, S, D)                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128, 2)                                                                                             \
        attention_mma_grad_bias_##D##_##S(const T *dy, const T *qkv, const float *lse, const float *delta, float *dbias, int turns,                  \
                                          int each, const float *bias, int biases, const int *lengths, int length, int heads, int width, int causal, \
                                          float scale, const u32 *random, u32 stream, u32 threshold, float kept) {                                   \
        ON_TENSOR_CORES(Job job(length, heads, width, causal, scale, Dropout{random, stream, threshold, kept});                                      \
                        attention_mma::Operands<T, Job> operands{dy, qkv, lse, delta};                                                                    \
                        attention_mma::grad_bias<attention_mma::Tile<T, D>>(job, operands, bias, biases, lengths, turns, each, dbias);)              \
    }
#define ATTENTION_MMA_16(T, S)                      \
    ATTENTION_MMA(T, T, S, 32, 3, 2, 3, 64, true)   \
    ATTENTION_MMA(T, T, S, 64, 2, 2, 3, 64, true)   \
    ATTENTION_MMA(T, T, S, 96, 2, 1, 2, 32, false)  \
    ATTENTION_MMA(T, T, S, 128, 2, 1, 2, 32, false) \
    ATTENTION_MMA_BIAS(T, S, 32)                    \
    ATTENTION_MMA_BIAS(T, S, 64)
ATTENTION_MMA_16(bf16, bf16)
ATTENTION_MMA_16(f16, f16)
ATTENTION_MMA(Tf32, float, tf32, 32, 2, 1, 2, 64, true)
ATTENTION_MMA(Tf32, float, tf32, 64, 2, 1, 2, 32, false)
