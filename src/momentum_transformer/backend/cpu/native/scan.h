// The recurrence, token by token, on a piece of the state that stays in registers: no products but those of the paper.
//
// Momentum takes two operations to age m: m = βm + φ(k)vᵀ. Within a block of tokens it is kept as β⁻ᵗm instead, to which
// a token only adds, and s takes γβᵗ times that. Where β is so small that β⁻ᵗ would become too large, m is aged after all.
#pragma once
#include <cmath>
#include "sequence.h"

namespace {

enum Way {
    LINEAR,    // s += k vᵀ;  y = q s
    MOMENTUM,  // m += k (β⁻ᵗv)ᵀ;  s += γβᵗ m;  y = q s, with t = 1, 2, …
    ADJOINT    // from the last token to the first: ds += q gᵀ;  dm += γβ⁻ᵗ ds;  dv = βᵗ k dm, with t = 0, 1, …
};

template <class T> struct Aged {  // βᵗ times m. Near 1, βᵗ rounded to T would lose the digits of 1 - βᵗ.
    T whole = 0, rest = 0;
    explicit Aged(double power = 0) : whole(power > 0.5 ? T(1) : T(0)), rest(T(power - whole)) {}
    Vec<T> operator()(Vec<T> m) const { return whole * m + rest * m; }
};

template <class T> struct Pace {  // β and γ of one head, and their powers
    int64_t table = -1;
    double beta = 0, gamma = 1;
    int64_t block = BLOCK;  // tokens until β⁻ᵗ becomes too large
    bool steep = false;     // it does at once: m is aged token by token, and what follows are powers of 1
    T fade = 0, up[BLOCK], into_s[BLOCK], into_m[BLOCK], down[BLOCK];
    Aged<T> aged[BLOCK + 1];

    void set(const Problem& p, int64_t head) {
        int64_t asked = p.table_heads == 1 ? 0 : head;
        if (asked == table) return;
        table = asked;
        if (p.beta) beta = p.beta[table], gamma = p.gamma[table];
        double size = std::fabs(gamma);
        steep = beta < 0x1p-8 || size > 0x1p60 || (size < 0x1p-60 && size > 0);  // else β⁻ᵗ ≤ 2⁶⁴, and γβ⁻ᵗ is a number
        block = steep || beta >= 0x1p-2 ? BLOCK : beta >= 0x1p-4 ? BLOCK / 2 : BLOCK / 4;
        fade = T(beta);
        for (int64_t t = 0; t <= block; t++) {
            double power = steep ? 1 : std::pow(beta, double(t)), next = steep ? 1 : power * beta;
            aged[t] = Aged<T>(power);
            if (t == block) break;
            up[t] = T(1 / next);
            into_s[t] = T(gamma * next);
            into_m[t] = T(gamma / power);
            down[t] = T(power);
        }
    }
    T carry(int64_t tokens) const {  // of m in s, `tokens` later
        double sum = 0, power = 1;
        for (int64_t t = 0; t < tokens; t++) sum += power *= beta;
        return T(gamma * sum);
    }
};

// The tokens of a block, forwards or backwards: what is asked of the state, and what is added to it, key by value.
template <class T> struct Tokens {
    const T *ask, *key, *value;
    T* out;
    int64_t ld_key, ld_value, count;  // from token to token: of ask and key, of value and out
    const Pace<T>& pace;
    Ahead& ahead;                     // asked for meanwhile
    // A sum over many tokens in one go loses digits with each. In long sequences (`sum_segments`) s is therefore what it
    // was before the segment, its base, and the lane holds only what has been added since. Null: it holds all.
    const T* base;
};

// G rows and one vector of columns of the state. Tokens add to `first`, and read `second`, or `first` where it is all;
// `Based`: s is what is in the lane plus its base.
template <class T, Way way, bool Steep, bool Reads, bool Based, bool First, int G>
inline void walk(T* first, T* second, int64_t ld, const Tokens<T>& x, int64_t row, int64_t column) {
    const Pace<T>& pace = x.pace;
    const int64_t count = x.count, ld_key = x.ld_key, ld_value = x.ld_value;  // no store changes these
    const T* base_at = Based ? x.base + row * ld + column : nullptr;
    Vec<T> added[G], read[G], base[G];
#pragma GCC unroll 8
    for (int r = 0; r < G; r++) {
        added[r] = load(first + r * ld);
        if (way != LINEAR) read[r] = load(second + r * ld);
        if (Based) base[r] = load(base_at + r * ld);
    }
    const T *ask = x.ask + row, *key = x.key + row, *value = x.value + column;
    T* out = Reads ? x.out + column : nullptr;
    for (int64_t t = 0; t < count; t++) {
        Vec<T> v = load(value);
        if (way == MOMENTUM && !Steep) v *= pace.up[t];
#pragma GCC unroll 8
        for (int r = 0; r < G; r++) {
            if (way == MOMENTUM && Steep) added[r] *= pace.fade;
            added[r] += key[r] * v;
        }
        if (way != LINEAR) {
            Vec<T> into = splat(way == MOMENTUM ? pace.into_s[t] : pace.into_m[t]);
#pragma GCC unroll 8
            for (int r = 0; r < G; r++) read[r] += into * (Based && way == ADJOINT ? base[r] + added[r] : added[r]);
        }
        if (Reads) {
            Vec<T> y = First ? Vec<T>{} : load(out);
#pragma GCC unroll 8
            for (int r = 0; r < G; r++) {
                Vec<T> asked = way == LINEAR ? added[r] : read[r];
                y += ask[r] * (Based && way != ADJOINT ? base[r] + asked : asked);
            }
            store(out, y);
        }
        if (way == ADJOINT && Steep)
#pragma GCC unroll 8
            for (int r = 0; r < G; r++) read[r] *= pace.fade;
        ask += ld_key;
        key += ld_key;
        value += ld_value;
        if (Reads) out += ld_value;
    }
    const Aged<T> aged = pace.aged[count];
#pragma GCC unroll 8
    for (int r = 0; r < G; r++) {
        store(first + r * ld, way == MOMENTUM ? aged(added[r]) : added[r]);
        if (way != LINEAR) store(second + r * ld, way == ADJOINT ? aged(read[r]) : read[r]);
    }
}

// All of the state, by `rows` that tokens ask with and `columns` of their values.
template <class T, Way way, bool Steep, bool Reads, bool Based>
__attribute__((noinline)) void walk_all(T* first, T* second, int64_t rows, int64_t columns, const Tokens<T>& x) {
    constexpr int G = way == LINEAR && !Based ? ROWS : TILE_ROWS;
    const int64_t lines = x.ahead.lines / (columns / width<T> * ((rows + G - 1) / G)) + 1;
    for (int64_t column = 0; column < columns; column += width<T>) {
        x.ahead.ask(lines);
        walk<T, way, Steep, Reads, Based, true, G>(first + column, second + column, columns, x, 0, column);
        for (int64_t row = G; row < rows; row += G) {
            int64_t at = row * columns + column;
            x.ahead.ask(lines);
            walk<T, way, Steep, Reads, Based, false, G>(first + at, second + at, columns, x, row, column);
        }
    }
}
template <class T, Way way, bool Reads, bool Based>
void scan_lanes(T* const* lane, const Sizes<T>& size, int64_t rows, int64_t columns, const Tokens<T>& x) {
    T *s = lane[0], *m = lane[1], *first = way == MOMENTUM ? m : s, *second = way == MOMENTUM ? s : m;
    if (size.lanes == 1)
        walk_all<T, LINEAR, false, Reads, Based>(s, s, rows, columns, x);
    else if (x.pace.steep)
        walk_all<T, way, true, Reads, Based>(first, second, rows, columns, x);
    else
        walk_all<T, way, false, Reads, Based>(first, second, rows, columns, x);
}
// `way` is that of two lanes, s and m.
template <class T, Way way>
inline void scan(T* const* lane, const Sizes<T>& size, int64_t rows, int64_t columns, const Tokens<T>& x) {
    if (!x.out)
        scan_lanes<T, way, false, false>(lane, size, rows, columns, x);
    else if (!x.base)
        scan_lanes<T, way, true, false>(lane, size, rows, columns, x);
    else
        scan_lanes<T, way, true, true>(lane, size, rows, columns, x);
}

template <class T> inline void add_to(T* to, const T* from, int64_t count) {
    for (int64_t i = 0; i < count; i += width<T>) store(to + i, load(to + i) + load(from + i));
}

// What `before` has become after `tokens`, with `added` in between. Linear in both.
template <class T>
inline void after(State<T>& to, const State<T>& before, const State<T>& added, int64_t tokens, const Pace<T>& pace,
                  const Sizes<T>& size) {
    constexpr int W = width<T>;
    T carry = size.lanes == 2 ? pace.carry(tokens) : T(0);
    const Aged<T> aged(std::pow(pace.beta, double(tokens)));
    for (int64_t i = 0; i < size.state; i += W) {
        Vec<T> s = load(before.lane[0] + i) + load(added.lane[0] + i);
        if (size.lanes == 2) {
            Vec<T> m = load(before.lane[1] + i);
            s += carry * m;
            store(to.lane[1] + i, aged(m) + load(added.lane[1] + i));
        }
        store(to.lane[0] + i, s);
    }
    for (int64_t i = 0; i < size.dp; i += W) store(to.z + i, load(before.z + i) + load(added.z + i));
}

// The same for gradients, which run backwards: what reaches a state from `later`, `tokens` on, and from between.
template <class T>
inline void before(State<T>& to, const State<T>& later, const State<T>& added, int64_t tokens, const Pace<T>& pace,
                   const Sizes<T>& size) {
    constexpr int W = width<T>;
    T carry = size.lanes == 2 ? pace.carry(tokens) : T(0);
    const Aged<T> aged(std::pow(pace.beta, double(tokens)));
    for (int64_t i = 0; i < size.state; i += W) {
        Vec<T> s = load(later.lane[0] + i);
        if (size.lanes == 2) {
            Vec<T> m = load(later.lane[1] + i);
            store(to.lane[1] + i, aged(m) + carry * s + load(added.lane[1] + i));
        }
        store(to.lane[0] + i, s + load(added.lane[0] + i));
    }
    for (int64_t i = 0; i < size.dp; i += W) store(to.z + i, load(later.z + i) + load(added.z + i));
}

}  // namespace
