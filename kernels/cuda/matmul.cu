// Matrix products with a weight, the sum of products that were split, and sums over rows.
//
// x [rows, in], w [out, in], y and dy [rows, out], all row-major; element type f32, bf16 or f16, sums in f32:
//     linear_forward:      y  = act(x · wᵀ + b)     D [rows, out], terms `in`
//     linear_grad_input:   dx = dy · w              D [rows, in],  terms `out`
//     linear_grad_weight:  dw = dyᵀ · x             D [out, in],   terms `rows`, always f32
// Kernels are named product_engine_tile_type; `tf32` takes f32 in memory and rounds it to TF32 for the tensor cores.
//
// Launch: x = tiles of D (along n first), z = slices of k, Tile::THREADS threads. m, n, k are the sizes of D and the number
// of terms, `stride_a` and `stride_b` the operands' rows in memory. Slice s sums terms s · k_slice and up, a multiple of
// the tile's; with one slice `partials` is null, else it is [slices, m, n] and `sum_slices` makes the result.
#include "common.cuh"
#include "gemm_tiles.cuh"

#define LINEAR_ARGS(T)                                                                                                    \
    const T *a, const T *b, const float *bias, void *y, float *partials, int m, int n, int k, int k_slice, int stride_a,  \
        int stride_b, int wide, int y_type, int act, float slope, float extra

#define LINEAR_KERNEL(PRODUCT, OPERAND_A, OPERAND_B, FINISH, ENGINE, TILE, TYPE, SUFFIX)                                  \
    extern "C" __global__ void __launch_bounds__(TYPE::THREADS, TYPE::BLOCKS)                                                           \
        linear_##PRODUCT##_##ENGINE##_##TILE##_##SUFFIX(LINEAR_ARGS(TYPE::Element)) {                                     \
        typedef TYPE::Element T;                                                                                          \
        BlockTile tile = BlockTile::of<TYPE>(n, k, k_slice, blockIdx.z);                                                  \
        OPERAND_A<T> of_a{a, stride_a, m, tile.k_end};                                                                    \
        OPERAND_B<T> of_b{b, stride_b, n, tile.k_end};                                                                    \
        Result result{y, y_type, partial_of(partials, blockIdx.z, (i64)m * n), m, n, bias, act, slope, extra,             \
                      (wide & WIDE_RESULT) != 0};                                                                         \
        TYPE::run<FINISH>(of_a, of_b, (wide & WIDE_A) != 0, (wide & WIDE_B) != 0, tile.m, tile.n, tile.k_begin,           \
                          tile.k_end, result, RowPlace{n, 0});                                                            \
    }
#define FORWARD(ENGINE, TILE, TYPE, SUFFIX) LINEAR_KERNEL(forward, Rows, Rows, true, ENGINE, TILE, TYPE, SUFFIX)
#define GRAD_INPUT(ENGINE, TILE, TYPE, SUFFIX) LINEAR_KERNEL(grad_input, Rows, Columns, false, ENGINE, TILE, TYPE, SUFFIX)
#define GRAD_WEIGHT(ENGINE, TILE, TYPE, SUFFIX) LINEAR_KERNEL(grad_weight, Columns, Columns, false, ENGINE, TILE, TYPE, SUFFIX)

FOR_TILES(FORWARD, 128x32)
FOR_TILES(GRAD_INPUT, 128x32)
FOR_TILES(GRAD_WEIGHT, 32x32)

// y [elements] = act(Σ over slices of partials [slices, elements] + bias[element % columns]); `bias` may be null.
// Launch: an element for each thread in x, and `lanes` threads in y, 256 in all: lane l adds slices l, l + lanes, …, then
// the lanes are added in order.
extern "C" __global__ void __launch_bounds__(256)
    sum_slices(const float *partials, int slices, i64 elements, const float *bias, int columns, void *y, int y_type, int act, float slope, float extra) {
    __shared__ float lanes[256];
    i64 element = thread_index();
    float sum = 0.0f;
    if (element < elements) {
#pragma unroll 8
        for (int s = threadIdx.y; s < slices; s += blockDim.y) {
            sum += partials[s * elements + element];
        }
    }
    lanes[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && element < elements) {
        for (int l = 1; l < (int)blockDim.y; l++) {
            sum += lanes[l * blockDim.x + threadIdx.x];
        }
        if (bias != nullptr) {
            sum += bias[element % columns];
        }
        store_one(y, y_type, element, activate(act, slope, extra, sum));
    }
}

// partials [chunks, columns]: sums of `chunk` rows of x [rows, columns] each. Launch: x = 32 columns a block, y = chunks,
// threads (32, 8): lane l adds rows l, l + 8, … of the chunk, then the lanes are added in order.
template <class T> __device__ __forceinline__ void sum_rows(const T *x, float *partials, i64 rows, int columns, int chunk) {
    __shared__ float lanes[8][32];
    int column = blockIdx.x * 32 + threadIdx.x;
    i64 first = (i64)blockIdx.y * chunk, end = first + chunk < rows ? first + chunk : rows;
    float sum = 0.0f;
    if (column < columns) {
#pragma unroll 8
        for (i64 r = first + threadIdx.y; r < end; r += 8) {
            sum += to_float(x[r * columns + column]);
        }
    }
    lanes[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < columns) {
        for (int l = 1; l < 8; l++) {
            sum += lanes[l][threadIdx.x];
        }
        partials[(i64)blockIdx.y * columns + column] = sum;
    }
}

#define SUM_ROWS(T, SUFFIX)                                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                                          \
        sum_rows_##SUFFIX(const T *x, float *partials, i64 rows, int columns, int chunk) {                     \
        sum_rows(x, partials, rows, columns, chunk);                                                           \
    }
FOR_FLOATS(SUM_ROWS)
