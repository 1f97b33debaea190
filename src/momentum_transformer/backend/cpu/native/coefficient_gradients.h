// Gradients of the coefficients β and γ in forward mode: the derivatives of m and s by them run along with the
// recurrence.
#pragma once
#include "backward.h"

namespace {

template <class T> struct CoefficientGradients {
    const Problem& p;
    Sizes<T> size;
    Powers<T> powers;
    PackedRows<T> packed;       // of one block
    T *m, *m_beta;              // m and ∂m/∂β
    T *s_beta, *s_gamma;        // what ∂s/∂β and ∂s/∂γ have gained since the last `rebase` (blocked summation)
    T *base_beta, *base_gamma;  // their values then

    CoefficientGradients(const Problem& p, Arena& arena)
        : p(p), size(p), packed(p, arena, BLOCK), m(arena.take<T>(size.plane)), m_beta(arena.take<T>(size.plane)),
          s_beta(arena.take<T>(size.plane)), s_gamma(arena.take<T>(size.plane)),
          base_beta(arena.take<T>(size.plane)), base_gamma(arena.take<T>(size.plane)) {}

    // Advances m and the derivatives by token i of the block, and adds g · (∂s q) to the gradients of β and γ.
    void advance(int64_t i, double* gradient) {
        constexpr int W = width<T>;
        const Decay<T> decay(powers.beta);
        T gamma = T(powers.gamma);
        const T *q = packed.Q + i * size.dp, *k = packed.K + i * size.dp;
        Vec<T> beta_sum{}, gamma_sum{};
        for (int64_t r = 0; r < size.d; r++) {
            Vec<T> row_beta{}, row_gamma{};
            for (int64_t x = 0; x < size.ep; x += W) {
                int64_t at = r * size.ep + x;
                Vec<T> g = load(packed.G + i * size.ep + x), m_before = load(m + at);
                Vec<T> m_next = decay(m_before) + k[r] * load(packed.V + i * size.ep + x);
                Vec<T> dm_beta = decay(load(m_beta + at)) + m_before;
                Vec<T> ds_beta = load(s_beta + at) + gamma * dm_beta, ds_gamma = load(s_gamma + at) + m_next;
                store(m + at, m_next);
                store(m_beta + at, dm_beta);
                store(s_beta + at, ds_beta);
                store(s_gamma + at, ds_gamma);
                row_beta += g * (load(base_beta + at) + ds_beta);
                row_gamma += g * (load(base_gamma + at) + ds_gamma);
            }
            beta_sum += q[r] * row_beta;
            gamma_sum += q[r] * row_gamma;
        }
        gradient[0] += double(horizontal_sum<T>(beta_sum));
        gradient[1] += double(horizontal_sum<T>(gamma_sum));
    }

    void rebase() {
        for (auto [base, since] : {std::pair(base_beta, s_beta), std::pair(base_gamma, s_gamma)}) {
            add_to(base, since, size.plane);
            memset(since, 0, size.plane * sizeof(T));
        }
    }

    // The dot product of a plane's gradient (d × e) with the plane's derivative (padded).
    double dot(const T* gradient, const T* derivative) const {
        double total = 0;
        for (int64_t i = 0; i < size.d; i++)
            for (int64_t j = 0; j < size.e; j++)
                total += double(gradient[i * size.e + j]) * derivative[i * size.ep + j];
        return total;
    }

    void run(int64_t sequence) {
        Sequence<T> x(p, sequence);
        powers.set(p, x.h);
        for (T* plane : {m, m_beta, s_beta, s_gamma, base_beta, base_gamma}) memset(plane, 0, size.plane * sizeof(T));
        int64_t plane = size.d * size.e;
        if (p.s) {
            const T* before = static_cast<const T*>(p.s) + (2 * x.index() + 1) * plane;
            for (int64_t i = 0; i < size.d; i++) memcpy(m + i * size.ep, before + i * size.e, size.e * sizeof(T));
        }
        double gradient[2] = {0, 0};
        for (int64_t at = 0; at < x.count && !stopped(&p); at += BLOCK) {
            int64_t rows = min(BLOCK, x.count - at);
            packed.pack_keys(x, at, rows);
            packed.pack_queries(x, at, rows);
            for (int64_t i = 0; i < rows; i++) advance(i, gradient);
            if ((at + BLOCK) % p.segment == 0) rebase();
        }
        rebase();
        if (p.ds_after) {
            const T* ds = static_cast<const T*>(p.ds_after) + 2 * x.index() * plane;
            gradient[0] += dot(ds, base_beta) + dot(ds + plane, m_beta);
            gradient[1] += dot(ds, base_gamma);
        }
        memcpy(p.d_coefficients + 2 * x.index(), gradient, sizeof gradient);
    }
};

}  // namespace
