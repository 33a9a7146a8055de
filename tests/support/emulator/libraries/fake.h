// What the libraries of the tests have in common: strict checks, types of elements, and work on the emulated streams.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

// A call that the real library might take, or might not, or would answer with wrong numbers: the test must not go on.
#define REQUIRE(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s does not hold: %s\n", __FILE__, __LINE__, __func__, #condition);                \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

namespace fake {

// Calls that were made.
inline std::atomic<long> calls{0};

// Descriptors and handles that live.
inline std::mutex lock;
inline std::set<const void *> alive;

template <class T> void made(T **at, T *object) {
    REQUIRE(at);
    *at = object;
    std::lock_guard<std::mutex> guard(lock);
    alive.insert(object);
}

template <class T> int destroyed(T *object) {
    std::lock_guard<std::mutex> guard(lock);
    REQUIRE(alive.erase(object) == 1);
    delete object;
    return 0;
}

inline void known(const void *object) {
    std::lock_guard<std::mutex> guard(lock);
    REQUIRE(alive.count(object));
}

// True when it is called with these numbers for the first time.
inline bool first(uint64_t a, uint64_t b) {
    static std::set<std::pair<uint64_t, uint64_t>> seen;
    std::lock_guard<std::mutex> guard(lock);
    return seen.insert({a, b}).second;
}

// ---- Elements -------------------------------------------------------------------------------------------------------

enum class Type { F32, BF16, F16 };

inline size_t size_of(Type type) { return type == Type::F32 ? 4 : 2; }

inline float bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

inline uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

inline float load(Type type, const void *base, size_t i) {
    if (type == Type::F32) {
        return ((const float *)base)[i];
    }
    uint32_t half = ((const uint16_t *)base)[i];
    if (type == Type::BF16) {
        return bits_float(half << 16);
    }
    uint32_t exponent = half >> 10 & 31, mantissa = half & 1023;
    float magnitude = exponent == 31  ? bits_float(0x7f800000u | mantissa << 13)
                      : exponent == 0 ? (float)mantissa * 0x1p-24f
                                      : bits_float((exponent + 112) << 23 | mantissa << 13);
    return half >> 15 ? -magnitude : magnitude;
}

// To the nearest number with so many fewer bits, ties to even.
inline uint32_t shortened(uint32_t bits, unsigned by) { return bits + ((1u << (by - 1)) - 1) + (bits >> by & 1); }

inline void store(Type type, void *base, size_t i, float x) {
    if (type == Type::F32) {
        ((float *)base)[i] = x;
        return;
    }
    uint32_t bits = float_bits(x), sign = bits >> 31;
    uint16_t half;
    if (type == Type::BF16) {
        half = x != x ? 0x7fc0 : (uint16_t)(shortened(bits, 16) >> 16);
    } else {
        uint32_t magnitude = bits & 0x7fffffffu;
        uint32_t shape;
        if (x != x) {
            shape = 0x7e00;
        } else if (magnitude < 0x38800000u) {
            // Below the normal numbers: whole multiples of 2^-24, which the addition rounds to.
            shape = float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f);
        } else {
            shape = (shortened(magnitude, 13) >> 13) - (112u << 10);
            shape = shape < 0x7c00u ? shape : 0x7c00u;
        }
        half = (uint16_t)(sign << 15 | shape);
    }
    ((uint16_t *)base)[i] = half;
}

// As tensor cores see 32-bit operands where that is allowed.
inline float tf32(float x) { return bits_float(shortened(float_bits(x), 13) & ~8191u); }

// ---- The emulated driver --------------------------------------------------------------------------------------------

inline void *driver(const char *name) {
    static void *library = dlopen("libcuda.so", RTLD_NOW);
    void *symbol = library ? dlsym(library, name) : nullptr;
    REQUIRE(symbol);
    return symbol;
}

// In work that runs: all of these bytes lie within one allocation of a device.
inline bool holds(const void *at, size_t bytes) {
    static auto ask = (int (*)(const void *, size_t))driver("emulated_holds");
    return ask(at, bytes);
}

// Puts `work` on a stream, or into its capture. An error of CUDA.
inline int enqueue(void *stream, std::function<void()> work) {
    static auto put = (int (*)(void *, void (*)(void *), void *, void (*)(void *)))driver("emulated_enqueue");
    auto run = [](void *data) { (*(std::function<void()> *)data)(); };
    auto release = [](void *data) { delete (std::function<void()> *)data; };
    calls++;
    return put(stream, run, new std::function<void()>(std::move(work)), release);
}

// Puts work on a stream, or into its capture, that waits for others: `begin` is called when it is its turn, and what it gives is called until it is
// true. An error of CUDA.
inline int enqueue_waiting(void *stream, std::function<std::function<bool()>()> begin) {
    using Begin = std::function<std::function<bool()>()>;
    using Poll = std::function<bool()>;
    static auto put = (int (*)(void *, void *(*)(void *), int (*)(void *), void (*)(void *), void *, void (*)(void *)))driver(
        "emulated_enqueue_waiting");
    auto start = [](void *data) -> void * { return new Poll((*(Begin *)data)()); };
    auto poll = [](void *poll) { return (int)(*(Poll *)poll)(); };
    auto end = [](void *poll) { delete (Poll *)poll; };
    auto release = [](void *data) { delete (Begin *)data; };
    calls++;
    return put(stream, start, poll, end, new Begin(std::move(begin)), release);
}

// True for an operation on a stream that is being captured.
inline bool capturing(void *stream) {
    static auto ask = (int (*)(void *, int *))driver("cuStreamIsCapturing");
    int status = 0;
    REQUIRE(ask(stream, &status) == 0);
    return status != 0;
}

inline bool has_context() {
    static auto ask = (int (*)(void **))driver("cuCtxGetCurrent");
    void *context = nullptr;
    return ask(&context) == 0 && context;
}

inline bool aligned(const void *at, size_t to) { return (uintptr_t)at % to == 0; }

// A workspace is the callee's: whatever was there is gone.
inline void spoil(void *at, size_t bytes) {
    if (bytes) {
        REQUIRE(holds(at, bytes));
        memset(at, 0xff, bytes);
    }
}

}  // namespace fake

// Calls that were enqueued since the library was loaded.
EXPORT long fake_calls() { return fake::calls; }
// Descriptors and handles that have not been destroyed.
EXPORT long fake_live() {
    std::lock_guard<std::mutex> guard(fake::lock);
    return (long)fake::alive.size();
}
