#include "async_copy.h"

#include <cstring>

#include "sanitizer.h"

namespace emulated {

void AsyncCopies::begin(unsigned threads) {
    if (used && sanitizer) {
        forget();
    }
    if (used || groups.size() < threads) {
        groups.assign(threads, {});
        used = false;
    }
}

// What the block before has begun and not waited for.
void AsyncCopies::forget() {
    for (const auto &own : groups) {
        for (const auto &group : own) {
            for (const Copy &c : group) {
                sanitizer->copy_arrives(c.to, 0);
            }
        }
    }
}

void AsyncCopies::copy(unsigned thread, const Copy &copy) {
    auto &own = groups[thread];
    if (own.empty()) {
        own.emplace_back();
    }
    own.back().push_back(copy);
    used = true;
}

void AsyncCopies::commit(unsigned thread) {
    auto &own = groups[thread];
    if (own.empty()) {
        own.emplace_back();
    }
    own.emplace_back();
    used = true;
}

void AsyncCopies::wait(unsigned thread, unsigned pending) {
    auto &own = groups[thread];
    while (own.size() > (size_t)pending + 1) {
        for (const Copy &c : own.front()) {
            memcpy(c.to, c.from, c.bytes);
            memset((char *)c.to + c.bytes, 0, 16 - c.bytes);
            if (sanitizer) {
                sanitizer->copy_arrives(c.to, c.place);
            }
        }
        own.pop_front();
    }
}

}  // namespace emulated
