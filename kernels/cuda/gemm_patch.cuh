// Operands of convolutions: matrices of image patches that are never written out (implicit GEMM; Chetlur et al., "cuDNN:
// Efficient Primitives for Deep Learning", 2014). Images are [N, H, W, C], weights [O, KH, KW, I / groups].
//
// A patch matrix has a row for each position of the kernel and a column for each (tap, channel) of a group. Position
// (y, x) of the grid of positions meets tap (a, b) at row y · scale + origin + a · step of the image: with scale = stride,
// origin = -padding, step = dilation that is the convolution, and with other numbers its gradient (PhaseGrid below).
#pragma once

// Division by a number that the host knows, for numerators below 2^31: q = n · magic >> shift.
struct Divider {
    int divisor;
    u32 magic;
    int shift;

    __device__ __forceinline__ int quotient(int n) const { return (int)(((u64)(u32)n * magic) >> shift); }
};

// Added to a row number, it makes the row lie outside of every image, whatever finite offset comes on top.
constexpr int OUTSIDE = -(1 << 29);

// An image seen through a group's channels.
template <class T> struct Image {
    const T *data;  // The group's first channel of the first image's first pixel.
    int height, width, channels;

    __device__ __forceinline__ const T *at(i64 base, int y, int x, int channel) const {
        bool inside = (u32)y < (u32)height && (u32)x < (u32)width;
        return inside ? data + (base + (y * width + x) * channels + channel) : nullptr;
    }
    __device__ __forceinline__ i64 base(int n) const { return (i64)n * height * width * channels; }
};

// Positions of the kernel, and what moves it: rows first, columns second.
struct PatchGrid {
    int grid_y, grid_x;      // Positions of an image.
    int scale_y, scale_x;    // Image rows from one position to the next.
    int origin_y, origin_x;  // Image row of position 0, tap 0.
    int step_y, step_x;      // Image rows from one tap to the next.
    int taps_x;              // Taps in a row of the kernel.
};

// Which of the kernel's taps number `tap` is. Exact for any kernel of fewer than 2^20 taps.
__device__ __forceinline__ void split_tap(int tap, int taps_x, int *a, int *b) {
    *a = (int)(((float)tap + 0.5f) / (float)taps_x);
    *b = tap - *a * taps_x;
}

// An image's position: where it is, and the image row and column that it starts from.
struct Position {
    i64 base;
    int y, x;
};

// A tap's distance from its position, and the channel.
struct Tap {
    int y, x, channel;
};

template <class T> __device__ __forceinline__ Position position(const Image<T> &image, const PatchGrid &g, int n, int y, int x) {
    return Position{image.base(n), y * g.scale_y + g.origin_y, x * g.scale_x + g.origin_x};
}

__device__ __forceinline__ Tap tap_at(const PatchGrid &g, const Divider &by_channels, int column) {
    int tap = by_channels.quotient(column), a, b;
    split_tap(tap, g.taps_x, &a, &b);
    return Tap{a * g.step_y, b * g.step_x, column - tap * by_channels.divisor};
}

// Patch matrix with the positions as outer index: operand A of the convolution and of its gradient by the input.
template <class T> struct Patches {
    typedef T Element;
    static constexpr bool ALONG_K = true;
    typedef Position Outer;
    typedef Tap Inner;

    Image<T> image;
    PatchGrid grid;
    Divider by_channels;
    int outers, k_end;

    __device__ __forceinline__ const T *any() const { return image.data; }
    __device__ __forceinline__ Outer outer(int o) const {
        if (o >= outers) {
            return Outer{0, OUTSIDE, OUTSIDE};
        }
        int row = o / grid.grid_x, n = row / grid.grid_y;
        return position(image, grid, n, row - n * grid.grid_y, o - row * grid.grid_x);
    }
    __device__ __forceinline__ Inner inner(int k) const {
        return k < k_end ? tap_at(grid, by_channels, k) : Inner{OUTSIDE, OUTSIDE, 0};
    }
    __device__ __forceinline__ const T *at(Outer o, Inner i) const {
        return image.at(o.base, o.y + i.y, o.x + i.x, i.channel);
    }
};

// Patch matrix with (tap, channel) as outer index and the positions as k: operand B of the gradient by the weight.
template <class T> struct PatchColumns {
    typedef T Element;
    static constexpr bool ALONG_K = false;
    typedef Tap Outer;
    typedef Position Inner;

    Image<T> image;
    PatchGrid grid;
    Divider by_channels, by_grid_x, by_grid_y;
    int outers, k_end;

    __device__ __forceinline__ const T *any() const { return image.data; }
    __device__ __forceinline__ Outer outer(int o) const {
        return o < outers ? tap_at(grid, by_channels, o) : Outer{OUTSIDE, OUTSIDE, 0};
    }
    __device__ __forceinline__ Inner inner(int k) const {
        if (k >= k_end) {
            return Inner{0, OUTSIDE, OUTSIDE};
        }
        int row = by_grid_x.quotient(k), n = by_grid_y.quotient(row);
        return position(image, grid, n, row - n * grid.grid_y, k - row * grid.grid_x);
    }
    __device__ __forceinline__ const T *at(Outer o, Inner i) const {
        return image.at(i.base, i.y + o.y, i.x + o.x, o.channel);
    }
};

// One axis of the gradient by the input, for the input rows `residue`, residue + stride, …: the taps that meet them are
// first_tap, first_tap + tap_step, …, and output rows step by `step` from tap to tap. So a strided convolution's gradient
// is `stride` convolutions of stride 1 an axis, none of which multiplies by the zeros that a single one would insert.
// Tap k meets input row i in output row (i + padding - k · dilation) / stride, if that is whole.
struct PhaseAxis {
    int inputs;                     // Input rows of this phase.
    int first_tap, tap_step, taps;  // Which taps.
    int origin, step;               // Output row of input row 0 and tap 0 of the phase; rows from tap to tap.

    // `common` is the greatest common divisor of stride and dilation.
    __device__ __forceinline__ PhaseAxis(int residue, int size, int kernel, int stride, int padding, int dilation, int common) {
        inputs = residue < size ? (size - residue + stride - 1) / stride : 0;
        tap_step = stride / common;
        step = -(dilation / common);
        first_tap = 0;
        while (first_tap < tap_step && (residue + padding - first_tap * dilation) % stride != 0) {
            first_tap++;
        }
        bool meets = first_tap < tap_step && first_tap < kernel;
        taps = meets ? (kernel - first_tap + tap_step - 1) / tap_step : 0;
        origin = meets ? (residue + padding - first_tap * dilation) / stride : 0;
    }
};

// The weight [O, KH, KW, I] of a phase with input channels as outer index and k = (tap, output channel): operand B of the
// gradient by the input.
template <class T> struct PhaseWeights {
    typedef T Element;
    static constexpr bool ALONG_K = false;
    struct Outer {
        int o;
    };
    struct Inner {
        const T *row;
    };

    const T *data;       // The group's first output channel at the phase's first tap.
    int taps;            // Of the whole kernel.
    int step_y, step_x;  // Taps of the kernel from one of the phase to the next.
    int taps_x;          // Taps of the phase in a row.
    Divider by_channels;  // Output channels of a group.
    int outers, k_end;

    __device__ __forceinline__ const T *any() const { return data; }
    __device__ __forceinline__ Outer outer(int o) const { return Outer{o < outers ? o : -1}; }
    __device__ __forceinline__ Inner inner(int k) const {
        if (k >= k_end) {
            return Inner{nullptr};
        }
        int tap = by_channels.quotient(k), channel = k - tap * by_channels.divisor, a, b;
        split_tap(tap, taps_x, &a, &b);
        return Inner{data + ((i64)channel * taps + a * step_y + b * step_x) * outers};
    }
    __device__ __forceinline__ const T *at(Outer o, Inner i) const {
        return o.o >= 0 && i.row != nullptr ? i.row + o.o : nullptr;
    }
};

// Where the gradient at the pixels of a phase goes: every stride-th row and column of the input.
struct PhasePlace {
    int inputs_y, inputs_x;    // Pixels of the phase.
    int residue_y, residue_x;  // Its first pixel.
    int stride_y, stride_x;
    int height, width;         // Pixels of the input.
    i64 channels, offset;

    __device__ __forceinline__ i64 operator()(int m) const {
        int line = m / inputs_x, n = line / inputs_y;
        int y = (line - n * inputs_y) * stride_y + residue_y, x = (m - line * inputs_x) * stride_x + residue_x;
        return (((i64)n * height + y) * width + x) * channels + offset;
    }
};
