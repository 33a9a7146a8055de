// What a graph of operations of the tests' cuDNN says is to be computed: a convolution, and what is behind it.
#pragma once

#include <cmath>

#include "cudnn_descriptor.h"

namespace fake {

// A tensor [n, h, w, c], or a filter [k, h, w, c].
struct Tensor {
    Type type;
    int64_t uid, n, c, h, w;
    bool stored;
    int64_t alignment;

    size_t count() const { return (size_t)(n * c * h * w); }
    size_t bytes() const { return count() * size_of(type); }
    size_t at(int64_t image, int64_t channel, int64_t row, int64_t column) const {
        return (size_t)(((image * h + row) * w + column) * c + channel);
    }
};

inline Type type_of(int number) {
    REQUIRE(number == 0 || number == 2 || number == 9);
    return number == 0 ? Type::F32 : number == 2 ? Type::F16 : Type::BF16;
}

inline Tensor tensor(const Descriptor *d) {
    REQUIRE(d->kind == TENSOR);
    auto dims = d->all<int64_t>(902), strides = d->all<int64_t>(903);
    bool stored = !d->has(907) || !d->one<uint8_t>(907);
    int64_t uid = d->one<int64_t>(906), alignment = d->one<int64_t>(900);
    Tensor t = {type_of(d->one<int>(901)), uid, dims[0], dims[1], dims[2], dims[3], stored, alignment};
    REQUIRE(t.n > 0 && t.c > 0 && t.h > 0 && t.w > 0 && t.alignment >= 4);
    REQUIRE(strides[1] == 1 && strides[3] == t.c && strides[2] == t.w * t.c && strides[0] == t.h * t.w * t.c);
    return t;
}

// What a pointwise operation computes.
struct Function {
    int mode;
    double lower = 0, upper = 0, slope = 0, alpha = 1;

    float operator()(float x) const {
        switch (mode) {
        case 21: return x;
        // Comparisons let a NaN through.
        case 100: return x < lower ? (float)(slope * x) : x > upper ? (float)upper : x;
        case 101: return tanhf(x);
        case 102: return 1 / (1 + expf(-x));
        case 103: return x > 0 ? x : (float)alpha * expm1f(x);
        case 106: return x / (1 + expf(-x));
        case 107: return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
        default: REQUIRE(!"a function that the double has not"); return 0;
        }
    }
};

struct Problem {
    Kind direction;
    Tensor x, w, y;
    int64_t groups, pad[2], post[2], stride[2], dilation[2];
    std::vector<Tensor> bias;
    std::vector<Function> act;

    const Tensor &result() const { return direction == FORWARD ? y : direction == BACKWARD_DATA ? x : w; }
    Type operands() const { return direction == FORWARD ? x.type : direction == BACKWARD_DATA ? y.type : x.type; }
    bool fused() const { return !bias.empty() || !act.empty(); }
    // Some need none.
    size_t workspace() const { return w.h * w.w == 9 ? 0 : w.count() * 4 + 4; }
};

// The convolution at the front of a graph, and the operations behind it, each of which takes what the one before gives.
inline Problem problem(const Descriptor *graph) {
    known(graph);
    auto operations = graph->all<Descriptor *>(801);
    std::set<int64_t> uids;
    Problem p = {};
    const Descriptor *last = nullptr;
    for (size_t i = 0; i < operations.size(); i++) {
        const Descriptor *op = operations[i];
        known(op);
        if (i == 0) {
            REQUIRE(op->kind == FORWARD || op->kind == BACKWARD_DATA || op->kind == BACKWARD_FILTER);
            p.direction = op->kind;
            // Names of the factors, the convolution, x, w and y.
            constexpr int NAMES[3][6] = {
                {700, 701, 702, 704, 703, 705},
                {712, 713, 714, 716, 715, 717},
                {706, 707, 708, 710, 709, 711},
            };
            const int *names = NAMES[op->kind - FORWARD];
            REQUIRE(op->one<float>(names[0]) == 1 && op->one<float>(names[1]) == 0);
            const Descriptor *c = op->other(names[2], CONVOLUTION);
            const Descriptor *parts[3];
            for (int k = 0; k < 3; k++) {
                parts[k] = op->other(names[3 + k], TENSOR);
                REQUIRE(uids.insert(parts[k]->one<int64_t>(906)).second);
            }
            p.x = tensor(parts[0]), p.w = tensor(parts[1]), p.y = tensor(parts[2]);
            // Sums in 32 bits, the kernel as it lies, two axes.
            REQUIRE(c->one<int>(100) == 0 && c->one<int>(101) == 1 && c->one<int64_t>(106) == 2);
            const int64_t sizes[2][3] = {{p.x.h, p.w.h, p.y.h}, {p.x.w, p.w.w, p.y.w}};
            for (int k = 0; k < 2; k++) {
                p.dilation[k] = c->all<int64_t>(102)[k], p.stride[k] = c->all<int64_t>(103)[k];
                p.post[k] = c->all<int64_t>(104)[k], p.pad[k] = c->all<int64_t>(105)[k];
                REQUIRE(p.dilation[k] > 0 && p.stride[k] > 0 && p.post[k] >= 0 && p.pad[k] >= 0);
                auto [in, kernel, out] = sizes[k];
                int64_t room = in + p.pad[k] + p.post[k] - ((kernel - 1) * p.dilation[k] + 1);
                REQUIRE(room >= 0 && out == 1 + room / p.stride[k]);
            }
            REQUIRE(p.x.n == p.y.n && p.x.c % p.w.c == 0 && p.y.c == p.w.n);
            p.groups = p.x.c / p.w.c;
            REQUIRE(p.y.c % p.groups == 0);
            // The library takes more, but has ended a process at it: what it is asked for is what usual networks have.
            REQUIRE(p.pad[0] == p.post[0] && p.pad[1] == p.post[1]);
            REQUIRE(p.x.c / p.groups * size_of(p.operands()) % 16 == 0);
            REQUIRE(p.y.c / p.groups * size_of(p.operands()) % 16 == 0);
            last = parts[p.direction == FORWARD ? 2 : p.direction == BACKWARD_DATA ? 0 : 1];
            continue;
        }
        REQUIRE(op->kind == POINTWISE_OPERATION);
        REQUIRE(op->one<float>(754) == 1 && op->one<float>(755) == 1);
        const Descriptor *function = op->other(750, POINTWISE), *to = op->other(753, TENSOR);
        // What comes in is the virtual result of the operation before, in 32 bits.
        Tensor from = tensor(last), result = tensor(to);
        REQUIRE(op->other(751, TENSOR) == last && !from.stored && from.type == Type::F32 && uids.insert(result.uid).second);
        const Tensor &like = p.result();
        REQUIRE(result.n == like.n && result.c == like.c && result.h == like.h && result.w == like.w);
        REQUIRE(function->one<int>(1) == 0);
        int mode = function->one<int>(0);
        if (mode == 0) {
            Tensor bias = tensor(op->other(752, TENSOR));
            REQUIRE(p.direction == FORWARD && bias.stored && bias.type == Type::F32);
            REQUIRE(bias.n == 1 && bias.h == 1 && bias.w == 1 && bias.c == p.y.c);
            REQUIRE(p.bias.empty() && p.act.empty() && uids.insert(bias.uid).second);
            p.bias.push_back(bias);
        } else {
            // Behind a gradient there is but a copy.
            REQUIRE(p.act.empty() && !op->has(752) && (p.direction == FORWARD) == (mode != 21));
            Function f{mode};
            if (mode == 100) {
                // A NaN goes through.
                REQUIRE(function->one<int>(2) == 1);
                f.lower = function->one<double>(3), f.upper = function->one<double>(4), f.slope = function->one<double>(5);
            } else if (mode == 103) {
                f.alpha = function->one<double>(6);
            } else if (mode == 106) {
                REQUIRE(function->one<double>(8) == 1);
            }
            p.act.push_back(f);
        }
        last = to;
    }
    (p.direction == FORWARD ? p.y : p.direction == BACKWARD_DATA ? p.x : p.w) = tensor(last);
    REQUIRE(p.x.stored && p.w.stored && p.y.stored);
    // Operands are of one type; a result may be wider.
    const Tensor *given[2] = {p.direction == BACKWARD_DATA ? &p.y : &p.x, p.direction == BACKWARD_FILTER ? &p.y : &p.w};
    REQUIRE(given[0]->type == given[1]->type);
    REQUIRE(p.result().type == given[0]->type || p.result().type == Type::F32);
    return p;
}

}  // namespace fake
