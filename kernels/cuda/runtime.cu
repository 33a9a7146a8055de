// What the executable itself adds to a program.
#include "common.cuh"

// Notes a step's loss. loss (1), losses (ring), taken (1): number of losses noted so far, halted (1).
// A loss that is not finite halts the run: the update sees a loss that is not finite and changes nothing, in this step and
// in all that were enqueued behind it, so that the host, which looks every so many steps, finds the state of before.
extern "C" __global__ void watch_loss(float *loss, float *losses, u32 *taken, u32 *halted, int ring) {
    if (threadIdx.x != 0 || blockIdx.x != 0) {
        return;
    }
    float x = *loss;
    u32 at = *taken;
    losses[at % (u32)ring] = x;
    *taken = at + 1;
    bool finite = (float_to_bits(x) & 0x7f800000u) != 0x7f800000u;
    if (!finite) {
        *halted = 1;
    } else if (*halted) {
        *loss = bits_to_float(0x7fc00000u);
    }
}

// The bits of a number, which differ where two zeros or NaNs do.
__device__ __forceinline__ u32 bits_of(float x) { return float_to_bits(x); }
template <class T> __device__ __forceinline__ u32 bits_of(T x) { return x.bits; }

// `first` (1), which begins as the largest number, becomes that of the first of n elements, fewer than 2^31, of b that is further
// from a than absolute + relative · |a|, or no number; if `absolute` is negative, whose bits are not those of a.
template <class T>
__device__ __forceinline__ void first_difference(
    const T *__restrict__ a, const T *__restrict__ b, i64 n, float absolute, float relative, u32 *first) {
    for (i64 i = thread_index(); i < n; i += thread_count()) {
        float x = to_float(a[i]), y = to_float(b[i]);
        float apart = x > y ? x - y : y - x, size = x < 0 ? -x : x;
        // False for a NaN.
        bool same = absolute < 0 ? bits_of(a[i]) == bits_of(b[i]) : apart <= absolute + relative * size;
        if (!same) {
            atomicMin(first, (u32)i);
            return;
        }
    }
}

#define FIRST_DIFFERENCE(T, SUFFIX)                                                                       \
    extern "C" __global__ void __launch_bounds__(256) first_difference_##SUFFIX(                          \
        const T *a, const T *b, i64 n, float absolute, float relative, u32 *first) {                      \
        first_difference(a, b, n, absolute, relative, first);                                             \
    }
FOR_FLOATS(FIRST_DIFFERENCE)
