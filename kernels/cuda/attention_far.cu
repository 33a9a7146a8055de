// Attention where more matters than which positions are before a query: queries of one sequence and keys of another, windows, and slopes by which
// what is far counts less. The arithmetic is that of attention_plain.cuh and attention_mma.cuh.
//
// Of one sequence q and kv are both qkv [samples, length, 3, heads, width]; of two q is [samples, queries, heads, width] and kv
// [samples, keys, 2, heads, width]. y and dy [samples, queries, heads, width], lse and delta [samples, heads, queries].
#include "attention_far.cuh"
#include "attention_mma.cuh"
#include "attention_plain.cuh"

// The last parameters of every kernel.
#define SIZES                                                                                                                        \
    const int *lengths, int queries, int keys, int heads, int width, int between, int causal, int window, int power, float scale,     \
        const u32 *random, u32 stream, u32 threshold, float kept
// The block's job: its rows are those of queries or KEYS.
#define JOB(KEYS, ROWS, COLUMNS)                                                                          \
    FarJob job{{queries, keys}, {0, 0}, width, heads, between != 0, causal != 0, window, scale, 0.0f, 0, 0, 0, \
               Dropout{random, stream, threshold, kept}};                                                 \
    job.of_block<KEYS>(ROWS, COLUMNS, lengths, power);

#define PLAIN(T, S)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256)                                                                        \
        attention_far_##S(const T *q, const T *kv, T *y, float *lse, SIZES) {                                                \
        JOB(false, SIDE, SIDE)                                                                                               \
        forward<false, FarJob, T>(job, Apart<const T>{q, kv}, y, lse);                                                       \
    }                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                                        \
        attention_far_grad_keys_##S(const T *dy, const T *q, const T *kv, const float *lse, const float *delta, T *dq, T *dkv, SIZES) { \
        JOB(true, SIDE, SIDE)                                                                                                \
        grad_keys(job, Saved<T, FarJob>{dy, {q, kv}, lse, delta}, Apart<T>{dq, dkv});                                        \
    }                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                                       \
        attention_far_grad_queries_##S(const T *dy, const T *q, const T *kv, const float *lse, const float *delta, T *dq, T *dkv, SIZES) { \
        JOB(false, SIDE, SIDE)                                                                                               \
        grad_queries(job, Saved<T, FarJob>{dy, {q, kv}, lse, delta}, Apart<T>{dq, dkv});                                     \
    }
FOR_FLOATS(PLAIN)

// As ATTENTION_MMA in attention.cu has them. QUERIES_STEP are the keys that a warp goes over at once for the gradient by queries: with fewer it takes fewer
// registers.
#define FAR_MMA(KIND, T, S, D, FORWARD_BLOCKS, FORWARD_M, BLOCKS, KEYS_TILE, KEYS_KEPT, QUERIES_STEP)                                                     \
    extern "C" __global__ void __launch_bounds__(128, FORWARD_BLOCKS)                                                                       \
        attention_far_mma_##D##_##S(const T *q, const T *kv, T *y, float *lse, SIZES) {                                                     \
        ON_TENSOR_CORES(JOB(false, 64 * FORWARD_M, D)                                                                                       \
                        attention_mma::forward<attention_mma::Tile<KIND, D>, FORWARD_M, 64, 32>(job, Apart<const T>{q, kv}, y, lse);)       \
    }                                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS)                                                                               \
        attention_far_mma_grad_keys_##D##_##S(const T *dy, const T *q, const T *kv, const float *lse, const float *delta, T *dq, T *dkv,    \
                                              SIZES) {                                                                                      \
        ON_TENSOR_CORES(JOB(true, 64, D) attention_mma::Operands<T, FarJob> operands{dy, {q, kv}, lse, delta};                              \
                        attention_mma::grad_keys<attention_mma::Tile<KIND, D>, KEYS_TILE, 32, KEYS_KEPT>(job, operands, Apart<T>{dq, dkv});) \
    }                                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS)                                                                               \
        attention_far_mma_grad_queries_##D##_##S(const T *dy, const T *q, const T *kv, const float *lse, const float *delta, T *dq, T *dkv, \
                                                 SIZES) {                                                                                   \
        ON_TENSOR_CORES(JOB(false, 64, D) attention_mma::Operands<T, FarJob> operands{dy, {q, kv}, lse, delta};                             \
                        attention_mma::grad_queries<attention_mma::Tile<KIND, D>, 64, QUERIES_STEP>(job, operands, Apart<T>{dq, dkv});)               \
    }
#define FAR_MMA_16(T, S)                      \
    FAR_MMA(T, T, S, 32, 2, 2, 2, 64, true, 32)   \
    FAR_MMA(T, T, S, 64, 2, 2, 2, 64, true, 32)   \
    FAR_MMA(T, T, S, 96, 2, 1, 2, 32, false, 32)  \
    FAR_MMA(T, T, S, 128, 2, 1, 1, 32, false, 32)
FAR_MMA_16(bf16, bf16)
FAR_MMA_16(f16, f16)
FAR_MMA(Tf32, float, tf32, 32, 2, 1, 2, 64, true, 32)
FAR_MMA(Tf32, float, tf32, 64, 2, 1, 1, 32, false, 16)
