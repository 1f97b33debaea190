// A chunk of tokens in the backward pass of the family: its packed inputs, the gradients that are accumulated for it,
// and how they are written back.
#pragma once
#include "backward.h"
#include "family_forward.h"

namespace {

// Elements from row to row of a plane, padded so that its rows do not all map to a few sets of the L1 cache.
template <class T> int64_t plane_ld(int64_t ep) {
    constexpr int64_t LINE = 64 / sizeof(T);
    return ep % (4 * LINE) ? ep : ep + LINE;
}

constexpr int64_t CHUNK = 16;  // tokens of a chunk whose weights are a matrix (family_weights.h)

template <class T> struct FamilyRows {
    const FamilyProblem& p;
    FamilySizes<T> size;
    int64_t ep, most;      // padded width of values; most tokens of a chunk
    int64_t begin = 0;     // the first token
    bool begins = false;   // whether a document begins with it; it never begins at a later token of a chunk
    // Features, packed or in place in their tensors. Rows of K, P and Q after the last token are zero.
    T *packed_q, *packed_k, *packed_p, *A;
    const T *Q, *K, *P;
    T *V, *U, *padded;     // v - δ · prediction; u = η times that; predictions, their rows padded
    const T* predicted;
    T *packed_g, *O;       // gradients of numerators, packed or in place, and of predictions
    const T* G;
    RowView<T> to_q, to_k, to_v, to_p;  // the tensors of the gradients
    bool direct = false;   // gradients go to these tensors as they are computed, not in `write`
    T *d_denominator, *dV, *dQ, *dK, *dP, *dA;
    T* parts;              // gradients of coefficients: for each of them and each token a vector of partial sums
    BlockCoefficients<T> c;
    Prefetch prefetch;     // issued while the planes are read
    int64_t share = 0;     // cache lines per issue

    // Some kernels read one row before the first or one behind the last: these buffers have such a row.
    FamilyRows(const FamilyProblem& p, Arena& arena)
        : p(p), size(p), ep(Sizes<T>(p).ep), most(p.channels ? BLOCK : CHUNK),
          packed_q(features(arena) + size.dp), packed_k(features(arena) + size.dp),
          packed_p(p.erase.data ? features(arena) : nullptr), A(p.channels ? features(arena) : nullptr),
          V(values(arena)), U(values(arena) + ep), padded(values(arena)), packed_g(values(arena) + ep),
          O(values(arena)), to_q(p.dq, p, 0, 0), to_k(p.dk, p, 0, 0), to_v(p.dv, p, 0, 0),
          to_p(p.d_erase, p, 0, 0), d_denominator(arena.take<T>(most)),
          dV(values(arena) + ep), dQ(features(arena) + size.dp), dK(features(arena) + size.dp), dP(features(arena)),
          dA(p.channels ? features(arena) : nullptr), parts(arena.take<T>(COEFFICIENTS * most * width<T>)), c(p) {}
    T* features(Arena& arena) { return arena.take<T>((most + 2) * size.dp); }
    T* values(Arena& arena) { return arena.take<T>((most + 1) * ep); }

    // Whether a full chunk of rows can be read in place: the tensor has them in the layout of packed rows.
    bool stays(const RowView<T>& rows, int64_t count, int64_t columns, int64_t padded) const {
        return !p.channels && count == most && columns == padded && rows.storage == FULL_WIDTH && !rows.index &&
               rows.stride == columns * (int64_t)sizeof(T);
    }
    const T* features(T* to, const RowView<T>& from, int64_t count, int64_t padded, bool elu) {
        if (!elu && stays(from, count, size.d, size.dp)) return from.template row<T>(begin);
        pack_features(to, size.dp, from, begin, count, padded, size.d, elu);
        return to;
    }

    static void clear(T* from, int64_t count) { memset(from, 0, count * sizeof(T)); }

    void fill_keys(const Sequence<T>& x, int64_t first, int64_t count, bool document) {
        constexpr int W = width<T>;
        begin = first, begins = document;
        K = P = features(packed_k, x.k, count, most + 1, p.elu);
        if (p.erase.data) P = features(packed_p, RowView<T>(p.erase, p, x.b, x.h), count, most + 1, false);
        if (p.channels) pack<T, false>(A, size.dp, channel_rows<T>(p, x), begin, count, count, size.d);
        const T* values = stays(x.v, count, size.e, ep) ? x.v.template row<T>(begin) : V;
        if (values == V) pack<T, false>(V, ep, x.v, begin, count, count, size.e);
        c.set_tokens(p, x, begin, count);
        if (c.erase != ERASE_NOTHING) set_predicted(x, count);
        const int64_t ep = this->ep;  // copies: no store can alias them
        const T* saved = c.erase != ERASE_NOTHING ? predicted : nullptr;
        T *const to_v = V, *const to_u = U;
        for (int64_t t = 0; t < count; t++) {
            const T eta = c.at[ETA][t], delta = c.at[DELTA][t];
            for (int64_t at = t * ep; at < (t + 1) * ep; at += W) {
                Vec<T> v = load(values + at);
                if (saved) v -= delta * load(saved + at);
                store(to_v + at, v);
                store(to_u + at, eta * v);
            }
        }
        clear(U + count * ep, (most - count) * ep);
    }
    void set_predicted(const Sequence<T>& x, int64_t count) {
        const T* saved = predictions(x, begin);
        predicted = saved;
        if (size.e == ep) return;
        predicted = padded;
        for (int64_t t = 0; t < count; t++) {
            memcpy(padded + t * ep, saved + t * size.e, size.e * sizeof(T));
            clear(padded + t * ep + size.e, ep - size.e);
        }
    }
    const T* predictions(const Sequence<T>& x, int64_t token) const {
        return static_cast<const T*>(p.predictions) + (x.index() * p.n + token) * size.e;
    }
    // Prefetches the rows of tokens from `first` on. Rows before the sequence belong to the one that is computed next.
    void prefetch_chunk(const Sequence<T>& x, int64_t first, const T* state, int64_t elements) {
        prefetch.clear();
        prefetch.add(x.k, first, most, size.d);
        prefetch.add(x.v, first, most, size.e);
        prefetch.add(x.q, first, most, size.d);
        prefetch.add(RowView<T>(p.dy, p, x.b, x.h), first, most, size.e);
        if (p.normalize) prefetch.add(RowView<T>(p.y, p, x.b, x.h), first, most, size.e);
        if (p.erase.data) prefetch.add(RowView<T>(p.erase, p, x.b, x.h), first, most, size.d);
        if (p.predictions) prefetch.add(predictions(x, first), most * size.e * sizeof(T));
        if (state) prefetch.add(state, elements * sizeof(T));
        share = 1 + prefetch.lines / (3 * size.dp / TILE_ROWS);
    }
    void fill_queries(const Sequence<T>& x, int64_t count) {
        Q = features(packed_q, x.q, count, most, p.elu);
        const RowView<T> dy(p.dy, p, x.b, x.h);
        if (!p.normalize && stays(dy, count, size.e, ep))
            G = dy.template row<T>(begin);
        else {
            pack_output_gradients(packed_g, d_denominator, p, x, begin, count, size.e, ep);
            clear(packed_g + count * ep, (most - count) * ep);
            G = packed_g;
        }
        to_q = RowView<T>(p.dq, p, x.b, x.h), to_k = RowView<T>(p.dk, p, x.b, x.h);
        to_v = RowView<T>(p.dv, p, x.b, x.h), to_p = RowView<T>(p.d_erase, p, x.b, x.h);
        direct = !p.channels && !p.elu && !p.normalize && !p.dz_after && count == most && size.d == size.dp &&
                 size.e == ep && dy.storage == FULL_WIDTH && !dy.index;
        if (p.channels) clear(parts, COEFFICIENTS * most * width<T>);  // TokenForm adds to them tile by tile
    }

    T delta(int64_t t) const { return begins && t == 0 ? T(0) : c.at[DELTA][t]; }
    T* part(int name, int64_t t) const { return parts + (name * most + t) * width<T>; }
    void add(int name, int64_t t, Vec<T> sum) { store(part(name, t), load(part(name, t)) + sum); }
    // From the gradient of u, which dV holds, for some columns, from `first` on: the gradients of v, η, δ and of the
    // prediction.
    void finish_token(int64_t t, int64_t first, int64_t columns) {
        const T eta = c.at[ETA][t], delta = this->delta(t);
        Vec<T> of_eta{}, of_delta{};
        for (int64_t at = t * ep + first; at < t * ep + first + columns; at += width<T>) {
            Vec<T> du = load(dV + at);
            of_eta += load(V + at) * du;
            du *= eta;
            if (direct)
                write_vector(to_v, t, at - t * ep, du);
            else
                store(dV + at, du);
            if (c.erase == ERASE_NOTHING) continue;
            of_delta += load(predicted + at) * du;
            store(O + at, -delta * du);
        }
        if (first > 0) of_eta += load(part(ETA, t)), of_delta -= load(part(DELTA, t));
        store(part(ETA, t), of_eta);
        store(part(DELTA, t), -of_delta);
    }

    FORCE_INLINE void write_vector(const RowView<T>& to, int64_t t, int64_t at, Vec<T> x) const {
        if (to.nontemporal)
            store_nontemporal(to.template row<T>(begin + t) + at, x);
        else
            store(to.template row<T>(begin + t) + at, x);
    }
    // Writes the rows of a full chunk; `from` is their transpose.
    void write_transposed(const RowView<T>& to, const T* from, int64_t ld) const {
        constexpr int W = width<T>;
        for (int64_t r = 0; r < most; r += W)
            for (int64_t x = 0; x < size.dp; x += W) {
                Vec<T> block[W];
                for (int i = 0; i < W; i++) block[i] = load(from + (x + i) * ld + r);
                transpose_registers<T>(block);
                for (int i = 0; i < W; i++) write_vector(to, r + i, x, block[i]);
            }
    }
    void write_row(const RowView<T>& to, int64_t t, const T* row, int64_t columns) const {
        for (int64_t at = 0; at < columns; at += width<T>)
            if (to.nontemporal && at + width<T> <= columns)
                store_nontemporal(to.template row<T>(begin + t) + at, load(row + at));
            else if (to.storage == FULL_WIDTH)
                write_stored<T>(to.template row<T>(begin + t) + at, load(row + at), columns - at);
            else
                write_narrow<T>(to, begin + t, at, load(row + at), columns - at);
    }
    // Writes all gradients of the chunk; those of constant coefficients are added to `totals`.
    void write(const Sequence<T>& x, int64_t count, double* totals) {
        constexpr int W = width<T>;
        for (int64_t t = 0; !direct && t < count; t++) {
            const int64_t row = t * size.dp;
            for (int64_t at = row; at < row + size.dp; at += W) {
                Vec<T> key = load(dK + at), query = load(dQ + at);
                if (p.elu) {
                    key *= feature_derivative<T>(load(K + at));
                    query *= feature_derivative<T>(load(Q + at));
                }
                store(dK + at, key);
                store(dQ + at, query);
            }
            write_row(to_q, t, dQ + row, size.d);
            write_row(to_k, t, dK + row, size.d);
            write_row(to_v, t, dV + t * ep, size.e);
            if (p.d_erase.data) write_row(to_p, t, dP + row, size.d);
        }
        write_coefficients(x, count, totals);
    }
    void write_coefficients(const Sequence<T>& x, int64_t count, double* totals) {
        auto position = [&](int64_t t) { return x.index() * p.n + (x.q.index ? x.q.index[begin + t] : begin + t); };
        for (int name = 0; name < COEFFICIENTS; name++) {
            T* tokens = static_cast<T*>(p.d_family[name].tokens);
            if (!tokens && !p.d_family[name].heads) continue;
            if (name == ALPHA && p.channels) {
                for (int64_t t = 0; t < count; t++)
                    memcpy(tokens + position(t) * size.d, dA + t * size.dp, size.d * sizeof(T));
                continue;
            }
            for (int64_t t0 = 0; t0 < count; t0 += TILE_ROWS) {
                Vec<T> vectors[TILE_ROWS];
                T sums[TILE_ROWS];
                for (int r = 0; r < TILE_ROWS; r++) vectors[r] = load(part(name, t0 + r));
                sum_rows<T>(sums, vectors);
                const int64_t end = min(t0 + TILE_ROWS, count);
                if (!tokens)
                    for (int64_t t = t0; t < end; t++) totals[name] += sums[t - t0];
                else if (x.q.index)
                    for (int64_t t = t0; t < end; t++) tokens[position(t)] = sums[t - t0];
                else
                    memcpy(tokens + position(t0), sums, (end - t0) * sizeof(T));
            }
        }
    }
};

}  // namespace
