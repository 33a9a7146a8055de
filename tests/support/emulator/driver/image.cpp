// What a module is loaded from. The kernels themselves are those that were compiled with the emulator.

#include "image.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "settings.h"

namespace emulated {

enum { NO_BINARY_FOR_GPU = 209, INVALID_PTX = 218, UNSUPPORTED_PTX_VERSION = 222 };

// The architecture of machine code, as 80 for sm_80. The second generation of its format has it one byte further on.
static int architecture(const unsigned char *elf) {
    uint32_t flags;
    memcpy(&flags, elf + 48, 4);
    return elf[8] < 8 ? (int)(flags & 0xff) : (int)(flags >> 8 & 0xff);
}

// Machine code runs on its own architecture, and on later ones of the same major number.
static int judge_machine_code(const unsigned char *elf, std::string &log) {
    int made_for = architecture(elf), device = (int)settings.capability;
    if (getenv("CUDA_FORCE_PTX_JIT") || made_for / 10 != device / 10 || made_for > device) {
        log = "machine code for sm_" + std::to_string(made_for) + " on sm_" + std::to_string(device);
        return NO_BINARY_FOR_GPU;
    }
    return 0;
}

static const char *behind(const char *text, const char *directive) {
    const char *found = strstr(text, directive);
    return found ? found + strlen(directive) : nullptr;
}

// PTX of version 8.1 came with CUDA 12.1, 9.0 with 13.0; it is for its architecture and all later ones.
static int judge_ptx(const char *text, std::string &log) {
    const char *version = behind(text, "\n.version "), *target = behind(text, "\n.target sm_");
    if (!version || !target) {
        log = "ptxas fatal   : no version or target";
        return INVALID_PTX;
    }
    char *end;
    long major = strtol(version, &end, 10), minor = strtol(end + 1, nullptr, 10), made_for = strtol(target, nullptr, 10);
    if ((major + 4) * 1000 + minor * 10 > settings.driver) {
        log = "ptxas fatal   : Unsupported .version " + std::to_string(major) + "." + std::to_string(minor);
        return UNSUPPORTED_PTX_VERSION;
    }
    if (made_for > settings.capability) {
        log = "ptxas fatal   : target sm_" + std::to_string(made_for) + " on sm_" + std::to_string(settings.capability);
        return INVALID_PTX;
    }
    return 0;
}

int judge(const void *image, std::string &log) {
    if (!memcmp(image, "\x7f" "ELF", 4)) {
        return judge_machine_code((const unsigned char *)image, log);
    }
    return memcmp(image, "//", 2) ? 0 : judge_ptx((const char *)image, log);
}

}  // namespace emulated
