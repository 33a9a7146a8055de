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
        if constexpr (N == 1) {
            Draws draws = dropout_draws(random, stream, (u64)i / 4);
            v[0] *= draws.word[i % 4] >= threshold ? scale : 0.0f;
        } else {
            for (int quad = 0; quad < N; quad += 4) {
                Draws draws = dropout_draws(random, stream, (u64)(i + quad) / 4);
                for (int j = 0; j < 4; ++j) {
                    v[quad + j] *= draws.word[j] >= threshold ? scale : 0.0f;
                }
            }
        }
        store(y + i, v);
    }
};

#define KERNEL(T, NAME)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) dropout_##NAME(                              \
        const T *x, const u32 *random, T *y, i64 n, u32 stream, u32 threshold, float scale) {      \
        for_packs<PACK<T>>(n, Dropout<T>{x, y, random, stream, threshold, scale});                 \
    }
FOR_FLOATS(KERNEL)
