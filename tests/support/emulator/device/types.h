// Vector types, and reading one type's bits as another's.
#pragma once

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#define EMULATED_VECTOR(name, type, align)                                                                              \
    struct __attribute__((aligned(align < 16 ? align : 16))) name##2 {                                                 \
        type x, y;                                                                                                     \
    };                                                                                                                 \
    struct name##3 {                                                                                                   \
        type x, y, z;                                                                                                  \
    };                                                                                                                 \
    struct __attribute__((aligned(2 * align < 16 ? 2 * align : 16))) name##4 {                                         \
        type x, y, z, w;                                                                                               \
    };                                                                                                                 \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                                   \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                        \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

// The second number is the alignment of two elements, as CUDA has it.
EMULATED_VECTOR(char, signed char, 2)
EMULATED_VECTOR(uchar, unsigned char, 2)
EMULATED_VECTOR(short, short, 4)
EMULATED_VECTOR(ushort, unsigned short, 4)
EMULATED_VECTOR(int, int, 8)
EMULATED_VECTOR(uint, unsigned, 8)
EMULATED_VECTOR(longlong, long long, 16)
EMULATED_VECTOR(ulonglong, unsigned long long, 16)
EMULATED_VECTOR(float, float, 8)
EMULATED_VECTOR(double, double, 16)
#undef EMULATED_VECTOR

namespace emulated {

template <class To, class From> To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "types of one size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

// IEEE 754 binary16 to binary32, exact.
inline float half_to_float(unsigned short half) {
    unsigned sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31u, fraction = half & 0x3ffu;
    if (exponent == 31) {
        return bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
    }
    if (exponent == 0) {
        float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

// binary32 to the nearest binary16, ties to even; what is too large becomes infinity, NaN stays NaN.
inline unsigned short float_to_half(float x) {
    unsigned bits = bit_cast<unsigned>(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (unsigned short)(sign | 0x7fffu);
    }
    if (magnitude >= 0x477ff000u) {  // 65520, half way between the largest number and the next power of two.
        return (unsigned short)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) {  // Below 2^-14: a multiple of 2^-24, which adding 0.5 rounds to.
        float shifted = bit_cast<float>(magnitude) + 0.5f;
        return (unsigned short)(sign | (bit_cast<unsigned>(shifted) - bit_cast<unsigned>(0.5f)));
    }
    unsigned odd = (magnitude >> 13) & 1u;
    return (unsigned short)(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

}  // namespace emulated
