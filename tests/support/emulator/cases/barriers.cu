// Threads that wait for each other, rightly and wrongly.
#include "../../../../kernels/cuda/common.cuh"

// out[block] = sum of the block's part of x, of n elements.
extern "C" __global__ void __launch_bounds__(1024) case_block_sum(const float *x, float *out, int n) {
    i64 i = thread_index();
    float sum = block_sum(i < n ? x[i] : 0.0f);
    if (threadIdx.x == 0) {
        out[blockIdx.x] = sum;
    }
}

// The block's part of x reversed, through dynamic shared memory.
extern "C" __global__ void case_reverse(float *x) {
    DYNAMIC_SHARED(float, tile);
    x += (i64)blockIdx.x * blockDim.x;
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

// What shuffles and votes give: of 32 threads, 8 numbers each.
extern "C" __global__ void case_warp(int *out) {
    int lane = threadIdx.x;
    out += lane * 8;
    out[0] = __shfl_sync(~0u, lane, 5);
    out[1] = __shfl_up_sync(~0u, lane, 3);
    out[2] = __shfl_down_sync(~0u, lane, 3);
    out[3] = __shfl_xor_sync(~0u, lane, 9);
    out[4] = (int)__ballot_sync(~0u, lane % 3 == 0);
    out[5] = __shfl_sync(~0u, lane, 2, 8);
    // Half warps go their own ways.
    if (lane < 16) {
        out[6] = __any_sync(0xffffu, lane == 7);
    } else {
        out[6] = __all_sync(0xffff0000u, lane > 16);
    }
    out[7] = __syncthreads_count(lane < 10);
}

// Blocks count themselves; the last one writes how many there are.
extern "C" __global__ void case_last_block(u32 *counter, u32 *out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(counter, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == blockDim.x - 1) {
        *out = atomicAdd(counter, 0);
    }
}

// One barrier for some threads, another for the rest.
extern "C" __global__ void case_divergent() {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

// A barrier that one thread never comes to.
extern "C" __global__ void case_early_exit() {
    if (threadIdx.x == 3) {
        return;
    }
    __syncthreads();
}
