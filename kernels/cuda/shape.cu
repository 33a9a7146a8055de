// Moving elements: permutations of axes, concatenations, slices, blocks of images.
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

// How blocks lie in an image and in its unfolded form: `unfold` and `fold` below. Rows of an image are `row` elements, all
// channels of its pixels; along a row everything counts elements.
#define BLOCK_ARGS                                                                                                    \
    int height, int row, int grid_y, int grid_x, int step_y, int step_x, int before_y, int before_x, int block_y,     \
    int block_x
#define BLOCKS                                                                                                        \
    Blocks { height, row, grid_y, grid_x, step_y, step_x, before_y, before_x, block_y, block_x }
struct Blocks {
    int height, row;         // Of an image.
    int grid_y, grid_x;      // Blocks of an image.
    int step_y, step_x;      // From one block to the next.
    int before_y, before_x;  // Padding before the first pixel.
    int block_y, block_x;    // Size of a block.
};

// y [images · grid_y · grid_x, packs of 16 bytes]: a row has the elements of a block of x [images, height, row], line by line,
// and zeros behind them. What lies outside of the image is zero.
template <class E>
__device__ __forceinline__ void unfold(const E *__restrict__ x, E *__restrict__ y, u32 rows, int packs, const Blocks &b) {
    constexpr int WIDE = 16 / sizeof(E);
    u32 row = matrix_row();
    if (row >= rows) {
        return;
    }
    Pack<E, WIDE> *to = (Pack<E, WIDE> *)y + (i64)row * packs;
    int bx = split(row, b.grid_x), by = split(row, b.grid_y);
    int top = by * b.step_y - b.before_y, left = bx * b.step_x - b.before_x;
    x += (i64)row * b.height * b.row;
    for (i64 pack = matrix_column(); pack < packs; pack += matrix_column_step()) {
        int at = (int)pack * WIDE, line = at / b.block_x, column = at - line * b.block_x;
        Pack<E, WIDE> values;
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            int in_y = top + line, in_x = left + column;
            bool inside = line < b.block_y && (u32)in_y < (u32)b.height && (u32)in_x < (u32)b.row;
            values.at[j] = inside ? x[(i64)in_y * b.row + in_x] : E{};
            if (++column == b.block_x) {
                column = 0;
                ++line;
            }
        }
        to[pack] = values;
    }
}

// The inverse where blocks lie side by side from the first pixel on: y [images, height, row] of the rows of x, of `columns`
// elements each.
template <class E>
__device__ __forceinline__ void fold(const E *__restrict__ x, E *__restrict__ y, u32 rows, int columns, const Blocks &b) {
    u32 row = matrix_row();
    if (row >= rows) {
        return;
    }
    y += (i64)row * b.row;
    int in_y = split(row, b.height), by = in_y / b.block_y;
    x += ((i64)row * b.grid_y + by) * b.grid_x * columns + (in_y - by * b.block_y) * b.block_x;
    for (i64 column = matrix_column(); column < b.row; column += matrix_column_step()) {
        int in_x = (int)column, bx = in_x / b.block_x;
        y[column] = x[(i64)bx * columns + in_x - bx * b.block_x];
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

#define UNFOLD(E, NAME)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                                \
        unfold_##NAME(const E *x, E *y, u32 rows, int packs, BLOCK_ARGS) {                                           \
        unfold(x, y, rows, packs, BLOCKS);                                                                           \
    }
UNFOLD(u16, b16)
UNFOLD(u32, b32)

// The gradient of a weight is of 32 bits.
extern "C" __global__ void __launch_bounds__(256) fold_b32(const u32 *x, u32 *y, u32 rows, int columns, BLOCK_ARGS) {
    fold(x, y, rows, columns, BLOCKS);
}
