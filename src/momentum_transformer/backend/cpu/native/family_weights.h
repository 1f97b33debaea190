// The weights of a chunk of tokens whose decays are scalars: what its planes are sums of.
//
//   s_t = a_t s + b_t m + Σ s(t, i) k_i u_iᵀ;  m_t = c_t m + Σ m(t, i) k_i u_iᵀ,  over tokens i ≤ t
//   s_{t-1} + ρ_t m_{t-1}, which predicts, alike by z(t, i), over tokens i < t
//
// They are products and sums of coefficients, made without division: decays may be zero.
#pragma once
#include "family_rows.h"

namespace {

template <class T> struct ChunkWeights {
    using Row = T[CHUNK];                   // columns: tokens i
    Row before[CHUNK + 1] = {};             // those of s_{t-1}: none before the first token
    Row* s = before + 1;                    // rows: tokens t
    Row m[CHUNK] = {}, ahead[CHUNK];        // the latter: z, where it is not that of s_{t-1}
    const Row* z = before;
    T of_s[2 * CHUNK], of_m[2 * CHUNK];     // of the planes before the chunk in s_t, and behind these in predictions
    T m_in_m[CHUNK];                        // of m before the chunk in m_{t-1}
    double s_after, m_to_s_after, m_after;  // of the planes before the chunk in those after it

    void set(const BlockCoefficients<T>& c, int64_t count) {
        double in_s[CHUNK] = {}, in_m[CHUNK] = {}, s_in_s = 1, m_in_s = 0, power = 1;
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
                for (int i = 0; i < CHUNK; i++) {
                    if (lookahead) ahead[t][i] = T(in_s[i] + rho * in_m[i]);
                    in_m[i] = i == t ? 1 : beta * in_m[i];
                    m[t][i] = T(in_m[i]);
                    in_s[i] = alpha * in_s[i] + gamma * in_m[i];
                    s[t][i] = T(in_s[i]);
                }
            } else
                for (int i = 0; i < CHUNK; i++) {
                    in_s[i] = i == t ? gamma : alpha * in_s[i];
                    s[t][i] = T(in_s[i]);
                }
            if (!c.momentum) m[t][t] = 1;
            of_s[t] = T(s_in_s), of_m[t] = T(m_in_s);
        }
        s_after = s_in_s, m_to_s_after = m_in_s, m_after = power;
    }
    // Only those of the planes after the chunk: a unit of s and of m after token t, from the last token to the first.
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
