#include "worker.h"

#include <sys/mman.h>

#include <cstdlib>

#include "sanitizer.h"
#include "settings.h"

namespace emulated {

__thread Where where;
__thread Worker *worker;

constexpr size_t STACK = 256 * 1024, PAGE = 64 * 1024;  // No machine has larger pages.

unsigned block_barrier(bool vote, int line) { return worker->block_barrier(vote, line); }
void warp_collective(unsigned mask, void *payload, Combine combine, int line) {
    worker->warp_collective(mask, payload, combine, line);
}
void *dynamic_shared() { return worker->dynamic_shared(); }
void async_copy(void *shared, const void *global, unsigned bytes) {
    uint32_t place = sanitizer ? place_of(__builtin_return_address(0)) : 0;
    if (sanitizer) {
        sanitizer->copy_begins(shared, global, bytes, place);
    }
    memset(shared, 0xff, 16);
    worker->async_copies().copy(worker->thread_number(), {shared, global, bytes, place});
}
void async_commit() { worker->async_copies().commit(worker->thread_number()); }
void async_wait(unsigned pending) { worker->async_copies().wait(worker->thread_number(), pending); }
void fail(int code, const char *what, int line) { worker->fail(code, what, line); }

// Memory behind a page that may not be touched, and ahead of another. Never given back.
static char *guarded(size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *at = mmap(nullptr, bytes + 2 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == MAP_FAILED) {
        fputs("emulated CUDA: no memory for stacks\n", stderr);
        abort();
    }
    mprotect(at, PAGE, PROT_NONE);
    mprotect((char *)at + PAGE + bytes, PAGE, PROT_NONE);
    return (char *)at + PAGE;
}

Worker::Worker() {
    size_t bytes = (MAX_DYNAMIC_SHARED + PAGE - 1) / PAGE * PAGE;
    shared_end = guarded(bytes) + bytes;
}

bool Worker::behind_shared(const void *at) const {
    return (const char *)at >= shared_end && (const char *)at < shared_end + PAGE;
}

// ---- Blocks ---------------------------------------------------------------------------------------------------------

void Worker::run(Run &run) {
    const Launch &launch = *run.launch;
    Worker *before = worker;
    worker = this;
    current_run = &run;
    threads = launch.block.x * launch.block.y * launch.block.z;
    where.block_size = launch.block;
    where.grid_size = launch.grid;
    size_t shared_bytes = (launch.shared_bytes + 15u) & ~15u;
    shared = shared_end - shared_bytes;
    idle = all;  // A launch that failed has left some behind.
    if (sanitizer) {
        sanitizer->begin_launch(launch, *this);
    }
    // No mask is kept: the handler does not block its signal, and saving one would be a system call.
    if (sigsetjmp(escape, 0) == 0) {
        for (;;) {
            uint64_t i = run.next.fetch_add(1, std::memory_order_relaxed);
            if (i >= run.blocks || run.error.load(std::memory_order_relaxed)) {
                break;
            }
            memset(shared, 0xff, shared_bytes);
            run_block((uint64_t)(((unsigned __int128)i * run.stride + run.offset) % run.blocks));
        }
    }
    if (sanitizer) {
        std::string message;
        int none = 0, error = sanitizer->end_launch(message);
        if (settings.sanitizer != PRINTED && error && run.error.compare_exchange_strong(none, error)) {
            run.message = message;
        }
    }
    worker = before;
}

void Worker::run_block(uint64_t number) {
    copies.begin(threads);
    const Dim &grid = current_run->launch->grid;
    where.block = {(unsigned)(number % grid.x), (unsigned)(number / grid.x % grid.y),
                   (unsigned)(number / grid.x / grid.y)};
    if (sanitizer) {
        sanitizer->begin_block();
    }
    ready_first = ready_count = barrier_count = votes = next = exited = 0;
    for (unsigned w = 0; w * 32 < threads; w++) {
        // Lanes that the block does not have count as exited.
        unsigned lanes = threads - w * 32;
        warps[w] = {lanes >= 32 ? 0 : ~0u << lanes, 0};
    }
    while (exited < threads) {
        if (ready_count) {
            Fiber *fiber = ready[ready_first];
            ready_first = (ready_first + 1) % MAX_THREADS;
            ready_count--;
            resume(fiber);
        } else if (next < threads) {
            start();
        } else {
            deadlock();
            return;
        }
        if (current_run->error.load(std::memory_order_relaxed)) {
            return;
        }
    }
}

// ---- Fibers ---------------------------------------------------------------------------------------------------------

void Worker::start() {
    if (idle.empty()) {
        auto *fiber = new Fiber();
        fiber->stack = guarded(STACK);
        all.push_back(fiber);
        idle.push_back(fiber);
    }
    Fiber *fiber = idle.back();
    idle.pop_back();
    prepare_context(&fiber->context, fiber->stack, STACK, fiber_main);
    resume(fiber);
}

void Worker::resume(Fiber *fiber) {
    current = fiber;
    where.thread = fiber->thread;
    switch_context(&scheduler, &fiber->context);
}

// Back to the scheduler, until someone puts the fiber into `ready`.
void Worker::wait() {
    Fiber *fiber = current;
    switch_context(&fiber->context, &scheduler);
}

void Worker::fiber_main() {
    Worker *own = worker;
    own->run_threads();
    Fiber *fiber = own->current;
    own->idle.push_back(fiber);
    switch_context(&fiber->context, &own->scheduler);
    abort();
}

// Runs threads that have not started yet, one after the other. Should one wait, the scheduler starts another fiber.
void Worker::run_threads() {
    const Launch &launch = *current_run->launch;
    const Kernel &kernel = *launch.kernel;
    Fiber *self = current;
    while (next < threads) {
        unsigned i = next++, number = current_run->backwards ? threads - 1 - i : i;
        self->number = number;
        self->thread = {number % launch.block.x, number / launch.block.x % launch.block.y,
                        number / launch.block.x / launch.block.y};
        where.thread = self->thread;
        by_thread[number] = self;
        kernel.invoke(kernel.function, launch.arguments.data());
        thread_exits(number);
        if (current_run->error.load(std::memory_order_relaxed)) {
            return;
        }
    }
}

void Worker::thread_exits(unsigned number) {
    exited++;
    Warp &warp = warps[number / 32];
    warp.exited |= 1u << (number % 32);
    // A lane that waited for this one need not wait any longer.
    for (unsigned waiting = warp.waiting; waiting;) {
        Fiber *fiber = by_thread[number / 32 * 32 + (unsigned)__builtin_ctz(waiting)];
        waiting &= ~fiber->mask;
        release_warp(number / 32, fiber->mask, fiber->line);
    }
}

// ---- Waiting --------------------------------------------------------------------------------------------------------

unsigned Worker::block_barrier(bool vote, int line) {
    current->line = line;
    votes += vote;
    at_barrier[barrier_count++] = current;
    if (barrier_count < threads) {
        wait();
        return result;
    }
    for (unsigned i = 0; i < barrier_count; i++) {
        Fiber *fiber = at_barrier[i];
        if (fiber->line != line) {
            fail(LAUNCH_FAILED,
                 ("barrier divergence: " + thread_name(*fiber) + " is at line " + std::to_string(fiber->line)).c_str(),
                 line);
        }
        if (fiber != current) {
            ready[(ready_first + ready_count++) % MAX_THREADS] = fiber;
        }
    }
    result = votes;
    barrier_count = votes = 0;
    if (sanitizer) {
        sanitizer->block_met();
    }
    return result;
}

void Worker::warp_collective(unsigned mask, void *payload, Combine combine, int line) {
    Fiber *self = current;
    unsigned warp = self->number / 32, lane = 1u << (self->number % 32);
    if (!(mask & lane)) {
        fail(LAUNCH_FAILED, "a warp's operation is called by a lane that its mask does not name", line);
    }
    self->line = line;
    self->mask = mask;
    self->payload = payload;
    self->combine = combine;
    warps[warp].waiting |= lane;
    if (!release_warp(warp, mask, line)) {
        wait();
    }
}

// Lets the lanes of `mask` go on if all have come that are alive; the current fiber needs no place in `ready`.
bool Worker::release_warp(unsigned warp, unsigned mask, int line) {
    Warp &state = warps[warp];
    unsigned expected = mask & ~state.exited;
    if ((state.waiting & expected) != expected) {
        return false;
    }
    void *lanes[32] = {};
    Fiber *first = nullptr;
    for (unsigned left = expected; left; left &= left - 1) {
        unsigned lane = (unsigned)__builtin_ctz(left);
        Fiber *fiber = by_thread[warp * 32 + lane];
        first = first ? first : fiber;
        if (fiber->mask != mask || fiber->line != line || fiber->combine != first->combine) {
            fail(LAUNCH_FAILED,
                 ("warp divergence: " + thread_name(*fiber) + " is at line " + std::to_string(fiber->line)).c_str(),
                 line);
        }
        lanes[lane] = fiber->payload;
    }
    if (first && first->combine) {
        first->combine(lanes, expected);
    } else if (first && sanitizer) {
        // Of what the lanes of a warp do together, `__syncwarp` alone orders memory.
        sanitizer->warp_met(warp, expected);
    }
    state.waiting &= ~expected;
    for (unsigned left = expected; left; left &= left - 1) {
        Fiber *fiber = by_thread[warp * 32 + (unsigned)__builtin_ctz(left)];
        if (fiber != current) {
            ready[(ready_first + ready_count++) % MAX_THREADS] = fiber;
        }
    }
    return true;
}

// ---- Failures -------------------------------------------------------------------------------------------------------

std::string Worker::thread_name(const Fiber &fiber) const {
    char text[96];
    snprintf(text, sizeof text, "thread (%u, %u, %u)", fiber.thread.x, fiber.thread.y, fiber.thread.z);
    return text;
}

// The first failure of a launch is the one that counts.
void Worker::report(int code, const std::string &what, const Fiber *fiber) {
    int none = 0;
    if (current_run->error.compare_exchange_strong(none, code)) {
        char block[96];
        snprintf(block, sizeof block, "block (%u, %u, %u)", where.block.x, where.block.y, where.block.z);
        current_run->message = std::string("kernel `") + current_run->launch->kernel->name + "`, " + block +
                               (fiber ? ", " + thread_name(*fiber) : "") + ": " + what;
    }
}

void Worker::fail(int code, const char *what, int line) {
    report(code, std::string(what) + (line ? ", line " + std::to_string(line) : ""), current);
    switch_context(&current->context, &scheduler);
    abort();
}

void Worker::fault(int code, const std::string &what) {
    report(code, what, current);
    siglongjmp(escape, 1);
}

void Worker::deadlock() {
    std::string what = "deadlock: " + std::to_string(exited) + " of " + std::to_string(threads) + " threads exited";
    if (barrier_count) {
        what += ", " + std::to_string(barrier_count) + " wait at the block's barrier of line " +
                std::to_string(at_barrier[0]->line);
    }
    unsigned in_warps = threads - exited - barrier_count;
    for (unsigned w = 0; w * 32 < threads; w++) {
        if (warps[w].waiting) {
            Fiber *fiber = by_thread[w * 32 + (unsigned)__builtin_ctz(warps[w].waiting)];
            what += ", " + std::to_string(in_warps) + " wait for lanes of their warps (" + thread_name(*fiber) +
                    " in line " + std::to_string(fiber->line) + ")";
            break;
        }
    }
    report(LAUNCH_FAILED, what, nullptr);
}

}  // namespace emulated
