// Work of others on the emulated streams: what libraries of the tests do in place of kernels.

#include "queue.h"

using namespace emulated;

// Enqueues `run(data)`, or records it into the stream's capture; `release(data)` comes when it will not run again. It is
// called with the driver's lock held: of the driver, it may call `emulated_holds` alone.
API emulated_enqueue(void *handle, void (*run)(void *), void *data, void (*release)(void *)) {
    std::shared_ptr<void> owned(data, release);
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!stream || !run) {
        return INVALID_HANDLE;
    }
    Operation operation = {};
    operation.kind = Operation::WORK;
    operation.work = [run, owned] { run(owned.get()); };
    return enqueue(*stream, std::move(operation));
}

// Enqueues work that waits for others: when it is its turn, `begin(data)` gives something that lives until `end`; it is over once `poll` of
// that is not 0. All are called with the driver's lock held, as above.
API emulated_enqueue_waiting(void *handle, void *(*begin)(void *), int (*poll)(void *), void (*end)(void *), void *data,
                             void (*release)(void *)) {
    std::shared_ptr<void> owned(data, release);
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!stream || !begin || !poll || !end) {
        return INVALID_HANDLE;
    }
    Operation operation = {};
    operation.kind = Operation::WAITING;
    operation.begin = [begin, poll, end, owned] {
        std::shared_ptr<void> execution(begin(owned.get()), end);
        return [execution, poll] { return poll(execution.get()) != 0; };
    };
    return enqueue(*stream, std::move(operation));
}

// Lets one thing happen: devices of other processes wait for it, which no call of this one would show. 0 if nothing can.
API emulated_step() {
    std::lock_guard<std::mutex> guard(lock);
    return initialized && step();
}

// Something has happened that work waits for.
API emulated_notify() {
    notify();
    return SUCCESS;
}

// Whether all of these bytes lie within one allocation of a device.
API emulated_holds(const void *at, size_t bytes) {
    for (Device *device : devices) {
        if (device->memory.holds(at, bytes)) {
            return 1;
        }
    }
    return 0;
}
