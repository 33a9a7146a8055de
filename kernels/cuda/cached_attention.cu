// Attention of new positions to those before, whose keys and values are kept.
//
// qkv [samples, fresh, (heads + 2 · kv_heads) · width], keys and values [samples, kept, kv_heads · width], y [samples, fresh, heads · width].
#include "rows.cuh"

// Writes the new keys and values to their places; what has none is left out. `embedding` and `row` are the elements of the queries and of a key.
extern "C" __global__ void __launch_bounds__(256) cached_attention_keep_f32(
    const float *qkv, float *keys, float *values, const int *position, u32 rows, int fresh, int kept, int embedding, int row) {
    u32 index = matrix_row(), sample = index;
    if (index >= rows) {
        return;
    }
    i64 to = (i64)split(sample, fresh);
    to += position[sample];
    if (to < 0 || to >= kept) {
        return;
    }
    const float *from = qkv + (i64)index * (embedding + 2 * (i64)row) + embedding;
    i64 at = ((i64)sample * kept + to) * row;
    for (i64 column = matrix_column(); column < row; column += matrix_column_step()) {
        keys[at + column] = from[column];
        values[at + column] = from[row + column];
    }
}

// Threads of a block, its columns of the result, and kept positions whose scores are made at once.
enum { SIDE = 128 };

// A block has SIDE columns of a head of a new position, and goes over what that sees with an online softmax (Milakov & Gimelshein 2018): the last `window`
// positions, or all if it is the largest number, with slopes if `power`, the largest power of two that is no more than the number of heads, is not 0 (`alibi_slope` in
// crates/core/src/graph/op/attention.rs).
extern "C" __global__ void __launch_bounds__(128) cached_attention_f32(
    const float *qkv, const float *keys, const float *values, const int *position, float *y, int fresh, int kept, int heads,
    int kv_heads, int width, int window, int power, float scale) {
    __shared__ float weights[SIDE];
    u32 index = blockIdx.x, sample = index;
    int head = (int)split(sample, heads), i = (int)split(sample, fresh), column = blockIdx.y * SIDE + threadIdx.x;
    i64 row = (i64)kv_heads * width, before = (i64)sample * kept * row + (i64)(head / (heads / kv_heads)) * width;
    const float *q = qkv + ((i64)sample * fresh + i) * ((i64)heads * width + 2 * row) + (i64)head * width;
    i64 last = (i64)position[sample] + i + 1;
    int seen = (int)(last < 0 ? 0 : last > kept ? kept : last);
    i64 hidden = window < 0x7fffffff ? last - window : 0;
    int first = (int)(hidden < 0 ? 0 : hidden > kept ? kept : hidden);
    float slope = 0.0f;
    if (power > 0) {
        slope = exp2f(-(head < power ? 8.0f * (head + 1) : 4.0f * (2 * (head - power) + 1)) / power);
    }
    float top = minus_infinity(), sum = 0.0f, out = 0.0f;
    for (int start = first; start < seen; start += SIDE) {
        int count = min(seen - start, (int)SIDE);
        bool there = (int)threadIdx.x < count;
        float score = minus_infinity();
        if (there) {
            const float *key = keys + before + (start + threadIdx.x) * row;
            float product = 0.0f;
            for (int c = 0; c < width; ++c) {
                product += q[c] * key[c];
            }
            score = product * scale;
            if (power > 0) {
                score -= slope * (float)(last - 1 - start - (int)threadIdx.x);
            }
        }
        float most = fmaxf(top, block_max(score)), factor = expf(top - most);
        float weight = there ? expf(score - most) : 0.0f;
        sum = sum * factor + block_sum(weight);
        top = most;
        out *= factor;
        weights[threadIdx.x] = weight;
        __syncthreads();
        if (column < width) {
            const float *value = values + before + start * row + column;
            for (int j = 0; j < count; ++j) {
                out += weights[j] * value[j * row];
            }
        }
        __syncthreads();
    }
    if (column < width) {
        y[(i64)index / heads * heads * width + (i64)head * width + column] = out / sum;
    }
}
