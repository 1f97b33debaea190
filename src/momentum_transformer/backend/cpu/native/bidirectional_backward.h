// Bidirectional attention, backward pass: sum the gradients of all queries into the gradient of the state, then
// multiply every key and value by it. With numerators q s, denominators q z, factors f = 1/(q z + ε), and g = f dy:
//   dφ(q) = s g - f (dy · y) z    ds = Σ φ(q) gᵀ    dz = -Σ f (dy · y) φ(q)
//   dv = w φ(k) ds    dφ(k) = w ds v + dz    dw = φ(k) ds v
#pragma once
#include "backward.h"
#include "bidirectional.h"

namespace {

template <class T> struct BidirectionalBackward {
    const Problem& p;
    Sizes<T> size;
    T *rows_d, *rows_e;     // a block of packed rows: φ(q) and g, or φ(k) and v
    T* g_den;               // gradients of the denominators of a block
    State<T> total, local;  // the gradient of the state, from all pieces and from one
    State<T> state;
    T* transposed;          // plane s, or ds, as e × d
    int32_t* index;

    BidirectionalBackward(const Problem& p, Arena& arena)
        : p(p), size(p), rows_d(arena.take<T>(BLOCK * size.dp)), rows_e(arena.take<T>(BLOCK * size.ep)),
          g_den(arena.take<T>(BLOCK)), total(arena, size), local(arena, size), state(arena, size),
          transposed(arena.take<T>(size.plane)), index(arena.take<int32_t>(PIECE)) {}
    static int64_t summed(const Problem& p) { return pieces(p.n); }
    static int64_t used(const Problem& p) { return pieces(p.key_count); }

    void transpose_plane(const T* plane) { transpose(transposed, size.dp, plane, size.ep, size.dp, size.ep); }

    // Queries: dq, and what they add to the gradient of the state.
    void sum(int64_t sequence, int64_t number, State<T>& grad) {
        Piece<T> x(p, sequence, number, p.query_mask, p.n, index);
        RowView<T> q = x.rows(p.q), dy = x.rows(p.dy), y = x.rows(p.normalize ? p.y : p.dy);
        RowView<T> dq = x.output(p.dq, size.d);
        const T* denominators = static_cast<const T*>(p.denominator) + sequence * p.n + x.begin;
        read_state(state, static_cast<const T*>(p.s) + sequence * size.d * size.e,
                   static_cast<const T*>(p.z) + sequence * size.d, size);
        transpose_plane(state.plane[0]);
        grad.clear(size);
        for (int64_t at = 0; at < x.count && !stopped(&p); at += BLOCK) {
            int64_t rows = min(BLOCK, x.count - at), padded = round_up(rows, TILE_ROWS);
            pack_features(rows_d, size.dp, q, at, rows, padded, size.d, p.elu);
            pack_output_gradients(rows_e, g_den, p, dy, y, denominators + at, at, rows, size.e, size.ep);
            memset(rows_e + rows * size.ep, 0, (padded - rows) * size.ep * sizeof(T));
            for (int64_t i = rows; i < padded; i++) g_den[i] = T(0);
            query_gradients(dq, at, rows);
            for (int64_t c = 0; c < size.dp; c += width<T>) {
                Vec<T> z = load(grad.z + c);
                for (int64_t i = 0; i < rows; i++) z += g_den[i] * load(rows_d + i * size.dp + c);
                store(grad.z + c, z);
            }
            accumulate<T, true>(grad.plane[0], size.ep, size.dp, size.ep, rows_d, size.dp, rows_e, size.ep, rows);
        }
    }
    void query_gradients(const RowView<T>& dq, int64_t at, int64_t rows) {
        int64_t dp = size.dp;
        for (int64_t i0 = 0; i0 < rows; i0 += TILE_ROWS)
            for_each_tile<T>(0, dp, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                multiply<T, N>(acc, rows_e + i0 * size.ep, size.ep, transposed + column, dp, size.e);
                for_each_in_tile<N>([&](int r, int j) INLINE {
                    int64_t c = column + j * width<T>;
                    acc[r][j] += g_den[i0 + r] * load(state.z + c);
                    if (p.elu) acc[r][j] *= feature_derivative<T>(load(rows_d + (i0 + r) * dp + c));
                });
                write_rows<T, N>(acc, dq, at + i0, min<int64_t>(TILE_ROWS, rows - i0), column, size.d);
            });
    }
    void keep(int64_t, const State<T>&) {}

    // Keys: dk, dv, and the gradients of the weights.
    void use(int64_t sequence, int64_t number, const State<T>& grad) {
        Piece<T> x(p, sequence, number, p.key_mask, p.key_count, index);
        RowView<T> k = x.rows(p.k), v = x.rows(p.v), dk = x.output(p.dk, size.d), dv = x.output(p.dv, size.e);
        transpose_plane(grad.plane[0]);
        T* d_weights = static_cast<T*>(p.d_distance_weights);
        if (d_weights) d_weights += sequence * (p.key_count + 1) + x.after + x.count;
        for (int64_t at = 0; at < x.count && !stopped(&p); at += BLOCK) {
            int64_t rows = min(BLOCK, x.count - at), padded = round_up(rows, TILE_ROWS);
            pack_features(rows_d, size.dp, k, at, rows, padded, size.d, p.elu);
            pack<T, false>(rows_e, size.ep, v, at, rows, padded, size.e);
            for (int64_t i0 = 0; i0 < rows; i0 += TILE_ROWS) {
                int64_t real = min<int64_t>(TILE_ROWS, rows - i0);
                T weight[TILE_ROWS], d_weight[TILE_ROWS];
                for (int r = 0; r < TILE_ROWS; r++)
                    weight[r] = p.distance_weights && r < real ? x.weights(at + i0)[-r] : T(1);
                value_gradients(dv, grad, at, i0, real, weight);
                key_gradients(dk, grad, at, i0, real, weight, d_weight);
                if (d_weights)
                    for (int64_t r = 0; r < real; r++) d_weights[-(at + i0 + r)] = d_weight[r];
            }
        }
    }
    void value_gradients(const RowView<T>& dv, const State<T>& grad, int64_t at, int64_t i0, int64_t real,
                         const T (&weight)[TILE_ROWS]) {
        for_each_tile<T>(0, size.ep, [&](auto& acc, int64_t column) INLINE {
            constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
            multiply<T, N>(acc, rows_d + i0 * size.dp, size.dp, grad.plane[0] + column, size.ep, size.d);
            for_each_in_tile<N>([&](int r, int j) INLINE { acc[r][j] *= weight[r]; });
            write_rows<T, N>(acc, dv, at + i0, real, column, size.e);
        });
    }
    void key_gradients(const RowView<T>& dk, const State<T>& grad, int64_t at, int64_t i0, int64_t real,
                       const T (&weight)[TILE_ROWS], T (&d_weight)[TILE_ROWS]) {
        int64_t dp = size.dp;
        Vec<T> products[TILE_ROWS] = {};
        for_each_tile<T>(0, dp, [&](auto& acc, int64_t column) INLINE {
            constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
            multiply<T, N>(acc, rows_e + i0 * size.ep, size.ep, transposed + column, dp, size.e);
            for_each_in_tile<N>([&](int r, int j) INLINE {
                int64_t c = column + j * width<T>;
                Vec<T> feature = load(rows_d + (i0 + r) * dp + c);
                if (p.d_distance_weights) products[r] += feature * acc[r][j];
                acc[r][j] = acc[r][j] * weight[r] + load(grad.z + c);
                if (p.elu) acc[r][j] *= feature_derivative<T>(feature);
            });
            write_rows<T, N>(acc, dk, at + i0, real, column, size.d);
        });
        sum_rows<T>(d_weight, products);
    }
};

}  // namespace
