// Rows between tensors and padded blocks: pack with the feature map applied, and write tiles of results back.
#pragma once
#include "sequence.h"

namespace {

// Packs `rows` rows of `from`, which are stored as S, into rows of `width_padded` elements with zeros behind the last
// column. `Map` applies the feature map φ = elu + 1.
template <class T, bool Map, class S>
void pack_stored(T* to, int64_t width_padded, const RowView<T>& from, int64_t begin, int64_t rows, int64_t columns) {
    constexpr int W = width<T>;
    int64_t whole = round_down(columns, W), left = columns - whole;
    for (int64_t i = 0; i < rows; i++) {
        const S* row = from.template row<S>(begin + i);
        T* out = to + i * width_padded;
        for (int64_t x = 0; x < whole; x += W) {
            Vec<T> value = load_as<T>(row + x);
            store(out + x, Map ? elu_plus_one<T>(value) : value);
        }
    }
    if (whole == width_padded) return;
    for (int64_t i = 0; i < rows; i++) {
        T* out = to + i * width_padded;
        Vec<T> value = load_partial<T>(from.template row<S>(begin + i) + whole, left);
        store(out + whole, Map ? (lane_mask<T>(left) ? elu_plus_one<T>(value) : Vec<T>{}) : value);
        for (int64_t x = whole + W; x < width_padded; x += W) store(out + x, Vec<T>{});
    }
}
// The same for any storage, with rows of zeros up to `padded` rows.
template <class T, bool Map>
inline void pack(T* to, int64_t width_padded, const RowView<T>& from, int64_t begin, int64_t rows, int64_t padded,
                 int64_t columns) {
    if (from.storage == FULL_WIDTH)
        pack_stored<T, Map, T>(to, width_padded, from, begin, rows, columns);
    else if constexpr (sizeof(T) == sizeof(float)) {
        if (from.storage == BFLOAT16)
            pack_stored<T, Map, bfloat16>(to, width_padded, from, begin, rows, columns);
        else
            pack_stored<T, Map, float16>(to, width_padded, from, begin, rows, columns);
    }
    if (padded > rows) memset(to + rows * width_padded, 0, (padded - rows) * width_padded * sizeof(T));
}
template <class T>
inline void pack_features(T* to, int64_t width_padded, const RowView<T>& from, int64_t begin, int64_t rows,
                          int64_t padded, int64_t columns, bool elu) {
    if (elu)
        pack<T, true>(to, width_padded, from, begin, rows, padded, columns);
    else
        pack<T, false>(to, width_padded, from, begin, rows, padded, columns);
}

// Packs rows of dy, each times its `factor`, into G, and the dot products dy · y of the unscaled rows into `products`.
template <class T, class S>
void pack_gradients(T* G, T* products, const RowView<T>& dy, const RowView<T>& y, int64_t begin, int64_t rows,
                    int64_t columns, int64_t width_padded, const T* factor) {
    constexpr int W = width<T>;
    for (int64_t i0 = 0; i0 < rows; i0 += TILE_ROWS) {
        Vec<T> dots[TILE_ROWS] = {};
        int64_t real = min<int64_t>(TILE_ROWS, rows - i0);
        for (int64_t r = 0; r < real; r++) {
            const S *from = dy.template row<S>(begin + i0 + r), *out = y.template row<S>(begin + i0 + r);
            T *to = G + (i0 + r) * width_padded, scale = factor[i0 + r];
            Vec<T> dot{};
            int64_t x = 0;
            for (; x + W <= columns; x += W) {
                Vec<T> g = load_as<T>(from + x);
                dot += g * load_as<T>(out + x);
                store(to + x, g * scale);
            }
            for (; x < width_padded; x += W) {
                int64_t left = columns > x ? columns - x : 0;
                Vec<T> g = load_partial<T>(from + x, left);
                dot += g * load_partial<T>(out + x, left);
                store(to + x, g * scale);
            }
            dots[r] = dot;
        }
        T sums[TILE_ROWS];
        sum_rows<T>(sums, dots);
        memcpy(products + i0, sums, sizeof sums);
    }
}

// to += the sum of `count` rows
template <class T> inline void add_rows(T* to, const T* rows, int64_t count, int64_t columns) {
    constexpr int W = width<T>;
    for (int64_t x = 0; x < columns; x += W) {
        Vec<T> total = load(to + x);
        for (int64_t i = 0; i < count; i++) total += load(rows + i * columns + x);
        store(to + x, total);
    }
}

// Row i of `to` is row i of `from` times weight[i · step].
template <class T>
inline void scale_rows(T* to, const T* from, int64_t rows, int64_t columns, const T* weight, int step) {
    constexpr int W = width<T>;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t x = 0; x < columns; x += W)
            store(to + i * columns + x, load(from + i * columns + x) * weight[i * step]);
}

template <class T, class S> inline void write_stored(S* to, Vec<T> x, int64_t columns) {
    if (columns >= width<T>)
        store_as<T>(to, x);
    else
        store_partial<T>(to, x, columns);
}
template <class T>
__attribute__((noinline)) void write_narrow(const RowView<T>& to, int64_t row, int64_t at, Vec<T> x, int64_t columns) {
    if constexpr (sizeof(T) == sizeof(float)) {
        if (to.storage == BFLOAT16)
            write_stored<T>(to.template row<bfloat16>(row) + at, x, columns);
        else
            write_stored<T>(to.template row<float16>(row) + at, x, columns);
    }
}
// The slow path of `write_rows`: tiles beyond the last row or column, indexed rows, and narrow types.
template <class T, int N>
__attribute__((noinline)) void write_rows_slow(const Vec<T> (&acc)[TILE_ROWS][N], const RowView<T>& to, int64_t begin,
                                               int64_t rows, int64_t x, int64_t columns) {
    for_each_in_tile<N>([&](int r, int j) INLINE {
        int64_t at = x + j * width<T>;
        if (r >= rows || at >= columns) return;
        if (to.storage == FULL_WIDTH)
            write_stored<T>(to.template row<T>(begin + r) + at, acc[r][j], columns - at);
        else
            write_narrow<T>(to, begin + r, at, acc[r][j], columns - at);
    });
}
// Writes the tile whose first row is `begin` and whose first column is x, cut off at `rows` rows and at column
// `columns`.
template <class T, int N>
FORCE_INLINE void write_rows(const Vec<T> (&acc)[TILE_ROWS][N], const RowView<T>& to, int64_t begin, int64_t rows,
                             int64_t x, int64_t columns) {
    T* at = reinterpret_cast<T*>(to.data + begin * to.stride) + x;
    int64_t ld = to.stride / (int64_t)sizeof(T);
    bool whole = rows == TILE_ROWS && x + N * width<T> <= columns;
    if (N * VECTOR_BYTES >= 64 && whole && to.nontemporal) {
        for_each_in_tile<N>([&](int r, int j) INLINE { store_nontemporal(at + r * ld + j * width<T>, acc[r][j]); });
    } else if (whole && !to.index && to.storage == FULL_WIDTH) {
        store_tile(acc, at, ld);
    } else {
        Vec<T> tile[TILE_ROWS][N];
        for_each_in_tile<N>([&](int r, int j) INLINE { tile[r][j] = acc[r][j]; });
        write_rows_slow<T, N>(tile, to, begin, rows, x, columns);
    }
}

}  // namespace
