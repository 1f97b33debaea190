// Blocked summation of s, or of its gradient, segment by segment: plain sums of many thousand tokens would lose digits.
#pragma once
#include <cmath>
#include "scan.h"

namespace {

// Whether s keeps nearly all of itself through some tokens: faster decays forget it before its sums lose digits.
template <class T> inline bool decays_slowly(const FamilyProblem& p, const Sequence<T>& x, int64_t begin, int64_t end) {
    const Coefficient& alpha = p.coefficients[ALPHA];
    const double least = 1 - (end - begin) * 0x1p-14;
    if (alpha.heads) return pow(alpha.heads[p.coefficient_heads == 1 ? 0 : x.h], end - begin) >= least;
    if (!alpha.tokens) return true;
    const T* tokens = static_cast<const T*>(alpha.tokens) + x.index() * p.n;
    double kept = 1;
    for (int64_t t = begin; t < end && kept >= least; t++) kept *= tokens[x.q.index ? x.q.index[t] : t];
    return kept >= least;
}

// While it is `active`, a plane sums one segment alone, and to that belongs fade · base, what the segments
// before have left.
template <class T> struct BlockedSum {
    T* base;
    bool active = false;
    double fade = 1;  // the product of the scalar decays since the segment began
    void clear(int64_t size) {
        memset(base, 0, size * sizeof(T));
        active = false;
        fade = 1;
    }
    // Before a segment: all that there is goes to `base`, or to the plane where the segment is summed without it.
    void begin_segment(T* plane, int64_t size, bool next) {
        if (!active && !next) return;
        const Decay<T> keep(fade);
        T *to = next ? base : plane, *emptied = next ? plane : base;
        for (int64_t i = 0; i < size; i += width<T>) {
            store(to + i, keep(load(base + i)) + load(plane + i));
            store(emptied + i, Vec<T>{});
        }
        active = next;
        fade = 1;
    }
};

}  // namespace
