// Draws for dropout, as a function of the step's key and a position.
#pragma once
#include "common.cuh"

struct Draws {
    u32 word[4];
};

// Philox4x32-10 (Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011) for elements
// 4 i .. 4 i + 4 of layer `stream`: the words of `dropout_draws` in crates/engine/src/random.rs. `random [4]` is the step's key: seed
// (low, high), micro-step (low, high). AT_ONCE rounds are unrolled: the keys of as many are kept in registers.
template <int AT_ONCE = 10>
__device__ __forceinline__ Draws dropout_draws(const u32 *random, u32 stream, u64 i) {
    const u32 DROPOUT = 4;  // `random::Purpose::Dropout`
    u32 c0 = (u32)i, c1 = (u32)(i >> 32) ^ (stream << 8), c2 = random[2], c3 = random[3] ^ (DROPOUT << 27);
    u32 k0 = random[0], k1 = random[1];
    UNROLL(AT_ONCE)
    for (int round = 0; round < 10; ++round) {
        u64 p0 = (u64)0xd2511f53u * c0, p1 = (u64)0xcd9e8d57u * c2;
        u32 a = (u32)(p1 >> 32) ^ c1 ^ k0, b = (u32)(p0 >> 32) ^ c3 ^ k1;
        c0 = a;
        c1 = (u32)p1;
        c2 = b;
        c3 = (u32)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return Draws{{c0, c1, c2, c3}};
}

// Dropout of elements i .. i + N of layer `stream`: draws below `threshold` drop their element, others scale it by `scale` =
// 1 / (1 − p). i is a multiple of 4, or N is 1.
template <int N>
__device__ __forceinline__ void drop(const u32 *random, u32 stream, u32 threshold, float scale, i64 i, float (&v)[N]) {
    if constexpr (N == 1) {
        Draws draws = dropout_draws(random, stream, (u64)i / 4);
        v[0] *= draws.word[i % 4] >= threshold ? scale : 0.0f;
    } else {
        for (int quad = 0; quad < N; quad += 4) {
            Draws draws = dropout_draws(random, stream, (u64)(i + quad) / 4);
            for (int j = 0; j < 4; ++j) {
                v[quad + j] *= draws.word[j] >= threshold ? scale : 0.0f;
            }
        }
    }
}
