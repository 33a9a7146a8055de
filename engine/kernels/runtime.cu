// What the executable itself adds to a program.
#include "common.cuh"

// Notes a step's loss. loss (1), losses (ring), taken (1): number of losses noted so far, halted (1).
// A loss that is not finite halts the run: the update sees a loss that is not finite and changes nothing, in this step and
// in all that were enqueued behind it, so that the host, which looks every so many steps, finds the state of before.
extern "C" __global__ void watch_loss(float *loss, float *losses, u32 *taken, u32 *halted, int ring) {
    if (threadIdx.x != 0 || blockIdx.x != 0) {
        return;
    }
    float x = *loss;
    u32 at = *taken;
    losses[at % (u32)ring] = x;
    *taken = at + 1;
    bool finite = (float_to_bits(x) & 0x7f800000u) != 0x7f800000u;
    if (!finite) {
        *halted = 1;
    } else if (*halted) {
        *loss = bits_to_float(0x7fc00000u);
    }
}
