// What Python hands over for decoding: all that happens to one token, in order. Mirrored in library.py.
#pragma once
#include "problem.h"

struct Product {  // out = activation(x · weights + bias); x (rows, inner), out (rows, outer)
    int64_t rows, inner, outer;
    int64_t activation;                // 0 none, 1 ReLU, 2 GELU
    const void *x, *weights, *bias;    // weights: (panels, inner, 32), bias: (panels, 32), with zeros in the last panel
    void* out;
};

struct Recall {  // one token of softmax attention: q, k, v (b, h, d | e) and all keys and values so far
    int64_t b, h, d, e, room;          // room: how many tokens the cache has place for
    double scale;
    Rows q, k, v, y;
    void *keys, *values;               // (b, h, room, d | e); k and v go there first
    const uint8_t* mask;               // (b, room): which tokens exist
    const int64_t* count;              // how many tokens are there before this one
};

struct Task {
    int64_t kind;      // 0 Product, 1 Step, 2 Recall, 3 Connect
    const void* what;
};

struct Program {
    int64_t count, threads;
    const Task* tasks;
};
