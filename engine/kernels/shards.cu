// Sums over the shards of a step, in the order of a tree: engine/src/graph/op/shards.rs.
#include "optim.cuh"

// Stores what the shard has of each tensor in a slot, after what the slots from there on hold has been added to it. `place` is the slot, how
// many of them are added, and the number of shards. A tensor is a row of `slots + 2` cells: its length, what the shard has, its slots.
template <class T>
__device__ __forceinline__ void shard_sum(const int *place, const i64 *tensors, const Chunk *chunks, int chunk, int slots) {
    Chunk c = chunks[blockIdx.x];
    const i64 *tensor = tensors + c.tensor * (slots + 2);
    const T *value = (const T *)tensor[1];
    T *const *sums = (T *const *)(tensor + 2);
    int slot = min(max(place[0], 0), slots - 1);
    int merged = min(max(place[1], 0), slots - slot);
    i64 start = c.number * chunk;
    i64 end = min(tensor[0], start + chunk);
    for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) {
        T total = value[i];
        for (int k = slot + merged - 1; k >= slot; k--) {
            total = sums[k][i] + total;
        }
        sums[slot][i] = total;
    }
}

extern "C" __global__ void __launch_bounds__(256)
    shard_sum_f32(const int *place, const i64 *tensors, const Chunk *chunks, int chunk, int slots) {
    shard_sum<float>(place, tensors, chunks, chunk, slots);
}

extern "C" __global__ void __launch_bounds__(256)
    shard_sum_f64(const int *place, const i64 *tensors, const Chunk *chunks, int chunk, int slots) {
    shard_sum<double>(place, tensors, chunks, chunk, slots);
}

extern "C" __global__ void __launch_bounds__(256)
    shard_sum_i64(const int *place, const i64 *tensors, const Chunk *chunks, int chunk, int slots) {
    shard_sum<i64>(place, tensors, chunks, chunk, slots);
}

// A variable and the sum that it becomes the mean of; 24 bytes.
template <class T> struct Mean {
    T *to;
    const T *sum;
    i64 length;
};

// Variables = means over shards, unless the loss is not finite.
template <class T>
__device__ __forceinline__ void shard_mean(const float *loss, const int *place, const Mean<T> *tensors, const Chunk *chunks,
                                           int chunk) {
    if (!is_finite(loss[0])) {
        return;
    }
    Chunk c = chunks[blockIdx.x];
    Mean<T> t = tensors[c.tensor];
    T shards = (T)max(place[2], 1);
    i64 start = c.number * chunk;
    i64 end = min(t.length, start + chunk);
    for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) {
        t.to[i] = t.sum[i] / shards;
    }
}

extern "C" __global__ void __launch_bounds__(256)
    shard_mean_f32(const float *loss, const int *place, const Mean<float> *tensors, const Chunk *chunks, int chunk) {
    shard_mean<float>(loss, place, tensors, chunks, chunk);
}

extern "C" __global__ void __launch_bounds__(256)
    shard_mean_i64(const float *loss, const int *place, const Mean<i64> *tensors, const Chunk *chunks, int chunk) {
    shard_mean<i64>(loss, place, tensors, chunks, chunk);
}

// The mean loss of a step from (Σ share · loss, Σ share), by one thread.
extern "C" __global__ void __launch_bounds__(32) mean_loss(const double *sums, float *mean) {
    if (threadIdx.x == 0) {
        mean[0] = (float)(sums[1] > 0.0 ? sums[0] / sums[1] : sums[0]);
    }
}
