// One token of causal attention: the recurrence as it stands, with the state read and written once.
#pragma once
#include "sequence.h"

namespace {

template <class T> struct HeadStep {  // one head, whose state is d × e
    const T *v, *s, *m;
    T *y, *s_after, *m_after;
    const T *q, *k;  // features
    T one_minus_beta, gamma;
    T factor;        // the reciprocal of the denominator
    int64_t d, e;

    // Columns x … of the state, in N vectors; the last may be partial.
    template <int N> FORCE_INLINE void columns(int64_t x) const {
        constexpr int W = width<T>;
        auto read = [&](const T* p, int j) INLINE {
            int64_t left = e - x - j * W;
            return left >= W ? load(p + x + j * W) : load_partial<T>(p + x + j * W, left);
        };
        auto write = [&](T* p, int j, Vec<T> value) INLINE {
            int64_t left = e - x - j * W;
            if (left >= W)
                store(p + x + j * W, value);
            else
                store_partial<T>(p + x + j * W, value, left);
        };
        Vec<T> values[N], sum[N] = {};
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) values[j] = read(v, j);
        for (int64_t i = 0; i < d; i++) {
            // prefetch the state of the next head: with large batches states do not stay in the caches
            for (int j = 0; j < N; j++) {
                __builtin_prefetch(s + (d + i) * e + x + j * W);
                if (m) __builtin_prefetch(m + (d + i) * e + x + j * W);
            }
#pragma GCC unroll 4
            for (int j = 0; j < N; j++) {
                Vec<T> update = k[i] * values[j], state = read(s + i * e, j);
                if (m) {
                    Vec<T> before = read(m + i * e, j);
                    update = before - one_minus_beta * before + update;  // βm; keeps the digits of 1 - β, as Decay does
                    write(m_after + i * e, j, update);
                }
                state += gamma * update;
                write(s_after + i * e, j, state);
                sum[j] += q[i] * state;
            }
        }
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) write(y, j, sum[j] * factor);
    }
};

// `features` is scratch for the features of the query and the key.
template <class T> void step(const Step& p, int64_t bh, T* features) {
    constexpr int W = width<T>;
    int64_t b = bh / p.h, h = bh % p.h, d = p.d, e = p.e, c = p.coefficient_heads == 1 ? 0 : h;
    auto row = [&](const TensorView& x) { return static_cast<T*>(x.data) + b * x.b + h * x.h; };
    const T *q = row(p.q), *k = row(p.k), *z = static_cast<const T*>(p.z) + bh * d;
    T* z_after = static_cast<T*>(p.z_after) + bh * d;
    T *phi_q = features, *phi_k = features + round_up(d, W), denominator = 0;
    for (int64_t i = 0; i < d; i += W) {
        Vec<T> query = load_partial<T>(q + i, min<int64_t>(W, d - i));
        Vec<T> key = load_partial<T>(k + i, min<int64_t>(W, d - i));
        store(phi_q + i, p.elu ? elu_plus_one<T>(query) : query);
        store(phi_k + i, p.elu ? elu_plus_one<T>(key) : key);
    }
    for (int64_t i = 0; i < d; i++) {
        z_after[i] = z[i] + phi_k[i];
        denominator += phi_q[i] * z_after[i];
    }
    HeadStep<T> token;
    bool momentum = p.planes == 2;
    token.v = row(p.v);
    token.y = row(p.y);
    token.s = static_cast<const T*>(p.s) + bh * d * e;
    token.s_after = static_cast<T*>(p.s_after) + bh * d * e;
    token.m = momentum ? static_cast<const T*>(p.m) + bh * d * e : nullptr;
    token.m_after = momentum ? static_cast<T*>(p.m_after) + bh * d * e : nullptr;
    token.q = phi_q;
    token.k = phi_k;
    token.one_minus_beta = momentum ? T(1 - p.beta[c]) : T(0);
    token.gamma = momentum ? T(p.gamma[c]) : T(1);
    token.factor = p.normalize ? T(1) / (denominator + T(p.eps)) : T(1);
    token.d = d;
    token.e = e;
    int64_t x = 0;
    for (; x + 2 * W <= e; x += 2 * W) token.template columns<2>(x);
    for (; x < e; x += W) token.template columns<1>(x);
}

}  // namespace
