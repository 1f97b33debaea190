// One token: the recurrence itself, the state read and written once.
#pragma once
#include "sequence.h"

namespace {

template <class T> void step(const Step& p, int64_t bh) {
    constexpr int W = width<T>;
    int64_t b = bh / p.h, h = bh % p.h, d = p.d, e = p.e, t = p.table_heads == 1 ? 0 : h;
    auto row = [&](const Rows& x) { return static_cast<T*>(x.data) + b * x.b + h * x.h; };
    const T *q = row(p.q), *k = row(p.k), *v = row(p.v);
    T* y = row(p.y);
    const T *s = static_cast<const T*>(p.s) + bh * d * e, *z = static_cast<const T*>(p.z) + bh * d;
    T *s_after = static_cast<T*>(p.s_after) + bh * d * e, *z_after = static_cast<T*>(p.z_after) + bh * d;
    const T* m = p.lanes == 2 ? static_cast<const T*>(p.m) + bh * d * e : nullptr;
    T* m_after = p.lanes == 2 ? static_cast<T*>(p.m_after) + bh * d * e : nullptr;
    T fade = p.lanes == 2 ? T(1 - p.beta[t]) : T(0), gamma = p.lanes == 2 ? T(p.gamma[t]) : T(1);

    T below = 0;
    T features[2][64];
    for (int64_t x = 0; x < e; x++) y[x] = 0;
    for (int64_t from = 0; from < d; from += 64) {
        int64_t part = smaller<int64_t>(64, d - from);
        for (int64_t i = 0; i < part; i += W) {
            int64_t left = smaller<int64_t>(W, part - i);
            Vec<T> qi = load_first<T>(q + from + i, left), ki = load_first<T>(k + from + i, left);
            if (p.elu) qi = elu_plus_one<T>(qi), ki = elu_plus_one<T>(ki);
            store(features[0] + i, qi);
            store(features[1] + i, ki);
        }
        for (int64_t i = 0; i < part; i++) {
            T qi = features[0][i], ki = features[1][i];
            z_after[from + i] = z[from + i] + ki;
            below += qi * z_after[from + i];
            int64_t at = (from + i) * e, x = 0;
            auto token = [&](Vec<T> s, Vec<T> m, Vec<T> v, Vec<T>& m_new, Vec<T>& s_new) {
                m_new = m - fade * m + ki * v;
                s_new = s + gamma * m_new;
            };
            for (; x < e; x += W) {
                int64_t left = smaller<int64_t>(W, e - x);
                bool whole = left == W;
                Vec<T> vx = whole ? load(v + x) : load_first<T>(v + x, left);
                Vec<T> sx = whole ? load(s + at + x) : load_first<T>(s + at + x, left);
                Vec<T> yx = whole ? load(y + x) : load_first<T>(y + x, left), mx{};
                if (m) {
                    Vec<T> old = whole ? load(m + at + x) : load_first<T>(m + at + x, left);
                    token(sx, old, vx, mx, sx);
                } else {
                    sx += ki * vx;
                }
                yx += qi * sx;
                if (whole) {
                    if (m) store(m_after + at + x, mx);
                    store(s_after + at + x, sx);
                    store(y + x, yx);
                } else {
                    if (m) store_first<T>(m_after + at + x, mx, left);
                    store_first<T>(s_after + at + x, sx, left);
                    store_first<T>(y + x, yx, left);
                }
            }
        }
    }
    if (p.normalize)
        for (int64_t x = 0; x < e; x++) y[x] /= below + T(p.eps);
}

}  // namespace
