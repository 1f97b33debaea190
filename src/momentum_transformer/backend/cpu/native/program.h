// The arguments of decoding as Python passes them: the tasks of one token, in order. Mirrored in library.py.
#pragma once
#include "problem.h"

// In the order of ACTIVATIONS in decoding/program.py.
enum Activation : int64_t { ACTIVATION_NONE, ACTIVATION_RELU, ACTIVATION_GELU, ACTIVATION_SILU };

struct Linear {  // out = activation(x · weights + bias) · factor: x (rows, in_features), out (rows, out_features)
    int64_t rows, in_features, out_features;
    int64_t stride;  // from one row of x to the next
    int64_t activation;
    const void* x;
    const void* weights;  // packed in panels: (panels, in_features, 32), the last one padded with zeros
    const void* bias;     // (panels, 32)
    const void* factor;   // like out, or null for none
    void* out;
};

// In the order of GATES in decoding/program.py.
enum GateKind : int64_t { GATE_STRENGTH, GATE_STEP_SIZE, GATE_DECAY };
constexpr int64_t MOST_GATES = 4;

struct Gate {  // one coefficient, computed from x for each row and head
    int64_t kind;         // most · sigmoid(logit), softplus(logit) or exp(-rate · softplus(logit + offset))
    int64_t complement;   // another gate g: the value is multiplied by 1 - g; -1: none
    double most;
    const void* logits;   // of the first row
    const void *rate, *offset;  // (h,)
    void* out;            // (b, h)
};

struct Gates : Heads {
    int64_t count;
    int64_t stride;       // from the logits of one row to the next
    Gate gates[MOST_GATES];
};

struct Convolution : Heads {  // short convolution of q, k and v, channel by channel, in place
    int64_t d, taps;
    int64_t silu;         // whether SiLU follows
    int64_t stride;       // from one row of x to the next
    void* x;              // (b, 3, h, d)
    const void* weights;  // (h, 3, taps, d), the oldest token first
    void* past;           // (b, h, 3, taps - 1, d)
};

struct NormAndGate : Heads {  // y (b, h, e) ← RMSNorm(y) · sigmoid(logits)
    int64_t e;
    int64_t stride;       // from the logits of one row to the next
    double eps;
    const void* weight;   // (e,) of the norm, or null for none
    const void* logits;   // (b, h, e), or null for no gate
    void* y;
};

struct CachedAttention : Heads {  // one token of softmax attention with a KV cache: q, k (b, h, d), v, y (b, h, e)
    int64_t d, e;
    int64_t capacity;               // tokens that the cache can hold; the next one takes the place of the oldest
    int64_t given;                  // tokens in the cache before the first step
    double scale;
    TensorView q, k, v, y;
    void *key_cache, *value_cache;  // (b, h, capacity, d) and (b, h, capacity, e); k and v are added first
    const uint8_t* mask;            // (b, capacity) 1 for given tokens that are not padding
    const int64_t* steps;           // steps before this one
};

struct ResidualNorm {  // out = norm(x + γv), v ← βv + update (eq. 15), for rows of x, update, v and out
    int64_t rows, width;
    int64_t first_layer;          // whether there is no velocity yet: what v holds is ignored
    double beta;                  // with `previous_update` (adaptive momentum, eq. 18): the upper bound of β
    double gamma, eps;
    const void *x, *update;       // update: or null for zeros
    const void* previous_update;  // the update of the layer before, or null for a constant β
    const void *weight, *bias;    // of a LayerNorm; without bias of an RMSNorm; without weight there is no norm
    void* velocity;               // v, or null for a plain residual
    void* out;
};

// In the order of TASKS in library.py.
enum TaskKind : int64_t {
    TASK_LINEAR,
    TASK_STEP,
    TASK_CACHED_ATTENTION,
    TASK_RESIDUAL_NORM,
    TASK_CONVOLUTION,
    TASK_GATES,
    TASK_NORM_AND_GATE
};

struct Task {
    int64_t kind;
    int64_t chained;     // whether each head needs only its own result of the task before: no barrier between the two
    const void* params;  // the structure of this kind
};

struct Program {
    int64_t count, threads;
    const Task* tasks;
};
