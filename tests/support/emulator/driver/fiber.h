// Switching between stacks: the machine's own few instructions where they are known, POSIX contexts elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace emulated {

#if defined(__x86_64__) || defined(__aarch64__)
typedef void *Context;
#else
typedef ucontext_t Context;
#endif

// Keeps what runs now in `*from`, and goes on where `*to` was kept.
void switch_context(Context *from, Context *to);

// Makes `*context` such that a switch to it calls `entry` on the given stack. `entry` must not return.
void prepare_context(Context *context, char *stack, size_t size, void (*entry)());

}  // namespace emulated
