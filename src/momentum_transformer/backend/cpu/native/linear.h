// A linear layer of decoding: few rows, and weights packed in panels, so that they are read from memory in sequence.
#pragma once
#include <cmath>
#include "head_parts.h"

namespace {

constexpr int64_t PANEL_COLUMNS = 32;  // columns of weights in a panel, as PANEL in decoding/program.py
constexpr int64_t PREFETCH_ROWS = 64;  // prefetch distance in rows of a panel: weights come from beyond the L2 cache

template <class T> inline Vec<T> activate(Vec<T> x, int64_t activation) {
    if (activation == ACTIVATION_RELU) return x < T(0) ? Vec<T>{} : x;
    if (activation == ACTIVATION_SILU) return x * sigmoid<T>(x);
    if (activation == ACTIVATION_GELU)
        for (int i = 0; i < width<T>; i++) x[i] = x[i] * T(0.5) * (1 + std::erf(x[i] * T(0.70710678118654752440)));
    return x;
}

template <class T> struct Panel {
    const Linear& p;
    int64_t start;                   // first column
    const T *weights, *next, *bias;  // next: the weights of the panel that this thread takes after this one
    Panel(const Linear& p, int64_t i, int64_t next_panel)
        : p(p), start(i * PANEL_COLUMNS), weights(static_cast<const T*>(p.weights) + start * p.in_features),
          next(static_cast<const T*>(p.weights) + next_panel * PANEL_COLUMNS * p.in_features),
          bias(static_cast<const T*>(p.bias) + start) {}

    // R rows and two vectors of columns. The first rows prefetch weights of this panel, PREFETCH_ROWS ahead; by then it
    // is in the cache, and later rows prefetch the next panel, a quarter each.
    template <int R> FORCE_INLINE void tile(int64_t row, int64_t column) const {
        constexpr int W = width<T>, N = 2, LINE = 64 / sizeof(T);
        int64_t in_features = p.in_features, stride = p.stride, i = 0;
        const T *x = static_cast<const T*>(p.x) + row * p.stride, *w = weights + column;
        const T* prefetch = row ? next + (row / R - 1) * (in_features / 4) * PANEL_COLUMNS
                                : weights + PREFETCH_ROWS * PANEL_COLUMNS;
        int64_t prefetch_rows = row ? 1 : 4;  // for every four rows of weights that are multiplied
        Vec<T> sum[R][N];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
            for (int j = 0; j < N; j++) sum[r][j] = load(bias + column + j * W);
        auto multiply_add = [&](int64_t i) INLINE {
            Vec<T> factor[N];
#pragma GCC unroll 2
            for (int j = 0; j < N; j++) factor[j] = load(w + i * PANEL_COLUMNS + j * W);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++)
#pragma GCC unroll 2
                for (int j = 0; j < N; j++) sum[r][j] += x[r * stride + i] * factor[j];
        };
        for (; i + 4 <= in_features; i += 4) {
            for (int64_t j = 0; j < prefetch_rows * PANEL_COLUMNS; j += LINE) __builtin_prefetch(prefetch + j);
            prefetch += prefetch_rows * PANEL_COLUMNS;
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) multiply_add(i + j);
        }
        for (; i < in_features; i++) multiply_add(i);
        int64_t at = row * p.out_features + start + column;
        const T* factor = p.factor ? static_cast<const T*>(p.factor) + at : nullptr;
        T* out = static_cast<T*>(p.out) + at;
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
            for (int j = 0; j < N; j++) {
                int64_t left = min<int64_t>(p.out_features - start - column - j * W, W);
                if (left <= 0) continue;
                Vec<T> y = activate<T>(sum[r][j], p.activation);
                if (factor) y *= load_tail<T>(factor + r * p.out_features + j * W, left);
                store_tail<T>(out + r * p.out_features + j * W, y, left);
            }
    }
    template <int R> void rows(int64_t row) const {
        for (int64_t column = 0; column < PANEL_COLUMNS; column += 2 * width<T>) tile<R>(row, column);
    }
    void run() const {
        int64_t row = 0;
        for (; row + REGISTER_ROWS <= p.rows; row += REGISTER_ROWS) rows<REGISTER_ROWS>(row);
        if (REGISTER_ROWS > 4 && row + 4 <= p.rows) rows<4>(row), row += 4;
        if (row + 2 <= p.rows) rows<2>(row), row += 2;
        if (row < p.rows) rows<1>(row);
    }
};

}  // namespace
