// Dropout (Srivastava et al. 2014), forward and backward alike: the mask is drawn again, never kept.
#include "draws.cuh"

// x, y are [n]; y may be x. Draws below `threshold` drop their element, others scale it by `scale` = 1 / (1 − p).
template <class T> struct Dropout {
    const T *x;
    T *y;
    const u32 *random;
    u32 stream, threshold;
    float scale;

    template <int N> __device__ __forceinline__ void pack(i64 i) const {
        float v[N];
        load(x + i, v);
        drop(random, stream, threshold, scale, i, v);
        store(y + i, v);
    }
};

#define KERNEL(T, NAME)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) dropout_##NAME(                              \
        const T *x, const u32 *random, T *y, i64 n, u32 stream, u32 threshold, float scale) {      \
        for_packs<PACK<T>>(n, Dropout<T>{x, y, random, stream, threshold, scale});                 \
    }
FOR_FLOATS(KERNEL)
