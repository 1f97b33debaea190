// The arguments of decoding as Python passes them: the tasks of one token, in order. Mirrored in library.py.
#pragma once
#include "problem.h"

// In the order of ACTIVATIONS in decoding/program.py.
enum Activation : int64_t { ACTIVATION_NONE, ACTIVATION_RELU, ACTIVATION_GELU };

struct Linear {  // out = activation(x · weights + bias), with x (rows, in_features) and out (rows, out_features)
    int64_t rows, in_features, out_features;
    int64_t activation;
    const void* x;
    const void* weights;  // packed in panels: (panels, in_features, 32), the last one padded with zeros
    const void* bias;     // (panels, 32)
    void* out;
};

struct CachedAttention {  // one token of softmax attention with a KV cache: q, k (b, h, d), v, y (b, h, e)
    int64_t b, h, d, e;
    int64_t capacity;               // tokens that the cache can hold
    double scale;
    TensorView q, k, v, y;
    void *key_cache, *value_cache;  // (b, h, capacity, d) and (b, h, capacity, e); k and v are appended first
    const uint8_t* mask;            // (b, capacity) 1 for tokens that exist
    const int64_t* length;          // tokens in the cache before this one
};

struct ResidualNorm {  // out = LayerNorm(x + γv), v ← βv + update (eq. 15), for rows of x, update, v and out
    int64_t rows, width;
    int64_t first_layer;          // whether velocity holds nothing yet
    double beta;                  // with `previous_update` (adaptive momentum, eq. 18): the upper bound of β
    double gamma, eps;
    const void *x, *update;       // update: or null for zeros
    const void* previous_update;  // the update of the layer before, or null for a constant β
    const void *weight, *bias;    // of the LayerNorm, or null for none
    void* velocity;               // v, or null for a plain residual
    void* out;
};

// In the order of TASKS in library.py.
enum TaskKind : int64_t { TASK_LINEAR, TASK_STEP, TASK_CACHED_ATTENTION, TASK_RESIDUAL_NORM };

struct Task {
    int64_t kind;
    const void* params;  // a Linear, Step, CachedAttention or ResidualNorm
};

struct Program {
    int64_t count, threads;
    const Task* tasks;
};
