// What a module is loaded from: whether a driver and a device would take it.
#pragma once

#include <string>

namespace emulated {

// CUDA's answer for an image; `log` is what the driver's compiler says. Only PTX and machine code are looked at: the emulator's
// own tests load modules from nothing.
int judge(const void *image, std::string &log);

}  // namespace emulated
