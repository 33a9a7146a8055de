#include "settings.h"

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string>

namespace emulated {

Settings settings;

static const struct {
    const char *name;
    int64_t Settings::*field;
} NAMES[] = {
    {"seed", &Settings::seed},
    {"devices", &Settings::devices},
    {"memory", &Settings::memory},
    {"capability", &Settings::capability},
    {"multiprocessors", &Settings::multiprocessors},
    {"driver", &Settings::driver},
    {"init", &Settings::init},
    {"threads", &Settings::threads},
    {"deaf", &Settings::deaf},
    {"module", &Settings::module},
    {"sanitizer", &Settings::sanitizer},
};

void read_environment() {
    for (auto &entry : NAMES) {
        std::string variable = "EMULATED_";
        for (const char *c = entry.name; *c; c++) {
            variable += (char)toupper(*c);
        }
        if (const char *text = getenv(variable.c_str())) {
            settings.*entry.field = strtoll(text, nullptr, 10);
        }
    }
}

bool configure(const char *name, int64_t value) {
    for (auto &entry : NAMES) {
        if (!strcmp(entry.name, name)) {
            settings.*entry.field = value;
            return true;
        }
    }
    return false;
}

}  // namespace emulated
