#include "shadow.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emulated {

// ---- Order ----------------------------------------------------------------------------------------------------------

void Order::begin_launch() { launch_first = ++interval; }

void Order::begin_block(unsigned threads) {
    block_first = ++interval;
    memset(clocks, 0, threads * sizeof *clocks);
    memset(known, 0, threads * sizeof *known);
}

void Order::join(unsigned warp, unsigned lanes) {
    uint32_t latest[32] = {};
    for (unsigned i = 0; i < 32; i++) {
        if (lanes >> i & 1) {
            unsigned thread = warp * 32 + i;
            for (unsigned j = 0; j < 32; j++) {
                latest[j] = latest[j] > known[thread][j] ? latest[j] : known[thread][j];
            }
        }
    }
    // What a lane did at its clock c is known to a lane that knows a clock above c.
    for (unsigned i = 0; i < 32; i++) {
        if (lanes >> i & 1) {
            latest[i] = ++clocks[warp * 32 + i];
        }
    }
    for (unsigned i = 0; i < 32; i++) {
        if (lanes >> i & 1) {
            memcpy(known[warp * 32 + i], latest, sizeof latest);
        }
    }
}

bool Order::before(uint64_t stamp, unsigned thread) const {
    uint32_t then = (uint32_t)(stamp >> 32);
    if (then != interval) {
        // Of this block, an earlier interval; or of another block of this launch; or of an earlier launch.
        return then >= block_first || then < launch_first;
    }
    unsigned other = thread_of(stamp);
    if (other == thread) {
        return true;
    }
    return other / 32 == thread / 32 && (stamp >> 11 & 0x1fffff) < known[thread][other % 32];
}

// ---- Cells ----------------------------------------------------------------------------------------------------------

Cell *Shadow::map(size_t bytes) {
    size_t size = (bytes + 3) / 4 * sizeof(Cell);
    void *at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        fputs("emulated CUDA: no memory for the sanitizer\n", stderr);
        abort();
    }
    return (Cell *)at;
}

void Shadow::unmap(Cell *cells, size_t bytes) { munmap(cells, (bytes + 3) / 4 * sizeof(Cell)); }

Cell *Shadow::split(Cell &cell) {
    if (!cell.split) {
        groups.emplace_back();
        cell.split = (uint32_t)groups.size();
        for (Cell &byte : groups.back().bytes) {
            byte = cell;
            byte.split = byte.copying = 0;
        }
    }
    return groups[cell.split - 1].bytes;
}

// One access of a cell's memory as a whole.
void Shadow::one(Cell &cell, Kind kind, unsigned thread, uint64_t stamp, uint32_t place, Met &met) {
    auto against = [&](int i) {
        uint64_t other = cell.stamps[i];
        bool gone = own && !order.in_this_block(other);
        if (!met.raced && !gone && !order.before(other, thread) && !(kind == ATOMIC && i == 0 && Order::is_atomic(other))) {
            met.raced = true;
            met.conflict = {other, cell.places[i], i == 0};
        }
    };
    against(0);
    if (kind == READ) {
        met.fresh = met.fresh || !order.in_this_block(cell.stamps[0]);
        uint64_t last = cell.stamps[1];
        if (last == stamp) {
            return;
        }
        if (Order::thread_of(last) != thread || !order.in_this_block(last)) {
            // Which of the two others makes room: one of another block is kept, for nothing orders it.
            bool elsewhere = !order.in_this_block(last);
            bool held = cell.stamps[2] && !order.before(cell.stamps[2], thread) && !order.in_this_block(cell.stamps[2]);
            bool warp = Order::thread_of(last) / 32 != thread / 32;
            int keep = elsewhere || (warp && !held) ? 2 : 3;
            if (last) {
                cell.stamps[keep] = last;
                cell.places[keep] = cell.places[1];
            }
        }
        cell.stamps[1] = stamp;
        cell.places[1] = place;
        return;
    }
    for (int i = 1; i < 4; i++) {
        against(i);
        cell.stamps[i] = 0;
    }
    cell.stamps[0] = stamp;
    cell.places[0] = place;
}

Met Shadow::access(Cell *cells, size_t at, size_t bytes, Kind kind, unsigned thread, uint32_t place) {
    Met met;
    uint64_t stamp = order.stamp(thread, kind == ATOMIC);
    for (size_t end = at + bytes; at < end;) {
        Cell &cell = cells[at / 4];
        if (cell.copying) {
            met.copying = cell.copying;
            met.begun = cell.begun;
        }
        size_t inside = at % 4, count = end - at < 4 - inside ? end - at : 4 - inside;
        if (count == 4 && !cell.split) {
            one(cell, kind, thread, stamp, place, met);
        } else {
            Cell *own = split(cell);
            for (size_t i = 0; i < count; i++) {
                one(own[inside + i], kind, thread, stamp, place, met);
            }
        }
        at += count;
    }
    return met;
}

// ---- Pages ----------------------------------------------------------------------------------------------------------

Cell *Pages::find(uintptr_t page) {
    Cell *&cells = pages[page];
    if (!cells) {
        cells = Shadow::map(BYTES);
    }
    return cells;
}

bool Pages::trim() {
    if (pages.size() < MOST) {
        return false;
    }
    for (auto &entry : pages) {
        Shadow::unmap(entry.second, BYTES);
    }
    pages.clear();
    memset(recent, 0, sizeof recent);
    return true;
}

}  // namespace emulated
