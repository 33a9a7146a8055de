// What tensor cores need of PTX: products of fragments, loads of fragments from shared memory, asynchronous copies.
//
// Fragment layouts are those of the PTX manual, "Warp Level Matrix Instructions". With g = lane / 4 and t = lane % 4, the
// four registers q of a 16 × 16 (16-bit) or 16 × 8 (32-bit) piece of an operand are, for outer index o and term k:
//     q[i]: o = i % 2 · 8 + g,   k = i / 2 · 8 + 2 t and its successor   (16-bit)
//     q[i]: o = i % 2 · 8 + g,   k = i / 2 · 4 + t                       (32-bit)
// That is operand A of mma.m16n8k16 (m16n8k8), and q[j], q[2 + j] are operand B for the piece's 8 columns number j.
#pragma once

// Storage of an operand that is rounded to TF32 when it is multiplied.
struct Tf32 {};
template <class Kind> struct Storage {
    typedef Kind T;
};
template <> struct Storage<Tf32> {
    typedef float T;
};

// d += a · b for a piece of 16 × 8 sums.
template <class Kind> __device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);

#if !defined(RUNNER_EMULATED)
#define RUNNER_MMA(SHAPE)                                                                                       \
    asm("mma.sync.aligned." SHAPE " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                        \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
#endif

template <> __device__ __forceinline__ void multiply<bf16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#ifdef RUNNER_EMULATED
    u32 b[2] = {b0, b1};
    emulated::mma_m16n8k16_bf16(d, a, b, d);
#elif __CUDA_ARCH__ >= 800
    RUNNER_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
#endif
}
template <> __device__ __forceinline__ void multiply<f16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#ifdef RUNNER_EMULATED
    u32 b[2] = {b0, b1};
    emulated::mma_m16n8k16_f16(d, a, b, d);
#elif __CUDA_ARCH__ >= 800
    RUNNER_MMA("m16n8k16.row.col.f32.f16.f16.f32");
#else
#pragma unroll
    for (int half = 0; half < 2; half++) {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(half == 0 ? b0 : b1));
    }
#endif
}
template <> __device__ __forceinline__ void multiply<Tf32>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#ifdef RUNNER_EMULATED
    u32 b[2] = {b0, b1};
    emulated::mma_m16n8k8_tf32(d, a, b, d);
#elif __CUDA_ARCH__ >= 800
    RUNNER_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
#endif
}

// The nearest TF32 value, ties away from zero.
__device__ __forceinline__ u32 to_tf32(float x) {
#if !defined(RUNNER_EMULATED) && __CUDA_ARCH__ >= 800
    u32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
#else
    u32 bits = float_to_bits(x);
    bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    return finite ? (bits + 0x1000u) & 0xffffe000u : bits;
#endif
}

#if !defined(RUNNER_EMULATED)
__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
#endif

// Four 8 × 8 pieces of 16-bit elements from shared memory: lane l gives the address of row l % 8 of piece l / 8, and gets
// elements (g, 2t) and (g, 2t + 1) of each, or with TRANSPOSED (2t, g) and (2t + 1, g).
template <bool TRANSPOSED> __device__ __forceinline__ void load_pieces(u32 (&q)[4], const void *row) {
#ifdef RUNNER_EMULATED
    TRANSPOSED ? emulated::ldmatrix_x4_trans(q, row) : emulated::ldmatrix_x4(q, row);
#else
    if (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(q[0]), "=r"(q[1]), "=r"(q[2]), "=r"(q[3])
                     : "r"(shared_address(row))
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(q[0]), "=r"(q[1]), "=r"(q[2]), "=r"(q[3])
                     : "r"(shared_address(row))
                     : "memory");
    }
#endif
}

// The registers of a piece at (o, k) of a tile: [outer][k] if ALONG_K, else [k][outer]; rows are ROW elements apart.
template <bool ALONG_K, int ROW, class T> __device__ __forceinline__ void load_fragment(u32 (&q)[4], const T *tile, int o, int k) {
    int lane = threadIdx.x % 32, piece = lane / 8, row = lane % 8;
    if (ALONG_K) {
        load_pieces<false>(q, tile + (o + piece % 2 * 8 + row) * ROW + k + piece / 2 * 8);
    } else {
        load_pieces<true>(q, tile + (k + piece / 2 * 8 + row) * ROW + o + piece % 2 * 8);
    }
}
template <bool ALONG_K, int ROW> __device__ __forceinline__ void load_fragment(u32 (&q)[4], const float *tile, int o, int k) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at_o = o + i % 2 * 8 + lane / 4, at_k = k + i / 2 * 4 + lane % 4;
        q[i] = to_tf32(tile[ALONG_K ? at_o * ROW + at_k : at_k * ROW + at_o]);
    }
}

// 16 bytes from memory, or zeros if `from` is null, to shared memory: asynchronously where the GPU can (`any` is some
// valid address).
__device__ __forceinline__ void copy_16(void *to, const void *from, const void *any) {
#ifdef RUNNER_EMULATED
    emulated::cp_async_16(to, from != nullptr ? from : any, from != nullptr ? 16 : 0);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from != nullptr ? from : any), "r"(from != nullptr ? 16 : 0)
                 : "memory");
#else
    *(uint4 *)to = from != nullptr ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
#endif
}

// Ends a group of copies.
__device__ __forceinline__ void copies_commit() {
#ifdef RUNNER_EMULATED
    emulated::cp_async_commit();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most PENDING of this thread's groups are under way.
template <int PENDING> __device__ __forceinline__ void copies_wait() {
#ifdef RUNNER_EMULATED
    emulated::cp_async_wait(PENDING);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}
