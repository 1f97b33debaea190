// C += A B on tiles of eight rows: the one multiplication that everything here is made of.
#pragma once
#include "simd.h"

namespace {

#define INLINE __attribute__((always_inline))  // of a lambda

constexpr int ROWS = 8;

// acc[r][j] += Σ_p A(r, p) B[p][j]; A is stored by rows, or by columns (`Turned`). B is read along its rows.
template <class T, int R, int N, bool Turned>
inline __attribute__((always_inline)) void multiply_rows(Vec<T> (*acc)[N], const T* __restrict A, int64_t lda,
                                                         const T* __restrict B, int64_t ldb, int64_t depth) {
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
            Vec<T> a = splat(Turned ? A[p * lda + r] : A[r * lda + p]);
#pragma GCC unroll 4
            for (int j = 0; j < N; j++) c[r][j] += a * b[j];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) acc[r][j] = c[r][j];
}

template <class T, int N, bool Turned = false>
inline __attribute__((always_inline)) void multiply(Vec<T> (*acc)[N], const T* A, int64_t lda, const T* B, int64_t ldb, int64_t depth) {
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r += TILE_ROWS)
        multiply_rows<T, TILE_ROWS, N, Turned>(acc + r, Turned ? A + r : A + r * lda, lda, B, ldb, depth);
}

// f(acc, column, N) for tiles of two vectors, and of one at the end
template <class T, class F> inline __attribute__((always_inline)) void across(int64_t begin, int64_t end, F f) {
    int64_t x = begin;
    for (; x + 2 * width<T> <= end; x += 2 * width<T>) {
        Vec<T> acc[ROWS][2] = {};
        f(acc, x);
    }
    for (; x < end; x += width<T>) {
        Vec<T> acc[ROWS][1] = {};
        f(acc, x);
    }
}

// f(r, j) for each vector of a tile, written out, so that the tile stays in registers
template <int N, class F> inline __attribute__((always_inline)) void each(F f) {
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) f(r, j);
}

template <class T, int N> inline __attribute__((always_inline)) void load_tile(Vec<T> (&acc)[ROWS][N], const T* C, int64_t ldc) {
    each<N>([&](int r, int j) INLINE { acc[r][j] = load(C + r * ldc + j * width<T>); });
}
template <class T, int N> inline __attribute__((always_inline)) void store_tile(const Vec<T> (&acc)[ROWS][N], T* C, int64_t ldc) {
    each<N>([&](int r, int j) INLINE { store(C + r * ldc + j * width<T>, acc[r][j]); });
}

// The sums of eight vectors, each in the order of `sum`: two vectors become one with half as many terms a sum, …
template <class T, int S, int... L>
inline __attribute__((always_inline)) void halve(Vec<T>* x, int count, std::integer_sequence<int, L...> lanes) {
    constexpr int W = width<T>;
    if (count > 1) {
        count /= 2;
#pragma GCC unroll 8
        for (int i = 0; i < count; i++)
            x[i] = __builtin_shufflevector(x[i], x[i + count], from_low<S, W>(L)...) +
                   __builtin_shufflevector(x[i], x[i + count], from_high<S, W>(L)...);
    } else
        x[0] += __builtin_shufflevector(x[0], x[0], (L ^ S)...);
    if constexpr (S > 1) halve<T, S / 2>(x, count, lanes);
}
template <class T> inline __attribute__((always_inline)) void sum_rows(T (&sums)[ROWS], const Vec<T> (&rows)[ROWS]) {
    constexpr int W = width<T>, GROUP = W < ROWS ? W : ROWS;
#pragma GCC unroll 8
    for (int g = 0; g < ROWS; g += GROUP) {
        Vec<T> x[GROUP];
        T lanes[W];
        for (int r = 0; r < GROUP; r++) x[r] = rows[g + r];
        halve<T, W / 2>(x, GROUP, std::make_integer_sequence<int, W>{});
        store(lanes, x[0]);
        for (int r = 0; r < GROUP; r++) sums[g + r] = lanes[r * (W / GROUP)];
    }
}

// C (rows × columns) += A B, rows a multiple of eight, columns of the vector width
template <class T, bool Turned>
inline void accumulate(T* C, int64_t ldc, int64_t rows, int64_t columns, const T* A, int64_t lda, const T* B,
                       int64_t ldb, int64_t depth) {
    for (int64_t r = 0; r < rows; r += ROWS)
        across<T>(0, columns, [&](auto& acc, int64_t x) INLINE {
            load_tile(acc, C + r * ldc + x, ldc);
            multiply<T, sizeof(acc[0]) / sizeof(Vec<T>), Turned>(acc, Turned ? A + r : A + r * lda, lda, B + x, ldb,
                                                                 depth);
            store_tile(acc, C + r * ldc + x, ldc);
        });
}

}  // namespace
