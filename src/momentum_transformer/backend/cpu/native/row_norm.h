// L2 norm or RMSNorm of rows, with a weight and a gate: for features and for outputs; and the backward pass.
#pragma once
#include <cmath>
#include "lanes.h"
#include "surroundings.h"

namespace {

template <class T> struct RowNorms {
    const RowNorm& p;
    const bool first;               // whether the gate comes before the norm
    T *open, *slope;                // a row each: what the gate multiplies by, and its derivative
    T *normed, *weighted, *d_weight;  // input of the norm, gradient of its output, d_weight summed over rows

    RowNorms(const RowNorm& p, Arena& arena)
        : p(p), first(p.gate.data && p.gating == GATING_SILU_FIRST), open(take(arena)), slope(take(arena)),
          normed(take(arena)), weighted(take(arena)), d_weight(take(arena)) {}
    T* take(Arena& arena) const { return arena.take<T>(p.d + width<T>); }

    static int64_t parts(const RowNorm& p) { return (p.n + NORM_TOKENS - 1) / NORM_TOKENS; }
    static int64_t tasks(const RowNorm& p) { return p.b * parts(p); }

    template <class S> static S* row(const TensorView& x, int64_t b, int64_t h, int64_t t) {
        return x.data ? static_cast<S*>(x.data) + b * x.b + h * x.h + t * x.n : nullptr;
    }
    template <class F> void for_each_row(int64_t task, F f) {
        int64_t b = task / parts(p), from = task % parts(p) * NORM_TOKENS;
        for (int64_t t = from; t < min(from + NORM_TOKENS, p.n); t++)
            for (int64_t h = 0; h < p.h; h++) f(b, h, t);
    }
    T factor(Vec<T> squares) const {
        T sum = horizontal_sum<T>(squares);
        return T(1) / std::sqrt((p.mean ? sum / T(p.d) : sum) + T(p.eps));
    }
    FORCE_INLINE Vec<T> opened(Vec<T> gate) const {
        Vec<T> s = logistic<T>(gate);
        return p.gating == GATING_SIGMOID ? s : gate * s;
    }
    FORCE_INLINE void open_and_slope(Vec<T> gate, int64_t j) {
        Vec<T> s = logistic<T>(gate), closed = T(1) - s;
        const bool sigmoid = p.gating == GATING_SIGMOID;
        store(open + j, sigmoid ? s : gate * s);
        store(slope + j, sigmoid ? s * closed : s * (T(1) + gate * closed));
    }

    template <class S> void forward(int64_t task) {
        const T* weight = static_cast<const T*>(p.weight);
        for_each_row(task, [&](int64_t b, int64_t h, int64_t t) {
            const S *x = row<S>(p.x, b, h, t), *gate = row<S>(p.gate, b, h, t);
            S* y = row<S>(p.y, b, h, t);
            Vec<T> squares{};
            for_each_lanes<T>(p.d, [&](int64_t j, int64_t some) INLINE {
                Vec<T> v = load_lanes<T>(x + j, some);
                if (first) {
                    v *= opened(load_lanes<T>(gate + j, some));
                    store(normed + j, v);
                }
                squares += v * v;
            });
            T scale = factor(squares);
            for_each_lanes<T>(p.d, [&](int64_t j, int64_t some) INLINE {
                Vec<T> v = (first ? load(normed + j) : load_lanes<T>(x + j, some)) * scale;
                if (weight) v *= load_lanes<T>(weight + j, some);
                if (gate && !first) v *= opened(load_lanes<T>(gate + j, some));
                store_lanes<T>(y + j, v, some);
            });
        });
    }

    template <class S> void backward(int64_t task) {
        const T* weight = static_cast<const T*>(p.weight);
        memset(d_weight, 0, (p.d + width<T>) * sizeof(T));
        for_each_row(task, [&](int64_t b, int64_t h, int64_t t) {
            const S *x = row<S>(p.x, b, h, t), *gate = row<S>(p.gate, b, h, t), *dy = row<S>(p.dy, b, h, t);
            S *dx = row<S>(p.dx, b, h, t), *d_gate = row<S>(p.d_gate, b, h, t);
            Vec<T> squares{}, products{};
            for_each_lanes<T>(p.d, [&](int64_t j, int64_t some) INLINE {
                Vec<T> v = load_lanes<T>(x + j, some), u = load_lanes<T>(dy + j, some);
                if (weight) u *= load_lanes<T>(weight + j, some);
                if (gate) {
                    open_and_slope(load_lanes<T>(gate + j, some), j);
                    (first ? v : u) *= load(open + j);
                }
                store(normed + j, v);
                store(weighted + j, u);
                squares += v * v;
                products += v * u;
            });
            T scale = factor(squares), inner = horizontal_sum<T>(products) * scale * scale;
            if (p.mean) inner /= T(p.d);
            for_each_lanes<T>(p.d, [&](int64_t j, int64_t some) INLINE {
                Vec<T> v = load(normed + j), unit = v * scale, d = load_lanes<T>(dy + j, some);
                Vec<T> d_normed = (load(weighted + j) - v * inner) * scale;
                store_lanes<T>(dx + j, first ? d_normed * load(open + j) : d_normed, some);
                if (gate) {
                    Vec<T> other = first ? d_normed * load_lanes<T>(x + j, some) : d * unit;
                    if (weight && !first) other *= load_lanes<T>(weight + j, some);
                    store_lanes<T>(d_gate + j, other * load(slope + j), some);
                }
                if (weight) {
                    d *= unit;
                    store(d_weight + j, load(d_weight + j) + (gate && !first ? d * load(open + j) : d));
                }
            });
        });
        if (weight) memcpy(static_cast<T*>(p.d_weight) + task * p.d, d_weight, p.d * sizeof(T));
    }

    void run(int64_t task, bool back) {
        with_storage<T>(p.dtype, [&](auto* storage) {
            using S = std::remove_pointer_t<decltype(storage)>;
            back ? backward<S>(task) : forward<S>(task);
        });
    }
};

}  // namespace
