// A cuDNN for the emulated driver: convolutions as the library's documentation defines them, on tensors whose channels
// come last, with bias and activation, described by graphs of operations and computed one by one on the emulated stream.
// No tolerance for calls that the documentation does not allow. `fake_plant` makes an engine do what it should not.

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cudnn_descriptor.h"

using namespace fake;

namespace {

enum Status {
    SUCCESS = 0,
    NOT_SUPPORTED = 3000,
    COMPILATION_FAILED = 4001,
    EXECUTION_FAILED = 5000,
    // Of a version that nobody knows.
    STRANGE_STATUS = 123456,
};

enum Note { TENSOR_CORE = 0, DOWN_CONVERT = 1, REDUCED = 2, NONDETERMINISTIC = 4, WINOGRAD = 5, STRICT_NAN = 9, UNKNOWN = 77 };
enum Behavior { COMPILES = 0, REORDERS = 1, UNKNOWN_BEHAVIOR = 78 };
enum HeuristicsMode { MODE_B = 1, MODE_FALLBACK = 2, MODE_A = 3 };

// What can be planted: an engine that is wrong in a number, that adds to what lies in the result, that gives other bits every
// time, that cannot be finalized or run, that is too large or slow, or rounds operands without saying so.
enum Fault { NONE, WRONG, NAN_RESULT, UNSTEADY, NO_PLAN, NO_RUN, LARGE, SLOW, STRANGE, TO_HALF, TO_TF32 };

constexpr int ENGINES = 10;

// The engines. Those that are not to be used end the program when a plan of them is made.
enum Engine { ATOMIC, ROUNDING, TILES, DIRECT, COMPILED, SHORT_SUMS, FALLBACK, REORDERING, HUGE_ONE, FUTURE };

std::atomic<int> planted[ENGINES];
std::atomic<long> runs[ENGINES];

struct Handle {
    void *stream = nullptr;
};

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

Type type_of(int number) {
    REQUIRE(number == 0 || number == 2 || number == 9);
    return number == 0 ? Type::F32 : number == 2 ? Type::F16 : Type::BF16;
}

Tensor tensor(const Descriptor *d) {
    REQUIRE(d->kind == TENSOR);
    auto dims = d->all<int64_t>(902), strides = d->all<int64_t>(903);
    bool stored = !d->has(907) || !d->one<uint8_t>(907);
    Tensor t = {type_of(d->one<int>(901)), d->one<int64_t>(906), dims[0], dims[1], dims[2], dims[3], stored, d->one<int64_t>(900)};
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
Problem problem(const Descriptor *graph) {
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
            constexpr int NAMES[3][6] = {{700, 701, 702, 704, 703, 705}, {712, 713, 714, 716, 715, 717}, {706, 707, 708, 710, 709, 711}};
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
            last = parts[2];
            continue;
        }
        REQUIRE(op->kind == POINTWISE_OPERATION && p.direction == FORWARD);
        REQUIRE(op->one<float>(754) == 1 && op->one<float>(755) == 1);
        const Descriptor *function = op->other(750, POINTWISE), *to = op->other(753, TENSOR);
        // What comes in is the virtual result of the operation before, in 32 bits.
        Tensor from = tensor(last), result = tensor(to);
        REQUIRE(op->other(751, TENSOR) == last && !from.stored && from.type == Type::F32 && uids.insert(result.uid).second);
        REQUIRE(result.n == p.y.n && result.c == p.y.c && result.h == p.y.h && result.w == p.y.w);
        REQUIRE(function->one<int>(1) == 0);
        int mode = function->one<int>(0);
        if (mode == 0) {
            Tensor bias = tensor(op->other(752, TENSOR));
            REQUIRE(bias.stored && bias.type == Type::F32 && bias.n == 1 && bias.h == 1 && bias.w == 1 && bias.c == p.y.c);
            REQUIRE(p.bias.empty() && p.act.empty() && uids.insert(bias.uid).second);
            p.bias.push_back(bias);
        } else {
            REQUIRE(p.act.empty() && !op->has(752));
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
    p.y = tensor(last);
    REQUIRE(p.x.stored && p.w.stored && p.y.stored);
    // Operands are of one type; a result may be wider.
    const Tensor *given[2] = {p.direction == BACKWARD_DATA ? &p.y : &p.x, p.direction == BACKWARD_FILTER ? &p.y : &p.w};
    REQUIRE(given[0]->type == given[1]->type);
    REQUIRE(p.result().type == given[0]->type || p.result().type == Type::F32);
    return p;
}

std::vector<int> numerical_notes(int engine, const Problem &p) {
    bool half = p.operands() != Type::F32;
    switch (engine) {
    case ATOMIC: return {TENSOR_CORE, NONDETERMINISTIC};
    case ROUNDING: return half ? std::vector<int>{TENSOR_CORE} : std::vector<int>{TENSOR_CORE, DOWN_CONVERT};
    case TILES: return {WINOGRAD, WINOGRAD + 1};
    case COMPILED: return half ? std::vector<int>{TENSOR_CORE} : std::vector<int>{STRICT_NAN};
    case SHORT_SUMS: return {REDUCED};
    case FUTURE: return {UNKNOWN};
    default: return half ? std::vector<int>{TENSOR_CORE} : std::vector<int>{};
    }
}

std::vector<int> behavior_notes(int engine) {
    return engine == COMPILED ? std::vector<int>{COMPILES, UNKNOWN_BEHAVIOR} : engine == REORDERING ? std::vector<int>{REORDERS} : std::vector<int>{};
}

// Everything that a call needs, by value: descriptors may be gone when it runs, but for the plan, whose kernels it uses.
struct Work {
    Problem p;
    const Descriptor *plan;
    int engine;
    const void *x, *w, *y, *bias;
    void *result, *workspace;
    size_t workspace_bytes;
    long run;

    float element(const Tensor &tensor, const void *at, size_t i) const {
        float value = load(tensor.type, at, i);
        if (tensor.type != Type::F32) {
            return value;
        }
        if (planted[engine] == TO_HALF) {
            uint16_t half;
            store(Type::F16, &half, 0, value);
            return load(Type::F16, &half, 0);
        }
        return engine == ROUNDING || planted[engine] == TO_TF32 ? tf32(value) : value;
    }

    void operator()() const {
        known(plan);
        REQUIRE(holds(x, p.x.bytes()) && holds(w, p.w.bytes()) && holds(y, p.y.bytes()));
        REQUIRE(!bias || holds(bias, p.bias[0].bytes()));
        spoil(workspace, workspace_bytes);
        if (planted[engine] == SLOW) {
            usleep(300000);
        }
        const Tensor &to = p.result();
        std::vector<double> sums(to.count());
        // Sums that are added up in another order, and in fewer bits, are others.
        bool backwards = engine == COMPILED;
        int64_t ins = p.w.c, outs = p.y.c / p.groups, taps = p.w.h * p.w.w;
        for (int64_t n = 0; n < p.y.n; n++) {
            for (int64_t pixel = 0; pixel < p.y.h * p.y.w; pixel++) {
                int64_t oh = pixel / p.y.w, ow = pixel % p.y.w;
                for (int64_t t = 0; t < taps; t++) {
                    int64_t tap = backwards ? taps - 1 - t : t, kh = tap / p.w.w, kw = tap % p.w.w;
                    int64_t ih = oh * p.stride[0] - p.pad[0] + kh * p.dilation[0];
                    int64_t iw = ow * p.stride[1] - p.pad[1] + kw * p.dilation[1];
                    if (ih < 0 || ih >= p.x.h || iw < 0 || iw >= p.x.w) {
                        continue;
                    }
                    for (int64_t o = 0; o < p.y.c; o++) {
                        for (int64_t i = 0; i < ins; i++) {
                            add(sums, p.x.at(n, o / outs * ins + i, ih, iw), p.w.at(o, i, kh, kw), p.y.at(n, o, oh, ow));
                        }
                    }
                }
            }
        }
        if (planted[engine] == WRONG) {
            sums.back() += 1;
        }
        for (size_t i = 0; i < sums.size(); i++) {
            float value = (float)sums[i];
            value += bias ? load(Type::F32, bias, i % (size_t)p.y.c) : 0;
            value = p.act.empty() ? value : p.act[0](value);
            value += planted[engine] == NAN_RESULT ? 0 * load(to.type, result, i) : 0;
            store(to.type, result, i, value);
        }
        if (planted[engine] == UNSTEADY && run % 2) {
            ((uint8_t *)result)[0] ^= 1;
        }
    }

    void add(std::vector<double> &sums, size_t at_x, size_t at_w, size_t at_y) const {
        auto plus = [&](size_t at, float a, float b) {
            sums[at] = engine == COMPILED ? (float)sums[at] + a * b : sums[at] + (double)a * b;
        };
        switch (p.direction) {
        case FORWARD: plus(at_y, element(p.x, x, at_x), element(p.w, w, at_w)); break;
        case BACKWARD_DATA: plus(at_x, element(p.w, w, at_w), element(p.y, y, at_y)); break;
        default: plus(at_w, element(p.x, x, at_x), element(p.y, y, at_y)); break;
        }
    }
};

// What the heuristics of a mode offer for a graph: engines with their knobs.
using Configuration = std::pair<int, std::vector<std::pair<int, int64_t>>>;
std::vector<Configuration> configurations(int mode, const Problem &p) {
    REQUIRE(mode == MODE_A || mode == MODE_B || mode == MODE_FALLBACK);
    bool half = p.operands() != Type::F32;
    if (p.dilation[0] == 2 && p.stride[0] == 3) {
        return {};
    }
    // What compiles kernels with bias and activation in them knows no 32-bit operands but as TF32.
    if (p.fused() && !half) {
        return mode == MODE_A ? std::vector<Configuration>{{ATOMIC, {}}, {ROUNDING, {}}} : std::vector<Configuration>{};
    }
    switch (mode) {
    case MODE_A: return {{ATOMIC, {}}, {ROUNDING, {}}, {TILES, {}}, {HUGE_ONE, {}}, {DIRECT, {{2, 1}, {99, 0}}}};
    case MODE_B: return {{DIRECT, {{2, 1}, {99, 0}}}, {COMPILED, {}}, {SHORT_SUMS, {}}, {REORDERING, {}}, {FUTURE, {}}};
    default: return {{FALLBACK, {}}};
    }
}

// What a descriptor of a kind that its user fills must be; what is looked up when it is finalized.
int finalize(Descriptor *d) {
    complete(d);
    switch (d->kind) {
    case TENSOR: tensor(d); break;
    case GRAPH: {
        known(d->one<Handle *>(800));
        Problem p = problem(d);
        // The exact GELU is in none of its patterns, and a weight's gradient in groups is of its operands' type.
        bool gelu = !p.act.empty() && p.act[0].mode == 104;
        bool wide = p.direction == BACKWARD_FILTER && p.groups > 1 && p.w.type != p.operands();
        if (gelu || wide) {
            return NOT_SUPPORTED;
        }
        break;
    }
    case HEURISTICS: d->other(201, GRAPH); break;
    case PLAN: {
        Descriptor *config = d->other(401, ENGINE_CONFIG);
        REQUIRE(d->one<Handle *>(400) == config->graph->one<Handle *>(800));
        d->engine = config->engine, d->graph = config->graph;
        // Engines that are not to be used.
        constexpr int BAD[] = {ATOMIC, TILES, SHORT_SUMS, REORDERING, FUTURE};
        REQUIRE(std::find(std::begin(BAD), std::end(BAD), d->engine) == std::end(BAD));
        int fault = planted[d->engine];
        if (fault == NO_PLAN || fault == STRANGE) {
            return fault == NO_PLAN ? COMPILATION_FAILED : STRANGE_STATUS;
        }
        break;
    }
    case PACK: REQUIRE(d->all<int64_t>(1000).size() == d->all<void *>(1001).size()); break;
    case POINTWISE:
    case CONVOLUTION:
    case FORWARD:
    case BACKWARD_DATA:
    case BACKWARD_FILTER:
    case POINTWISE_OPERATION: break;
    default: REQUIRE(!"a descriptor that is the library's to fill");
    }
    d->finalized = true;
    return SUCCESS;
}

size_t workspace_of(const Descriptor *plan) {
    bool large = plan->engine == HUGE_ONE || planted[plan->engine] == LARGE;
    return large ? (size_t)1 << 33 : plan->engine == FALLBACK ? 0 : problem(plan->graph).workspace();
}

// Fills descriptors that the caller has made.
template <class Fill> void fill(size_t there, int kind, int64_t wanted, int64_t *count, void *to, Fill fill) {
    std::vector<Descriptor *> out(there);
    for (size_t i = 0; i < there && i < (size_t)wanted; i++) {
        out[i] = ((Descriptor **)to)[i];
        known(out[i]);
        REQUIRE(out[i]->kind == kind && !out[i]->finalized && out[i]->attributes.empty());
        fill(i, *out[i]);
        out[i]->finalized = true;
    }
    give(out, wanted, count, to);
}

int get(Descriptor *d, int name, int type, int64_t wanted, int64_t *count, void *to) {
    known(d);
    REQUIRE(d->finalized && count);
    switch (name) {
    case 202: {
        REQUIRE(d->kind == HEURISTICS && type == DESCRIPTOR);
        Descriptor *graph = d->other(201, GRAPH);
        auto offered = configurations(d->one<int>(200), problem(graph));
        fill(offered.size(), ENGINE_CONFIG, wanted, count, to, [&](size_t i, Descriptor &config) {
            config.engine = offered[i].first, config.knobs = offered[i].second, config.graph = graph;
        });
        return SUCCESS;
    }
    case 300:
        REQUIRE(d->kind == ENGINE_CONFIG && type == DESCRIPTOR);
        fill(1, ENGINE, wanted, count, to, [&](size_t, Descriptor &e) { e.engine = d->engine, e.graph = d->graph; });
        return SUCCESS;
    case 302:
        REQUIRE(d->kind == ENGINE_CONFIG && type == DESCRIPTOR);
        fill(d->knobs.size(), KNOB_CHOICE, wanted, count, to, [&](size_t i, Descriptor &k) { k.knobs = {d->knobs[i]}; });
        return SUCCESS;
    case 402:
        REQUIRE(d->kind == PLAN && type == INT64 && wanted == 1);
        give(std::vector<int64_t>{(int64_t)workspace_of(d)}, wanted, count, to);
        return SUCCESS;
    case 600:
        REQUIRE(d->kind == KNOB_CHOICE && type == KNOB_TYPE && wanted == 1);
        give(std::vector<int>{d->knobs[0].first}, wanted, count, to);
        return SUCCESS;
    case 601:
        REQUIRE(d->kind == KNOB_CHOICE && type == INT64 && wanted == 1);
        give(std::vector<int64_t>{d->knobs[0].second}, wanted, count, to);
        return SUCCESS;
    case 1301:
        REQUIRE(d->kind == ENGINE && type == INT64 && wanted == 1);
        give(std::vector<int64_t>{d->engine}, wanted, count, to);
        return SUCCESS;
    case 1303:
        REQUIRE(d->kind == ENGINE && type == NUMERICAL_NOTE);
        give(numerical_notes(d->engine, problem(d->graph)), wanted, count, to);
        return SUCCESS;
    case 1305:
        REQUIRE(d->kind == ENGINE && type == BEHAVIOR_NOTE);
        give(behavior_notes(d->engine), wanted, count, to);
        return SUCCESS;
    default: REQUIRE(!"an attribute that is not asked for"); return SUCCESS;
    }
}

int execute(Handle *handle, Descriptor *plan, Descriptor *pack) {
    known(handle), known(plan), known(pack);
    REQUIRE(plan->kind == PLAN && plan->finalized && pack->kind == PACK && pack->finalized);
    REQUIRE(handle == plan->one<Handle *>(400) && handle->stream && has_context());
    // The plan refers to its configuration, and to all that its graph is made of.
    plan->other(401, ENGINE_CONFIG);
    Problem p = problem(plan->graph);
    auto uids = pack->all<int64_t>(1000);
    auto pointers = pack->all<void *>(1001);
    std::vector<const Tensor *> stored = {&p.x, &p.w, &p.y};
    for (const Tensor &bias : p.bias) {
        stored.push_back(&bias);
    }
    REQUIRE(uids.size() == stored.size());
    std::vector<void *> at;
    for (const Tensor *t : stored) {
        auto found = std::find(uids.begin(), uids.end(), t->uid);
        REQUIRE(found != uids.end());
        at.push_back(pointers[(size_t)(found - uids.begin())]);
        REQUIRE(at.back() && aligned(at.back(), (size_t)t->alignment));
    }
    auto *workspace = pack->one<void *>(1003);
    size_t bytes = workspace_of(plan);
    REQUIRE(bytes <= (size_t)256 << 20 && (!bytes || (workspace && aligned(workspace, 256))));
    // Kernels are loaded when they are first needed, which cannot be while a stream is captured.
    REQUIRE(plan->ran.exchange(true) || !capturing(handle->stream));
    if (planted[plan->engine] == NO_RUN) {
        return EXECUTION_FAILED;
    }
    void *result = p.direction == FORWARD ? at[2] : p.direction == BACKWARD_DATA ? at[0] : at[1];
    Work work{p, plan, plan->engine, at[0], at[1], at[2], p.bias.empty() ? nullptr : at[3], result, workspace, bytes, ++runs[plan->engine]};
    return enqueue(handle->stream, work) ? EXECUTION_FAILED : SUCCESS;
}

}  // namespace

EXPORT size_t cudnnGetVersion() { return 91000; }

EXPORT int cudnnCreate(Handle **handle) {
    REQUIRE(has_context());
    // Faults for a process that plants none itself: `3:4,1:4`.
    for (const char *at = getenv("FAKE_CUDNN"); at && *at; at += *at == ',') {
        int engine = (int)strtol(at, const_cast<char **>(&at), 10);
        REQUIRE(*at == ':' && engine >= 0 && engine < ENGINES);
        planted[engine] = (int)strtol(at + 1, const_cast<char **>(&at), 10);
    }
    made(handle, new Handle());
    return SUCCESS;
}

EXPORT int cudnnDestroy(Handle *handle) { return destroyed(handle); }

EXPORT int cudnnSetStream(Handle *handle, void *stream) {
    known(handle);
    handle->stream = stream;
    return SUCCESS;
}

EXPORT int cudnnBackendCreateDescriptor(int kind, Descriptor **at) {
    made(at, new Descriptor((Kind)kind));
    return SUCCESS;
}

EXPORT int cudnnBackendDestroyDescriptor(Descriptor *descriptor) { return destroyed(descriptor); }

EXPORT int cudnnBackendSetAttribute(Descriptor *descriptor, int name, int type, int64_t count, const void *values) {
    set(descriptor, name, type, count, values);
    return SUCCESS;
}

EXPORT int cudnnBackendGetAttribute(Descriptor *descriptor, int name, int type, int64_t wanted, int64_t *count, void *to) {
    return get(descriptor, name, type, wanted, count, to);
}

EXPORT int cudnnBackendFinalize(Descriptor *descriptor) {
    known(descriptor);
    return finalize(descriptor);
}

EXPORT int cudnnBackendExecute(Handle *handle, Descriptor *plan, Descriptor *pack) { return execute(handle, plan, pack); }

// Plants a fault in an engine, and tells how often an engine has run.
EXPORT void fake_plant(int engine, int fault) { planted[engine] = fault; }
EXPORT long fake_runs(int engine) { return runs[engine]; }
