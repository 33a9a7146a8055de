// Steps of recurrent layers: a launch for each position, which multiplies the states before by the weight and goes through the gates.
//
// x and its gradient [samples, length, gates · hidden], w [gates · hidden, hidden], states y [samples, length, hidden], saved [samples, length, S · hidden].
// In padding states are 0, and so are gradients: what comes before the first state of a sample, or behind its last one, then needs no case of its own.
#include "common.cuh"

// Side of a block's tile of samples and units, and numbers of the sum that it reads at once.
enum { SIDE = 16 };

enum Cell { LSTM, GRU, RNN_TANH, RNN_RELU };

template <int CELL> struct Sizes {
    static constexpr int GATES = CELL == LSTM ? 4 : CELL == GRU ? 3 : 1;
    static constexpr int SAVED = CELL == LSTM ? 5 : CELL == GRU ? 4 : 0;
    static constexpr int CARRIED = CELL == LSTM ? 2 : 1;
};

// The sample and the unit of this thread; the block's first ones.
struct Place {
    int sample, unit, first_sample, first_unit;
};

__device__ __forceinline__ Place place(int hidden) {
    u32 block = blockIdx.x;
    Place at;
    at.first_unit = (int)split(block, (hidden + SIDE - 1) / SIDE) * SIDE;
    at.first_sample = (int)block * SIDE;
    at.sample = at.first_sample + (int)threadIdx.x / SIDE;
    at.unit = at.first_unit + (int)threadIdx.x % SIDE;
    return at;
}

__device__ __forceinline__ bool is_padding(const int *lengths, int sample, int t) { return lengths && t >= lengths[sample]; }

// State and cell at position t from those at position `before` or, if that is below 0, from `first [samples, C · hidden]`, or from zeros if that is null. `cells [samples, hidden]` has the cells of an LSTM where
// nothing is saved.
template <int CELL>
__device__ __forceinline__ void forward(
    const float *x, const float *w, const float *bias, const int *lengths, const float *first, float *y, float *saved, float *cells,
    int samples, int length, int hidden, int t, int before) {
    constexpr int GATES = Sizes<CELL>::GATES, SAVED = Sizes<CELL>::SAVED;
    __shared__ float states[SIDE][SIDE], weights[GATES][SIDE][SIDE + 1];
    Place at = place(hidden);
    int row = (int)threadIdx.x / SIDE, column = (int)threadIdx.x % SIDE;
    bool there = at.sample < samples && at.unit < hidden;
    float r[GATES];
    for (int gate = 0; gate < GATES; ++gate) {
        r[gate] = 0.0f;
    }
    // The states before, and how far those of samples lie apart.
    const float *states_before = before >= 0 ? y + (i64)before * hidden : first;
    i64 apart = before >= 0 ? (i64)length * hidden : (i64)Sizes<CELL>::CARRIED * hidden;
    for (int k = 0; states_before && k < hidden; k += SIDE) {
        bool inside = k + column < hidden;
        states[row][column] = inside && at.sample < samples ? states_before[at.sample * apart + k + column] : 0.0f;
        for (int gate = 0; gate < GATES; ++gate) {
            int unit = at.first_unit + row;
            weights[gate][row][column] = inside && unit < hidden ? w[((i64)gate * hidden + unit) * hidden + k + column] : 0.0f;
        }
        __syncthreads();
#pragma unroll 4
        for (int i = 0; i < SIDE; ++i) {
            for (int gate = 0; gate < GATES; ++gate) {
                r[gate] += states[row][i] * weights[gate][column][i];
            }
        }
        __syncthreads();
    }
    if (!there) {
        return;
    }
    i64 position = (i64)at.sample * length + t, last = (i64)at.sample * length + before;
    i64 to = position * hidden + at.unit;
    float *save = saved ? saved + position * SAVED * hidden + at.unit : nullptr;
    if (is_padding(lengths, at.sample, t)) {
        y[to] = 0.0f;
        for (int i = 0; save && i < SAVED; ++i) {
            save[(i64)i * hidden] = 0.0f;
        }
        if (CELL == LSTM && !save) {
            cells[(i64)at.sample * hidden + at.unit] = 0.0f;
        }
        return;
    }
    float given[GATES];
    for (int gate = 0; gate < GATES; ++gate) {
        given[gate] = x[(position * GATES + gate) * hidden + at.unit];
        r[gate] += bias ? bias[gate * hidden + at.unit] : 0.0f;
    }
    if constexpr (CELL == LSTM) {
        float i = sigmoid(given[0] + r[0]), f = sigmoid(given[1] + r[1]), g = tanhf(given[2] + r[2]), o = sigmoid(given[3] + r[3]);
        float *cell = save ? saved + (last * SAVED + 4) * hidden + at.unit : cells + (i64)at.sample * hidden + at.unit;
        float c = f * (before >= 0 ? *cell : first ? first[at.sample * apart + hidden + at.unit] : 0.0f) + i * g;
        y[to] = o * tanhf(c);
        if (save) {
            save[0] = i;
            save[(i64)hidden] = f;
            save[2 * (i64)hidden] = g;
            save[3 * (i64)hidden] = o;
            save[4 * (i64)hidden] = c;
        } else {
            *cell = c;
        }
    } else if constexpr (CELL == GRU) {
        float reset = sigmoid(given[0] + r[0]), z = sigmoid(given[1] + r[1]), fresh = tanhf(given[2] + reset * r[2]);
        float state = states_before ? states_before[at.sample * apart + at.unit] : 0.0f;
        y[to] = fresh + z * (state - fresh);
        if (save) {
            save[0] = reset;
            save[(i64)hidden] = z;
            save[2 * (i64)hidden] = fresh;
            save[3 * (i64)hidden] = r[2];
        }
    } else {
        float of = given[0] + r[0];
        y[to] = CELL == RNN_TANH ? tanhf(of) : of < 0.0f ? 0.0f : of;
    }
}

// The gradients by the gates at position t from those by the products at position `behind`, or from zeros if that is below 0; `before` is the position of
// the state before, or below 0: then that is in `first`, or 0 if that is null. `carried [samples, hidden]` goes from position to position: the gradient by the cell of an LSTM, or what the state of a GRU
// has of that behind it. `product` is where gradients by the products are: of a GRU a value of its own, else dx.
template <int CELL>
__device__ __forceinline__ void backward(
    const float *dy, const float *y, const float *saved, const float *w, const int *lengths, const float *first, float *dx, float *states,
    float *product, float *carried, int samples, int length, int hidden, int t, int behind, int before) {
    constexpr int GATES = Sizes<CELL>::GATES, SAVED = Sizes<CELL>::SAVED;
    __shared__ float gates[SIDE][SIDE], weights[SIDE][SIDE];
    Place at = place(hidden);
    int row = (int)threadIdx.x / SIDE, column = (int)threadIdx.x % SIDE, all = GATES * hidden;
    float d = 0.0f;
    for (int k = 0; behind >= 0 && k < all; k += SIDE) {
        bool inside = k + column < all && at.sample < samples;
        gates[row][column] = inside ? product[((i64)at.sample * length + behind) * all + k + column] : 0.0f;
        weights[row][column] = k + row < all && at.unit < hidden ? w[(i64)(k + row) * hidden + at.unit] : 0.0f;
        __syncthreads();
        for (int i = 0; i < SIDE; ++i) {
            d += gates[row][i] * weights[i][column];
        }
        __syncthreads();
    }
    if (at.sample >= samples || at.unit >= hidden) {
        return;
    }
    i64 position = (i64)at.sample * length + t, last = (i64)at.sample * length + before, to = position * hidden + at.unit;
    float *by_gate = dx + position * all + at.unit, *by_product = product + position * all + at.unit;
    i64 own = (i64)at.sample * hidden + at.unit;
    if (is_padding(lengths, at.sample, t)) {
        states[to] = 0.0f;
        if (SAVED > 0) {
            carried[own] = 0.0f;
        }
        for (int gate = 0; gate < GATES; ++gate) {
            by_gate[(i64)gate * hidden] = 0.0f;
            by_product[(i64)gate * hidden] = 0.0f;
        }
        return;
    }
    d += dy[to];
    // In padding behind a sample, where a reverse layer begins, states and cells are 0.
    const float *own_first = first ? first + (i64)at.sample * Sizes<CELL>::CARRIED * hidden + at.unit : nullptr;
    float earlier = before >= 0 ? y[last * hidden + at.unit] : own_first ? *own_first : 0.0f;
    states[to] = earlier;
    if constexpr (CELL == LSTM) {
        const float *save = saved + position * SAVED * hidden + at.unit;
        float i = save[0], f = save[(i64)hidden], g = save[2 * (i64)hidden], o = save[3 * (i64)hidden];
        float bent = tanhf(save[4 * (i64)hidden]), from = own_first ? own_first[hidden] : 0.0f;
        float cell = before >= 0 ? saved[(last * SAVED + 4) * hidden + at.unit] : from;
        float by_cell = (behind >= 0 ? carried[own] : 0.0f) + d * o * (1.0f - bent * bent);
        carried[own] = by_cell * f;
        by_gate[0] = by_cell * g * ((1.0f - i) * i);
        by_gate[(i64)hidden] = by_cell * cell * ((1.0f - f) * f);
        by_gate[2 * (i64)hidden] = by_cell * i * (1.0f - g * g);
        by_gate[3 * (i64)hidden] = d * bent * ((1.0f - o) * o);
    } else if constexpr (CELL == GRU) {
        const float *save = saved + position * SAVED * hidden + at.unit;
        float reset = save[0], z = save[(i64)hidden], fresh = save[2 * (i64)hidden], r = save[3 * (i64)hidden];
        d += behind >= 0 ? carried[own] : 0.0f;
        carried[own] = d * z;
        float by_fresh = d * (1.0f - z) * (1.0f - fresh * fresh);
        by_gate[0] = by_product[0] = by_fresh * r * ((1.0f - reset) * reset);
        by_gate[(i64)hidden] = by_product[(i64)hidden] = d * (earlier - fresh) * ((1.0f - z) * z);
        by_gate[2 * (i64)hidden] = by_fresh;
        by_product[2 * (i64)hidden] = by_fresh * reset;
    } else {
        float state = y[to];
        by_gate[0] = CELL == RNN_TANH ? d * (1.0f - state * state) : state > 0.0f ? d : 0.0f;
    }
}

#define RECURRENT(CELL, name)                                                                                                              \
    extern "C" __global__ void __launch_bounds__(256) name##_f32(                                                                          \
        const float *x, const float *w, const float *bias, const int *lengths, const float *first, float *y, float *saved, float *cells,   \
        int samples, int length, int hidden, int t, int before) {                                                                          \
        forward<CELL>(x, w, bias, lengths, first, y, saved, cells, samples, length, hidden, t, before);                                    \
    }                                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256) name##_grad_f32(                                                                     \
        const float *dy, const float *y, const float *saved, const float *w, const int *lengths, const float *first, float *dx,            \
        float *states, float *product, float *carried, int samples, int length, int hidden, int t, int behind, int before) {               \
        backward<CELL>(                                                                                                                    \
            dy, y, saved, w, lengths, first, dx, states, product, carried, samples, length, hidden, t, behind, before);                    \
    }

RECURRENT(LSTM, lstm)
RECURRENT(GRU, gru)
RECURRENT(RNN_TANH, rnn_tanh)
RECURRENT(RNN_RELU, rnn_relu)
