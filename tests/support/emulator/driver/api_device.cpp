// The driver's functions for devices, contexts and errors, and those of the emulator alone.

#include <cstdlib>
#include <cstring>

#include "queue.h"

using namespace emulated;

namespace {

// What CUDA_VISIBLE_DEVICES leaves of `count` devices: numbers in the program's order, up to the first that is none.
std::vector<int> visible(int count) {
    std::vector<int> chosen;
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    if (!text) {
        for (int i = 0; i < count; i++) {
            chosen.push_back(i);
        }
        return chosen;
    }
    for (const char *at = text; *at;) {
        char *end;
        long number = strtol(at, &end, 10);
        if (end == at || number < 0 || number >= count) {
            break;
        }
        chosen.push_back((int)number);
        at = *end == ',' ? end + 1 : end;
        if (at == end && *end) {
            break;
        }
    }
    return chosen;
}

bool exists(int device) { return device >= 0 && (size_t)device < devices.size(); }

const struct {
    int code;
    const char *name, *text;
} ERRORS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
    {CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
};

}  // namespace

// ---- The emulator's own ---------------------------------------------------------------------------------------------

// Changes a setting: `seed`, `memory`, `capability`, … 0 if there is none of this name.
API emulated_configure(const char *name, long long value) {
    std::lock_guard<std::mutex> guard(lock);
    return configure(name, value);
}

// The latest complaint, as it was written to the standard error output.
extern "C" __attribute__((visibility("default"))) const char *emulated_message() {
    std::lock_guard<std::mutex> guard(lock);
    return last_complaint().c_str();
}

// ---- Devices --------------------------------------------------------------------------------------------------------

API cuInit(unsigned) {
    PLANTED;
    std::lock_guard<std::mutex> guard(lock);
    if (initialized) {
        return SUCCESS;
    }
    read_environment();
    if (settings.init) {
        return (int)settings.init;
    }
    std::vector<int> physical = visible((int)settings.devices);
    if (physical.empty()) {
        return NO_DEVICE;
    }
    for (int number : physical) {
        auto *device = new Device();
        device->ordinal = (int)devices.size();
        device->physical = number;
        devices.push_back(device);
    }
    catch_signals();
    initialized = true;
    return SUCCESS;
}

API cuDriverGetVersion(int *version) {
    PLANTED;
    std::lock_guard<std::mutex> guard(lock);
    *version = (int)settings.driver;
    return SUCCESS;
}

API cuDeviceGetCount(int *count) {
    PLANTED;
    std::lock_guard<std::mutex> guard(lock);
    *count = (int)devices.size();
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

API cuDeviceGet(int *device, int ordinal) {
    PLANTED;
    std::lock_guard<std::mutex> guard(lock);
    *device = ordinal;
    return !initialized ? NOT_INITIALIZED : exists(ordinal) ? SUCCESS : INVALID_DEVICE;
}

API cuDeviceGetName(char *name, int length, int device) {
    PLANTED;
    std::lock_guard<std::mutex> guard(lock);
    if (!exists(device) || length < 1) {
        return INVALID_DEVICE;
    }
    snprintf(name, (size_t)length, "Emulated GPU %d", devices[(size_t)device]->physical);
    return SUCCESS;
}

API cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    std::lock_guard<std::mutex> guard(lock);
    if (!exists(device)) {
        return INVALID_DEVICE;
    }
    memcpy(uuid, "emulated device", 15);
    uuid[15] = (unsigned char)devices[(size_t)device]->physical;
    return SUCCESS;
}

API cuDeviceGetUuid(unsigned char *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

API cuDeviceTotalMem_v2(size_t *bytes, int device) {
    PLANTED;
    std::lock_guard<std::mutex> guard(lock);
    *bytes = (size_t)settings.memory;
    return exists(device) ? SUCCESS : INVALID_DEVICE;
}

API cuDeviceGetAttribute(int *value, int attribute, int device) {
    PLANTED;
    std::lock_guard<std::mutex> guard(lock);
    if (!exists(device)) {
        return INVALID_DEVICE;
    }
    switch (attribute) {
    case 1:                                                       // threads of a block
    case 2:                                                       // of which in x,
    case 3: *value = 1024; break;                                 // in y,
    case 4: *value = 64; break;                                   // in z
    case 5: *value = 0x7fffffff; break;                           // blocks in x
    case 6:                                                       // in y
    case 7: *value = 65535; break;                                // in z
    case 8: *value = 48 * 1024; break;                            // shared memory of a block
    case 9: *value = 64 * 1024; break;                            // constant memory
    case 10: *value = 32; break;                                  // threads of a warp
    case 12:                                                      // registers of a block
    case 82: *value = 64 * 1024; break;                           // of a multiprocessor
    case 13: *value = 1410000; break;                             // clock, kHz
    case 15:                                                      // copies overlap kernels
    case 31:                                                      // kernels overlap
    case 41:                                                      // one address space with the host
    case 78:                                                      // priorities of streams
    case 115: *value = 1; break;                                  // allocation in a stream's order
    case 16: *value = (int)settings.multiprocessors; break;       //
    case 33: *value = devices[(size_t)device]->physical; break;   // PCI bus
    case 36: *value = 1215000; break;                             // memory clock, kHz
    case 37: *value = 5120; break;                                // memory bus, bits
    case 38: *value = 40 << 20; break;                            // second cache
    case 39: *value = 2048; break;                                // threads of a multiprocessor
    case 40: *value = 2; break;                                   // copy engines
    case 75: *value = (int)settings.capability / 10; break;
    case 76: *value = (int)settings.capability % 10; break;
    case 81: *value = (int)MAX_DYNAMIC_SHARED + 1024; break;      // shared memory of a multiprocessor
    case 97: *value = (int)MAX_DYNAMIC_SHARED; break;             // of a block that asks for more
    case 106: *value = 32; break;                                 // blocks of a multiprocessor
    default: *value = 0;
    }
    return SUCCESS;
}

// ---- Contexts -------------------------------------------------------------------------------------------------------

API cuDevicePrimaryCtxRetain(void **context, int device) {
    PLANTED;
    std::lock_guard<std::mutex> guard(lock);
    if (!exists(device)) {
        return INVALID_DEVICE;
    }
    devices[(size_t)device]->retained++;
    *context = devices[(size_t)device];
    return SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(int device) {
    PLANTED;
    std::lock_guard<std::mutex> guard(lock);
    if (!exists(device) || devices[(size_t)device]->retained == 0) {
        return INVALID_DEVICE;
    }
    devices[(size_t)device]->retained--;
    return SUCCESS;
}

API cuDevicePrimaryCtxSetFlags_v2(int device, unsigned) {
    std::lock_guard<std::mutex> guard(lock);
    return exists(device) ? SUCCESS : INVALID_DEVICE;
}

API cuCtxSetCurrent(void *context) {
    PLANTED;
    current_device = (Device *)context;
    return SUCCESS;
}

API cuCtxGetCurrent(void **context) {
    *context = current_device;
    return SUCCESS;
}

API cuCtxGetDevice(int *ordinal) {
    ENTER;
    *ordinal = device.ordinal;
    return SUCCESS;
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return SUCCESS;
}

API cuProfilerStart() { return SUCCESS; }

API cuProfilerStop() { return SUCCESS; }

// ---- Errors ---------------------------------------------------------------------------------------------------------

API cuGetErrorName(int code, const char **name) {
    PLANTED;
    for (auto &error : ERRORS) {
        if (error.code == code) {
            *name = error.name;
            return SUCCESS;
        }
    }
    *name = nullptr;
    return INVALID_VALUE;
}

API cuGetErrorString(int code, const char **text) {
    PLANTED;
    for (auto &error : ERRORS) {
        if (error.code == code) {
            *text = error.text;
            return SUCCESS;
        }
    }
    *text = nullptr;
    return INVALID_VALUE;
}
