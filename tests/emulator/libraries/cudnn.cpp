// A cuDNN for the emulated driver: convolutions as the library's documentation defines them, on tensors whose channels
// come last, computed one by one on the emulated stream, and no tolerance for calls that the documentation does not allow.

#include "fake.h"

using namespace fake;

namespace {

enum Status { SUCCESS = 0, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
enum Math { DEFAULT_MATH = 0, TENSOR_OP_MATH = 1, FMA_MATH = 3 };
enum Direction { FORWARD, INPUT, WEIGHT };

constexpr int CHANNELS_LAST = 1, CROSS_CORRELATION = 1;

// The algorithms that the double has for FORWARD, INPUT and WEIGHT, and for each kind one that differs from run to run, or
// that transforms.
constexpr int GOOD[3] = {1, 1, 1}, BAD[3] = {6, 0, 0};

struct Handle {
    void *stream = nullptr;
};

// A tensor [n, h, w, c], or a filter [k, h, w, c].
struct Tensor {
    bool filter;
    bool set = false;
    int type = 0, n = 0, c = 0, h = 0, w = 0;

    size_t count() const { return (size_t)n * c * h * w; }
    size_t at(int image, int channel, int row, int column) const {
        return (((size_t)image * h + row) * w + column) * c + channel;
    }
};

struct Convolution {
    bool set = false;
    int pad[2], stride[2], dilation[2];
    int math = DEFAULT_MATH;
};

struct Candidate {
    int algorithm, status;
    float time;
    size_t memory;
    int determinism, math;
    int reserved[3];
};

Type type_of(int number) {
    REQUIRE(number == 0 || number == 2 || number == 9);
    return number == 0 ? Type::F32 : number == 2 ? Type::F16 : Type::BF16;
}

struct Problem {
    Direction direction;
    Tensor x, w, y;
    Convolution convolution;

    // The workspace that it asks for: none for some.
    size_t workspace() const { return (size_t)w.h * w.w == 9 ? 0 : w.count() * 4 + 4; }
};

// The tensors in the order of `direction`'s functions; every size and type agrees with the others.
Problem problem(Direction direction, Tensor *a, Tensor *b, Convolution *convolution, Tensor *result) {
    known(a), known(b), known(convolution), known(result);
    Problem p = {direction, *a, *b, *result, *convolution};
    if (direction == INPUT) {
        p = {direction, *result, *a, *b, *convolution};
    } else if (direction == WEIGHT) {
        p = {direction, *a, *result, *b, *convolution};
    }
    REQUIRE(!p.x.filter && p.w.filter && !p.y.filter);
    REQUIRE(p.x.set && p.w.set && p.y.set && p.convolution.set);
    REQUIRE(p.x.type == p.w.type && p.w.type == p.y.type);
    REQUIRE(p.x.n == p.y.n && p.x.c == p.w.c && p.y.c == p.w.n);
    const int sizes[2][3] = {{p.x.h, p.w.h, p.y.h}, {p.x.w, p.w.w, p.y.w}};
    for (int i = 0; i < 2; i++) {
        auto [in, kernel, out] = sizes[i];
        REQUIRE(out == 1 + (in + 2 * convolution->pad[i] - ((kernel - 1) * convolution->dilation[i] + 1)) / convolution->stride[i]);
    }
    // Tensor cores are asked for with 16-bit operands; that 32-bit ones are not rounded is said, or TF32 is wanted.
    REQUIRE(p.x.type == 0 ? convolution->math == FMA_MATH || convolution->math == DEFAULT_MATH
                          : convolution->math == TENSOR_OP_MATH || convolution->math == DEFAULT_MATH);
    return p;
}

// Everything that a call needs, by value: descriptors may be gone when it runs.
struct Work {
    Problem p;
    const void *x, *w, *y;
    void *result, *workspace;
    size_t workspace_bytes;

    float element(const Tensor &tensor, const void *at, size_t i) const {
        float value = load(type_of(tensor.type), at, i);
        return tensor.type == 0 && p.convolution.math != FMA_MATH ? tf32(value) : value;
    }

    void operator()() const {
        const Convolution &c = p.convolution;
        Type type = type_of(p.x.type);
        REQUIRE(holds(x, p.x.count() * size_of(type)) && holds(w, p.w.count() * size_of(type)));
        REQUIRE(holds(y, p.y.count() * size_of(type)));
        spoil(workspace, workspace_bytes);
        const Tensor &to = p.direction == FORWARD ? p.y : p.direction == INPUT ? p.x : p.w;
        std::vector<double> sums(to.count());
        for (int n = 0; n < p.y.n; n++) {
            for (int oh = 0; oh < p.y.h; oh++) {
                for (int ow = 0; ow < p.y.w; ow++) {
                    for (int kh = 0; kh < p.w.h; kh++) {
                        for (int kw = 0; kw < p.w.w; kw++) {
                            int ih = oh * c.stride[0] - c.pad[0] + kh * c.dilation[0];
                            int iw = ow * c.stride[1] - c.pad[1] + kw * c.dilation[1];
                            if (ih < 0 || ih >= p.x.h || iw < 0 || iw >= p.x.w) {
                                continue;
                            }
                            for (int o = 0; o < p.y.c; o++) {
                                for (int i = 0; i < p.x.c; i++) {
                                    add(sums, p.x.at(n, i, ih, iw), p.w.at(o, i, kh, kw), p.y.at(n, o, oh, ow));
                                }
                            }
                        }
                    }
                }
            }
        }
        for (size_t i = 0; i < sums.size(); i++) {
            store(type, result, i, (float)sums[i]);
        }
    }

    void add(std::vector<double> &sums, size_t at_x, size_t at_w, size_t at_y) const {
        switch (p.direction) {
        case FORWARD: sums[at_y] += (double)element(p.x, x, at_x) * element(p.w, w, at_w); break;
        case INPUT: sums[at_x] += (double)element(p.w, w, at_w) * element(p.y, y, at_y); break;
        case WEIGHT: sums[at_w] += (double)element(p.x, x, at_x) * element(p.y, y, at_y); break;
        }
    }
};

int choose(Direction direction, Handle *handle, Tensor *a, Tensor *b, Convolution *convolution, Tensor *result, int wanted,
           int *count, Candidate *candidates) {
    known(handle);
    Problem p = problem(direction, a, b, convolution, result);
    // Something must be refused.
    if (p.convolution.dilation[0] == 2 && p.convolution.stride[0] == 3) {
        *count = 0;
        return NOT_SUPPORTED;
    }
    int math = p.x.type == 0 ? DEFAULT_MATH : TENSOR_OP_MATH;
    const Candidate offered[4] = {
        {BAD[direction], SUCCESS, 1, 0, 0, math, {}},
        {GOOD[direction], NOT_SUPPORTED, 2, 0, 1, math, {}},
        {GOOD[direction], SUCCESS, 3, 0, 1, 2, {}},
        {GOOD[direction], SUCCESS, 4, p.workspace(), 1, math, {}},
    };
    *count = wanted < 4 ? wanted : 4;
    memcpy(candidates, offered, *count * sizeof *candidates);
    return SUCCESS;
}

int workspace_size(Direction direction, Handle *handle, Tensor *a, Tensor *b, Convolution *convolution, Tensor *result,
                   int algorithm, size_t *bytes) {
    known(handle);
    REQUIRE(algorithm == GOOD[direction]);
    *bytes = problem(direction, a, b, convolution, result).workspace();
    return SUCCESS;
}

int run(Direction direction, Handle *handle, const float *alpha, Tensor *a, void *a_at, Tensor *b, void *b_at,
        Convolution *convolution, int algorithm, void *workspace, size_t bytes, const float *beta, Tensor *result,
        void *result_at) {
    known(handle);
    Problem p = problem(direction, a, b, convolution, result);
    REQUIRE(algorithm == GOOD[direction] && *alpha == 1 && *beta == 0);
    REQUIRE(bytes >= p.workspace() && (!bytes || (workspace && aligned(workspace, 16))));
    REQUIRE(a_at && b_at && result_at && aligned(a_at, 16) && aligned(b_at, 16) && aligned(result_at, 16));
    REQUIRE(handle->stream && has_context());
    // Kernels are loaded when they are first needed, which cannot be while a stream is captured.
    uint64_t sizes = (uint64_t)p.x.count() << 32 ^ p.y.count(), kind = (uint64_t)p.w.count() << 8 | p.x.type << 4 | direction;
    REQUIRE(!first(sizes, kind) || !capturing(handle->stream));
    void *at[3] = {a_at, b_at, result_at};
    if (direction == INPUT) {
        at[0] = result_at, at[1] = a_at, at[2] = b_at;
    } else if (direction == WEIGHT) {
        at[0] = a_at, at[1] = result_at, at[2] = b_at;
    }
    Work work{p, at[0], at[1], at[2], result_at, workspace, p.workspace()};
    return enqueue(handle->stream, work) ? EXECUTION_FAILED : SUCCESS;
}

}  // namespace

EXPORT size_t cudnnGetVersion() { return 91000; }

EXPORT int cudnnCreate(Handle **handle) {
    REQUIRE(has_context());
    made(handle, new Handle());
    return SUCCESS;
}

EXPORT int cudnnDestroy(Handle *handle) { return destroyed(handle); }

EXPORT int cudnnSetStream(Handle *handle, void *stream) {
    known(handle);
    handle->stream = stream;
    return SUCCESS;
}

static int tensor(Tensor *tensor, bool filter, int format, int type, int n, int c, int h, int w) {
    known(tensor);
    type_of(type);
    REQUIRE(tensor->filter == filter && format == CHANNELS_LAST && n > 0 && c > 0 && h > 0 && w > 0);
    *tensor = {filter, true, type, n, c, h, w};
    return SUCCESS;
}

EXPORT int cudnnCreateTensorDescriptor(Tensor **at) {
    made(at, new Tensor{false});
    return SUCCESS;
}

EXPORT int cudnnDestroyTensorDescriptor(Tensor *at) {
    REQUIRE(!at->filter);
    return destroyed(at);
}

EXPORT int cudnnSetTensor4dDescriptor(Tensor *at, int format, int type, int n, int c, int h, int w) {
    return tensor(at, false, format, type, n, c, h, w);
}

EXPORT int cudnnCreateFilterDescriptor(Tensor **at) {
    made(at, new Tensor{true});
    return SUCCESS;
}

EXPORT int cudnnDestroyFilterDescriptor(Tensor *at) {
    REQUIRE(at->filter);
    return destroyed(at);
}

EXPORT int cudnnSetFilter4dDescriptor(Tensor *at, int type, int format, int k, int c, int h, int w) {
    return tensor(at, true, format, type, k, c, h, w);
}

EXPORT int cudnnCreateConvolutionDescriptor(Convolution **at) {
    made(at, new Convolution());
    return SUCCESS;
}

EXPORT int cudnnDestroyConvolutionDescriptor(Convolution *at) { return destroyed(at); }

EXPORT int cudnnSetConvolution2dDescriptor(Convolution *at, int pad_h, int pad_w, int stride_h, int stride_w,
                                           int dilation_h, int dilation_w, int mode, int compute) {
    known(at);
    REQUIRE(mode == CROSS_CORRELATION && compute == 0);
    REQUIRE(pad_h >= 0 && pad_w >= 0 && stride_h > 0 && stride_w > 0 && dilation_h > 0 && dilation_w > 0);
    *at = {true, {pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, at->math};
    return SUCCESS;
}

EXPORT int cudnnSetConvolutionMathType(Convolution *at, int math) {
    known(at);
    at->math = math;
    return SUCCESS;
}

// The three functions of each direction, whose operands come in an order of their own.
#define DIRECTION(NAME, DIRECTION)                                                                                      \
    EXPORT int cudnnGetConvolution##NAME##Algorithm_v7(Handle *handle, Tensor *a, Tensor *b, Convolution *convolution,  \
                                                       Tensor *result, int wanted, int *count, Candidate *candidates) { \
        return choose(DIRECTION, handle, a, b, convolution, result, wanted, count, candidates);                        \
    }                                                                                                                  \
    EXPORT int cudnnGetConvolution##NAME##WorkspaceSize(Handle *handle, Tensor *a, Tensor *b, Convolution *convolution, \
                                                        Tensor *result, int algorithm, size_t *bytes) {                 \
        return workspace_size(DIRECTION, handle, a, b, convolution, result, algorithm, bytes);                         \
    }                                                                                                                  \
    EXPORT int cudnnConvolution##NAME(Handle *handle, const float *alpha, Tensor *a, void *a_at, Tensor *b, void *b_at, \
                                      Convolution *convolution, int algorithm, void *workspace, size_t bytes,          \
                                      const float *beta, Tensor *result, void *result_at) {                            \
        return run(DIRECTION, handle, alpha, a, a_at, b, b_at, convolution, algorithm, workspace, bytes, beta, result,  \
                   result_at);                                                                                         \
    }

DIRECTION(Forward, FORWARD)
DIRECTION(BackwardData, INPUT)
DIRECTION(BackwardFilter, WEIGHT)
