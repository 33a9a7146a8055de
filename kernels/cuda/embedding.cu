// Rows of a table by their ids, and the gradient: sums of the rows with the same id.
//
// The table and its gradient are [rows, width], y and dy [count, width]. N neighbouring columns are one thread's: a pack, where rows are whole
// packs. For the gradient the places of ids are sorted by id, by counting digits of 8 bits from the lowest on, so that places of one id stay in
// order; then blocks of the sorted list are added up. The work grows with the number of ids, and all sums have one order.
#include "common.cuh"

template <int N>
__device__ __forceinline__ void embedding(
    const float *__restrict__ table, const int *__restrict__ ids, float *__restrict__ y, u32 count, int rows, int width) {
    u32 at = matrix_row();
    if (at >= count) {
        return;
    }
    int id = ids[at];
    bool known = id >= 0 && id < rows;
    for (i64 column = matrix_column() * N; column < width; column += matrix_column_step() * N) {
        float v[N];
        if (known) {
            load(table + (i64)id * width + column, v);
        } else {
            for (int j = 0; j < N; ++j) {
                v[j] = bits_to_float(0x7fc00000u);
            }
        }
        store(y + (i64)at * width + column, v);
    }
}

// ---- Sorting --------------------------------------------------------------------------------------------------------

// Keys of a block that sorts, one for each thread, and values of a digit.
enum { TILE = 256, DIGITS = 256 };

// What an id is sorted by: the row that its gradient goes to, or `rows` if there is none. That of a key is the key itself.
__device__ __forceinline__ u32 key_of(int id, int rows, int padding) {
    return id >= 0 && id < rows && id != padding ? (u32)id : (u32)rows;
}

// counts [DIGITS, blocks]: how many keys of each block have each digit at `shift`.
extern "C" __global__ void __launch_bounds__(256)
    embedding_counts(const int *ids, u32 *counts, u32 count, int rows, int padding, int shift) {
    __shared__ u32 of_digit[DIGITS];
    of_digit[threadIdx.x] = 0;
    __syncthreads();
    u32 at = blockIdx.x * TILE + threadIdx.x;
    if (at < count) {
        atomicAdd(&of_digit[key_of(ids[at], rows, padding) >> shift & (DIGITS - 1)], 1u);
    }
    __syncthreads();
    counts[(i64)threadIdx.x * gridDim.x + blockIdx.x] = of_digit[threadIdx.x];
}

// Makes of each of n counts the sum of those before it. One block of 1024 threads, each with a range of its own.
extern "C" __global__ void __launch_bounds__(1024) embedding_offsets(u32 *counts, u32 n) {
    __shared__ u32 sums[1024];
    u32 each = (n + 1023) / 1024, first = min(threadIdx.x * each, n), end = min(first + each, n);
    u32 sum = 0;
    for (u32 i = first; i < end; ++i) {
        sum += counts[i];
    }
    sums[threadIdx.x] = sum;
    for (u32 back = 1; back < 1024; back *= 2) {
        __syncthreads();
        u32 before = threadIdx.x >= back ? sums[threadIdx.x - back] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
    }
    u32 before = sums[threadIdx.x] - sum;
    for (u32 i = first; i < end; ++i) {
        u32 here = counts[i];
        counts[i] = before;
        before += here;
    }
}

// Moves keys and places to where the digits at `shift` want them. `places` is null where they are still in order.
extern "C" __global__ void __launch_bounds__(256) embedding_places(
    const int *ids, const u32 *places, const u32 *offsets, int *new_ids, u32 *new_places, u32 count, int rows, int padding,
    int shift) {
    __shared__ u32 digits[TILE];
    u32 at = blockIdx.x * TILE + threadIdx.x;
    u32 key = at < count ? key_of(ids[at], rows, padding) : 0, digit = key >> shift & (DIGITS - 1);
    digits[threadIdx.x] = digit;
    __syncthreads();
    if (at >= count) {
        return;
    }
    u32 before = 0;
    for (u32 i = 0; i < threadIdx.x; ++i) {
        before += digits[i] == digit ? 1 : 0;
    }
    u32 to = offsets[(i64)digit * gridDim.x + blockIdx.x] + before;
    new_ids[to] = (int)key;
    new_places[to] = places ? places[at] : at;
}

// ---- Sums -----------------------------------------------------------------------------------------------------------

// Neighbours in the sorted list that are added up at once.
enum { RUN = 32 };

// Block number b of the list, with `count` ids in all.
struct Block {
    const int *ids;
    u32 first, end, count;
    __device__ __forceinline__ Block(const int *ids, u32 b, u32 count)
        : ids(ids), first(b * RUN), end(min(b * RUN + RUN, count)), count(count) {}
    // Whether the ids `id` at the block's front come from before it, and those at its end go on behind it.
    __device__ __forceinline__ bool from_before(int id) const { return first > 0 && ids[first] == id && ids[first - 1] == id; }
    __device__ __forceinline__ bool goes_on(int id) const { return end < count && ids[end - 1] == id && ids[end] == id; }
};

// The sum of each id within a block, which is the row of dw, or one of the block's two in partial [blocks, 2, width]: the first for an id from
// before the block, the second for one that goes on behind it.
template <int N>
__device__ __forceinline__ void embedding_grad(
    const float *__restrict__ dy, const int *__restrict__ ids, const u32 *__restrict__ places, float *__restrict__ dw,
    float *__restrict__ partial, u32 count, int rows, int width) {
    u32 b = matrix_row();
    Block block(ids, b, count);
    if (block.first >= count) {
        return;
    }
    for (i64 column = matrix_column() * N; column < width; column += matrix_column_step() * N) {
        u32 at = block.first;
        while (at < block.end && ids[at] < rows) {
            int id = ids[at];
            float *to = dw + (i64)id * width;
            if (at == block.first && block.from_before(id)) {
                to = partial + (i64)b * 2 * width;
            } else if (block.goes_on(id)) {
                to = partial + ((i64)b * 2 + 1) * width;
            }
            float sum[N];
            for (int j = 0; j < N; ++j) {
                sum[j] = 0.0f;
            }
            UNROLL(1)
            do {
                float v[N];
                load(dy + (i64)places[at] * width + column, v);
                for (int j = 0; j < N; ++j) {
                    sum[j] += v[j];
                }
                ++at;
            } while (at < block.end && ids[at] == id);
            store(to + column, sum);
        }
    }
}

// Adds up what several blocks have of one id. The block in which it begins has the row of dw.
template <int N>
__device__ __forceinline__ void embedding_grad_ends(
    const int *__restrict__ ids, const float *__restrict__ partial, float *__restrict__ dw, u32 count, int rows, int width) {
    u32 b = matrix_row();
    Block block(ids, b, count);
    if (block.first >= count) {
        return;
    }
    int id = ids[block.end - 1];
    if (id >= rows || !block.goes_on(id) || block.from_before(id)) {
        return;
    }
    for (i64 column = matrix_column() * N; column < width; column += matrix_column_step() * N) {
        float sum[N];
        load(partial + ((i64)b * 2 + 1) * width + column, sum);
        bool more = true;
        UNROLL(1)
        for (u32 later = b + 1; more; ++later) {
            float v[N];
            load(partial + (i64)later * 2 * width + column, v);
            for (int j = 0; j < N; ++j) {
                sum[j] += v[j];
            }
            more = Block(ids, later, count).goes_on(id);
        }
        store(dw + (i64)id * width + column, sum);
    }
}

#define KERNELS(NAME, N)                                                                                               \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        embedding_##NAME(const float *table, const int *ids, float *y, u32 count, int rows, int width) {               \
        embedding<N>(table, ids, y, count, rows, width);                                                               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) embedding_grad_##NAME(                                           \
        const float *dy, const int *ids, const u32 *places, float *dw, float *partial, u32 count, int rows,            \
        int width) {                                                                                                   \
        embedding_grad<N>(dy, ids, places, dw, partial, count, rows, width);                                           \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) embedding_grad_ends_##NAME(                                      \
        const int *ids, const float *partial, float *dw, u32 count, int rows, int width) {                             \
        embedding_grad_ends<N>(ids, partial, dw, count, rows, width);                                                  \
    }
KERNELS(f32, 1)
KERNELS(packs_f32, 4)
