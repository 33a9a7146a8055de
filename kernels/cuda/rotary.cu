// Rotary positions: pairs of a head's two halves are turned by angles that depend on the position.
//
// x and y [rows, heads · width], of which the first `turned` heads are turned; they may be the same memory. table [positions, width]: cosines, then
// sines. A row is the position `length` ago from the next sample's; `first` has the position of each sample's first row, or is null.
#include "common.cuh"

template <class T>
__device__ __forceinline__ void rotary(
    const T *x, const float *table, const int *first, T *y, u32 rows, int length, int positions, int heads, int turned,
    int width, float sign) {
    u32 row = matrix_row(), sample = row;
    if (row >= rows) {
        return;
    }
    i64 position = (i64)split(sample, length);
    position += first ? first[sample] : 0;
    bool known = position >= 0 && position < positions;
    u32 half = width / 2;
    const float *angles = table + position * width;
    x += (i64)row * heads * width;
    y += (i64)row * heads * width;
    for (i64 pair = matrix_column(); pair < (i64)heads * half; pair += matrix_column_step()) {
        u32 head = (u32)pair, k = split(head, half);
        i64 at = (i64)head * width + k;
        T a = x[at], b = x[at + half];
        if (head < (u32)turned) {
            float missing = bits_to_float(0x7fc00000u);
            float cos = known ? angles[k] : missing, sin = known ? sign * angles[half + k] : missing;
            float of_a = to_float(a), of_b = to_float(b);
            a = from_float<T>(of_a * cos - of_b * sin);
            b = from_float<T>(of_b * cos + of_a * sin);
        }
        y[at] = a;
        y[at + half] = b;
    }
}

#define KERNEL(T, S)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        rotary_##S(const T *x, const float *table, const int *first, T *y, u32 rows, int length, int positions,        \
                   int heads, int turned, int width, float sign) {                                                     \
        rotary(x, table, first, y, rows, length, positions, heads, turned, width, sign);                               \
    }
FOR_FLOATS(KERNEL)
