// Gradients of β and γ: the derivatives of the state run forwards beside it.
#pragma once
#include "backward.h"

namespace {

template <class T> struct Learned {
    const Problem& p;
    Sizes<T> size;
    Pace<T> pace;
    Taken<T> taken;                    // of a block
    T *m, *m_beta, *s_beta, *s_gamma;  // m and the derivatives of m and s: those of s are what was added since a base
    T *base_beta, *base_gamma;

    Learned(const Problem& p, Arena& arena)
        : p(p), size(p), taken(p, arena, BLOCK), m(arena.take<T>(size.state)), m_beta(arena.take<T>(size.state)),
          s_beta(arena.take<T>(size.state)), s_gamma(arena.take<T>(size.state)),
          base_beta(arena.take<T>(size.state)), base_gamma(arena.take<T>(size.state)) {}

    // The state by one token; what its derivatives add to the two gradients.
    void token(int64_t i, double* gradient) {
        constexpr int W = width<T>;
        const Aged<T> aged(pace.beta);
        T gamma = T(pace.gamma);
        const T *q = taken.Q + i * size.dp, *k = taken.K + i * size.dp;
        Vec<T> of_beta{}, of_gamma{};
        for (int64_t r = 0; r < size.d; r++) {
            Vec<T> to_beta{}, to_gamma{};
            for (int64_t x = 0; x < size.ep; x += W) {
                int64_t at = r * size.ep + x;
                Vec<T> g = load(taken.G + i * size.ep + x), before = load(m + at);
                Vec<T> now = aged(before) + k[r] * load(taken.V + i * size.ep + x);
                Vec<T> by_beta = aged(load(m_beta + at)) + before;
                Vec<T> s_by_beta = load(s_beta + at) + gamma * by_beta, s_by_gamma = load(s_gamma + at) + now;
                store(m + at, now);
                store(m_beta + at, by_beta);
                store(s_beta + at, s_by_beta);
                store(s_gamma + at, s_by_gamma);
                to_beta += g * (load(base_beta + at) + s_by_beta);
                to_gamma += g * (load(base_gamma + at) + s_by_gamma);
            }
            of_beta += q[r] * to_beta;
            of_gamma += q[r] * to_gamma;
        }
        gradient[0] += double(sum<T>(of_beta));
        gradient[1] += double(sum<T>(of_gamma));
    }

    void rebase() {
        for (auto [base, since] : {std::pair(base_beta, s_beta), std::pair(base_gamma, s_gamma)}) {
            add_to(base, since, size.state);
            memset(since, 0, size.state * sizeof(T));
        }
    }

    // Σ of the gradient of a lane after the last token, times the derivative of the lane
    double product(const T* gradient, const T* derivative) const {
        double total = 0;
        for (int64_t i = 0; i < size.d; i++)
            for (int64_t j = 0; j < size.e; j++) total += double(gradient[i * size.e + j]) * derivative[i * size.ep + j];
        return total;
    }

    void whole(int64_t sequence) {
        Sequence<T> x(p, sequence);
        pace.set(p, x.h);
        for (T* lane : {m, m_beta, s_beta, s_gamma, base_beta, base_gamma}) memset(lane, 0, size.state * sizeof(T));
        int64_t lane = size.d * size.e;
        if (p.s) {
            const T* before = static_cast<const T*>(p.s) + (2 * x.index() + 1) * lane;
            for (int64_t i = 0; i < size.d; i++) memcpy(m + i * size.ep, before + i * size.e, size.e * sizeof(T));
        }
        double gradient[2] = {0, 0};
        for (int64_t at = 0; at < x.count; at += BLOCK) {
            int64_t rows = smaller(BLOCK, x.count - at);
            taken.keys(x, at, rows);
            taken.queries(x, at, rows);
            for (int64_t i = 0; i < rows; i++) token(i, gradient);
            if ((at + BLOCK) % p.segment == 0) rebase();
        }
        rebase();
        if (p.ds_after) {
            const T* ds = static_cast<const T*>(p.ds_after) + 2 * x.index() * lane;
            gradient[0] += product(ds, base_beta) + product(ds + lane, m_beta);
            gradient[1] += product(ds, base_gamma);
        }
        memcpy(p.d_coefficients + 2 * x.index(), gradient, sizeof gradient);
    }
};

}  // namespace
