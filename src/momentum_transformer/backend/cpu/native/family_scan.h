// The recurrence of the family, token by token, on a tile of columns of the state that stays in the cache.
//
//   u = η (v - δ (s + ρm)ᵀ p);  m ← βm + k uᵀ;  s ← αs + γm;  y = sᵀ q
//
// Columns are independent of each other: vectors run over columns, and each token loops over the rows. The prediction
// of token t + 1 needs all rows of the state after token t, and is accumulated while token t updates them: one pass
// over the tile per token.
//
// Scalar decays cost no operation per element: the kernels hold s/a and m/b instead of s and m, where a and b are the
// products of the α and β that the planes have not been multiplied by yet. They are multiplied in at the end of a
// block, or before they become too small.
#pragma once
#include <cmath>
#include "scan.h"

namespace {

enum EraseKind { ERASE_NOTHING, ERASE_S, ERASE_LOOKAHEAD };  // predictions read nothing, s, or s + ρm

constexpr int TILE_VECTORS = VECTOR_BYTES == 64 ? 4 : 2;  // of columns: in a wide one more of them share each broadcast

template <class T> struct ColumnTile {  // columns of the planes s and m, from `first` on, as `rows` × `ld` matrices
    static constexpr int64_t MOST_COLUMNS = TILE_VECTORS * width<T>;
    // With momentum tiles are half as wide, so that their two planes take as much of the L1 cache as one.
    static int64_t most_columns(int64_t planes) { return planes == 2 ? 2 * width<T> : MOST_COLUMNS; }
    static int64_t count(int64_t e, int64_t planes) { return (e + most_columns(planes) - 1) / most_columns(planes); }
    static int64_t padded_rows(int64_t d) { return round_up(d, 4); }
    static int64_t plane(int64_t d, int64_t e, int64_t planes) {
        return padded_rows(d) * count(e, planes) * most_columns(planes);
    }

    int64_t first, columns;  // `columns`: without padding
    int64_t vectors;
    int64_t rows, ld;
    ColumnTile(int64_t index, int64_t d, int64_t e, int64_t planes)
        : first(index * most_columns(planes)), columns(min(most_columns(planes), e - first)),
          vectors(vectors_for(columns)), rows(padded_rows(d)), ld(vectors * width<T>) {}
    static int64_t vectors_for(int64_t columns) {  // 1, 2 or TILE_VECTORS
        return columns <= width<T> ? 1 : columns <= 2 * width<T> ? 2 : TILE_VECTORS;
    }
    int64_t size() const { return rows * ld; }
    T* in(T* plane) const { return plane + rows * first; }  // this tile within a plane, whose tiles follow each other
    // Copies between the tile and its columns of an unpadded (d × e) matrix.
    void read(T* tile, const T* matrix, int64_t d, int64_t e) const {
        memset(tile, 0, size() * sizeof(T));
        if (matrix)
            for (int64_t i = 0; i < d; i++) memcpy(tile + i * ld, matrix + i * e + first, columns * sizeof(T));
    }
    void write(T* matrix, const T* tile, int64_t d, int64_t e) const {
        for (int64_t i = 0; i < d; i++) memcpy(matrix + i * e + first, tile + i * ld, columns * sizeof(T));
    }
};

// The coefficients of a block of tokens, and of the token after it. α and β are double: rounded to T, values near 1
// would lose digits of their distance to 1.
template <class T> struct BlockCoefficients {
    double alpha[BLOCK + 1], beta[BLOCK + 1];
    T at[COEFFICIENTS][BLOCK + 1];  // the others
    EraseKind erase;
    bool channels, momentum;

    explicit BlockCoefficients(const FamilyProblem& p) {
        auto given = [&](int name) { return p.coefficients[name].heads || p.coefficients[name].tokens; };
        channels = p.channels;
        momentum = given(BETA);
        erase = !given(DELTA) ? ERASE_NOTHING : momentum && given(LOOKAHEAD) ? ERASE_LOOKAHEAD : ERASE_S;
    }
    // The constant coefficients of head h.
    void set_head(const FamilyProblem& p, int64_t h) {
        const double neutral[COEFFICIENTS] = {1, 0, 1, 1, 0, 0};
        for (int name = 0; name < COEFFICIENTS; name++) {
            const double* heads = p.coefficients[name].heads;
            double value = heads ? heads[p.coefficient_heads == 1 ? 0 : h] : neutral[name];
            for (int64_t t = 0; t <= BLOCK; t++) set(name, t, value);
        }
    }
    template <class X> void set(int name, int64_t t, X value) {
        if (name == ALPHA)
            alpha[t] = value;
        else if (name == BETA)
            beta[t] = value;
        else
            at[name][t] = T(value);
    }
    // The per-token coefficients of `count` tokens from `begin` on.
    void set_tokens(const FamilyProblem& p, const Sequence<T>& x, int64_t begin, int64_t count) {
        for (int name = 0; name < COEFFICIENTS; name++) {
            const T* tokens = static_cast<const T*>(p.coefficients[name].tokens);
            if (!tokens || (name == ALPHA && p.channels)) continue;
            tokens += x.index() * p.n;
            auto copy = [&](auto* to) {
                if (x.q.index)
                    for (int64_t t = 0; t < count; t++) to[t] = tokens[x.q.index[begin + t]];
                else
                    for (int64_t t = 0; t < count; t++) to[t] = tokens[begin + t];
            };
            if (name == ALPHA)
                copy(alpha);
            else if (name == BETA)
                copy(beta);
            else
                copy(at[name]);
        }
    }
};

template <class T> struct Rows {  // of a block of tokens
    T* data = nullptr;
    int64_t ld = 0;
    T* operator[](int64_t t) const { return data + t * ld; }
};

template <class T> struct FamilyBlock {
    int64_t count;
    Rows<const T> q, k;
    Rows<const T> p;       // has the row of the token after the block, too
    Rows<const T> alpha;   // of an α per channel; else no data
    Rows<const T> v;       // as wide as the tile, like y
    Rows<T> y, predictions;  // predictions: what the backward pass reads; no data where they are not saved
    const uint8_t* reset;  // 1 where a document begins
    const BlockCoefficients<T>& c;
    Prefetch& prefetch;    // of the next block: `lines` cache lines with each token
    int64_t lines;
};

// A plane of a tile, stored divided by `factor`: the product of the decays that are not multiplied in yet.
template <class T> struct ScaledPlane {
    static constexpr double LEAST = 0x1p-32;  // a smaller factor is multiplied in: what is stored must not overflow
    T* plane;
    int64_t size;
    double factor = 1;
    void multiply_in() {
        if (factor == 1) return;
        const Decay<T> decay(factor);
        for (int64_t i = 0; i < size; i += width<T>) store(plane + i, decay(load(plane + i)));
        factor = 1;
    }
    void fade(double decay) {
        factor *= decay;
        if (factor < LEAST) multiply_in();
    }
    void make_room(double decay) {  // keeps the factor at LEAST or more through a decay that is LEAST or more
        if (factor * decay < LEAST) multiply_in();
    }
    void clear() {
        memset(plane, 0, size * sizeof(T));
        factor = 1;
    }
};

// On entry `prediction` is that of the first token of the block; on return, of the token after the block.
template <class T, int N, bool Channels, bool Momentum, EraseKind erase>
__attribute__((noinline)) void scan_columns(T* s, T* m, T* prediction, int64_t rows, const FamilyBlock<T>& x) {
    constexpr int W = width<T>, R = N < 4 ? 4 / N : 1;  // rows at a time: separate accumulators hide latency
    constexpr int64_t LD = N * W;
    const int64_t count = x.count;
    const BlockCoefficients<T>& c = x.c;
    ScaledPlane<T> scaled_s{s, rows * LD}, scaled_m{m, rows * LD};
    Vec<T> predicted[N];
    for (int j = 0; j < N; j++) predicted[j] = load(prediction + j * W);
    for (int64_t t = 0; t < count; t++) {
        if (x.reset[t]) {
            scaled_s.clear();
            if (Momentum) scaled_m.clear();
            for (int j = 0; j < N; j++) predicted[j] = Vec<T>{};
        }
        if (!Channels) scaled_s.fade(c.alpha[t]);
        if (Momentum) scaled_m.fade(c.beta[t]);
        const double to_s = 1 / scaled_s.factor, ratio = Momentum ? scaled_m.factor * to_s : 0;
        const T from_s = T(scaled_s.factor), m_to_s = T(ratio * c.at[GAMMA][t]);
        const T rho = T(ratio * c.at[LOOKAHEAD][t + 1]);
        const T to_plane = T(c.at[ETA][t] * (Momentum ? 1 / scaled_m.factor : c.at[GAMMA][t] * to_s));
        Vec<T> u[N], y[R][N] = {}, next[R][N] = {};
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) {
            u[j] = load(x.v[t] + j * W);
            if (erase != ERASE_NOTHING) {
                if (x.predictions.data) store(x.predictions[t] + j * W, predicted[j]);
                u[j] -= c.at[DELTA][t] * predicted[j];
            }
            u[j] *= to_plane;
        }
        const T *query = x.q[t], *key = x.k[t], *next_erase = x.p[t + 1], *channels = x.alpha[t];
        for (int64_t i = 0; i < rows; i += R)
#pragma GCC unroll 4
            for (int r = 0; r < R; r++)
#pragma GCC unroll 4
                for (int j = 0; j < N; j++) {
                    const int64_t at = (i + r) * LD + j * W;
                    Vec<T> state = load(s + at), update{};
                    if (Channels) state *= channels[i + r];
                    if (Momentum) {
                        update = load(m + at) + key[i + r] * u[j];
                        store(m + at, update);
                        state += m_to_s * update;
                    } else
                        state += key[i + r] * u[j];
                    store(s + at, state);
                    y[r][j] += query[i + r] * state;
                    if (erase == ERASE_LOOKAHEAD) state += rho * update;
                    if (erase != ERASE_NOTHING) next[r][j] += next_erase[i + r] * state;
                }
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) {
            for (int r = 1; r < R; r++) y[0][j] += y[r][j], next[0][j] += next[r][j];
            store(x.y[t] + j * W, from_s * y[0][j]);
            predicted[j] = from_s * next[0][j];
        }
    }
    for (int j = 0; j < N; j++) store(prediction + j * W, predicted[j]);
    scaled_s.multiply_in();
    if (Momentum) scaled_m.multiply_in();
}

template <class T, int N, bool Channels, bool Momentum>
inline void scan_erasing(T* s, T* m, T* prediction, int64_t rows, const FamilyBlock<T>& x) {
    if (x.c.erase == ERASE_NOTHING)
        scan_columns<T, N, Channels, Momentum, ERASE_NOTHING>(s, m, prediction, rows, x);
    else if (Momentum && x.c.erase == ERASE_LOOKAHEAD)
        scan_columns<T, N, Channels, Momentum, Momentum ? ERASE_LOOKAHEAD : ERASE_S>(s, m, prediction, rows, x);
    else
        scan_columns<T, N, Channels, Momentum, ERASE_S>(s, m, prediction, rows, x);
}

template <class T, int N>
inline void scan_member(T* s, T* m, T* prediction, int64_t rows, const FamilyBlock<T>& x) {
    if (x.c.channels && x.c.momentum)
        scan_erasing<T, N, true, true>(s, m, prediction, rows, x);
    else if (x.c.channels)
        scan_erasing<T, N, true, false>(s, m, prediction, rows, x);
    else if (x.c.momentum)
        scan_erasing<T, N, false, true>(s, m, prediction, rows, x);
    else
        scan_erasing<T, N, false, false>(s, m, prediction, rows, x);
}

// A tile of TILE_VECTORS: only members without momentum have these.
template <class T> inline void scan_erasing_wide(T* s, T* m, T* prediction, int64_t rows, const FamilyBlock<T>& x) {
    if (x.c.channels)
        scan_erasing<T, TILE_VECTORS, true, false>(s, m, prediction, rows, x);
    else
        scan_erasing<T, TILE_VECTORS, false, false>(s, m, prediction, rows, x);
}

// Runs a block of tokens through a tile, with the instance of the template for this member.
template <class T>
void scan_tile_of_columns(const ColumnTile<T>& tile, T* s, T* m, T* prediction, const FamilyBlock<T>& x) {
    if (tile.vectors == 1)
        scan_member<T, 1>(s, m, prediction, tile.rows, x);
    else if (tile.vectors == 2)
        scan_member<T, 2>(s, m, prediction, tile.rows, x);
    else if constexpr (TILE_VECTORS > 2)
        scan_erasing_wide(s, m, prediction, tile.rows, x);
}

}  // namespace
