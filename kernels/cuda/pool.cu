// Maximum and mean over windows of channels-last images, and their gradients.
//
// x, dx are [images, height, width, channels]; y, dy, index are [images, out_height, out_width, channels]. Neighbouring
// threads have neighbouring channels, N of them each: a pack where the channels are whole packs, else one. The kernels
// walk a matrix whose rows are the images' rows, of `lines` in all. Gradients gather: each pixel of dx looks at the windows
// it lies in, in order, so there are no atomics.
#include "common.cuh"

// ---- Maximum --------------------------------------------------------------------------------------------------------

// Sizes as the operation has them, each for rows and for columns.
struct MaxWindows {
    int channels, height, width, out_height, out_width;
    int kernel_rows, kernel_columns, row_stride, column_stride, row_padding, column_padding, row_dilation, column_dilation;
};

#define MAX_WINDOWS                                                                                            \
    int channels, int height, int width, int out_height, int out_width, int kernel_rows, int kernel_columns,   \
        int row_stride, int column_stride, int row_padding, int column_padding, int row_dilation, int column_dilation
#define MAX_WINDOWS_GIVEN                                                                                       \
    MaxWindows {                                                                                                \
        channels, height, width, out_height, out_width, kernel_rows, kernel_columns, row_stride, column_stride, \
            row_padding, column_padding, row_dilation, column_dilation                                          \
    }

// `index` is the place of the maximum in its window, row · kernel_columns + column: the first of equals. NaN is the
// maximum, padding never is. Windows are of K × K where K > 0, of the given size where K = 0.
template <int N, int K, class T, class P>
__device__ __forceinline__ void
max_pool(const T *__restrict__ x, T *__restrict__ y, P *__restrict__ index, u32 lines, const MaxWindows &g) {
    const int rows = K > 0 ? K : g.kernel_rows, columns = K > 0 ? K : g.kernel_columns;
    u32 line = matrix_row(), row_size = (u32)g.out_width * g.channels / N, per_pixel = g.channels / N;
    if (line >= lines) {
        return;
    }
    y += (i64)line * g.out_width * g.channels;
    index += (i64)line * g.out_width * g.channels;
    int oy = split(line, g.out_height);
    x += (i64)line * g.height * g.width * g.channels;
    for (u32 i = matrix_column(); i < row_size; i += matrix_column_step()) {
        u32 pixel = i;
        int channel = split(pixel, per_pixel) * N, ox = pixel;
        float best[N];
        int place[N];
        for (int j = 0; j < N; ++j) {
            best[j] = bits_to_float(0xff800000u);  // −∞
            place[j] = 0;
        }
        bool first = true;
        UNROLL(K > 0 ? K : 1)
        for (int row = 0; row < rows; ++row) {
            int iy = oy * g.row_stride - g.row_padding + row * g.row_dilation;
            UNROLL(K > 0 ? K : 1)
            for (int column = 0; column < columns; ++column) {
                int ix = ox * g.column_stride - g.column_padding + column * g.column_dilation;
                if ((u32)iy >= (u32)g.height || (u32)ix >= (u32)g.width) {
                    continue;
                }
                float v[N];
                load(x + ((i64)iy * g.width + ix) * g.channels + channel, v);
                for (int j = 0; j < N; ++j) {
                    if (first || v[j] > best[j] || v[j] != v[j]) {
                        best[j] = v[j];
                        place[j] = row * columns + column;
                    }
                }
                first = false;
            }
        }
        store(y + (i64)i * N, best);
        Pack<P, N> places;
        for (int j = 0; j < N; ++j) {
            places.at[j] = (P)place[j];
        }
        *(Pack<P, N> *)(index + (i64)i * N) = places;
    }
}

struct Range {
    int first, last;
};

// The windows along an axis that may have position i in them: the first tap is at most there, the last at least.
__device__ __forceinline__ Range covering(int i, int kernel, int stride, int padding, int dilation, int outputs) {
    int at = i + padding, before = at - (kernel - 1) * dilation;
    return Range{before > 0 ? (before - 1) / stride + 1 : 0, min(at / stride, outputs - 1)};
}

// The tap of window o that is at position i, a window that covers it; −1 if i is between the taps.
__device__ __forceinline__ int tap(int i, int o, int stride, int padding, int dilation) {
    int from_first = i + padding - o * stride;
    if (dilation == 1) {
        return from_first;
    }
    return from_first % dilation == 0 ? from_first / dilation : -1;
}

template <int N, class T, class P>
__device__ __forceinline__ void
max_pool_grad(const T *__restrict__ dy, const P *__restrict__ index, T *__restrict__ dx, u32 lines, const MaxWindows &g) {
    u32 line = matrix_row(), row_size = (u32)g.width * g.channels / N, per_pixel = g.channels / N;
    if (line >= lines) {
        return;
    }
    dx += (i64)line * g.width * g.channels;
    int iy = split(line, g.height);
    dy += (i64)line * g.out_height * g.out_width * g.channels;
    index += (i64)line * g.out_height * g.out_width * g.channels;
    Range rows = covering(iy, g.kernel_rows, g.row_stride, g.row_padding, g.row_dilation, g.out_height);
    for (u32 i = matrix_column(); i < row_size; i += matrix_column_step()) {
        u32 pixel = i;
        int channel = split(pixel, per_pixel) * N, ix = pixel;
        Range columns = covering(ix, g.kernel_columns, g.column_stride, g.column_padding, g.column_dilation, g.out_width);
        float sum[N];
        for (int j = 0; j < N; ++j) {
            sum[j] = 0.0f;
        }
        UNROLL(1)
        for (int oy = rows.first; oy <= rows.last; ++oy) {
            int row = tap(iy, oy, g.row_stride, g.row_padding, g.row_dilation);
            UNROLL(1)
            for (int ox = columns.first; ox <= columns.last; ++ox) {
                int column = tap(ix, ox, g.column_stride, g.column_padding, g.column_dilation);
                if (row < 0 || column < 0) {
                    continue;
                }
                i64 at = ((i64)oy * g.out_width + ox) * g.channels + channel;
                int here = row * g.kernel_columns + column;
                Pack<P, N> places = *(const Pack<P, N> *)(index + at);
                float v[N];
                load(dy + at, v);
                for (int j = 0; j < N; ++j) {
                    sum[j] += (int)places.at[j] == here ? v[j] : 0.0f;
                }
            }
        }
        store(dx + (i64)i * N, sum);
    }
}

// ---- Mean: average pooling and its adaptive form --------------------------------------------------------------------

// Which inputs, from `start` to before `end`, an output takes in along an axis, and the axis' factor of the divisor. The
// host makes the lists of windows along rows and along columns.
struct alignas(16) Span {
    int start, end, count, unused;
};

struct MeanWindows {
    int channels, height, width, out_height, out_width;
};

#define MEAN_WINDOWS int channels, int height, int width, int out_height, int out_width
#define MEAN_WINDOWS_GIVEN \
    MeanWindows { channels, height, width, out_height, out_width }

// row_windows [out_height], column_windows [out_width]. A thread for N channels of a pixel of y: for small windows.
template <int N, class T>
__device__ __forceinline__ void mean_pool(
    const T *__restrict__ x, T *__restrict__ y, const Span *__restrict__ row_windows,
    const Span *__restrict__ column_windows, u32 lines, const MeanWindows &g) {
    u32 line = matrix_row(), row_size = (u32)g.out_width * g.channels / N, per_pixel = g.channels / N;
    if (line >= lines) {
        return;
    }
    y += (i64)line * g.out_width * g.channels;
    Span rows = row_windows[split(line, g.out_height)];
    x += (i64)line * g.height * g.width * g.channels;
    for (u32 i = matrix_column(); i < row_size; i += matrix_column_step()) {
        u32 pixel = i;
        int channel = split(pixel, per_pixel) * N;
        Span columns = column_windows[pixel];
        float sum[N];
        for (int j = 0; j < N; ++j) {
            sum[j] = 0.0f;
        }
        UNROLL(1)
        for (int iy = rows.start; iy < rows.end; ++iy) {
            for (int ix = columns.start; ix < columns.end; ++ix) {
                float v[N];
                load(x + ((i64)iy * g.width + ix) * g.channels + channel, v);
                for (int j = 0; j < N; ++j) {
                    sum[j] += v[j];
                }
            }
        }
        float part = 1.0f / ((float)rows.count * (float)columns.count);
        for (int j = 0; j < N; ++j) {
            sum[j] *= part;
        }
        store(y + (i64)i * N, sum);
    }
}

// A block for N · lanes channels of a pixel of y, its lines of threads sharing the pixels of the window: for large windows,
// which are few. `lanes` is a power of two. Blocks count chunks of channels innermost, then pixels.
template <int N, class T>
__device__ __forceinline__ void mean_pool_large(
    const T *__restrict__ x, T *__restrict__ y, const Span *__restrict__ row_windows,
    const Span *__restrict__ column_windows, int lanes, const MeanWindows &g) {
    __shared__ float partial[N][256];
    int thread = threadIdx.x, lane = thread % lanes, line = thread / lanes, lines = 256 / lanes;
    u32 image = blockIdx.x;
    int chunk = lanes * N, channel = (int)split(image, (g.channels + chunk - 1) / chunk) * chunk + lane * N;
    y += (i64)image * g.channels + channel;
    Span columns = column_windows[split(image, g.out_width)];
    Span rows = row_windows[split(image, g.out_height)];
    float sum[N];
    for (int j = 0; j < N; ++j) {
        sum[j] = 0.0f;
    }
    if (channel < g.channels) {
        x += (((i64)image * g.height + rows.start) * g.width + columns.start) * g.channels + channel;
        u32 width = columns.end - columns.start, pixels = (rows.end - rows.start) * width;
        for (u32 pixel = line; pixel < pixels; pixel += lines) {
            u32 row = pixel;
            u32 column = split(row, width);
            float v[N];
            load(x + ((i64)row * g.width + column) * g.channels, v);
            for (int j = 0; j < N; ++j) {
                sum[j] += v[j];
            }
        }
    }
    for (int j = 0; j < N; ++j) {
        partial[j][thread] = sum[j];
    }
    for (int half = lines / 2; half > 0; half /= 2) {
        __syncthreads();
        if (line < half) {
            for (int j = 0; j < N; ++j) {
                partial[j][thread] += partial[j][thread + half * lanes];
            }
        }
    }
    if (line == 0 && channel < g.channels) {
        float part = 1.0f / ((float)rows.count * (float)columns.count);
        for (int j = 0; j < N; ++j) {
            sum[j] = partial[j][thread] * part;
        }
        store(y, sum);
    }
}

// row_ranges [height], column_ranges [width]: the windows that take a position in.
template <int N, class T>
__device__ __forceinline__ void mean_pool_grad(
    const T *__restrict__ dy, T *__restrict__ dx, const Span *__restrict__ row_windows,
    const Span *__restrict__ column_windows, const Range *__restrict__ row_ranges, const Range *__restrict__ column_ranges,
    u32 lines, const MeanWindows &g) {
    u32 line = matrix_row(), row_size = (u32)g.width * g.channels / N, per_pixel = g.channels / N;
    if (line >= lines) {
        return;
    }
    dx += (i64)line * g.width * g.channels;
    Range rows = row_ranges[split(line, g.height)];
    dy += (i64)line * g.out_height * g.out_width * g.channels;
    for (u32 i = matrix_column(); i < row_size; i += matrix_column_step()) {
        u32 pixel = i;
        int channel = split(pixel, per_pixel) * N;
        Range columns = column_ranges[pixel];
        float sum[N];
        for (int j = 0; j < N; ++j) {
            sum[j] = 0.0f;
        }
        UNROLL(1)
        for (int oy = rows.first; oy <= rows.last; ++oy) {
            float height = row_windows[oy].count;
            UNROLL(1)
            for (int ox = columns.first; ox <= columns.last; ++ox) {
                float part = 1.0f / (height * (float)column_windows[ox].count);
                float v[N];
                load(dy + ((i64)oy * g.out_width + ox) * g.channels + channel, v);
                for (int j = 0; j < N; ++j) {
                    sum[j] += v[j] * part;
                }
            }
        }
        store(dx + (i64)i * N, sum);
    }
}

// ---- Maximum over windows that tile the image -----------------------------------------------------------------------

// `index` is the place of the maximum in its window, row · columns of the window + column: the first of equals. NaN is the maximum.
template <int N, class T>
__device__ __forceinline__ void adaptive_max_pool(
    const T *__restrict__ x, T *__restrict__ y, int *__restrict__ index, const Span *__restrict__ row_windows,
    const Span *__restrict__ column_windows, u32 lines, const MeanWindows &g) {
    u32 line = matrix_row(), row_size = (u32)g.out_width * g.channels / N, per_pixel = g.channels / N;
    if (line >= lines) {
        return;
    }
    y += (i64)line * g.out_width * g.channels;
    index += (i64)line * g.out_width * g.channels;
    Span rows = row_windows[split(line, g.out_height)];
    x += (i64)line * g.height * g.width * g.channels;
    for (u32 i = matrix_column(); i < row_size; i += matrix_column_step()) {
        u32 pixel = i;
        int channel = split(pixel, per_pixel) * N, here = 0;
        Span columns = column_windows[pixel];
        float best[N];
        Pack<int, N> places;
        for (int j = 0; j < N; ++j) {
            best[j] = bits_to_float(0xff800000u);  // −∞
            places.at[j] = 0;
        }
        UNROLL(1)
        for (int iy = rows.start; iy < rows.end; ++iy) {
            UNROLL(1)
            for (int ix = columns.start; ix < columns.end; ++ix, ++here) {
                float v[N];
                load(x + ((i64)iy * g.width + ix) * g.channels + channel, v);
                for (int j = 0; j < N; ++j) {
                    if (v[j] > best[j] || v[j] != v[j]) {
                        best[j] = v[j];
                        places.at[j] = here;
                    }
                }
            }
        }
        store(y + (i64)i * N, best);
        *(Pack<int, N> *)(index + (i64)i * N) = places;
    }
}

// row_ranges [height], column_ranges [width]: the windows that take a position in.
template <int N, class T>
__device__ __forceinline__ void adaptive_max_pool_grad(
    const T *__restrict__ dy, const int *__restrict__ index, T *__restrict__ dx, const Span *__restrict__ row_windows,
    const Span *__restrict__ column_windows, const Range *__restrict__ row_ranges, const Range *__restrict__ column_ranges,
    u32 lines, const MeanWindows &g) {
    u32 line = matrix_row(), row_size = (u32)g.width * g.channels / N, per_pixel = g.channels / N;
    if (line >= lines) {
        return;
    }
    dx += (i64)line * g.width * g.channels;
    int iy = split(line, g.height);
    Range rows = row_ranges[iy];
    dy += (i64)line * g.out_height * g.out_width * g.channels;
    index += (i64)line * g.out_height * g.out_width * g.channels;
    for (u32 i = matrix_column(); i < row_size; i += matrix_column_step()) {
        u32 pixel = i;
        int channel = split(pixel, per_pixel) * N, ix = pixel;
        Range columns = column_ranges[ix];
        float sum[N];
        for (int j = 0; j < N; ++j) {
            sum[j] = 0.0f;
        }
        UNROLL(1)
        for (int oy = rows.first; oy <= rows.last; ++oy) {
            int row = iy - row_windows[oy].start;
            UNROLL(1)
            for (int ox = columns.first; ox <= columns.last; ++ox) {
                Span window = column_windows[ox];
                int here = row * (window.end - window.start) + ix - window.start;
                i64 at = ((i64)oy * g.out_width + ox) * g.channels + channel;
                Pack<int, N> places = *(const Pack<int, N> *)(index + at);
                float v[N];
                load(dy + at, v);
                for (int j = 0; j < N; ++j) {
                    sum[j] += places.at[j] == here ? v[j] : 0.0f;
                }
            }
        }
        store(dx + (i64)i * N, sum);
    }
}

// ---- Kernels: those with `packs` in their names take whole packs of channels ----------------------------------------
//
// Four blocks to a multiprocessor: left to choose, the compiler keeps a few numbers in memory to fit eight.

// Windows of more than 256 pixels, whose places need i32, are rare: they have no fast forms.
#define MAX_KERNELS(T, NAME, P, N, K2, K3)                                                             \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                  \
        max_pool_##NAME(const T *x, T *y, P *index, u32 lines, MAX_WINDOWS) {                          \
        if (K2 && kernel_rows == 2 && kernel_columns == 2) {                                           \
            max_pool<N, K2>(x, y, index, lines, MAX_WINDOWS_GIVEN);                                    \
        } else if (K3 && kernel_rows == 3 && kernel_columns == 3) {                                    \
            max_pool<N, K3>(x, y, index, lines, MAX_WINDOWS_GIVEN);                                    \
        } else {                                                                                       \
            max_pool<N, 0>(x, y, index, lines, MAX_WINDOWS_GIVEN);                                     \
        }                                                                                              \
    }                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                  \
        max_pool_grad_##NAME(const T *dy, const P *index, T *dx, u32 lines, MAX_WINDOWS) {             \
        max_pool_grad<N>(dy, index, dx, lines, MAX_WINDOWS_GIVEN);                                     \
    }
#define MEAN_KERNELS(T, NAME, N)                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 4) mean_pool_##NAME(                                \
        const T *x, T *y, const Span *row_windows, const Span *column_windows, u32 lines, MEAN_WINDOWS) { \
        mean_pool<N>(x, y, row_windows, column_windows, lines, MEAN_WINDOWS_GIVEN);                    \
    }                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 4) mean_pool_large_##NAME(                          \
        const T *x, T *y, const Span *row_windows, const Span *column_windows, int lanes, MEAN_WINDOWS) { \
        mean_pool_large<N>(x, y, row_windows, column_windows, lanes, MEAN_WINDOWS_GIVEN);              \
    }                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 4) mean_pool_grad_##NAME(                           \
        const T *dy, T *dx, const Span *row_windows, const Span *column_windows, const Range *row_ranges, \
        const Range *column_ranges, u32 lines, MEAN_WINDOWS) {                                         \
        mean_pool_grad<N>(dy, dx, row_windows, column_windows, row_ranges, column_ranges, lines, MEAN_WINDOWS_GIVEN); \
    }
#define ADAPTIVE_MAX_KERNELS(T, NAME, N)                                                               \
    extern "C" __global__ void __launch_bounds__(256, 4) adaptive_max_pool_##NAME(                        \
        const T *x, T *y, int *index, const Span *row_windows, const Span *column_windows, u32 lines,  \
        MEAN_WINDOWS) {                                                                                \
        adaptive_max_pool<N>(x, y, index, row_windows, column_windows, lines, MEAN_WINDOWS_GIVEN);     \
    }                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 4) adaptive_max_pool_grad_##NAME(                   \
        const T *dy, const int *index, T *dx, const Span *row_windows, const Span *column_windows,     \
        const Range *row_ranges, const Range *column_ranges, u32 lines, MEAN_WINDOWS) {                \
        adaptive_max_pool_grad<N>(dy, index, dx, row_windows, column_windows, row_ranges, column_ranges, lines, \
                                  MEAN_WINDOWS_GIVEN);                                                 \
    }
#define KERNELS(T, NAME)                               \
    MAX_KERNELS(T, u8_##NAME, u8, 1, 2, 3)             \
    MAX_KERNELS(T, packs_u8_##NAME, u8, PACK<T>, 2, 3) \
    MAX_KERNELS(T, i32_##NAME, int, 1, 0, 0)           \
    MEAN_KERNELS(T, NAME, 1)                           \
    MEAN_KERNELS(T, packs_##NAME, PACK<T>)             \
    ADAPTIVE_MAX_KERNELS(T, NAME, 1)                   \
    ADAPTIVE_MAX_KERNELS(T, packs_##NAME, PACK<T>)
FOR_FLOATS(KERNELS)
