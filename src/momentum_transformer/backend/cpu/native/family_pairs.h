// The delta rule, two tokens in one pass over a tile: half the loads and stores of family_scan.h.
//
// The second token of a pair needs what the state after the first predicts:
//   pᵀ(αs + γ(βm + k uᵀ)) = (αp)ᵀs + γ (β pᵀm + (p · k) u)
// so that both predictions come from the state before the pair, and from one product of features. An α per channel is
// multiplied into p beforehand, a row a pair; a scalar one is multiplied into what the row predicts.
#pragma once
#include "family_scan.h"

namespace {

// Whether a block can be computed in pairs: no document begins in it, and the decays of a pair, multiplied, are not too
// small for the factor of a ScaledPlane.
template <class T> inline bool goes_by_pairs(const BlockCoefficients<T>& c, const uint8_t* reset, int64_t count) {
    if (c.erase != ERASE_S || count % 2) return false;
    for (int64_t t = 0; t < count; t += 2) {
        if (reset[t] || reset[t + 1] || c.alpha[t] * c.alpha[t + 1] < ScaledPlane<T>::LEAST) return false;
        if (c.momentum && c.beta[t] * c.beta[t + 1] < ScaledPlane<T>::LEAST) return false;
    }
    return true;
}

// What the pairs of a block share among tiles, of token t + 1 for the first token t of each pair.
template <class T> struct PairRows {
    T products[BLOCK];    // p_{t+1} · k_t
    T* faded;             // rows of p_{t+1}, times the α per channel of token t; none for a scalar α
    int64_t ld;

    void fill(const FamilyBlock<T>& x, int64_t d, int64_t rows) {
        for (int64_t t = 0; t < x.count; t += 2) {
            Vec<T> sum{};
            int64_t i = 0;
            for (; i + width<T> <= d; i += width<T>) sum += load(x.p[t + 1] + i) * load(x.k[t] + i);
            T rest = 0;
            for (; i < d; i++) rest += x.p[t + 1][i] * x.k[t][i];
            products[t] = horizontal_sum<T>(sum) + rest;
            for (i = 0; faded && i < rows; i++) faded[(t + 1) * ld + i] = x.alpha[t][i] * x.p[t + 1][i];
        }
    }
    // The row of token t, the second of a pair, that reads s.
    const T* second(const FamilyBlock<T>& x, int64_t t) const { return faded ? faded + t * ld : x.p[t]; }
};

template <class T, int N, bool Channels, bool Momentum>
__attribute__((noinline)) void scan_pairs(T* s, T* m, T* prediction, int64_t rows, const FamilyBlock<T>& x,
                                          const PairRows<T>& pair) {
    constexpr int W = width<T>;
    constexpr int64_t LD = N * W;
    const BlockCoefficients<T>& c = x.c;
    ScaledPlane<T> scaled_s{s, rows * LD}, scaled_m{m, rows * LD};
    Vec<T> first[N], second[N] = {}, second_m[N] = {};  // what s and m before the pair predict for its tokens
    for (int j = 0; j < N; j++) first[j] = load(prediction + j * W);
    const T* begin_b = pair.second(x, 1);
    for (int64_t i = 0; i < rows; i++)
        for (int j = 0; j < N; j++) {
            second[j] += begin_b[i] * load(s + i * LD + j * W);
            if (Momentum) second_m[j] += x.p[1][i] * load(m + i * LD + j * W);
        }
    for (int64_t t = 0; t < x.count; t += 2) {
        const double alpha = c.alpha[t], beta = Momentum ? c.beta[t] : 0;
        scaled_s.make_room(alpha * c.alpha[t + 1]);
        if (Momentum) scaled_m.make_room(beta * c.beta[t + 1]);
        const double s_a = scaled_s.factor * alpha, s_b = scaled_s.factor *= alpha * c.alpha[t + 1];
        const double m_a = scaled_m.factor * beta, m_b = Momentum ? scaled_m.factor *= beta * c.beta[t + 1] : 0;
        const double gamma_a = c.at[GAMMA][t], gamma_b = c.at[GAMMA][t + 1];
        // scales: of u in the plane that it is written to, and of m in s
        const T to_a = T(Momentum ? 1 / m_a : gamma_a / s_a), to_b = T(Momentum ? 1 / m_b : gamma_b / s_b);
        const Vec<T> m_to_s_a = broadcast(T(gamma_a * m_a / s_a)), m_to_s_b = broadcast(T(gamma_b * m_b / s_b));
        const T decay = T(alpha), decay_m = T(gamma_a * beta), written = T(gamma_a * pair.products[t]);
        Vec<T> a[N], b[N], y_a[N] = {}, y_b[N] = {}, next_first[N] = {}, next_second[N] = {}, next_m[N] = {};
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) {
            a[j] = c.at[ETA][t] * (load(x.v[t] + j * W) - c.at[DELTA][t] * first[j]);
            Vec<T> predicted = decay * second[j] + written * a[j];
            if (Momentum) predicted += decay_m * second_m[j];
            b[j] = (c.at[ETA][t + 1] * to_b) * (load(x.v[t + 1] + j * W) - c.at[DELTA][t + 1] * predicted);
            a[j] *= to_a;
            if (!x.predictions.data) continue;
            store(x.predictions[t] + j * W, first[j]);
            store(x.predictions[t + 1] + j * W, predicted);
        }
        x.prefetch.issue(2 * x.lines);
        const T *key_a = x.k[t], *key_b = x.k[t + 1], *query_a = x.q[t], *query_b = x.q[t + 1];
        const bool last = t + 2 == x.count;  // nothing is predicted for the token after the next
        const T *erase_a = x.p[t + 2], *erase_b = last ? erase_a : pair.second(x, t + 3);
        const T *erase_m = last ? erase_a : x.p[t + 3], *alpha_a = x.alpha[t], *alpha_b = x.alpha[t + 1];
        for (int64_t i = 0; i < rows; i++) {
            const Vec<T> k_a = broadcast(key_a[i]), k_b = broadcast(key_b[i]), q_a = broadcast(query_a[i]);
            const Vec<T> q_b = broadcast(query_b[i]), p_a = broadcast(erase_a[i]), p_b = broadcast(erase_b[i]);
#pragma GCC unroll 4
            for (int j = 0; j < N; j++) {
                const int64_t at = i * LD + j * W;
                Vec<T> state = load(s + at), update = k_a * a[j];
                if (Channels) state *= alpha_a[i];
                if (Momentum) update += load(m + at);
                state += Momentum ? m_to_s_a * update : update;
                y_a[j] += q_a * state;
                update = Momentum ? update + k_b * b[j] : k_b * b[j];
                if (Channels) state *= alpha_b[i];
                state += Momentum ? m_to_s_b * update : update;
                store(s + at, state);
                y_b[j] += q_b * state;
                next_first[j] += p_a * state;
                next_second[j] += p_b * state;
                if (!Momentum) continue;
                store(m + at, update);
                next_m[j] += (Channels ? broadcast(erase_m[i]) : p_b) * update;
            }
        }
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) {
            store(x.y[t] + j * W, T(s_a) * y_a[j]);
            store(x.y[t + 1] + j * W, T(s_b) * y_b[j]);
            first[j] = T(s_b) * next_first[j];
            second[j] = T(s_b) * next_second[j];
            if (Momentum) second_m[j] = T(m_b) * next_m[j];
        }
    }
    for (int j = 0; j < N; j++) store(prediction + j * W, first[j]);
    scaled_s.multiply_in();
    if (Momentum) scaled_m.multiply_in();
}

template <class T, bool Channels>
inline void scan_pairs_by_width(const ColumnTile<T>& tile, T* s, T* m, T* prediction, const FamilyBlock<T>& x,
                                const PairRows<T>& pair) {
    if (tile.vectors == 1)
        m ? scan_pairs<T, 1, Channels, true>(s, m, prediction, tile.rows, x, pair)
          : scan_pairs<T, 1, Channels, false>(s, m, prediction, tile.rows, x, pair);
    else if (m)  // tiles of members with momentum have two vectors at most
        scan_pairs<T, 2, Channels, true>(s, m, prediction, tile.rows, x, pair);
    else if (tile.vectors == 2)
        scan_pairs<T, 2, Channels, false>(s, m, prediction, tile.rows, x, pair);
    else
        scan_pairs<T, TILE_VECTORS, Channels, false>(s, m, prediction, tile.rows, x, pair);
}

template <class T>
inline void scan_pairs_of_tile(const ColumnTile<T>& tile, T* s, T* m, T* prediction, const FamilyBlock<T>& x,
                               const PairRows<T>& pair) {
    if (x.c.channels)
        scan_pairs_by_width<T, true>(tile, s, m, prediction, x, pair);
    else
        scan_pairs_by_width<T, false>(tile, s, m, prediction, x, pair);
}

}  // namespace
