// The backward pass of members whose decays are scalars: chunk by chunk, as matrix products.
//
// The planes after each token of a chunk are weighted sums of the planes before the chunk and of the updates of its
// tokens; family_weights.h has the weights. The gradients of a chunk's inputs are then products of its rows with the
// planes s and m before it, with the gradients D of s and E of m after it, and with each other. Only the gradients of
// predictions depend on each other: one triangular system per chunk. Those of α, β, γ and ρ follow from those of the
// weights. A dot over a letter means its gradient.
#pragma once
#include "family_weights.h"

namespace {

template <class T> struct ChunkForm {
    FamilyRows<T>& x;
    int64_t d, e, dp, ep, ld;          // ld: of planes, which are dp × ep
    bool momentum, erases;
    bool shared;                       // p is k: only the sum k̇ + ṗ is needed
    T *QT, *KT, *PT, *UT, *GOT;        // features, u, and gradients of outputs and predictions, transposed
    T *keys_s, *keys_m, *GOs;          // keys times their weights in s and m after the chunk; G and O times theirs
    T *dQPT, *dKT;                     // gradients of queries and erasers, and of keys, transposed
    T *QK, *GU;                        // products of [Q, P] with K, and of [G, O] with U
    T *WK, *WU, *WUT;                  // the same weighted, and the last transposed
    T *dots_s, *dots_m, *dots_keys;    // q s g and p s o, q m g and p m o, k D u, k E u
    ChunkWeights<T> w;
    int64_t count = 0;

    static constexpr int64_t C = CHUNK;
    ChunkForm(FamilyRows<T>& x, Arena& arena)
        : x(x), d(x.size.d), e(x.size.e), dp(x.size.dp), ep(x.ep), ld(plane_ld<T>(ep)), momentum(x.size.planes == 2),
          erases(x.c.erase != ERASE_NOTHING), shared(erases && !x.p.erase.data), QT(arena.take<T>(C * dp)),
          KT(arena.take<T>(C * dp)), PT(x.p.erase.data ? arena.take<T>(C * dp) : KT), UT(arena.take<T>(C * ep)),
          GOT(arena.take<T>(2 * C * ep)), keys_s(arena.take<T>(C * dp)), keys_m(arena.take<T>(C * dp)),
          GOs(arena.take<T>(2 * C * ep)), dQPT(arena.take<T>(2 * C * dp)), dKT(arena.take<T>(C * dp)),
          QK(arena.take<T>(2 * C * C)), GU(arena.take<T>(2 * C * C)), WK(arena.take<T>(2 * C * C)),
          WU(arena.take<T>(2 * C * C)), WUT(arena.take<T>(2 * C * C)), dots_s(arena.take<T>(2 * C)),
          dots_m(arena.take<T>(2 * C)), dots_keys(arena.take<T>(2 * C)) {}

    // Computes the planes after the chunk from those before it.
    void advance(int64_t tokens, T* s_to, T* m_to, const T* s, const T* m) {
        count = tokens;
        w.set_after(x.c, count);
        scale_rows(keys_s, x.K, C, dp, w.s[count - 1], 1);
        if (momentum) scale_rows(keys_m, x.K, C, dp, w.m[count - 1], 1);
        const Decay<T> keep_s(w.s_after), keep_m(w.m_after);
        const T m_to_s = T(w.m_to_s_after);
        each_tile([&](auto& acc, int64_t r, int64_t at, int64_t i) INLINE {
            constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
            for_each_in_tile<N>([&](int a, int b) INLINE {
                acc[a][b] = keep_s(load(s + i + a * ld + b * width<T>));
                if (momentum) acc[a][b] += m_to_s * load(m + i + a * ld + b * width<T>);
            });
            multiply<T, N, true>(acc, keys_s + r, dp, x.U + at, ep, count);
            store_tile(acc, s_to + i, ld);
            if (!momentum) return;
            for_each_in_tile<N>([&](int a, int b) INLINE {
                acc[a][b] = keep_m(load(m + i + a * ld + b * width<T>));
            });
            multiply<T, N, true>(acc, keys_m + r, dp, x.U + at, ep, count);
            store_tile(acc, m_to + i, ld);
        });
    }
    // f(acc, row, column, offset) for all tiles of a plane.
    template <class F> FORCE_INLINE void each_tile(F f) const {
        for (int64_t r = 0; r < dp; r += TILE_ROWS) {
            x.prefetch.issue(x.share);
            for_each_tile<T>(0, ep, [&](auto& acc, int64_t at) INLINE { f(acc, r, at, r * ld + at); });
        }
    }

    // to = rows · transposed, for pairs of tokens (t, i) of which only i ≤ t count: t < TILE_ROWS ≤ i are zeros.
    void lower_product(T* to, const T* rows, int64_t ld_rows, const T* transposed, int64_t depth) const {
        square_product(to, C, rows, ld_rows, transposed, C, depth);
        for (int64_t t = 0; t < TILE_ROWS; t++) memset(to + t * C + TILE_ROWS, 0, (C - TILE_ROWS) * sizeof(T));
        product(to + TILE_ROWS * C, C, C - TILE_ROWS, C, rows + TILE_ROWS * ld_rows, ld_rows, transposed, C, depth);
    }
    void weigh(T* to, const T* from) const {
        for (int64_t i = 0; i < C * C; i += width<T>) {
            store(to + i, load(&w.s[0][0] + i) * load(from + i));
            if (erases) store(to + C * C + i, load(w.z[0] + i) * load(from + C * C + i));
        }
    }

    // Solves the triangular system, from the last token to the first: u̇, and the gradients O of predictions.
    void solve(const T* D, const T* E) {
        T factor[CHUNK] = {};
        for (int64_t t = 0; t < count; t++) factor[t] = -x.delta(t) * x.c.at[ETA][t];
        for_each_tile<T>(0, ep, [&](auto& acc, int64_t at) INLINE {
            constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
            for (int64_t half = C - TILE_ROWS; half >= 0; half -= TILE_ROWS) {
                const int64_t below = half + TILE_ROWS;
                const T *in_s = w.s[count - 1] + half, *in_m = w.m[count - 1] + half;
                Vec<T> of_m[TILE_ROWS][N] = {};
                if (momentum) multiply<T, N>(of_m, x.K + half * dp, dp, E + at, ld, d);
                for_each_in_tile<N>([&](int a, int b) INLINE { acc[a][b] = Vec<T>{}; });
                multiply<T, N>(acc, x.K + half * dp, dp, D + at, ld, d);
                for_each_in_tile<N>([&](int a, int b) INLINE {
                    acc[a][b] *= in_s[a];
                    if (momentum) acc[a][b] += in_m[a] * of_m[a][b];
                });
                multiply<T, N, true>(acc, WK + half * C + half, C, x.G + half * ep + at, ep, C - half);
                if (erases) {
                    multiply<T, N, true>(acc, WK + (C + below) * C + half, C, x.O + below * ep + at, ep, C - below);
#pragma GCC unroll 8
                    for (int t = TILE_ROWS - 1; t >= 0; t--) {
                        Vec<T> o[N];
#pragma GCC unroll 2
                        for (int j = 0; j < N; j++) {
                            o[j] = factor[half + t] * acc[t][j];
                            store(x.O + (half + t) * ep + at + j * width<T>, o[j]);
                        }
#pragma GCC unroll 8
                        for (int r = 0; r < t; r++)
#pragma GCC unroll 2
                            for (int j = 0; j < N; j++) acc[r][j] += WK[(C + half + t) * C + half + r] * o[j];
                    }
                }
                store_tile(acc, x.dV + half * ep + at, ep);
            }
        });
    }

    // acc = weight · (R B), where R are TILE_ROWS rows of a plane, and lanes are tokens; acc is zero before. To `dots`
    // is added, for each lane, the dot product of its column of R B with that of `transposed`, from lane C on of PT.
    template <int N>
    FORCE_INLINE void read_rows(Vec<T> (&acc)[TILE_ROWS][N], int64_t r, int64_t at, const T* plane, const T* B,
                                int64_t ldb, const T* transposed, T* dots, const T* weight) const {
        multiply<T, N>(acc, plane + r * ld, ld, B + at, ldb, e);
#pragma GCC unroll 2
        for (int j = 0; j < N; j++) {
            const int64_t lane = at + j * width<T>;
            const T* features = (lane < C ? transposed + lane : PT + lane - C) + r * C;
            const Vec<T> factor = load(weight + lane);
            Vec<T> dot = load(dots + lane);
#pragma GCC unroll 8
            for (int a = 0; a < TILE_ROWS; a++) {
                dot += load(features + a * C) * acc[a][j];
                acc[a][j] *= factor;
            }
            store(dots + lane, dot);
        }
    }
    template <int N, class... Rest>
    FORCE_INLINE void add_rows_of_m(Vec<T> (&acc)[TILE_ROWS][N], Rest... rest) const {
        Vec<T> product[TILE_ROWS][N] = {};
        read_rows<N>(product, rest...);
        for_each_in_tile<N>([&](int a, int b) INLINE { acc[a][b] += product[a][b]; });
    }
    // q̇ = s_t g and ṗ = (s_{t-1} + ρ m_{t-1}) o.
    void read_planes(const T* s, const T* m) {
        memset(dots_s, 0, 2 * C * sizeof(T));
        memset(dots_m, 0, 2 * C * sizeof(T));
        for (int64_t r = 0; r < dp; r += TILE_ROWS) {
            x.prefetch.issue(x.share);
            for_each_tile<T>(0, erases ? 2 * C : C, [&](auto& acc, int64_t at) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                if (s) read_rows<N>(acc, r, at, s, GOT, 2 * C, QT, dots_s, w.of_s);
                if (m) add_rows_of_m<N>(acc, r, at, m, GOT, 2 * C, QT, dots_m, w.of_m);
                multiply<T, N, true>(acc, x.K + r, dp, WUT + at, 2 * C, count);
                store_tile(acc, dQPT + r * 2 * C + at, 2 * C);
            });
        }
    }
    // k̇ = E_t u, or without momentum γ D_t u.
    void read_gradients(const T* D, const T* E) {
        memset(dots_keys, 0, 2 * C * sizeof(T));
        for (int64_t r = 0; r < dp; r += TILE_ROWS) {
            x.prefetch.issue(x.share);
            for_each_tile<T>(0, C, [&](auto& acc, int64_t at) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                read_rows<N>(acc, r, at, D, UT, C, KT, dots_keys, w.s[count - 1]);
                if (E) add_rows_of_m<N>(acc, r, at, E, UT, C, KT, dots_keys + C, w.m[count - 1]);
                multiply<T, N, true>(acc, x.Q + r, dp, WU + at, C, count);
                if (erases && !shared) multiply<T, N, true>(acc, x.P + r, dp, WU + C * C + at, C, count);
                if (shared)
                    for_each_in_tile<N>([&](int a, int b) INLINE {
                        acc[a][b] += load(dQPT + (r + a) * 2 * C + C + at + b * width<T>);
                    });
                store_tile(acc, dKT + r * C + at, C);
            });
        }
    }

    // Takes D and E from after the chunk to before it.
    void retreat(T* D, T* E, const T* total) {
        const Decay<T> keep_s(w.s_after), keep_m(w.m_after);
        const T s_to_m = T(w.m_to_s_after);
        if (momentum) {
            scale_rows(GOs, x.G, C, ep, w.of_m, 1);
            if (erases) scale_rows(GOs + C * ep, x.O, C, ep, w.of_m + C, 1);
            each_tile([&](auto& acc, int64_t r, int64_t at, int64_t i) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                for_each_in_tile<N>([&](int a, int b) INLINE {
                    const int64_t to = i + a * ld + b * width<T>;
                    acc[a][b] = keep_m(load(E + to)) + s_to_m * load(total + to);
                });
                add_rank<N>(acc, r, at);
                store_tile(acc, E + i, ld);
            });
        }
        scale_rows(GOs, x.G, C, ep, w.of_s, 1);
        if (erases && momentum) scale_rows(GOs + C * ep, x.O, C, ep, w.of_s + C, 1);
        each_tile([&](auto& acc, int64_t r, int64_t at, int64_t i) INLINE {
            constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
            for_each_in_tile<N>([&](int a, int b) INLINE { acc[a][b] = keep_s(load(D + i + a * ld + b * width<T>)); });
            add_rank<N>(acc, r, at);
            store_tile(acc, D + i, ld);
        });
    }
    template <int N> FORCE_INLINE void add_rank(Vec<T> (&acc)[TILE_ROWS][N], int64_t r, int64_t at) const {
        multiply<T, N, true>(acc, x.Q + r, dp, GOs + at, ep, count);
        if (erases) multiply<T, N, true>(acc, x.P + r, dp, GOs + C * ep + at, ep, count);
    }

    T dot(const T* a, const T* b) const { return dot_product(a, b, dp, ep, ld); }  // of planes
    // The gradients of α, β, γ and ρ, through the weights of updates (in lanes) and of the planes before the chunk.
    void learn_coefficients(const T* D, const T* E, const T* s, const T* m) {
        constexpr int W = width<T>, V = CHUNK / W;
        Vec<T> in_s[V], in_m[V], in_next[V] = {};  // of weights in s_t, in m_t, and in the prediction of token t + 1
        for (int j = 0; j < V; j++) in_s[j] = load(dots_keys + j * W), in_m[j] = load(dots_keys + C + j * W);
        T s_in_s = s ? dot(D, s) : 0, m_in_s = m ? dot(D, m) : 0, m_in_m = m ? dot(E, m) : 0;
        T alpha = 1, beta = 1, rho = 0, power = T(w.m_after), s_in_next = 0, m_in_next = 0;
        for (int64_t t = count - 1; t >= 0; t--) {
            const T gamma = x.c.at[GAMMA][t], power_before = w.m_in_m[t];
            Vec<T> of_alpha{}, of_beta{}, of_gamma{}, of_rho{};
            s_in_s = alpha * s_in_s + dots_s[t] + s_in_next;
            s_in_next = erases ? dots_s[C + t] : T(0);
            of_alpha[0] = s_in_s * w.of_s[C + t];
            if (momentum) {
                m_in_s = alpha * m_in_s + dots_m[t] + m_in_next;
                m_in_m = beta * m_in_m + rho * m_in_next + gamma * m_in_s;
                m_in_next = erases ? dots_m[C + t] : T(0);
                of_alpha[0] += t ? m_in_s * w.of_m[t - 1] : T(0);
                of_beta[0] = m_in_m * power_before;
                of_gamma[0] = m_in_s * power;
                of_rho[0] = m_in_next * power_before;
            }
            for (int j = 0; j < V; j++) {
                const int64_t at = t * C + j * W;
                const Vec<T> s_before = load(w.before[t] + j * W);
                const Vec<T> m_before = t ? load(w.m[t - 1] + j * W) : Vec<T>{};
                in_s[j] = alpha * in_s[j] + load(QK + at) * load(GU + at) + in_next[j];
                if (momentum) in_m[j] = beta * in_m[j] + rho * in_next[j] + gamma * in_s[j];
                if (erases) in_next[j] = load(QK + C * C + at) * load(GU + C * C + at);
                of_alpha += in_s[j] * s_before;
                of_beta += in_m[j] * m_before;
                of_gamma += in_s[j] * load(w.m[t] + j * W);
                of_rho += in_next[j] * m_before;
            }
            alpha = T(x.c.alpha[t]), beta = T(x.c.beta[t]), power = power_before;
            rho = x.c.erase == ERASE_LOOKAHEAD ? x.c.at[LOOKAHEAD][t] : T(0);
            store(x.part(ALPHA, t), of_alpha);
            store(x.part(GAMMA, t), of_gamma);
            if (!momentum) continue;
            store(x.part(BETA, t), of_beta);
            store(x.part(LOOKAHEAD, t), of_rho);
        }
    }

    // All gradients of the chunk. s and m are the planes before it. D and E go from after it to before it; `total` is
    // the whole gradient of s: D itself, or with blocked summation D and what `base` holds of it.
    void run(int64_t tokens, T* D, T* E, const T* total, const T* s, const T* m) {
        count = tokens;
        w.set(x.c, count);
        transpose(QT, C, x.Q, dp, C, dp);
        transpose(KT, C, x.K, dp, C, dp);
        if (PT != KT) transpose(PT, C, x.P, dp, C, dp);
        transpose(UT, C, x.U, ep, C, ep);
        lower_product(QK, x.Q, dp, KT, d);
        if (erases) lower_product(QK + C * C, x.P, dp, KT, d);
        weigh(WK, QK);
        solve(total, E);
        for (int64_t t = 0; t < count; t++) x.finish_token(t, 0, ep);
        if (erases && !momentum) scale_rows(GOs + C * ep, x.O, C, ep, w.of_s + C, 1);  // while they are in the cache
        transpose(GOT, 2 * C, x.G, ep, C, ep);
        lower_product(GU, x.G, ep, UT, e);
        if (erases) {
            transpose(GOT + C, 2 * C, x.O, ep, C, ep);
            lower_product(GU + C * C, x.O, ep, UT, e);
        }
        weigh(WU, GU);
        transpose(WUT, 2 * C, WU, C, erases ? 2 * C : C, C);
        for (int64_t t = 0; shared && t < C; t++) add_to(WUT + (2 * t + 1) * C, WU + (C + t) * C, C);
        if (x.begins) s = m = nullptr;
        read_planes(s, m);
        read_gradients(total, E);
        if (x.direct) {
            x.write_transposed(x.to_q, dQPT, 2 * C);
            x.write_transposed(x.to_k, dKT, C);
            if (x.p.d_erase.data) x.write_transposed(x.to_p, dQPT + C, 2 * C);
        } else {
            transpose(x.dQ, dp, dQPT, 2 * C, dp, C);
            if (erases) transpose(x.dP, dp, dQPT + C, 2 * C, dp, C);
            transpose(x.dK, dp, dKT, C, dp, C);
        }
        learn_coefficients(total, E, s, m);
        retreat(D, E, total);
    }
};

}  // namespace
