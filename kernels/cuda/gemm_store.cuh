// The end of a tiled matrix product: sums go through shared memory, so that rows are written in whole 16-byte pieces
// whatever the layout of the sums in registers, and bias, activation and conversion are compiled once a kernel.
#pragma once

// Storage types of results, as the launches number them.
enum ResultType { RESULT_F32 = 0, RESULT_BF16 = 1, RESULT_F16 = 2 };

// Where and how sums are written.
struct Result {
    void *y;
    int y_type;
    // Sums of this slice of k go here, as they are, if the product is split along k; else null.
    float *partial;
    // Rows and columns.
    int m, n;
    // Added to column n, or null; then the activation.
    const float *bias;
    int act;
    float slope, extra;
    // Four neighbours may be written at once.
    bool wide;
};

// Row-major rows.
struct RowPlace {
    i64 stride, offset;
    __device__ __forceinline__ i64 operator()(int m) const { return m * stride + offset; }
};

template <class T> __device__ __forceinline__ u32 two_bits(float a, float b) {
    return (u32)from_float<T>(a).bits | (u32)from_float<T>(b).bits << 16;
}

// One element, or four neighbours, to the storage type.
__device__ __forceinline__ void store_one(void *y, int type, i64 at, float x) {
    switch (type) {
    case RESULT_BF16: ((bf16 *)y)[at] = from_float<bf16>(x); break;
    case RESULT_F16: ((f16 *)y)[at] = from_float<f16>(x); break;
    default: ((float *)y)[at] = x;
    }
}
__device__ __forceinline__ void store_four(void *y, int type, i64 at, float4 v) {
    switch (type) {
    case RESULT_BF16: *(uint2 *)((bf16 *)y + at) = make_uint2(two_bits<bf16>(v.x, v.y), two_bits<bf16>(v.z, v.w)); break;
    case RESULT_F16: *(uint2 *)((f16 *)y + at) = make_uint2(two_bits<f16>(v.x, v.y), two_bits<f16>(v.z, v.w)); break;
    default: *(float4 *)((float *)y + at) = v;
    }
}

// Writes a slab of ROWS × COLUMNS sums in shared memory, rows STRIDE apart. `row(r)` is the tile's row of slab row r,
// `first_m` and `first_n` the tile's place, `places` the offset of each row of the tile in the result.
template <bool FINISH, int ROWS, int COLUMNS, int STRIDE, int THREADS, class Row>
__device__ __forceinline__ void store_slab(float *slab, const i64 *places, int first_m, int first_n, const Result &result, Row row) {
    int width = result.wide ? 4 : 1, per_row = COLUMNS / width;
#pragma unroll 1
    for (int e = threadIdx.x; e < ROWS * per_row; e += THREADS) {
        int r = result.wide ? e / (COLUMNS / 4) : e / COLUMNS, c = (e - r * per_row) * width;
        int local = row(r), n = first_n + c;
        if (first_m + local >= result.m || n >= result.n) {
            continue;
        }
        i64 at = places[local] + n;
        float *v = slab + r * STRIDE + c;
        if (FINISH && result.partial == nullptr && (result.bias != nullptr || result.act != NO_ACTIVATION)) {
#pragma unroll 1
            for (int j = 0; j < width; j++) {
                float sum = result.bias != nullptr ? v[j] + result.bias[n + j] : v[j];
                v[j] = activate(result.act, result.slope, result.extra, sum);
            }
        }
        void *to = result.partial != nullptr ? result.partial : result.y;
        int type = result.partial != nullptr ? (int)RESULT_F32 : result.y_type;
        if (result.wide) {
            store_four(to, type, at, *(const float4 *)v);
        } else {
            store_one(to, type, at, *v);
        }
    }
}
