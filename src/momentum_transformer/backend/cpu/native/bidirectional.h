// Attention without causal order, forward: all keys into one state, then every query through it.
#pragma once
#include "sequence.h"

namespace {

template <class T> struct Bidirectional {
    const Problem& p;
    Sizes<T> size;
    T *Q, *K, *V;
    State<T> state;
    int32_t *keys, *queries;  // those that exist

    Bidirectional(const Problem& p, Arena& arena)
        : p(p), size(p), Q(arena.take<T>(BLOCK * size.dp)), K(arena.take<T>(BLOCK * size.dp)),
          V(arena.take<T>(BLOCK * size.ep)), state(arena, size), keys(arena.take<int32_t>(p.m)),
          queries(arena.take<int32_t>(p.n)) {}

    static int64_t existing(int32_t* rows, const uint8_t* mask, int64_t length) {
        int64_t count = 0;
        for (int64_t i = 0; i < length; i++)
            if (mask[i]) rows[count++] = (int32_t)i;
        return count;
    }
    Place<T> place(const Rows& x, int64_t sequence, const int32_t* rows) const {
        Place<T> here(x, p, sequence / p.h, sequence % p.h);
        here.rows = rows;
        here.streams = here.streams && !rows;
        return here;
    }

    void take_keys(int64_t sequence) {
        const uint8_t* mask = p.key_mask ? p.key_mask + sequence / p.h * p.m : nullptr;
        int64_t count = mask ? existing(keys, mask, p.m) : p.m;
        Place<T> k = place(p.k, sequence, mask ? keys : nullptr), v = place(p.v, sequence, mask ? keys : nullptr);
        const T* by_age = static_cast<const T*>(p.by_age);
        if (by_age && p.table_heads > 1) by_age += sequence % p.h * (p.m + 1);
        state.clear(size);
        for (int64_t at = 0; at < count; at += BLOCK) {
            int64_t rows = smaller(BLOCK, count - at), padded = round_up(rows, size.UNIT);
            pack_features(K, size.dp, k, at, rows, padded, size.d, p.elu);
            pack<T, false>(V, size.ep, v, at, rows, padded, size.e);
            add_rows(state.z, K, rows, size.dp);
            if (by_age) scale_rows(V, V, rows, size.ep, by_age + count - at, -1);
            accumulate<T, true>(state.lane[0], size.ep, size.dp, size.ep, K, size.dp, V, size.ep, rows);
        }
    }

    void outputs(int64_t sequence) {
        constexpr int W = width<T>;
        int64_t dp = size.dp, ep = size.ep;
        const uint8_t* mask = p.query_mask ? p.query_mask + sequence / p.h * p.n : nullptr;
        int64_t count = mask ? existing(queries, mask, p.n) : p.n;
        Place<T> q = place(p.q, sequence, mask ? queries : nullptr), y = place(p.y, sequence, mask ? queries : nullptr);
        for (int64_t at = 0; at < count; at += BLOCK) {
            int64_t rows = smaller(BLOCK, count - at);
            pack_features(Q, dp, q, at, rows, round_up(rows, ROWS), size.d, p.elu);
            for (int64_t i0 = 0; i0 < rows; i0 += ROWS) {
                const T* row = Q + i0 * dp;
                Vec<T> seen[ROWS] = {};
                for (int64_t x = 0; x < dp; x += W)
                    each<1>([&](int r, int) INLINE { seen[r] += load(row + r * dp + x) * load(state.z + x); });
                T denominator[ROWS], factor[ROWS];
                sum_rows<T>(denominator, seen);
                for (int r = 0; r < ROWS; r++) factor[r] = p.normalize ? T(1) / (denominator[r] + T(p.eps)) : T(1);
                across<T>(0, ep, [&](auto& acc, int64_t column) INLINE {
                    constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                    multiply<T, N>(acc, row, dp, state.lane[0] + column, ep, size.d);
                    each<N>([&](int r, int j) INLINE { acc[r][j] *= factor[r]; });
                    write_rows<T, N>(acc, y, at + i0, smaller<int64_t>(ROWS, rows - i0), column, size.e);
                });
            }
        }
    }

    void whole(int64_t sequence) {
        take_keys(sequence);
        outputs(sequence);
    }
};

}  // namespace
