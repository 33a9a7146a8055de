// Depthwise convolutions: a channel of the result comes from the channel of the same number alone. Square kernels of 3, 5 and
// 7, strides of 1 and 2.
//
// x [N, H, W, C], w [C, K, K], y and dy [N, OH, OW, C]; element type f32, bf16 or f16, sums in f32.
//     depthwiseK:              y = x * w + bias; with flipped weights the gradient by the input
//     depthwiseK_stride2:      the same with stride 2
//     depthwiseK_grad_stride2: its gradient by the input: each pixel of dx from the outputs that it went into, no others
//     depthwiseK_weight,
//     depthwiseK_weight_stride2: partial sums of the gradient by the weight
//
// A thread has some neighbouring channels (four of a kernel of 3, else two) and columns, and walks down the rows of a strip. It
// reads each input row once, and keeps the sums of all output rows that the row belongs to: so K rows of sums are under way, and
// the input is read from memory once, whatever the size of the kernel. The next row is loaded while this one is summed up.
// Neighbouring threads have neighbouring channels, so that a warp reads and writes whole sectors. There are not as many channels
// as 16 bytes have: registers are what is short, and a weight is read once for all columns of a thread.
//
// Launch: threads (x, y), x over packs of channels, y over items (columns, strips, images; columns fastest). The grid's x is
// items / threads.y times `tiles`, tiles of packs fastest.
#include "common.cuh"

// Some neighbouring channels.
template <int V> using Floats = Pack<float, V>;

// The same as they lie in memory.
template <class T, int V> struct alignas(sizeof(T) * V) Stored {
    u32 words[sizeof(T) * V / 4];
};

__device__ __forceinline__ float element(const u32 *words, int i, float) { return bits_to_float(words[i]); }
__device__ __forceinline__ float element(const u32 *words, int i, bf16) {
    return bits_to_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
}
__device__ __forceinline__ float element(const u32 *words, int i, f16) {
    return to_float(f16{(unsigned short)(words[i / 2] >> i % 2 * 16)});
}

template <class T, int V> __device__ __forceinline__ Floats<V> floats(const Stored<T, V> &x) {
    Floats<V> v;
#pragma unroll
    for (int i = 0; i < V; ++i) {
        v.at[i] = element(x.words, i, T{});
    }
    return v;
}

template <int V> __device__ __forceinline__ void round_to(const Floats<V> &v, Stored<float, V> &to) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
        to.words[i] = float_to_bits(v.at[i]);
    }
}
template <class T, int V> __device__ __forceinline__ void round_to(const Floats<V> &v, Stored<T, V> &to) {
#pragma unroll
    for (int i = 0; i < V; i += 2) {
        to.words[i / 2] = (u32)from_float<T>(v.at[i]).bits | (u32)from_float<T>(v.at[i + 1]).bits << 16;
    }
}

template <int V> __device__ __forceinline__ Floats<V> zeros() {
    Floats<V> v;
#pragma unroll
    for (int i = 0; i < V; ++i) {
        v.at[i] = 0.0f;
    }
    return v;
}

template <int V> __device__ __forceinline__ Floats<V> fma(const Floats<V> &a, const Floats<V> &b, Floats<V> sum) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
        sum.at[i] = fmaf(a.at[i], b.at[i], sum.at[i]);
    }
    return sum;
}

// Sizes. `columns`, `strips` and `rows` say how an image is divided into items: how many pieces along a row, how many strips,
// and rows of a strip. `padding` is what is before the first row and column of x.
struct DepthwiseShape {
    int images, height, width, out_y, out_x, channels, padding_y, padding_x, tiles, columns, strips, rows;
};
#define DEPTHWISE_ARGS                                                                                                    \
    int images, int height, int width, int out_y, int out_x, int channels, int padding_y, int padding_x, int tiles,       \
        int columns, int strips, int rows
#define DEPTHWISE_SHAPE                                                                                                   \
    DepthwiseShape { images, height, width, out_y, out_x, channels, padding_y, padding_x, tiles, columns, strips, rows }

// The first of this thread's channels; all threads of a block with the same threadIdx.x have the same.
template <int V> __device__ __forceinline__ int first_channel(const DepthwiseShape &s) {
    return V * ((int)(blockIdx.x % s.tiles * blockDim.x) + (int)threadIdx.x);
}

// A piece of an image.
struct DepthwiseItem {
    int column, strip, image;
    __device__ __forceinline__ DepthwiseItem(u32 item, const DepthwiseShape &s) {
        column = (int)split(item, s.columns);
        strip = (int)split(item, s.strips);
        image = (int)item;
    }
};

// N pixels of a row, of which those that `inside` has a bit for exist; the others stay what they are. The address moves on
// from column to column, which takes fewer instructions than one made anew for each.
template <int N, int V, class T>
__device__ __forceinline__ void load_row(const T *row, i64 channels, u32 inside, Stored<T, V> (&v)[N]) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
        if (inside >> j & 1u) {
            v[j] = *(const Stored<T, V> *)row;
        }
        row += channels;
    }
}

template <int N, int V, class T>
__device__ __forceinline__ void store_row(T *row, i64 channels, u32 inside, const Floats<V> (&v)[N]) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
        Stored<T, V> stored;
        round_to(v[j], stored);
        if (inside >> j & 1u) {
            *(Stored<T, V> *)row = stored;
        }
        row += channels;
    }
}

template <int N, int V, class T> __device__ __forceinline__ void clear(Stored<T, V> (&v)[N]) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
        v[j] = {};
    }
}

template <int N, int V, class T>
__device__ __forceinline__ void convert(const Stored<T, V> (&from)[N], Floats<V> (&to)[N]) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
        to[j] = floats(from[j]);
    }
}

// A bit for each of N columns from `first` on that the width has.
template <int N> __device__ __forceinline__ u32 columns_inside(int first, int width) {
    u32 bits = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) {
        bits |= (u32)((u32)(first + j) < (u32)width) << j;
    }
    return bits;
}

// Most threads of a block in x.
constexpr int MOST_ALONG = 64;

// The weights of the block's channels in shared memory, as floats [K·K][MOST_ALONG][V]: so their places are constants.
template <int K, int V, class T>
__device__ __forceinline__ const Floats<V> *share_weights(const T *w, const DepthwiseShape &s, bool flipped) {
    DYNAMIC_SHARED(float, weights);
    constexpr int TAPS = K * K;
    int channels = V * (int)blockDim.x, first = blockIdx.x % s.tiles * channels;
    for (int e = threadIdx.y * blockDim.x + threadIdx.x; e < channels * TAPS; e += blockDim.x * blockDim.y) {
        int c = e / TAPS, tap = e - c * TAPS;
        float v = first + c < s.channels ? to_float(w[(i64)first * TAPS + e]) : 0.0f;
        weights[(flipped ? TAPS - 1 - tap : tap) * MOST_ALONG * V + c] = v;
    }
    __syncthreads();
    return (const Floats<V> *)weights + threadIdx.x;
}

// y = x * w + bias with stride S, R columns a thread.
template <int K, int S, int V, int R, class T>
__device__ __forceinline__ void depthwise(const T *x, const T *w, const float *bias, T *y, const DepthwiseShape &s, bool flipped) {
    // Output rows that an input row belongs to, and columns that are read for R.
    constexpr int LIVE = (K + S - 1) / S, WINDOW = (R - 1) * S + K;
    const Floats<V> *weights = share_weights<K, V>(w, s, flipped);
    int channel = first_channel<V>(s);
    DepthwiseItem item((blockIdx.x / s.tiles) * blockDim.y + threadIdx.y, s);
    if (channel >= s.channels || item.image >= s.images) {
        return;
    }
    int first_x = item.column * R, from_x = first_x * S - s.padding_x, row_x = s.width * s.channels;
    u32 inside = columns_inside<WINDOW>(from_x, s.width), stored = columns_inside<R>(first_x, s.out_x);
    const T *image = x + (i64)item.image * s.height * row_x + (from_x * s.channels + channel);
    T *out = y + (i64)item.image * s.out_y * s.out_x * s.channels + (first_x * s.channels + channel);
    Floats<V> start = bias != nullptr ? *(const Floats<V> *)(bias + channel) : zeros<V>();
    int first = item.strip * s.rows, end = min(first + s.rows, s.out_y);
    // Sums of the output rows t - (LIVE - 1) to t.
    Floats<V> sums[LIVE][R];
    Stored<T, V> next[S][WINDOW];
#pragma unroll
    for (int p = 0; p < S; ++p) {
        clear(next[p]);
        int row = first * S - s.padding_y + p;
        if ((u32)row < (u32)s.height) {
            load_row(image + row * row_x, s.channels, inside, next[p]);
        }
    }
#pragma unroll 1
    for (int t = first; t < end + LIVE - 1; ++t) {
#pragma unroll
        for (int p = 0; p < S; ++p) {
            int row = t * S - s.padding_y + p;
            Floats<V> window[WINDOW];
            convert(next[p], window);
            if ((u32)(row + S) < (u32)s.height) {
                load_row(image + (row + S) * row_x, s.channels, inside, next[p]);
            }
            if ((u32)row < (u32)s.height) {
#pragma unroll
                for (int a = 0; a < LIVE; ++a) {
                    int tap_y = (LIVE - 1 - a) * S + p;
                    if (tap_y >= K) {
                        continue;
                    }
#pragma unroll
                    for (int tap_x = 0; tap_x < K; ++tap_x) {
                        Floats<V> weight = weights[(tap_y * K + tap_x) * MOST_ALONG];
#pragma unroll
                        for (int r = 0; r < R; ++r) {
                            // The first term of a step moves the sums on by a row.
                            bool moves = p == 0 && tap_x == 0;
                            Floats<V> sum = !moves ? sums[a][r] : a + 1 < LIVE ? sums[a + 1][r] : start;
                            sums[a][r] = fma(window[r * S + tap_x], weight, sum);
                        }
                    }
                }
            } else if (p == 0) {
#pragma unroll
                for (int a = 0; a < LIVE; ++a) {
#pragma unroll
                    for (int r = 0; r < R; ++r) {
                        sums[a][r] = a + 1 < LIVE ? sums[a + 1][r] : start;
                    }
                }
            }
        }
        int row = t - (LIVE - 1);
        if (row >= first) {
            store_row(out + row * s.out_x * s.channels, s.channels, stored, sums[0]);
        }
    }
}

// dx of stride 2. A row v of pairs has the pixels 2v - padding and 2v + 1 - padding, which dy's rows v - (LIVE - 1) to v went
// to; so have columns. `rows` and `columns` count those pairs, R of them a thread.
template <int K, int V, int R, class T>
__device__ __forceinline__ void depthwise_grad(const T *dy, const T *w, T *dx, const DepthwiseShape &s) {
    constexpr int LIVE = (K + 1) / 2, WINDOW = R + LIVE - 1;
    const Floats<V> *weights = share_weights<K, V>(w, s, false);
    int channel = first_channel<V>(s);
    DepthwiseItem item((blockIdx.x / s.tiles) * blockDim.y + threadIdx.y, s);
    if (channel >= s.channels || item.image >= s.images) {
        return;
    }
    int first_v = s.padding_x / 2 + item.column * R, from_x = first_v - (LIVE - 1), to_x = 2 * first_v - s.padding_x;
    int row_x = s.out_x * s.channels;
    u32 inside = columns_inside<WINDOW>(from_x, s.out_x), stored = columns_inside<2 * R>(to_x, s.width);
    const T *image = dy + (i64)item.image * s.out_y * row_x + (from_x * s.channels + channel);
    T *out = dx + (i64)item.image * s.height * s.width * s.channels + (to_x * s.channels + channel);
    int first = s.padding_y / 2 + item.strip * s.rows, end = min(first + s.rows, (s.height - 1 + s.padding_y) / 2 + 1);
    Floats<V> sums[LIVE][2][2 * R];
    Stored<T, V> next[WINDOW];
    clear(next);
    int t = first - (LIVE - 1);
    if ((u32)t < (u32)s.out_y) {
        load_row(image + t * row_x, s.channels, inside, next);
    }
#pragma unroll 1
    for (; t < end; ++t) {
        Floats<V> window[WINDOW];
        convert(next, window);
        if ((u32)(t + 1) < (u32)s.out_y) {
            load_row(image + (t + 1) * row_x, s.channels, inside, next);
        }
        bool exists = (u32)t < (u32)s.out_y;
        // Sums of the rows v = t, t + 1, …
#pragma unroll
        for (int a = 0; a < LIVE; ++a) {
#pragma unroll
            for (int p = 0; p < 2; ++p) {
                int tap_y = 2 * a + p;
                if (tap_y >= K) {
                    continue;
                }
#pragma unroll
                for (int c = 0; c < 2 * R; ++c) {
                    sums[a][p][c] = tap_y + 2 < K ? sums[a + 1][p][c] : zeros<V>();
                }
                if (!exists) {
                    continue;
                }
#pragma unroll
                for (int tap_x = 0; tap_x < K; ++tap_x) {
                    Floats<V> weight = weights[(tap_y * K + tap_x) * MOST_ALONG];
#pragma unroll
                    for (int r = 0; r < R; ++r) {
                        Floats<V> &sum = sums[a][p][2 * r + tap_x % 2];
                        sum = fma(window[r - tap_x / 2 + LIVE - 1], weight, sum);
                    }
                }
            }
        }
        if (t >= first) {
#pragma unroll
            for (int p = 0; p < 2; ++p) {
                int row = 2 * t + p - s.padding_y;
                if ((u32)row < (u32)s.height) {
                    store_row(out + row * s.width * s.channels, s.channels, stored, sums[0][p]);
                }
            }
        }
    }
}

// partials [blocks / tiles][C][K][K] of dw. A thread walks down the rows of x and keeps the rows of dy that they went to. It
// takes several items one after the other; then the threads of a block that have the same channels are added in order. `rows`
// and `strips` divide the steps, S rows of x, from the first to the last that meets a row of dy.
template <int K, int S, int V, int R, class T>
__device__ __forceinline__ void depthwise_weight(const T *x, const T *dy, float *partials, const DepthwiseShape &s) {
    constexpr int LIVE = (K + S - 1) / S, WINDOW = (R - 1) * S + K, TAPS = K * K;
    DYNAMIC_SHARED(float, shared);
    int channel = first_channel<V>(s);
    u32 items = (u32)(s.columns * s.strips * s.images), each = gridDim.x / s.tiles * blockDim.y;
    int x_row = s.width * s.channels, dy_row = s.out_x * s.channels;
    int steps_begin = s.padding_y / S, steps_end = min((s.height - 1 + s.padding_y) / S, s.out_y + LIVE - 2) + 1;
    Floats<V> sums[TAPS];
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) {
        sums[tap] = zeros<V>();
    }
#pragma unroll 1
    for (u32 i = channel < s.channels ? (blockIdx.x / s.tiles) * blockDim.y + threadIdx.y : items; i < items; i += each) {
        DepthwiseItem item(i, s);
        int first_x = item.column * R, from_x = first_x * S - s.padding_x;
        u32 inside = columns_inside<WINDOW>(from_x, s.width), outputs = columns_inside<R>(first_x, s.out_x);
        const T *image = x + (i64)item.image * s.height * x_row + (from_x * s.channels + channel);
        const T *out = dy + (i64)item.image * s.out_y * dy_row + (first_x * s.channels + channel);
        int first = steps_begin + item.strip * s.rows, end = min(first + s.rows, steps_end);
        // Row t - d of dy, for d from 0 on, and what the next step needs.
        Stored<T, V> kept[LIVE][R], next_out[R], next[S][WINDOW];
#pragma unroll
        for (int d = 0; d < LIVE - 1; ++d) {
            clear(kept[d]);
            int row = first - 1 - d;
            if ((u32)row < (u32)s.out_y) {
                load_row(out + row * dy_row, s.channels, outputs, kept[d]);
            }
        }
        clear(next_out);
        if (first < s.out_y) {
            load_row(out + first * dy_row, s.channels, outputs, next_out);
        }
#pragma unroll
        for (int p = 0; p < S; ++p) {
            clear(next[p]);
            int row = first * S - s.padding_y + p;
            if ((u32)row < (u32)s.height) {
                load_row(image + row * x_row, s.channels, inside, next[p]);
            }
        }
#pragma unroll 1
        for (int t = first; t < end; ++t) {
#pragma unroll
            for (int r = 0; r < R; ++r) {
#pragma unroll
                for (int d = LIVE - 1; d > 0; --d) {
                    kept[d][r] = kept[d - 1][r];
                }
                kept[0][r] = next_out[r];
            }
            if (t + 1 < s.out_y) {
                load_row(out + (t + 1) * dy_row, s.channels, outputs, next_out);
            } else {
                clear(next_out);
            }
#pragma unroll
            for (int p = 0; p < S; ++p) {
                int row = t * S - s.padding_y + p;
                Floats<V> window[WINDOW];
                convert(next[p], window);
                if ((u32)(row + S) < (u32)s.height) {
                    load_row(image + (row + S) * x_row, s.channels, inside, next[p]);
                }
                if ((u32)row >= (u32)s.height) {
                    continue;
                }
#pragma unroll
                for (int d = 0; d * S + p < K; ++d) {
#pragma unroll
                    for (int r = 0; r < R; ++r) {
                        Floats<V> grad = floats(kept[d][r]);
#pragma unroll
                        for (int tap_x = 0; tap_x < K; ++tap_x) {
                            Floats<V> &sum = sums[(d * S + p) * K + tap_x];
                            sum = fma(window[r * S + tap_x], grad, sum);
                        }
                    }
                }
            }
        }
    }
    Floats<V> *lanes = (Floats<V> *)shared + threadIdx.x;
    for (int l = 0; l < (int)blockDim.y; ++l) {
        if ((int)threadIdx.y == l) {
#pragma unroll
            for (int tap = 0; tap < TAPS; ++tap) {
                Floats<V> &lane = lanes[tap * MOST_ALONG], sum = sums[tap];
#pragma unroll
                for (int i = 0; i < V; ++i) {
                    sum.at[i] = l == 0 ? sum.at[i] : lane.at[i] + sum.at[i];
                }
                lane = sum;
            }
        }
        __syncthreads();
    }
    int channels = V * (int)blockDim.x, first = blockIdx.x % s.tiles * channels;
    float *partial = partials + ((i64)(blockIdx.x / s.tiles) * s.channels + first) * TAPS;
    for (int e = threadIdx.y * blockDim.x + threadIdx.x; e < channels * TAPS; e += blockDim.x * blockDim.y) {
        int c = e / TAPS, tap = e - c * TAPS;
        if (first + c < s.channels) {
            partial[e] = shared[tap * MOST_ALONG * V + c];
        }
    }
}

// Kernels of V channels and R columns a thread. A and B blocks of 128 threads fit a multiprocessor by their registers, of
// 16-bit types and of floats.
#define BLOCKS(T, A, B) (sizeof(T) == 2 ? A : B)
#define DEPTHWISE(T, SUFFIX, K, STRIDE, S, V, R, A, B)                                                                    \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS(T, A, B)) depthwise##K##STRIDE##_##SUFFIX(                   \
        const T *x, const T *w, const float *bias, T *y, DEPTHWISE_ARGS, int flipped) {                                   \
        depthwise<K, S, V, R>(x, w, bias, y, DEPTHWISE_SHAPE, flipped != 0);                                              \
    }
#define DEPTHWISE_GRAD(T, SUFFIX, K, V, R, A, B)                                                                          \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS(T, A, B))                                                    \
        depthwise##K##_grad_stride2_##SUFFIX(const T *dy, const T *w, T *dx, DEPTHWISE_ARGS) {                            \
        depthwise_grad<K, V, R>(dy, w, dx, DEPTHWISE_SHAPE);                                                              \
    }
#define DEPTHWISE_WEIGHT(T, SUFFIX, K, STRIDE, S, V, R, A, B)                                                             \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS(T, A, B))                                                    \
        depthwise##K##_weight##STRIDE##_##SUFFIX(const T *x, const T *dy, float *partials, DEPTHWISE_ARGS) {              \
        depthwise_weight<K, S, V, R>(x, dy, partials, DEPTHWISE_SHAPE);                                                   \
    }

// V and R are those of `Form` in crates/engine/src/backend/cuda/lower/conv/depthwise.rs.
#define DEPTHWISE_KERNELS(T, SUFFIX)                                                                                      \
    DEPTHWISE(T, SUFFIX, 3, , 1, 4, 4, 4, 3)                                                                              \
    DEPTHWISE(T, SUFFIX, 5, , 1, 2, 7, 3, 3)                                                                              \
    DEPTHWISE(T, SUFFIX, 7, , 1, 2, 7, 2, 2)                                                                              \
    DEPTHWISE(T, SUFFIX, 3, _stride2, 2, 4, 2, 4, 3)                                                                      \
    DEPTHWISE(T, SUFFIX, 5, _stride2, 2, 2, 4, 4, 2)                                                                      \
    DEPTHWISE(T, SUFFIX, 7, _stride2, 2, 2, 4, 3, 2)                                                                      \
    DEPTHWISE_GRAD(T, SUFFIX, 3, 4, 2, 4, 3)                                                                              \
    DEPTHWISE_GRAD(T, SUFFIX, 5, 2, 4, 3, 3)                                                                              \
    DEPTHWISE_GRAD(T, SUFFIX, 7, 2, 2, 4, 3)                                                                              \
    DEPTHWISE_WEIGHT(T, SUFFIX, 3, , 1, 4, 4, 4, 2)                                                                       \
    DEPTHWISE_WEIGHT(T, SUFFIX, 5, , 1, 2, 4, 4, 3)                                                                       \
    DEPTHWISE_WEIGHT(T, SUFFIX, 7, , 1, 2, 4, 2, 2)                                                                       \
    DEPTHWISE_WEIGHT(T, SUFFIX, 3, _stride2, 2, 4, 2, 4, 3)                                                               \
    DEPTHWISE_WEIGHT(T, SUFFIX, 5, _stride2, 2, 2, 4, 3, 2)                                                               \
    DEPTHWISE_WEIGHT(T, SUFFIX, 7, _stride2, 2, 2, 4, 2, 1)
FOR_FLOATS(DEPTHWISE_KERNELS)
