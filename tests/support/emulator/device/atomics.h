// Atomic operations on integers. Floats have none: the order of a sum must not depend on the order of threads.
#pragma once

namespace emulated {

// T for a parameter from which it is not to be deduced, so that `atomicAdd(&unsigned, 1)` works as with CUDA.
template <class T> struct Same {
    typedef T type;
};
template <class T> using Value = typename Same<T>::type;

template <> struct Same<float>;
template <> struct Same<double>;

template <class T, class F> T atomic_change(T *at, F change) {
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &old, change(old), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
    return old;
}

}  // namespace emulated

template <class T> T atomicAdd(T *at, emulated::Value<T> value) {
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
template <class T> T atomicSub(T *at, emulated::Value<T> value) {
    return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);
}
template <class T> T atomicAnd(T *at, emulated::Value<T> value) {
    return __atomic_fetch_and(at, value, __ATOMIC_SEQ_CST);
}
template <class T> T atomicOr(T *at, emulated::Value<T> value) { return __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST); }
template <class T> T atomicXor(T *at, emulated::Value<T> value) {
    return __atomic_fetch_xor(at, value, __ATOMIC_SEQ_CST);
}
template <class T> T atomicExch(T *at, emulated::Value<T> value) {
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
}
template <class T> T atomicMax(T *at, emulated::Value<T> value) {
    return emulated::atomic_change(at, [=](T old) { return old > value ? old : value; });
}
template <class T> T atomicMin(T *at, emulated::Value<T> value) {
    return emulated::atomic_change(at, [=](T old) { return old < value ? old : value; });
}
template <class T> T atomicCAS(T *at, emulated::Value<T> expected, emulated::Value<T> value) {
    T old = expected;
    __atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return old;
}
inline unsigned atomicInc(unsigned *at, unsigned last) {
    return emulated::atomic_change(at, [=](unsigned old) { return old >= last ? 0 : old + 1; });
}
