// Memory of the emulated devices and pinned memory of the host. Every allocation ends at a page that may not be
// touched, as far as alignment allows; what is left between is filled with a pattern that is looked at again later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace emulated {

// A range of addresses, of which allocations take one part after the other; addresses are not used twice.
class Arena {
public:
    // Memory for `size` bytes, filled with 0xff; null if the machine has none left.
    char *allocate(size_t size);

    // Makes an allocation inaccessible. False if there is none at this address. `damage` names overwritten patterns.
    bool release(char *at, std::string &damage);

    // True if all of these bytes lie within one allocation.
    bool holds(const void *at, size_t bytes) const;

    // True for every address of the range.
    bool owns(const void *at) const { return (char *)at >= first && (char *)at < first + RANGE; }

    // Looks at the patterns around some allocations, others every time; false if one was overwritten.
    bool intact(std::string &damage);

    // What lies at an address of the range.
    std::string describe(const void *at) const;

    size_t used() const { return in_use; }

private:
    static constexpr size_t RANGE = size_t(2) << 40;

    bool intact_around(char *at, size_t size, std::string &damage) const;

    char *first = nullptr, *unused = nullptr;
    size_t in_use = 0;
    std::map<char *, size_t> live, freed;
    char *next_to_look_at = nullptr;
};

// Allocations begin at a multiple of this.
constexpr size_t ALIGNMENT = 256;

}  // namespace emulated
