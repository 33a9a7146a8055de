// Streams, events and graphs: what is enqueued, and when it runs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "worker.h"

namespace emulated {

// One recording of an event. Waits hold the recording that was the latest when they were enqueued.
struct Recording {
    bool done = false;
    double milliseconds = 0;
};

struct Graph;

// One thing enqueued on a stream, or a node of a graph.
struct Operation {
    enum Kind { LAUNCH, COPY, FILL, FREE, RECORD, WAIT, GRAPH, WORK, WAITING } kind;
    // Place in the order of the program.
    uint64_t sequence = 0;
    std::shared_ptr<Launch> launch;
    // COPY, FILL: bytes; FILL: a pattern of `unit` bytes, 1 or 4.
    char *to = nullptr;
    const char *from = nullptr;
    size_t bytes = 0;
    uint32_t pattern = 0;
    unsigned unit = 1;
    // What a copy from memory that is not pinned reads: CUDA has taken it by the time the call returns.
    std::shared_ptr<std::vector<char>> staged;
    std::shared_ptr<Recording> recording;
    std::shared_ptr<const Graph> graph;
    // WORK: see `api_work.cpp`.
    std::function<void()> work;
    // WAITING: begins, and gives what says whether it is over.
    std::function<std::function<bool()>()> begin;
};

// Work that has begun and waits for others.
struct Begun {
    std::function<bool()> poll;
    bool over = false;

    bool is_over() { return over = over || poll(); }
};

// What a capture has recorded. Nodes come after those they depend on.
struct Graph {
    struct Node {
        Operation operation;
        std::vector<size_t> after;
    };
    std::vector<Node> nodes;
};

// A graph that is being run.
struct Replay {
    std::shared_ptr<const Graph> graph;
    // How many nodes each still waits for; those that wait for none; who waits for each.
    std::vector<size_t> missing, ready;
    std::vector<std::vector<size_t>> followers;
    std::map<size_t, Begun> begun;

    explicit Replay(std::shared_ptr<const Graph> graph);

    // The nodes that can run now.
    std::vector<size_t> runnable();

    // Runs one of these. An error of CUDA.
    int advance(Device &device, const std::vector<size_t> &nodes);

    bool over() const { return ready.empty(); }
};

// A capture that goes on.
struct Capture {
    Stream *origin;
    int mode;
    uint64_t thread;
    bool invalid = false, over = false;
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    // Streams that take part.
    std::set<Stream *> streams;
};

struct Stream {
    Device *device;
    unsigned flags;
    std::deque<Operation> queue;
    // What the first of them has become, if that takes longer.
    std::unique_ptr<Begun> begun;
    std::unique_ptr<Replay> replay;
    std::shared_ptr<Capture> capture;
    // Nodes that the next one depends on.
    std::set<size_t> after;
    // Waits for no event: the fault that `Settings::deaf` plants.
    bool deaf;
};

struct Event {
    unsigned flags;
    std::shared_ptr<Recording> latest;
    // If it was recorded in a capture: which one, and the nodes that a wait waits for.
    std::shared_ptr<Capture> capture;
    std::set<size_t> after;
};

// The stream that a handle means: null is the default stream, which waits for all streams that do not say otherwise.
Stream *stream_of(Device &device, void *handle);

// Enqueues, or records into the stream's capture.
int enqueue(Stream &stream, Operation operation);

// Runs what is enqueued until the stream has nothing left, or until the recording is done, or on all streams of the
// device. Returns the device's error.
int finish(Stream &stream);
int finish(Device &device, const Recording &recording);
int finish(Device &device);

// Waits for the streams that the default stream waits for.
int finish_blocking(Device &device);

// Something has happened that others may wait for.
void notify();

// Lets one thing happen, of any device. False if nothing can.
bool step();

// What a question lets happen: nothing, or something.
void progress(Device &device);

// Runs one operation now.
int perform(Device &device, const Operation &operation);

// Runs a launch to its end. Returns an error of CUDA.
int execute(const Launch &launch, std::string &message);

// Ahead of calls that are unsafe in a capture: those captures that forbid them become invalid. Returns an error of CUDA.
int forbidden_in_capture();

// Ends a capture: its streams are as they were before.
void end_capture(const std::shared_ptr<Capture> &capture);

}  // namespace emulated
