// One decoded token on the caches of Transformers, in their layout: a short convolution, and Mamba-2's recurrence, a
// scalar decay on a state of values × keys. Both update their cache in place.
#pragma once
#include <cmath>
#include "lanes.h"
#include "surroundings.h"

namespace {

template <class T> inline T number(T x) { return x; }
inline float number(float16 x) { return float(x); }
inline float number(bfloat16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

template <class T> struct ConvolutionSteps {  // a task is a sequence
    const ConvolutionStep& p;
    T* line;  // the convolved token, all channels

    ConvolutionSteps(const ConvolutionStep& p, Arena& arena) : p(p), line(arena.take<T>(p.c + width<T>)) {}

    template <class S> void step(int64_t b) {
        const T *weight = static_cast<const T*>(p.weight), *bias = static_cast<const T*>(p.bias);
        const S* x = static_cast<const S*>(p.x) + b * p.c;
        S *cache = static_cast<S*>(p.cache) + b * p.c * p.kept, *y = static_cast<S*>(p.y) + b * p.c;
        for (int64_t i = 0; i < p.c; i++) {
            S* tokens = cache + i * p.kept;  // the latest last
            const T* w = weight + i * p.taps;
            T sum = bias ? bias[i] : T(0);
            for (int64_t r = 1; r < p.taps; r++) sum += w[r - 1] * T(number(tokens[p.kept - p.taps + r]));
            line[i] = sum + w[p.taps - 1] * T(number(x[i]));
            memmove(tokens, tokens + 1, (p.kept - 1) * sizeof(S));
            tokens[p.kept - 1] = x[i];
        }
        for_each_lanes<T>(p.c, [&](int64_t i, int64_t some) INLINE {
            Vec<T> z = load(line + i);
            store_lanes<T>(y + i, p.silu ? z * logistic<T>(z) : z, some);
        });
    }
    void run(int64_t b) {
        with_storage<T>(p.dtype, [&](auto* storage) { step<std::remove_pointer_t<decltype(storage)>>(b); });
    }
};

template <class T> struct StateSteps {  // a task is a head
    const StateStep& p;
    T *key, *query;

    StateSteps(const StateStep& p, Arena& arena)
        : p(p), key(arena.take<T>(p.s + width<T>)), query(arena.take<T>(p.s + width<T>)) {}

    template <class S> void step(int64_t b, int64_t h) {
        auto at = [](const void* numbers, int64_t i) { return numbers ? static_cast<const T*>(numbers)[i] : T(0); };
        T dt = at(p.dt, b * p.h + h) + at(p.dt_bias, h), skip = at(p.skip, h);
        if (p.softplus && dt <= T(20)) dt = std::log1p(std::exp(dt));  // beyond it softplus(dt) is dt, as in PyTorch
        T decay = std::exp(dt * at(p.rate, h));
        int64_t head = b * p.h + h, group = b * p.g + h / (p.h / p.g);
        const S *x = static_cast<const S*>(p.x) + head * p.e;
        S *state = static_cast<S*>(p.state) + head * p.e * p.s, *y = static_cast<S*>(p.y) + head * p.e;
        for_each_lanes<T>(p.s, [&](int64_t j, int64_t some) INLINE {
            store(key + j, load_lanes<T>(static_cast<const S*>(p.k) + group * p.s + j, some) * dt);
            store(query + j, load_lanes<T>(static_cast<const S*>(p.q) + group * p.s + j, some));
        });
        for (int64_t i = 0; i < p.e; i++) {
            S* row = state + i * p.s;
            T value = T(number(x[i]));
            Vec<T> read{};
            for_each_lanes<T>(p.s, [&](int64_t j, int64_t some) INLINE {
                Vec<T> s = load_lanes<T>(row + j, some) * decay + load(key + j) * value;
                store_lanes<T>(row + j, s, some);
                read += s * load(query + j);
            });
            store_end<T>(y + i, splat(horizontal_sum<T>(read) + skip * value), 1);
        }
    }
    void run(int64_t task) {
        with_storage<T>(p.dtype, [&](auto* storage) {
            step<std::remove_pointer_t<decltype(storage)>>(task / p.h, task % p.h);
        });
    }
};

}  // namespace
