// What device code itself reports to the sanitizer. The compiler reports plain accesses to it (`driver/instrumented.cpp`).
#pragma once

namespace emulated {

// True in the build that is instrumented.
#ifdef EMULATED_SANITIZED
constexpr bool SANITIZED = true;
#else
constexpr bool SANITIZED = false;
#endif

// This thread reads shared memory in a way that the compiler does not see.
void note_read(const void *at, unsigned bytes);

}  // namespace emulated

// A function whose own accesses are not the thread's, but the emulator's.
#if defined(EMULATED_SANITIZED)
#define EMULATOR_ITSELF __attribute__((no_sanitize("thread")))
#else
#define EMULATOR_ITSELF
#endif
