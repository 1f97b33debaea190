// The arguments of the attention kernels as Python passes them: plain structures, mirrored in library.py.
//
// Shapes: b batch, h heads, n tokens, d width of queries and keys, e width of values. The state of a head is a matrix s
// (d × e) and a vector z (d); momentum attention has a second matrix m. The matrices are the planes of the state: s is
// plane 0, m is plane 1. States, denominators and weights are float32, or float64 where q is.
#pragma once
#include <cstdint>

// In the order of DTYPES in causal_operator.py.
enum Dtype : int64_t { DTYPE_FLOAT32, DTYPE_FLOAT64, DTYPE_BFLOAT16, DTYPE_FLOAT16 };

struct TensorView {    // a (b, h, n, d) tensor whose last axis is contiguous
    void* data;
    int64_t b, h, n;   // strides of the other axes, in elements
};

struct Problem {  // one call of attention, forward or backward: causal, or bidirectional
    int64_t b, h, n, d, e;
    int64_t segment;            // tokens per segment: states are kept, and sequences split, at segment boundaries
    int64_t split_sequence;     // whether the segments of one sequence are spread over threads
    int64_t sum_segments;       // whether s is summed segment by segment (blocked summation), which rounds less
    int64_t coefficient_heads;  // how many β and γ there are: 1, or h for one per head
    int64_t elu, normalize, threads;
    int64_t dtype;              // of q, k, v, y and their gradients
    double eps;                 // added to the denominator

    TensorView q, k, v, y;
    void* denominator;           // (b, h, n), or null
    const int32_t* token_index;  // (b, n) positions of the tokens that are not masked, in order; or null: all tokens
    const int32_t* token_count;  // (b,)   how many of them there are

    const double* beta;   // (coefficient_heads,), or null for linear attention, whose state has one plane
    const double* gamma;  // (coefficient_heads,)

    const void* s;  // (b, h, planes, d, e) state before the first token, or null for zeros
    const void* z;  // (b, h, d)
    void* s_after;  // the same after the last token, or null
    void* z_after;
    void* prefix;   // (b, h, segments, planes · d · e + d) state before each segment, or null

    // backward only
    TensorView dy, dq, dk, dv;
    const void* ds_after;    // gradient of s_after, or null
    const void* dz_after;
    void* ds;                // gradient of s, or null
    void* dz;
    double* d_coefficients;  // (b, h, 2) gradients of β and γ, or null

    // bidirectional only
    int64_t key_count;             // keys, where n counts queries
    const uint8_t* key_mask;       // (b, key_count) 1 for keys that exist, or null
    const uint8_t* query_mask;     // (b, n)
    const void* distance_weights;  // (coefficient_heads, key_count + 1) weight of the r-th key from the end, or null
    void* d_distance_weights;      // (b, h, key_count + 1), or null

    const uint8_t* stop;  // another thread sets this to 1 to cancel the call; or null
};

// Whether the call was cancelled: kernels then return early, and nobody reads the result. Short calls cannot be.
inline bool stop_requested(const uint8_t* stop) { return stop && __atomic_load_n(stop, __ATOMIC_RELAXED); }
inline bool stopped(const Problem* p) { return stop_requested(p->stop); }
inline bool stopped(const void*) { return false; }

// The coefficients of the family, in the order of Coefficients in ops/coefficients.py.
enum CoefficientName { ALPHA, BETA, GAMMA, ETA, DELTA, LOOKAHEAD, COEFFICIENTS };

struct Coefficient {      // a constant, or a number per token; both null: the neutral value
    const double* heads;  // (coefficient_heads,), or null
    const void* tokens;   // (b, h, n), or for each channel of alpha (b, h, n, d); or null
};

struct CoefficientGradient {  // in the layout of the coefficient; null where it is not needed
    double* heads;            // (b, h)
    void* tokens;
};

struct FamilyProblem : Problem {  // one call of a member of the family; β and γ are among its coefficients
    int64_t channels;             // whether alpha has one number for each channel
    Coefficient coefficients[COEFFICIENTS];
    TensorView erase;         // p (b, h, n, d), or no data: the features of k
    const uint8_t* reset;     // (b, n) 1 where a document begins, or null
    void* predictions;        // (b, h, n, e) what the state predicted at each token that is not masked; or null
    TensorView d_erase;       // backward only, as is d_family
    CoefficientGradient d_family[COEFFICIENTS];
};

// In the order of FEATURES in step_operator.py.
enum Features : int64_t { FEATURES_GIVEN, FEATURES_ELU, FEATURES_L2 };

struct Heads {  // the arguments of a kernel that computes one head of one sequence at a time
    int64_t b, h;
};

struct Step : Heads {  // one token of any member: q, k (b, h, d), v, y (b, h, e); m, s (b, h, d, e), z (b, h, d)
    int64_t d, e;
    int64_t coefficient_heads;  // length of `heads` in the coefficients: 1, or h for one per head
    int64_t channels;           // whether alpha has one number for each channel
    int64_t features, normalize, threads;
    int64_t check;              // whether to check first that the per-token coefficients are in range
    double eps, scale;          // scale: what y is multiplied by
    TensorView q, k, v, y;
    TensorView erase;           // p (b, h, d), or no data: the features of k
    Coefficient coefficients[COEFFICIENTS];  // `tokens` are (b, h), or for each channel of alpha (b, h, d)
    const void *m, *s, *z;              // m: null without momentum; z: null where it is not kept
    void *m_after, *s_after, *z_after;  // may be m, s, z themselves: an update in place
};
