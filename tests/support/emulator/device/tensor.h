// What kernels do on a GPU by inline PTX: products of small matrices, loads of their fragments, asynchronous copies.
// Fragments are laid out as the PTX ISA has them (section "Matrix Fragments for mma"). With g = lane / 4, t = lane % 4:
//   m16n8k16, 16-bit: A a0 (g, 2t..) a1 (g+8, 2t..) a2 (g, 2t+8..) a3 (g+8, 2t+8..); B b0 (2t.., g) b1 (2t+8.., g)
//   m16n8k8, 16-bit:  A a0 (g, 2t..) a1 (g+8, 2t..);                                  B b0 (2t.., g)
//   m16n8k8, tf32:    A a0 (g, t) a1 (g+8, t) a2 (g, t+4) a3 (g+8, t+4);              B b0 (t, g) b1 (t+4, g)
//   C and D, float:   c0, c1 (g, 2t..) c2, c3 (g+8, 2t..)
#pragma once

#include "warp.h"

namespace emulated {

inline float low_half(unsigned pair) { return half_to_float((unsigned short)pair); }
inline float low_bfloat(unsigned pair) { return bit_cast<float>(pair << 16); }
// The lower 13 of 23 bits of the fraction are not looked at.
inline float tf32(unsigned bits) { return bit_cast<float>(bits & 0xffffe000u); }

// Element `k` of the 16-bit pairs in registers: Widen takes the lower half of its argument.
template <float (*Widen)(unsigned)> float of_pair(unsigned pair, int odd) { return Widen(pair >> (16 * odd)); }

template <int K> struct Product {
    float d[4], c[4];
    unsigned a[4], b[2];
};

// D = A B + C in float, from all fragments of the warp; `element` gives the number number `odd` of a register.
template <int K, float (*Element)(unsigned, int), int PerRegister> EMULATOR_ITSELF void multiply(void *const *lanes, unsigned active) {
    if (active != ~0u) {
        fail(LAUNCH_FAILED, "mma needs all 32 lanes", 0);
    }
    constexpr int registers = K / (4 * PerRegister);  // of a row of A, or a column of B
    float a[16][K], b[K][8];
    for (int lane = 0; lane < 32; lane++) {
        auto *own = (Product<K> *)lanes[lane];
        int g = lane / 4, t = lane % 4;
        for (int r = 0; r < registers; r++) {
            for (int odd = 0; odd < PerRegister; odd++) {
                int k = r * 4 * PerRegister + t * PerRegister + odd;
                a[g][k] = Element(own->a[2 * r], odd);
                a[g + 8][k] = Element(own->a[2 * r + 1], odd);
                b[k][g] = Element(own->b[r], odd);
            }
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        auto *own = (Product<K> *)lanes[lane];
        for (int i = 0; i < 4; i++) {
            int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
            float sum = own->c[i];
            for (int k = 0; k < K; k++) {
                sum += a[row][k] * b[k][column];
            }
            own->d[i] = sum;
        }
    }
}

inline float tf32_element(unsigned bits, int) { return tf32(bits); }

template <int K, float (*Element)(unsigned, int), int PerRegister>
void mma(float *d, const unsigned *a, const unsigned *b, const float *c, int line) {
    constexpr int registers = K / (4 * PerRegister);
    Product<K> own = {};
    memcpy(own.a, a, 2 * registers * sizeof *a);
    memcpy(own.b, b, registers * sizeof *b);
    memcpy(own.c, c, sizeof own.c);
    warp_collective(~0u, &own, multiply<K, Element, PerRegister>, line);
    memcpy(d, own.d, sizeof own.d);
}

inline void mma_m16n8k16_bf16(float d[4], const unsigned a[4], const unsigned b[2], const float c[4],
                              int line = __builtin_LINE()) {
    mma<16, of_pair<low_bfloat>, 2>(d, a, b, c, line);
}
inline void mma_m16n8k16_f16(float d[4], const unsigned a[4], const unsigned b[2], const float c[4],
                             int line = __builtin_LINE()) {
    mma<16, of_pair<low_half>, 2>(d, a, b, c, line);
}
inline void mma_m16n8k8_bf16(float d[4], const unsigned a[2], const unsigned b[1], const float c[4],
                             int line = __builtin_LINE()) {
    mma<8, of_pair<low_bfloat>, 2>(d, a, b, c, line);
}
inline void mma_m16n8k8_f16(float d[4], const unsigned a[2], const unsigned b[1], const float c[4],
                            int line = __builtin_LINE()) {
    mma<8, of_pair<low_half>, 2>(d, a, b, c, line);
}
inline void mma_m16n8k8_tf32(float d[4], const unsigned a[4], const unsigned b[2], const float c[4],
                             int line = __builtin_LINE()) {
    mma<8, tf32_element, 1>(d, a, b, c, line);
}

// `ldmatrix`: lanes 8i to 8i+7 give the addresses of the 8 rows (16 bytes each) of matrix i; every lane gets, of each
// matrix, the two elements (g, 2t) and (g, 2t+1), or with Transposed (2t, g) and (2t+1, g).
template <int Count, bool Transposed> void load_matrices(unsigned *registers, const void *row, int line) {
    struct Load {
        const unsigned short *row;
        unsigned registers[4];
    } own = {(const unsigned short *)row, {}};
    if (SANITIZED && lane() < 8 * Count) {
        note_read(row, 16);
    }
    // A tile of shared memory is read by all lanes before any of them goes on, as the hardware does.
    warp_collective(
        ~0u, &own,
        [](void *const *lanes, unsigned active) EMULATOR_ITSELF {
            if (active != ~0u) {
                fail(LAUNCH_FAILED, "ldmatrix needs all 32 lanes", 0);
            }
            for (int matrix = 0; matrix < Count; matrix++) {
                const unsigned short *rows[8];
                for (int i = 0; i < 8; i++) {
                    rows[i] = ((Load *)lanes[8 * matrix + i])->row;
                    if ((uintptr_t)rows[i] % 16) {
                        fail(MISALIGNED_ADDRESS, "ldmatrix of a row that is not aligned to 16 bytes", 0);
                    }
                }
                for (int lane = 0; lane < 32; lane++) {
                    int g = lane / 4, t = lane % 4;
                    unsigned low = Transposed ? rows[2 * t][g] : rows[g][2 * t];
                    unsigned high = Transposed ? rows[2 * t + 1][g] : rows[g][2 * t + 1];
                    ((Load *)lanes[lane])->registers[matrix] = low | high << 16;
                }
            }
        },
        line);
    memcpy(registers, own.registers, Count * sizeof *registers);
}

inline void ldmatrix_x4(unsigned r[4], const void *row, int line = __builtin_LINE()) {
    load_matrices<4, false>(r, row, line);
}
inline void ldmatrix_x4_trans(unsigned r[4], const void *row, int line = __builtin_LINE()) {
    load_matrices<4, true>(r, row, line);
}
inline void ldmatrix_x2(unsigned r[2], const void *row, int line = __builtin_LINE()) {
    load_matrices<2, false>(r, row, line);
}
inline void ldmatrix_x2_trans(unsigned r[2], const void *row, int line = __builtin_LINE()) {
    load_matrices<2, true>(r, row, line);
}

// `cp.async` of 16 bytes, of which the first `bytes` come from global memory and the rest are zero. Until the thread has
// waited for the copy's group, there are NaNs where it will be: a wait that is missing shows, and so does a reader of what
// was there before.
inline void cp_async_16(void *shared, const void *global, int bytes = 16, int line = __builtin_LINE()) {
    if (((uintptr_t)shared | (bytes ? (uintptr_t)global : 0)) % 16) {
        fail(MISALIGNED_ADDRESS, "cp.async of 16 bytes that are not aligned", line);
    }
    async_copy(shared, global, (unsigned)bytes);
}
inline void cp_async_commit() { async_commit(); }
template <int Pending> void cp_async_wait() { async_wait(Pending); }
inline void cp_async_wait(int pending) { async_wait((unsigned)pending); }
inline void cp_async_wait_all() {
    async_commit();
    async_wait(0);
}

}  // namespace emulated
