// Convolutions as matrix products of image patches that are never written out.
//
// x [N, H, W, I], w [O, KH, KW, I / groups], y and dy [N, OH, OW, O]; element type f32, bf16 or f16, sums in f32. For each
// group, with patches as in gemm_patch.cuh:
//     conv_forward:      D [N·OH·OW, O / groups],       terms (ky, kx, i): patches of x · weights; then bias, activation
//     conv_grad_input:   D [pixels of x, I / groups],   terms (ky, kx, o): patches of dy · weights, a product a phase
//     conv_grad_weight:  D [O / groups, KH·KW·I/groups], terms the pixels of y: dyᵀ · patches of x, always f32
// Names, tiles and slices of k are those of matmul.cu. Launch: x = tiles of D (along n first), z = slices · groups
// (· phases), the group (phase) fastest. m, n, k are the sizes of a group's D and terms. A divider is three arguments.
//
// The kernels named grouped_ do the same without tiles, for groups too small to fill one (depthwise ones above all).
#include "common.cuh"
#include "gemm_tiles.cuh"
#include "gemm_patch.cuh"
#include "gemm_grouped.cuh"

#define IMAGE_ARGS int height, int width, int channels, int channels_divisor, u32 channels_magic, int channels_shift
#define GRID_ARGS                                                                                                         \
    int grid_y, int grid_x, int scale_y, int scale_x, int origin_y, int origin_x, int step_y, int step_x, int taps_x
#define PATCH_GRID                                                                                                        \
    PatchGrid { grid_y, grid_x, scale_y, scale_x, origin_y, origin_x, step_y, step_x, taps_x }

#define CONV_FORWARD(ENGINE, TILE, TYPE, SUFFIX)                                                                          \
    extern "C" __global__ void __launch_bounds__(TYPE::THREADS, TYPE::BLOCKS) conv_forward_##ENGINE##_##TILE##_##SUFFIX(                \
        const TYPE::Element *x, const TYPE::Element *w, const float *bias, void *y, float *partials, int m, int n, int k, \
        int k_slice, int groups, IMAGE_ARGS, GRID_ARGS, int wide, int y_type, int act, float slope, float extra) {        \
        typedef TYPE::Element T;                                                                                          \
        int slice = blockIdx.z / groups, group = blockIdx.z - slice * groups;                                             \
        BlockTile tile = BlockTile::of<TYPE>(n, k, k_slice, slice);                                                       \
        Divider by_channels{channels_divisor, channels_magic, channels_shift};                                            \
        Image<T> image{x + group * channels_divisor, height, width, channels};                                            \
        Patches<T> of_a{image, PATCH_GRID, by_channels, m, tile.k_end};                                                   \
        Rows<T> of_b{w + (i64)group * n * k, k, n, tile.k_end};                                                           \
        Result result{y, y_type, partial_of(partials, slice, (i64)m * n * groups), m, n,                                  \
                      bias != nullptr ? bias + group * n : nullptr, act, slope, extra, (wide & WIDE_RESULT) != 0};        \
        TYPE::run<true>(of_a, of_b, (wide & WIDE_A) != 0, (wide & WIDE_B) != 0, tile.m, tile.n, tile.k_begin, tile.k_end, \
                        result, RowPlace{(i64)n * groups, (i64)group * n});                                               \
    }
FOR_TILES(CONV_FORWARD, 128x32)

// dx at the pixels of a phase. `height` and `width` are those of dy, `inputs_y` and `inputs_x` of x; `common_y` and
// `common_x` the greatest common divisors of stride and dilation. Phases are strides apart: stride_y · stride_x of them.
#define CONV_GRAD_INPUT(ENGINE, TILE, TYPE, SUFFIX)                                                                       \
    extern "C" __global__ void __launch_bounds__(TYPE::THREADS, TYPE::BLOCKS) conv_grad_input_##ENGINE##_##TILE##_##SUFFIX(             \
        const TYPE::Element *dy, const TYPE::Element *w, void *dx, float *partials, int images, int n, int k_slice,       \
        int groups, IMAGE_ARGS, int inputs_y, int inputs_x, int kernel_y, int kernel_x, int stride_y, int stride_x,       \
        int padding_y, int padding_x, int dilation_y, int dilation_x, int common_y, int common_x, int wide, int y_type) { \
        typedef TYPE::Element T;                                                                                          \
        int phases = stride_y * stride_x, set = blockIdx.z / phases, phase = blockIdx.z - set * phases;                   \
        int slice = set / groups, group = set - slice * groups;                                                           \
        int residue_y = phase / stride_x, residue_x = phase - residue_y * stride_x;                                       \
        PhaseAxis along_y(residue_y, inputs_y, kernel_y, stride_y, padding_y, dilation_y, common_y);                      \
        PhaseAxis along_x(residue_x, inputs_x, kernel_x, stride_x, padding_x, dilation_x, common_x);                      \
        int m = images * along_y.inputs * along_x.inputs, k = along_y.taps * along_x.taps * channels_divisor;             \
        BlockTile tile = BlockTile::of<TYPE>(n, k, k_slice, slice);                                                       \
        if (tile.m >= m) {                                                                                                \
            return;                                                                                                       \
        }                                                                                                                 \
        Divider by_channels{channels_divisor, channels_magic, channels_shift};                                            \
        Image<T> image{dy + group * channels_divisor, height, width, channels};                                           \
        PatchGrid grid{along_y.inputs, along_x.inputs, 1, 1, along_y.origin, along_x.origin, along_y.step, along_x.step,  \
                       along_x.taps};                                                                                     \
        Patches<T> of_a{image, grid, by_channels, m, tile.k_end};                                                         \
        int taps = kernel_y * kernel_x, first_tap = along_y.first_tap * kernel_x + along_x.first_tap;                     \
        PhaseWeights<T> of_b{w + ((i64)group * channels_divisor * taps + first_tap) * n, taps, along_y.tap_step * kernel_x,\
                             along_x.tap_step, along_x.taps, by_channels, n, tile.k_end};                                 \
        PhasePlace place{along_y.inputs, along_x.inputs, residue_y, residue_x, stride_y, stride_x, inputs_y, inputs_x,    \
                         (i64)n * groups, (i64)group * n};                                                                \
        i64 elements = (i64)images * inputs_y * inputs_x * n * groups;                                                    \
        Result result{dx, y_type, partial_of(partials, slice, elements), m, n, nullptr, NO_ACTIVATION, 0.0f, 0.0f,        \
                      (wide & WIDE_RESULT) != 0};                                                                         \
        TYPE::run<false>(of_a, of_b, (wide & WIDE_A) != 0, (wide & WIDE_B) != 0, tile.m, tile.n, tile.k_begin,            \
                         tile.k_end, result, place);                                                                      \
    }
FOR_TILES(CONV_GRAD_INPUT, 128x32)

#define CONV_GRAD_WEIGHT(ENGINE, TILE, TYPE, SUFFIX)                                                                      \
    extern "C" __global__ void __launch_bounds__(TYPE::THREADS, TYPE::BLOCKS) conv_grad_weight_##ENGINE##_##TILE##_##SUFFIX(            \
        const TYPE::Element *dy, const TYPE::Element *x, float *dw, float *partials, int m, int n, int k, int k_slice,    \
        int groups, IMAGE_ARGS, GRID_ARGS, u32 grid_y_magic, int grid_y_shift, u32 grid_x_magic, int grid_x_shift,        \
        int wide) {                                                                                                       \
        typedef TYPE::Element T;                                                                                          \
        int slice = blockIdx.z / groups, group = blockIdx.z - slice * groups;                                             \
        BlockTile tile = BlockTile::of<TYPE>(n, k, k_slice, slice);                                                       \
        Divider by_channels{channels_divisor, channels_magic, channels_shift};                                            \
        Image<T> image{x + group * channels_divisor, height, width, channels};                                            \
        Columns<T> of_a{dy + group * m, (i64)m * groups, m, tile.k_end};                                                  \
        PatchColumns<T> of_b{image, PATCH_GRID, by_channels, Divider{grid_x, grid_x_magic, grid_x_shift},                 \
                             Divider{grid_y, grid_y_magic, grid_y_shift}, n, tile.k_end};                                 \
        Result result{dw, RESULT_F32, partial_of(partials, slice, (i64)m * n * groups), m, n, nullptr, NO_ACTIVATION,     \
                      0.0f, 0.0f, (wide & WIDE_RESULT) != 0};                                                             \
        TYPE::run<false>(of_a, of_b, (wide & WIDE_A) != 0, (wide & WIDE_B) != 0, tile.m, tile.n, tile.k_begin,            \
                         tile.k_end, result, RowPlace{n, (i64)group * m * n});                                            \
    }
FOR_TILES(CONV_GRAD_WEIGHT, 32x32)

#define GROUPED(T, SUFFIX)                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) grouped_forward_##SUFFIX(                                           \
        const T *x, const T *w, const float *bias, void *y, GROUPED_ARGS, int y_type, int act, float slope, float extra) { \
        grouped_forward(x, w, bias, y, GROUPED_SHAPE, y_type, act, slope, extra);                                         \
    }                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                                                     \
        grouped_grad_input_##SUFFIX(const T *dy, const T *w, void *dx, GROUPED_ARGS, int y_type) {                        \
        grouped_grad_input(dy, w, dx, GROUPED_SHAPE, y_type);                                                             \
    }                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(256) grouped_grad_weight_##SUFFIX(                                       \
        const T *x, const T *dy, float *partials, GROUPED_ARGS, int chunk, u32 out_y_magic, int out_y_shift,              \
        u32 out_x_magic, int out_x_shift) {                                                                               \
        GroupedShape s = GROUPED_SHAPE;                                                                                   \
        grouped_grad_weight(x, dy, partials, s, chunk, Divider{s.out_y, out_y_magic, out_y_shift},                        \
                            Divider{s.out_x, out_x_magic, out_x_shift});                                                  \
    }
FOR_FLOATS(GROUPED)
