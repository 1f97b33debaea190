// Decoding one token, what stands around the recurrence of a head: short convolution and gates before it, norm and
// output gate after it.
#pragma once
#include "residual_norm.h"

namespace {

template <class T> inline Vec<T> sigmoid(Vec<T> x) {  // NaN stays NaN
    Vec<T> small = exp_negative(x < T(0) ? x : -x);
    Vec<T> y = (x < T(0) ? small : splat(T(1))) / (T(1) + small);
    return x != x ? x : y;
}
template <class T> inline T softplus(T x) { return x > 20 ? x : std::log1p(std::exp(x)); }  // as PyTorch rounds it

// The short convolution of q, k and v of one head, in place; `past`, its sliding window, moves on by one token.
template <class T> void convolve(const Convolution& p, int64_t bh) {
    int64_t b = bh / p.h, h = bh % p.h, d = p.d, before = p.taps - 1;
    for (int64_t j = 0; j < 3; j++) {
        T* x = static_cast<T*>(p.x) + b * p.stride + (j * p.h + h) * d;
        const T* weights = static_cast<const T*>(p.weights) + (h * 3 + j) * p.taps * d;
        T* past = static_cast<T*>(p.past) + (bh * 3 + j) * before * d;
        for_each_vector<T>(d, [&](int64_t i, int64_t count) {
            Vec<T> now = load_tail(x + i, count), sum = now * load_tail(weights + before * d + i, count);
            for (int64_t r = 0; r < before; r++) {
                Vec<T> earlier = load_tail(past + r * d + i, count);
                sum += earlier * load_tail(weights + r * d + i, count);
                if (r) store_tail(past + (r - 1) * d + i, earlier, count);
            }
            store_tail(past + (before - 1) * d + i, now, count);
            store_tail(x + i, p.silu ? sum * sigmoid<T>(sum) : sum, count);
        });
    }
}

template <class T> inline T open_gate(const Gate& gate, T logit, int64_t h) {
    auto of_head = [&](const void* x) { return static_cast<const T*>(x)[h]; };
    switch (gate.kind) {
        case GATE_STRENGTH: return T(gate.most) * sigmoid<T>(splat(logit))[0];
        case GATE_STEP_SIZE: return softplus(logit);
        default: return std::exp(-of_head(gate.rate) * softplus(logit + of_head(gate.offset)));
    }
}

// The coefficients of one head at this token, from the logits of its gates.
template <class T> void open_gates(const Gates& p, int64_t bh) {
    int64_t b = bh / p.h, h = bh % p.h;
    T values[MOST_GATES];
    for (int64_t i = 0; i < p.count; i++) {
        const Gate& gate = p.gates[i];
        values[i] = open_gate(gate, static_cast<const T*>(gate.logits)[b * p.stride + h], h);
        T share = gate.complement < 0 ? T(1) : 1 - values[gate.complement];
        static_cast<T*>(gate.out)[bh] = share * values[i];
    }
}

// RMSNorm(y) · sigmoid(logits), of one head, in place.
template <class T> void norm_and_gate(const NormAndGate& p, int64_t bh) {
    int64_t b = bh / p.h, h = bh % p.h, e = p.e;
    T *y = static_cast<T*>(p.y) + bh * e, factor = 1;
    const T* weight = static_cast<const T*>(p.weight);
    const T* logits = p.logits ? static_cast<const T*>(p.logits) + b * p.stride + h * e : nullptr;
    if (weight) {
        Vec<T> squares{};
        for_each_vector<T>(e, [&](int64_t i, int64_t count) {
            Vec<T> x = load_tail<T>(y + i, count);
            squares += x * x;
        });
        factor = 1 / std::sqrt(horizontal_sum<T>(squares) / T(e) + T(p.eps));
    }
    for_each_vector<T>(e, [&](int64_t i, int64_t count) {
        Vec<T> x = load_tail<T>(y + i, count);
        if (weight) x = factor * x * load_tail(weight + i, count);
        if (logits) x *= sigmoid<T>(load_tail(logits + i, count));
        store_tail(y + i, x, count);
    });
}

}  // namespace
