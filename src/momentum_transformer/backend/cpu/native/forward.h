// Causal attention, forward: the recurrence on blocks of tokens, and a division.
#pragma once
#include "scan.h"

namespace {

template <class T> struct Forward {
    const Problem& p;
    Sizes<T> size;
    Pace<T> pace;
    T *Q, *K, *V, *Y;
    State<T> state, local;
    Ahead ahead;

    Forward(const Problem& p, Arena& arena)
        : p(p), size(p), Q(arena.take<T>(BLOCK * size.dp)), K(arena.take<T>(BLOCK * size.dp)),
          V(arena.take<T>(BLOCK * size.ep)), Y(arena.take<T>(BLOCK * size.ep)), state(arena, size),
          local(arena, size) {}

    T* prefix_at(int64_t sequence, int64_t segment) const {
        return static_cast<T*>(p.prefix) + (sequence * segments(p) + segment) * size.plain();
    }

    void take_keys(const Sequence<T>& x, int64_t begin, int64_t rows) {
        int64_t padded = round_up(rows, ROWS);
        pack_features(K, size.dp, x.k, begin, rows, padded, size.d, p.elu);
        pack<T, false>(V, size.ep, x.v, begin, rows, padded, size.e);
    }

    void outputs(const Sequence<T>& x, int64_t begin, int64_t rows) {
        constexpr int W = width<T>;
        int64_t dp = size.dp, ep = size.ep;
        Place<T> y(p.y, p, x.b, x.h);
        y.streams = y.streams && y.stride > size.e * (int64_t)sizeof(T);  // rows without gaps are as fast in the caches
        pack_features(Q, dp, x.q, begin, rows, round_up(rows, ROWS), size.d, p.elu);
        ahead.clear();
        ahead.add(x.k, begin + rows, BLOCK, size.d);
        ahead.add(x.v, begin + rows, BLOCK, size.e);
        ahead.add(x.q, begin + rows, BLOCK, size.d);
        T* lane[2] = {p.sum_segments ? local.lane[0] : state.lane[0], state.lane[1]};
        const T* base = p.sum_segments ? state.lane[0] : nullptr;
        scan<T, MOMENTUM>(lane, size, size.d, ep, {Q, K, V, Y, dp, ep, rows, pace, ahead, base});
        T denominator[BLOCK] = {}, factor[BLOCK];
        for (int64_t i0 = 0; i0 < rows; i0 += ROWS) {
            Vec<T> products[ROWS] = {};
            for (int64_t at = 0; at < dp; at += W) {
                Vec<T> before = load(state.z + at), z = load(local.z + at);
                each<1>([&](int r, int) INLINE {
                    z += load(K + (i0 + r) * dp + at);
                    products[r] += load(Q + (i0 + r) * dp + at) * (before + z);
                });
                store(local.z + at, z);
            }
            T sums[ROWS];
            sum_rows<T>(sums, products);
            memcpy(denominator + i0, sums, sizeof sums);
        }
        for (int64_t i = 0; i < BLOCK; i++) factor[i] = p.normalize ? T(1) / (denominator[i] + T(p.eps)) : T(1);
        if (p.denominator)
            memcpy(static_cast<T*>(p.denominator) + x.index() * p.n + begin, denominator, rows * sizeof(T));
        for (int64_t i0 = 0; i0 < rows; i0 += ROWS)
            across<T>(0, ep, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                load_tile(acc, Y + i0 * ep + column, ep);
                each<N>([&](int r, int j) INLINE { acc[r][j] *= factor[i0 + r]; });
                write_rows<T, N>(acc, y, begin + i0, smaller<int64_t>(ROWS, rows - i0), column, size.e);
            });
    }

    // `state` is that before the segment, and becomes that after it; `local` is what it adds.
    void segment(const Sequence<T>& x, int64_t index) {
        int64_t begin = index * p.segment, end = smaller(begin + p.segment, x.count);
        local.clear(size);
        for (int64_t at = begin; at < end; at += pace.block) {
            int64_t rows = smaller(pace.block, end - at);
            take_keys(x, at, rows);
            outputs(x, at, rows);
        }
        if (p.sum_segments) add_to(state.lane[0], local.lane[0], size.state);
        add_to(state.z, local.z, size.dp);
    }

    void start(const Sequence<T>& x) {
        pace.set(p, x.h);
        read_state(state, p.s ? static_cast<const T*>(p.s) + x.index() * size.lanes * size.d * size.e : nullptr,
                   p.z ? static_cast<const T*>(p.z) + x.index() * size.d : nullptr, size);
    }
    void save_prefix(const Sequence<T>& x, int64_t index, const State<T>& state) {
        T* at = prefix_at(x.index(), index);
        write_state(at, at + size.lanes * size.d * size.e, state, size);
    }
    void load_prefix(const Sequence<T>& x, int64_t index, State<T>& state) {
        const T* at = prefix_at(x.index(), index);
        read_state(state, at, at + size.lanes * size.d * size.e, size);
    }
    void finish(const Sequence<T>& x) {
        if (p.s_after)
            write_state(static_cast<T*>(p.s_after) + x.index() * size.lanes * size.d * size.e,
                        static_cast<T*>(p.z_after) + x.index() * size.d, state, size);
    }

    void whole(int64_t sequence) {
        Sequence<T> x(p, sequence);
        start(x);
        for (int64_t i = 0; i < x.segments(); i++) {
            if (p.prefix) save_prefix(x, i, state);
            segment(x, i);
        }
        finish(x);
    }

    // Over several threads per sequence: what each segment adds; the states between them; the outputs.
    void add(int64_t sequence, int64_t index) {
        Sequence<T> x(p, sequence);
        if (index >= x.segments()) return;
        pace.set(p, x.h);
        local.clear(size);
        int64_t begin = index * p.segment, end = smaller(begin + p.segment, x.count);
        for (int64_t at = begin; at < end; at += pace.block) {
            int64_t rows = smaller(pace.block, end - at);
            take_keys(x, at, rows);
            scan<T, MOMENTUM>(local.lane, size, size.d, size.ep, {Q, K, V, nullptr, size.dp, size.ep, rows, pace, ahead, nullptr});
            add_rows(local.z, K, rows, size.dp);
        }
        save_prefix(x, index, local);
    }
    void connect(int64_t sequence) {
        Sequence<T> x(p, sequence);
        start(x);
        for (int64_t i = 0; i < x.segments(); i++) {
            load_prefix(x, i, local);
            save_prefix(x, i, state);
            after(state, state, local, smaller(p.segment, x.count - i * p.segment), pace, size);
        }
        finish(x);
    }
    void write(int64_t sequence, int64_t index) {
        Sequence<T> x(p, sequence);
        if (index >= x.segments()) return;
        pace.set(p, x.h);
        load_prefix(x, index, state);
        segment(x, index);
    }
};

}  // namespace
