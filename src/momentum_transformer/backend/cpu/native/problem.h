// What Python hands over: one causal attention, forward or backward. Mirrored by `Problem` in library.py.
#pragma once
#include <cstdint>

struct Rows {          // a (b, h, n, d) tensor whose last axis is contiguous
    void* data;
    int64_t b, h, n;   // strides in elements
};

struct Problem {
    int64_t b, h, n, d, e;
    int64_t segment;                 // tokens
    int64_t divide, sum_segments;    // whether several threads share a sequence; whether s is summed segment by segment
    int64_t table_heads;             // 1, or h where each head has coefficients of its own
    int64_t elu, normalize, threads;
    int64_t dtype;                   // of q, k, v, y: float32, float64, bfloat16, float16; all else is as wide or float32
    double eps;

    Rows q, k, v, y;
    void* denominator;     // (b, h, n), or null
    const int32_t* rows;   // (b, n) places of the tokens that exist, or null
    const int32_t* count;  // (b,)   how many

    const double* beta;  // (table_heads,), or null: linear attention, whose state has one lane, s; else s and m
    const double* gamma;

    const void* s;    // (b, h, lanes, d, e) before the first token, or null for zeros
    const void* z;    // (b, h, d)
    void* s_after;    // or null
    void* z_after;
    void* prefix;     // (b, h, segments, lanes · d · e + d) at the start of each segment, or null

    // backward only
    Rows dy, dq, dk, dv;
    const void* ds_after;  // or null
    const void* dz_after;
    void* ds;              // or null
    void* dz;
    double* d_coefficients;  // (b, h, 2): gradients of β and γ; or null

    // without causal order only
    int64_t m;                  // keys
    const uint8_t* key_mask;    // (b, m) which of them exist, or null
    const uint8_t* query_mask;  // (b, n)
    const void* by_age;         // (table_heads, m + 1) weight of the r-th key from the end, or null for ones
};

struct Step {  // one token: q, k, v (b, h, d | e), state (b, h, d, e) and (b, h, d)
    int64_t b, h, d, e, lanes, table_heads, elu, normalize, threads;
    double eps;
    Rows q, k, v, y;
    const double* beta;   // (table_heads,)
    const double* gamma;
    const void *m, *s, *z;
    void *m_after, *s_after, *z_after;  // may be m, s, z themselves
};

struct Connect {  // rows of x and of its update: out = x + γv, v = βv + update, normalised where there is a weight
    int64_t rows, width, first;         // first: there is no velocity yet
    double beta, gamma, eps;            // beta: with `previous`, the largest it may become
    const void *x, *update, *previous;  // update: or null; previous: the update of the layer before, or null
    const void *weight, *bias;          // or null
    void *velocity, *out;               // velocity: or null, for a plain residual
};
