// The arguments of what stands around a recurrence, as Python passes them: plain structures, mirrored in library.py.
//
// Shapes: b batch, h heads, n tokens, d width of a head, c channels of a token. A TensorView of lines (b, n, c) has no
// stride h. Weights are float32, or float64 where x is.
#pragma once
#include "problem.h"

struct LineConvolution {  // a short causal convolution, each channel by itself
    int64_t b, n, c, taps, silu, threads, dtype;
    int64_t turned;                // channels from this one on run from the last token to the first
    TensorView x, y;               // lines
    const void* weight;            // (c, taps), the token itself last
    const void* bias;              // (c,), or null
    const uint8_t *mask, *reset;   // (b, n) 1 for tokens that exist, 1 where a document begins; or null
    const void* past;              // (b, taps - 1, c) the tokens before, the latest last; or null
    void* after;                   // the same behind the last token, or null

    // backward only
    TensorView dy, dx;    // lines
    const void* d_after;  // or null
    void* d_past;         // or null
    void* d_parts;        // (b, taps + 1, c) gradients of the weight, the token itself first, and bias in each sequence
    void* d_weight;       // (c, taps) their sum
    void* d_bias;         // (c,), or null

    const uint8_t* stop;  // as in Problem
};
inline bool stopped(const LineConvolution* p) { return stop_requested(p->stop); }

// The function of a gate, and whether it comes after the norm or first: in the order of GATINGS in ops/row_norm.py.
enum Gating : int64_t { GATING_SIGMOID, GATING_SILU, GATING_SILU_FIRST };

struct RowNorm {  // rows x / √(Σx² + eps), or of the mean of x², times weight; gated before or after
    int64_t b, h, n, d, mean, gating, threads, dtype;
    double eps;
    TensorView x, gate, y;  // (b, h, n, d); gate may have no data
    const void* weight;     // (d,), or null

    // backward only
    TensorView dy, dx, d_gate;
    void* d_weight;  // (b, parts of n, d) partial sums, or null

    const uint8_t* stop;  // as in Problem
};
inline bool stopped(const RowNorm* p) { return stop_requested(p->stop); }
constexpr int64_t NORM_TOKENS = 64;  // in a part of n; as in row_norm_operator.py

struct ConvolutionStep {  // one token of a short convolution, contiguous, of a cache in the layout of Transformers
    int64_t b, c, taps, kept, silu, threads, dtype;
    const void* x;       // (b, c)
    const void* weight;  // (c, taps), the token itself last
    const void* bias;    // (c,), or null
    void* cache;         // (b, c, kept) the last tokens, the latest last; kept >= taps - 1
    void* y;             // (b, c)
};

struct StateStep {  // one token of Mamba-2's recurrence, contiguous; the heads of a group share keys and queries
    int64_t b, h, g, e, s, softplus, threads, dtype;
    const void* x;                            // (b, h, e)
    const void *k, *q;                        // (b, g, s)
    const void* dt;                           // (b, h), like the next three float32, or float64 where x is
    const void *dt_bias, *rate, *skip;        // (h,) each; the first and the last may be null
    void* state;                              // (b, h, e, s)
    void* y;                                  // (b, h, e)
};
