// Recording of streams into graphs, and their launch.

#include <functional>
#include <thread>

#include "queue.h"

using namespace emulated;

namespace {

enum Mode { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };

uint64_t this_thread() { return std::hash<std::thread::id>()(std::this_thread::get_id()); }

std::set<std::shared_ptr<Capture>> captures;

struct Executable {
    std::shared_ptr<const Graph> graph;
};

// True if every node of the capture is behind the nodes where the origin stands, that is, all streams were joined.
bool joined(const Capture &capture) {
    const Graph &graph = *capture.graph;
    std::vector<bool> behind(graph.nodes.size());
    for (size_t node : capture.origin->after) {
        behind[node] = true;
    }
    for (size_t i = graph.nodes.size(); i-- > 0;) {
        if (!behind[i]) {
            return false;
        }
        for (size_t before : graph.nodes[i].after) {
            behind[before] = true;
        }
    }
    return true;
}

}  // namespace

void emulated::end_capture(const std::shared_ptr<Capture> &capture) {
    for (Stream *part : capture->streams) {
        part->capture = nullptr;
        part->after.clear();
    }
    capture->over = true;
    captures.erase(capture);
}

int emulated::forbidden_in_capture() {
    int error = SUCCESS;
    for (auto &capture : captures) {
        if (capture->mode == GLOBAL || (capture->mode == THREAD_LOCAL && capture->thread == this_thread())) {
            capture->invalid = true;
            error = CAPTURE_UNSUPPORTED;
        }
    }
    return error;
}

API cuStreamBeginCapture_v2(void *handle, int mode) {
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!stream || !handle || stream->capture || mode < GLOBAL || mode > RELAXED) {
        // The default stream cannot be captured.
        return !handle ? (int)CAPTURE_UNSUPPORTED : (int)INVALID_VALUE;
    }
    auto capture = std::make_shared<Capture>();
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = this_thread();
    capture->streams.insert(stream);
    captures.insert(capture);
    stream->capture = capture;
    stream->after.clear();
    return SUCCESS;
}

API cuStreamEndCapture(void *handle, void **graph) {
    ENTER;
    *graph = nullptr;
    Stream *stream = stream_of(device, handle);
    if (!stream || !stream->capture) {
        return INVALID_VALUE;
    }
    auto capture = stream->capture;
    if (capture->origin != stream) {
        capture->invalid = true;
        return CAPTURE_UNMATCHED;
    }
    int error = capture->invalid ? CAPTURE_INVALIDATED : joined(*capture) ? SUCCESS : CAPTURE_UNJOINED;
    end_capture(capture);
    if (!error) {
        *graph = new Executable{capture->graph};
    }
    return error;
}

API cuStreamIsCapturing(void *handle, int *status) {
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!stream) {
        return INVALID_HANDLE;
    }
    *status = !stream->capture ? 0 : stream->capture->invalid ? 2 : 1;
    return SUCCESS;
}

API cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long) {
    ENTER;
    if (!graph) {
        return INVALID_VALUE;
    }
    *executable = new Executable(*(Executable *)graph);
    return SUCCESS;
}

API cuGraphUpload(void *, void *) {
    ENTER;
    return SUCCESS;
}

API cuGraphLaunch(void *executable, void *handle) {
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!stream || !executable) {
        return INVALID_HANDLE;
    }
    Operation operation = {};
    operation.kind = Operation::GRAPH;
    operation.graph = ((Executable *)executable)->graph;
    return enqueue(*stream, std::move(operation));
}

API cuGraphDestroy(void *graph) {
    PLANTED;
    std::lock_guard<std::mutex> guard(lock);
    delete (Executable *)graph;
    return SUCCESS;
}

API cuGraphExecDestroy(void *executable) {
    PLANTED;
    std::lock_guard<std::mutex> guard(lock);
    delete (Executable *)executable;
    return SUCCESS;
}

API cuGraphGetNodes(void *graph, void **nodes, size_t *count) {
    ENTER;
    if (!graph || nodes) {
        // Nodes cannot be looked at, only counted.
        return INVALID_VALUE;
    }
    *count = ((Executable *)graph)->graph->nodes.size();
    return SUCCESS;
}
