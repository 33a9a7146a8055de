// An NCCL for the emulated driver: sends and receives in groups, between threads of a process or between processes, and no tolerance for calls that
// the real one might not take, or might wait in for ever.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fake.h"

using namespace fake;

namespace {

enum Result { SUCCESS = 0, UNHANDLED_CUDA_ERROR = 1, INVALID_USAGE = 5, IN_PROGRESS = 7 };

constexpr int UINT8 = 1;

struct UniqueId {
    char text[128];
};

struct Config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};

struct Communicator;

struct Message {
    std::shared_ptr<Communicator> owner;
    bool sends;
    int peer;
    char *at;
    size_t bytes;
    bool done = false;
};

using Messages = std::deque<std::shared_ptr<Message>>;

// What this process knows of a group: a folder, whose files say who has come, and carry what is sent to other processes.
struct Group {
    std::string folder;
    int ranks;
    // Those of this process.
    std::map<int, std::shared_ptr<Communicator>> here;
    // By sender and receiver, what has begun on both sides.
    std::map<std::pair<int, int>, Messages> sent, awaited;
};

struct Communicator {
    std::shared_ptr<Group> group;
    int rank;
    void *context;
    bool joined = false, aborted = false;
    // What the next question for errors is answered with, once.
    int progress = IN_PROGRESS;
    int error = SUCCESS;
    // Exchanges that are enqueued, or in a graph; those that have begun.
    int alive = 0, begun = 0;
    // Peers that it has exchanged something with outside of a capture.
    std::set<int> connected;
    // Bytes read of what another process sends.
    std::map<int, size_t> read;
    // With ranks in other processes: lets things happen on the devices of this one, which those wait for, while its threads wait for them.
    std::thread goes_on;
};

struct Handle {
    std::shared_ptr<Communicator> of;
};

// Of everything here; taken after the driver's.
std::mutex state;
std::map<std::string, std::shared_ptr<Group>> groups;

// What this thread has put together since the group began.
struct Pending {
    bool open = false;
    void *stream = nullptr;
    std::shared_ptr<Communicator> of;
    std::vector<Message> messages;
};
thread_local Pending pending;

// A fault that a test plants, as in `FAKE_NCCL=error:1:2`: rank 1 fails at its second exchange. `init:1` fails when it connects.
struct Planted {
    std::string what;
    int rank = -1, number = 0;

    Planted() {
        const char *text = getenv("FAKE_NCCL");
        std::string said = text ? text : "";
        size_t colon = said.find(':');
        if (colon != std::string::npos) {
            what = said.substr(0, colon);
            sscanf(said.c_str() + colon, ":%d:%d", &rank, &number);
        }
    }
};

const Planted &planted() {
    static Planted planted;
    return planted;
}

std::string file(const Group &group, const std::string &name) { return group.folder + "/" + name; }

std::string stream_file(const Group &group, int from, int to) {
    return file(group, std::to_string(from) + "-" + std::to_string(to));
}

// Whether all ranks have come.
bool all_here(const Group &group) {
    for (int rank = 0; rank < group.ranks; rank++) {
        if (access(file(group, "rank-" + std::to_string(rank)).c_str(), F_OK) != 0) {
            return false;
        }
    }
    return true;
}

[[noreturn]] void differ(const Message &sent, const Message &awaited) {
    fprintf(stderr, "rank %d sends %zu bytes, and rank %d waits for %zu\n", sent.owner->rank, sent.bytes, awaited.owner->rank,
            awaited.bytes);
    abort();
}

// To another process: its length ahead of it. The sender need not wait for the receiver.
void send_away(const Group &group, Message &message) {
    std::string path = stream_file(group, message.owner->rank, message.peer);
    int to = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    REQUIRE(to >= 0);
    std::vector<char> bytes(sizeof message.bytes + message.bytes);
    memcpy(bytes.data(), &message.bytes, sizeof message.bytes);
    memcpy(bytes.data() + sizeof message.bytes, message.at, message.bytes);
    for (size_t at = 0; at < bytes.size();) {
        ssize_t written = write(to, bytes.data() + at, bytes.size() - at);
        REQUIRE(written > 0);
        at += (size_t)written;
    }
    close(to);
    message.done = true;
}

void receive_away(const Group &group, Message &message) {
    std::string path = stream_file(group, message.peer, message.owner->rank);
    int from = open(path.c_str(), O_RDONLY);
    if (from < 0) {
        return;
    }
    size_t &read = message.owner->read[message.peer], length = 0;
    struct stat about;
    REQUIRE(fstat(from, &about) == 0);
    size_t there = (size_t)about.st_size;
    if (there >= read + sizeof length) {
        REQUIRE(pread(from, &length, sizeof length, (off_t)read) == (ssize_t)sizeof length);
        if (length != message.bytes) {
            fprintf(stderr, "rank %d sends %zu bytes, and rank %d waits for %zu\n", message.peer, length, message.owner->rank,
                    message.bytes);
            abort();
        }
        if (there >= read + sizeof length + length) {
            REQUIRE(pread(from, message.at, length, (off_t)(read + sizeof length)) == (ssize_t)length);
            read += sizeof length + length;
            message.done = true;
        }
    }
    close(from);
}

// Moves what has begun on both sides.
void carry(Group &group, int from, int to) {
    Messages &sent = group.sent[{from, to}], &awaited = group.awaited[{from, to}];
    bool sender = group.here.count(from), receiver = group.here.count(to);
    while (sender && !receiver && !sent.empty()) {
        send_away(group, *sent.front());
        sent.pop_front();
    }
    while (receiver && !sender && !awaited.empty()) {
        receive_away(group, *awaited.front());
        if (!awaited.front()->done) {
            return;
        }
        awaited.pop_front();
    }
    while (!sent.empty() && !awaited.empty()) {
        Message &a = *sent.front(), &b = *awaited.front();
        if (a.bytes != b.bytes) {
            differ(a, b);
        }
        memcpy(b.at, a.at, a.bytes);
        a.done = b.done = true;
        sent.pop_front();
        awaited.pop_front();
    }
}

void go_on(const Communicator &comm) {
    static auto step = (int (*)())driver("emulated_step");
    for (bool over = false; !over;) {
        if (!step()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        std::lock_guard<std::mutex> guard(state);
        over = comm.aborted;
    }
}

// The messages of an exchange that has begun.
using Execution = std::vector<std::shared_ptr<Message>>;

bool is_over(const Execution &execution) {
    std::lock_guard<std::mutex> guard(state);
    bool over = true;
    for (auto &message : execution) {
        Communicator &comm = *message->owner;
        if (comm.aborted) {
            return true;
        }
        if (!message->done) {
            int from = message->sends ? comm.rank : message->peer, to = message->sends ? message->peer : comm.rank;
            carry(*comm.group, from, to);
        }
        over = over && message->done;
    }
    return over;
}

// It is an exchange's turn.
std::function<bool()> start(const std::vector<Message> &messages) {
    std::lock_guard<std::mutex> guard(state);
    auto execution = std::make_shared<Execution>();
    Communicator &comm = *messages.front().owner;
    if (comm.aborted) {
        // It was enqueued before, and sees now that nothing is to be done.
        return [] { return true; };
    }
    comm.begun++;
    if (planted().what == "error" && planted().rank == comm.rank && planted().number == comm.begun) {
        comm.error = UNHANDLED_CUDA_ERROR;
    }
    for (const Message &message : messages) {
        REQUIRE(holds(message.at, message.bytes));
        auto begun = std::make_shared<Message>(message);
        execution->push_back(begun);
        auto &of = message.sends ? comm.group->sent[{comm.rank, message.peer}] : comm.group->awaited[{message.peer, comm.rank}];
        of.push_back(begun);
    }
    return [execution] { return is_over(*execution); };
}

int add(bool sends, const void *at, size_t count, int type, int peer, Handle *handle, void *stream) {
    known(handle);
    std::shared_ptr<Communicator> comm = handle->of;
    // Outside of a group, a send waits for its receive, and none comes while all ranks send.
    REQUIRE(pending.open);
    REQUIRE(type == UINT8 && count > 0 && at && stream && has_context());
    std::lock_guard<std::mutex> guard(state);
    REQUIRE(comm->joined && !comm->aborted && comm->progress == SUCCESS);
    REQUIRE(peer >= 0 && peer < comm->group->ranks && peer != comm->rank);
    REQUIRE(!pending.of || (pending.of == comm && pending.stream == stream));
    pending.of = comm;
    pending.stream = stream;
    pending.messages.push_back(Message{comm, sends, peer, (char *)at, count});
    return SUCCESS;
}

}  // namespace

EXPORT int ncclGetVersion(int *version) {
    const char *said = getenv("FAKE_NCCL_VERSION");
    *version = said ? atoi(said) : 22703;
    return SUCCESS;
}

// The folders that this process has made. Where ranks fail they stay, so they go when it ends; but for those in which other processes may still look for files.
struct Made {
    std::vector<std::string> folders;

    ~Made() {
        for (const std::string &folder : folders) {
            auto found = groups.find(folder);
            if (found != groups.end() && (int)found->second->here.size() < found->second->ranks) {
                continue;
            }
            std::error_code ignored;
            std::filesystem::remove_all(folder, ignored);
        }
    }
};
Made folders_made;

EXPORT int ncclGetUniqueId(UniqueId *id) {
    const char *folder = getenv("TMPDIR");
    memset(id, 0, sizeof *id);
    REQUIRE(snprintf(id->text, sizeof id->text, "%s/fake-nccl-XXXXXX", folder ? folder : "/tmp") < (int)sizeof id->text);
    REQUIRE(mkdtemp(id->text));
    std::lock_guard<std::mutex> guard(state);
    folders_made.folders.push_back(id->text);
    return SUCCESS;
}

EXPORT int ncclCommInitRankConfig(Handle **handle, int ranks, UniqueId id, int rank, Config *config) {
    REQUIRE(has_context() && ranks > 1 && rank >= 0 && rank < ranks);
    REQUIRE(config && config->size == sizeof(Config) && config->magic == 0xcafebeef && config->version == 21700);
    REQUIRE(config->blocking == 0 && !config->net_name);
    for (int n : {config->cga_cluster_size, config->min_ctas, config->max_ctas, config->split_share}) {
        REQUIRE(n == INT_MIN);
    }
    auto comm = std::make_shared<Communicator>();
    {
        std::lock_guard<std::mutex> guard(state);
        auto &group = groups[id.text];
        if (!group) {
            group = std::make_shared<Group>(Group{id.text, ranks, {}, {}, {}});
        }
        REQUIRE(group->ranks == ranks && !group->here.count(rank));
        comm->group = group;
        comm->rank = rank;
        static auto ask = (int (*)(void **))driver("cuCtxGetCurrent");
        REQUIRE(ask(&comm->context) == 0);
        for (auto &other : group->here) {
            // A GPU is in a group once.
            if (other.second->context == comm->context) {
                // All ranks find that out.
                comm->error = other.second->error = INVALID_USAGE;
            }
        }
        group->here[rank] = comm;
        if (planted().what == "init" && planted().rank == rank) {
            comm->error = UNHANDLED_CUDA_ERROR;
        } else {
            close(open(file(*group, "rank-" + std::to_string(rank)).c_str(), O_WRONLY | O_CREAT, 0600));
        }
    }
    made(handle, new Handle{comm});
    return IN_PROGRESS;
}

EXPORT int ncclCommGetAsyncError(Handle *handle, int *answer) {
    known(handle);
    std::lock_guard<std::mutex> guard(state);
    Communicator &comm = *handle->of;
    REQUIRE(!comm.aborted);
    if (comm.error) {
        *answer = comm.error;
        return SUCCESS;
    }
    *answer = comm.progress;
    if (!comm.joined) {
        comm.joined = all_here(*comm.group);
    }
    comm.progress = comm.joined ? SUCCESS : IN_PROGRESS;
    if (comm.joined && (int)comm.group->here.size() < comm.group->ranks && !comm.goes_on.joinable()) {
        comm.goes_on = std::thread([of = handle->of.get()] { go_on(*of); });
    }
    return SUCCESS;
}

EXPORT const char *ncclGetLastError(Handle *handle) {
    if (!handle) {
        return "";
    }
    known(handle);
    std::lock_guard<std::mutex> guard(state);
    return handle->of->error == INVALID_USAGE ? "Duplicate GPU detected" : handle->of->error ? "a planted fault" : "";
}

EXPORT int ncclGroupStart() {
    REQUIRE(!pending.open);
    pending.open = true;
    return SUCCESS;
}

EXPORT int ncclSend(const void *at, size_t count, int type, int peer, Handle *handle, void *stream) {
    return add(true, at, count, type, peer, handle, stream);
}

EXPORT int ncclRecv(void *at, size_t count, int type, int peer, Handle *handle, void *stream) {
    return add(false, at, count, type, peer, handle, stream);
}

EXPORT int ncclGroupEnd() {
    REQUIRE(pending.open && pending.of);
    Pending group = std::move(pending);
    pending = Pending();
    bool captured = capturing(group.stream);
    Communicator &comm = *group.of;
    {
        std::lock_guard<std::mutex> guard(state);
        for (const Message &message : group.messages) {
            // Two ranks connect when they first exchange something.
            REQUIRE(!captured || comm.connected.count(message.peer));
            comm.connected.insert(message.peer);
        }
        comm.progress = IN_PROGRESS;
        comm.alive++;
    }
    // Gone when it will not run again.
    std::shared_ptr<Communicator> owner(group.of.get(), [keep = group.of](Communicator *of) {
        std::lock_guard<std::mutex> guard(state);
        of->alive--;
    });
    auto messages = std::make_shared<std::vector<Message>>(std::move(group.messages));
    int error = enqueue_waiting(group.stream, [messages, owner] { return start(*messages); });
    return error ? (int)UNHANDLED_CUDA_ERROR : (int)IN_PROGRESS;
}

EXPORT int ncclCommAbort(Handle *handle) {
    known(handle);
    static auto notify = (int (*)())driver("emulated_notify");
    std::shared_ptr<Communicator> comm = handle->of;
    {
        std::lock_guard<std::mutex> guard(state);
        comm->aborted = true;
        Group &group = *comm->group;
        for (auto *side : {&group.sent, &group.awaited}) {
            for (auto &of : *side) {
                bool own = (side == &group.sent ? of.first.first : of.first.second) == comm->rank;
                if (own) {
                    of.second.clear();
                }
            }
        }
        if (comm->rank == 0) {
            for (int from = 0; from < group.ranks; from++) {
                unlink(file(group, "rank-" + std::to_string(from)).c_str());
                for (int to = 0; to < group.ranks; to++) {
                    unlink(stream_file(group, from, to).c_str());
                }
            }
            rmdir(group.folder.c_str());
        }
    }
    notify();
    if (comm->goes_on.joinable()) {
        comm->goes_on.join();
    }
    // NCCL waits until no graph with work of the communicator is left. What is enqueued goes on meanwhile, and ends.
    static auto step = (int (*)())driver("emulated_step");
    for (int i = 0;; i++) {
        {
            std::lock_guard<std::mutex> guard(state);
            if (comm->alive == 0) {
                break;
            }
        }
        REQUIRE(i < 60000);
        if (!step()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    return destroyed(handle);
}
