#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace emulated {

constexpr unsigned char PATTERN = 0xa5, FRESH = 0xff;

static size_t page_size() {
    static const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    return size;
}

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// First page of an allocation at this address.
static char *page_of(char *at) { return (char *)((uintptr_t)at / page_size() * page_size()); }

char *Arena::allocate(size_t size) {
    if (!first) {
        void *range = mmap(nullptr, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range == MAP_FAILED) {
            return nullptr;
        }
        first = unused = (char *)range;
    }
    size_t padded = round_up(size, ALIGNMENT), pages = round_up(padded, page_size());
    if (pages + page_size() > (size_t)(first + RANGE - unused) ||
        mprotect(unused, pages, PROT_READ | PROT_WRITE) != 0) {
        return nullptr;
    }
    char *at = unused + pages - padded;
    memset(unused, PATTERN, pages - padded);
    memset(at, FRESH, size);
    memset(at + size, PATTERN, padded - size);
    unused += pages + page_size();
    live[at] = size;
    in_use += padded;
    return at;
}

// The first byte that is no longer the pattern, or null.
static char *overwritten(char *from, char *to) {
    // Whether every byte is as the one ahead of it, which `memcmp` answers quickly.
    if (from == to || ((unsigned char)*from == PATTERN && !memcmp(from, from + 1, (size_t)(to - from - 1)))) {
        return nullptr;
    }
    while ((unsigned char)*from == PATTERN) {
        from++;
    }
    return from;
}

bool Arena::intact_around(char *at, size_t size, std::string &damage) const {
    char *end = at + round_up(size, ALIGNMENT);
    std::string distance;
    if (char *c = overwritten(page_of(at), at)) {
        distance = std::to_string(at - c) + " bytes ahead";
    } else if (char *d = overwritten(at + size, end)) {
        distance = std::to_string(d - at - (ptrdiff_t)size) + " bytes behind the end";
    } else {
        return true;
    }
    damage = "something was written " + distance + " of an allocation of " + std::to_string(size) + " bytes";
    return false;
}

bool Arena::release(char *at, std::string &damage) {
    auto found = live.find(at);
    if (found == live.end()) {
        return false;
    }
    size_t size = found->second, padded = round_up(size, ALIGNMENT);
    intact_around(at, size, damage);
    // A fresh mapping gives the memory back, and merges with its neighbours.
    char *page = page_of(at);
    mmap(page, (size_t)(at + padded - page), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    live.erase(found);
    freed[at] = size;
    in_use -= padded;
    return true;
}

bool Arena::holds(const void *at, size_t bytes) const {
    auto after = live.upper_bound((char *)at);
    if (after == live.begin()) {
        return false;
    }
    auto found = std::prev(after);
    size_t inside = (size_t)((char *)at - found->first);
    return inside <= found->second && bytes <= found->second - inside;
}

bool Arena::intact(std::string &damage) {
    // Bounded, so that a synchronisation costs the same whatever has been allocated.
    auto at = live.lower_bound(next_to_look_at);
    for (size_t left = live.size() < 16 ? live.size() : 16; left > 0; left--) {
        if (at == live.end()) {
            at = live.begin();
        }
        if (!intact_around(at->first, at->second, damage)) {
            return false;
        }
        ++at;
    }
    next_to_look_at = at == live.end() ? nullptr : at->first;
    return true;
}

std::string Arena::describe(const void *at) const {
    std::string text;
    for (auto *blocks : {&live, &freed}) {
        auto after = blocks->upper_bound((char *)at);
        if (after == blocks->begin()) {
            continue;
        }
        auto found = std::prev(after);
        size_t inside = (size_t)((char *)at - found->first);
        if (blocks == &freed && inside < found->second) {
            return "freed memory, byte " + std::to_string(inside) + " of what was " + std::to_string(found->second);
        }
        if (blocks == &live) {
            text = "byte " + std::to_string(inside) + " of an allocation of " + std::to_string(found->second);
        }
    }
    return text.empty() ? "an address ahead of all allocations" : text;
}

}  // namespace emulated
