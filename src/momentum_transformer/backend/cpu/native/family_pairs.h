// The delta rule with scalar decays, two tokens in one pass over a tile: half the loads and stores of family_scan.h.
//
// The second token of a pair needs what the state after the first predicts:
//   pᵀ(αs + k uᵀ) = α pᵀs + (p · k) u
// so that both predictions come from the state before the pair, and from one product of features.
#pragma once
#include "family_scan.h"

namespace {

// Whether a block can go by pairs: documents do not begin in it, and its decays fit one scale.
template <class T> inline bool goes_by_pairs(const BlockCoefficients<T>& c, const uint8_t* reset, int64_t count) {
    if (c.erase != ERASE_S || c.momentum || c.channels || count % 2) return false;
    double scale = 1;
    for (int64_t t = 0; t < count; t++) {
        if (reset[t]) return false;
        scale *= c.alpha[t];
    }
    return scale >= ScaledPlane<T>::LEAST;
}

// p_{t+1} · k_t for the first token t of each pair.
template <class T> inline void pair_products(T* products, const FamilyBlock<T>& x, int64_t d) {
    for (int64_t t = 0; t < x.count; t += 2) {
        Vec<T> sum{};
        int64_t i = 0;
        for (; i + width<T> <= d; i += width<T>) sum += load(x.p[t + 1] + i) * load(x.k[t] + i);
        T rest = 0;
        for (; i < d; i++) rest += x.p[t + 1][i] * x.k[t][i];
        products[t] = horizontal_sum<T>(sum) + rest;
    }
}

template <class T, int N>
__attribute__((noinline)) void scan_pairs(T* s, T* prediction, int64_t rows, const FamilyBlock<T>& x,
                                          const T* products) {
    constexpr int W = width<T>;
    constexpr int64_t LD = N * W;
    const BlockCoefficients<T>& c = x.c;
    double scale = 1;
    Vec<T> first[N], second[N] = {};  // what the state before the pair predicts for its tokens
    for (int j = 0; j < N; j++) first[j] = load(prediction + j * W);
    for (int64_t i = 0; i < rows; i++)
        for (int j = 0; j < N; j++) second[j] += x.p[1][i] * load(s + i * LD + j * W);
    for (int64_t t = 0; t < x.count; t += 2) {
        const double scale_a = scale * c.alpha[t], scale_b = scale_a * c.alpha[t + 1];
        const T write_a = c.at[GAMMA][t] * c.at[ETA][t], write_b = c.at[GAMMA][t + 1] * c.at[ETA][t + 1];
        const T alpha = T(c.alpha[t]), to_a = T(1 / scale_a), to_b = T(1 / scale_b);
        Vec<T> a[N], b[N], y_a[N] = {}, y_b[N] = {}, next_first[N] = {}, next_second[N] = {};
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) {
            a[j] = write_a * (load(x.v[t] + j * W) - c.at[DELTA][t] * first[j]);
            const Vec<T> predicted = alpha * second[j] + products[t] * a[j];
            b[j] = (write_b * to_b) * (load(x.v[t + 1] + j * W) - c.at[DELTA][t + 1] * predicted);
            a[j] *= to_a;
            if (!x.predictions.data) continue;
            store(x.predictions[t] + j * W, first[j]);
            store(x.predictions[t + 1] + j * W, predicted);
        }
        const T *key_a = x.k[t], *key_b = x.k[t + 1], *query_a = x.q[t], *query_b = x.q[t + 1];
        const T *erase_a = x.p[t + 2], *erase_b = t + 3 <= x.count ? x.p[t + 3] : erase_a;
        for (int64_t i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < N; j++) {
                Vec<T> state = load(s + i * LD + j * W) + key_a[i] * a[j];
                y_a[j] += query_a[i] * state;
                state += key_b[i] * b[j];
                store(s + i * LD + j * W, state);
                y_b[j] += query_b[i] * state;
                next_first[j] += erase_a[i] * state;
                next_second[j] += erase_b[i] * state;
            }
        scale = scale_b;
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) {
            store(x.y[t] + j * W, T(scale_a) * y_a[j]);
            store(x.y[t + 1] + j * W, T(scale_b) * y_b[j]);
            first[j] = T(scale_b) * next_first[j];
            second[j] = T(scale_b) * next_second[j];
        }
    }
    for (int j = 0; j < N; j++) store(prediction + j * W, first[j]);
    ScaledPlane<T> plane{s, rows * LD};
    plane.factor = scale;
    plane.multiply_in();
}

template <class T>
inline void scan_pairs_of_tile(const ColumnTile<T>& tile, T* s, T* prediction, const FamilyBlock<T>& x,
                               const T* products) {
    if (tile.vectors == 1)
        scan_pairs<T, 1>(s, prediction, tile.rows, x, products);
    else if (tile.vectors == 2)
        scan_pairs<T, 2>(s, prediction, tile.rows, x, products);
    else
        scan_pairs<T, TILE_VECTORS>(s, prediction, tile.rows, x, products);
}

}  // namespace
