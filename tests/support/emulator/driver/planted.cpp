// Faults that a test plants, named in the environment: `NAME=CODE` for every time, `NAME=CODE@N` for the N-th.

#include "planted.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace emulated {

namespace {

struct Planted {
    std::string name;
    int code = 0;
    // 0: every time.
    long turn = 0;
    std::atomic<long> seen{0};

    explicit Planted(const char *variable) {
        const char *text = getenv(variable);
        if (!text) {
            return;
        }
        const char *equals = strchr(text, '=');
        name = equals ? std::string(text, (size_t)(equals - text)) : text;
        char *end = nullptr;
        code = equals ? (int)strtol(equals + 1, &end, 10) : 1;
        turn = end && *end == '@' ? strtol(end + 1, nullptr, 10) : 0;
    }

    int answer(const char *of) {
        if (!code || name != of) {
            return 0;
        }
        long now = ++seen;
        return !turn || now == turn ? code : 0;
    }
};

// Functions that do their work in another one, which has the check.
const char *const ALIASES[][2] = {
    {"fill", "cuMemsetD8Async"},
    {"free_host", "cuMemFreeHost"},
    {"cuStreamCreateWithPriority", "cuStreamCreate"},
    {"cuEventElapsedTime_v2", "cuEventElapsedTime"},
};

}  // namespace

int planted_answer(const char *function) {
    static Planted planted("EMULATED_FAIL");
    if (!planted.code) {
        return 0;
    }
    for (auto &alias : ALIASES) {
        function = strcmp(alias[0], function) ? function : alias[1];
    }
    return planted.answer(function);
}

int planted_fault(const char *kernel) {
    static Planted planted("EMULATED_FAULT");
    return planted.answer(kernel);
}

void plant_overrun(Launch &launch) {
    static Planted planted("EMULATED_OVERRUN");
    if (!planted.answer(launch.kernel->name)) {
        return;
    }
    for (unsigned i = 0; i < launch.kernel->count; i++) {
        if (launch.kernel->arguments[i].size == 8 && !launch.kernel->arguments[i].pointer) {
            int64_t elements;
            memcpy(&elements, launch.arguments[i], 8);
            elements += 64;
            memcpy(launch.arguments[i], &elements, 8);
            return;
        }
    }
}

}  // namespace emulated
