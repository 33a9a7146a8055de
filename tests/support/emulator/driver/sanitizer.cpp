#include "sanitizer.h"

#include <link.h>

#include <cstring>

#include "device.h"

namespace emulated {

Sanitizer *sanitizer;

// The most findings of one launch in its message.
constexpr size_t MOST_LISTED = 4;

static const char *verb(Kind kind) { return kind == READ ? "reads" : kind == WRITE ? "writes" : "changes"; }

// This library's variables of threads, which is where static shared memory is.
static void thread_variables(uintptr_t &own, uintptr_t &from, size_t &bytes) {
    struct Found {
        uintptr_t own, from;
        size_t bytes;
    } found = {(uintptr_t)&sanitizer, 0, 0};
    where.thread.x = where.thread.x;  // They may be made by the first access.
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *data) {
            auto *out = (Found *)data;
            size_t variables = 0;
            bool ours = false;
            for (int i = 0; i < info->dlpi_phnum; i++) {
                const auto &part = info->dlpi_phdr[i];
                uintptr_t at = info->dlpi_addr + part.p_vaddr;
                ours |= part.p_type == PT_LOAD && out->own - at < part.p_memsz;
                variables = part.p_type == PT_TLS ? part.p_memsz : variables;
            }
            if (ours) {
                out->from = (uintptr_t)info->dlpi_tls_data;
                out->bytes = variables;
            }
            return (int)ours;
        },
        &found);
    own = found.from;
    from = found.from & ~(uintptr_t)15;
    bytes = found.from - from + found.bytes;
}

void Sanitizer::begin_launch(const Launch &next, Worker &worker) {
    launch = &next;
    runner = &worker;
    last_extent = 0;
    begun.clear();
    pairs.clear();
    message.clear();
    error = 0;
    if (pages.trim()) {
        in_global.forget_splits();
    }
    if (!dynamic.cells) {
        dynamic = {0, 0, Shadow::map(MAX_DYNAMIC_SHARED + 16)};
    }
    // All that ends where dynamic shared memory ends, so that what is ahead of the launch's part is seen, too.
    dynamic.bytes = MAX_DYNAMIC_SHARED / 16 * 16;
    dynamic.from = worker.end_of_shared() - dynamic.bytes;
    size_t before = fixed.bytes;
    thread_variables(thread_variables_from, fixed.from, fixed.bytes);
    if (!fixed.cells || before < fixed.bytes) {
        fixed.cells = Shadow::map(fixed.bytes);
    }
    order.begin_launch();
    unknown += launch->operands == nullptr;
}

void Sanitizer::begin_block() {
    unsigned threads = launch->block.x * launch->block.y * launch->block.z;
    order.begin_block(threads);
    begun.push_back({order.now(), where.block});
}

int Sanitizer::end_launch(std::string &out) {
    launch = nullptr;
    out = message;
    return error;
}

// ---- Accesses -------------------------------------------------------------------------------------------------------

void Sanitizer::access(const void *pointer, size_t bytes, Kind kind, uint32_t place) {
    uintptr_t at = (uintptr_t)pointer;
    if (!launch || at - (uintptr_t)&where < sizeof where) {
        return;
    }
    if (dynamic.holds(at)) {
        shared_access(dynamic, at, bytes, kind, place);
    } else if (fixed.holds(at)) {
        shared_access(fixed, at, bytes, kind, place);
    } else {
        for (Device *device : devices) {
            if (device->memory.owns(pointer)) {
                global_access(at, bytes, kind, place);
            }
        }
    }
}

void Sanitizer::shared_access(const Region &region, uintptr_t at, size_t bytes, Kind kind, uint32_t place) {
    auto where_to = [&] {
        if (&region == &dynamic) {
            return "byte " + std::to_string((ptrdiff_t)(at - (uintptr_t)runner->dynamic_shared())) +
                   " of dynamic shared memory";
        }
        size_t inside = 0;
        std::string name = shared_variable(at - thread_variables_from, inside);
        return "byte " + std::to_string(inside) + " of " + name;
    };
    if (&region == &dynamic && at < (uintptr_t)runner->dynamic_shared()) {
        found(ILLEGAL_ADDRESS, place, 0, std::string(verb(kind)) + " " + where_to() + ", ahead of the launch's part");
        return;
    }
    size_t room = region.from + region.bytes - at;
    Met met = in_shared.access(region.cells, at - region.from, bytes < room ? bytes : room, kind,
                               runner->thread_number(), place);
    if (met.copying) {
        found(LAUNCH_FAILED, place, met.begun,
              std::string(verb(kind)) + " " + where_to() + ", where an asynchronous copy of " +
                  thread_name(met.copying - 1) + " will arrive, which has not been waited for (begun at " +
                  line_of(met.begun) + ")");
    } else if (met.raced) {
        raced(met.conflict, kind, bytes, place, where_to());
    } else if (met.fresh) {
        found(LAUNCH_FAILED, place, 0, "reads " + where_to() + ", which nobody in the block has written");
    }
}

void Sanitizer::global_access(uintptr_t at, size_t bytes, Kind kind, uint32_t place) {
    held(at, bytes, kind, place);
    while (bytes) {
        size_t inside = at % Pages::BYTES, room = Pages::BYTES - inside, count = bytes < room ? bytes : room;
        Met met = in_global.access(pages.of(at), inside, count, kind, runner->thread_number(), place);
        if (met.raced) {
            std::string where_to = "global memory";
            for (const Device *device : devices) {
                if (device->memory.owns((void *)at)) {
                    where_to += ", " + device->memory.describe((void *)at);
                }
            }
            raced(met.conflict, kind, count, place, where_to);
        }
        at += count;
        bytes -= count;
    }
}

// Whether the launch was given this memory.
void Sanitizer::held(uintptr_t at, size_t bytes, Kind kind, uint32_t place) {
    if (!launch->operands) {
        return;
    }
    const auto &extents = *launch->operands;
    auto fits = [&](const Extent &e) { return e.from <= at && at + bytes <= e.to && (e.written || kind == READ); };
    if (last_extent < extents.size() && fits(extents[last_extent])) {
        return;
    }
    const Extent *nearest = nullptr;
    uintptr_t distance = UINTPTR_MAX;
    for (size_t i = 0; i < extents.size(); i++) {
        const Extent &e = extents[i];
        if (fits(e)) {
            last_extent = i;
            return;
        }
        uintptr_t away = at + bytes <= e.from ? e.from - at - bytes + 1 : at >= e.to ? at - e.to + 1 : 0;
        if (away < distance) {
            distance = away;
            nearest = &e;
        }
    }
    std::string what = std::string(verb(kind)) + " " + std::to_string(bytes) + " bytes ";
    if (!nearest) {
        what += "of global memory, and the launch was given none";
    } else {
        std::string name = nearest->what + " (" + std::to_string(nearest->to - nearest->from) + " bytes)";
        if (at >= nearest->to) {
            what += std::to_string(at - nearest->to) + " bytes behind the end of " + name;
        } else if (at < nearest->from) {
            what += std::to_string(nearest->from - at) + " bytes ahead of " + name;
        } else if (at + bytes > nearest->to) {
            what += "from byte " + std::to_string(at - nearest->from) + " on, beyond the end of " + name;
        } else {
            what += "at byte " + std::to_string(at - nearest->from) + " of " + name + ", which is only to be read";
        }
    }
    found(ILLEGAL_ADDRESS, place, 1, what);
}

// The cells of 16 bytes of shared memory; null if it is none.
Cell *Sanitizer::cells_at(uintptr_t at) {
    for (Region *region : {&dynamic, &fixed}) {
        if (region->holds(at) && region->holds(at + 15)) {
            return region->cells + (at - region->from) / 4;
        }
    }
    return nullptr;
}

void Sanitizer::copy_begins(const void *shared, const void *global, unsigned bytes, uint32_t place) {
    if (!launch) {
        return;
    }
    if (bytes) {
        access(global, bytes, READ, place);
    }
    access(shared, 16, WRITE, place);
    Cell *cells = cells_at((uintptr_t)shared);
    for (int i = 0; cells && i < 4; i++) {
        cells[i].copying = runner->thread_number() + 1;
        cells[i].begun = place;
    }
}

void Sanitizer::copy_arrives(const void *shared, uint32_t place) {
    if (!launch) {
        return;
    }
    Cell *cells = cells_at((uintptr_t)shared);
    for (int i = 0; cells && i < 4; i++) {
        cells[i].copying = 0;
    }
    if (place) {
        access(shared, 16, WRITE, place);
    }
}

// ---- Findings -------------------------------------------------------------------------------------------------------

std::string Sanitizer::thread_name(unsigned number) const {
    const Dim &block = launch->block;
    char text[64];
    snprintf(text, sizeof text, "thread (%u, %u, %u)", number % block.x, number / block.x % block.y,
             number / block.x / block.y);
    return text;
}

// The block of this launch that an access belongs to.
std::string Sanitizer::block_name(uint64_t stamp) const {
    const Dim *block = nullptr;
    for (const auto &entry : begun) {
        block = entry.first <= order.interval_of(stamp) ? &entry.second : block;
    }
    char text[64] = "";
    if (block) {
        snprintf(text, sizeof text, "block (%u, %u, %u)", block->x, block->y, block->z);
    }
    return text;
}

void Sanitizer::raced(const Conflict &other, Kind kind, size_t bytes, uint32_t place, const std::string &where_to) {
    bool near = order.in_this_block(other.stamp);
    std::string who = near ? thread_name(Order::thread_of(other.stamp))
                           : block_name(other.stamp) + ", " + thread_name(Order::thread_of(other.stamp));
    found(LAUNCH_FAILED, place, other.place,
          "race: " + std::string(verb(kind)) + " " + std::to_string(bytes) + " bytes at " + where_to + ", which " + who +
              (other.write ? " has written" : " has read") + " at " + line_of(other.place) + " with nothing between that " +
              (near ? "orders the two" : "orders blocks"));
}

// Of all findings of a pair of instructions one is reported.
void Sanitizer::found(int code, uint32_t place, uint32_t other, const std::string &what) {
    if (!pairs.insert({place, other}).second) {
        return;
    }
    findings++;
    error = error ? error : code;
    char block[64];
    snprintf(block, sizeof block, "block (%u, %u, %u)", where.block.x, where.block.y, where.block.z);
    std::string text = std::string("kernel `") + launch->kernel->name + "`, " + block + ", " +
                       thread_name(runner->thread_number()) + ", " + line_of(place) + ": " + what;
    if (pairs.size() <= MOST_LISTED) {
        message += (message.empty() ? "" : "\n") + text;
    }
    std::string key = launch->kernel->name + line_of(place) + (other > 1 ? line_of(other) : "");
    if (reported.insert(key + what.substr(0, what.find(' '))).second) {
        fprintf(stderr, "emulated CUDA: sanitizer: %s\n", text.c_str());
    }
}

}  // namespace emulated
