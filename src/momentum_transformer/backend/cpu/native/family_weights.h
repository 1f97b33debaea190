// The weights of a chunk of tokens whose decays are scalars: how much of the planes before the chunk, and of each
// token's update, is in the planes after each token.
//
//   s_t = a_t s + b_t m + Σ s(t, i) k_i u_iᵀ;  m_t = c_t m + Σ m(t, i) k_i u_iᵀ,  over tokens i ≤ t
//   s_{t-1} + ρ_t m_{t-1}, from which predictions are read: the same with weights z(t, i), over tokens i < t
//
// They are sums of products of coefficients, computed without division, because decays may be zero.
#pragma once
#include "family_rows.h"

namespace {

template <class T> struct ChunkWeights {
    using Row = T[CHUNK];                   // columns: tokens i
    Row before[CHUNK + 1] = {};             // row t: weights in s_{t-1}; the first is zero
    Row* s = before + 1;                    // rows: tokens t
    Row m[CHUNK] = {}, ahead[CHUNK];        // ahead: z, where there is lookahead
    const Row* z = before;
    T of_s[2 * CHUNK], of_m[2 * CHUNK];     // of s and m before the chunk in s_t; second half: in predictions
    T m_in_m[CHUNK];                        // of m before the chunk in m_{t-1}
    double s_after, m_to_s_after, m_after;  // of the planes before the chunk in those after it

    void set(const BlockCoefficients<T>& c, int64_t count) {
        constexpr int W = width<double>;
        Vec<double> in_s[CHUNK / W] = {}, in_m[CHUNK / W] = {};  // the current row of s and of m, in registers
        double s_in_s = 1, m_in_s = 0, power = 1;
        const bool lookahead = c.erase == ERASE_LOOKAHEAD;
        z = lookahead ? ahead : before;
        for (int64_t t = count; t < CHUNK; t++) {
            for (T* row : {s[t], m[t], ahead[t]}) memset(row, 0, sizeof(Row));
            of_s[t] = of_s[CHUNK + t] = of_m[t] = of_m[CHUNK + t] = 0;
        }
        for (int64_t t = 0; t < count; t++) {
            const double alpha = c.alpha[t], gamma = c.at[GAMMA][t];
            m_in_m[t] = T(power), of_s[CHUNK + t] = T(s_in_s);
            s_in_s *= alpha;
            if (c.momentum) {
                const double beta = c.beta[t], rho = lookahead ? c.at[LOOKAHEAD][t] : 0;
                of_m[CHUNK + t] = T(m_in_s + rho * power);
                power *= beta, m_in_s = alpha * m_in_s + gamma * power;
#pragma GCC unroll 8
                for (int j = 0; j < CHUNK / W; j++) {
                    if (lookahead) round(ahead[t] + j * W, in_s[j] + rho * in_m[j]);
                    in_m[j] = at_token(t - j * W) ? splat(1.0) : beta * in_m[j];
                    round(m[t] + j * W, in_m[j]);
                    in_s[j] = alpha * in_s[j] + gamma * in_m[j];
                    round(s[t] + j * W, in_s[j]);
                }
            } else
#pragma GCC unroll 8
                for (int j = 0; j < CHUNK / W; j++) {
                    in_s[j] = at_token(t - j * W) ? splat(gamma) : alpha * in_s[j];
                    round(s[t] + j * W, in_s[j]);
                }
            if (!c.momentum) m[t][t] = 1;
            of_s[t] = T(s_in_s), of_m[t] = T(m_in_s);
        }
        s_after = s_in_s, m_to_s_after = m_in_s, m_after = power;
    }
    static FORCE_INLINE Mask<double> at_token(int64_t lane) { return iota<double>() == (Mask<double>{} + lane); }
    static FORCE_INLINE void round(T* to, Vec<double> x) {
        const auto rounded = __builtin_convertvector(x, typename VectorOf<T, width<double>>::V);
        __builtin_memcpy(to, &rounded, sizeof rounded);
    }
    // Only the weights in the planes after the chunk, from the last token to the first.
    void set_after(const BlockCoefficients<T>& c, int64_t count) {
        double s_in_s = 1, m_in_s = 0, power = 1;
        T *of_s = s[count - 1], *of_m = m[count - 1];
        memset(of_s, 0, sizeof(Row));
        if (c.momentum) memset(of_m, 0, sizeof(Row));
        for (int64_t t = count - 1; t >= 0; t--) {
            const double gamma = c.at[GAMMA][t], written = gamma * s_in_s + m_in_s;
            of_s[t] = T(written);
            s_in_s *= c.alpha[t];
            if (!c.momentum) continue;
            of_m[t] = T(power);
            m_in_s = c.beta[t] * written;
            power *= c.beta[t];
        }
        s_after = s_in_s, m_to_s_after = m_in_s, m_after = power;
    }
};

}  // namespace
