// Sums over the shards of a step, in the order of a tree: crates/engine/src/graph/op/shards.rs.
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

// A partial sum on its way into the total: which of the sources it is, where it is stored on the stack, and how many sums from there on are
// added to it first.
__device__ __forceinline__ void partial_of(i64 cell, int &source, int &slot, int &merged) {
    source = (int)(cell & 0xffffffff);
    slot = (int)(cell >> 32 & 0xffff);
    merged = (int)(cell >> 48 & 0xffff);
}

// The total over ranks. A tensor is a row of `sources + 2` cells: its length, where the total goes, and where each partial sum lies, one of which may be
// the total's own place. `orders` begins with a cell for each number of shards from 0 to `shards`: where the list of partial sums begins that a step of
// so many shards has. A list is its length, then the partial sums in the order in which they are added. The stack of a thread is a column of shared memory.
template <class T>
__device__ __forceinline__ void shard_total(const int *place, const i64 *orders, const i64 *tensors, const Chunk *chunks,
                                            int chunk, int sources, int shards) {
    DYNAMIC_SHARED(T, columns);
    T *stack = columns + threadIdx.x;
    Chunk c = chunks[blockIdx.x];
    const i64 *tensor = tensors + c.tensor * (sources + 2);
    T *to = (T *)tensor[1];
    const T *const *from = (const T *const *)(tensor + 2);
    const i64 *order = orders + orders[min(max(place[2], 0), shards)];
    int partials = (int)order[0];
    i64 start = c.number * chunk;
    i64 end = min(tensor[0], start + chunk);
    for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) {
        stack[0] = (T)0;
        for (int k = 1; k <= partials; k++) {
            int source, slot, merged;
            partial_of(order[k], source, slot, merged);
            T sum = from[source][i];
            for (int m = slot + merged - 1; m >= slot; m--) {
                sum = stack[m * blockDim.x] + sum;
            }
            stack[slot * blockDim.x] = sum;
        }
        to[i] = stack[0];
    }
}

extern "C" __global__ void __launch_bounds__(256)
    shard_total_f32(const int *place, const i64 *orders, const i64 *tensors, const Chunk *chunks, int chunk, int sources,
                    int shards) {
    shard_total<float>(place, orders, tensors, chunks, chunk, sources, shards);
}

extern "C" __global__ void __launch_bounds__(256)
    shard_total_f64(const int *place, const i64 *orders, const i64 *tensors, const Chunk *chunks, int chunk, int sources,
                    int shards) {
    shard_total<double>(place, orders, tensors, chunks, chunk, sources, shards);
}

extern "C" __global__ void __launch_bounds__(256)
    shard_total_i64(const int *place, const i64 *orders, const i64 *tensors, const Chunk *chunks, int chunk, int sources,
                    int shards) {
    shard_total<i64>(place, orders, tensors, chunks, chunk, sources, shards);
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
