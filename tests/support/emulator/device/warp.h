// What the threads of a warp do together: barriers, shuffles, votes.
#pragma once

namespace emulated {

// Payloads of the lanes that take part (null for the others), and the mask of those that do.
typedef void (*Combine)(void *const *lanes, unsigned active);

// Every lane of `mask` that has not exited calls this with its own payload; when the last one has come, `combine` runs
// once over the payloads of all, and all go on.
void warp_collective(unsigned mask, void *payload, Combine combine, int line);

inline unsigned lane() {
    return (where.thread.x + where.block_size.x * (where.thread.y + where.block_size.y * where.thread.z)) & 31u;
}

template <class T> struct Shuffle {
    T value, result;
    unsigned source;
};

// The value of lane `source`. A lane that does not take part has no value: its bytes come as 0xff, a NaN.
template <class T> T shuffle(unsigned mask, T value, unsigned source, int line) {
    Shuffle<T> mine = {value, value, source};
    warp_collective(
        mask, &mine,
        [](void *const *lanes, unsigned active) {
            for (int i = 0; i < 32; i++) {
                if (active >> i & 1u) {
                    auto *to = (Shuffle<T> *)lanes[i];
                    auto *from = (Shuffle<T> *)lanes[to->source & 31u];
                    if (from) {
                        to->result = from->value;
                    } else {
                        memset(&to->result, 0xff, sizeof(T));
                    }
                }
            }
        },
        line);
    return mine.result;
}

// The mask of participating lanes whose vote is true.
inline unsigned ballot(unsigned mask, bool vote, int line) {
    struct Vote {
        bool vote;
        unsigned result;
    } mine = {vote, 0};
    warp_collective(
        mask, &mine,
        [](void *const *lanes, unsigned active) {
            unsigned result = 0;
            for (int i = 0; i < 32; i++) {
                if (active >> i & 1u) {
                    result |= (unsigned)((Vote *)lanes[i])->vote << i;
                }
            }
            for (int i = 0; i < 32; i++) {
                if (active >> i & 1u) {
                    ((Vote *)lanes[i])->result = result;
                }
            }
        },
        line);
    return mine.result;
}

}  // namespace emulated

inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE()) {
    emulated::warp_collective(mask, nullptr, nullptr, line);
}

template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
    unsigned base = emulated::lane() & ~(unsigned)(width - 1);
    return emulated::shuffle(mask, value, base + ((unsigned)source & (unsigned)(width - 1)), line);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE()) {
    unsigned lane = emulated::lane(), source = lane ^ (unsigned)bits;
    bool ahead = (source & ~(unsigned)(width - 1)) > (lane & ~(unsigned)(width - 1));
    return emulated::shuffle(mask, value, ahead ? lane : source, line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    unsigned lane = emulated::lane(), inside = lane & (unsigned)(width - 1);
    return emulated::shuffle(mask, value, inside + delta < (unsigned)width ? lane + delta : lane, line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    unsigned lane = emulated::lane(), inside = lane & (unsigned)(width - 1);
    return emulated::shuffle(mask, value, inside >= delta ? lane - delta : lane, line);
}

inline unsigned __ballot_sync(unsigned mask, int vote, int line = __builtin_LINE()) {
    return emulated::ballot(mask, vote != 0, line);
}
inline int __any_sync(unsigned mask, int vote, int line = __builtin_LINE()) {
    return emulated::ballot(mask, vote != 0, line) != 0;
}
inline int __all_sync(unsigned mask, int vote, int line = __builtin_LINE()) {
    return emulated::ballot(mask, vote == 0, line) == 0;
}
