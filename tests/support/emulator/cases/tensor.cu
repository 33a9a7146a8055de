// D = A B + C of one warp's matrices: A (16, K) and B (K, 8) given as floats, D (16, 8). B is given by columns: (8, K).
#include "../../../../kernels/cuda/common.cuh"

template <class T> u32 pair(const float *at) {
    return (u32)from_float<T>(at[0]).bits | (u32)from_float<T>(at[1]).bits << 16;
}

// Fills the fragments of 16-bit numbers from memory, row by row.
template <class T, int K> void fill_fragments(const float *a, const float *b, u32 *fragment_a, u32 *fragment_b) {
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    for (int half = 0; half < K / 8; half++) {
        fragment_a[2 * half] = pair<T>(a + g * K + 8 * half + 2 * t);
        fragment_a[2 * half + 1] = pair<T>(a + (g + 8) * K + 8 * half + 2 * t);
        fragment_b[half] = pair<T>(b + g * K + 8 * half + 2 * t);
    }
}

void write_product(float *d, const float *fragment) {
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    for (int i = 0; i < 4; i++) {
        d[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = fragment[i];
    }
}

extern "C" __global__ void case_mma_k16_bf16(const float *a, const float *b, float *d) {
    u32 fa[4], fb[2];
    float c[4] = {1, 1, 1, 1}, fd[4];
    fill_fragments<bf16, 16>(a, b, fa, fb);
    emulated::mma_m16n8k16_bf16(fd, fa, fb, c);
    write_product(d, fd);
}

extern "C" __global__ void case_mma_k16_f16(const float *a, const float *b, float *d) {
    u32 fa[4], fb[2];
    float c[4] = {1, 1, 1, 1}, fd[4];
    fill_fragments<f16, 16>(a, b, fa, fb);
    emulated::mma_m16n8k16_f16(fd, fa, fb, c);
    write_product(d, fd);
}

extern "C" __global__ void case_mma_k8_f16(const float *a, const float *b, float *d) {
    u32 fa[2], fb[1];
    float c[4] = {1, 1, 1, 1}, fd[4];
    fill_fragments<f16, 8>(a, b, fa, fb);
    emulated::mma_m16n8k8_f16(fd, fa, fb, c);
    write_product(d, fd);
}

extern "C" __global__ void case_mma_k8_tf32(const float *a, const float *b, float *d) {
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    u32 fa[4] = {float_to_bits(a[g * 8 + t]), float_to_bits(a[(g + 8) * 8 + t]), float_to_bits(a[g * 8 + t + 4]),
                 float_to_bits(a[(g + 8) * 8 + t + 4])};
    u32 fb[2] = {float_to_bits(b[g * 8 + t]), float_to_bits(b[g * 8 + t + 4])};
    float c[4] = {1, 1, 1, 1}, fd[4];
    emulated::mma_m16n8k8_tf32(fd, fa, fb, c);
    write_product(d, fd);
}

// As case_mma_k16_bf16, with A's fragment loaded by ldmatrix from rows, and B's, given as (K, 8), transposed.
extern "C" __global__ void case_ldmatrix(const float *a, const float *b, float *d) {
    __shared__ __align__(16) bf16 rows_a[16][16], rows_b[16][8];
    for (int i = threadIdx.x; i < 256; i += 32) {
        rows_a[i / 16][i % 16] = from_float<bf16>(a[i]);
    }
    for (int i = threadIdx.x; i < 128; i += 32) {
        rows_b[i / 8][i % 8] = from_float<bf16>(b[i]);
    }
    __syncwarp();
    int lane = threadIdx.x;
    u32 fa[4], fb[2];
    emulated::ldmatrix_x4(fa, &rows_a[lane % 16][lane / 16 * 8]);
    emulated::ldmatrix_x2_trans(fb, rows_b[lane % 16]);
    float c[4] = {1, 1, 1, 1}, fd[4];
    emulated::mma_m16n8k16_bf16(fd, fa, fb, c);
    write_product(d, fd);
}
