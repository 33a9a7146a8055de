// Runs a launch on one worker, or on several when it is large.

#include <condition_variable>
#include <csignal>
#include <numeric>
#include <thread>

#include "device.h"
#include "queue.h"
#include "sanitizer.h"
#include "worker.h"

namespace emulated {

// Fewer threads than this are not worth waking another worker for.
constexpr uint64_t LARGE = 32 * 1024;

// The workers beside the calling thread. Never destroyed: they wait for work until the process ends.
struct Helpers {
    std::mutex lock;
    std::condition_variable wake, done;
    Run *run = nullptr;
    uint64_t generation = 0;
    unsigned wanted = 0, busy = 0, count = 0;

    void main(unsigned index) {
        // Signals of kernels need a stack of their own, should a fiber's be exhausted.
        stack_t stack = {};
        stack.ss_size = 64 * 1024;
        stack.ss_sp = new char[stack.ss_size];
        sigaltstack(&stack, nullptr);
        auto *own = new Worker();
        uint64_t seen = 0;
        std::unique_lock<std::mutex> guard(lock);
        for (;;) {
            wake.wait(guard, [&] { return generation != seen && index < wanted; });
            seen = generation;
            guard.unlock();
            own->run(*run);
            guard.lock();
            if (--busy == 0) {
                done.notify_one();
            }
        }
    }

    void begin(Run &work, unsigned workers) {
        std::lock_guard<std::mutex> guard(lock);
        for (; count < workers; count++) {
            std::thread(&Helpers::main, this, count).detach();
        }
        run = &work;
        wanted = busy = workers;
        generation++;
        wake.notify_all();
    }

    void wait() {
        std::unique_lock<std::mutex> guard(lock);
        done.wait(guard, [&] { return busy == 0; });
        wanted = 0;
    }
};

int execute(const Launch &launch, std::string &message) {
    static auto *helpers = new Helpers();
    static auto *first = new Worker();
    Run run;
    run.launch = &launch;
    run.blocks = (uint64_t)launch.grid.x * launch.grid.y * launch.grid.z;
    if (settings.seed) {
        run.backwards = random_number() % 2;
        run.offset = random_number() % run.blocks;
        do {
            run.stride = 1 + random_number() % run.blocks;
        } while (std::gcd(run.stride, run.blocks) != 1);
    }
    uint64_t threads = run.blocks * launch.block.x * launch.block.y * launch.block.z;
    unsigned others = sanitizer || threads < LARGE || run.blocks < 2 || settings.threads < 2 ? 0 : (unsigned)settings.threads - 1;
    if (others) {
        helpers->begin(run, others);
    }
    first->run(run);
    if (others) {
        helpers->wait();
    }
    message = run.message;
    return run.error;
}

}  // namespace emulated
