// Copies to shared memory that a thread has begun and not waited for.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace emulated {

class AsyncCopies {
public:
    struct Copy {
        void *to;
        const void *from;
        unsigned bytes;
        // The instruction that began it, for the sanitizer.
        uint32_t place;
    };

    // A block of so many threads begins: nothing is under way.
    void begin(unsigned threads);
    void copy(unsigned thread, const Copy &copy);
    void commit(unsigned thread);
    void wait(unsigned thread, unsigned pending);

private:
    void forget();

    // The last group of a thread is the one that is not committed yet.
    std::vector<std::deque<std::vector<Copy>>> groups;
    bool used = false;
};

}  // namespace emulated
