// Who touched a piece of memory last, and whether that came before what happens now. A cell stands for four bytes; where
// accesses meet that are smaller, a cell is split into one for each byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace emulated {

enum Kind { READ, WRITE, ATOMIC };

// When accesses happened: in which interval between barriers of the block, by which thread, and after how many barriers of
// its warp. Intervals are numbered through all blocks and launches, so that what is old need not be cleared.
class Order {
public:
    void begin_launch();
    void begin_block(unsigned threads);
    // All threads of the block have met.
    void next_interval() { interval++; }
    // The lanes in the mask of a warp have met.
    void join(unsigned warp, unsigned lanes);

    // What this thread does now.
    uint64_t stamp(unsigned thread, bool atomic) const {
        return (uint64_t)interval << 32 | (uint64_t)(clocks[thread] & 0x1fffff) << 11 | (uint64_t)atomic << 10 | thread;
    }
    // True if what was done then comes before what `thread` of this block does now, or belongs to another launch. Blocks of a
    // launch are in no order.
    bool before(uint64_t stamp, unsigned thread) const;
    bool in_this_block(uint64_t stamp) const { return (uint32_t)(stamp >> 32) >= block_first; }
    uint32_t interval_of(uint64_t stamp) const { return (uint32_t)(stamp >> 32); }
    uint32_t now() const { return interval; }

    static unsigned thread_of(uint64_t stamp) { return stamp & 1023; }
    static bool is_atomic(uint64_t stamp) { return stamp >> 10 & 1; }

private:
    uint32_t interval = 1, launch_first = 1, block_first = 1;
    // For each thread, how often it has met lanes of its warp, and for each of those what it knows of theirs.
    uint32_t clocks[1024] = {}, known[1024][32] = {};
};

// The latest write, and up to three reads: the latest, one of another warp or block, one of the same warp.
struct alignas(64) Cell {
    uint64_t stamps[4];
    uint32_t places[4];
    // Number of the group of cells that stands for the bytes, from 1.
    uint32_t split;
    // The thread whose asynchronous copy will arrive here, from 1, and where it was begun.
    uint32_t copying, begun;
};

// An earlier access that was in the way.
struct Conflict {
    uint64_t stamp = 0;
    uint32_t place = 0;
    bool write = false;
};

// What an access meets.
struct Met {
    Conflict conflict;
    bool raced = false;
    // Bytes that no thread of this block has written are read.
    bool fresh = false;
    // A copy that is under way will arrive here.
    uint32_t copying = 0, begun = 0;
};

class Shadow {
public:
    // Of memory that each block has for itself, or of what all share.
    Shadow(const Order &order, bool own) : order(order), own(own) {}

    // Notes an access of `bytes` bytes from byte `at` of the memory that begins with `cells`.
    Met access(Cell *cells, size_t at, size_t bytes, Kind kind, unsigned thread, uint32_t place);

    // Cells for so many bytes, all zero.
    static Cell *map(size_t bytes);
    static void unmap(Cell *cells, size_t bytes);

    // Forgets the groups of split cells: the cells that name them must be gone.
    void forget_splits() { groups.clear(); }
    size_t splits() const { return groups.size(); }

private:
    struct Group {
        Cell bytes[4];
    };

    void one(Cell &cell, Kind kind, unsigned thread, uint64_t stamp, uint32_t place, Met &met);
    Cell *split(Cell &cell);

    const Order &order;
    const bool own;
    std::deque<Group> groups;
};

// The shadow of global memory, by pages that are made when they are touched.
class Pages {
public:
    static constexpr uintptr_t BYTES = 4096;

    // The cells of the page that this address is in.
    Cell *of(uintptr_t at) {
        uintptr_t page = at / BYTES;
        Entry &entry = recent[page % RECENT];
        if (entry.page != page) {
            entry = {page, find(page)};
        }
        return entry.cells;
    }
    // Gives memory back once there is too much.
    bool trim();

private:
    static constexpr size_t RECENT = 256, MOST = 4096;
    struct Entry {
        uintptr_t page;
        Cell *cells;
    };

    Cell *find(uintptr_t page);

    Entry recent[RECENT] = {};
    std::unordered_map<uintptr_t, Cell *> pages;
};

}  // namespace emulated
