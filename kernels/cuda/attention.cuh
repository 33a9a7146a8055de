// What the kernels of attention share: a head's operands, and what a block works on.
#pragma once
#include "draws.cuh"

// Rows of one operand of a head.
template <class T> struct Rows {
    const T *at;
    // Elements from row to row.
    i64 step;
    // How many there are.
    int count;

    __device__ __forceinline__ Rows from(int row) const {
        return Rows{at + row * step, step, count - row};
    }
};

// What is left out of the weights: nothing, if there is no key.
struct Dropout {
    const u32 *random;
    u32 stream, threshold;
    float scale;
};

// What a block works on.
struct Job {
    // Positions that there is room for, and those of the sample: what is behind these is padding.
    int length, count, width, heads;
    bool causal;
    // exp(scale · q · k) are the weights before they are normalised.
    float scale;
    // Number of the head among those of all samples.
    u32 head;
    // The first row of the block, and the first of its columns.
    int row, column;
    Dropout dropout;
    // What is added to the head's scores, [length, length]; null, if nothing is.
    const float *bias;

    __device__ __forceinline__ Job(int length, int heads, int width, int causal, float scale, Dropout dropout)
        : length(length), count(length), width(width), heads(heads), causal(causal), scale(scale), row(0), column(0), dropout(dropout),
          bias(nullptr) {}

    // A block for every `rows` rows × `columns` columns of a head; `all` are the biases of the scores, of which the samples have one in turn,
    // and `lengths` those of samples, if they have such.
    __device__ __forceinline__ void of_block(int rows, int columns, const float *all, int biases, const int *lengths) {
        u32 index = blockIdx.x;
        row = (int)split(index, (u32)((length + rows - 1) / rows)) * rows;
        column = blockIdx.y * columns;
        set_head(index, all, biases, lengths);
    }

    __device__ __forceinline__ void set_head(u32 number, const float *all, int biases, const int *lengths) {
        head = number;
        if (lengths) {
            count = max(min(lengths[number / heads], length), 0);
        }
        if (all) {
            u32 sample = number / heads, h = number - sample * heads;
            bias = all + ((i64)(sample % biases) * heads + h) * length * length;
        }
    }

    // What is added to a score that the query sees, if anything is.
    __device__ __forceinline__ float added(int query, int key) const { return bias[(i64)query * length + key]; }

    // Queries and keys are positions of one sequence: those that there are, and those that there is room for.
    __device__ __forceinline__ int queries() const { return count; }
    __device__ __forceinline__ int keys() const { return count; }
    __device__ __forceinline__ int query_room() const { return length; }
    __device__ __forceinline__ int key_room() const { return length; }

    // Keys that the queries `from .. to` see, and queries that see the keys `from .. to`; none of a block that is padding.
    __device__ __forceinline__ int first_key(int) const { return 0; }
    __device__ __forceinline__ int end_key(int from, int to) const { return from >= count ? 0 : causal ? min(to, count) : count; }
    __device__ __forceinline__ int first_query(int from) const { return causal || from >= count ? from : 0; }
    __device__ __forceinline__ int end_query(int) const { return count; }

    // Whether a query of so many does not see a key of so many.
    __device__ __forceinline__ bool hides(int query, int, int key, int keys) const {
        return key + keys > count || (causal && key + keys - 1 > query);
    }
    // The same without a word of padding.
    __device__ __forceinline__ bool hides_some(int query, int, int key, int keys) const { return causal && query < key + keys - 1; }
    // No query of so many sees a key of so many.
    __device__ __forceinline__ bool hides_all(int query, int queries, int key, int) const { return causal && query + queries - 1 < key; }
    // The query sees the key, wherever its sample ends.
    __device__ __forceinline__ bool is_near(int query, int key) const { return !causal || key <= query; }

    // Where the head's rows of one number are among those of all heads.
    __device__ __forceinline__ i64 index(int query) const { return (i64)head * length + query; }

    // Elements before the head's part of a position's `parts` parts of heads · width, in the sample's first position.
    __device__ __forceinline__ i64 start(int part, int parts) const {
        u32 sample = head / heads, h = head - sample * heads;
        return ((i64)sample * length * parts + part) * heads * width + (i64)h * width;
    }

    // Elements from row to row of a part of qkv, and its first row.
    __device__ __forceinline__ i64 step(int) const { return (i64)3 * heads * width; }
    template <class T> __device__ __forceinline__ T *place(T *qkv, int part) const { return qkv + start(part, 3); }

    // A part of qkv.
    template <class T> __device__ __forceinline__ Rows<T> packed(const T *qkv, int part) const {
        return Rows<T>{qkv + start(part, 3), (i64)3 * heads * width, count};
    }

    // All of y or dy.
    template <class T> __device__ __forceinline__ Rows<T> plain(const T *y) const {
        return Rows<T>{y + start(0, 1), (i64)heads * width, count};
    }

    // The same with the rows of padding, which else are 0: where what comes of them is not used.
    template <class T> __device__ __forceinline__ Rows<T> whole(Rows<T> rows) const {
        rows.count = length;
        return rows;
    }

    // The query sees the key.
    __device__ __forceinline__ bool sees(int query, int key) const {
        return query < count && key < count && (!causal || key <= query);
    }

    // Queries, keys and values, and gradients by them.
    template <class T> using Source = const T *;
    template <class T> using Target = T *;
    // No score depends on how far two positions are from each other.
    static constexpr bool FAR = false;
    __device__ __forceinline__ float slope() const { return 0.0f; }
};

// The score of a key that is not seen. Where a query may see no key of the first step, it is a number, so that the difference of two of them is one, and
// 0: −2¹⁰⁰, with which products are exact. The weights that come of it are multiplied by 0 once a key is seen.
template <class J> __device__ __forceinline__ float LOWEST() { return bits_to_float(J::FAR ? 0xf1800000u : 0xff800000u); }
