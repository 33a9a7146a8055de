// Runs the blocks of a launch: one fiber for every CUDA thread that has to wait, none for those that do not.
#pragma once

#include <atomic>
#include <csetjmp>
#include <memory>
#include <string>
#include <vector>

#include "../device/types.h"

#include "../device/block.h"
#include "../device/register.h"
#include "../device/warp.h"
#include "async_copy.h"
#include "fiber.h"

namespace emulated {

// Of a block, as every GPU since 2017 has it.
constexpr unsigned MAX_THREADS = 1024;
constexpr unsigned MAX_DYNAMIC_SHARED = 227 * 1024;

struct Extent;

struct Launch {
    const Kernel *kernel;
    Dim grid, block;
    unsigned shared_bytes;
    // The arguments' values, each from a multiple of 16 bytes on.
    std::vector<unsigned char> values;
    std::vector<void *> arguments;
    // The memory that it is given, if it is registered.
    std::shared_ptr<const std::vector<Extent>> operands;
};

// The kernel of this name, or null.
const Kernel *find_kernel(const char *name);

// Room for a kernel's arguments, each from a multiple of 16 bytes on.
std::vector<unsigned char> argument_bytes(const Kernel &kernel);

// What the workers of one launch share.
struct Run {
    const Launch *launch;
    uint64_t blocks;
    // Block number i in time is number (i * stride + offset) % blocks in space.
    uint64_t stride = 1, offset = 0;
    // Threads that have not started yet do so from the last to the first.
    bool backwards = false;
    std::atomic<uint64_t> next{0};
    std::atomic<int> error{0};
    std::string message;
};

// A CUDA thread, or the successive ones that need no stack of their own.
struct Fiber {
    Context context;
    char *stack;
    Dim thread;
    unsigned number;  // of the thread in its block
    // What it waits for: a barrier at a line, or lanes of its warp.
    int line;
    unsigned mask;
    void *payload;
    Combine combine;
};

class Worker {
public:
    Worker();
    Worker(const Worker &) = delete;

    // Runs blocks until none is left, or one has failed.
    void run(Run &run);

    unsigned block_barrier(bool vote, int line);
    void warp_collective(unsigned mask, void *payload, Combine combine, int line);
    [[noreturn]] void fail(int code, const char *what, int line);
    // Called by the handler of signals: leaves the fiber for good.
    [[noreturn]] void fault(int code, const std::string &what);
    void *dynamic_shared() const { return shared; }
    uintptr_t end_of_shared() const { return (uintptr_t)shared_end; }
    AsyncCopies &async_copies() { return copies; }
    // The number in its block of the thread that runs now.
    unsigned thread_number() const { return current->number; }
    // True for the page behind dynamic shared memory.
    bool behind_shared(const void *at) const;

private:
    struct Warp {
        unsigned exited, waiting;
    };

    AsyncCopies copies;

    void run_block(uint64_t number);
    void start();
    void resume(Fiber *fiber);
    void wait();
    void run_threads();
    void thread_exits(unsigned number);
    bool release_warp(unsigned warp, unsigned mask, int line);
    void report(int code, const std::string &what, const Fiber *fiber);
    void deadlock();
    std::string thread_name(const Fiber &fiber) const;
    static void fiber_main();

    Run *current_run = nullptr;
    Context scheduler;
    sigjmp_buf escape;
    char *shared_end, *shared = nullptr;
    Fiber *current = nullptr;
    std::vector<Fiber *> all, idle;
    // Ring of fibers that may go on; a fiber is in it once at most.
    Fiber *ready[MAX_THREADS];
    unsigned ready_first = 0, ready_count = 0;
    Fiber *at_barrier[MAX_THREADS];
    unsigned barrier_count = 0, votes = 0, result = 0;
    Fiber *by_thread[MAX_THREADS];
    Warp warps[MAX_THREADS / 32];
    unsigned threads = 0, next = 0, exited = 0;
};

// The worker of this operating system thread while it runs blocks.
extern __thread Worker *worker;

}  // namespace emulated
