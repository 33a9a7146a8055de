// The memory that a program under test gives its launches, as it registers it. And what the checks against it found.

#include <cstring>
#include <map>

#include "queue.h"
#include "sanitizer.h"

using namespace emulated;

namespace {

typedef std::shared_ptr<const std::vector<Extent>> Extents;

std::map<std::string, Extents> &known() {
    static auto *all = new std::map<std::string, Extents>();
    return *all;
}

}  // namespace

std::string emulated::key_of(const char *kernel, Dim grid, Dim block, const std::vector<unsigned char> &values) {
    std::string key = kernel;
    key.push_back('\0');
    key.append((const char *)&grid, sizeof grid);
    key.append((const char *)&block, sizeof block);
    key.append((const char *)values.data(), values.size());
    return key;
}

std::shared_ptr<const std::vector<Extent>> emulated::operands_of(const std::string &key) {
    auto found = known().find(key);
    return found == known().end() ? nullptr : found->second;
}

// As `struct Operand` in `mod.rs` has it.
struct Operand {
    const char *what;
    uint64_t address, bytes;
    int written;
};

// Launches of `kernel` with these blocks, threads (x, y, z of each) and arguments, each at the front of 8 bytes, are given this
// memory. A launch that is registered twice has the memory of both calls. 0 if the kernels are not
// instrumented, or there is none of this name.
API emulated_operands(const char *kernel, const unsigned *size, const uint64_t *cells, size_t count, const Operand *given, size_t operands) {
    std::lock_guard<std::mutex> guard(lock);
    const Kernel *found = find_kernel(kernel);
    if (!sanitizer || !found || found->count != count) {
        return 0;
    }
    std::vector<unsigned char> values = argument_bytes(*found);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        memcpy(values.data() + at, &cells[i], found->arguments[i].size < 8 ? found->arguments[i].size : 8);
        at += (found->arguments[i].size + 15u) & ~15u;
    }
    std::string key = key_of(kernel, {size[0], size[1], size[2]}, {size[3], size[4], size[5]}, values);
    Extents before = operands_of(key);
    std::vector<Extent> extents = before ? *before : std::vector<Extent>();
    for (size_t i = 0; i < operands; i++) {
        uintptr_t from = given[i].address;
        Extent extent = {from, from + given[i].bytes, given[i].written != 0, given[i].what};
        bool there = false;
        for (const Extent &e : extents) {
            there = there || (e.from == extent.from && e.to == extent.to && e.written == extent.written);
        }
        if (!there) {
            extents.push_back(extent);
        }
    }
    known()[key] = std::make_shared<const std::vector<Extent>>(std::move(extents));
    return 1;
}

// Whether the kernels are instrumented.
API emulated_sanitizes() { return sanitizer != nullptr; }

// What was found so far, and how many launches ran whose operands were not registered.
extern "C" __attribute__((visibility("default"))) long long emulated_findings() {
    std::lock_guard<std::mutex> guard(lock);
    return sanitizer ? sanitizer->findings : 0;
}
extern "C" __attribute__((visibility("default"))) long long emulated_unknown_launches() {
    std::lock_guard<std::mutex> guard(lock);
    return sanitizer ? sanitizer->unknown : 0;
}
