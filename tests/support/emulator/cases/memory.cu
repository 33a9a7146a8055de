// Reads and writes of global memory.
#include "../../../../kernels/cuda/common.cuh"

// x[i] = x[i] * factor + term
extern "C" __global__ void case_affine(float *x, float factor, float term, i64 n) {
    for (i64 i = thread_index(); i < n; i += thread_count()) {
        x[i] = x[i] * factor + term;
    }
}

// to[i] += from[i], four at a time: both are to be aligned to 16 bytes.
extern "C" __global__ void case_add_vectors(const float4 *from, float4 *to, int n) {
    i64 i = thread_index();
    if (i < n) {
        float4 a = from[i], b = to[i];
        to[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    }
}

// One byte behind the launch's dynamic shared memory.
extern "C" __global__ void case_beyond_shared(int bytes) {
    DYNAMIC_SHARED(u8, tile);
    ((volatile u8 *)tile)[bytes] = 1;
}

// x[i] as binary16 and back.
extern "C" __global__ void case_half(float *x, int n) {
    i64 i = thread_index();
    if (i < n) {
        x[i] = to_float(from_float<f16>(x[i]));
    }
}

// out (3, 32, 4): 16 bytes for each thread of what two copies have brought when at most 2, 1 and 0 groups are under way.
extern "C" __global__ void case_async_copy(const float *from, float *out) {
    __shared__ __align__(16) float to[2][32][4];
    int i = threadIdx.x;
    emulated::cp_async_16(to[0][i], from + i * 4);
    emulated::cp_async_commit();
    emulated::cp_async_16(to[1][i], from + i * 4, 8);
    emulated::cp_async_commit();
    for (int pending = 2; pending >= 0; pending--) {
        emulated::cp_async_wait(pending);
        for (int k = 0; k < 4; k++) {
            out[((2 - pending) * 32 + i) * 4 + k] = to[0][i][k] + to[1][i][k];
        }
        __syncthreads();
    }
}
