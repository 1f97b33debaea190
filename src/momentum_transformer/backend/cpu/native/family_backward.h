// Any member of the family, backward pass: from the last segment to the first, block by block. The forward pass saves
// nothing but predictions, denominators and the states before segments; the states of a block are recomputed.
#pragma once
#include "backward.h"
#include "family_adjoint.h"
#include "family_rows.h"

namespace {

// How D and E are scaled when token t, -1 … count - 1, goes through a tile, and what happens to them before.
struct AdjointScale {
    double d_before = 1, e_before = 1, d = 1, e = 1;  // before and after they have faded by α and β of token t + 1
    bool multiply_in = false;                         // the scales so far
    bool clear = false;                               // a document begins at token t + 1
    bool multiply = false;                            // by α and β, which are too small for a scale
};

template <class T> struct FamilyBackward {
    const FamilyProblem& p;
    FamilySizes<T> size;
    int64_t ep, plane, most_rows; // padded columns; elements of a transposed plane; rows of a tile
    bool learn;                   // whether a decay gets a gradient
    FamilyRows<T> block;
    T *adjoint, *dz;              // D and E, transposed; the gradient of z after the segment
    T* base;                      // D after the segment, for blocked summation: `adjoint` has what was added; or null
    T* dz_local;                  // what the segment has added to the latter
    T *starts, *slots;            // transposed states: before each block of the segment; after each token of a tile
    T *z_starts, *matrix;         // z before each block; a plane that is not transposed yet
    T* multiplier;
    AdjointScale scales[BLOCK + 1];
    AdjointToken<T> token;
    uint8_t* reset;
    double totals[COEFFICIENTS];  // gradients of coefficients that are the same at all tokens

    FamilyBackward(const FamilyProblem& p, Arena& arena)
        : p(p), size(p), ep(Sizes<T>(p).ep), plane(size.dp * ep), most_rows(tile_rows(size.dp, ep)), learn(false),
          block(p, arena), adjoint(arena.take<T>(size.planes * plane)), dz(arena.take<T>(size.dp)),
          base(p.sum_segments ? arena.take<T>(plane) : nullptr), dz_local(arena.take<T>(size.dp)),
          starts(arena.take<T>(p.segment / BLOCK * size.planes * plane)), slots(arena.take<T>(BLOCK * slot_size())),
          z_starts(arena.take<T>(p.segment / BLOCK * size.dp)), matrix(arena.take<T>(plane)),
          multiplier(arena.take<T>(size.dp)), reset(arena.take<uint8_t>(p.n + 1)) {
        for (int name : {ALPHA, BETA, GAMMA}) {
            const CoefficientGradient& gradient = p.d_family[name];
            learn |= (gradient.heads || gradient.tokens) && (name != GAMMA || size.planes == 2);
        }
    }
    // A tile of 2,048 elements, D, E and the states of a token among them, fits the first cache.
    static int64_t tile_rows(int64_t dp, int64_t ep) {
        constexpr int64_t UNIT = Sizes<T>::ALIGNMENT;
        int64_t fit = round_down(2048 / dp, UNIT);
        return min(min(fit < UNIT ? UNIT : fit, MOST_ROWS), ep);
    }
    T* start(int64_t index, int l) const { return starts + (index * size.planes + l) * plane; }
    // Not a power of two, lest the same element of all slots fall on the same lines of the caches.
    int64_t slot_size() const { return size.planes * most_rows * size.dp + 64; }
    T* slot(int64_t t, int l) const { return slots + t * slot_size() + l * most_rows * size.dp; }

    void plan_scales(int64_t begin, int64_t count) {
        constexpr double LEAST = ScaledPlane<T>::LEAST;
        double d = 1, e = 1;
        for (int64_t t = count - 1; t >= -1; t--) {
            AdjointScale& x = scales[t + 1] = AdjointScale();
            bool last = t == count - 1;
            double alpha = last || block.c.channels ? 1 : block.c.alpha[t + 1];
            double beta = last || size.planes == 1 ? 1 : block.c.beta[t + 1];
            x.clear = !last && reset[begin + t + 1];
            x.multiply = !x.clear && ((block.c.channels && !last) || alpha < LEAST || beta < LEAST);
            x.multiply_in = !x.clear && (x.multiply || d * alpha < LEAST || e * beta < LEAST);
            if (x.clear || x.multiply_in) d = e = 1;
            x.d_before = d, x.e_before = e;
            if (!x.clear && !x.multiply) d *= alpha, e *= beta;
            x.d = d, x.e = e;
        }
    }
    void change_scale(const AdjointScale& x, ScaledPlane<T>& D, ScaledPlane<T>& E) {
        for (ScaledPlane<T>* plane : {&D, &E}) {
            if (!plane->plane) continue;
            if (x.clear) plane->clear();
            if (x.multiply_in) plane->multiply_in();
        }
        if (base && x.clear) FamilyRows<T>::clear(base + (D.plane - adjoint), D.size);
    }
    // What token t of the block brings to a tile, and the second half of token t + 1.
    void set_token(int64_t t, int64_t count, int64_t first, int64_t rows, const AdjointScale& x) {
        int64_t dp = size.dp;
        token.q = block.Q + t * dp, token.k = block.K + t * dp, token.p = block.P + (t + 1) * dp;
        token.dq = block.dQ + t * dp, token.dk = block.dK + t * dp;
        token.dp = block.dP + (t + 1) * dp, token.dp_m = block.dPM + (t + 1) * dp;
        token.d_alpha = block.dA + (t + 1) * dp;
        token.u = block.U + t * ep + first;
        token.base = base ? base + first * dp : nullptr;
        const T *g = block.G + t * ep + first, *o = block.O + (t + 1) * ep + first;
        const T inverse = T(1 / x.d);
        for (int64_t j = 0; j < rows; j += width<T>) {
            store(token.g + j, inverse * load(g + j));
            if (block.c.erase != ERASE_NOTHING) store(token.prediction + j, inverse * load(o + j));
        }
        bool last = t == count - 1;
        T gamma = t < 0 ? T(0) : block.c.at[GAMMA][t];
        T rho = last || x.clear ? T(0) : block.c.at[LOOKAHEAD][t + 1];
        token.s_to_m = T(gamma * x.d / x.e), token.p_to_m = T(rho * x.d / x.e);
        token.multiplier = nullptr;
        if (!x.multiply) return;
        token.beta = T(block.c.beta[t + 1]);
        token.multiplier = block.c.channels ? block.A + (t + 1) * dp : multiplier;
        if (!block.c.channels)
            for (int64_t at = 0; at < dp; at += width<T>) store(multiplier + at, splat(T(block.c.alpha[t + 1])));
    }
    // What follows from u̇ = Eᵀk of a tile: gradients of v, η and δ, of γ without momentum, and of the prediction.
    void finish_token(int64_t t, int64_t first, int64_t rows, const AdjointScale& x) {
        constexpr int W = width<T>;
        bool momentum = size.planes == 2;
        const T read = T(momentum ? x.e : x.d), gamma = momentum ? T(1) : block.c.at[GAMMA][t];
        const T eta = block.c.at[ETA][t], delta = reset_at(t) ? T(0) : block.c.at[DELTA][t];
        Vec<T> of_gamma{}, of_eta{}, of_delta{};
        for (int64_t j = 0; j < rows; j += W) {
            const int64_t at = t * ep + first + j;
            Vec<T> du = read * load(token.du + j);
            of_gamma += load(block.U + at) * du;
            du *= gamma;
            of_eta += load(block.V + at) * du;
            du *= eta;
            store(block.dV + at, du);
            if (block.c.erase == ERASE_NOTHING) continue;
            of_delta += load(block.predicted + at) * du;
            store(block.O + at, -delta * du);
        }
        if (!momentum) block.add(GAMMA, t, of_gamma);
        block.add(ETA, t, of_eta);
        block.add(DELTA, t, -of_delta);
    }
    bool reset_at(int64_t t) const { return reset[block.begin + t]; }

    void tile(const Recompute<T>& states, int64_t index, int64_t first, int64_t rows) {
        const int64_t count = states.count;
        int64_t dp = size.dp, at = first * dp;
        T *D = adjoint + at, *E = size.planes == 2 ? adjoint + plane + at : nullptr;
        const T *s = start(index, 0) + at, *m = E ? start(index, 1) + at : nullptr;
        states(s, m, slot(0, 0), slot(0, 1), first, rows);
        ScaledPlane<T> scaled_d{D, rows * dp}, scaled_e{E, rows * dp};
        for (int64_t t = count - 1; t >= -1; t--) {
            const AdjointScale& x = scales[t + 1];
            change_scale(x, scaled_d, scaled_e);
            scaled_d.factor = x.d, scaled_e.factor = x.e;
            set_token(t, count, first, rows, x);
            adjoint_member(D, E, t < 0 ? s : slot(t, 0), t < 0 ? m : slot(t, 1), rows, dp, token, block.c.erase, learn);
            const double m_scale = t < 0 ? 1 : states.m_scale[t];
            if (E && t + 1 < count && !x.clear) block.add(BETA, t + 1, T(x.e_before * m_scale) * token.d_beta);
            if (E && t >= 0) block.add(GAMMA, t, T(x.d * m_scale) * token.d_gamma);
            if (t >= 0) finish_token(t, first, rows, x);
        }
        scaled_d.multiply_in();
        if (E) scaled_e.multiply_in();
    }

    // `index`: of the block in its segment.
    void run_block(const Sequence<T>& x, int64_t begin, int64_t count, int64_t index) {
        block.fill_keys(x, begin, count);
        block.fill_queries(x, begin, count);
        plan_scales(begin, count);
        const Recompute<T> states = block.recompute(count, reset + begin, slot_size());
        for (int64_t first = 0; first < ep; first += most_rows)
            tile(states, index, first, min(most_rows, ep - first));
        scale_sums(states);
        if (p.normalize || p.dz_after) denominators(count, index);
        block.write(x, count, totals);
    }
    // The sums over all tiles, in true units.
    void scale_sums(const Recompute<T>& states) {
        int64_t dp = size.dp;
        for (int64_t t = -1; t < states.count; t++) {
            const AdjointScale& x = scales[t + 1];
            const double s = t < 0 ? 1 : states.s_scale[t], m = t < 0 ? 1 : states.m_scale[t];
            if (t >= 0) {
                scale_row(block.dQ + t * dp, T(x.d * s));
                scale_row(block.dK + t * dp, T(size.planes == 2 ? x.e : x.d * block.c.at[GAMMA][t]));
            }
            if (t + 1 == states.count) continue;
            scale_row(block.dA + (t + 1) * dp, x.clear ? T(0) : T(x.d_before * s));
            if (block.c.erase == ERASE_NOTHING) continue;
            scale_row(block.dP + (t + 1) * dp, T(x.d * s));
            if (block.c.erase == ERASE_LOOKAHEAD) {
                scale_row(block.dPM + (t + 1) * dp, T(x.d * m));
                block.add_lookahead(t + 1);
            }
        }
    }
    void scale_row(T* row, T factor) {  // zero, whatever is there, for a factor of 0
        for (int64_t at = 0; at < size.dp; at += width<T>)
            store(row + at, factor == T(0) ? Vec<T>{} : factor * load(row + at));
    }
    // q̇ += ż z_t and k̇ += the gradient of z.
    void denominators(int64_t count, int64_t index) {
        int64_t dp = size.dp;
        T* z = z_starts + index * dp;
        for (int64_t at = 0; at < dp; at += width<T>) {
            Vec<T> sum = load(z + at), of_z = load(dz_local + at);
            const Vec<T> after = load(dz + at);
            for (int64_t t = 0; t < count; t++) {
                T* dq = block.dQ + t * dp + at;
                sum = load(block.K + t * dp + at) + (reset_at(t) ? Vec<T>{} : sum);
                store(dq, load(dq) + block.d_denominator[t] * sum);
            }
            bool cut = false;  // a document has begun: nothing after it reaches tokens before
            for (int64_t t = count - 1; t >= 0; t--) {
                T* dk = block.dK + t * dp + at;
                of_z += block.d_denominator[t] * load(block.Q + t * dp + at);
                store(dk, load(dk) + (cut ? of_z : of_z + after));
                if (!reset_at(t)) continue;
                of_z = Vec<T>{};
                cut = true;
            }
            store(dz_local + at, of_z);
            if (cut) store(dz + at, Vec<T>{});
        }
    }

    // The states before the blocks of a segment, from that before the segment.
    void recompute_starts(const Sequence<T>& x, int64_t begin, int64_t end) {
        int64_t dp = size.dp;
        for (int64_t at = begin, index = 0; at + BLOCK < end; at += BLOCK, index++) {
            block.fill_keys(x, at, BLOCK);
            const T *s = start(index, 0), *m = size.planes == 2 ? start(index, 1) : nullptr;
            block.recompute(BLOCK, reset + at, 0)(s, m, start(index + 1, 0), start(index + 1, 1), 0, ep);
            T* z = z_starts + (index + 1) * dp;
            memcpy(z, z - dp, dp * sizeof(T));
            for (int64_t t = 0; t < BLOCK; t++) {
                if (reset_at(t)) memset(z, 0, dp * sizeof(T));
                add_to(z, block.K + t * dp, dp);
            }
        }
    }
    void sum_base() {
        add_to(base, adjoint, plane);
        FamilyRows<T>::clear(adjoint, plane);
    }
    void segment(const Sequence<T>& x, int64_t index) {
        int64_t begin = index * p.segment, end = min(begin + p.segment, x.count);
        const T *s = nullptr, *z = nullptr;
        if (p.prefix) {
            s = static_cast<const T*>(p.prefix) + (x.index() * segments(p) + index) * size.unpadded_state();
            z = s + size.matrices();
        } else if (p.s) {
            s = static_cast<const T*>(p.s) + x.index() * size.matrices();
            z = p.z ? static_cast<const T*>(p.z) + x.index() * size.d : nullptr;
        }
        read_transposed(start(0, 0), s);
        memset(z_starts, 0, size.dp * sizeof(T));
        if (z) memcpy(z_starts, z, size.d * sizeof(T));
        recompute_starts(x, begin, end);
        for (int64_t i = (end - begin - 1) / BLOCK; i >= 0; i--)
            run_block(x, begin + i * BLOCK, min(BLOCK, end - begin - i * BLOCK), i);
        if (base) sum_base();
        add_to(dz, dz_local, size.dp);
        memset(dz_local, 0, size.dp * sizeof(T));
    }

    // Between unpadded planes (d × e) of a tensor and transposed ones.
    void read_transposed(T* planes, const T* matrices) {
        if (!matrices) return FamilyRows<T>::clear(planes, size.planes * plane);
        FamilyRows<T>::clear(matrix, plane);
        for (int l = 0; l < size.planes; l++) {
            for (int64_t i = 0; i < size.d; i++)
                memcpy(matrix + i * ep, matrices + (l * size.d + i) * size.e, size.e * sizeof(T));
            transpose(planes + l * plane, size.dp, matrix, ep, size.dp, ep);
        }
    }
    void write_transposed(T* matrices, const T* planes) {
        for (int l = 0; l < size.planes; l++) {
            transpose(matrix, ep, planes + l * plane, size.dp, ep, size.dp);
            for (int64_t i = 0; i < size.d; i++)
                memcpy(matrices + (l * size.d + i) * size.e, matrix + i * ep, size.e * sizeof(T));
        }
    }

    void run(int64_t sequence) {
        Sequence<T> x(p, sequence);
        block.c.set_head(p, x.h);
        fill_resets(reset, p, x);
        memset(totals, 0, sizeof totals);
        bool forgotten = reset[x.count];
        const T *ds_after = static_cast<const T*>(p.ds_after), *dz_after = static_cast<const T*>(p.dz_after);
        read_transposed(adjoint, ds_after && !forgotten ? ds_after + x.index() * size.matrices() : nullptr);
        if (base) FamilyRows<T>::clear(base, plane), sum_base();
        memset(dz, 0, size.dp * sizeof(T));
        memset(dz_local, 0, size.dp * sizeof(T));
        if (dz_after && !forgotten) memcpy(dz, dz_after + x.index() * size.d, size.d * sizeof(T));
        for (int64_t i = x.segments() - 1; i >= 0; i--) segment(x, i);
        if (base) memcpy(adjoint, base, plane * sizeof(T));
        if (p.ds) {
            write_transposed(static_cast<T*>(p.ds) + x.index() * size.matrices(), adjoint);
            if (p.dz) memcpy(static_cast<T*>(p.dz) + x.index() * size.d, dz, size.d * sizeof(T));
        }
        for (int name = 0; name < COEFFICIENTS; name++)
            if (p.d_family[name].heads) p.d_family[name].heads[x.index()] = totals[name];
    }
};

}  // namespace
