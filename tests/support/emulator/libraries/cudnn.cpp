// A cuDNN for the emulated driver: convolutions as the library's documentation defines them, on tensors whose channels
// come last, with bias and activation, described by graphs of operations and computed one by one on the emulated stream.
// No tolerance for calls that the documentation does not allow. `fake_plant` makes an engine do what it should not.

#include <unistd.h>

#include <algorithm>

#include "cudnn_problem.h"

using namespace fake;

namespace {

enum Status {
    SUCCESS = 0,
    NOT_SUPPORTED = 3000,
    COMPILATION_FAILED = 4001,
    EXECUTION_FAILED = 5000,
    // Of an unknown version.
    STRANGE_STATUS = 123456,
};

enum Note {
    TENSOR_CORE = 0,
    DOWN_CONVERT = 1,
    REDUCED = 2,
    NONDETERMINISTIC = 4,
    WINOGRAD = 5,
    WINOGRAD_6x6 = 7,
    STRICT_NAN = 9,
    UNKNOWN = 77,
};
enum Behavior { COMPILES = 0, REORDERS = 1, UNKNOWN_BEHAVIOR = 78 };
enum HeuristicsMode { MODE_B = 1, MODE_FALLBACK = 2, MODE_A = 3 };

// What can be planted: an engine that is wrong in a number, that adds to what lies in the result, that gives other bits every
// time, that cannot be finalized or run, that is too large or slow, also where the result is wider than the operands alone, or
// rounds operands without saying so.
enum Fault { NONE, WRONG, NAN_RESULT, UNSTEADY, NO_PLAN, NO_RUN, LARGE, SLOW, STRANGE, TO_HALF, TO_TF32, SLOW_WIDE };

constexpr int ENGINES = 10;

// The engines. Those that are not to be used end the program when a plan of them is made.
enum Engine { ATOMIC, ROUNDING, TILES, DIRECT, COMPILED, SHORT_SUMS, FALLBACK, REORDERING, HUGE_ONE, FUTURE };

std::atomic<int> planted[ENGINES];
std::atomic<long> runs[ENGINES];

struct Handle {
    void *stream = nullptr;
};

std::vector<int> numerical_notes(int engine, const Problem &p) {
    bool half = p.operands() != Type::F32;
    switch (engine) {
    case ATOMIC: return {TENSOR_CORE, NONDETERMINISTIC};
    case ROUNDING: return half ? std::vector<int>{TENSOR_CORE} : std::vector<int>{TENSOR_CORE, DOWN_CONVERT};
    case TILES: return {WINOGRAD, WINOGRAD_6x6};
    case COMPILED: return half ? std::vector<int>{TENSOR_CORE} : std::vector<int>{STRICT_NAN};
    case SHORT_SUMS: return {REDUCED};
    case FUTURE: return {UNKNOWN};
    default: return half ? std::vector<int>{TENSOR_CORE} : std::vector<int>{};
    }
}

std::vector<int> behavior_notes(int engine) {
    switch (engine) {
    case COMPILED: return {COMPILES, UNKNOWN_BEHAVIOR};
    case REORDERING: return {REORDERS};
    default: return {};
    }
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
        bool wide = p.result().type != p.operands();
        if (planted[engine] == SLOW || (planted[engine] == SLOW_WIDE && wide)) {
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
        // The exact GELU is in none of its patterns. A weight's gradient in groups is of its operands' type, and that of FP16
        // unless it is copied.
        bool gelu = !p.act.empty() && p.act[0].mode == 104;
        bool wide = p.direction == BACKWARD_FILTER && p.w.type != p.operands();
        if (gelu || (wide && (p.groups > 1 || (p.act.empty() && p.operands() == Type::F16)))) {
            return NOT_SUPPORTED;
        }
        break;
    }
    case HEURISTICS: d->other(201, GRAPH); break;
    case PLAN: {
        Descriptor *config = d->other(401, ENGINE_CONFIG);
        known(d->one<Handle *>(400)), known(config->graph->one<Handle *>(800));
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
    void *bias = p.bias.empty() ? nullptr : at[3];
    Work work{p, plan, plan->engine, at[0], at[1], at[2], bias, result, workspace, bytes, ++runs[plan->engine]};
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

// Plants a fault in an engine, and counts how often an engine has run.
EXPORT void fake_plant(int engine, int fault) { planted[engine] = fault; }
EXPORT long fake_runs(int engine) { return runs[engine]; }
