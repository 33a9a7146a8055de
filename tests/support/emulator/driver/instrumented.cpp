// What the compiler calls at every access of a kernel that it has compiled with `-fsanitize=thread`: the interface of that
// option's own runtime library, which is not linked. Without the option no code calls these.

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>

#include "sanitizer.h"

namespace emulated {

static uintptr_t library_from;
static std::string *library_file;

uint32_t place_of(const void *return_address) { return (uint32_t)((uintptr_t)return_address - 1 - library_from); }

// The part of a path that names a file of this repository.
static std::string short_path(const std::string &path) {
    for (const char *folder : {"/tests/support/emulator/", "/kernels/"}) {
        size_t at = path.rfind(folder);
        if (at != std::string::npos) {
            return path.substr(at + 1);
        }
    }
    return path;
}

// The innermost line that belongs to a kernel file, and the outermost, where one was inlined into the other.
static std::string ask(uint32_t place) {
    char command[1024], line[1024], distance[32];
    snprintf(distance, sizeof distance, "instruction %#x", place);
    snprintf(command, sizeof command, "addr2line -i -e '%s' %#x 2>/dev/null", library_file->c_str(), place);
    FILE *pipe = popen(command, "r");
    std::string inner, outer;
    while (pipe && fgets(line, sizeof line, pipe)) {
        std::string text = line;
        text = short_path(text.substr(0, text.find_first_of(" \n")));
        bool ours = text.find("tests/support/emulator/device/") == std::string::npos && text.find(':') != std::string::npos &&
                    text.find("?") == std::string::npos && text.find(".cu") != std::string::npos;
        if (ours) {
            inner = inner.empty() ? text : inner;
            outer = text;
        }
    }
    if (pipe) {
        pclose(pipe);
    }
    return inner.empty() ? distance : inner == outer ? inner : inner + " (from " + outer + ")";
}

std::string line_of(uint32_t place) {
    static auto *known = new std::map<uint32_t, std::string>();
    auto entry = known->find(place);
    return entry != known->end() ? entry->second : (*known)[place] = ask(place);
}

// The variable's name without the function that it is in, whose parameters make it long.
static std::string last_name(const std::string &name) {
    size_t at = name.rfind("::");
    return at == std::string::npos ? name : name.substr(at + 2);
}

std::string shared_variable(size_t distance, size_t &inside) {
    struct Variable {
        size_t bytes;
        std::string name;
    };
    static std::map<size_t, Variable> *all = nullptr;
    if (!all) {
        all = new std::map<size_t, Variable>();
        std::string command = "nm -C -S '" + *library_file + "' 2>/dev/null";
        FILE *pipe = popen(command.c_str(), "r");
        char line[4096], name[4096], kind;
        size_t at, bytes;
        while (pipe && fgets(line, sizeof line, pipe)) {
            if (sscanf(line, "%zx %zx %c %4095[^\n]", &at, &bytes, &kind, name) == 4 && strchr("bBdD", kind)) {
                all->insert({at, {bytes, last_name(name)}});
            }
        }
        if (pipe) {
            pclose(pipe);
        }
    }
    auto after = all->upper_bound(distance);
    if (after != all->begin()) {
        auto entry = std::prev(after);
        inside = distance - entry->first;
        if (inside < entry->second.bytes) {
            return "`" + entry->second.name + "`";
        }
    }
    inside = distance;
    return "static shared memory";
}

void note_read(const void *at, unsigned bytes) {
    if (sanitizer) {
        sanitizer->access(at, bytes, READ, place_of(__builtin_return_address(0)));
    }
}

}  // namespace emulated

using namespace emulated;

#define CALLED extern "C" __attribute__((visibility("hidden"))) void
#define HERE place_of(__builtin_return_address(0))

// By every file that was compiled so, when the library is loaded.
CALLED __tsan_init() {
    if (!sanitizer) {
        Dl_info info = {};
        dladdr((void *)&__tsan_init, &info);
        library_from = (uintptr_t)info.dli_fbase;
        library_file = new std::string(info.dli_fname ? info.dli_fname : "");
        sanitizer = new Sanitizer();
    }
}

CALLED __tsan_func_entry(void *) {}
CALLED __tsan_func_exit() {}
CALLED __tsan_vptr_update(void **, void *) {}
CALLED __tsan_vptr_read(void **) {}

#define SIZE(n)                                                                                                         \
    CALLED __tsan_read##n(void *at) { sanitizer->access(at, n, READ, HERE); }                                          \
    CALLED __tsan_write##n(void *at) { sanitizer->access(at, n, WRITE, HERE); }                                        \
    CALLED __tsan_volatile_read##n(void *at) { sanitizer->access(at, n, READ, HERE); }                                 \
    CALLED __tsan_volatile_write##n(void *at) { sanitizer->access(at, n, WRITE, HERE); }                               \
    CALLED __tsan_unaligned_read##n(void *at) { sanitizer->access(at, n, READ, HERE); }                                \
    CALLED __tsan_unaligned_write##n(void *at) { sanitizer->access(at, n, WRITE, HERE); }                              \
    CALLED __tsan_read_write##n(void *at) {                                                                            \
        sanitizer->access(at, n, READ, HERE);                                                                          \
        sanitizer->access(at, n, WRITE, HERE);                                                                         \
    }
SIZE(1) SIZE(2) SIZE(4) SIZE(8) SIZE(16)
#undef SIZE

CALLED __tsan_read_range(void *at, size_t bytes) { sanitizer->access(at, bytes, READ, HERE); }
CALLED __tsan_write_range(void *at, size_t bytes) { sanitizer->access(at, bytes, WRITE, HERE); }

// What clang makes of the functions of these names.
extern "C" __attribute__((visibility("hidden"))) void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    sanitizer->access(from, bytes, READ, HERE);
    sanitizer->access(to, bytes, WRITE, HERE);
    return memcpy(to, from, bytes);
}
extern "C" __attribute__((visibility("hidden"))) void *__tsan_memmove(void *to, const void *from, size_t bytes) {
    sanitizer->access(from, bytes, READ, HERE);
    sanitizer->access(to, bytes, WRITE, HERE);
    return memmove(to, from, bytes);
}
extern "C" __attribute__((visibility("hidden"))) void *__tsan_memset(void *to, int value, size_t bytes) {
    sanitizer->access(to, bytes, WRITE, HERE);
    return memset(to, value, bytes);
}

// Atomic operations. One thread runs at a time, so plain ones do.
#define FUNCTION(type) extern "C" __attribute__((visibility("hidden"))) type
#define SEEN sanitizer->access((const void *)at, sizeof *at, ATOMIC, HERE)
#define BITS(n, type)                                                                                                   \
    FUNCTION(type) __tsan_atomic##n##_load(const volatile type *at, int) {                                             \
        SEEN;                                                                                                          \
        return *at;                                                                                                    \
    }                                                                                                                  \
    FUNCTION(void) __tsan_atomic##n##_store(volatile type *at, type value, int) {                                      \
        SEEN;                                                                                                          \
        *at = value;                                                                                                   \
    }                                                                                                                  \
    CHANGE(n, type, exchange, value)                                                                                   \
    CHANGE(n, type, fetch_add, old + value)                                                                            \
    CHANGE(n, type, fetch_sub, old - value)                                                                            \
    CHANGE(n, type, fetch_and, old & value)                                                                            \
    CHANGE(n, type, fetch_or, old | value)                                                                             \
    CHANGE(n, type, fetch_xor, old ^ value)                                                                            \
    FUNCTION(int)                                                                                                      \
    __tsan_atomic##n##_compare_exchange_strong(volatile type *at, type *expected, type value, int, int) {              \
        SEEN;                                                                                                          \
        type old = *at;                                                                                                \
        if (old == *expected) {                                                                                        \
            *at = value;                                                                                               \
            return 1;                                                                                                  \
        }                                                                                                              \
        *expected = old;                                                                                               \
        return 0;                                                                                                      \
    }                                                                                                                  \
    FUNCTION(int)                                                                                                      \
    __tsan_atomic##n##_compare_exchange_weak(volatile type *at, type *expected, type value, int a, int b) {            \
        return __tsan_atomic##n##_compare_exchange_strong(at, expected, value, a, b);                                  \
    }
#define CHANGE(n, type, name, result)                                                                                   \
    FUNCTION(type) __tsan_atomic##n##_##name(volatile type *at, type value, int) {                                     \
        SEEN;                                                                                                          \
        type old = *at;                                                                                                \
        *at = (type)(result);                                                                                          \
        return old;                                                                                                    \
    }
BITS(8, uint8_t)
BITS(16, uint16_t)
BITS(32, uint32_t)
BITS(64, uint64_t)
#undef CHANGE
#undef BITS

CALLED __tsan_atomic_thread_fence(int) {}
CALLED __tsan_atomic_signal_fence(int) {}
