// What the sanitizer is to find, each with `right` to do it rightly.
#include "../../../../kernels/cuda/common.cuh"

// x reversed, a block's part, by way of shared memory.
extern "C" __global__ void case_missing_barrier(float *x, int right) {
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    if (right) {
        __syncthreads();
    }
    x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

// What is read may not be written again before all have read it: the barrier at a loop's end.
extern "C" __global__ void case_missing_second_barrier(float *x, int right) {
    DYNAMIC_SHARED(float, tile);
    float sum = 0.0f;
    for (int round = 0; round < 3; round++) {
        tile[threadIdx.x] = x[threadIdx.x] + (float)round;
        __syncthreads();
        sum += tile[(threadIdx.x + 1) % blockDim.x];
        if (right) {
            __syncthreads();
        }
    }
    x[threadIdx.x] = sum;
}

// Two arrays in dynamic shared memory, the second of which begins an element too early.
extern "C" __global__ void case_overlap(float *x, int right) {
    DYNAMIC_SHARED(float, first);
    float *second = first + blockDim.x - (right ? 0 : 1);
    first[threadIdx.x] = x[threadIdx.x];
    second[threadIdx.x] = 2.0f * x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x];
}

// As before, and bytes instead of floats: neighbours in a word are no overlap.
extern "C" __global__ void case_overlapping_bytes(u8 *x, int right) {
    DYNAMIC_SHARED(u8, first);
    u8 *second = first + blockDim.x - (right ? 0 : 1);
    first[threadIdx.x] = x[threadIdx.x];
    second[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = (u8)(first[threadIdx.x] + second[threadIdx.x]);
}

// An asynchronous copy is read before its thread has waited for it.
extern "C" __global__ void case_read_before_wait(float *x, int right) {
    __shared__ __align__(16) float tile[32][4];
    int i = threadIdx.x;
    emulated::cp_async_16(tile[i], x + 4 * i);
    emulated::cp_async_commit();
    if (right) {
        emulated::cp_async_wait_all();
    }
    float sum = tile[i][0];
    emulated::cp_async_wait_all();
    __syncthreads();
    x[4 * i] = sum;
}

// An asynchronous copy has been waited for by its thread, and is read by another without a barrier.
extern "C" __global__ void case_wait_without_barrier(float *x, int right) {
    __shared__ __align__(16) float tile[32][4];
    int i = threadIdx.x;
    emulated::cp_async_16(tile[i], x + 4 * i);
    emulated::cp_async_commit();
    emulated::cp_async_wait_all();
    if (right) {
        __syncthreads();
    }
    float sum = tile[31 - i][0];
    __syncthreads();
    x[4 * i] = sum;
}

// The next asynchronous copy overwrites what others may still read.
extern "C" __global__ void case_copy_over_reads(float *x, int right) {
    DYNAMIC_SHARED(float, tile);
    int i = threadIdx.x;
    float sum = 0.0f;
    for (int round = 0; round < 2; round++) {
        if (right) {
            __syncthreads();
        }
        emulated::cp_async_16(tile + 4 * i, x + 4 * i);
        emulated::cp_async_wait_all();
        __syncthreads();
        sum += tile[4 * (31 - i)];
    }
    __syncthreads();
    x[4 * i] = sum;
}

// The sum of a warp's numbers, as it was written when a warp's threads ran in step.
extern "C" __global__ void case_warp_in_step(float *x, int right) {
    __shared__ float sums[32];
    int i = threadIdx.x;
    sums[i] = x[i];
    for (int width = 16; width > 0; width /= 2) {
        if (right) {
            __syncwarp();
        }
        float other = sums[(i + width) % 32];
        if (right) {
            __syncwarp();
        }
        sums[i] += other;
    }
    x[i] = sums[i];
}

// A shuffle makes lanes wait for each other, and orders no memory.
extern "C" __global__ void case_shuffle_is_no_barrier(float *x, int right) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    tile[i] = x[i];
    float other = __shfl_xor_sync(~0u, x[i], 1);
    if (right) {
        __syncwarp();
    }
    x[i] = other + tile[i ^ 1];
}

// Half of a warp meets, and the other half reads what it has written.
extern "C" __global__ void case_half_a_warp_meets(float *x, int right) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    tile[i] = x[i];
    if (right) {
        __syncwarp();
    } else if (i < 16) {
        __syncwarp(0xffffu);
    } else {
        __syncwarp(0xffff0000u);
    }
    x[i] = tile[i ^ 16];
}

// Rows for `ldmatrix` are written by other lanes.
extern "C" __global__ void case_matrix_load(float *x, int right) {
    __shared__ __align__(16) unsigned short rows[32][8];
    int i = threadIdx.x;
    for (int k = 0; k < 8; k++) {
        rows[31 - i][k] = (unsigned short)k;
    }
    if (right) {
        __syncwarp();
    }
    unsigned q[4];
    emulated::ldmatrix_x4(q, rows[i]);
    x[i] = (float)(q[0] & 0xffffu);
}

// What no thread of the block has written; another block may have.
extern "C" __global__ void case_unwritten(float *x, int right) {
    __shared__ float tile[64];
    if (right || blockIdx.x == 0) {
        tile[threadIdx.x] = 1.0f;
    }
    __syncthreads();
    x[blockIdx.x * blockDim.x + threadIdx.x] = tile[threadIdx.x];
}

// Ahead of the launch's part of dynamic shared memory.
extern "C" __global__ void case_ahead_of_shared(float *x, int right) {
    DYNAMIC_SHARED(float, tile);
    tile[(int)threadIdx.x - (right ? 0 : 1)] = x[threadIdx.x];
}

// ---- Global memory --------------------------------------------------------------------------------------------------

// y = x, an element too many.
extern "C" __global__ void case_one_too_many(const float *x, float *y, int n, int right) {
    int i = threadIdx.x, last = right ? n - 1 : n;
    if (i <= last) {
        float value = x[i < n ? i : n - 1];
        y[i] = value;
    }
}

// y[i] = x[i + 1], and 0 for the last.
extern "C" __global__ void case_next(const float *x, float *y, int n, int right) {
    int i = threadIdx.x;
    if (i < n) {
        y[i] = right && i == n - 1 ? 0.0f : x[i + 1];
    }
}

// Four elements at once, of a number that is no multiple of four.
extern "C" __global__ void case_packs(const float *x, float *y, int n, int right) {
    int i = 4 * (int)threadIdx.x;
    if (i + (right ? 3 : 0) < n) {
        *(float4 *)(y + i) = *(const float4 *)(x + i);
    }
}

// Writes to what is only to be read.
extern "C" __global__ void case_writes_operand(float *x, float *y, int n, int right) {
    int i = threadIdx.x;
    if (i < n) {
        (right ? y : x)[i] = 1.0f;
    }
}

// Every block writes its own element, or all of them the first.
extern "C" __global__ void case_blocks_write_one(float *x, float *y, int right) {
    if (threadIdx.x == 0) {
        y[right ? blockIdx.x : 0] = x[0];
    }
}

// A block reads what another writes, in whatever order they come.
extern "C" __global__ void case_blocks_read_others(float *x, float *y, int right) {
    int own = blockIdx.x * blockDim.x + threadIdx.x, count = gridDim.x * blockDim.x;
    float value = x[right ? own : (own + blockDim.x) % count];
    __syncthreads();
    x[own] = value + 1.0f;
    y[own] = value;
}

// Threads of a block hand numbers on through global memory.
extern "C" __global__ void case_through_memory(float *x, float *y, int right) {
    int i = threadIdx.x;
    x[i] = (float)i;
    if (right) {
        __syncthreads();
    }
    y[i] = x[blockDim.x - 1 - i];
}

// Counts by atomic operations, or reads the count besides.
extern "C" __global__ void case_counter(u32 *count, float *y, int right) {
    atomicAdd(count, 1);
    y[blockIdx.x * blockDim.x + threadIdx.x] = right ? 1.0f : (float)*count;
}
