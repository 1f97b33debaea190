// One token of softmax attention (eq. 3) with a KV cache: a ring, allocated for the whole sequence or for a window.
#pragma once
#include "residual_norm.h"

namespace {

// One head: puts k and v into the cache, then y = softmax(scale · q Kᵀ) V. `weights` is scratch for a number per
// token.
template <class T> void cached_attention(const CachedAttention& p, int64_t bh, T* weights) {
    constexpr int W = width<T>;
    int64_t b = bh / p.h, h = bh % p.h, d = p.d, e = p.e, steps = *p.steps;
    int64_t now = (p.given + steps) % p.capacity, n = min(p.given + steps + 1, p.capacity);
    auto row = [&](const TensorView& x) { return static_cast<T*>(x.data) + b * x.b + h * x.h; };
    const T* q = row(p.q);
    T* keys = static_cast<T*>(p.key_cache) + bh * p.capacity * d;
    T* values = static_cast<T*>(p.value_cache) + bh * p.capacity * e;
    std::memcpy(keys + now * d, row(p.k), d * sizeof(T));
    std::memcpy(values + now * e, row(p.v), e * sizeof(T));
    const uint8_t* mask = p.mask + b * p.capacity;
    auto exists = [&](int64_t i) { return mask[i] || (i <= now ? now - i : now - i + p.capacity) <= steps; };

    T largest = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        Vec<T> product{};
        const T* key = keys + i * d;
        for_each_vector<T>(
            d, [&](int64_t j, int64_t count) { product += load_tail(q + j, count) * load_tail(key + j, count); });
        weights[i] = exists(i) ? horizontal_sum<T>(product) * T(p.scale) : -INFINITY;
        largest = weights[i] < largest ? largest : weights[i];
    }
    Vec<T> total{};
    for_each_vector<T>(n, [&](int64_t j, int64_t count) {
        Vec<T> x = load_tail<T>(weights + j, count) - largest;
        x = x != x ? x : exp_negative(x);
        x = lane_mask<T>(count) ? x : Vec<T>{};
        store_tail(weights + j, x, count);
        total += x;
    });
    T factor = 1 / horizontal_sum<T>(total), *y = row(p.y);
    // Columns x … of the values, in N vectors; `last` is how many columns the last vector has.
    auto weighted_sum = [&](auto vectors, int64_t x, int64_t last) INLINE {
        constexpr int N = decltype(vectors)::value;
        Vec<T> sum[N] = {};
        for (int64_t i = 0; i < n; i++)
            for (int j = 0; j < N; j++)
                sum[j] += weights[i] * load_tail<T>(values + i * e + x + j * W, j == N - 1 ? last : W);
        for (int j = 0; j < N; j++) store_tail<T>(y + x + j * W, sum[j] * factor, j == N - 1 ? last : W);
    };
    int64_t x = 0;
    for (; x + 2 * W <= e; x += 2 * W) weighted_sum(std::integral_constant<int, 2>{}, x, W);
    for (; x < e; x += W) weighted_sum(std::integral_constant<int, 1>{}, x, min<int64_t>(W, e - x));
}

}  // namespace
