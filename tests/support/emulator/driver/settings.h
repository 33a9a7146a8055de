// What the emulated machine is like. Read from the environment at `cuInit`, and changed by `emulated_configure`.
#pragma once

#include <cstdint>

namespace emulated {

struct Settings {
    // 0: everything runs in the order of the program. Otherwise: streams, blocks and threads in an order drawn from it.
    int64_t seed = 0;
    int64_t devices = 1;
    // Bytes of memory of each device.
    int64_t memory = int64_t(16) << 30;
    // Compute capability, as 80 for 8.0.
    int64_t capability = 80;
    int64_t multiprocessors = 108;
    // CUDA version of the driver, as 12080 for 12.8.
    int64_t driver = 13000;
    // What `cuInit` answers.
    int64_t init = 0;
    // Operating system threads that run the blocks of a large launch.
    int64_t threads = 2;
    // The stream whose waits for events are left out, by its number among those made from now on; 0: none. A planted
    // fault, to see that tests notice what the events are for.
    int64_t deaf = 0;
    // Bytes of a device's memory that a loaded module takes.
    int64_t module = 0;
    // What becomes of what the sanitizer finds: it is printed in any case; unless this is `PRINTED`, the launch fails with it.
    int64_t sanitizer = 0;
};

constexpr int64_t PRINTED = 2;

extern Settings settings;

// Takes `EMULATED_SEED` and its like from the environment.
void read_environment();

// False if there is no such setting.
bool configure(const char *name, int64_t value);

}  // namespace emulated
