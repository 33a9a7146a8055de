// Channels-last images of another size, and the gradient.
//
// x, dx are [images, height, width, channels]; y, dy are [images, out_height, out_width, channels]. Neighbouring threads have
// neighbouring channels, N of them each: a pack where the channels are whole packs, else one. The kernels walk a matrix whose
// rows are the images' rows, of `lines` in all. The gradient gathers: each pixel of dx looks at the pixels of dy that it is a part
// of, in order, so there are no atomics.
#include "common.cuh"

// What an output is made of along an axis: two positions and their weights. A weight of 0 stands for a position that is not read.
struct alignas(16) Taps {
    int at[2];
    float weight[2];
};

// The outputs that may read a position; none where the last is before the first.
struct Range {
    int first, last;
};

struct Sizes {
    int channels, height, width, out_height, out_width;
};

#define SIZES int channels, int height, int width, int out_height, int out_width
#define SIZES_GIVEN \
    Sizes { channels, height, width, out_height, out_width }

// row_taps [out_height], column_taps [out_width].
template <int N, class T>
__device__ __forceinline__ void resize(
    const T *__restrict__ x, T *__restrict__ y, const Taps *__restrict__ row_taps, const Taps *__restrict__ column_taps,
    u32 lines, const Sizes &g) {
    u32 line = matrix_row(), row_size = (u32)g.out_width * g.channels / N, per_pixel = g.channels / N;
    if (line >= lines) {
        return;
    }
    y += (i64)line * g.out_width * g.channels;
    Taps rows = row_taps[split(line, g.out_height)];
    x += (i64)line * g.height * g.width * g.channels;
    for (u32 i = matrix_column(); i < row_size; i += matrix_column_step()) {
        u32 pixel = i;
        int channel = split(pixel, per_pixel) * N;
        Taps columns = column_taps[pixel];
        float sum[N];
        for (int j = 0; j < N; ++j) {
            sum[j] = 0.0f;
        }
#pragma unroll
        for (int row = 0; row < 2; ++row) {
#pragma unroll
            for (int column = 0; column < 2; ++column) {
                float weight = rows.weight[row] * columns.weight[column];
                if (weight == 0.0f) {
                    continue;
                }
                float v[N];
                load(x + ((i64)rows.at[row] * g.width + columns.at[column]) * g.channels + channel, v);
                for (int j = 0; j < N; ++j) {
                    sum[j] += v[j] * weight;
                }
            }
        }
        store(y + (i64)i * N, sum);
    }
}

// The weight of position i.
__device__ __forceinline__ float weight_of(const Taps &taps, int i) {
    return (taps.at[0] == i ? taps.weight[0] : 0.0f) + (taps.at[1] == i ? taps.weight[1] : 0.0f);
}

// row_readers [height], column_readers [width].
template <int N, class T>
__device__ __forceinline__ void resize_grad(
    const T *__restrict__ dy, T *__restrict__ dx, const Taps *__restrict__ row_taps, const Taps *__restrict__ column_taps,
    const Range *__restrict__ row_readers, const Range *__restrict__ column_readers, u32 lines, const Sizes &g) {
    u32 line = matrix_row(), row_size = (u32)g.width * g.channels / N, per_pixel = g.channels / N;
    if (line >= lines) {
        return;
    }
    dx += (i64)line * g.width * g.channels;
    int iy = split(line, g.height);
    Range rows = row_readers[iy];
    dy += (i64)line * g.out_height * g.out_width * g.channels;
    for (u32 i = matrix_column(); i < row_size; i += matrix_column_step()) {
        u32 pixel = i;
        int channel = split(pixel, per_pixel) * N, ix = pixel;
        Range columns = column_readers[ix];
        float sum[N];
        for (int j = 0; j < N; ++j) {
            sum[j] = 0.0f;
        }
        UNROLL(1)
        for (int oy = rows.first; oy <= rows.last; ++oy) {
            float height = weight_of(row_taps[oy], iy);
            UNROLL(1)
            for (int ox = columns.first; ox <= columns.last; ++ox) {
                float weight = height * weight_of(column_taps[ox], ix);
                if (weight == 0.0f) {
                    continue;
                }
                float v[N];
                load(dy + ((i64)oy * g.out_width + ox) * g.channels + channel, v);
                for (int j = 0; j < N; ++j) {
                    sum[j] += v[j] * weight;
                }
            }
        }
        store(dx + (i64)i * N, sum);
    }
}

// Those with `packs` in their names take whole packs of channels.
#define RESIZE_KERNELS(T, NAME, N)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 4) resize_##NAME(                                                 \
        const T *x, T *y, const Taps *row_taps, const Taps *column_taps, u32 lines, SIZES) {                            \
        resize<N>(x, y, row_taps, column_taps, lines, SIZES_GIVEN);                                                     \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 4) resize_grad_##NAME(                                            \
        const T *dy, T *dx, const Taps *row_taps, const Taps *column_taps, const Range *row_readers,                    \
        const Range *column_readers, u32 lines, SIZES) {                                                                \
        resize_grad<N>(dy, dx, row_taps, column_taps, row_readers, column_readers, lines, SIZES_GIVEN);                 \
    }
#define KERNELS(T, NAME)        \
    RESIZE_KERNELS(T, NAME, 1)  \
    RESIZE_KERNELS(T, packs_##NAME, PACK<T>)
FOR_FLOATS(KERNELS)
