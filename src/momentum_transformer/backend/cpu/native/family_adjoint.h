// The backward pass of members whose α has a number for each channel: token by token, from the last to the first, on a
// tile of the transposed state.
//
// With D the gradient of s, E that of m, and a dot for the gradient of anything else, token t does
//
//   D ← D + q gᵀ;  E ← E + γD;  u̇ = Eᵀk;  k̇ = E u;  q̇ = s_t g;  γ̇ = ⟨D, m_t⟩
//   ȯ = -δη u̇, the gradient of its prediction;  ṗ = (s_{t-1} + ρ m_{t-1}) ȯ
//   α̇ = D s_{t-1}, channel by channel;  β̇ = ⟨E, m_{t-1}⟩;  D ← αD + p ȯᵀ;  E ← βE + ρ p ȯᵀ
//
// The second half, from ȯ on, needs u̇, which is complete only after all rows of the first half. It is done in the
// same pass over the tile as the first half of the next token, t - 1: one pass per token. A tile holds columns of the
// state as rows, so that vectors run over the features of keys: q̇, k̇, ṗ and α̇ are sums of vectors, and only u̇
// takes horizontal sums.
#pragma once
#include "family_rows.h"

namespace {

template <class T> struct AdjointToken {  // the first half of token t, and the second half of token t + 1
    const T *q, *k, *p, *alpha;           // features and decays, p and α those of token t + 1
    T *dq, *dk, *dp, *dp_m, *d_alpha;     // sums: s g, E u, s ȯ, m ȯ, D · s
    const T *u, *g, *o;                   // one for each row of the tile, o that of token t + 1
    T* du;
    T beta, gamma, rho;                   // β and ρ those of token t + 1
    Vec<T> d_beta, d_gamma;               // partial sums, one in each lane
};

// `rows` columns of the state, each `dp` features. HasBase: the gradient of s is D and what `base` holds of it.
template <class T, bool Momentum, EraseKind erase, bool HasBase = false>
__attribute__((noinline)) void adjoint_token(T* D, T* base, T* E, const T* s, const T* m, int64_t rows, int64_t dp,
                                             AdjointToken<T>& x) {
    constexpr int W = width<T>, R = VECTOR_BYTES == 64 ? 4 : 2;
    Vec<T> beta_sum{}, gamma_sum{};
    for (int64_t j = 0; j < rows; j += TILE_ROWS) {
        Vec<T> du[TILE_ROWS];
#pragma GCC unroll 1
        for (int r0 = 0; r0 < TILE_ROWS; r0 += R) {
            Vec<T> g[R], o[R], u[R], product[R] = {};
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) {
                g[r] = splat(x.g[j + r0 + r]), u[r] = splat(x.u[j + r0 + r]);
                if (erase != ERASE_NOTHING) o[r] = splat(x.o[j + r0 + r]);
            }
            for (int64_t at = 0; at < dp; at += W) {
                const Vec<T> query = load(x.q + at), key = load(x.k + at), alpha = load(x.alpha + at);
                Vec<T> dq = load(x.dq + at), dk = load(x.dk + at), d_alpha = load(x.d_alpha + at);
                Vec<T> eraser{}, d_erase{}, d_erase_m{};
                if (erase != ERASE_NOTHING) eraser = load(x.p + at), d_erase = load(x.dp + at);
                if (erase == ERASE_LOOKAHEAD) d_erase_m = load(x.dp_m + at);
#pragma GCC unroll 4
                for (int r = 0; r < R; r++) {
                    const int64_t i = (j + r0 + r) * dp + at;
                    const Vec<T> state = load(s + i);
                    Vec<T> grad = load(D + i), momentum{}, before{};
                    if (HasBase) before = load(base + i);
                    d_alpha += (HasBase ? grad + before : grad) * state;
                    grad *= alpha;
                    if (erase != ERASE_NOTHING) grad += eraser * o[r];
                    grad += query * g[r];
                    store(D + i, grad);
                    if (HasBase) {
                        before *= alpha;
                        store(base + i, before);
                        grad += before;
                    }
                    if (Momentum) {
                        momentum = load(m + i);
                        Vec<T> of_m = load(E + i);
                        beta_sum += of_m * momentum, gamma_sum += grad * momentum;
                        of_m *= x.beta;
                        if (erase == ERASE_LOOKAHEAD) of_m += (x.rho * eraser) * o[r];
                        grad = of_m + x.gamma * grad;
                        store(E + i, grad);
                    }
                    product[r] += key * grad;
                    dk += u[r] * grad;
                    dq += g[r] * state;
                    if (erase != ERASE_NOTHING) d_erase += o[r] * state;
                    if (erase == ERASE_LOOKAHEAD) d_erase_m += o[r] * momentum;
                }
                store(x.dq + at, dq);
                store(x.dk + at, dk);
                store(x.d_alpha + at, d_alpha);
                if (erase != ERASE_NOTHING) store(x.dp + at, d_erase);
                if (erase == ERASE_LOOKAHEAD) store(x.dp_m + at, d_erase_m);
            }
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) du[r0 + r] = product[r];
        }
        T sums[TILE_ROWS];
        sum_rows<T>(sums, reinterpret_cast<const Vec<T>(&)[TILE_ROWS]>(du));
        memcpy(x.du + j, sums, sizeof sums);
    }
    x.d_beta = beta_sum;
    x.d_gamma = gamma_sum;
}
// Runs a token through a tile, with the instance of the template for this member.
template <class T>
inline void adjoint_member(T* D, T* base, T* E, const T* s, const T* m, int64_t rows, int64_t dp, AdjointToken<T>& x,
                           EraseKind erase) {
    if (base)  // sums are blocked only where nothing is erased
        E ? adjoint_token<T, true, ERASE_NOTHING, true>(D, base, E, s, m, rows, dp, x)
          : adjoint_token<T, false, ERASE_NOTHING, true>(D, base, E, s, m, rows, dp, x);
    else if (!E && erase == ERASE_NOTHING)
        adjoint_token<T, false, ERASE_NOTHING>(D, base, E, s, m, rows, dp, x);
    else if (!E)
        adjoint_token<T, false, ERASE_S>(D, base, E, s, m, rows, dp, x);
    else if (erase == ERASE_NOTHING)
        adjoint_token<T, true, ERASE_NOTHING>(D, base, E, s, m, rows, dp, x);
    else if (erase == ERASE_S)
        adjoint_token<T, true, ERASE_S>(D, base, E, s, m, rows, dp, x);
    else
        adjoint_token<T, true, ERASE_LOOKAHEAD>(D, base, E, s, m, rows, dp, x);
}

template <class T> struct TokenForm {
    FamilyRows<T>& x;
    int64_t dp, ep, most_rows;  // the last: of a tile
    T *slots, *dPM;             // the planes of a tile after each token; sums m ȯ
    AdjointToken<T> token;
    int64_t count = 0;

    TokenForm(FamilyRows<T>& x, Arena& arena)
        : x(x), dp(x.size.dp), ep(x.ep), most_rows(tile_rows(dp, ep)),
          slots(arena.take<T>(x.p.channels ? x.most * slot_size() : 0)), dPM(x.features(arena)) {}
    // Tiles of 2,048 elements: D, E and the states of a token fit into the L1 cache together.
    static int64_t tile_rows(int64_t dp, int64_t ep) {
        constexpr int64_t UNIT = Sizes<T>::ALIGNMENT;
        int64_t fit = round_down(2048 / dp, UNIT);
        return min(fit < UNIT ? UNIT : fit, ep);
    }
    // Padded, so that the same element of different slots does not map to the same set of a cache.
    int64_t slot_size() const { return x.size.planes * most_rows * dp + 64; }
    T* slot(int64_t t, int l) const { return slots + t * slot_size() + l * most_rows * dp; }

    // The states after each token: tiles of R rows and one vector of features stay in registers for all tokens. `slot`:
    // elements from one saved state to the next; 0: only the last state is saved.
    template <bool Momentum>
    __attribute__((noinline)) void states(T* s_to, T* m_to, const T* s, const T* m, int64_t first, int64_t rows,
                                          int64_t slot) const {
        constexpr int R = Momentum ? REGISTER_ROWS / 2 : REGISTER_ROWS;
        for (int64_t j = 0; j < rows; j += R)
            for (int64_t at = 0; at < dp; at += width<T>) {
                Vec<T> state[R], momentum[R];
#pragma GCC unroll 8
                for (int r = 0; r < R; r++) {
                    state[r] = load(s + (j + r) * dp + at);
                    if (Momentum) momentum[r] = load(m + (j + r) * dp + at);
                }
                for (int64_t t = 0; t < count; t++) {
                    const Vec<T> key = load(x.K + t * dp + at), alpha = load(x.A + t * dp + at);
                    const T gamma = x.c.at[GAMMA][t], beta = T(x.c.beta[t]), *u = x.U + t * ep + first + j;
#pragma GCC unroll 8
                    for (int r = 0; r < R; r++) {
                        const Vec<T> update = Momentum ? momentum[r] = beta * momentum[r] + u[r] * key : u[r] * key;
                        state[r] = alpha * state[r] + gamma * update;
                        const int64_t i = t * slot + (j + r) * dp + at;
                        if (!slot && t + 1 < count) continue;
                        store(s_to + i, state[r]);
                        if (Momentum) store(m_to + i, momentum[r]);
                    }
                }
            }
    }
    // Computes the planes after the chunk from those before it.
    void advance(int64_t tokens, T* s_to, T* m_to, const T* s, const T* m) {
        count = tokens;
        m ? states<true>(s_to, m_to, s, m, 0, ep, 0) : states<false>(s_to, m_to, s, m, 0, ep, 0);
    }

    void set_token(int64_t t, int64_t first) {
        token.q = x.Q + t * dp, token.k = x.K + t * dp, token.p = x.P + (t + 1) * dp, token.alpha = x.A + (t + 1) * dp;
        token.dq = x.dQ + t * dp, token.dk = x.dK + t * dp, token.dp = x.dP + (t + 1) * dp;
        token.dp_m = dPM + (t + 1) * dp, token.d_alpha = x.dA + (t + 1) * dp;
        token.u = x.U + t * ep + first, token.g = x.G + t * ep + first, token.o = x.O + (t + 1) * ep + first;
        bool last = t + 1 == count;
        token.gamma = t < 0 ? T(0) : x.c.at[GAMMA][t];
        token.beta = last ? T(1) : T(x.c.beta[t + 1]), token.rho = last ? T(0) : x.c.at[LOOKAHEAD][t + 1];
        token.du = x.dV + t * ep + first;
    }
    void tile(T* D, T* base, T* E, const T* s, const T* m, int64_t first, int64_t rows) {
        E ? states<true>(slot(0, 0), slot(0, 1), s, m, first, rows, slot_size())
          : states<false>(slot(0, 0), slot(0, 1), s, m, first, rows, slot_size());
        for (int64_t t = count - 1; t >= -1; t--) {
            x.prefetch.issue(x.share);
            set_token(t, first);
            adjoint_member(D, base, E, t < 0 ? s : slot(t, 0), t < 0 ? m : slot(t, 1), rows, dp, token, x.c.erase);
            if (E && t + 1 < count) x.add(BETA, t + 1, token.d_beta);
            if (t < 0) return;
            if (E)
                x.add(GAMMA, t, token.d_gamma);
            else
                read_u(t, first, rows);
            x.finish_token(t, first, rows);
        }
    }
    // Without momentum s takes γ k uᵀ: the gradients of γ and of u.
    void read_u(int64_t t, int64_t first, int64_t rows) {
        Vec<T> of_gamma{};
        for (int64_t at = t * ep + first; at < t * ep + first + rows; at += width<T>) {
            of_gamma += load(x.U + at) * load(x.dV + at);
            store(x.dV + at, x.c.at[GAMMA][t] * load(x.dV + at));
        }
        x.add(GAMMA, t, of_gamma);
    }
    // All gradients of the chunk; the arguments are those of ChunkForm, but with blocked summation `base` has what is
    // not in D, and goes from after the chunk to before it, too.
    void run(int64_t tokens, T* D, T* E, T* base, const T* s, const T* m) {
        count = tokens;
        for (T* row : {x.packed_q - dp, x.packed_k - dp}) x.clear(row, dp);
        for (T* row : {x.U - ep, x.packed_g - ep, x.O + count * ep}) x.clear(row, ep);
        for (T* sums : {x.dQ - dp, x.dK - dp, x.dP, dPM, x.dA}) x.clear(sums, (count + 1) * dp);
        for (int64_t at = 0; at < dp; at += width<T>) store(x.A + count * dp + at, splat(T(1)));
        for (int64_t first = 0; first < ep; first += most_rows) {
            const int64_t at = first * dp, rows = min(most_rows, ep - first);
            auto from = [&](auto* plane) { return plane ? plane + at : nullptr; };
            tile(D + at, base == D ? nullptr : base + at, from(E), s + at, from(m), first, rows);
        }
        for (int64_t t = 0; t < count; t++)
            for (int64_t at = t * dp; at < (t + 1) * dp; at += width<T>) {
                if (!E) store(x.dK + at, x.c.at[GAMMA][t] * load(x.dK + at));
                if (x.c.erase == ERASE_LOOKAHEAD) {
                    x.add(LOOKAHEAD, t, load(x.P + at) * load(dPM + at));
                    store(x.dP + at, load(x.dP + at) + x.c.at[LOOKAHEAD][t] * load(dPM + at));
                }
                if (x.c.erase != ERASE_NOTHING && !x.p.erase.data)  // p is k
                    store(x.dK + at, load(x.dK + at) + load(x.dP + at));
            }
    }
};

}  // namespace
