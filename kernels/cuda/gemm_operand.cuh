// Operands of a tiled matrix product: where element (outer, k) of a matrix is, for matrices that exist in memory and (in
// gemm_patch.cuh) for those that are only read as if they did.
//
// A product is D[m, n] = Σ_k A(m, k) · B(n, k), so both operands are matrices of an outer index and k. An operand type has
// - `Element`, its storage type;
// - `ALONG_K`: neighbours in k are neighbours in memory (else neighbours in the outer index are);
// - `outer(o)` and `inner(k)`: what there is to compute for one index alone, done as seldom as possible;
// - `at(outer, inner)`: the element's address, null where the operand is zero or ends;
// - `any()`: some address that may be read.
// Along the direction that is contiguous, `at` may be asked for 16 bytes at once if the launch says so (`wide`): then that
// extent is a multiple of 16 bytes, and so is every row's start.
#pragma once

// [outers, k] row-major.
template <class T> struct Rows {
    typedef T Element;
    static constexpr bool ALONG_K = true;
    struct Outer {
        const T *row;
    };
    struct Inner {
        int k;
    };

    const T *data;
    i64 stride;
    int outers, k_end;

    __device__ __forceinline__ const T *any() const { return data; }
    __device__ __forceinline__ Outer outer(int o) const { return Outer{o < outers ? data + o * stride : nullptr}; }
    __device__ __forceinline__ Inner inner(int k) const { return Inner{k < k_end ? k : -1}; }
    __device__ __forceinline__ const T *at(Outer o, Inner i) const {
        return o.row != nullptr && i.k >= 0 ? o.row + i.k : nullptr;
    }
};

// [k, outers] row-major.
template <class T> struct Columns {
    typedef T Element;
    static constexpr bool ALONG_K = false;
    struct Outer {
        int o;
    };
    struct Inner {
        const T *row;
    };

    const T *data;
    i64 stride;
    int outers, k_end;

    __device__ __forceinline__ const T *any() const { return data; }
    __device__ __forceinline__ Outer outer(int o) const { return Outer{o < outers ? o : -1}; }
    __device__ __forceinline__ Inner inner(int k) const { return Inner{k < k_end ? data + k * stride : nullptr}; }
    __device__ __forceinline__ const T *at(Outer o, Inner i) const {
        return o.o >= 0 && i.row != nullptr ? i.row + o.o : nullptr;
    }
};

// How the threads of a block share the loading of a tile of OUTERS × KS elements. Consecutive threads take consecutive
// pieces along the contiguous direction; a thread's place along it never changes, so half of the address is computed once
// a tile (along k) or once a launch (along the outer index). The other half comes from `table` in shared memory along k.
template <class Operand, int OUTERS, int KS, int THREADS> struct TileLoad {
    typedef typename Operand::Element T;
    static constexpr int WIDE = 16 / sizeof(T);
    static constexpr int CONTIGUOUS = Operand::ALONG_K ? KS : OUTERS;
    static constexpr int TABLE = Operand::ALONG_K ? OUTERS : 1;
    static constexpr int ELEMENTS = OUTERS * KS / THREADS;

    const Operand &operand;
    typename Operand::Outer *table;
    typename Operand::Outer mine;
    bool wide;

    // All threads of the block make one; the table is ready after the next __syncthreads().
    __device__ __forceinline__ TileLoad(const Operand &operand, typename Operand::Outer *table, int first, bool wide)
        : operand(operand), table(table), wide(wide) {
        int tid = threadIdx.x;
        if (Operand::ALONG_K) {
            for (int o = tid; o < OUTERS; o += THREADS) {
                table[o] = operand.outer(first + o);
            }
        } else {
            mine = operand.outer(first + (wide ? tid % (CONTIGUOUS / WIDE) * WIDE : tid % CONTIGUOUS));
        }
    }

    // Calls f(pass, outer, k, address) for each piece of V elements that this thread loads of the tile at `first_k`; outer
    // and k count within the tile, and the address may be null.
    // `UNROLL` is how many of them at a time.
    template <int V, int UNROLL, class F> __device__ __forceinline__ void each(int first_k, F f) const {
        constexpr int PER_ROW = CONTIGUOUS / V, STEP = THREADS / PER_ROW, PASSES = ELEMENTS / V;
        static_assert(THREADS % PER_ROW == 0 && PASSES * THREADS * V == OUTERS * KS, "threads share the tile evenly");
        int along = (int)threadIdx.x % PER_ROW * V, across = threadIdx.x / PER_ROW;
        if (Operand::ALONG_K) {
            typename Operand::Inner inner = operand.inner(first_k + along);
#pragma unroll UNROLL
            for (int pass = 0; pass < PASSES; pass++) {
                int o = across + pass * STEP;
                f(pass, o, along, operand.at(table[o], inner));
            }
        } else {
#pragma unroll UNROLL
            for (int pass = 0; pass < PASSES; pass++) {
                int k = across + pass * STEP;
                f(pass, along, k, operand.at(mine, operand.inner(first_k + k)));
            }
        }
    }
};
