// The recurrence of the family, token by token, on a tile of columns of the state that stays in the cache.
//
//   u = η (v - δ (s + ρm)ᵀ p);  m ← βm + k uᵀ;  s ← αs + γm;  y = sᵀ q
//
// Columns do not see each other, so vectors run over columns and a token loops over rows. The prediction of a token
// needs all rows of the state before it: it is added up while the token before goes through them, so that a token takes
// one pass.
#pragma once
#include "pack.h"

namespace {

enum AlphaKind { ALPHA_ONE, ALPHA_SCALAR, ALPHA_CHANNELS };
enum EraseKind { ERASE_NOTHING, ERASE_S, ERASE_LOOKAHEAD };  // the last: the prediction is made at s + ρm

constexpr int TILE_VECTORS = REGISTER_ROWS / 2;  // of columns: their sums and updates stay in registers

template <class T> struct ColumnTile {  // columns `first` … of the state: s, and perhaps m, `rows` × `ld`
    static constexpr int64_t COLUMNS = TILE_VECTORS * width<T>;
    static int64_t count(int64_t e) { return (e + COLUMNS - 1) / COLUMNS; }
    static int64_t padded_rows(int64_t d) { return round_up(d, 4); }
    static int64_t plane(int64_t d, int64_t e) { return padded_rows(d) * count(e) * COLUMNS; }

    int64_t first, columns;  // columns that exist
    int64_t vectors;         // 1, 2 or 4, so that there are few kinds of tiles
    int64_t rows, ld;
    ColumnTile(int64_t index, int64_t d, int64_t e)
        : first(index * COLUMNS), columns(min(COLUMNS, e - first)), vectors((columns + width<T> - 1) / width<T>),
          rows(padded_rows(d)) {
        if (vectors == 3) vectors = 4;
        ld = vectors * width<T>;
    }
    int64_t size() const { return rows * ld; }
    T* in(T* plane) const { return plane + rows * first; }  // this tile of a plane, which is a row of tiles
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

// The coefficients of a block of tokens, and of the token after it. α and β are `whole` + what the arrays hold: rounded
// to T in one piece, a constant near 1 would lose digits of its distance to 1.
template <class T> struct BlockCoefficients {
    T at[COEFFICIENTS][BLOCK + 1];
    T whole[2] = {0, 0};      // of α and β
    bool split = false;       // whether one of them is not zero
    AlphaKind alpha;
    EraseKind erase;
    bool momentum;

    explicit BlockCoefficients(const FamilyProblem& p) {
        auto given = [&](int name) { return p.coefficients[name].heads || p.coefficients[name].tokens; };
        alpha = !given(ALPHA) ? ALPHA_ONE : p.channels ? ALPHA_CHANNELS : ALPHA_SCALAR;
        momentum = given(BETA);
        erase = !given(DELTA) ? ERASE_NOTHING : momentum && given(LOOKAHEAD) ? ERASE_LOOKAHEAD : ERASE_S;
    }
    // Those that are the same at all tokens.
    void set_head(const FamilyProblem& p, int64_t h) {
        const T neutral[COEFFICIENTS] = {1, 0, 1, 1, 0, 0};
        whole[ALPHA] = whole[BETA] = 0;
        for (int name = 0; name < COEFFICIENTS; name++) {
            T value = neutral[name];
            if (const double* heads = p.coefficients[name].heads) {
                double exact = heads[p.coefficient_heads == 1 ? 0 : h];
                if (name <= BETA && exact > 0.5) whole[name] = 1, exact -= 1;
                value = T(exact);
            }
            for (int64_t t = 0; t <= BLOCK; t++) at[name][t] = value;
        }
        split = whole[ALPHA] != 0 || whole[BETA] != 0;
    }
    // Those of tokens `begin` …
    void set_tokens(const FamilyProblem& p, const Sequence<T>& x, int64_t begin, int64_t count) {
        for (int name = 0; name < COEFFICIENTS; name++) {
            const T* tokens = static_cast<const T*>(p.coefficients[name].tokens);
            if (!tokens || (name == ALPHA && p.channels)) continue;
            tokens += x.index() * p.n;
            for (int64_t t = 0; t < count; t++) at[name][t] = tokens[x.q.index ? x.q.index[begin + t] : begin + t];
        }
    }
};

template <class T> struct FamilyBlock {  // a block of packed tokens; rows of q, k, p and α have `ld` elements
    int64_t count, ld;
    const T *q, *k;
    const T* p;            // of the token after the block, too
    const T* alpha;        // one for each channel, or null
    const T* v;            // rows as wide as the tile, as those of y
    T* y;                  // or null
    T* predictions;        // what the state before each token predicted, or null
    const uint8_t* reset;  // of each token
    const BlockCoefficients<T>& c;
};

// `prediction` is that of the first token, and then that of the token after the block.
template <class T, int N, AlphaKind alpha, bool Split, bool Momentum, EraseKind erase>
__attribute__((noinline)) void scan_columns(T* s, T* m, T* prediction, int64_t rows, const FamilyBlock<T>& x) {
    constexpr int W = width<T>, R = N >= 4 ? 1 : 4 / N;  // rows at a time: sums of their own hide latency
    constexpr int64_t LD = N * W;
    const int64_t count = x.count, ld = x.ld;
    const BlockCoefficients<T>& c = x.c;
    const T whole_alpha = c.whole[ALPHA], whole_beta = c.whole[BETA];
    Vec<T> predicted[N];
    for (int j = 0; j < N; j++) predicted[j] = load(prediction + j * W);
    for (int64_t t = 0; t < count; t++) {
        if (x.reset[t]) {
            memset(s, 0, rows * LD * sizeof(T));
            if (Momentum) memset(m, 0, rows * LD * sizeof(T));
            for (int j = 0; j < N; j++) predicted[j] = Vec<T>{};
        }
        Vec<T> u[N], y[R][N] = {}, next[R][N] = {};
        const T a = c.at[ALPHA][t], b = c.at[BETA][t], gamma = c.at[GAMMA][t], rho = c.at[LOOKAHEAD][t + 1];
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) {
            u[j] = load(x.v + t * LD + j * W);
            if (erase != ERASE_NOTHING) {
                if (x.predictions) store(x.predictions + t * LD + j * W, predicted[j]);
                u[j] -= c.at[DELTA][t] * predicted[j];
            }
            u[j] *= Momentum ? c.at[ETA][t] : c.at[ETA][t] * gamma;
        }
        const T *query = x.q + t * ld, *key = x.k + t * ld, *next_erase = x.p + (t + 1) * ld;
        const T* channels = alpha == ALPHA_CHANNELS ? x.alpha + t * ld : nullptr;
        for (int64_t i = 0; i < rows; i += R)
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) {
                T decay = alpha == ALPHA_CHANNELS ? channels[i + r] : a;
#pragma GCC unroll 4
                for (int j = 0; j < N; j++) {
                    const int64_t at = (i + r) * LD + j * W;
                    Vec<T> before = load(s + at), update, after;
                    if (Momentum) {
                        Vec<T> old = load(m + at);
                        update = key[i + r] * u[j] + b * old;
                        if (Split) update += whole_beta * old;
                        store(m + at, update);
                        after = gamma * update;
                    } else
                        after = key[i + r] * u[j];
                    after += alpha == ALPHA_ONE ? before : decay * before;
                    if (Split && alpha == ALPHA_SCALAR) after += whole_alpha * before;
                    store(s + at, after);
                    y[r][j] += query[i + r] * after;
                    if (erase == ERASE_LOOKAHEAD) after += rho * update;
                    if (erase != ERASE_NOTHING) next[r][j] += next_erase[i + r] * after;
                }
            }
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) {
            for (int r = 1; r < R; r++) y[0][j] += y[r][j], next[0][j] += next[r][j];
            if (x.y) store(x.y + t * LD + j * W, y[0][j]);
            predicted[j] = next[0][j];
        }
    }
    for (int j = 0; j < N; j++) store(prediction + j * W, predicted[j]);
}

// f(number) with the number as a constant type, for what a tile and a member are made of.
template <int X> using Constant = std::integral_constant<int, X>;
template <class F> inline void with_vectors(int64_t vectors, F f) {
    if (vectors == 1)
        f(Constant<1>{});
    else if (vectors == 2)
        f(Constant<2>{});
    else if constexpr (TILE_VECTORS == 4)
        f(Constant<4>{});
}

template <class T, int N, AlphaKind alpha, bool Split, bool Momentum>
inline void scan_erasing(T* s, T* m, T* prediction, int64_t rows, const FamilyBlock<T>& x) {
    if (x.c.erase == ERASE_NOTHING)
        scan_columns<T, N, alpha, Split, Momentum, ERASE_NOTHING>(s, m, prediction, rows, x);
    else if (Momentum && x.c.erase == ERASE_LOOKAHEAD)
        scan_columns<T, N, alpha, Split, Momentum, Momentum ? ERASE_LOOKAHEAD : ERASE_S>(s, m, prediction, rows, x);
    else
        scan_columns<T, N, alpha, Split, Momentum, ERASE_S>(s, m, prediction, rows, x);
}

// A block of tokens through a tile, by the code for this member.
template <class T>
void scan_tile_of_columns(const ColumnTile<T>& tile, T* s, T* m, T* prediction, const FamilyBlock<T>& x) {
    const BlockCoefficients<T>& c = x.c;
    with_vectors(tile.vectors, [&](auto vectors) {
        constexpr int N = decltype(vectors)::value;
        if (c.momentum) {
            if (c.alpha == ALPHA_CHANNELS)
                scan_erasing<T, N, ALPHA_CHANNELS, true, true>(s, m, prediction, tile.rows, x);
            else if (c.split)
                scan_erasing<T, N, ALPHA_SCALAR, true, true>(s, m, prediction, tile.rows, x);
            else
                scan_erasing<T, N, ALPHA_SCALAR, false, true>(s, m, prediction, tile.rows, x);
        } else if (c.alpha == ALPHA_CHANNELS)
            scan_erasing<T, N, ALPHA_CHANNELS, false, false>(s, m, prediction, tile.rows, x);
        else if (c.alpha == ALPHA_ONE)
            scan_erasing<T, N, ALPHA_ONE, false, false>(s, m, prediction, tile.rows, x);
        else if (c.split)
            scan_erasing<T, N, ALPHA_SCALAR, true, false>(s, m, prediction, tile.rows, x);
        else
            scan_erasing<T, N, ALPHA_SCALAR, false, false>(s, m, prediction, tile.rows, x);
    });
}

}  // namespace
