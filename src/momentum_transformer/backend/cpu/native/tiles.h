// Tiles of eight rows and one or two vectors of columns, held in registers: load, store, multiply, reduce.
#pragma once
#include "simd.h"

namespace {

constexpr int TILE_ROWS = 8;  // a multiple of REGISTER_ROWS

// Micro-kernel of R rows and N vectors: acc += A B. A is row-major, or column-major if `TransposedA`; B is row-major.
template <class T, int R, int N, bool TransposedA>
FORCE_INLINE void multiply_rows(Vec<T> (*acc)[N], const T* __restrict A, int64_t lda, const T* __restrict B,
                                int64_t ldb, int64_t depth) {
    Vec<T> c[R][N];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) c[r][j] = acc[r][j];
#pragma GCC unroll 2
    for (int64_t p = 0; p < depth; p++) {
        Vec<T> b[N];
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) b[j] = load(B + p * ldb + j * width<T>);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            Vec<T> a = splat(TransposedA ? A[p * lda + r] : A[r * lda + p]);
#pragma GCC unroll 4
            for (int j = 0; j < N; j++) c[r][j] += a * b[j];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) acc[r][j] = c[r][j];
}

template <class T, int N, bool TransposedA = false>
FORCE_INLINE void multiply(Vec<T> (*acc)[N], const T* A, int64_t lda, const T* B, int64_t ldb, int64_t depth) {
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r += REGISTER_ROWS)
        multiply_rows<T, REGISTER_ROWS, N, TransposedA>(acc + r, TransposedA ? A + r : A + r * lda, lda, B, ldb, depth);
}

// f(acc, column) for each tile of columns begin … end, with acc zero: tiles are two vectors wide, the last may be one.
template <class T, class F> FORCE_INLINE void for_each_tile(int64_t begin, int64_t end, F f) {
    int64_t x = begin;
    for (; x + 2 * width<T> <= end; x += 2 * width<T>) {
        Vec<T> acc[TILE_ROWS][2] = {};
        f(acc, x);
    }
    for (; x < end; x += width<T>) {
        Vec<T> acc[TILE_ROWS][1] = {};
        f(acc, x);
    }
}

// f(row, j) for each vector of a tile, fully unrolled, so that the tile stays in registers.
template <int N, class F> FORCE_INLINE void for_each_in_tile(F f) {
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) f(r, j);
}

template <class T, int N> FORCE_INLINE void load_tile(Vec<T> (&acc)[TILE_ROWS][N], const T* C, int64_t ldc) {
    for_each_in_tile<N>([&](int r, int j) INLINE { acc[r][j] = load(C + r * ldc + j * width<T>); });
}
template <class T, int N> FORCE_INLINE void store_tile(const Vec<T> (&acc)[TILE_ROWS][N], T* C, int64_t ldc) {
    for_each_in_tile<N>([&](int r, int j) INLINE { store(C + r * ldc + j * width<T>, acc[r][j]); });
}

// Horizontal sums of TILE_ROWS vectors at once, each in the order of `horizontal_sum`. Each round adds halves and
// merges pairs of vectors, until one vector is left; from then on it adds halves of that one.
template <class T, int S, int... L>
FORCE_INLINE void reduce_pairs(Vec<T>* x, int count, std::integer_sequence<int, L...> lanes) {
    constexpr int W = width<T>;
    if (count > 1) {
        count /= 2;
#pragma GCC unroll 8
        for (int i = 0; i < count; i++)
            x[i] = __builtin_shufflevector(x[i], x[i + count], from_low<S, W>(L)...) +
                   __builtin_shufflevector(x[i], x[i + count], from_high<S, W>(L)...);
    } else
        x[0] += __builtin_shufflevector(x[0], x[0], (L ^ S)...);
    if constexpr (S > 1) reduce_pairs<T, S / 2>(x, count, lanes);
}
template <class T> FORCE_INLINE void sum_rows(T (&sums)[TILE_ROWS], const Vec<T> (&rows)[TILE_ROWS]) {
    constexpr int W = width<T>, GROUP = W < TILE_ROWS ? W : TILE_ROWS;
#pragma GCC unroll 8
    for (int g = 0; g < TILE_ROWS; g += GROUP) {
        Vec<T> x[GROUP];
        T lanes[W];
        for (int r = 0; r < GROUP; r++) x[r] = rows[g + r];
        reduce_pairs<T, W / 2>(x, GROUP, std::make_integer_sequence<int, W>{});
        store(lanes, x[0]);
        for (int r = 0; r < GROUP; r++) sums[g + r] = lanes[r * (W / GROUP)];
    }
}

// C (rows × columns) = A B; rows is a multiple of TILE_ROWS, columns of the vector width.
template <class T>
inline void product(T* C, int64_t ldc, int64_t rows, int64_t columns, const T* A, int64_t lda, const T* B, int64_t ldb,
                    int64_t depth) {
    for (int64_t r = 0; r < rows; r += TILE_ROWS)
        for_each_tile<T>(0, columns, [&](auto& acc, int64_t x) INLINE {
            multiply<T, sizeof(acc[0]) / sizeof(Vec<T>)>(acc, A + r * lda, lda, B + x, ldb, depth);
            store_tile(acc, C + r * ldc + x, ldc);
        });
}
// C (TILE_ROWS × TILE_ROWS) = A B, in vectors that are no longer than its rows.
template <class T>
inline void square_product(T* C, int64_t ldc, const T* A, int64_t lda, const T* B, int64_t ldb, int64_t depth) {
    constexpr int L = width<T> < TILE_ROWS ? width<T> : TILE_ROWS;
    using V = typename VectorOf<T, L>::V;
    for (int64_t x = 0; x < TILE_ROWS; x += L) {
        V acc[TILE_ROWS] = {};
#pragma GCC unroll 2
        for (int64_t p = 0; p < depth; p++) {
            V b;
            __builtin_memcpy(&b, B + p * ldb + x, sizeof b);
#pragma GCC unroll 8
            for (int r = 0; r < TILE_ROWS; r++) acc[r] += A[r * lda + p] * b;
        }
#pragma GCC unroll 8
        for (int r = 0; r < TILE_ROWS; r++) __builtin_memcpy(C + r * ldc + x, &acc[r], sizeof acc[r]);
    }
}
// The sum of all products of elements of two matrices; rows is a multiple of 4.
template <class T> inline T dot_product(const T* a, const T* b, int64_t rows, int64_t columns, int64_t ld) {
    constexpr int R = 4;
    Vec<T> sum[R] = {};
    for (int64_t row = 0; row < rows; row += R)
        for (int64_t at = row * ld; at < row * ld + columns; at += width<T>)
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) sum[r] += load(a + at + r * ld) * load(b + at + r * ld);
    return horizontal_sum<T>((sum[0] + sum[1]) + (sum[2] + sum[3]));
}
// C += A B likewise.
template <class T, bool TransposedA>
inline void accumulate(T* C, int64_t ldc, int64_t rows, int64_t columns, const T* A, int64_t lda, const T* B,
                       int64_t ldb, int64_t depth) {
    for (int64_t r = 0; r < rows; r += TILE_ROWS)
        for_each_tile<T>(0, columns, [&](auto& acc, int64_t x) INLINE {
            load_tile(acc, C + r * ldc + x, ldc);
            constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
            multiply<T, N, TransposedA>(acc, TransposedA ? A + r : A + r * lda, lda, B + x, ldb, depth);
            store_tile(acc, C + r * ldc + x, ldc);
        });
}

}  // namespace
