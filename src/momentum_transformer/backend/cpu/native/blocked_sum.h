// Blocked summation of s, or of its gradient, segment by segment: plain sums of many thousand tokens would lose digits.
#pragma once
#include <cmath>
#include "scan.h"

namespace {

// While it is `active`, a plane sums one segment alone, and to that belongs fade · base, what the segments
// before have left.
template <class T> struct BlockedSum {
    const FamilyProblem& p;
    T* base;              // null where sums are plain
    int64_t fades;        // how many decays there are: one for each feature, or one for all
    double* fade;         // the products of the decays since the segment began
    T *integer, *rest;    // scratch: `fade` split as Decay does
    bool active = false;

    BlockedSum(const FamilyProblem& p, int64_t plane, int64_t dp, Arena& arena)
        : p(p), base(p.sum_segments ? arena.take<T>(plane) : nullptr), fades(p.channels ? dp : 1),
          fade(arena.take<double>(fades)), integer(arena.take<T>(fades)), rest(arena.take<T>(fades)) {}
    void clear(int64_t plane) {
        if (base) memset(base, 0, plane * sizeof(T));
        start(false);
    }
    void start(bool next) {
        active = next;
        for (int64_t i = 0; i < fades; i++) fade[i] = 1;
    }
    void decay(double alpha, const T* channels) {  // by that of a token
        for (int64_t i = 0; i < (p.channels ? p.d : 1); i++) fade[i] *= p.channels ? channels[i] : alpha;
    }
    T kept(int64_t feature) const { return T(fade[p.channels ? feature : 0]); }

    // Whether s keeps nearly all of some feature through a segment: faster decays forget before sums lose digits.
    bool decays_slowly(const Sequence<T>& x, int64_t begin, int64_t end) const {
        const Coefficient& alpha = p.coefficients[ALPHA];
        const double least = 1 - (end - begin) * 0x1p-14;
        if (!base) return false;
        if (alpha.heads) return pow(alpha.heads[p.coefficient_heads == 1 ? 0 : x.h], end - begin) >= least;
        if (!alpha.tokens) return true;
        const int64_t width = p.channels ? p.d : 1;
        const T* tokens = static_cast<const T*>(alpha.tokens) + x.index() * p.n * width;
        T *product = rest, most = 1;
        for (int64_t i = 0; i < width; i++) product[i] = 1;
        for (int64_t t = begin; t < end && most >= least; t++) {
            const T* token = tokens + (x.q.index ? x.q.index[t] : t) * width;
            most = 0;
            for (int64_t i = 0; i < width; i++) most = std::max(most, product[i] *= token[i]);
        }
        return most >= least;
    }
    // Before a segment, for rows × ld of a plane and of `base`: all that there is goes to `base`, or to the plane where
    // the segment is summed without it. `by_row`: whether features are rows of the plane.
    void merge(T* plane, T* base, int64_t rows, int64_t ld, bool by_row, bool next) {
        if (!active && !next) return;
        for (int64_t i = 0; i < fades; i++) {
            const Decay<T> keep(fade[i]);
            integer[i] = keep.integer, rest[i] = keep.rest;
        }
        T *to = next ? base : plane, *emptied = next ? plane : base;
        for (int64_t r = 0; r < rows; r++) {
            const bool same = fades == 1 || by_row;  // one decay for the whole row
            const int64_t one = fades == 1 ? 0 : r;
            for (int64_t j = 0, at = r * ld; j < ld; j += width<T>, at += width<T>) {
                const Vec<T> all = same ? splat(integer[one]) : load(integer + j), before = load(base + at);
                const Vec<T> part = same ? splat(rest[one]) : load(rest + j);
                store(to + at, all * before + part * before + load(plane + at));
                store(emptied + at, Vec<T>{});
            }
        }
    }
};

}  // namespace
