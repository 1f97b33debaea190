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
    T s[CHUNK][CHUNK], m[CHUNK][CHUNK], z[CHUNK][CHUNK];  // rows: tokens t; columns: tokens i
    T of_s[2 * CHUNK], of_m[2 * CHUNK];     // of the planes before the chunk in s_t, and behind these in predictions
    T m_in_m[CHUNK];                        // of m before the chunk in m_{t-1}
    double s_after, m_to_s_after, m_after;  // of the planes before the chunk in those after it

    void set(const BlockCoefficients<T>& c, int64_t count) {
        double in_s[CHUNK] = {}, in_m[CHUNK] = {}, s_in_s = 1, m_in_s = 0, power = 1;
        if (count < CHUNK) memset(this, 0, sizeof *this);
        for (int64_t t = 0; t < count; t++) {
            const double alpha = c.alpha[t], gamma = c.at[GAMMA][t];
            m_in_m[t] = T(power), of_s[CHUNK + t] = T(s_in_s);
            s_in_s *= alpha;
            if (c.momentum) {
                const double beta = c.beta[t], rho = c.erase == ERASE_LOOKAHEAD ? c.at[LOOKAHEAD][t] : 0;
                of_m[CHUNK + t] = T(m_in_s + rho * power);
                power *= beta, m_in_s = alpha * m_in_s + gamma * power;
                for (int i = 0; i < CHUNK; i++) {
                    z[t][i] = T(in_s[i] + rho * in_m[i]);
                    in_m[i] = i == t ? 1 : beta * in_m[i];
                    m[t][i] = T(in_m[i]);
                    in_s[i] = alpha * in_s[i] + gamma * in_m[i];
                    s[t][i] = T(in_s[i]);
                }
            } else
                for (int i = 0; i < CHUNK; i++) {
                    z[t][i] = T(in_s[i]);
                    m[t][i] = i == t;
                    in_s[i] = i == t ? gamma : alpha * in_s[i];
                    s[t][i] = T(in_s[i]);
                }
            of_s[t] = T(s_in_s), of_m[t] = T(m_in_s);
        }
        s_after = s_in_s, m_to_s_after = m_in_s, m_after = power;
    }
};

}  // namespace
