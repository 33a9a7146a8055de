// Holds every access of a kernel to shared and global memory to CUDA's rules. It is at work if the kernels were compiled with
// calls at their accesses (`instrumented.cpp`); then one worker runs all blocks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "shadow.h"
#include "worker.h"

namespace emulated {

// A piece of global memory that a launch is given.
struct Extent {
    uintptr_t from, to;
    bool written;
    std::string what;
};

class Sanitizer {
public:
    Sanitizer() : in_shared(order, true), in_global(order, false) {}

    // A launch begins on this worker; behind its last block come what was found, and the error that it is, or 0.
    void begin_launch(const Launch &launch, Worker &worker);
    int end_launch(std::string &message);

    void begin_block();
    void block_met() { order.next_interval(); }
    void warp_met(unsigned warp, unsigned lanes) { order.join(warp, lanes); }

    // The current thread's access, from the instruction at this distance in the library.
    void access(const void *at, size_t bytes, Kind kind, uint32_t place);

    // An asynchronous copy of a thread is begun, and arrives.
    void copy_begins(const void *shared, const void *global, unsigned bytes, uint32_t place);
    void copy_arrives(const void *shared, uint32_t place);

    // Findings so far, and launches whose operands are not registered.
    int64_t findings = 0, unknown = 0;

private:
    struct Region {
        uintptr_t from = 0;
        size_t bytes = 0;
        Cell *cells = nullptr;
        bool holds(uintptr_t at) const { return at - from < bytes; }
    };

    void shared_access(const Region &region, uintptr_t at, size_t bytes, Kind kind, uint32_t place);
    void global_access(uintptr_t at, size_t bytes, Kind kind, uint32_t place);
    Cell *cells_at(uintptr_t at);
    void held(uintptr_t at, size_t bytes, Kind kind, uint32_t place);
    void found(int code, uint32_t place, uint32_t other, const std::string &what);
    void raced(const Conflict &conflict, Kind kind, size_t bytes, uint32_t place, const std::string &where_to);
    std::string thread_name(unsigned number) const;
    std::string block_name(uint64_t stamp) const;

    Order order;
    Shadow in_shared, in_global;
    Pages pages;
    Region dynamic, fixed;
    uintptr_t thread_variables_from = 0;
    const Launch *launch = nullptr;
    Worker *runner = nullptr;
    size_t last_extent = 0;
    // For each block of the launch that has begun, its first interval and which it is.
    std::vector<std::pair<uint32_t, Dim>> begun;
    // What this launch has been found to do, as pairs of places; and of all launches, to be reported once.
    std::set<std::pair<uint32_t, uint32_t>> pairs;
    std::set<std::string> reported;
    std::string message;
    int error = 0;
};

// Null in the build that is not instrumented.
extern Sanitizer *sanitizer;

// The instruction that a call came from, as its distance in the library.
uint32_t place_of(const void *return_address);

// `tile` of static shared memory, from its first byte's distance from that of the library's thread variables on; `inside` is the
// byte's distance from the variable's first.
std::string shared_variable(size_t distance, size_t &inside);

// `kernels/pool.cu:12`, or where that is unknown, the distance.
std::string line_of(uint32_t place);

// A kernel's arguments as one key, by which the operands of a launch are found when it runs.
std::string key_of(const char *kernel, Dim grid, Dim block, const std::vector<unsigned char> &values);
std::shared_ptr<const std::vector<Extent>> operands_of(const std::string &key);

}  // namespace emulated
