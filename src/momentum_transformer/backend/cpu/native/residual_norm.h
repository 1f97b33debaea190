// Residual connection and norm of a decoded token: x + γv with v ← βv + update (eq. 15), then the norm.
#pragma once
#include <cmath>
#include "program.h"
#include "sequence.h"

namespace {

// f(offset, count) for each vector of a row of n elements; count is the vector's width, or what is left at the end.
template <class T, class F> FORCE_INLINE void for_each_vector(int64_t n, F f) {
    constexpr int W = width<T>;
    int64_t x = 0;
    for (; x + W <= n; x += W) f(x, int64_t(W));
    if (x < n) f(x, n - x);
}
template <class T> inline Vec<T> load_tail(const T* p, int64_t count) {
    return count == width<T> ? load(p) : load_partial<T>(p, count);
}
template <class T> inline void store_tail(T* p, Vec<T> x, int64_t count) {
    count == width<T> ? store(p, x) : store_partial<T>(p, x, count);
}

template <class T> void residual_norm(const ResidualNorm& p, int64_t i) {  // row i
    int64_t w = p.width, at = i * w;
    const T *x = static_cast<const T*>(p.x) + at, *update = p.update ? static_cast<const T*>(p.update) + at : nullptr;
    T *out = static_cast<T*>(p.out) + at, *velocity = p.velocity ? static_cast<T*>(p.velocity) + at : nullptr;
    T beta = T(p.beta), gamma = T(p.gamma);
    if (p.previous_update) {
        // Adaptive momentum (eq. 18): β = (1 - √(‖update - previous‖ / ‖previous‖))², clipped to [0, p.beta]. Where a
        // norm vanishes, or the ratio exceeds 4, that is p.beta; NaN stays NaN.
        const T* previous_update = static_cast<const T*>(p.previous_update) + at;
        Vec<T> difference_squares{}, previous_squares{};
        for_each_vector<T>(w, [&](int64_t j, int64_t count) {
            Vec<T> previous = load_tail(previous_update + j, count);
            Vec<T> difference = load_tail(update + j, count) - previous;
            difference_squares += difference * difference;
            previous_squares += previous * previous;
        });
        T numerator = horizontal_sum<T>(difference_squares), denominator = horizontal_sum<T>(previous_squares);
        T tiny = T(1e-30);
        beta = T(p.beta);
        if (numerator != numerator || denominator != denominator)
            beta = numerator + denominator;
        else if (denominator > tiny && numerator > tiny * denominator && numerator < 16 * denominator) {
            T root = 1 - std::sqrt(std::sqrt(numerator / denominator));
            beta = root * root < beta ? root * root : beta;
        }
    }
    Vec<T> total{};
    for_each_vector<T>(w, [&](int64_t j, int64_t count) {
        Vec<T> v = update ? load_tail(update + j, count) : Vec<T>{};
        if (velocity) {
            if (!p.first_layer) v += beta * load_tail<T>(velocity + j, count);
            store_tail(velocity + j, v, count);
        }
        Vec<T> residual = load_tail(x + j, count) + gamma * v;
        store_tail(out + j, residual, count);
        total += residual;
    });
    if (!p.weight) return;
    const T *weight = static_cast<const T*>(p.weight), *bias = static_cast<const T*>(p.bias);
    T mean = bias ? horizontal_sum<T>(total) / T(w) : T(0);  // RMSNorm does not centre
    Vec<T> squares{};
    for_each_vector<T>(w, [&](int64_t j, int64_t count) {
        Vec<T> centred = load_tail<T>(out + j, count) - mean;
        squares += (lane_mask<T>(count) ? centred * centred : Vec<T>{});
    });
    T factor = 1 / std::sqrt(horizontal_sum<T>(squares) / T(w) + T(p.eps));
    for_each_vector<T>(w, [&](int64_t j, int64_t count) {
        Vec<T> value = (load_tail<T>(out + j, count) - mean) * factor;
        value *= load_tail(weight + j, count);
        store_tail(out + j, bias ? value + load_tail(bias + j, count) : value, count);
    });
}

}  // namespace
