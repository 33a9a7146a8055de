// Copies to shared memory that a thread has begun and not waited for.
#pragma once

#include <deque>
#include <vector>

namespace emulated {

class AsyncCopies {
public:
    // A block of so many threads begins: nothing is under way.
    void begin(unsigned threads);
    void copy(unsigned thread, void *shared, const void *global, unsigned bytes);
    void commit(unsigned thread);
    void wait(unsigned thread, unsigned pending);

private:
    struct Copy {
        void *to;
        const void *from;
        unsigned bytes;
    };
    // The last group of a thread is the one that is not committed yet.
    std::vector<std::deque<std::vector<Copy>>> groups;
    bool used = false;
};

}  // namespace emulated
