// Convolutions of groups that are too small to fill a tile: depthwise ones (one channel a group, or one input channel with
// several outputs), and groups of a few channels. Threads (32, 8): neighbours in x are neighbouring channels.
#pragma once

#include "gemm_patch.cuh"
#include "gemm_store.cuh"

// Sizes: images, their height and width, channels of a group, groups, kernel and so on.
struct GroupedShape {
    int images, height, width, out_y, out_x, groups, group_inputs, group_outputs;
    int kernel_y, kernel_x, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x;
};

#define GROUPED_ARGS                                                                                                      \
    int images, int height, int width, int out_y, int out_x, int groups, int group_inputs, int group_outputs,             \
        int kernel_y, int kernel_x, int stride_y, int stride_x, int padding_y, int padding_x, int dilation_y,             \
        int dilation_x
#define GROUPED_SHAPE                                                                                                     \
    GroupedShape {                                                                                                        \
        images, height, width, out_y, out_x, groups, group_inputs, group_outputs, kernel_y, kernel_x, stride_y, stride_x, \
            padding_y, padding_x, dilation_y, dilation_x                                                                  \
    }

// A pixel and a channel of an image with `channels` channels. Launch: x = (pixels / 8) · (channels / 32), channels fastest.
struct PixelChannel {
    int pixel, n, y, x, channel;
    bool exists;

    __device__ __forceinline__ PixelChannel(int images, int height, int width, int channels) {
        int blocks = (channels + 31) / 32, row = blockIdx.x / blocks;
        channel = ((int)blockIdx.x - row * blocks) * 32 + threadIdx.x;
        pixel = row * 8 + threadIdx.y;
        int line = pixel / width;
        n = line / height;
        y = line - n * height;
        x = pixel - line * width;
        exists = channel < channels && n < images;
    }
};

// y = act(x * w + b).
template <class T>
__device__ __forceinline__ void grouped_forward(const T *x, const T *w, const float *bias, void *y, const GroupedShape &s, int y_type, int act, float slope, float extra) {
    int inputs = s.groups * s.group_inputs, outputs = s.groups * s.group_outputs;
    PixelChannel p(s.images, s.out_y, s.out_x, outputs);
    if (!p.exists) {
        return;
    }
    const T *image = x + (i64)p.n * s.height * s.width * inputs + p.channel / s.group_outputs * s.group_inputs;
    const T *weight = w + (i64)p.channel * s.kernel_y * s.kernel_x * s.group_inputs;
    float sum = 0.0f;
    for (int ky = 0; ky < s.kernel_y; ky++) {
        int iy = p.y * s.stride_y - s.padding_y + ky * s.dilation_y;
        if ((u32)iy >= (u32)s.height) {
            continue;
        }
        for (int kx = 0; kx < s.kernel_x; kx++) {
            int ix = p.x * s.stride_x - s.padding_x + kx * s.dilation_x;
            if ((u32)ix >= (u32)s.width) {
                continue;
            }
            for (int i = 0; i < s.group_inputs; i++) {
                sum = fmaf(to_float(image[(iy * s.width + ix) * inputs + i]),
                           to_float(weight[(ky * s.kernel_x + kx) * s.group_inputs + i]), sum);
            }
        }
    }
    if (bias != nullptr) {
        sum += bias[p.channel];
    }
    store_one(y, y_type, (i64)p.pixel * outputs + p.channel, activate(act, slope, extra, sum));
}

// dx: for each input element, the outputs that it went into.
template <class T>
__device__ __forceinline__ void grouped_grad_input(const T *dy, const T *w, void *dx, const GroupedShape &s, int y_type) {
    int inputs = s.groups * s.group_inputs, outputs = s.groups * s.group_outputs;
    PixelChannel p(s.images, s.height, s.width, inputs);
    if (!p.exists) {
        return;
    }
    int group = p.channel / s.group_inputs, i = p.channel - group * s.group_inputs;
    int weights = s.kernel_y * s.kernel_x * s.group_inputs;
    const T *image = dy + (i64)p.n * s.out_y * s.out_x * outputs + group * s.group_outputs;
    const T *weight = w + (i64)group * s.group_outputs * weights + i;
    float sum = 0.0f;
    for (int ky = 0; ky < s.kernel_y; ky++) {
        int up_y = p.y + s.padding_y - ky * s.dilation_y, oy = up_y / s.stride_y;
        if (up_y < 0 || oy * s.stride_y != up_y || oy >= s.out_y) {
            continue;
        }
        for (int kx = 0; kx < s.kernel_x; kx++) {
            int up_x = p.x + s.padding_x - kx * s.dilation_x, ox = up_x / s.stride_x;
            if (up_x < 0 || ox * s.stride_x != up_x || ox >= s.out_x) {
                continue;
            }
            for (int o = 0; o < s.group_outputs; o++) {
                sum = fmaf(to_float(image[(oy * s.out_x + ox) * outputs + o]),
                           to_float(weight[(i64)o * weights + (ky * s.kernel_x + kx) * s.group_inputs]), sum);
            }
        }
    }
    store_one(dx, y_type, (i64)p.pixel * inputs + p.channel, sum);
}

// partials [chunks, O, KH, KW, I / groups] of dw: sums over `chunk` pixels of y each. Launch: x = (O / 32) · KH · KW ·
// I / groups with 32 output channels slowest, y = chunks. The 8 lanes take every eighth pixel and are added in order.
template <class T>
__device__ __forceinline__ void grouped_grad_weight(const T *x, const T *dy, float *partials, const GroupedShape &s, int chunk, const Divider &by_out_y, const Divider &by_out_x) {
    __shared__ float lanes[8][32];
    int inputs = s.groups * s.group_inputs, outputs = s.groups * s.group_outputs;
    int weights = s.kernel_y * s.kernel_x * s.group_inputs, block = blockIdx.x / weights, place = blockIdx.x - block * weights;
    int tap = place / s.group_inputs, ky = tap / s.kernel_x, kx = tap - ky * s.kernel_x;
    int o = block * 32 + threadIdx.x;
    int pixels = s.images * s.out_y * s.out_x, first = blockIdx.y * chunk, end = min(first + chunk, pixels);
    float sum = 0.0f;
    if (o < outputs) {
        const T *channel = x + o / s.group_outputs * s.group_inputs + (place - tap * s.group_inputs);
        for (int p = first + threadIdx.y; p < end; p += 8) {
            int line = by_out_x.quotient(p), n = by_out_y.quotient(line);
            int iy = (line - n * s.out_y) * s.stride_y - s.padding_y + ky * s.dilation_y;
            int ix = (p - line * s.out_x) * s.stride_x - s.padding_x + kx * s.dilation_x;
            if ((u32)iy < (u32)s.height && (u32)ix < (u32)s.width) {
                i64 at = (((i64)n * s.height + iy) * s.width + ix) * inputs;
                sum = fmaf(to_float(channel[at]), to_float(dy[(i64)p * outputs + o]), sum);
            }
        }
    }
    lanes[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && o < outputs) {
        for (int l = 1; l < 8; l++) {
            sum += lanes[l][threadIdx.x];
        }
        partials[((i64)blockIdx.y * outputs + o) * weights + place] = sum;
    }
}
