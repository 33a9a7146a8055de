// The driver's functions for streams and events.

#include "queue.h"
#include "settings.h"

using namespace emulated;

namespace {

std::set<Event *> events;

Event *event_of(void *handle) { return events.count((Event *)handle) ? (Event *)handle : nullptr; }

// Calls that wait or ask are not allowed on a stream that is being captured.
int captured(Stream &stream) {
    if (stream.capture) {
        stream.capture->invalid = true;
        return CAPTURE_UNSUPPORTED;
    }
    return SUCCESS;
}

}  // namespace

API cuStreamCreateWithPriority(void **stream, unsigned flags, int) {
    ENTER;
    if (flags > 1) {
        return INVALID_VALUE;
    }
    auto *created = new Stream();
    created->device = &device;
    created->flags = flags;
    created->deaf = settings.deaf > 0 && --settings.deaf == 0;
    device.streams.insert(created);
    *stream = created;
    return SUCCESS;
}

API cuStreamCreate(void **stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

API cuStreamDestroy_v2(void *handle) {
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!handle || !stream) {
        return INVALID_HANDLE;
    }
    // CUDA returns at once and lets the work end; here it ends now, which is one of the possible orders.
    finish(*stream);
    if (stream->capture) {
        auto capture = stream->capture;
        capture->invalid = true;
        if (capture->origin == stream) {
            end_capture(capture);
        } else {
            capture->streams.erase(stream);
        }
    }
    device.streams.erase(stream);
    delete stream;
    return device.error;
}

API cuStreamSynchronize(void *handle) {
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!stream) {
        return INVALID_HANDLE;
    }
    if (int error = captured(*stream)) {
        return error;
    }
    return handle ? finish(*stream) : finish_blocking(device);
}

API cuStreamQuery(void *handle) {
    ENTER;
    Stream *stream = stream_of(device, handle);
    if (!stream) {
        return INVALID_HANDLE;
    }
    if (int error = captured(*stream)) {
        return error;
    }
    progress(device);
    return device.error ? device.error : stream->queue.empty() ? SUCCESS : NOT_READY;
}

API cuCtxSynchronize() {
    ENTER;
    for (Stream *stream : device.streams) {
        if (int error = captured(*stream)) {
            return error;
        }
    }
    return finish(device);
}

API cuStreamWaitEvent(void *handle, void *event_handle, unsigned) {
    ENTER;
    Stream *stream = stream_of(device, handle);
    Event *event = event_of(event_handle);
    if (!stream || !event) {
        return INVALID_HANDLE;
    }
    if (event->capture) {
        if (event->capture->over || event->capture->invalid) {
            return event->capture->over ? INVALID_VALUE : CAPTURE_INVALIDATED;
        }
        if (stream->capture && stream->capture != event->capture) {
            stream->capture->invalid = event->capture->invalid = true;
            return CAPTURE_MERGE;
        }
        stream->capture = event->capture;
        stream->capture->streams.insert(stream);
        stream->after.insert(event->after.begin(), event->after.end());
        return SUCCESS;
    }
    if (stream->capture) {
        stream->capture->invalid = true;
        return CAPTURE_ISOLATION;
    }
    if (!event->latest || stream->deaf) {
        return SUCCESS;  // Never recorded: nothing to wait for.
    }
    Operation operation = {};
    operation.kind = Operation::WAIT;
    operation.recording = event->latest;
    return enqueue(*stream, std::move(operation));
}

API cuEventCreate(void **event, unsigned flags) {
    ENTER;
    auto *created = new Event();
    created->flags = flags;
    events.insert(created);
    *event = created;
    return SUCCESS;
}

API cuEventDestroy_v2(void *handle) {
    PLANTED;
    std::lock_guard<std::mutex> guard(lock);
    if (!events.erase((Event *)handle)) {
        return INVALID_HANDLE;
    }
    delete (Event *)handle;
    return SUCCESS;
}

API cuEventRecord(void *handle, void *stream_handle) {
    ENTER;
    Event *event = event_of(handle);
    Stream *stream = stream_of(device, stream_handle);
    if (!stream || !event) {
        return INVALID_HANDLE;
    }
    if (stream->capture) {
        if (stream->capture->invalid) {
            return CAPTURE_INVALIDATED;
        }
        event->capture = stream->capture;
        event->after = stream->after;
        event->latest = nullptr;
        return SUCCESS;
    }
    event->capture = nullptr;
    event->latest = std::make_shared<Recording>();
    Operation operation = {};
    operation.kind = Operation::RECORD;
    operation.recording = event->latest;
    return enqueue(*stream, std::move(operation));
}

API cuEventSynchronize(void *handle) {
    ENTER;
    Event *event = event_of(handle);
    if (!event) {
        return INVALID_HANDLE;
    }
    if (event->capture) {
        event->capture->invalid = true;
        return CAPTURED_EVENT;
    }
    return event->latest ? finish(device, *event->latest) : SUCCESS;
}

API cuEventQuery(void *handle) {
    ENTER;
    Event *event = event_of(handle);
    if (!event) {
        return INVALID_HANDLE;
    }
    if (event->capture) {
        event->capture->invalid = true;
        return CAPTURED_EVENT;
    }
    progress(device);
    return device.error ? device.error : !event->latest || event->latest->done ? SUCCESS : NOT_READY;
}

API cuEventElapsedTime_v2(float *milliseconds, void *from, void *to) {
    ENTER;
    Event *first = event_of(from), *second = event_of(to);
    // Bit 1 of the flags: no timing.
    if (!first || !second || !first->latest || !second->latest || (first->flags | second->flags) & 2u) {
        return INVALID_HANDLE;
    }
    if (!first->latest->done || !second->latest->done) {
        return NOT_READY;
    }
    *milliseconds = (float)(second->latest->milliseconds - first->latest->milliseconds);
    return SUCCESS;
}

API cuEventElapsedTime(float *milliseconds, void *from, void *to) {
    return cuEventElapsedTime_v2(milliseconds, from, to);
}
