// Gradients of causal attention. Nothing is kept from the forward pass but its inputs, y, the denominators and the
// states between segments; docs/derivations.md has the formulas.
#pragma once
#include "forward.h"

namespace {

template <class T> inline Vec<T> slope(Vec<T> feature) {  // φ' = min(φ, 1)
    return feature < T(1) ? feature : splat(T(1));
}

template <class T> struct Backward {
    const Problem& p;
    Sizes<T> size;
    Weights<T> weights;
    int64_t ls;                       // tokens in the buffers of a segment: the window before it, and itself
    T *K, *KT, *V, *VT;               // of the segment, from the window of the chunk at hand on
    T *Q, *G, *A, *D, *scaled;        // of the chunk
    T *g_den, *factor, *carried_k, *carried_v, *products, *turned[2];
    T *states;                        // before each chunk of the segment; lanes are turned: ep × dp
    State<T> prefix, local;           // turned
    State<T> later, between, total;   // gradients: at the end of the segment, from within it, both
    double *d_pair, *d_fade, *d_carry;
    Ahead ahead;

    Backward(const Problem& p, Arena& arena)
        : p(p), size(p), weights(arena, size), ls(size.w + smaller(p.segment, round_up(p.n, 16)) + size.UNIT),
          K(arena.take<T>(ls * size.dp)), KT(arena.take<T>(size.dp * ls)), V(arena.take<T>(ls * size.ep)),
          VT(arena.take<T>(size.ep * ls)), Q(arena.take<T>(size.c * size.dp)), G(arena.take<T>(size.c * size.ep)),
          A(arena.take<T>(size.c * size.ld)),
          D(arena.take<T>(size.c * size.ld)), scaled(arena.take<T>(size.c * size.ep)), g_den(arena.take<T>(size.c)),
          factor(arena.take<T>(size.c)),
          carried_k(arena.take<T>(size.w * size.dp)), carried_v(arena.take<T>(size.w * size.ep)),
          products(p.d_tables ? arena.take<T>(size.c * size.ld) : nullptr),
          turned{arena.take<T>(size.state), size.lanes == 2 ? arena.take<T>(size.state) : nullptr},
          states(arena.take<T>((p.segment / size.c) * State<T>::length(size))), prefix(arena, size),
          local(arena, size), later(arena, size), between(arena, size), total(arena, size) {}

    State<T> state_of(int64_t chunk) const { return State<T>(states + chunk * State<T>::length(size), size); }

    void take_keys(const Sequence<T>& x, int64_t begin, int64_t end) {  // of a segment, and of the window before it
        int64_t before = size.R && begin > 0 ? size.w : 0, rows = end - begin + before, at = size.w - before;
        int64_t padded = round_up(rows, size.UNIT);
        pack_features(K + at * size.dp, size.dp, x.k, begin - before, rows, padded, size.d, p.elu);
        pack<T, false>(V + at * size.ep, size.ep, x.v, begin - before, rows, padded, size.e);
        turn(KT + at, ls, K + at * size.dp, size.dp, padded, size.dp);
        turn(VT + at, ls, V + at * size.ep, size.ep, padded, size.ep);
    }
    void move(int64_t tokens) {  // to another chunk of the segment
        K += tokens * size.dp;
        V += tokens * size.ep;
        KT += tokens;
        VT += tokens;
    }

    // Q, G = the gradient of the numerators, and that of the denominators
    void take_queries(const Sequence<T>& x, int64_t begin, int64_t rows) {
        int64_t padded = round_up(rows, ROWS);
        pack_features(Q, size.dp, x.q, begin, rows, padded, size.d, p.elu);
        const T* below = static_cast<const T*>(p.denominator) + x.index() * p.n + begin;
        for (int64_t i = 0; i < rows; i++)
            factor[i] = p.normalize ? weights.scale / (below[i] + T(p.eps)) : weights.scale;
        Place<T> dy(p.dy, p, x.b, x.h), y(p.normalize ? p.y : p.dy, p, x.b, x.h);
        if (dy.stored == AS_COMPUTED)
            pack_gradients<T, T>(G, g_den, dy, y, begin, rows, size.e, size.ep, factor);
        else if constexpr (sizeof(T) == sizeof(float)) {
            if (dy.stored == BFLOAT16)
                pack_gradients<T, bfloat16>(G, g_den, dy, y, begin, rows, size.e, size.ep, factor);
            else
                pack_gradients<T, float16>(G, g_den, dy, y, begin, rows, size.e, size.ep, factor);
        }
        memset(G + rows * size.ep, 0, (padded - rows) * size.ep * sizeof(T));
        for (int64_t i = 0; i < padded; i++)
            g_den[i] = p.normalize && i < rows ? -g_den[i] / (below[i] + T(p.eps)) : T(0);
    }

    void advance(int64_t rows) {  // as in the forward pass, on turned lanes
        int64_t dp = size.dp, ep = size.ep;
        const T* keys = K + size.w * dp;
        advance_lanes(local, weights, rows, V + size.w * ep, scaled, [&](T* lane, const T* values) {
            accumulate<T, true>(lane, dp, ep, dp, values, ep, keys, dp, rows);
        });
        add_rows(local.z, keys, rows, dp);
    }

    // A = weighted scores and D = gradients of the scores, for one tile of queries
    void score_tile(int64_t i0, int64_t from, int64_t until) {
        constexpr int W = width<T>;
        int64_t w = size.w, ld = size.ld;
        across<T>(from, until, [&](auto& acc, int64_t column) INLINE {
            constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
            ahead.ask(12);
            multiply<T, N>(acc, Q + i0 * size.dp, size.dp, KT + column, ls, size.d);
            Vec<T> grad[ROWS][N] = {};
            ahead.ask(12);
            multiply<T, N>(grad, G + i0 * size.ep, size.ep, VT + column, ls, size.e);
            each<N>([&](int r, int j) INLINE {
                int64_t at = column + j * W, place = (i0 + r) * ld + at;
                Vec<T> weight = weights.of(i0 + r, at), score_grad = grad[r][j] * weight;
                if (products) store(products + place, load(products + place) + acc[r][j] * grad[r][j]);
                store(A + place, acc[r][j] * weight);
                if (at >= w) score_grad += seen<T>(i0 + r, at, w) ? splat(g_den[i0 + r]) : Vec<T>{};
                store(D + place, score_grad);
            });
        });
    }

    void query_gradients(const Sequence<T>& x, const State<T>& state, int64_t begin, int64_t rows, bool window) {
        constexpr int W = width<T>;
        int64_t w = size.w, ld = size.ld, dp = size.dp, ep = size.ep;
        Place<T> dq(p.dq, p, x.b, x.h);
        for (int64_t i0 = 0; i0 < rows; i0 += ROWS) {
            int64_t from = window ? size.window_start(i0) : w, until = w + i0 + ROWS;
            int64_t real = smaller<int64_t>(ROWS, rows - i0);
            int64_t start = window ? smaller(w, i0 + w - size.R) : w;  // of what counts in what was computed
            score_tile(i0, from, round_up(until, W));
            across<T>(0, dp, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                if (size.lanes == 2) {
                    multiply<T, N>(acc, G + i0 * ep, ep, state.lane[1] + column, dp, size.e);
                    each<N>([&](int r, int j) INLINE {
                        if (r >= real) return;
                        const T* q = Q + (i0 + r) * dp + column + j * W;
                        if (p.d_tables) d_carry[i0 + r + 1] += double(sum<T>(acc[r][j] * load(q)));
                        acc[r][j] *= weights.carry[i0 + r + 1];
                    });
                }
                ahead.ask(12);
                multiply<T, N>(acc, G + i0 * ep, ep, state.lane[0] + column, dp, size.e);
                ahead.ask(12);
                multiply<T, N>(acc, D + i0 * ld + start, ld, K + start * dp + column, dp, until - start);
                each<N>([&](int r, int j) INLINE {
                    int64_t at = column + j * W;
                    acc[r][j] += g_den[i0 + r] * load(state.z + at);
                    if (p.elu) acc[r][j] *= slope<T>(load(Q + (i0 + r) * dp + at));
                });
                write_rows<T, N>(acc, dq, begin + i0, real, column, size.d);
            });
        }
    }

    // The part of the keys and values before this chunk that its first queries look at.
    void window_gradients(int64_t rows) {
        int64_t ld = size.ld, dp = size.dp, ep = size.ep;
        for (int64_t x0 = 0; x0 < size.w; x0 += ROWS) {
            int64_t until = 0;  // queries whose tile holds this column
            while (until < rows && size.window_start(until) <= x0) until += ROWS;
            across<T>(0, dp, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                multiply<T, N, true>(acc, D + x0, ld, Q + column, dp, until);
                store_tile(acc, carried_k + x0 * dp + column, dp);
            });
            across<T>(0, ep, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                multiply<T, N, true>(acc, A + x0, ld, G + column, ep, until);
                store_tile(acc, carried_v + x0 * ep + column, ep);
            });
        }
    }

    void key_gradients(const Sequence<T>& x, int64_t begin, int64_t rows, bool carried) {
        constexpr int W = width<T>;
        int64_t w = size.w, ld = size.ld, dp = size.dp, ep = size.ep, c = size.c;
        Place<T> dk(p.dk, p, x.b, x.h), dv(p.dv, p, x.b, x.h);
        for (int l = 0; l < size.lanes; l++) turn(turned[l], dp, total.lane[l], ep, dp, ep);
        int64_t padded = round_up(rows, ROWS);
        for (int64_t j0 = 0; j0 < rows; j0 += ROWS) {
            int64_t x0 = w + j0, real = smaller<int64_t>(ROWS, rows - j0);
            bool shared = carried && j0 >= c - w;
            // what the queries of later chunks send, through the state
            auto from_state = [&](auto& acc, const T* row, int64_t ld_row, T* const* lane, int64_t ld_lane,
                                  int64_t column, int64_t depth, const T* other, bool count) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                if (size.lanes == 1) return multiply<T, N>(acc, row, ld_row, lane[0] + column, ld_lane, depth);
                for (int l = 0; l < 2; l++) {
                    Vec<T> part[ROWS][N] = {};
                    multiply<T, N>(part, row, ld_row, lane[l] + column, ld_lane, depth);
                    each<N>([&](int r, int j) INLINE {
                        if (r >= real) return;
                        int64_t age = rows - 1 - j0 - r;
                        T weight = l == 0 ? weights.pair[age] : T(1) + weights.fade[age];
                        if (count && p.d_tables)
                            (l == 0 ? d_pair : d_fade)[age] +=
                                double(sum<T>(part[r][j] * load(other + r * ld_lane + column + j * W)));
                        acc[r][j] += part[r][j] * weight;
                    });
                }
            };
            across<T>(0, dp, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                if (shared) load_tile(acc, carried_k + (j0 - (c - w)) * dp + column, dp);
                ahead.ask(12);
                from_state(acc, V + x0 * ep, ep, turned, dp, column, size.e, K + x0 * dp, true);
                ahead.ask(12);
                multiply<T, N, true>(acc, D + j0 * ld + x0, ld, Q + j0 * dp + column, dp, padded - j0);
                each<N>([&](int r, int j) INLINE {
                    int64_t at = column + j * W;
                    acc[r][j] += load(total.z + at);
                    if (p.elu) acc[r][j] *= slope<T>(load(K + (x0 + r) * dp + at));
                });
                write_rows<T, N>(acc, dk, begin + j0, real, column, size.d);
            });
            across<T>(0, ep, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                if (shared) load_tile(acc, carried_v + (j0 - (c - w)) * ep + column, ep);
                ahead.ask(12);
                from_state(acc, K + x0 * dp, dp, total.lane, ep, column, size.d, nullptr, false);
                ahead.ask(12);
                multiply<T, N, true>(acc, A + j0 * ld + x0, ld, G + j0 * ep + column, ep, padded - j0);
                write_rows<T, N>(acc, dv, begin + j0, real, column, size.e);
            });
        }
    }

    void retreat(int64_t rows) {  // `between`, by the queries of this chunk
        int64_t dp = size.dp, ep = size.ep;
        if (size.lanes == 2) {
            T carry = weights.carry[rows], fade = weights.fade[rows];
            for (int64_t i = 0; i < size.state; i += width<T>) {
                Vec<T> m = load(between.lane[1] + i);
                store(between.lane[1] + i, m + fade * m + carry * load(between.lane[0] + i));
            }
            scale_rows(scaled, G, rows, ep, weights.carry + 1, 1);
            accumulate<T, true>(between.lane[1], ep, dp, ep, Q, dp, scaled, ep, rows);
        }
        accumulate<T, true>(between.lane[0], ep, dp, ep, Q, dp, G, ep, rows);
        for (int64_t at = 0; at < dp; at += width<T>) {
            Vec<T> z = load(between.z + at);
            for (int64_t i = 0; i < rows; i++) z += g_den[i] * load(Q + i * dp + at);
            store(between.z + at, z);
        }
    }

    void table_gradients(const State<T>& state, int64_t rows) {  // of the carry from chunk to chunk
        double to_s = 0, to_m = 0;
        for (int64_t i = 0; i < size.state; i += width<T>) {
            Vec<T> m = load(state.lane[1] + i);
            to_s += double(sum<T>(load(turned[0] + i) * m));
            to_m += double(sum<T>(load(turned[1] + i) * m));
        }
        d_carry[rows] += to_s;
        d_fade[rows] += to_m;
    }

    // The queries of the chunk before this one, and its share of the keys of the segment before.
    void look_ahead(const Sequence<T>& x, int64_t at, int64_t segment) {
        int64_t c = size.c;
        ahead.clear();
        ahead.add(x.q, at - c, c, size.d);
        ahead.add(Place<T>(p.dy, p, x.b, x.h), at - c, c, size.e);
        if (p.normalize) ahead.add(Place<T>(p.y, p, x.b, x.h), at - c, c, size.e);
        ahead.add(x.k, at - segment, c, size.d);
        ahead.add(x.v, at - segment, c, size.e);
    }

    // One segment. `later` is the gradient of the state after it; `between` becomes what it adds to that before it.
    void segment(const Sequence<T>& x, int64_t index, bool write) {
        int64_t begin = index * p.segment, end = smaller(begin + p.segment, x.count), c = size.c;
        int64_t chunks = (end - begin + c - 1) / c;
        between.clear(size);
        if (write) {
            take_keys(x, begin, end);
            local.clear(size);
            for (int64_t i = 0; i < chunks; i++) {
                State<T> here = state_of(i);
                after(here, prefix, local, i * c, weights);
                if (i + 1 < chunks) advance(c);
                move(c);
            }
            if (products) memset(products, 0, size.c * size.ld * sizeof(T));
            if (size.R && end < x.count) {  // the first queries of the next segment
                int64_t rows = smaller(round_up(size.R, ROWS), x.count - end);
                take_queries(x, end, rows);
                for (int64_t i0 = 0; i0 < rows; i0 += ROWS) score_tile(i0, size.window_start(i0), size.w);
                window_gradients(rows);
            }
        }
        for (int64_t i = chunks - 1; i >= 0; i--) {
            int64_t at = begin + i * c, rows = smaller(c, end - at);
            bool window = size.R && at > 0;
            take_queries(x, at, rows);
            if (write) {
                State<T> state = state_of(i);
                move(-c);
                before(total, later, between, end - at - rows, weights);
                look_ahead(x, at, smaller(p.segment, p.n));
                query_gradients(x, state, at, rows, window);
                key_gradients(x, at, rows, size.R && at + rows < x.count);
                if (window) window_gradients(rows);
                if (p.d_tables) table_gradients(state, rows);
            }
            retreat(rows);
        }
        if (write && products)
            for (int64_t i = 0; i < c; i++)
                for (int64_t j = 0; j <= i; j++) d_pair[i - j] += double(products[i * size.ld + size.w + j]);
    }

    void prepare(const Sequence<T>& x) {
        weights.set(p, x.h);
        if (!p.d_tables) return;
        d_pair = p.d_tables + x.index() * 3 * (size.c + 1);
        d_fade = d_pair + size.c + 1;
        d_carry = d_fade + size.c + 1;
    }
    void read_prefix(const Sequence<T>& x, int64_t index) {  // turned
        int64_t lane = size.d * size.e, length = size.lanes * lane + size.d;
        const T *s = nullptr, *z = nullptr;
        if (p.prefix) {
            s = static_cast<const T*>(p.prefix) + (x.index() * ((p.n + p.segment - 1) / p.segment) + index) * length;
            z = s + size.lanes * lane;
        } else if (p.s) {
            s = static_cast<const T*>(p.s) + x.index() * size.lanes * lane;
            z = static_cast<const T*>(p.z) + x.index() * size.d;
        }
        read_state(local, s, z, size);
        for (int l = 0; l < size.lanes; l++) turn(prefix.lane[l], size.dp, local.lane[l], size.ep, size.dp, size.ep);
        memcpy(prefix.z, local.z, size.dp * sizeof(T));
    }
    void start(const Sequence<T>& x) {
        int64_t lane = size.d * size.e * size.lanes;
        read_state(later, p.ds_after ? static_cast<const T*>(p.ds_after) + x.index() * lane : nullptr,
                   p.dz_after ? static_cast<const T*>(p.dz_after) + x.index() * size.d : nullptr, size);
    }
    void retreat_later(const Sequence<T>& x, int64_t index) {
        before(later, later, between, smaller(p.segment, x.count - index * p.segment), weights);
    }
    void finish(const Sequence<T>& x) {
        if (p.ds)
            write_state(static_cast<T*>(p.ds) + x.index() * size.lanes * size.d * size.e,
                        static_cast<T*>(p.dz) + x.index() * size.d, later, size);
    }

    void whole(int64_t sequence) {
        Sequence<T> x(p, sequence);
        prepare(x);
        start(x);
        for (int64_t i = x.segments() - 1; i >= 0; i--) {
            read_prefix(x, i);
            segment(x, i, true);
            retreat_later(x, i);
        }
        finish(x);
    }

    // Over several threads per sequence, as in the forward pass. `kept` holds one padded state a segment.
    T* kept_at(T* kept, int64_t sequence, int64_t index) const {
        return kept + (sequence * ((p.n + p.segment - 1) / p.segment) + index) * State<T>::length(size);
    }
    void add(int64_t sequence, int64_t index, T* kept) {
        Sequence<T> x(p, sequence);
        if (index >= x.segments()) return;
        prepare(x);
        segment(x, index, false);
        T* at = kept_at(kept, sequence, index);
        for (int l = 0; l < size.lanes; l++) memcpy(at + l * size.state, between.lane[l], size.state * sizeof(T));
        memcpy(at + size.lanes * size.state, between.z, size.dp * sizeof(T));
    }
    void connect(int64_t sequence, T* kept) {
        Sequence<T> x(p, sequence);
        prepare(x);
        start(x);
        for (int64_t i = x.segments() - 1; i >= 0; i--) {
            State<T> here(kept_at(kept, sequence, i), size);
            for (int l = 0; l < size.lanes; l++) memcpy(between.lane[l], here.lane[l], size.state * sizeof(T));
            memcpy(between.z, here.z, size.dp * sizeof(T));
            for (int l = 0; l < size.lanes; l++) memcpy(here.lane[l], later.lane[l], size.state * sizeof(T));
            memcpy(here.z, later.z, size.dp * sizeof(T));
            retreat_later(x, i);
        }
        finish(x);
    }
    void write(int64_t sequence, int64_t index, T* kept) {
        Sequence<T> x(p, sequence);
        if (index >= x.segments()) return;
        prepare(x);
        State<T> here(kept_at(kept, sequence, index), size);
        for (int l = 0; l < size.lanes; l++) memcpy(later.lane[l], here.lane[l], size.state * sizeof(T));
        memcpy(later.z, here.z, size.dp * sizeof(T));
        read_prefix(x, index);
        segment(x, index, true);
    }
};

}  // namespace
