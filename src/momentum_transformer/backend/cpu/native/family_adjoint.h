// The recurrence of the family from the last token to the first, on a tile of the transposed state.
//
// With D the gradient of s, E that of m, and a dot for the gradient of anything else, token t does
//
//   D ← D + q gᵀ;  E ← E + γD;  u̇ = Eᵀk;  k̇ = E u;  q̇ = s_t g;  γ̇ = ⟨D, m_t⟩
//   ȯ = -δη u̇, the gradient of its prediction;  ṗ = (s_{t-1} + ρ m_{t-1}) ȯ
//   α̇ = ⟨D, s_{t-1}⟩;  β̇ = ⟨E, m_{t-1}⟩;  D ← αD + p ȯᵀ;  E ← βE + ρ p ȯᵀ
//
// The second half needs u̇ and so all rows of the first. It is done when the next token, t - 1, goes through the tile:
// a token takes one pass. A tile holds columns of the state as rows, so that vectors run over the features of keys:
// q̇, k̇, ṗ and α̇ are sums of vectors, and only u̇ takes horizontal sums.
#pragma once
#include "family_scan.h"

namespace {

template <class T> struct AdjointToken {  // the first half of token t, and the second half of token t + 1
    const T *q, *k, *p;                   // features, p those of token t + 1
    T *dq, *dk, *dp, *dp_m;               // sums: s g, E u, s ȯ, m ȯ
    T* d_alpha;                           // sums of D · s, one for each feature
    const T* u;                           // one for each row of the tile
    T g[64], prediction[64];              // g and ȯ, divided by the scale of D
    const T* multiplier;                  // what D is multiplied by, one for each feature
    T beta;                               // what E is multiplied by
    T s_to_m, p_to_m;                     // γ and ρ, in the scales of D and E
    const T* base;                        // what D had before the segment, for blocked summation; or null
    T du[64];                             // Eᵀk
    Vec<T> d_beta, d_gamma;               // ⟨E, m⟩ before and ⟨D, m⟩ after D has changed, a part in each lane
};
constexpr int64_t MOST_ROWS = 64;  // of a tile

// `rows` columns of the state, each `dp` features. Multiply: decays are not in the scales of D and E. Learn: the decays
// get gradients. Base: D is the sum of `base` and of the plane at hand.
template <class T, bool Momentum, EraseKind erase, bool Multiply, bool Learn, bool Base = false>
__attribute__((noinline)) void adjoint_token(T* D, T* E, const T* s, const T* m, int64_t rows, int64_t dp,
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
                if (erase != ERASE_NOTHING) o[r] = splat(x.prediction[j + r0 + r]);
            }
            for (int64_t at = 0; at < dp; at += W) {
                const Vec<T> query = load(x.q + at), key = load(x.k + at);
                Vec<T> dq = load(x.dq + at), dk = load(x.dk + at), eraser{}, d_erase{}, d_erase_m{}, d_alpha{};
                if (erase != ERASE_NOTHING) eraser = load(x.p + at), d_erase = load(x.dp + at);
                if (erase == ERASE_LOOKAHEAD) d_erase_m = load(x.dp_m + at);
                if (Learn) d_alpha = load(x.d_alpha + at);
#pragma GCC unroll 4
                for (int r = 0; r < R; r++) {
                    const int64_t i = (j + r0 + r) * dp + at;
                    const Vec<T> state = load(s + i);
                    Vec<T> grad = load(D + i), momentum{};
                    if (Learn) d_alpha += grad * state;
                    if (Multiply) grad *= load(x.multiplier + at);
                    if (erase != ERASE_NOTHING) grad += eraser * o[r];
                    grad += query * g[r];
                    store(D + i, grad);
                    if (Base) grad += load(x.base + i);
                    if (Momentum) {
                        momentum = load(m + i);
                        Vec<T> of_m = load(E + i);
                        if (Learn) beta_sum += of_m * momentum, gamma_sum += grad * momentum;
                        if (Multiply) of_m *= x.beta;
                        if (erase == ERASE_LOOKAHEAD) of_m += (x.p_to_m * eraser) * o[r];
                        grad = of_m + x.s_to_m * grad;
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
                if (erase != ERASE_NOTHING) store(x.dp + at, d_erase);
                if (erase == ERASE_LOOKAHEAD) store(x.dp_m + at, d_erase_m);
                if (Learn) store(x.d_alpha + at, d_alpha);
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

template <class T, bool Momentum, EraseKind erase, bool Multiply>
inline void adjoint_learning(T* D, T* E, const T* s, const T* m, int64_t rows, int64_t dp, AdjointToken<T>& x,
                             bool learn) {
    constexpr bool summed = erase == ERASE_NOTHING && (Momentum || !Multiply);  // s neither decays nor is erased
    if (summed && x.base)
        adjoint_token<T, Momentum, erase, Multiply, Momentum, summed>(D, E, s, m, rows, dp, x);
    else if (learn)
        adjoint_token<T, Momentum, erase, Multiply, true>(D, E, s, m, rows, dp, x);
    else
        adjoint_token<T, Momentum, erase, Multiply, false>(D, E, s, m, rows, dp, x);
}
template <class T, bool Momentum, EraseKind erase>
inline void adjoint_multiplying(T* D, T* E, const T* s, const T* m, int64_t rows, int64_t dp, AdjointToken<T>& x,
                                bool learn) {
    if (x.multiplier)
        adjoint_learning<T, Momentum, erase, true>(D, E, s, m, rows, dp, x, learn);
    else
        adjoint_learning<T, Momentum, erase, false>(D, E, s, m, rows, dp, x, learn);
}
// A token through a tile, by the code for this member.
template <class T>
inline void adjoint_member(T* D, T* E, const T* s, const T* m, int64_t rows, int64_t dp, AdjointToken<T>& x,
                           EraseKind erase, bool learn) {
    if (!E && erase == ERASE_NOTHING)
        adjoint_multiplying<T, false, ERASE_NOTHING>(D, E, s, m, rows, dp, x, learn);
    else if (!E)
        adjoint_multiplying<T, false, ERASE_S>(D, E, s, m, rows, dp, x, learn);
    else if (erase == ERASE_NOTHING)
        adjoint_multiplying<T, true, ERASE_NOTHING>(D, E, s, m, rows, dp, x, learn);
    else if (erase == ERASE_S)
        adjoint_multiplying<T, true, ERASE_S>(D, E, s, m, rows, dp, x, learn);
    else
        adjoint_multiplying<T, true, ERASE_LOOKAHEAD>(D, E, s, m, rows, dp, x, learn);
}

// A block of tokens whose u are known: from the state before them to those after each of them, s divided by s_scale and
// m by m_scale. As in the forward pass, decays go into these scales.
template <class T> struct Recompute {
    const T *K, *U, *A;              // rows of features, of u, and of α for each feature, or null
    int64_t dp, ep, count;           // widths of these rows; tokens
    const uint8_t* reset;            // nothing before such a token exists
    int64_t slot;                    // elements from one kept state to the next; 0: only the last one is wanted
    double s_scale[BLOCK], m_scale[BLOCK];
    Decay<T> fade_s[BLOCK], fade_m[BLOCK];  // where a scale would become too small, it is multiplied in
    bool fades[BLOCK];
    T key[BLOCK], m_to_s[BLOCK];     // factors of a key, and of m in s, in these scales

    Recompute(const T* K, const T* U, const T* A, int64_t dp, int64_t ep, int64_t count,
              const BlockCoefficients<T>& c, const uint8_t* reset, int64_t slot)
        : K(K), U(U), A(A), dp(dp), ep(ep), count(count), reset(reset), slot(slot) {
        constexpr double LEAST = ScaledPlane<T>::LEAST;
        double s = 1, m = 1;
        for (int64_t t = 0; t < count; t++) {
            if (reset[t]) s = m = 1;
            double alpha = A || reset[t] ? 1 : c.alpha[t], beta = reset[t] || !c.momentum ? 1 : c.beta[t];
            fades[t] = s * alpha < LEAST || m * beta < LEAST;
            if (fades[t]) {
                fade_s[t] = Decay<T>(s * alpha), fade_m[t] = Decay<T>(m * beta);
                s = m = 1;
            } else
                s *= alpha, m *= beta;
            s_scale[t] = s, m_scale[t] = m;
            key[t] = T(c.momentum ? 1 / m : c.at[GAMMA][t] / s);
            m_to_s[t] = T(c.at[GAMMA][t] * m / s);
        }
    }

    // R rows and one vector of features, in registers while the tokens go by. States are kept, or the last one written.
    template <bool Channels, bool Momentum, bool Keep, int R>
    void registers(const T* s, const T* m, T* s_to, T* m_to, int64_t at, const T* u) const {
        Vec<T> state[R], momentum[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            state[r] = load(s + r * dp);
            if (Momentum) momentum[r] = load(m + r * dp);
        }
        for (int64_t t = 0; t < count; t++, u += ep) {
            const Vec<T> scaled_key = key[t] * load(K + t * dp + at);
            const T factor = m_to_s[t];
            Vec<T> channel{};
            if (Channels) channel = load(A + t * dp + at);
            if (reset[t] || fades[t])
                for (int r = 0; r < R; r++) {
                    state[r] = reset[t] ? Vec<T>{} : fade_s[t](state[r]);
                    if (Momentum) momentum[r] = reset[t] ? Vec<T>{} : fade_m[t](momentum[r]);
                }
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                if (Channels) state[r] *= channel;
                if (Momentum) {
                    momentum[r] += u[r] * scaled_key;
                    state[r] += factor * momentum[r];
                } else
                    state[r] += u[r] * scaled_key;
                if (Keep) {
                    store(s_to + t * slot + r * dp, state[r]);
                    if (Momentum) store(m_to + t * slot + r * dp, momentum[r]);
                }
            }
        }
        if (Keep) return;
        const Decay<T> last_s(s_scale[count - 1]), last_m(m_scale[count - 1]);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            store(s_to + r * dp, last_s(state[r]));
            if (Momentum) store(m_to + r * dp, last_m(momentum[r]));
        }
    }
    template <bool Channels, bool Momentum, bool Keep>
    __attribute__((noinline)) void tile(const T* s, const T* m, T* s_to, T* m_to, int64_t first, int64_t rows) const {
        constexpr int R = Momentum ? REGISTER_ROWS / 2 : REGISTER_ROWS;
        for (int64_t j = 0; j < rows; j += R)
            for (int64_t at = 0; at < dp; at += width<T>) {
                int64_t i = j * dp + at;
                registers<Channels, Momentum, Keep, R>(s + i, m + i, s_to + i, m_to + i, at, U + first + j);
            }
    }
    template <bool Channels, bool Momentum>
    void keeping(const T* s, const T* m, T* s_to, T* m_to, int64_t first, int64_t rows) const {
        if (slot)
            tile<Channels, Momentum, true>(s, m, s_to, m_to, first, rows);
        else
            tile<Channels, Momentum, false>(s, m, s_to, m_to, first, rows);
    }
    // Columns `first` … of the state.
    void operator()(const T* s, const T* m, T* s_to, T* m_to, int64_t first, int64_t rows) const {
        if (A && m)
            keeping<true, true>(s, m, s_to, m_to, first, rows);
        else if (A)
            keeping<true, false>(s, m, s_to, m_to, first, rows);
        else if (m)
            keeping<false, true>(s, m, s_to, m_to, first, rows);
        else
            keeping<false, false>(s, m, s_to, m_to, first, rows);
    }
};

}  // namespace
