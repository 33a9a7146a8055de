// Activations, sums and products with broadcast, sums over stretched axes, casts.
#include "common.cuh"

// ---- Activations: x, y, saved, dy, dx are [n]; y may be x, dx may be dy ---------------------------------------------

template <class T> struct Activate {
    const T *x;
    T *y;
    int act;
    float slope, extra;

    template <int N> __device__ __forceinline__ void pack(i64 i) const {
        float v[N];
        load(x + i, v);
        activate_all(act, slope, extra, v);
        store(y + i, v);
    }
};

template <class T> struct ActivateGrad {
    const T *saved, *dy;
    T *dx;
    int act;
    float slope, extra;

    template <int N> __device__ __forceinline__ void pack(i64 i) const {
        float s[N], d[N];
        load(saved + i, s);
        load(dy + i, d);
        activate_grad_all(act, slope, extra, s, d);
        store(dx + i, d);
    }
};

// dx = a + b where y > 0, else 0: ReLU's gradient, for a result y with two gradients; dx may be one of the operands. A thread has two packs at a time, so
// that six loads are on their way together. The threads of the launch are at least as many as fill a pack.
template <class T>
__device__ __forceinline__ void
relu_grad_of_sum(const T *y, const T *a, const T *b, T *dx, i64 n) {
    constexpr int N = PACK<T>, PACKS = 2;
    i64 whole = n - n % N, step = thread_count() * N;
    UNROLL(1)
    for (i64 i = thread_index() * N; i < whole; i += PACKS * step) {
        Pack<T, N> packs[PACKS][3];
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            if (i + k * step < whole) {
                packs[k][0] = *(const Pack<T, N> *)(y + i + k * step);
                packs[k][1] = *(const Pack<T, N> *)(a + i + k * step);
                packs[k][2] = *(const Pack<T, N> *)(b + i + k * step);
            }
        }
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            float d[N];
#pragma unroll
            for (int j = 0; j < N; ++j) {
                float sum = to_float(packs[k][1].at[j]) + to_float(packs[k][2].at[j]);
                d[j] = activate_grad(RELU, 0.0f, 0.0f, to_float(packs[k][0].at[j]), sum);
            }
            if (i + k * step < whole) {
                store(dx + i + k * step, d);
            }
        }
    }
    i64 i = whole + thread_index();
    if (i < n) {
        dx[i] = from_float<T>(activate_grad(RELU, 0.0f, 0.0f, to_float(y[i]), to_float(a[i]) + to_float(b[i])));
    }
}

// ---- y = act(a ∘ b); y may be a -------------------------------------------------------------------------------------

// As crates/engine/src/backend/cuda/lower/elementwise.rs numbers them.
enum Binary { ADD = 0, MULTIPLY = 1 };

// a = act(a ∘ b) for N elements.
template <int N>
__device__ __forceinline__ void combine(int kind, int act, float slope, float extra, float (&a)[N], const float (&b)[N]) {
    for (int j = 0; j < N; ++j) {
        a[j] = kind == ADD ? a[j] + b[j] : a[j] * b[j];
    }
    activate_joined_all(act, slope, extra, a);
}

// Operands of one shape: a, b, y are [n].
template <class T> struct Combine {
    const T *a, *b;
    T *y;
    int kind, act;
    float slope, extra;

    template <int N> __device__ __forceinline__ void pack(i64 i) const {
        float u[N], v[N];
        load(a + i, u);
        load(b + i, v);
        combine(kind, act, slope, extra, u, v);
        store(y + i, u);
    }
};

// N elements from p on, or the one at p for all of them where the axis is stretched.
template <int N, class T> __device__ __forceinline__ void load_stretched(const T *p, int step, float (&v)[N]) {
    if (step != 0) {
        load(p, v);
        return;
    }
    float one = to_float(*p);
    for (int j = 0; j < N; ++j) {
        v[j] = one;
    }
}

// y [rows, columns], where a row is the innermost axis, of strides a_step and b_step (0 or 1) in the operands, and the
// rows are the axes `axes [rank][3]`, innermost first: size, stride in a, stride in b. Strides of 0 stretch. With N > 1 the
// columns and all strides but a_step and b_step are multiples of N.
template <int N, class T>
__device__ __forceinline__ void stretch(
    const T *a, const T *b, T *y, u32 rows, i64 columns, int a_step, int b_step, const i64 *axes, int rank, int kind,
    int act, float slope, float extra) {
    u32 row = matrix_row();
    if (row >= rows) {
        return;
    }
    y += row * columns;
    for (int k = 0; k < rank; ++k) {
        u32 at = split(row, (u32)axes[3 * k]);
        a += at * axes[3 * k + 1];
        b += at * axes[3 * k + 2];
    }
    for (i64 column = matrix_column() * N; column < columns; column += matrix_column_step() * N) {
        float u[N], v[N];
        load_stretched(a + column * a_step, a_step, u);
        load_stretched(b + column * b_step, b_step, v);
        combine(kind, act, slope, extra, u, v);
        store(y + column, u);
    }
}

// ---- Sums over an axis ----------------------------------------------------------------------------------------------

// y [outer, pieces, width]: sums of x [outer, rows, width] over `piece` rows each (the last piece may have fewer).
//
// A block's 256 threads are groups of `lines` of `lanes`, all powers of two: lanes along the columns, groups along the
// outer axis, lines over the rows; where the matrix is narrower than a warp neighbouring threads still read neighbours.
// Each thread sums every `lines`-th row, then a tree in shared memory joins the lines. Blocks count columns innermost, then
// pieces.
template <class T>
__device__ __forceinline__ void
sum(const T *__restrict__ x, float *__restrict__ y, i64 outer, i64 rows, i64 width, int pieces, i64 piece, int column_blocks,
    int lanes, int lines) {
    __shared__ float partial[256];
    int thread = threadIdx.x, lane = thread % lanes, line = thread / lanes % lines, group = thread / (lanes * lines);
    u32 block = blockIdx.x;
    i64 column = (i64)split(block, column_blocks) * lanes + lane;
    i64 p = split(block, pieces);
    i64 o = (i64)block * (256 / (lanes * lines)) + group;
    bool inside = column < width && o < outer;
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (inside) {
        i64 r = p * piece + line, end = min((p + 1) * piece, rows), step = lines * width;
        const T *at = x + (o * rows + r) * width + column;
        for (; r + 3 * lines < end; r += 4 * lines, at += 4 * step) {
            for (int k = 0; k < 4; ++k) {
                sums[k] += to_float(at[k * step]);
            }
        }
        for (; r < end; r += lines, at += step) {
            sums[0] += to_float(*at);
        }
    }
    partial[thread] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int half = lines / 2; half > 0; half /= 2) {
        __syncthreads();
        if (line < half) {
            partial[thread] += partial[thread + half * lanes];
        }
    }
    if (inside && line == 0) {
        y[(o * pieces + p) * width + column] = partial[thread];
    }
}

// ---- Casts: x, y are [n] --------------------------------------------------------------------------------------------

template <class T, class U> struct Cast {
    const T *__restrict__ x;
    U *__restrict__ y;

    template <int N> __device__ __forceinline__ void pack(i64 i) const {
        float v[N];
        load(x + i, v);
        store(y + i, v);
    }
};

// ---- Kernels --------------------------------------------------------------------------------------------------------

#define STRETCH(T, NAME, N)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) NAME(                                                            \
        const T *a, const T *b, T *y, u32 rows, i64 columns, int a_step, int b_step, const i64 *axes, int rank,        \
        int kind, int act, float slope, float extra) {                                                                 \
        stretch<N>(a, b, y, rows, columns, a_step, b_step, axes, rank, kind, act, slope, extra);                       \
    }
#define KERNELS(T, NAME)                                                                                               \
    extern "C" __global__ void __launch_bounds__(256) activation_##NAME(const T *x, T *y, i64 n, int act, float slope, float extra) { \
        for_packs<PACK<T>>(n, Activate<T>{x, y, act, slope, extra});                                                                        \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        activation_grad_##NAME(const T *saved, const T *dy, T *dx, i64 n, int act, float slope, float extra) {         \
        for_packs<PACK<T>>(n, ActivateGrad<T>{saved, dy, dx, act, slope, extra});                                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        relu_grad_of_sum_##NAME(const T *y, const T *a, const T *b, T *dx, i64 n) {                                    \
        relu_grad_of_sum(y, a, b, dx, n);                                                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        binary_##NAME(const T *a, const T *b, T *y, i64 n, int kind, int act, float slope, float extra) {              \
        for_packs<PACK<T>>(n, Combine<T>{a, b, y, kind, act, slope, extra});                                                                   \
    }                                                                                                                  \
    STRETCH(T, stretch_##NAME, 1)                                                                                      \
    STRETCH(T, stretch_packs_##NAME, PACK<T>)
FOR_FLOATS(KERNELS)

#define SUM(T, NAME)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) sum_##NAME(                                                      \
        const T *x, float *y, i64 outer, i64 rows, i64 width, int pieces, i64 piece, int column_blocks, int lanes,     \
        int lines) {                                                                                                   \
        sum(x, y, outer, rows, width, pieces, piece, column_blocks, lanes, lines);                                     \
    }
FOR_FLOATS(SUM)

#define CAST(T, FROM, U, TO)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256) cast_##FROM##_##TO(const T *x, U *y, i64 n) {                    \
        for_packs<(PACK<T> > PACK<U> ? PACK<T> : PACK<U>)>(n, Cast<T, U>{x, y});                                       \
    }
CAST(float, f32, bf16, bf16)
CAST(float, f32, f16, f16)
CAST(bf16, bf16, float, f32)
CAST(bf16, bf16, f16, f16)
CAST(f16, f16, float, f32)
CAST(f16, f16, bf16, bf16)
