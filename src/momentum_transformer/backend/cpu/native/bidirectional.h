// Bidirectional attention, forward pass: sum all keys into one state, then multiply every query by it.
#pragma once
#include "pack.h"

namespace {

template <class T> struct Bidirectional {
    const Problem& p;
    Sizes<T> size;
    T *Q, *K, *V;  // a block of packed rows
    State<T> state;
    int32_t *key_index, *query_index;  // positions of keys and queries that are not masked

    Bidirectional(const Problem& p, Arena& arena)
        : p(p), size(p), Q(arena.take<T>(BLOCK * size.dp)), K(arena.take<T>(BLOCK * size.dp)),
          V(arena.take<T>(BLOCK * size.ep)), state(arena, size), key_index(arena.take<int32_t>(p.key_count)),
          query_index(arena.take<int32_t>(p.n)) {}

    // Writes the positions where mask is set, and returns how many there are.
    static int64_t nonzero(int32_t* index, const uint8_t* mask, int64_t length) {
        int64_t count = 0;
        for (int64_t i = 0; i < length; i++)
            if (mask[i]) index[count++] = (int32_t)i;
        return count;
    }
    RowView<T> row_view(const TensorView& x, int64_t sequence, const int32_t* index) const {
        RowView<T> view(x, p, sequence / p.h, sequence % p.h);
        view.index = index;
        view.nontemporal = view.nontemporal && !index;
        return view;
    }

    void sum_keys(int64_t sequence) {
        const uint8_t* mask = p.key_mask ? p.key_mask + sequence / p.h * p.key_count : nullptr;
        int64_t count = mask ? nonzero(key_index, mask, p.key_count) : p.key_count;
        RowView<T> k = row_view(p.k, sequence, mask ? key_index : nullptr);
        RowView<T> v = row_view(p.v, sequence, mask ? key_index : nullptr);
        const T* weights = static_cast<const T*>(p.distance_weights);
        if (weights && p.coefficient_heads > 1) weights += sequence % p.h * (p.key_count + 1);
        state.clear(size);
        for (int64_t at = 0; at < count; at += BLOCK) {
            int64_t rows = min(BLOCK, count - at), padded = round_up(rows, size.ALIGNMENT);
            pack_features(K, size.dp, k, at, rows, padded, size.d, p.elu);
            pack<T, false>(V, size.ep, v, at, rows, padded, size.e);
            add_rows(state.z, K, rows, size.dp);
            if (weights) scale_rows(V, V, rows, size.ep, weights + count - at, -1);
            accumulate<T, true>(state.plane[0], size.ep, size.dp, size.ep, K, size.dp, V, size.ep, rows);
        }
    }

    void outputs(int64_t sequence) {
        constexpr int W = width<T>;
        int64_t dp = size.dp, ep = size.ep;
        const uint8_t* mask = p.query_mask ? p.query_mask + sequence / p.h * p.n : nullptr;
        int64_t count = mask ? nonzero(query_index, mask, p.n) : p.n;
        RowView<T> q = row_view(p.q, sequence, mask ? query_index : nullptr);
        RowView<T> y = row_view(p.y, sequence, mask ? query_index : nullptr);
        for (int64_t at = 0; at < count; at += BLOCK) {
            int64_t rows = min(BLOCK, count - at);
            pack_features(Q, dp, q, at, rows, round_up(rows, TILE_ROWS), size.d, p.elu);
            for (int64_t i0 = 0; i0 < rows; i0 += TILE_ROWS) {
                const T* row = Q + i0 * dp;
                Vec<T> products[TILE_ROWS] = {};
                for (int64_t x = 0; x < dp; x += W)
                    for_each_in_tile<1>(
                        [&](int r, int) INLINE { products[r] += load(row + r * dp + x) * load(state.z + x); });
                T denominator[TILE_ROWS], factor[TILE_ROWS];
                sum_rows<T>(denominator, products);
                for (int r = 0; r < TILE_ROWS; r++) factor[r] = p.normalize ? T(1) / (denominator[r] + T(p.eps)) : T(1);
                for_each_tile<T>(0, ep, [&](auto& acc, int64_t column) INLINE {
                    constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                    multiply<T, N>(acc, row, dp, state.plane[0] + column, ep, size.d);
                    for_each_in_tile<N>([&](int r, int j) INLINE { acc[r][j] *= factor[r]; });
                    write_rows<T, N>(acc, y, at + i0, min<int64_t>(TILE_ROWS, rows - i0), column, size.e);
                });
            }
        }
    }

    void run(int64_t sequence) {
        sum_keys(sequence);
        outputs(sequence);
    }
};

}  // namespace
