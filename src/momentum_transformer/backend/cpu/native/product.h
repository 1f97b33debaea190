// A matrix multiplication of decoding: few rows, and weights that lie in panels in the order in which they are read.
#pragma once
#include <cmath>
#include "connect.h"
#include "program.h"

namespace {

constexpr int64_t PANEL = 32;  // columns
constexpr int64_t AHEAD = 64;  // rows of weights that are fetched early: they come from beyond the second-level cache

template <class T> inline Vec<T> activated(Vec<T> x, int64_t which) {
    if (which == 1) return x < T(0) ? Vec<T>{} : x;
    if (which == 2)
        for (int i = 0; i < width<T>; i++) x[i] = x[i] * T(0.5) * (1 + std::erf(x[i] * T(0.70710678118654752440)));
    return x;
}

template <class T> struct Panel {
    const Product& p;
    int64_t start;  // first column
    const T *weights, *next, *bias;
    Panel(const Product& p, int64_t i, int64_t following)  // following: which panel comes after it
        : p(p), start(i * PANEL), weights(static_cast<const T*>(p.weights) + start * p.inner),
          next(static_cast<const T*>(p.weights) + following * PANEL * p.inner),
          bias(static_cast<const T*>(p.bias) + start) {}

    // R rows and two vectors of columns. Meanwhile the memory brings weights: those of this panel while its first rows
    // are at work, those of the next one later.
    template <int R> inline __attribute__((always_inline)) void tile(int64_t row, int64_t column) const {
        constexpr int W = width<T>, N = 2, LINE = 64 / sizeof(T);
        int64_t inner = p.inner, i = 0;
        const T *x = static_cast<const T*>(p.x) + row * inner, *w = weights + column;
        const T* fetch = row ? next + (row / R - 1) * (inner / 4) * PANEL : weights + AHEAD * PANEL;
        int64_t lines = row ? 1 : 4;  // for each row of weights, in quarters of a row
        Vec<T> sum[R][N];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
            for (int j = 0; j < N; j++) sum[r][j] = load(bias + column + j * W);
        auto one = [&](int64_t i) INLINE {
            Vec<T> factor[N];
#pragma GCC unroll 2
            for (int j = 0; j < N; j++) factor[j] = load(w + i * PANEL + j * W);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++)
#pragma GCC unroll 2
                for (int j = 0; j < N; j++) sum[r][j] += x[r * inner + i] * factor[j];
        };
        for (; i + 4 <= inner; i += 4) {
            for (int64_t j = 0; j < lines * PANEL; j += LINE) __builtin_prefetch(fetch + j);
            fetch += lines * PANEL;
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) one(i + j);
        }
        for (; i < inner; i++) one(i);
        T* out = static_cast<T*>(p.out) + row * p.outer + start + column;
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
            for (int j = 0; j < N; j++) {
                int64_t left = p.outer - start - column - j * W;
                if (left > 0)
                    write_part<T>(out + r * p.outer + j * W, activated<T>(sum[r][j], p.activation),
                                  smaller<int64_t>(left, W));
            }
    }
    template <int R> void rows(int64_t row) const {
        for (int64_t column = 0; column < PANEL; column += 2 * width<T>) tile<R>(row, column);
    }
    void all() const {
        int64_t row = 0;
        for (; row + TILE_ROWS <= p.rows; row += TILE_ROWS) rows<TILE_ROWS>(row);
        if (TILE_ROWS > 4 && row + 4 <= p.rows) rows<4>(row), row += 4;
        if (row + 2 <= p.rows) rows<2>(row), row += 2;
        if (row < p.rows) rows<1>(row);
    }
};

}  // namespace
