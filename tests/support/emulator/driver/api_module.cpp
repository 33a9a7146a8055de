// The driver's functions for modules and kernels. What a module is loaded from must fit the driver and the device; its
// kernels are those that were compiled with the emulator.

#include <cstring>
#include <map>

#include "image.h"
#include "queue.h"
#include "sanitizer.h"

using namespace emulated;

namespace {

struct Function {
    Kernel kernel;
    // Most dynamic shared memory, as `cuFuncSetAttribute` raises it.
    unsigned dynamic_shared = 48 * 1024;
};

// Filled before `main`, in whatever order; hence not a plain variable.
std::map<std::string, Function> &functions() {
    static auto *all = new std::map<std::string, Function>();
    return *all;
}

}  // namespace

void emulated::register_kernel(const Kernel &kernel) { functions()[kernel.name].kernel = kernel; }

const Kernel *emulated::find_kernel(const char *name) {
    auto found = functions().find(name);
    return found == functions().end() ? nullptr : &found->second.kernel;
}

std::vector<unsigned char> emulated::argument_bytes(const Kernel &kernel) {
    size_t bytes = 0;
    for (unsigned i = 0; i < kernel.count; i++) {
        bytes += (kernel.arguments[i].size + 15u) & ~15u;
    }
    return std::vector<unsigned char>(bytes);
}

namespace {

enum { JIT_ERROR_LOG = 5, JIT_ERROR_LOG_BYTES = 6 };

// Writes what the driver's compiler says to where it is wanted.
void write_log(const std::string &log, unsigned count, const int *options, void **values) {
    char *to = nullptr;
    size_t room = 0;
    for (unsigned i = 0; i < count; i++) {
        to = options[i] == JIT_ERROR_LOG ? (char *)values[i] : to;
        room = options[i] == JIT_ERROR_LOG_BYTES ? (size_t)values[i] : room;
    }
    if (to && room) {
        size_t bytes = log.size() < room - 1 ? log.size() : room - 1;
        memcpy(to, log.data(), bytes);
        to[bytes] = 0;
    }
}

int load(void **module, const void *image, std::string &log) {
    ENTER;
    if (!image) {
        return INVALID_VALUE;
    }
    if (int error = forbidden_in_capture()) {
        return error;
    }
    if (int error = judge(image, log)) {
        return error;
    }
    if (device.memory.used() + device.taken + (size_t)settings.module > (size_t)settings.memory) {
        return OUT_OF_MEMORY;
    }
    device.taken += (size_t)settings.module;
    *module = new char;
    return SUCCESS;
}

}  // namespace

API cuModuleLoadData(void **module, const void *image) {
    std::string log;
    return load(module, image, log);
}

API cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
    std::string log;
    int error = planted_answer(__func__);
    if (error) {
        log = "ptxas fatal   : planted answer " + std::to_string(error);
    } else {
        error = load(module, image, log);
    }
    write_log(log, count, options, values);
    return error;
}

API cuModuleUnload(void *module) {
    ENTER;
    delete (char *)module;
    device.taken -= (size_t)settings.module;
    return SUCCESS;
}

API cuModuleGetFunction(void **function, void *module, const char *name) {
    ENTER;
    auto found = functions().find(name);
    if (!module || found == functions().end()) {
        return module ? NOT_FOUND : INVALID_HANDLE;
    }
    *function = &found->second;
    return SUCCESS;
}

API cuFuncSetAttribute(void *function, int attribute, int value) {
    ENTER;
    if (attribute == 8) {  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        if (value < 0 || (unsigned)value > MAX_DYNAMIC_SHARED) {
            return INVALID_VALUE;
        }
        ((Function *)function)->dynamic_shared = (unsigned)value;
    }
    return SUCCESS;
}

API cuFuncGetAttribute(int *value, int attribute, void *function) {
    ENTER;
    switch (attribute) {
    case 0: *value = (int)MAX_THREADS; break;                               // threads of a block
    case 4: *value = 32; break;                                             // registers
    case 8: *value = (int)((Function *)function)->dynamic_shared; break;
    default: *value = 0;
    }
    return SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *, int block_size, size_t shared_bytes) {
    ENTER;
    if (block_size < 1) {
        return INVALID_VALUE;
    }
    int by_threads = 2048 / ((block_size + 31) / 32 * 32);
    int by_memory = (int)((MAX_DYNAMIC_SHARED + 1024) / (shared_bytes + 1024));
    *blocks = by_threads < by_memory ? by_threads : by_memory;
    *blocks = *blocks < 32 ? *blocks : 32;
    return SUCCESS;
}

API cuLaunchKernel(void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared_bytes, void *stream_handle, void **arguments, void **extra) {
    ENTER;
    Stream *stream = stream_of(device, stream_handle);
    if (!stream || !handle) {
        return INVALID_HANDLE;
    }
    const Function &function = *(Function *)handle;
    const Kernel &kernel = function.kernel;
    std::string name = "kernel `" + std::string(kernel.name) + "`: ";
    uint64_t threads = (uint64_t)block_x * block_y * block_z, blocks = (uint64_t)grid_x * grid_y * grid_z;
    if (!blocks || grid_x > 0x7fffffffu || grid_y > 65535 || grid_z > 65535) {
        return complain(INVALID_VALUE, name + "a grid of " + std::to_string(grid_x) + " x " + std::to_string(grid_y) +
                                           " x " + std::to_string(grid_z) + " blocks");
    }
    if (!threads || block_x > 1024 || block_y > 1024 || block_z > 64 || threads > MAX_THREADS) {
        return complain(INVALID_VALUE, name + "a block of " + std::to_string(threads) + " threads");
    }
    if (shared_bytes > function.dynamic_shared) {
        return complain(INVALID_VALUE, name + std::to_string(shared_bytes) + " bytes of dynamic shared memory, of " +
                                           std::to_string(function.dynamic_shared));
    }
    if (extra || (kernel.count && !arguments)) {
        return complain(INVALID_VALUE, name + "arguments are taken from an array of pointers alone");
    }
    auto launch = std::make_shared<Launch>();
    launch->kernel = &kernel;
    launch->grid = {grid_x, grid_y, grid_z};
    launch->block = {block_x, block_y, block_z};
    launch->shared_bytes = shared_bytes;
    launch->values = argument_bytes(kernel);
    size_t at = 0;
    for (unsigned i = 0; i < kernel.count; i++) {
        unsigned char *value = launch->values.data() + at;
        memcpy(value, arguments[i], kernel.arguments[i].size);
        launch->arguments.push_back(value);
        at += (kernel.arguments[i].size + 15u) & ~15u;
    }
    if (sanitizer) {
        launch->operands = operands_of(key_of(kernel.name, launch->grid, launch->block, launch->values));
    }
    plant_overrun(*launch);
    Operation operation = {};
    operation.kind = Operation::LAUNCH;
    operation.launch = launch;
    return enqueue(*stream, std::move(operation));
}
