// A cuBLASLt for the emulated driver: products as the library's documentation defines them, computed one by one on the
// emulated stream, and no tolerance for calls that the documentation does not allow.

#include <algorithm>

#include "fake.h"

using namespace fake;

namespace {

enum Status { SUCCESS = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum Compute { COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77 };
enum Epilogue { DEFAULT = 1, RELU = 2, BIAS = 4, RELU_BIAS = 6, BGRADB = 512 };

constexpr size_t WORKSPACE_ALIGNMENT = 256;

struct Handle {};

struct Matmul {
    int compute, scale;
    int transposed[2] = {0, 0};
    uint32_t epilogue = DEFAULT;
    void *vector = nullptr;
    int32_t vector_type = -1;
};

struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t stride;
};

struct Preference {
    uint64_t workspace = 0;
    uint32_t schemes = 7;
    uint32_t alignment[4] = {256, 256, 256, 256};
};

// What is in the 64 bytes of an algorithm: the problem that it was made for.
struct Algorithm {
    uint32_t stamp, alignment;
    uint64_t workspace;
    uint32_t m, n, k, types, transposed, epilogue;
};
static_assert(sizeof(Algorithm) <= 64, "an algorithm has 64 bytes");

constexpr uint32_t STAMP = 0x616c676f;

struct Candidate {
    char algorithm[64];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

Type type_of(int number) {
    REQUIRE(number == 0 || number == 2 || number == 14);
    return number == 0 ? Type::F32 : number == 2 ? Type::F16 : Type::BF16;
}

// The problem as a whole: every size and type of the descriptors agrees with the others.
Algorithm problem(const Matmul &matmul, const Layout *layouts[4]) {
    const Layout &a = *layouts[0], &b = *layouts[1], &c = *layouts[2], &d = *layouts[3];
    bool ta = matmul.transposed[0], tb = matmul.transposed[1];
    uint64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
    REQUIRE((tb ? b.columns : b.rows) == k);
    REQUIRE(d.rows == m && d.columns == (tb ? b.rows : b.columns));
    REQUIRE(c.type == d.type && c.rows == d.rows && c.columns == d.columns && c.stride == d.stride);
    REQUIRE(a.type == b.type && (d.type == a.type || d.type == 0));
    REQUIRE(matmul.scale == 0);
    REQUIRE(matmul.compute == COMPUTE_32F || (matmul.compute == COMPUTE_32F_FAST_TF32 && a.type == 0));
    bool vector = matmul.epilogue != DEFAULT && matmul.epilogue != RELU;
    REQUIRE(!!matmul.vector == vector);
    // Of another type than D a vector is for 8-bit products alone.
    REQUIRE(!vector || matmul.vector_type == d.type);
    REQUIRE(aligned(matmul.vector, 16));
    for (int i = 0; i < 4; i++) {
        REQUIRE(layouts[i]->stride >= (int64_t)layouts[i]->rows);
    }
    Algorithm algorithm = {};
    algorithm.stamp = STAMP;
    algorithm.m = (uint32_t)m;
    algorithm.n = (uint32_t)d.columns;
    algorithm.k = (uint32_t)k;
    algorithm.types = (uint32_t)(a.type | d.type << 8 | matmul.compute << 16);
    algorithm.transposed = (uint32_t)(ta | tb << 1);
    algorithm.epilogue = matmul.epilogue;
    return algorithm;
}

bool same(const Algorithm &a, const Algorithm &b) {
    return a.stamp == b.stamp && a.m == b.m && a.n == b.n && a.k == b.k && a.types == b.types &&
           a.transposed == b.transposed && a.epilogue == b.epilogue;
}

// Everything that a call needs, by value: descriptors may be gone when it runs.
struct Work {
    Algorithm problem;
    Layout a, b, d;
    const void *a_at, *b_at;
    void *d_at, *vector, *workspace;
    size_t workspace_bytes;

    float element(const Layout &layout, const void *at, bool transposed, uint64_t row, uint64_t column) const {
        uint64_t place = transposed ? column + row * (uint64_t)layout.stride : row + column * (uint64_t)layout.stride;
        float x = load(type_of(layout.type), at, place);
        return problem.types >> 16 == COMPUTE_32F_FAST_TF32 ? tf32(x) : x;
    }

    static bool inside(const Layout &layout, const void *at) {
        return holds(at, (size_t)((layout.columns - 1) * (uint64_t)layout.stride + layout.rows) * size_of(type_of(layout.type)));
    }

    void operator()() const {
        const Algorithm &p = problem;
        REQUIRE(inside(a, a_at) && inside(b, b_at) && inside(d, d_at));
        Type type = type_of(d.type);
        bool bias = p.epilogue == BIAS || p.epilogue == RELU_BIAS, relu = p.epilogue == RELU || p.epilogue == RELU_BIAS;
        if (vector) {
            REQUIRE(holds(vector, (bias ? p.m : p.n) * size_of(type)));
        }
        spoil(workspace, workspace_bytes);
        bool ta = p.transposed & 1, tb = p.transposed >> 1 & 1;
        for (uint32_t j = 0; j < p.n; j++) {
            for (uint32_t i = 0; i < p.m; i++) {
                double sum = bias ? load(type, vector, i) : 0;
                for (uint32_t l = 0; l < p.k; l++) {
                    sum += (double)element(a, a_at, ta, i, l) * element(b, b_at, tb, l, j);
                }
                // Not a number stays what it is.
                sum = relu && sum < 0 ? 0 : sum;
                store(type, d_at, i + j * (size_t)d.stride, (float)sum);
            }
            if (p.epilogue == BGRADB) {
                double sum = 0;
                for (uint32_t l = 0; l < p.k; l++) {
                    sum += element(b, b_at, tb, l, j);
                }
                store(type, vector, j, (float)sum);
            }
        }
    }
};

}  // namespace

EXPORT size_t cublasLtGetVersion() { return 130000; }

EXPORT int cublasLtCreate(Handle **handle) {
    REQUIRE(has_context());
    made(handle, new Handle());
    return SUCCESS;
}

EXPORT int cublasLtDestroy(Handle *handle) { return destroyed(handle); }

EXPORT int cublasLtMatmulDescCreate(Matmul **matmul, int compute, int scale) {
    auto *object = new Matmul();
    object->compute = compute;
    object->scale = scale;
    made(matmul, object);
    return SUCCESS;
}

EXPORT int cublasLtMatmulDescDestroy(Matmul *matmul) { return destroyed(matmul); }

EXPORT int cublasLtMatmulDescSetAttribute(Matmul *matmul, int attribute, const void *value, size_t bytes) {
    known(matmul);
    auto take = [&](auto &field) {
        REQUIRE(bytes == sizeof field);
        memcpy(&field, value, bytes);
    };
    switch (attribute) {
    case 3: take(matmul->transposed[0]); break;
    case 4: take(matmul->transposed[1]); break;
    case 7: take(matmul->epilogue); break;
    case 8: take(matmul->vector); break;
    case 26: take(matmul->vector_type); break;
    default: REQUIRE(!"an attribute that is known here");
    }
    REQUIRE(matmul->transposed[0] <= 1 && matmul->transposed[1] <= 1);
    return SUCCESS;
}

EXPORT int cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t columns, int64_t stride) {
    type_of(type);
    REQUIRE(rows && columns);
    made(layout, new Layout{type, rows, columns, stride});
    return SUCCESS;
}

EXPORT int cublasLtMatrixLayoutDestroy(Layout *layout) { return destroyed(layout); }

EXPORT int cublasLtMatmulPreferenceCreate(Preference **preference) {
    made(preference, new Preference());
    return SUCCESS;
}

EXPORT int cublasLtMatmulPreferenceDestroy(Preference *preference) { return destroyed(preference); }

EXPORT int cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute, const void *value, size_t bytes) {
    known(preference);
    auto take = [&](auto &field) {
        REQUIRE(bytes == sizeof field);
        memcpy(&field, value, bytes);
    };
    switch (attribute) {
    case 1: take(preference->workspace); break;
    case 3: take(preference->schemes); break;
    case 5: case 6: case 7: case 8: take(preference->alignment[attribute - 5]); break;
    default: REQUIRE(!"an attribute that is known here");
    }
    return SUCCESS;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(Handle *handle, Matmul *matmul, Layout *a, Layout *b, Layout *c, Layout *d,
                                          Preference *preference, int wanted, Candidate *candidates, int *count) {
    known(handle), known(matmul), known(a), known(b), known(c), known(d), known(preference);
    const Layout *layouts[4] = {a, b, c, d};
    Algorithm algorithm = problem(*matmul, layouts);
    *count = 0;
    // Something must be refused: sums of B are, for one of the types.
    if (matmul->epilogue == BGRADB && a->type == 2) {
        return NOT_SUPPORTED;
    }
    uint32_t alignment = *std::min_element(preference->alignment, preference->alignment + 4);
    algorithm.alignment = alignment;
    // Those that must be passed over come first: one that failed, and one that needs more than there is.
    for (int i = 0; i < std::min(wanted, 3); i++) {
        Candidate &candidate = candidates[i];
        memset(&candidate, 0, sizeof candidate);
        candidate.state = i == 0 ? NOT_SUPPORTED : SUCCESS;
        algorithm.stamp = i == 2 ? STAMP : 0;
        algorithm.workspace = i == 1 ? preference->workspace + 1 : algorithm.k < 8 ? 0 : algorithm.k * 100 + 1;
        candidate.workspace = algorithm.workspace;
        memcpy(candidate.algorithm, &algorithm, sizeof algorithm);
        *count = i + 1;
    }
    return SUCCESS;
}

EXPORT int cublasLtMatmul(Handle *handle, Matmul *matmul, const float *alpha, const void *a_at, Layout *a, const void *b_at,
                          Layout *b, const float *beta, const void *c_at, Layout *c, void *d_at, Layout *d,
                          const Algorithm *algorithm, void *workspace, size_t workspace_bytes, void *stream) {
    known(handle), known(matmul), known(a), known(b), known(c), known(d);
    const Layout *layouts[4] = {a, b, c, d};
    Algorithm asked = problem(*matmul, layouts);
    REQUIRE(algorithm && same(*algorithm, asked));
    REQUIRE(*alpha == 1 && *beta == 0 && c_at == d_at);
    for (const void *at : {a_at, b_at, (const void *)d_at}) {
        REQUIRE(at && aligned(at, algorithm->alignment));
    }
    REQUIRE(workspace_bytes >= algorithm->workspace);
    REQUIRE(!workspace_bytes || (workspace && aligned(workspace, WORKSPACE_ALIGNMENT)));
    REQUIRE(stream && has_context());
    // Kernels are loaded when they are first needed, which cannot be while a stream is captured.
    uint64_t sizes = (uint64_t)asked.m << 42 ^ (uint64_t)asked.n << 21 ^ asked.k;
    uint64_t kind = (uint64_t)asked.types << 32 | asked.transposed << 16 | asked.epilogue;
    REQUIRE(!first(sizes, kind) || !capturing(stream));
    Work work{asked, *a, *b, *d, a_at, b_at, d_at, matmul->vector, workspace, algorithm->workspace};
    return enqueue(stream, work) ? EXECUTION_FAILED : SUCCESS;
}
