// Faults that a test plants, named in the environment.
#pragma once

#include <string>

#include "worker.h"

namespace emulated {

// What a call of this function of the driver shall answer; 0: it does what it does.
int planted_answer(const char *function);

// The error that the kernel at work shall give; 0: none.
int planted_fault(const char *kernel);

// Lets a kernel that is started go further than its arguments say: one that is named has 64 elements more.
void plant_overrun(Launch &launch);

}  // namespace emulated

#define PLANTED                                                                                                         \
    if (int planted = emulated::planted_answer(__func__)) return planted
