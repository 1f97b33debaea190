// One token of softmax attention (eq. 3) against a cache of keys and values that has place for the whole sequence.
#pragma once
#include <cmath>
#include "connect.h"
#include "program.h"

namespace {

template <class T> void recall(const Recall& p, int64_t bh, T* weights) {
    constexpr int W = width<T>;
    int64_t b = bh / p.h, h = bh % p.h, d = p.d, e = p.e, n = *p.count + 1;
    auto row = [&](const Rows& x) { return static_cast<T*>(x.data) + b * x.b + h * x.h; };
    const T* q = row(p.q);
    T *keys = static_cast<T*>(p.keys) + bh * p.room * d, *values = static_cast<T*>(p.values) + bh * p.room * e;
    std::memcpy(keys + (n - 1) * d, row(p.k), d * sizeof(T));
    std::memcpy(values + (n - 1) * e, row(p.v), e * sizeof(T));
    const uint8_t* mask = p.mask + b * p.room;

    T largest = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        Vec<T> product{};
        const T* key = keys + i * d;
        Row<T>{d}.each_vector(
            [&](int64_t j, int64_t count) { product += read_part(q + j, count) * read_part(key + j, count); });
        weights[i] = mask[i] ? sum<T>(product) * T(p.scale) : -INFINITY;
        largest = weights[i] < largest ? largest : weights[i];
    }
    Vec<T> total{};
    Row<T>{n}.each_vector([&](int64_t j, int64_t count) {
        Vec<T> x = read_part<T>(weights + j, count) - largest;
        x = x != x ? x : exp_negative(x);
        x = first<T>(count) ? x : Vec<T>{};
        write_part(weights + j, x, count);
        total += x;
    });
    T factor = 1 / sum<T>(total), *y = row(p.y);
    auto mix = [&](auto vectors, int64_t x, int64_t last) INLINE {  // columns x … of the values
        constexpr int N = decltype(vectors)::value;
        Vec<T> sum[N] = {};
        for (int64_t i = 0; i < n; i++)
            for (int j = 0; j < N; j++)
                sum[j] += weights[i] * read_part<T>(values + i * e + x + j * W, j == N - 1 ? last : W);
        for (int j = 0; j < N; j++) write_part<T>(y + x + j * W, sum[j] * factor, j == N - 1 ? last : W);
    };
    int64_t x = 0;
    for (; x + 2 * W <= e; x += 2 * W) mix(std::integral_constant<int, 2>{}, x, W);
    for (; x < e; x += W) mix(std::integral_constant<int, 1>{}, x, smaller<int64_t>(W, e - x));
}

}  // namespace
