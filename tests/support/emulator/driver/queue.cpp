#include "queue.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>

namespace emulated {

std::mutex lock;
bool initialized = false;
std::vector<Device *> devices;
Arena host;
__thread Device *current_device;

// Operations that a device has room for; a thread that enqueues more waits for some of them.
constexpr size_t MOST_PENDING = 1024;

uint64_t random_number() {
    static int64_t seed = 0;
    static uint64_t state = 0;
    if (seed != settings.seed) {
        seed = settings.seed;
        state = (uint64_t)seed;
    }
    // SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// ---- One operation --------------------------------------------------------------------------------------------------

// Memory may have been freed since the copy was enqueued.
static int check(Device &device, const void *at, size_t bytes, const char *what) {
    if (device.memory.owns(at) && !device.memory.holds(at, bytes)) {
        return complain(ILLEGAL_ADDRESS, std::string(what) + " of " + std::to_string(bytes) + " bytes at " +
                                             device.memory.describe(at));
    }
    if (host.owns(at) && !host.holds(at, bytes)) {
        return complain(ILLEGAL_ADDRESS, std::string(what) + " of " + std::to_string(bytes) +
                                             " bytes at pinned memory, " + host.describe(at));
    }
    return SUCCESS;
}

static int launch(Device &device, const Launch &launch) {
    const Kernel &kernel = *launch.kernel;
    for (unsigned i = 0; i < kernel.count; i++) {
        void *pointer = nullptr;
        if (!kernel.arguments[i].pointer) {
            continue;
        }
        memcpy(&pointer, launch.arguments[i], sizeof pointer);
        if (pointer && !device.memory.owns(pointer) && !host.owns(pointer)) {
            return complain(ILLEGAL_ADDRESS, "kernel `" + std::string(kernel.name) + "`: argument " +
                                                 std::to_string(i) + " is not an address of the device");
        }
    }
    if (int fault = planted_fault(kernel.name)) {
        return complain(fault, "kernel `" + std::string(kernel.name) + "`: a planted fault");
    }
    std::string message;
    int error = execute(launch, message);
    return error ? complain(error, message) : SUCCESS;
}

Replay::Replay(std::shared_ptr<const Graph> of) : graph(std::move(of)), missing(graph->nodes.size()), followers(missing.size()) {
    for (size_t i = 0; i < missing.size(); i++) {
        missing[i] = graph->nodes[i].after.size();
        for (size_t before : graph->nodes[i].after) {
            followers[before].push_back(i);
        }
        if (!missing[i]) {
            ready.push_back(i);
        }
    }
}

std::vector<size_t> Replay::runnable() {
    std::vector<size_t> nodes;
    for (size_t node : ready) {
        const Operation &operation = graph->nodes[node].operation;
        if (operation.kind == Operation::WAITING) {
            auto found = begun.find(node);
            if (found == begun.end()) {
                found = begun.insert({node, {operation.begin()}}).first;
            }
            if (!found->second.is_over()) {
                continue;
            }
        }
        nodes.push_back(node);
    }
    return nodes;
}

int Replay::advance(Device &device, const std::vector<size_t> &nodes) {
    size_t node = nodes[settings.seed ? random_number() % nodes.size() : 0];
    for (size_t other : nodes) {
        node = !settings.seed && other < node ? other : node;
    }
    ready.erase(std::find(ready.begin(), ready.end(), node));
    if (int error = perform(device, graph->nodes[node].operation)) {
        ready.clear();
        return error;
    }
    for (size_t follower : followers[node]) {
        if (--missing[follower] == 0) {
            ready.push_back(follower);
        }
    }
    return SUCCESS;
}

int perform(Device &device, const Operation &operation) {
    int error = SUCCESS;
    switch (operation.kind) {
    case Operation::LAUNCH:
        error = launch(device, *operation.launch);
        break;
    case Operation::COPY: {
        const char *from = operation.staged ? operation.staged->data() : operation.from;
        error = check(device, operation.to, operation.bytes, "write");
        error = error ? error : check(device, from, operation.bytes, "read");
        if (!error) {
            memmove(operation.to, from, operation.bytes);
        }
        break;
    }
    case Operation::FILL:
        error = check(device, operation.to, operation.bytes, "fill");
        for (size_t i = 0; !error && i < operation.bytes; i += operation.unit) {
            memcpy(operation.to + i, &operation.pattern, operation.unit);
        }
        break;
    case Operation::FREE: {
        std::string damage;
        device.memory.release(operation.to, damage);
        error = damage.empty() ? SUCCESS : complain(ILLEGAL_ADDRESS, damage);
        break;
    }
    case Operation::RECORD: {
        auto now = std::chrono::steady_clock::now().time_since_epoch();
        operation.recording->milliseconds = std::chrono::duration<double, std::milli>(now).count();
        operation.recording->done = true;
        break;
    }
    case Operation::WAIT: break;
    case Operation::WAITING: break;
    case Operation::WORK: operation.work(); break;
    case Operation::GRAPH: {
        // On the default stream; others run it node by node.
        Replay replay(operation.graph);
        while (!error && !replay.over()) {
            error = replay.advance(device, replay.runnable());
        }
        break;
    }
    }
    if (error && !device.error) {
        device.error = error;
    }
    return error;
}

// ---- Order ----------------------------------------------------------------------------------------------------------

static bool runnable(Stream &stream) {
    if (stream.queue.empty()) {
        return false;
    }
    const Operation &head = stream.queue.front();
    if (head.kind == Operation::WAIT) {
        return head.recording->done;
    }
    if (stream.device->error) {
        return true;
    }
    if (head.kind == Operation::WAITING) {
        if (!stream.begun) {
            stream.begun.reset(new Begun{head.begin()});
        }
        return stream.begun->is_over();
    }
    if (head.kind == Operation::GRAPH) {
        if (!stream.replay) {
            stream.replay.reset(new Replay(head.graph));
        }
        return stream.replay->over() || !stream.replay->runnable().empty();
    }
    return true;
}

// Runs one operation that nothing stands ahead of: the program's next, or any. False if there is none.
bool step() {
    std::vector<Stream *> candidates;
    for (Device *device : devices) {
        for (Stream *stream : device->streams) {
            if (runnable(*stream)) {
                candidates.push_back(stream);
            }
        }
    }
    if (candidates.empty()) {
        return false;
    }
    Stream *pick = candidates[0];
    if (settings.seed) {
        // Streams are kept by address, which differs from run to run; their next operations' places do not.
        uint64_t key = random_number(), best = 0;
        for (Stream *stream : candidates) {
            uint64_t rank = (stream->queue.front().sequence ^ key) * 0x9e3779b97f4a7c15u;
            if (stream == candidates[0] || rank > best) {
                pick = stream;
                best = rank;
            }
        }
    } else {
        for (Stream *stream : candidates) {
            pick = stream->queue.front().sequence < pick->queue.front().sequence ? stream : pick;
        }
    }
    if (pick->replay && !pick->device->error) {
        Replay &replay = *pick->replay;
        if (!replay.over()) {
            replay.advance(*pick->device, replay.runnable());
        }
        if (!replay.over()) {
            return true;
        }
    }
    bool replayed = !!pick->replay;
    Operation operation = std::move(pick->queue.front());
    pick->queue.pop_front();
    pick->begun.reset();
    pick->replay.reset();
    if (replayed) {
        return true;
    }
    if (!pick->device->error) {
        perform(*pick->device, operation);
    } else if (operation.recording && operation.kind == Operation::RECORD) {
        // After an error nothing runs, but no thread shall wait for ever.
        operation.recording->done = true;
    }
    return true;
}

static int looked_at(Device &device) {
    std::string damage;
    if (!device.error && !device.memory.intact(damage)) {
        device.error = complain(ILLEGAL_ADDRESS, damage);
    }
    return device.error;
}

static std::condition_variable_any changed;

void notify() { changed.notify_all(); }

// True if some work waits for what other threads or processes have yet to enqueue.
static bool is_waiting() {
    for (Device *device : devices) {
        for (Stream *stream : device->streams) {
            if (stream->begun || stream->replay) {
                return true;
            }
        }
    }
    return false;
}

// Lets things happen until `done` says so. Other threads have the lock while nothing can happen here.
template <class Done> static void until(Done done) {
    // A GPU would wait for ever.
    constexpr std::chrono::seconds PATIENCE(120);
    auto since = std::chrono::steady_clock::now();
    while (!done()) {
        if (step()) {
            since = std::chrono::steady_clock::now();
            continue;
        }
        if (!is_waiting()) {
            return;
        }
        if (std::chrono::steady_clock::now() - since > PATIENCE) {
            fprintf(stderr, "the emulated GPU waits for another one, of which nothing has come for 120 seconds\n");
            abort();
        }
        changed.wait_for(lock, std::chrono::milliseconds(2));
    }
}

int finish(Stream &stream) {
    until([&] { return stream.queue.empty(); });
    return looked_at(*stream.device);
}

int finish(Device &device, const Recording &recording) {
    until([&] { return recording.done; });
    return looked_at(device);
}

int finish(Device &device) {
    auto streams = device.streams;
    for (Stream *stream : streams) {
        finish(*stream);
    }
    return looked_at(device);
}

int finish_blocking(Device &device) {
    auto streams = device.streams;
    for (Stream *stream : streams) {
        if (!(stream->flags & 1u)) {
            finish(*stream);
        }
    }
    return device.error;
}

void progress(Device &) {
    for (uint64_t steps = settings.seed ? random_number() % 4 : 1; steps > 0 && step(); steps--) {
    }
}

int enqueue(Stream &stream, Operation operation) {
    static uint64_t sequence = 0;
    Device &device = *stream.device;
    if (stream.capture) {
        if (stream.capture->invalid) {
            return CAPTURE_INVALIDATED;
        }
        Graph &graph = *stream.capture->graph;
        graph.nodes.push_back({std::move(operation), {stream.after.begin(), stream.after.end()}});
        stream.after = {graph.nodes.size() - 1};
        return SUCCESS;
    }
    if (!device.streams.count(&stream)) {
        // The default stream: what comes after it cannot be enqueued before it is done.
        finish_blocking(device);
        return device.error ? device.error : perform(device, operation);
    }
    operation.sequence = sequence++;
    stream.queue.push_back(std::move(operation));
    notify();
    while (stream.queue.size() > MOST_PENDING && step()) {
    }
    return SUCCESS;
}

Stream *stream_of(Device &device, void *handle) {
    static auto *defaults = new std::map<Device *, Stream>();
    if (!handle) {
        Stream &stream = (*defaults)[&device];
        stream.device = &device;
        return &stream;
    }
    auto found = device.streams.find((Stream *)handle);
    return found == device.streams.end() ? nullptr : *found;
}

}  // namespace emulated
