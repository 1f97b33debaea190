// Rows whose length need not be a multiple of the vector width, in any storage type; the logistic function.
#pragma once
#include "sequence.h"

namespace {

// f(offset, count) for each vector of a row of n elements; count is the vector's width, or what is left at the end.
template <class T, class F> FORCE_INLINE void for_each_lanes(int64_t n, F f) {
    for (int64_t x = 0; x < n; x += width<T>) f(x, min<int64_t>(width<T>, n - x));
}
// Partial vectors are rare: out of line, so that no loop over vectors is compiled twice.
template <class T, class S> __attribute__((noinline)) Vec<T> load_end(const S* p, int64_t count) {
    return load_partial<T>(p, count);
}
template <class T, class S> __attribute__((noinline)) void store_end(S* p, Vec<T> x, int64_t count) {
    store_partial<T>(p, x, count);
}
template <class T, class S> FORCE_INLINE Vec<T> load_lanes(const S* p, int64_t count) {
    return __builtin_expect(count == width<T>, 1) ? load_as<T>(p) : load_end<T>(p, count);
}
template <class T, class S> FORCE_INLINE void store_lanes(S* p, Vec<T> x, int64_t count) {
    __builtin_expect(count == width<T>, 1) ? store_as<T>(p, x) : store_end<T>(p, x, count);
}

template <class T> FORCE_INLINE Vec<T> logistic(Vec<T> x) {
    Vec<T> e = exp_negative(x < T(0) ? x : -x);  // never overflows
    Vec<T> y = (x < T(0) ? e : splat(T(1))) / (T(1) + e);
    return x == x ? y : x;  // exp_negative does not propagate NaN
}

// Calls f with a null pointer whose type is the type in which tensors are stored (tag dispatch).
template <class T, class F> FORCE_INLINE void with_storage(int64_t dtype, F f) {
    if constexpr (std::is_same_v<T, float>) {
        if (dtype == DTYPE_BFLOAT16) return f(static_cast<bfloat16*>(nullptr));
        if (dtype == DTYPE_FLOAT16) return f(static_cast<float16*>(nullptr));
    }
    f(static_cast<T*>(nullptr));
}

}  // namespace
