// Causal attention, forward: quadratic inside a chunk, recurrent from chunk to chunk.
#pragma once
#include "sequence.h"

namespace {

template <class T> struct Forward {
    const Problem& p;
    Sizes<T> size;
    Weights<T> weights;
    T *Q, *K, *KT, *V, *A, *scaled;
    State<T> prefix, local, total;
    Ahead ahead;

    Forward(const Problem& p, Arena& arena)
        : p(p), size(p), weights(arena, size), Q(arena.take<T>(size.c * size.dp)), K(arena.take<T>(size.c * size.dp)),
          KT(arena.take<T>(size.dp * size.ld)), V(arena.take<T>(size.ld * size.ep)), A(arena.take<T>(ROWS * size.ld)),
          scaled(size.lanes == 2 ? arena.take<T>(size.c * size.ep) : nullptr), prefix(arena, size),
          local(arena, size), total(arena, size) {}

    T* prefix_at(int64_t sequence, int64_t segment) const {
        int64_t length = size.lanes * size.d * size.e + size.d, most = (p.n + p.segment - 1) / p.segment;
        return static_cast<T*>(p.prefix) + (sequence * most + segment) * length;
    }

    void take_keys(const Sequence<T>& x, int64_t begin, int64_t rows, int64_t column) {
        int64_t padded = round_up(rows, size.UNIT);
        pack_features(K, size.dp, x.k, begin, rows, padded, size.d, p.elu);
        turn(KT + column, size.ld, K, size.dp, padded, size.dp);
        pack<T, false>(V + column * size.ep, size.ep, x.v, begin, rows, padded, size.e);
    }

    void outputs(const Sequence<T>& x, const State<T>& state, int64_t begin, int64_t rows, bool window) {
        constexpr int W = width<T>;
        int64_t w = size.w, ld = size.ld, dp = size.dp, ep = size.ep;
        Place<T> y(p.y, p, x.b, x.h);
        ahead.clear();
        ahead.add(x.k, begin + rows, size.c, size.d);
        ahead.add(x.v, begin + rows, size.c, size.e);
        ahead.add(x.q, begin + rows, size.c, size.d);
        pack_features(Q, dp, x.q, begin, rows, round_up(rows, ROWS), size.d, p.elu);
        for (int64_t i0 = 0; i0 < rows; i0 += ROWS) {
            const T* q = Q + i0 * dp;
            int64_t from = window ? size.window_start(i0) : w, until = w + i0 + ROWS;
            int64_t start = window ? smaller(w, i0 + w - size.R) : w;  // of what counts in what was computed
            Vec<T> seen_sum[ROWS] = {};
            across<T>(from, round_up(until, W), [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                ahead.ask(16);
                multiply<T, N>(acc, q, dp, KT + column, ld, size.d);
                each<N>([&](int r, int j) INLINE {
                    int64_t at = column + j * W;
                    if (at >= w) seen_sum[r] += seen<T>(i0 + r, at, w) ? acc[r][j] : Vec<T>{};
                    store(A + r * ld + at, acc[r][j] * weights.of(i0 + r, at));
                });
            });
            for (int64_t at = 0; at < dp; at += W)
                each<1>([&](int r, int) INLINE { seen_sum[r] += load(q + r * dp + at) * load(state.z + at); });
            T denominator[ROWS], factor[ROWS], later[ROWS] = {};
            sum_rows<T>(denominator, seen_sum);
            int64_t real = smaller<int64_t>(ROWS, rows - i0);
            for (int r = 0; r < ROWS; r++)
                factor[r] = p.normalize ? weights.scale / (denominator[r] + T(p.eps)) : weights.scale;
            if (size.lanes == 2) memcpy(later, weights.carry + i0 + 1, real * sizeof(T));
            if (p.denominator)
                memcpy(static_cast<T*>(p.denominator) + x.index() * p.n + begin + i0, denominator, real * sizeof(T));
            across<T>(0, ep, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                if (size.lanes == 2) {
                    multiply<T, N>(acc, q, dp, state.lane[1] + column, ep, size.d);
                    each<N>([&](int r, int j) INLINE { acc[r][j] *= later[r]; });
                }
                ahead.ask(16);
                multiply<T, N>(acc, q, dp, state.lane[0] + column, ep, size.d);
                ahead.ask(16);
                multiply<T, N>(acc, A + start, ld, V + start * ep + column, ep, until - start);
                each<N>([&](int r, int j) INLINE { acc[r][j] *= factor[r]; });
                write_rows<T, N>(acc, y, begin + i0, real, column, size.e);
            });
        }
    }

    void advance(int64_t rows) {  // the local state, by the chunk whose keys and values were taken
        int64_t ep = size.ep, dp = size.dp;
        advance_lanes(local, weights, rows, V + size.w * ep, scaled, [&](T* lane, const T* values) {
            accumulate<T, false>(lane, ep, dp, ep, KT + size.w, size.ld, values, ep, rows);
        });
        add_rows(local.z, K, rows, dp);
    }

    // One segment; `prefix` is the state before it, and `local` becomes what it adds.
    void segment(const Sequence<T>& x, int64_t index, bool write, bool from_nothing) {
        int64_t begin = index * p.segment, end = smaller(begin + p.segment, x.count);
        local.clear(size);
        for (int64_t at = begin; at < end; at += size.c) {
            int64_t rows = smaller(size.c, end - at);
            if (write && size.R && at == begin && at > 0) take_keys(x, at - size.w, size.w, 0);
            if (write && size.R && at > begin) {
                for (int64_t i = 0; i < size.dp; i++)
                    memcpy(KT + i * size.ld, KT + i * size.ld + size.c, size.w * sizeof(T));
                memcpy(V, V + size.c * size.ep, size.w * size.ep * sizeof(T));
            }
            take_keys(x, at, rows, size.w);
            if (write) {
                if (!from_nothing) after(total, prefix, local, at - begin, weights);
                outputs(x, from_nothing ? local : total, at, rows, at > 0 && size.R);
            }
            advance(rows);
        }
    }

    void start(const Sequence<T>& x) {
        int64_t lane = size.d * size.e * size.lanes;
        read_state(prefix, p.s ? static_cast<const T*>(p.s) + x.index() * lane : nullptr,
                   p.z ? static_cast<const T*>(p.z) + x.index() * size.d : nullptr, size);
    }
    void save_prefix(const Sequence<T>& x, int64_t index) {
        T* at = prefix_at(x.index(), index);
        write_state(at, at + size.lanes * size.d * size.e, prefix, size);
    }
    void load_prefix(const Sequence<T>& x, int64_t index) {
        const T* at = prefix_at(x.index(), index);
        read_state(prefix, at, at + size.lanes * size.d * size.e, size);
    }
    void finish(const Sequence<T>& x) {
        if (p.s_after)
            write_state(static_cast<T*>(p.s_after) + x.index() * size.lanes * size.d * size.e,
                        static_cast<T*>(p.z_after) + x.index() * size.d, prefix, size);
    }
    void advance_prefix(const Sequence<T>& x, int64_t index) {
        int64_t begin = index * p.segment, tokens = smaller(p.segment, x.count - begin);
        after(prefix, prefix, local, tokens, weights);
    }

    void whole(int64_t sequence) {
        Sequence<T> x(p, sequence);
        weights.set(p, x.h);
        start(x);
        for (int64_t i = 0; i < x.segments(); i++) {
            if (p.prefix) save_prefix(x, i);
            segment(x, i, true, i == 0 && !p.s);
            advance_prefix(x, i);
        }
        finish(x);
    }

    // Over several threads per sequence: what each segment adds; the states between them; the outputs.
    void add(int64_t sequence, int64_t index) {
        Sequence<T> x(p, sequence);
        if (index >= x.segments()) return;
        weights.set(p, x.h);
        segment(x, index, false, true);
        T* at = prefix_at(x.index(), index);
        write_state(at, at + size.lanes * size.d * size.e, local, size);
    }
    void connect(int64_t sequence) {
        Sequence<T> x(p, sequence);
        weights.set(p, x.h);
        start(x);
        for (int64_t i = 0; i < x.segments(); i++) {
            T* at = prefix_at(x.index(), i);
            read_state(local, at, at + size.lanes * size.d * size.e, size);
            save_prefix(x, i);
            advance_prefix(x, i);
        }
        finish(x);
    }
    void write(int64_t sequence, int64_t index) {
        Sequence<T> x(p, sequence);
        if (index >= x.segments()) return;
        weights.set(p, x.h);
        load_prefix(x, index);
        segment(x, index, true, index == 0 && !p.s);
    }
};

}  // namespace
