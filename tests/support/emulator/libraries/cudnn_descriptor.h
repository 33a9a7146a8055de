// Descriptors of the tests' cuDNN: attributes by name, held to what the documentation says of each kind's.
#pragma once

#include <map>

#include "fake.h"

namespace fake {

enum Kind {
    POINTWISE = 0,
    CONVOLUTION = 1,
    ENGINE = 2,
    ENGINE_CONFIG = 3,
    HEURISTICS = 4,
    PLAN = 5,
    KNOB_CHOICE = 7,
    FORWARD = 10,
    BACKWARD_FILTER = 11,
    BACKWARD_DATA = 12,
    POINTWISE_OPERATION = 13,
    GRAPH = 15,
    PACK = 16,
    TENSOR = 17,
};

enum AttributeType {
    HANDLE = 0,
    DATA_TYPE = 1,
    BOOLEAN = 2,
    INT64 = 3,
    FLOAT = 4,
    DOUBLE = 5,
    VOID_PTR = 6,
    CONVOLUTION_MODE = 7,
    HEUR_MODE = 8,
    KNOB_TYPE = 9,
    NAN_PROPAGATION = 10,
    NUMERICAL_NOTE = 11,
    POINTWISE_MODE = 14,
    DESCRIPTOR = 15,
    BEHAVIOR_NOTE = 19,
};

inline size_t size_of_attribute(int type) {
    switch (type) {
    case BOOLEAN: return 1;
    case HANDLE:
    case INT64:
    case DOUBLE:
    case VOID_PTR:
    case DESCRIPTOR: return 8;
    default: return 4;
    }
}

// An attribute that may be set: of which kind of descriptor, as what, how often, and whether it must be.
struct Rule {
    int kind, name, type, least, most;
    bool needed;
};

constexpr Rule RULES[] = {
    {POINTWISE, 0, POINTWISE_MODE, 1, 1, true},
    {POINTWISE, 1, DATA_TYPE, 1, 1, true},
    {POINTWISE, 2, NAN_PROPAGATION, 1, 1, false},
    {POINTWISE, 3, DOUBLE, 1, 1, false},
    {POINTWISE, 4, DOUBLE, 1, 1, false},
    {POINTWISE, 5, DOUBLE, 1, 1, false},
    {POINTWISE, 6, DOUBLE, 1, 1, false},
    {POINTWISE, 8, DOUBLE, 1, 1, false},
    {CONVOLUTION, 100, DATA_TYPE, 1, 1, true},
    {CONVOLUTION, 101, CONVOLUTION_MODE, 1, 1, true},
    {CONVOLUTION, 102, INT64, 2, 2, true},
    {CONVOLUTION, 103, INT64, 2, 2, true},
    {CONVOLUTION, 104, INT64, 2, 2, true},
    {CONVOLUTION, 105, INT64, 2, 2, true},
    {CONVOLUTION, 106, INT64, 1, 1, true},
    {HEURISTICS, 200, HEUR_MODE, 1, 1, true},
    {HEURISTICS, 201, DESCRIPTOR, 1, 1, true},
    {PLAN, 400, HANDLE, 1, 1, true},
    {PLAN, 401, DESCRIPTOR, 1, 1, true},
    {FORWARD, 700, FLOAT, 1, 1, true},
    {FORWARD, 701, FLOAT, 1, 1, true},
    {FORWARD, 702, DESCRIPTOR, 1, 1, true},
    {FORWARD, 703, DESCRIPTOR, 1, 1, true},
    {FORWARD, 704, DESCRIPTOR, 1, 1, true},
    {FORWARD, 705, DESCRIPTOR, 1, 1, true},
    {BACKWARD_DATA, 706, FLOAT, 1, 1, true},
    {BACKWARD_DATA, 707, FLOAT, 1, 1, true},
    {BACKWARD_DATA, 708, DESCRIPTOR, 1, 1, true},
    {BACKWARD_DATA, 709, DESCRIPTOR, 1, 1, true},
    {BACKWARD_DATA, 710, DESCRIPTOR, 1, 1, true},
    {BACKWARD_DATA, 711, DESCRIPTOR, 1, 1, true},
    {BACKWARD_FILTER, 712, FLOAT, 1, 1, true},
    {BACKWARD_FILTER, 713, FLOAT, 1, 1, true},
    {BACKWARD_FILTER, 714, DESCRIPTOR, 1, 1, true},
    {BACKWARD_FILTER, 715, DESCRIPTOR, 1, 1, true},
    {BACKWARD_FILTER, 716, DESCRIPTOR, 1, 1, true},
    {BACKWARD_FILTER, 717, DESCRIPTOR, 1, 1, true},
    {POINTWISE_OPERATION, 750, DESCRIPTOR, 1, 1, true},
    {POINTWISE_OPERATION, 751, DESCRIPTOR, 1, 1, true},
    {POINTWISE_OPERATION, 752, DESCRIPTOR, 1, 1, false},
    {POINTWISE_OPERATION, 753, DESCRIPTOR, 1, 1, true},
    {POINTWISE_OPERATION, 754, FLOAT, 1, 1, true},
    {POINTWISE_OPERATION, 755, FLOAT, 1, 1, true},
    {GRAPH, 800, HANDLE, 1, 1, true},
    {GRAPH, 801, DESCRIPTOR, 1, 3, true},
    {TENSOR, 900, INT64, 1, 1, true},
    {TENSOR, 901, DATA_TYPE, 1, 1, true},
    {TENSOR, 902, INT64, 4, 4, true},
    {TENSOR, 903, INT64, 4, 4, true},
    {TENSOR, 906, INT64, 1, 1, true},
    {TENSOR, 907, BOOLEAN, 1, 1, false},
    {PACK, 1000, INT64, 1, 8, true},
    {PACK, 1001, VOID_PTR, 1, 8, true},
    {PACK, 1003, VOID_PTR, 1, 1, true},
};

struct Descriptor {
    Kind kind;
    bool finalized = false;
    std::map<int, std::vector<uint8_t>> attributes;
    // What the library itself knows of engines, configurations and choices of knobs.
    int engine = -1;
    std::vector<std::pair<int, int64_t>> knobs;
    // The graph of a configuration.
    Descriptor *graph = nullptr;
    // A plan has run, which loads its kernels.
    std::atomic<bool> ran{false};

    explicit Descriptor(Kind kind) : kind(kind) {}

    bool has(int name) const { return attributes.count(name); }

    template <class T> std::vector<T> all(int name) const {
        auto found = attributes.find(name);
        REQUIRE(found != attributes.end());
        std::vector<T> values(found->second.size() / sizeof(T));
        memcpy(values.data(), found->second.data(), values.size() * sizeof(T));
        return values;
    }

    template <class T> T one(int name) const { return all<T>(name).at(0); }

    // Another descriptor, which must still be there: the library refers to it.
    Descriptor *other(int name, int kind) const {
        auto *descriptor = one<Descriptor *>(name);
        known(descriptor);
        REQUIRE(descriptor->finalized && (kind < 0 || descriptor->kind == kind));
        return descriptor;
    }
};

inline void set(Descriptor *descriptor, int name, int type, int64_t count, const void *values) {
    known(descriptor);
    REQUIRE(!descriptor->finalized && values && count > 0);
    const Rule *rule = nullptr;
    for (const Rule &one : RULES) {
        if (one.kind == descriptor->kind && one.name == name) {
            rule = &one;
        }
    }
    REQUIRE(rule && rule->type == type && count >= rule->least && count <= rule->most);
    auto bytes = (const uint8_t *)values;
    descriptor->attributes[name].assign(bytes, bytes + (size_t)count * size_of_attribute(type));
    if (type == DESCRIPTOR) {
        for (auto *other : descriptor->all<Descriptor *>(name)) {
            known(other);
            REQUIRE(other->finalized);
        }
    }
}

// All attributes that a descriptor must have are there.
inline void complete(const Descriptor *descriptor) {
    REQUIRE(!descriptor->finalized);
    for (const Rule &rule : RULES) {
        REQUIRE(rule.kind != descriptor->kind || !rule.needed || descriptor->has(rule.name));
    }
}

// Answers with as many of `values` as were asked for, and says how many there are.
template <class T> void give(const std::vector<T> &values, int64_t wanted, int64_t *count, void *to) {
    REQUIRE(count && wanted >= 0 && (wanted == 0 || to));
    *count = (int64_t)values.size();
    memcpy(to, values.data(), std::min((size_t)wanted, values.size()) * (to ? sizeof(T) : 0));
}

}  // namespace fake
