// Element-wise operations one behind the other, in one trip through memory. What a chain does is data: each thread goes
// through the links for a pack of elements. It reads the packs of the first operands before the first link, so that they are
// on their way together, and keeps the value of the link before in registers. What a later link reads lies in shared memory.
// Registers cannot be indexed, so nothing is looked up by a number in them: nothing lies in local memory.
#include "draws.cuh"

// As crates/engine/src/backend/cuda/lower/chain.rs numbers them. READ has the value of operand `from[1]`, which is read then.
enum LinkKind { ACTIVATION = 0, ACTIVATION_GRAD = 1, SUM = 2, PRODUCT = 3, DROPOUT = 4, READ = 5 };

// What `from` says: kept values from 0 on, the link before, and from AHEAD_FROM down the operands that are read ahead.
constexpr int BEFORE = -1, AHEAD_FROM = -2;

// Operands that are read ahead: as `AHEAD` in crates/engine/src/backend/cuda/lower/chain.rs.
constexpr int AHEAD = 4;

// A link: 96 bytes. Only what its kind needs is looked at.
struct Link {
    i64 kind, from[2], act;
    double slope, extra;
    i64 stream, threshold;
    double scale;
    // Where its values are wanted, or null, and whether they are 32-bit floats there.
    void *result;
    i64 wide;
    // The number under which later links find its values, or −1.
    i64 keep;
};

// An operand, and where it is stretched the axes of the result: `rank` of them, from the first on, innermost first. `step` is 1
// where packs of the result are packs of it, 0 where all elements of a pack are one of it, and else −1.
struct Operand {
    const void *data;
    i64 rank, first, step, wide;
};

// Element i of the result's shape in an operand with `axes [rank][2]`: size, and stride, 0 where it is stretched.
__device__ __forceinline__ i64 stretched(const i64 *axes, int rank, u64 i) {
    i64 at = 0;
    if (i >> 32) {
        for (int k = 0; k < rank; ++k) {
            u64 size = (u64)axes[2 * k];
            at += (i64)(i % size) * axes[2 * k + 1];
            i /= size;
        }
        return at;
    }
    u32 low = (u32)i;
    for (int k = 0; k < rank; ++k) {
        at += split(low, (u32)axes[2 * k]) * axes[2 * k + 1];
    }
    return at;
}

// A pack as it lies in memory: N 32-bit elements, or N 16-bit ones in N / 2 words.
struct Words {
    u32 at[4];
};

// Chains of type T, or with MIXED of T and 32-bit floats.
template <class T, bool MIXED> struct Chained {
    static constexpr int N = MIXED ? 4 : PACK<T>;

    const Link *links;
    int count;
    const Operand *operands;
    // How many operands are read ahead, and bit by bit whether they have 32-bit elements; whether one of them is stretched.
    int ahead_count;
    u32 wide_ahead;
    bool stretches;
    const i64 *axes;
    i64 n;

    __device__ __forceinline__ static bool is_wide(bool said) { return sizeof(T) == 4 || (MIXED && said); }

    __device__ __forceinline__ static void unpack(const Words &words, bool wide, float (&v)[N]) {
        if (is_wide(wide)) {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                v[j] = bits_to_float(words.at[j % 4]);
            }
        } else if constexpr (sizeof(T) == 2) {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                v[j] = to_float(T{(unsigned short)(words.at[j / 2] >> (j % 2 * 16))});
            }
        }
    }

    // The pack at element i of `data`.
    __device__ __forceinline__ static Words whole(const void *data, bool wide, i64 i) {
        Words words = {};
        if (is_wide(wide)) {
            Pack<u32, 4> pack = *(const Pack<u32, 4> *)((const u32 *)data + i);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                words.at[j] = pack.at[j];
            }
        } else if constexpr (sizeof(T) == 2) {
            Pack<u32, N / 2> pack = *(const Pack<u32, N / 2> *)((const unsigned short *)data + i);
#pragma unroll
            for (int j = 0; j < N / 2; ++j) {
                words.at[j] = pack.at[j];
            }
        }
        return words;
    }

    // The `left` elements of the result from i on of any operand.
    __device__ __forceinline__ Words read(const Operand &operand, i64 i, int left) const {
        const i64 *own = axes + 2 * operand.first;
        int rank = (int)operand.rank;
        bool wide = is_wide(operand.wide);
        if (rank == 0 ? left == N : operand.step == 1) {
            return whole(operand.data, wide, rank == 0 ? i : stretched(own, rank, (u64)i));
        }
        Words words = {};
        u32 bits = 0;
        UNROLL(1)
        for (int j = 0; j < left; ++j) {
            if (j == 0 || operand.step != 0) {
                i64 at = rank == 0 ? i + j : stretched(own, rank, (u64)(i + j));
                bits = wide ? ((const u32 *)operand.data)[at] : (u32)((const unsigned short *)operand.data)[at];
            }
            u32 placed = wide ? bits : bits << (j % 2 * 16);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                words.at[k] |= (wide ? j : j / 2) == k ? placed : 0u;
            }
        }
        return words;
    }

    // The `left` elements from i on.
    __device__ __forceinline__ static void write(void *data, bool wide, i64 i, int left, const float (&v)[N]) {
        if (is_wide(wide)) {
            u32 *to = (u32 *)data + i;
            if (left == N) {
                Pack<u32, 4> pack;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    pack.at[j] = float_to_bits(v[j % N]);
                }
                *(Pack<u32, 4> *)to = pack;
                return;
            }
#pragma unroll
            for (int j = 0; j < N - 1; ++j) {
                if (j < left) {
                    to[j] = float_to_bits(v[j]);
                }
            }
        } else if constexpr (sizeof(T) == 2) {
            unsigned short *to = (unsigned short *)data + i;
            if (left == N) {
                Pack<u32, N / 2> pack;
#pragma unroll
                for (int j = 0; j < N / 2; ++j) {
                    pack.at[j] = from_float<T>(v[2 * j]).bits | (u32)from_float<T>(v[2 * j + 1]).bits << 16;
                }
                *(Pack<u32, N / 2> *)to = pack;
                return;
            }
#pragma unroll
            for (int j = 0; j < N - 1; ++j) {
                if (j < left) {
                    to[j] = from_float<T>(v[j]).bits;
                }
            }
        }
    }

    // What `from` says, with `before` of the link before.
    __device__ __forceinline__ void get(int from, const Words (&ahead)[AHEAD], const float *kept, const float (&before)[N],
                                        float (&v)[N]) const {
        if (from == BEFORE) {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                v[j] = before[j];
            }
        } else if (from >= 0) {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                v[j] = kept[(from * N + j) * blockDim.x];
            }
        } else {
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                if (from == AHEAD_FROM - k) {
                    unpack(ahead[k], wide_ahead >> k & 1, v);
                }
            }
        }
    }

    // The `left` elements from i on; `kept` is this thread's shared memory.
    __device__ __forceinline__ void pack(i64 i, int left, float *kept) const {
        Words ahead[AHEAD] = {};
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            if (k < ahead_count && left == N && (!stretches || operands[k].rank == 0)) {
                ahead[k] = whole(operands[k].data, wide_ahead >> k & 1, i);
            }
        }
        if (stretches || left < N) {
            UNROLL(1)
            for (int at = 0; at < ahead_count; ++at) {
                if (left < N || operands[at].rank != 0) {
                    Words words = read(operands[at], i, left);
#pragma unroll
                    for (int k = 0; k < AHEAD; ++k) {
                        if (k == at) {
                            ahead[k] = words;
                        }
                    }
                }
            }
        }
        float before[N] = {};
        UNROLL(1)
        for (int at = 0; at < count; ++at) {
            const Link &link = links[at];
            int kind = (int)link.kind;
            float a[N] = {};
            if (kind == READ) {
                const Operand &operand = operands[link.from[1]];
                unpack(read(operand, i, left), operand.wide, a);
            } else {
                get((int)link.from[0], ahead, kept, before, a);
            }
            if (kind == ACTIVATION) {
                activate_all((int)link.act, (float)link.slope, (float)link.extra, a);
            } else if (kind == DROPOUT) {
                const u32 *random = (const u32 *)operands[link.from[1]].data;
                drop(random, (u32)link.stream, (u32)link.threshold, (float)link.scale, i, a);
            } else if (kind != READ) {
                float b[N] = {};
                get((int)link.from[1], ahead, kept, before, b);
                if (kind == ACTIVATION_GRAD) {
                    activate_grad_all((int)link.act, (float)link.slope, (float)link.extra, a, b);
                }
#pragma unroll
                for (int j = 0; j < N; ++j) {
                    a[j] = kind == SUM ? a[j] + b[j] : kind == PRODUCT ? a[j] * b[j] : b[j];
                }
            }
            if (link.keep >= 0) {
#pragma unroll
                for (int j = 0; j < N; ++j) {
                    kept[((int)link.keep * N + j) * blockDim.x] = a[j];
                }
            }
            // All operands of these elements that a later link reads are left as they are.
            if (link.result) {
                write(link.result, link.wide, i, left, a);
            }
#pragma unroll
            for (int j = 0; j < N; ++j) {
                before[j] = a[j];
            }
        }
    }

    __device__ __forceinline__ void run() const {
        DYNAMIC_SHARED(float, shared);
        for (i64 i = thread_index() * N; i < n; i += thread_count() * N) {
            pack(i, (int)min(n - i, (i64)N), shared + threadIdx.x);
        }
    }
};

#define KERNEL(T, NAME, MIXED)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        chain_##NAME(const Link *links, int count, const Operand *operands, int ahead, u32 wide, int stretches,             \
                     const i64 *axes, i64 n) {                                                                              \
        Chained<T, MIXED>{links, count, operands, ahead, wide, stretches != 0, axes, n}.run();                              \
    }
KERNEL(float, f32, false)
KERNEL(bf16, bf16, false)
KERNEL(f16, f16, false)
KERNEL(bf16, mixed_bf16, true)
KERNEL(f16, mixed_f16, true)
