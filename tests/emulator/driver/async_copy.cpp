#include "async_copy.h"

#include <cstring>

namespace emulated {

void AsyncCopies::begin(unsigned threads) {
    if (used || groups.size() < threads) {
        groups.assign(threads, {});
        used = false;
    }
}

void AsyncCopies::copy(unsigned thread, void *shared, const void *global, unsigned bytes) {
    auto &own = groups[thread];
    if (own.empty()) {
        own.emplace_back();
    }
    own.back().push_back({shared, global, bytes});
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
        }
        own.pop_front();
    }
}

}  // namespace emulated
