// Element-wise operations one behind the other, in one trip through memory. What a chain does is data: each thread goes
// through the links for a pack of elements, whose values it keeps.
#include "draws.cuh"

// As `MAX_STEPS` in engine/src/backend/cuda/fusions.rs.
constexpr int MAX_LINKS = 12;

// As engine/src/backend/cuda/lower/chain.rs numbers them.
enum LinkKind { ACTIVATION = 0, ACTIVATION_GRAD = 1, SUM = 2, PRODUCT = 3, DROPOUT = 4 };

// A link: 80 bytes. Of `from`, 0 and up are earlier links, −1 and down are operands; only what its kind needs is looked at.
struct Link {
    i64 kind, from[2], act;
    double slope, extra;
    i64 stream, threshold;
    double scale;
    // Where its values are wanted, or null.
    void *result;
};

// An operand, and where it is stretched the axes of the result: `rank` of them, from the first on, innermost first.
struct Operand {
    const void *data;
    i64 rank, first;
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

template <class T> struct Chained {
    const Link *links;
    int count;
    const Operand *operands;
    const i64 *axes;

    // Elements i .. i + N of what a link takes.
    template <int N>
    __device__ __forceinline__ void get(i64 from, i64 i, const float (&known)[MAX_LINKS][N], float (&v)[N]) const {
        if (from >= 0) {
            for (int j = 0; j < N; ++j) {
                v[j] = known[from][j];
            }
            return;
        }
        const Operand operand = operands[-1 - from];
        const T *data = (const T *)operand.data;
        if (operand.rank == 0) {
            load(data + i, v);
            return;
        }
        for (int j = 0; j < N; ++j) {
            v[j] = to_float(data[stretched(axes + 2 * operand.first, (int)operand.rank, (u64)(i + j))]);
        }
    }

    template <int N> __device__ __forceinline__ void pack(i64 i) const {
        float known[MAX_LINKS][N];
        for (int at = 0; at < count; ++at) {
            const Link &link = links[at];
            float a[N];
            get(link.from[0], i, known, a);
            if (link.kind == ACTIVATION) {
                activate_all((int)link.act, (float)link.slope, (float)link.extra, a);
            } else if (link.kind == DROPOUT) {
                const u32 *random = (const u32 *)operands[-1 - link.from[1]].data;
                drop(random, (u32)link.stream, (u32)link.threshold, (float)link.scale, i, a);
            } else {
                float b[N];
                get(link.from[1], i, known, b);
                if (link.kind == ACTIVATION_GRAD) {
                    activate_grad_all((int)link.act, (float)link.slope, (float)link.extra, a, b);
                }
                for (int j = 0; j < N; ++j) {
                    a[j] = link.kind == SUM ? a[j] + b[j] : link.kind == PRODUCT ? a[j] * b[j] : b[j];
                }
            }
            for (int j = 0; j < N; ++j) {
                known[at][j] = a[j];
            }
            // All operands of this element that a later link reads are left as they are.
            if (link.result) {
                store((T *)link.result + i, a);
            }
        }
    }
};

#define KERNEL(T, NAME)                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                               \
        chain_##NAME(const Link *links, int count, const Operand *operands, const i64 *axes, i64 n) { \
        for_packs<PACK<T>>(n, Chained<T>{links, count, operands, axes});                            \
    }
FOR_FLOATS(KERNEL)
