// Where a thread is, its block's barrier and shared memory. Behind these calls are the fibers of `driver/worker.cpp`.
#pragma once

namespace emulated {

struct Dim {
    unsigned x, y, z;
};

struct Where {
    Dim thread, block, block_size, grid_size;
};

// Of the CUDA thread that runs on this operating system thread now. `__thread` rather than `thread_local`: no wrapper
// function stands between.
extern __thread Where where;

// Waits for all threads of the block; `line` distinguishes barriers. Returns how many of them gave `vote`.
unsigned block_barrier(bool vote, int line);

// The launch's dynamic shared memory. It ends at a page that may not be touched.
void *dynamic_shared();

// A copy of `bytes` to the front of 16 bytes of shared memory, the rest zero, made when the thread waits for its group (until
// then they are 0xff); the end of a group; a wait until at most `pending` groups of the thread are left.
void async_copy(void *shared, const void *global, unsigned bytes);
void async_commit();
void async_wait(unsigned pending);

// Ends the launch with a CUDA error.
[[noreturn]] void fail(int code, const char *what, int line);

// CUDA's numbers of errors that device code can meet.
enum Fault { ILLEGAL_ADDRESS = 700, MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719 };

}  // namespace emulated

inline void __syncthreads(int line = __builtin_LINE()) { emulated::block_barrier(false, line); }
inline int __syncthreads_count(int vote, int line = __builtin_LINE()) {
    return (int)emulated::block_barrier(vote != 0, line);
}
inline int __syncthreads_or(int vote, int line = __builtin_LINE()) {
    return emulated::block_barrier(vote != 0, line) > 0;
}
inline int __syncthreads_and(int vote, int line = __builtin_LINE()) {
    return emulated::block_barrier(vote == 0, line) == 0;
}

[[noreturn]] inline void __trap(int line = __builtin_LINE()) {
    emulated::fail(emulated::LAUNCH_FAILED, "__trap()", line);
}

// A block sees its own writes in order, and blocks that run at the same time are ordered by the processor's fence.
inline void __threadfence_block() {}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
