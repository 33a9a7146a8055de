// Moving elements: permutations of axes, concatenations, slices.
//
// The kernels know elements by their size alone. Where rows allow it, lowering gives several neighbours as one element of
// up to 16 bytes, so that every access is as wide as it can be.
#include "common.cuh"

// y [rows, columns], where a row is the innermost axis, of stride `step` in x, and the rows are the axes
// `axes [rank][2]`, innermost first: size, stride in x.
template <class E>
__device__ __forceinline__ void gather(
    const E *__restrict__ x, E *__restrict__ y, u32 rows, i64 columns, i64 step, const i64 *__restrict__ axes, int rank) {
    u32 row = matrix_row();
    if (row >= rows) {
        return;
    }
    y += row * columns;
    for (int k = 0; k < rank; ++k) {
        x += split(row, (u32)axes[2 * k]) * axes[2 * k + 1];
    }
    for (i64 column = matrix_column(); column < columns; column += matrix_column_step()) {
        y[column] = x[column * step];
    }
}

// Exchanges the innermost axes of x and y: x has [.., a, .., b] with strides (from, 1) where y has [.., b, .., a] with
// strides (to, 1). All other axes are `axes [rank][3]`: size, stride in x, stride in y.
//
// A block of 32 × 8 threads moves a tile of 32 × 32 through shared memory, so that both sides are accessed in order; a
// column of padding keeps the threads of a warp on different banks. Blocks count tiles of a, then of b, then the other axes.
template <class E>
__device__ __forceinline__ void transpose(
    const E *__restrict__ x, E *__restrict__ y, i64 a, i64 from, i64 b, i64 to, const i64 *__restrict__ axes, int rank) {
    __shared__ E tile[32][33];
    int lane = threadIdx.x;
    u32 block = blockIdx.x;
    i64 a0 = (i64)split(block, (a + 31) / 32) * 32, b0 = (i64)split(block, (b + 31) / 32) * 32;
    for (int k = 0; k < rank; ++k) {
        u32 at = split(block, (u32)axes[3 * k]);
        x += at * axes[3 * k + 1];
        y += at * axes[3 * k + 2];
    }
    for (int line = threadIdx.y; line < 32; line += 8) {
        if (a0 + line < a && b0 + lane < b) {
            tile[line][lane] = x[(a0 + line) * from + b0 + lane];
        }
    }
    __syncthreads();
    for (int line = threadIdx.y; line < 32; line += 8) {
        if (b0 + line < b && a0 + lane < a) {
            y[(b0 + line) * to + a0 + lane] = tile[lane][line];
        }
    }
}

// A matrix within matrices whose rows are x_row and y_row long; it begins x_start and y_start elements into them.
template <class E>
__device__ __forceinline__ void copy_rows(
    const E *__restrict__ x, E *__restrict__ y, u32 rows, i64 columns, i64 x_start, i64 x_row, i64 y_start, i64 y_row) {
    u32 row = matrix_row();
    if (row >= rows) {
        return;
    }
    x += x_start + row * x_row;
    y += y_start + row * y_row;
    for (i64 column = matrix_column(); column < columns; column += matrix_column_step()) {
        y[column] = x[column];
    }
}

#define KERNELS(E, NAME)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                                \
        gather_##NAME(const E *x, E *y, u32 rows, i64 columns, i64 step, const i64 *axes, int rank) {                                          \
        gather(x, y, rows, columns, step, axes, rank);                                                                                 \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                                \
        transpose_##NAME(const E *x, E *y, i64 a, i64 from, i64 b, i64 to, const i64 *axes, int rank) {              \
        transpose(x, y, a, from, b, to, axes, rank);                                                                 \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) copy_rows_##NAME(                                              \
        const E *x, E *y, u32 rows, i64 columns, i64 x_start, i64 x_row, i64 y_start, i64 y_row) {                      \
        copy_rows(x, y, rows, columns, x_start, x_row, y_start, y_row);                                                 \
    }
typedef unsigned short u16;
typedef Pack<u32, 4> u128;
KERNELS(u8, b8)
KERNELS(u16, b16)
KERNELS(u32, b32)
KERNELS(u64, b64)
KERNELS(u128, b128)
