// What a block of attention works on that `Job` does not know: positions of two sequences, windows and slopes.
#pragma once
#include "attention.cuh"

// Queries, keys and values of one sequence, which lie in one operand, or of two.
template <class T> struct Apart {
    T *q, *kv;
};

// As `Job`, without a bias of the scores.
struct FarJob {
    // Positions of queries and keys that there is room for, and those of the sample.
    int rooms[2], counts[2];
    int width, heads;
    // Queries are of another sequence than keys.
    bool between, causal;
    // A position sees those that are less than so many away.
    int window;
    // exp(scale · q · k) are the weights before they are normalised.
    float scale;
    // What a position more between two takes from their score, which is not scaled yet.
    float unscaled_slope;
    // Number of the head among those of all samples.
    u32 head;
    // The first row of the block, and the first of its columns.
    int row, column;
    Dropout dropout;

    // A block for every `rows` rows of queries or KEYS × `columns` columns of a head. `power` is the largest power of two that is no more than the
    // number of heads, or 0 if there are no slopes: see `alibi_slope` in crates/core/src/graph/op/attention.rs.
    template <bool KEYS>
    __device__ __forceinline__ void of_block(int rows, int columns, const int *lengths, int power) {
        u32 index = blockIdx.x;
        row = (int)split(index, (u32)((rooms[KEYS] + rows - 1) / rows)) * rows;
        column = blockIdx.y * columns;
        head = index;
        u32 sample = head / heads;
        int h = (int)(head - sample * heads);
        counts[1] = lengths ? max(min(lengths[sample], rooms[1]), 0) : rooms[1];
        counts[0] = !between ? counts[1] : counts[1] > 0 ? rooms[0] : 0;
        unscaled_slope = 0.0f;
        if (power > 0) {
            float exponent = h < power ? 8.0f * (h + 1) : 4.0f * (2 * (h - power) + 1);
            unscaled_slope = exp2f(-exponent / power) / scale;
        }
    }

    __device__ __forceinline__ int queries() const { return counts[0]; }
    __device__ __forceinline__ int keys() const { return counts[1]; }
    __device__ __forceinline__ int query_room() const { return rooms[0]; }
    __device__ __forceinline__ int key_room() const { return rooms[1]; }

    __device__ __forceinline__ int first_key(int from) const { return max(from - window + 1, 0); }
    __device__ __forceinline__ int end_key(int from, int to) const {
        int ahead = causal ? to : to - 1 > counts[1] - window ? counts[1] : to - 1 + window;
        return from >= counts[0] ? 0 : min(ahead, counts[1]);
    }
    __device__ __forceinline__ int first_query(int from) const { return causal ? from : max(from - window + 1, 0); }
    __device__ __forceinline__ int end_query(int to) const {
        return to - 1 > counts[0] - window ? counts[0] : max(min(to - 1 + window, counts[0]), 0);
    }

    __device__ __forceinline__ bool hides_some(int query, int queries, int key, int keys) const {
        return (causal && key + keys - 1 > query) || query + queries - 1 - key >= window || key + keys - 1 - query >= window;
    }
    __device__ __forceinline__ bool hides(int query, int queries, int key, int keys) const {
        return key + keys > counts[1] || hides_some(query, queries, key, keys);
    }
    __device__ __forceinline__ bool hides_all(int query, int queries, int key, int keys) const {
        return (causal && query + queries - 1 < key) || query - (key + keys - 1) >= window || key - (query + queries - 1) >= window;
    }
    __device__ __forceinline__ bool is_near(int query, int key) const {
        return (!causal || key <= query) && query - key < window && key - query < window;
    }
    __device__ __forceinline__ bool sees(int query, int key) const {
        return query < counts[0] && key < counts[1] && is_near(query, key);
    }

    __device__ __forceinline__ i64 index(int query) const { return (i64)head * rooms[0] + query; }

    // Elements from row to row of queries (0), keys (1) or values (2), and the first row.
    __device__ __forceinline__ i64 step(int part) const { return (i64)(!between ? 3 : part == 0 ? 1 : 2) * heads * width; }
    template <class T> __device__ __forceinline__ T *place(const Apart<T> &of, int part) const {
        u32 sample = head / heads, h = head - sample * heads;
        int before = between && part > 0 ? part - 1 : part;
        T *from = part == 0 ? of.q : of.kv;
        return from + (i64)sample * rooms[part > 0] * step(part) + ((i64)before * heads + h) * width;
    }
    template <class T> __device__ __forceinline__ Rows<T> packed(const Apart<const T> &of, int part) const {
        return Rows<T>{place(of, part), step(part), counts[part > 0]};
    }

    // Elements before the head's part of the first query's row of y or dy.
    __device__ __forceinline__ i64 start(int, int) const {
        u32 sample = head / heads, h = head - sample * heads;
        return (i64)sample * rooms[0] * heads * width + (i64)h * width;
    }
    template <class T> __device__ __forceinline__ Rows<T> plain(const T *y) const {
        return Rows<T>{y + start(0, 1), (i64)heads * width, counts[0]};
    }
    // Keys with those of padding: where what comes of them is not used.
    template <class T> __device__ __forceinline__ Rows<T> whole(Rows<T> rows) const {
        rows.count = rooms[1];
        return rows;
    }

    template <class T> using Source = Apart<const T>;
    template <class T> using Target = Apart<T>;
    static constexpr bool FAR = true;
    __device__ __forceinline__ float slope() const { return unscaled_slope; }
};
