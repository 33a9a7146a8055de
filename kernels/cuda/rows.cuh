// Row-major matrices of which each row is reduced by itself: softmax, layer normalisation, losses.
//
// A row is the work of a team: one thread for the shortest rows, a warp for short ones, a block for long ones
// (crates/engine/src/backend/cuda/lower/rows.rs chooses, by shape alone). A row that fits is read once and kept as floats in dynamic
// shared memory, where each thread finds again what it itself has put there.
#pragma once
#include "common.cuh"

enum Team { THREAD, WARP, BLOCK };

// This team's number among all, and the number of all.
template <int TEAM> __device__ __forceinline__ i64 team_index() {
    return TEAM == THREAD ? thread_index() : TEAM == WARP ? thread_index() >> 5 : (i64)blockIdx.x;
}
template <int TEAM> __device__ __forceinline__ i64 team_count() {
    return TEAM == THREAD ? thread_count() : TEAM == WARP ? thread_count() >> 5 : (i64)gridDim.x;
}

// This thread's number in its team, and the number of all.
template <int TEAM> __device__ __forceinline__ int member() {
    return TEAM == THREAD ? 0 : TEAM == WARP ? (int)(threadIdx.x & 31) : (int)threadIdx.x;
}
template <int TEAM> __device__ __forceinline__ int members() {
    return TEAM == THREAD ? 1 : TEAM == WARP ? 32 : (int)blockDim.x;
}

// Number of the team in its block.
template <int TEAM> __device__ __forceinline__ int team_of_block() {
    return TEAM == THREAD ? (int)threadIdx.x : TEAM == WARP ? (int)(threadIdx.x >> 5) : 0;
}

// Sums and the maximum over a team, in all of its threads. All of them must call it.
template <int TEAM, class S> __device__ __forceinline__ S team_sum(S x) {
    return TEAM == THREAD ? x : TEAM == WARP ? warp_sum(x) : block_sum(x);
}
template <int TEAM> __device__ __forceinline__ float team_max(float x) {
    return TEAM == THREAD ? x : TEAM == WARP ? warp_max(x) : block_max(x);
}

__device__ __forceinline__ float minus_infinity() { return bits_to_float(0xff800000u); }

// The elements of a row that this thread works on: every members()-th.
template <int TEAM, class T> struct Row {
    const T *x;
    // Where it is kept, or null.
    float *kept;
    int length;

    // Calls f(i, x[i]), and keeps the row.
    template <class F> __device__ __forceinline__ void first(F f) const {
        if (kept) {
#pragma unroll 4
            for (int i = member<TEAM>(); i < length; i += members<TEAM>()) {
                float v = to_float(x[i]);
                kept[i] = v;
                f(i, v);
            }
        } else {
            again(f);
        }
    }

    // Calls f(i, x[i]) for a row that `first` has seen.
    template <class F> __device__ __forceinline__ void again(F f) const {
#pragma unroll 4
        for (int i = member<TEAM>(); i < length; i += members<TEAM>()) {
            f(i, kept ? kept[i] : to_float(x[i]));
        }
    }
};

// The row `row` of `x`; it is kept if `keep`. `place` counts the rows that a team keeps at once, of `rows_kept`.
template <int TEAM, class T>
__device__ __forceinline__ Row<TEAM, T> row_of(const T *x, i64 row, int length, bool keep, int place = 0,
                                               int rows_kept = 1) {
    DYNAMIC_SHARED(float, shared);
    float *kept = keep ? shared + (team_of_block<TEAM>() * rows_kept + place) * length : nullptr;
    return Row<TEAM, T>{x + row * length, kept, length};
}

// FOR_TEAMS(M, type, suffix) defines M(type, suffix, TEAM, name) for the three teams.
#define FOR_TEAMS(M, T, S) M(T, S, THREAD, thread) M(T, S, WARP, warp) M(T, S, BLOCK, block)
#define FOR_TEAMS_AND_FLOATS(M) FOR_TEAMS(M, float, f32) FOR_TEAMS(M, bf16, bf16) FOR_TEAMS(M, f16, f16)
