// Causal attention, forward pass: pack a block of tokens, run the recurrence on it, divide by the denominators.
#pragma once
#include "scan.h"

namespace {

template <class T> struct Forward {
    const Problem& p;
    Sizes<T> size;
    Powers<T> powers;
    T *Q, *K, *V, *Y;  // a block of packed rows: features of queries and keys, values, numerators
    State<T> state;    // before the segment at hand
    State<T> local;    // what the segment has added to it so far
    Prefetch prefetch;

    Forward(const Problem& p, Arena& arena)
        : p(p), size(p), Q(arena.take<T>(BLOCK * size.dp)), K(arena.take<T>(BLOCK * size.dp)),
          V(arena.take<T>(BLOCK * size.ep)), Y(arena.take<T>(BLOCK * size.ep)), state(arena, size),
          local(arena, size) {}

    T* prefix_at(int64_t sequence, int64_t segment) const {
        return static_cast<T*>(p.prefix) + (sequence * segments(p) + segment) * size.unpadded_state();
    }

    void pack_keys(const Sequence<T>& x, int64_t begin, int64_t rows) {
        int64_t padded = round_up(rows, TILE_ROWS);
        pack_features(K, size.dp, x.k, begin, rows, padded, size.d, p.elu);
        pack<T, false>(V, size.ep, x.v, begin, rows, padded, size.e);
    }

    void outputs(const Sequence<T>& x, int64_t begin, int64_t rows) {
        constexpr int W = width<T>;
        int64_t dp = size.dp, ep = size.ep;
        RowView<T> y(p.y, p, x.b, x.h);
        // contiguous rows are written just as fast through the caches
        y.nontemporal = y.nontemporal && y.stride > size.e * (int64_t)sizeof(T);
        pack_features(Q, dp, x.q, begin, rows, round_up(rows, TILE_ROWS), size.d, p.elu);
        prefetch.clear();
        prefetch.add(x.k, begin + rows, BLOCK, size.d);
        prefetch.add(x.v, begin + rows, BLOCK, size.e);
        prefetch.add(x.q, begin + rows, BLOCK, size.d);
        T* plane[2] = {p.sum_segments ? local.plane[0] : state.plane[0], state.plane[1]};
        const T* base = p.sum_segments ? state.plane[0] : nullptr;
        scan<T, MOMENTUM>(plane, size, size.d, ep, {Q, K, V, Y, dp, ep, rows, powers, prefetch, base});
        T denominator[BLOCK] = {}, factor[BLOCK];
        for (int64_t i0 = 0; i0 < rows; i0 += TILE_ROWS) {
            Vec<T> products[TILE_ROWS] = {};
            for (int64_t at = 0; at < dp; at += W) {
                Vec<T> before = load(state.z + at), z = load(local.z + at);
                for_each_in_tile<1>([&](int r, int) INLINE {
                    z += load(K + (i0 + r) * dp + at);
                    products[r] += load(Q + (i0 + r) * dp + at) * (before + z);
                });
                store(local.z + at, z);
            }
            T sums[TILE_ROWS];
            sum_rows<T>(sums, products);
            memcpy(denominator + i0, sums, sizeof sums);
        }
        for (int64_t i = 0; i < BLOCK; i++) factor[i] = p.normalize ? T(1) / (denominator[i] + T(p.eps)) : T(1);
        if (p.denominator)
            memcpy(static_cast<T*>(p.denominator) + x.index() * p.n + begin, denominator, rows * sizeof(T));
        for (int64_t i0 = 0; i0 < rows; i0 += TILE_ROWS)
            for_each_tile<T>(0, ep, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                load_tile(acc, Y + i0 * ep + column, ep);
                for_each_in_tile<N>([&](int r, int j) INLINE { acc[r][j] *= factor[i0 + r]; });
                write_rows<T, N>(acc, y, begin + i0, min<int64_t>(TILE_ROWS, rows - i0), column, size.e);
            });
    }

    // `state` goes from before the segment to after it.
    void segment(const Sequence<T>& x, int64_t index) {
        int64_t begin = index * p.segment, end = min(begin + p.segment, x.count);
        local.clear(size);
        for (int64_t at = begin; at < end; at += powers.block) {
            int64_t rows = min(powers.block, end - at);
            pack_keys(x, at, rows);
            outputs(x, at, rows);
        }
        if (p.sum_segments) add_to(state.plane[0], local.plane[0], size.plane);
        add_to(state.z, local.z, size.dp);
    }

    void start(const Sequence<T>& x) {
        powers.set(p, x.h);
        read_state(state, p.s ? static_cast<const T*>(p.s) + x.index() * size.planes * size.d * size.e : nullptr,
                   p.z ? static_cast<const T*>(p.z) + x.index() * size.d : nullptr, size);
    }
    void save_prefix(const Sequence<T>& x, int64_t index, const State<T>& state) {
        T* at = prefix_at(x.index(), index);
        write_state(at, at + size.planes * size.d * size.e, state, size);
    }
    void load_prefix(const Sequence<T>& x, int64_t index, State<T>& state) {
        const T* at = prefix_at(x.index(), index);
        read_state(state, at, at + size.planes * size.d * size.e, size);
    }
    void finish(const Sequence<T>& x) {
        if (p.s_after)
            write_state(static_cast<T*>(p.s_after) + x.index() * size.planes * size.d * size.e,
                        static_cast<T*>(p.z_after) + x.index() * size.d, state, size);
    }

    void run(int64_t sequence) {
        Sequence<T> x(p, sequence);
        start(x);
        for (int64_t i = 0; i < x.segments() && !stopped(&p); i++) {
            if (p.prefix) save_prefix(x, i, state);
            segment(x, i);
        }
        finish(x);
    }

    // A sequence that is split across threads takes three passes: `local_state` of all segments in parallel, each from
    // zero; `combine_segments`, for the states before the segments; `run_segment` of all segments in parallel.
    void local_state(int64_t sequence, int64_t index) {
        Sequence<T> x(p, sequence);
        if (index >= x.segments()) return;
        powers.set(p, x.h);
        local.clear(size);
        int64_t begin = index * p.segment, end = min(begin + p.segment, x.count);
        for (int64_t at = begin; at < end; at += powers.block) {
            int64_t rows = min(powers.block, end - at);
            pack_keys(x, at, rows);
            scan<T, MOMENTUM>(local.plane, size, size.d, size.ep,
                              {Q, K, V, nullptr, size.dp, size.ep, rows, powers, prefetch, nullptr});
            add_rows(local.z, K, rows, size.dp);
        }
        save_prefix(x, index, local);
    }
    void combine_segments(int64_t sequence) {
        Sequence<T> x(p, sequence);
        start(x);
        for (int64_t i = 0; i < x.segments() && !stopped(&p); i++) {
            load_prefix(x, i, local);
            save_prefix(x, i, state);
            combine_forward(state, state, local, min(p.segment, x.count - i * p.segment), powers, size);
        }
        finish(x);
    }
    void run_segment(int64_t sequence, int64_t index) {
        Sequence<T> x(p, sequence);
        if (index >= x.segments()) return;
        powers.set(p, x.h);
        load_prefix(x, index, state);
        segment(x, index);
    }
};

}  // namespace
