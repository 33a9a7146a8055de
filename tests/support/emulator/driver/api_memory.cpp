// The driver's functions for memory: allocation, copies, fills.

#include <cstring>

#include "queue.h"

using namespace emulated;

namespace {

// The allocation's address as a device pointer, an integer. `size` 0 is an error in CUDA.
int allocate(Device &device, uint64_t *at, size_t size) {
    if (!size || !at) {
        return INVALID_VALUE;
    }
    size_t padded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, most = (size_t)settings.memory;
    if (padded > most || device.memory.used() + device.taken > most - padded) {
        // What is freed in a stream's order may still be there.
        finish(device);
        if (padded > most || device.memory.used() + device.taken > most - padded) {
            return OUT_OF_MEMORY;
        }
    }
    char *allocated = device.memory.allocate(size);
    *at = (uint64_t)allocated;
    return allocated ? SUCCESS : OUT_OF_MEMORY;
}

// That these bytes are the device's and allocated.
int check(Device &device, uint64_t at, size_t bytes, const char *what) {
    if (device.memory.holds((void *)at, bytes)) {
        return SUCCESS;
    }
    std::string where = device.memory.owns((void *)at) ? device.memory.describe((void *)at) : "no address of the device";
    return complain(INVALID_VALUE, std::string(what) + " of " + std::to_string(bytes) + " bytes: " + where);
}

// Ahead of a call that waits until all is done on the default stream.
int at_once(Device &device) {
    if (int error = forbidden_in_capture()) {
        return error;
    }
    return finish_blocking(device);
}

Operation copy(void *to, const void *from, size_t bytes) {
    Operation operation = {};
    operation.kind = Operation::COPY;
    operation.to = (char *)to;
    operation.from = (const char *)from;
    operation.bytes = bytes;
    return operation;
}

int fill(uint64_t to, uint32_t pattern, unsigned unit, size_t bytes, void *handle) {
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!stream) {
        return INVALID_HANDLE;
    }
    if (to % unit) {
        return INVALID_VALUE;
    }
    if (int error = check(device, to, bytes, "fill")) {
        return error;
    }
    Operation operation = {};
    operation.kind = Operation::FILL;
    operation.to = (char *)to;
    operation.bytes = bytes;
    operation.pattern = pattern;
    operation.unit = unit;
    return enqueue(*stream, std::move(operation));
}

int free_host(void *at) {
    ENTER;
    if (int error = forbidden_in_capture()) {
        return error;
    }
    finish(device);
    std::string damage;
    if (!host.release((char *)at, damage)) {
        return INVALID_VALUE;
    }
    return damage.empty() ? device.error : device.error = complain(ILLEGAL_ADDRESS, "pinned memory: " + damage);
}

}  // namespace

API cuMemAlloc_v2(uint64_t *at, size_t size) {
    ENTER;
    if (int error = forbidden_in_capture()) {
        return error;
    }
    return allocate(device, at, size);
}

API cuMemFree_v2(uint64_t at) {
    ENTER;
    if (!at) {
        return SUCCESS;
    }
    if (int error = forbidden_in_capture()) {
        return error;
    }
    // As CUDA does: memory that is in use is not taken away.
    finish(device);
    std::string damage;
    if (!device.memory.release((char *)at, damage)) {
        return INVALID_VALUE;
    }
    return damage.empty() ? device.error : device.error = complain(ILLEGAL_ADDRESS, damage);
}

API cuMemAllocAsync(uint64_t *at, size_t size, void *handle) {
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!stream) {
        return INVALID_HANDLE;
    }
    if (stream->capture) {
        stream->capture->invalid = true;
        return CAPTURE_UNSUPPORTED;  // Graphs that allocate are not emulated.
    }
    return allocate(device, at, size);
}

API cuMemFreeAsync(uint64_t at, void *handle) {
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!stream || !device.memory.holds((void *)at, 0)) {
        return stream ? INVALID_VALUE : INVALID_HANDLE;
    }
    Operation operation = {};
    operation.kind = Operation::FREE;
    operation.to = (char *)at;
    return enqueue(*stream, std::move(operation));
}

API cuMemHostAlloc(void **at, size_t size, unsigned) {
    ENTER;
    if (int error = forbidden_in_capture()) {
        return error;
    }
    *at = size ? host.allocate(size) : nullptr;
    return *at ? SUCCESS : size ? OUT_OF_MEMORY : INVALID_VALUE;
}

API cuMemAllocHost_v2(void **at, size_t size) { return cuMemHostAlloc(at, size, 0); }

API cuMemFreeHost(void *at) { return free_host(at); }

API cuMemGetInfo_v2(size_t *unused, size_t *total) {
    ENTER;
    *total = (size_t)settings.memory;
    *unused = *total - device.memory.used() - device.taken;
    return SUCCESS;
}

API cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    ENTER;
    if (int error = check(device, to, bytes, "copy to the device")) {
        return error;
    }
    int error = at_once(device);
    return error ? error : perform(device, copy((void *)to, from, bytes));
}

API cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    ENTER;
    if (int error = check(device, from, bytes, "copy from the device")) {
        return error;
    }
    int error = at_once(device);
    return error ? error : perform(device, copy(to, (void *)from, bytes));
}

API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *handle) {
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!stream) {
        return INVALID_HANDLE;
    }
    if (int error = check(device, to, bytes, "copy to the device")) {
        return error;
    }
    Operation operation = copy((void *)to, from, bytes);
    if (!host.owns(from) && !stream->capture) {
        operation.staged = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
    }
    return enqueue(*stream, std::move(operation));
}

API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *handle) {
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!stream) {
        return INVALID_HANDLE;
    }
    if (int error = check(device, from, bytes, "copy from the device")) {
        return error;
    }
    int error = enqueue(*stream, copy(to, (void *)from, bytes));
    // To memory that is not pinned, CUDA returns when the copy is done.
    return error || host.owns(to) || stream->capture ? error : finish(*stream);
}

API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *handle) {
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!stream) {
        return INVALID_HANDLE;
    }
    int error = check(device, to, bytes, "copy within the device, to");
    error = error ? error : check(device, from, bytes, "copy within the device, from");
    return error ? error : enqueue(*stream, copy((void *)to, (void *)from, bytes));
}

API cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, void *stream) {
    return fill(to, value, 1, count, stream);
}

API cuMemsetD32Async(uint64_t to, unsigned value, size_t count, void *stream) {
    return fill(to, value, 4, 4 * count, stream);
}
