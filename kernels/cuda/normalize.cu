// Samples of bytes or floats to normalised floats.
#include "common.cuh"

// Of one channel.
struct alignas(8) Statistics {
    float mean, inverse_std;
};

// x, y are [n], with the channels innermost; `statistics [channels]`, or [1] for all channels.
// The mean is subtracted before anything else is multiplied: data far from 0 then loses no digits.
template <class T, class U> struct Normalize {
    const T *__restrict__ x;
    U *__restrict__ y;
    float scale;
    const Statistics *__restrict__ statistics;
    int channels;

    template <int N> __device__ __forceinline__ void pack(i64 i) const {
        int channel = (i >> 32) == 0 ? (u32)i % (u32)channels : i % channels;
        float v[N];
        load(x + i, v);
        for (int j = 0; j < N; ++j) {
            Statistics s = statistics[channel];
            v[j] = (v[j] * scale - s.mean) * s.inverse_std;
            channel = channel + 1 < channels ? channel + 1 : 0;
        }
        store(y + i, v);
    }
};

#define KERNEL(T, FROM, U, TO)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) normalize_##FROM##_##TO(                                  \
        const T *x, U *y, i64 n, float scale, const Statistics *statistics, int channels) {                     \
        for_packs<PACK<U>>(n, Normalize<T, U>{x, y, scale, statistics, channels});                              \
    }
#define KERNELS(U, TO) KERNEL(u8, u8, U, TO) KERNEL(float, f32, U, TO)
FOR_FLOATS(KERNELS)
