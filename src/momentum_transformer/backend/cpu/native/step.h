// One token of any member of the family: the recurrence as it stands (family_scan.h has it for many tokens).
//
//   u = η (v - δ (s + ρm)ᵀ p);  m ← βm + k uᵀ;  s ← αs + γm;  y = sᵀ q
//
// Columns of the state are independent of each other. With a delta rule a tile of columns is read twice, for the
// prediction and for the update, and the second time from a cache. The update begins at the last row, the one that was
// read last.
#pragma once
#include <cmath>
#include <limits>
#include "scan.h"

namespace {

// How s decays: not at all; by a constant α, with more digits than T has (Decay); or by an α of type T at each token,
// one for each row of s or the same for all rows.
enum Fading { FADE_NOTHING, FADE_EXACTLY, FADE_ROWS };

// Vectors of columns of a tile. Without momentum as many as registers hold, so that rows are read in sequence; with
// momentum, whose m doubles what is read and written, tiles of whole cache lines are faster.
template <bool Momentum> constexpr int STEP_VECTORS = VECTOR_BYTES < 64 ? 4 : Momentum ? 2 : 8;

template <class T> struct HeadStep {  // one head, whose state is d × e
    const T *q, *k, *p;               // features of query and key; p, for which the state predicts
    const T *v, *s, *m;               // m: null without momentum
    T *y, *s_after, *m_after;
    const T* fading;                  // α of row i: fading[i · fading_step]
    int64_t fading_step;
    Decay<T> alpha, beta;
    T gamma, eta, delta, rho;
    bool erases;
    T factor;                         // of y: the reciprocal of the denominator
    int64_t d, e;

    // Vector j of a tile of N whose last vector has `last` columns.
    template <int N> static FORCE_INLINE Vec<T> read(const T* row, int j, int64_t last) {
        return j < N - 1 || last == width<T> ? load(row + j * width<T>) : load_partial<T>(row + j * width<T>, last);
    }
    template <int N> static FORCE_INLINE void write(T* row, int j, Vec<T> value, int64_t last) {
        if (j < N - 1 || last == width<T>)
            store(row + j * width<T>, value);
        else
            store_partial<T>(row + j * width<T>, value, last);
    }
    // The prediction (s + ρm)ᵀ p, for the tile of columns from x on.
    template <int N, bool Momentum>
    FORCE_INLINE void predict(Vec<T> (&sum)[N], int64_t x, int64_t last) const {
        constexpr int R = N >= 4 ? 1 : 4 / N;  // rows at a time: separate accumulators hide latency
        const HeadStep token = *this;
        Vec<T> sums[R][N] = {};
        auto add = [&](int64_t i, int r) INLINE {
            const int64_t row = i * token.e + x;
#pragma GCC unroll 8
            for (int j = 0; j < N; j++) {
                Vec<T> state = read<N>(token.s + row, j, last);
                if (Momentum && token.rho != 0) state += token.rho * read<N>(token.m + row, j, last);
                sums[r][j] += token.p[i] * state;
            }
        };
        int64_t i = 0;
        for (; i + R <= token.d; i += R)
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) add(i + r, r);
        for (; i < token.d; i++) add(i, 0);
#pragma GCC unroll 8
        for (int j = 0; j < N; j++) {
            sum[j] = sums[0][j];
            for (int r = 1; r < R; r++) sum[j] += sums[r][j];
        }
    }
    // Update and output of the tile of columns from x on.
    template <int N, bool Momentum, Fading kind> void columns(int64_t x, int64_t last) const {
        const HeadStep token = *this;  // a local copy, which stores cannot alias
        Vec<T> u[N], sum[N] = {};
        if (erases) predict<N, Momentum>(u, x, last);
#pragma GCC unroll 8
        for (int j = 0; j < N; j++) {
            Vec<T> value = read<N>(v + x, j, last);
            u[j] = eta * (erases ? value - delta * u[j] : value);
            if (!Momentum) u[j] *= gamma;
        }
        for (int64_t i = token.d - 1; i >= 0; i--) {
            const int64_t row = i * token.e + x;
            const T query = token.q[i], key = token.k[i];
            const T fade = kind == FADE_ROWS ? token.fading[i * token.fading_step] : T(1);
#pragma GCC unroll 8
            for (int j = 0; j < N; j++) {
                Vec<T> state = read<N>(token.s + row, j, last);
                if (kind == FADE_EXACTLY) state = token.alpha(state);
                if (kind == FADE_ROWS) state *= fade;
                if (Momentum) {
                    Vec<T> update = token.beta(read<N>(token.m + row, j, last)) + key * u[j];
                    write<N>(token.m_after + row, j, update, last);
                    state += token.gamma * update;
                } else
                    state += key * u[j];
                write<N>(token.s_after + row, j, state, last);
                sum[j] += query * state;
            }
        }
#pragma GCC unroll 8
        for (int j = 0; j < N; j++) write<N>(y + x, j, sum[j] * factor, last);
    }
    template <bool Momentum, Fading kind> void all_columns() const {
        constexpr int W = width<T>, N = STEP_VECTORS<Momentum>;
        int64_t x = 0;
        for (; x + N * W <= e; x += N * W) columns<N, Momentum, kind>(x, W);
        for (; x + N / 2 * W <= e; x += N / 2 * W) columns<N / 2, Momentum, kind>(x, W);
        for (; x < e; x += W) columns<1, Momentum, kind>(x, min<int64_t>(W, e - x));
    }
    void run(Fading kind) const {
        // the hardware prefetcher stops at page boundaries: prefetch where the next head begins
        for (int64_t line = 0; line < 4; line++) {
            __builtin_prefetch(reinterpret_cast<const char*>(s + d * e) + 64 * line);
            if (m) __builtin_prefetch(reinterpret_cast<const char*>(m + d * e) + 64 * line);
        }
        if (kind == FADE_NOTHING)
            m ? all_columns<true, FADE_NOTHING>() : all_columns<false, FADE_NOTHING>();
        else if (kind == FADE_EXACTLY)
            m ? all_columns<true, FADE_EXACTLY>() : all_columns<false, FADE_EXACTLY>();
        else
            m ? all_columns<true, FADE_ROWS>() : all_columns<false, FADE_ROWS>();
    }
};

// The features of a row of d elements, padded with zeros.
template <class T> inline void map_features(T* to, const T* from, int64_t d, int64_t features) {
    constexpr int W = width<T>;
    Vec<T> squares{};
    for (int64_t i = 0; i < d; i += W) {
        Vec<T> x = d - i >= W ? load(from + i) : load_partial<T>(from + i, d - i);
        squares += x * x;
        store(to + i, features == FEATURES_ELU ? elu_plus_one<T>(x) : x);
    }
    if (features != FEATURES_L2) return;
    T factor = 1 / std::sqrt(horizontal_sum<T>(squares) + T(1e-6));
    for (int64_t i = 0; i < d; i += W) store(to + i, factor * load(to + i));
}

// Whether the coefficients of tokens are in range: α and β in [0, 1], the others finite. NaN passes, and propagates.
template <class T> bool coefficients_in_range(const Step& p) {
    for (int name = 0; name < COEFFICIENTS; name++) {
        const T* x = static_cast<const T*>(p.coefficients[name].tokens);
        const int64_t count = x ? p.b * p.h * (name == ALPHA && p.channels ? p.d : 1) : 0;
        const bool share = name == ALPHA || name == BETA;
        const T high = share ? T(1) : std::numeric_limits<T>::max(), low = share ? T(0) : -high;
        for (int64_t i = 0; i < count; i++)
            if (x[i] < low || x[i] > high) return false;
    }
    return true;
}

// `scratch` is for the features of the query and the key.
template <class T> void step(const Step& p, int64_t bh, T* scratch) {
    int64_t b = bh / p.h, h = bh % p.h, d = p.d, e = p.e;
    auto row = [&](const TensorView& x) { return static_cast<T*>(x.data) + b * x.b + h * x.h; };
    auto part = [&](const void* x, int64_t size) { return x ? static_cast<const T*>(x) + bh * size : nullptr; };
    auto after = [&](void* x, int64_t size) { return x ? static_cast<T*>(x) + bh * size : nullptr; };
    auto given = [&](int name) { return p.coefficients[name].heads || p.coefficients[name].tokens; };
    auto coefficient = [&](int name, double neutral) -> double {
        const Coefficient& c = p.coefficients[name];
        if (c.tokens) return static_cast<const T*>(c.tokens)[bh];
        return c.heads ? c.heads[p.coefficient_heads == 1 ? 0 : h] : neutral;
    };
    T *query = scratch, *key = scratch + round_up(d, width<T>), denominator = 0;
    map_features<T>(query, row(p.q), d, p.features);
    map_features<T>(key, row(p.k), d, p.features);
    if (p.z) {
        const T* z = part(p.z, d);
        T* z_after = after(p.z_after, d);
        for (int64_t i = 0; i < d; i++) {
            z_after[i] = z[i] + key[i];
            denominator += query[i] * z_after[i];
        }
    }
    HeadStep<T> token;
    token.q = query;
    token.k = key;
    token.p = p.erase.data ? row(p.erase) : key;
    token.v = row(p.v);
    token.y = row(p.y);
    token.s = part(p.s, d * e);
    token.m = part(p.m, d * e);
    token.s_after = after(p.s_after, d * e);
    token.m_after = after(p.m_after, d * e);
    token.fading = part(p.coefficients[ALPHA].tokens, p.channels ? d : 1);
    token.fading_step = p.channels ? 1 : 0;
    token.alpha = Decay<T>(token.fading ? 1 : coefficient(ALPHA, 1));
    token.beta = Decay<T>(coefficient(BETA, 0));
    token.gamma = T(coefficient(GAMMA, 1));
    token.eta = T(coefficient(ETA, 1));
    token.delta = T(coefficient(DELTA, 0));
    token.rho = T(coefficient(LOOKAHEAD, 0));
    token.erases = given(DELTA);
    token.factor = T(p.scale) * (p.normalize ? T(1) / (denominator + T(p.eps)) : T(1));
    token.d = d;
    token.e = e;
    token.run(token.fading ? FADE_ROWS : given(ALPHA) ? FADE_EXACTLY : FADE_NOTHING);
}

}  // namespace
