// What device code sees when it is compiled as C++ for the emulated driver: CUDA's qualifiers, built-in variables and
// functions. It is included ahead of a kernel file; nothing in `kernels/` names it.
#pragma once

#define RUNNER_EMULATED 1

#include "device/types.h"

#include "device/block.h"
#include "device/sanitizer.h"

#include "device/atomics.h"
#include "device/math.h"
#include "device/tensor.h"
#include "device/warp.h"

#include "device/register.h"

// ---- Qualifiers. They come after the standard headers, which use some of these names for their own purposes. --------

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// One block runs on an operating system thread at a time, so what its threads share is local to that thread.
#define __shared__ static thread_local
#define __constant__ static

// ---- Built-in variables ---------------------------------------------------------------------------------------------

#define threadIdx (emulated::where.thread)
#define blockIdx (emulated::where.block)
#define blockDim (emulated::where.block_size)
#define gridDim (emulated::where.grid_size)
#define warpSize 32
