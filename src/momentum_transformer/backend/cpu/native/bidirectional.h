// Bidirectional attention, forward pass: sum all keys into one state, then multiply every query by it.
#pragma once
#include "pack.h"

namespace {

// Tokens of a piece. Each piece is summed by itself and the sums are added in order, whatever the number of threads.
constexpr int64_t PIECE = 1024;

inline int64_t pieces(int64_t tokens) { return (tokens + PIECE - 1) / PIECE; }

template <class T> struct Piece {  // the tokens of one piece of a sequence that are not masked
    const Problem& p;
    int64_t b, h;
    int64_t begin, end;    // of the piece; masked tokens count
    int64_t count, after;  // tokens that are not masked: in the piece, and behind it
    const uint8_t* mask;   // of the sequence, or null
    const int32_t* index;  // positions of the tokens that are not masked, or null: `count` tokens from `first` on
    int64_t first;

    Piece(const Problem& p, int64_t sequence, int64_t number, const uint8_t* masks, int64_t length, int32_t* memory)
        : p(p), b(sequence / p.h), h(sequence % p.h), begin(number * PIECE), end(min(begin + PIECE, length)),
          count(end - begin), after(length - end), mask(masks ? masks + b * length : nullptr), index(nullptr),
          first(begin) {
        if (!mask) return;
        count = after = 0;
        for (int64_t i = begin; i < end; i++)
            if (mask[i]) memory[count++] = (int32_t)i;
        for (int64_t i = end; i < length; i++) after += mask[i];
        if (count && memory[count - 1] - memory[0] + 1 == count)  // without holes, as where only the end is padding
            first = memory[0];
        else
            index = memory;
    }
    RowView<T> rows(const TensorView& x) const {
        RowView<T> view(x, p, b, h);
        view.index = index;
        view.nontemporal = view.nontemporal && !index;
        if (!index) view.data += first * view.stride;
        return view;
    }
    // The rows of an output tensor; those of masked tokens become zero here.
    RowView<T> output(const TensorView& x, int64_t columns) const {
        if (mask) {
            RowView<T> all(x, p, b, h);
            int64_t bytes = columns * (all.storage == FULL_WIDTH ? sizeof(T) : 2);
            for (int64_t i = begin; i < end; i++)
                if (!mask[i]) memset(all.data + i * all.stride, 0, bytes);
        }
        return rows(x);
    }
    // Where the weight of key `at` of the piece is; weights of later keys stand before it in memory.
    const T* weights(int64_t at) const {
        int64_t head = p.coefficient_heads > 1 ? h : 0;
        return static_cast<const T*>(p.distance_weights) + head * (p.key_count + 1) + after + count - at;
    }
};

// The forward and the backward pass both read the tokens twice: `sum` reduces one piece to a state, `use` reads the
// state that all pieces have summed up to.
template <class T> struct Bidirectional {
    const Problem& p;
    Sizes<T> size;
    T *Q, *K, *V;           // a block of packed rows
    State<T> total, local;  // the sum over all pieces, and over one
    int32_t* index;

    Bidirectional(const Problem& p, Arena& arena)
        : p(p), size(p), Q(arena.take<T>(BLOCK * size.dp)), K(arena.take<T>(BLOCK * size.dp)),
          V(arena.take<T>(BLOCK * size.ep)), total(arena, size), local(arena, size), index(arena.take<int32_t>(PIECE)) {
    }
    static int64_t summed(const Problem& p) { return pieces(p.key_count); }
    static int64_t used(const Problem& p) { return pieces(p.n); }

    void sum(int64_t sequence, int64_t number, State<T>& state) {
        Piece<T> x(p, sequence, number, p.key_mask, p.key_count, index);
        RowView<T> k = x.rows(p.k), v = x.rows(p.v);
        state.clear(size);
        for (int64_t at = 0; at < x.count && !stopped(&p); at += BLOCK) {
            int64_t rows = min(BLOCK, x.count - at), padded = round_up(rows, size.ALIGNMENT);
            pack_features(K, size.dp, k, at, rows, padded, size.d, p.elu);
            pack<T, false>(V, size.ep, v, at, rows, padded, size.e);
            add_rows(state.z, K, rows, size.dp);
            if (p.distance_weights) scale_rows(V, V, rows, size.ep, x.weights(at), -1);
            accumulate<T, true>(state.plane[0], size.ep, size.dp, size.ep, K, size.dp, V, size.ep, rows);
        }
    }
    void keep(int64_t sequence, const State<T>& state) {
        if (p.s_after)
            write_state(static_cast<T*>(p.s_after) + sequence * size.d * size.e,
                        static_cast<T*>(p.z_after) + sequence * size.d, state, size);
    }
    void use(int64_t sequence, int64_t number, const State<T>& state) {
        constexpr int W = width<T>;
        int64_t dp = size.dp, ep = size.ep;
        Piece<T> x(p, sequence, number, p.query_mask, p.n, index);
        RowView<T> q = x.rows(p.q), y = x.output(p.y, size.e);
        T* denominators = p.denominator ? static_cast<T*>(p.denominator) + sequence * p.n + x.begin : nullptr;
        for (int64_t at = 0; at < x.count && !stopped(&p); at += BLOCK) {
            int64_t rows = min(BLOCK, x.count - at);
            pack_features(Q, dp, q, at, rows, round_up(rows, TILE_ROWS), size.d, p.elu);
            for (int64_t i0 = 0; i0 < rows; i0 += TILE_ROWS) {
                const T* row = Q + i0 * dp;
                int64_t real = min<int64_t>(TILE_ROWS, rows - i0);
                Vec<T> products[TILE_ROWS] = {};
                for (int64_t c = 0; c < dp; c += W)
                    for_each_in_tile<1>(
                        [&](int r, int) INLINE { products[r] += load(row + r * dp + c) * load(state.z + c); });
                T denominator[TILE_ROWS], factor[TILE_ROWS];
                sum_rows<T>(denominator, products);
                if (denominators) memcpy(denominators + at + i0, denominator, real * sizeof(T));
                for (int r = 0; r < TILE_ROWS; r++) factor[r] = p.normalize ? T(1) / (denominator[r] + T(p.eps)) : T(1);
                for_each_tile<T>(0, ep, [&](auto& acc, int64_t column) INLINE {
                    constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                    multiply<T, N>(acc, row, dp, state.plane[0] + column, ep, size.d);
                    for_each_in_tile<N>([&](int r, int j) INLINE { acc[r][j] *= factor[r]; });
                    write_rows<T, N>(acc, y, at + i0, real, column, size.e);
                });
            }
        }
    }
};

}  // namespace
