// The state of the driver: devices with their memory, streams, errors. One lock guards all of it.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "memory.h"
#include "planted.h"
#include "settings.h"

namespace emulated {

struct Stream;

// CUDA's numbers of results, as far as they occur.
enum Result {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_OUT_OF_RESOURCES = 701,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURED_EVENT = 907,
};

// A device, which is its own primary context as well.
struct Device {
    int ordinal;   // as the program sees it
    int physical;  // ahead of CUDA_VISIBLE_DEVICES
    int retained = 0;
    Arena memory;
    // Bytes of it that modules have.
    size_t taken = 0;
    std::set<Stream *> streams;
    // Errors of what was enqueued stay: every later call of the context gives them, as with CUDA.
    int error = 0;
};

extern std::mutex lock;
extern bool initialized;
extern std::vector<Device *> devices;
extern Arena host;
// The current context of this operating system thread.
extern __thread Device *current_device;

// Writes what went wrong to the standard error output, and keeps it for `emulated_message`. Returns `code`.
int complain(int code, const std::string &what);
const std::string &last_complaint();

// Lets faults of kernels become errors of CUDA.
void catch_signals();

// The next number of the sequence that `settings.seed` begins.
uint64_t random_number();

}  // namespace emulated

#define API extern "C" __attribute__((visibility("default"))) int

// How every function begins that needs a context: the lock, and the errors that come before all others.
#define ENTER                                                                                                           \
    PLANTED;                                                                                                           \
    std::lock_guard<std::mutex> guard(emulated::lock);                                                                 \
    if (!emulated::initialized) return emulated::NOT_INITIALIZED;                                                      \
    if (!emulated::current_device) return emulated::INVALID_CONTEXT;                                                   \
    emulated::Device &device = *emulated::current_device;                                                              \
    if (device.error) return device.error
