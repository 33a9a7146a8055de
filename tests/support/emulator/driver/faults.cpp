// What is reported, and signals that stand for a GPU's faults.

#include <csignal>
#include <cstdio>

#include "device.h"
#include "worker.h"

namespace emulated {

static std::string complaint;

int complain(int code, const std::string &what) {
    complaint = what;
    fprintf(stderr, "emulated CUDA: error %d: %s\n", code, what.c_str());
    return code;
}

const std::string &last_complaint() { return complaint; }

static struct sigaction before[NSIG];

// A kernel touched what it may not. No allocator can be at work then: kernels call nothing but what stands in `device/`.
static void handle(int signal, siginfo_t *info, void *) {
    if (!worker) {
        // Not ours: the handler that was there before gets it when the instruction runs again.
        sigaction(signal, &before[signal], nullptr);
        return;
    }
    if (signal == SIGILL || signal == SIGTRAP) {
        worker->fault(MISALIGNED_ADDRESS, "access to a misaligned address, or a trap");
    }
    const void *at = info->si_addr;
    if (worker->behind_shared(at)) {
        worker->fault(ILLEGAL_ADDRESS, "access behind the end of dynamic shared memory");
    }
    for (Device *device : devices) {
        if (device->memory.owns(at)) {
            worker->fault(ILLEGAL_ADDRESS, "illegal access to " + device->memory.describe(at));
        }
    }
    if (host.owns(at)) {
        worker->fault(ILLEGAL_ADDRESS, "illegal access to pinned memory: " + host.describe(at));
    }
    char text[64];
    snprintf(text, sizeof text, "illegal access to address %p", at);
    worker->fault(ILLEGAL_ADDRESS, text);
}

void catch_signals() {
    struct sigaction action = {};
    action.sa_sigaction = handle;
    // The handler may leave by a jump, so its signal must not stay blocked.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGTRAP}) {
        sigaction(signal, &action, &before[signal]);
    }
}

}  // namespace emulated
