// The recurrence, token by token, on tiles of the state that stay in registers while a block of tokens goes by.
//
// Momentum attention updates m ← βm + φ(k)vᵀ, which takes a multiplication and a multiply-add per element. Within a
// block the kernels hold β⁻ᵗm instead: a token then costs one multiply-add, and s takes γβᵗ times the scaled m. Where β
// is so small that β⁻ᵗ would overflow, m is multiplied by β at every token instead.
#pragma once
#include <cmath>
#include "pack.h"
#include "prefetch.h"

namespace {

enum Recurrence {
    LINEAR,    // s += k vᵀ;  y = q s
    MOMENTUM,  // m += k (β⁻ᵗv)ᵀ;  s += γβᵗ m;  y = q s, with t = 1, 2, …
    ADJOINT    // from the last token to the first: ds += q gᵀ;  dm += γβ⁻ᵗ ds;  dv = βᵗ k dm, with t = 0, 1, …
};

// Multiplication by a power of β, which is split into 0 or 1 plus a rest: as a single number of type T, a power near 1
// would lose digits of its distance to 1.
template <class T> struct Decay {
    T integer = 0, rest = 0;
    explicit Decay(double power = 0) : integer(power > 0.5 ? T(1) : T(0)), rest(T(power - integer)) {}
    Vec<T> operator()(Vec<T> m) const { return integer * m + rest * m; }
};

template <class T> struct Powers {  // β and γ of one head, and tables of powers of β
    int64_t head = -1;              // whose they are; -1: not set yet
    double beta = 0, gamma = 1;
    int64_t block = BLOCK;          // tokens in a block: fewer where β⁻ᵗ would overflow
    bool decay_each_token = false;  // β⁻ᵗ overflows in any block: m is not scaled, and the tables hold powers of 1
    T rounded_beta = 0;
    T inverse_power[BLOCK];         // β⁻ᵗ⁻¹
    T m_to_s[BLOCK];                // γβᵗ⁺¹
    T ds_to_dm[BLOCK];              // γβ⁻ᵗ
    T power[BLOCK];                 // βᵗ
    Decay<T> decay[BLOCK + 1];      // multiplication by βᵗ

    void set(const Problem& p, int64_t sequence_head) {
        int64_t wanted = p.coefficient_heads == 1 ? 0 : sequence_head;
        if (wanted == head) return;
        head = wanted;
        if (p.beta) beta = p.beta[head], gamma = p.gamma[head];
        double size = std::fabs(gamma);
        // The limits keep β⁻ᵗ ≤ 2⁶⁴, and γβ⁻ᵗ within the range of float32.
        decay_each_token = beta < 0x1p-8 || size > 0x1p60 || (size < 0x1p-60 && size > 0);
        block = decay_each_token || beta >= 0x1p-2 ? BLOCK : beta >= 0x1p-4 ? BLOCK / 2 : BLOCK / 4;
        rounded_beta = T(beta);
        for (int64_t t = 0; t <= block; t++) {
            double now = decay_each_token ? 1 : std::pow(beta, double(t)), next = decay_each_token ? 1 : now * beta;
            decay[t] = Decay<T>(now);
            if (t == block) break;
            inverse_power[t] = T(1 / next);
            m_to_s[t] = T(gamma * next);
            ds_to_dm[t] = T(gamma / now);
            power[t] = T(now);
        }
    }
    T momentum_sum(int64_t tokens) const {  // γ(β + … + βᵗ): what a unit of m adds to s over t tokens
        double sum = 0, power = 1;
        for (int64_t t = 0; t < tokens; t++) sum += power *= beta;
        return T(gamma * sum);
    }
};

// A block of tokens, forwards or (with negative strides) backwards. A token adds key · valueᵀ to the state, then reads
// the state with its query. In the backward pass other rows play these roles.
template <class T> struct TokenBlock {
    const T *query, *key, *value;
    T* out;                           // what the queries read, or null
    int64_t ld_key, ld_value, count;  // strides of query and key, and of value and out; tokens
    const Powers<T>& powers;
    Prefetch& prefetch;               // issued between tiles
    // Blocked summation, for long sequences (`sum_segments`): s is the sum of `base`, its value before the segment, and
    // of the plane that the kernel updates, which holds only what the segment has added. Adding up all tokens in one
    // running sum would lose digits. Null: the plane holds all of s.
    const T* base;
};

// R rows and one vector of columns of the state, in registers. Tokens are added to the updated plane (m; ds in
// ADJOINT); the summed plane (s; dm) accumulates it, and is what queries read. LINEAR has one plane, s, which is both.
//   HasOutput: queries read; HasBase: s has a base; FirstRows: these are the first rows, so `out` is not read.
template <class T, Recurrence kind, bool DecayEachToken, bool HasOutput, bool HasBase, bool FirstRows, int R>
inline void scan_tile(T* updated_plane, T* summed_plane, int64_t ld, const TokenBlock<T>& x, int64_t row,
                      int64_t column) {
    const Powers<T>& powers = x.powers;
    const int64_t count = x.count, ld_key = x.ld_key, ld_value = x.ld_value;  // local copies, which stores cannot alias
    const T* base_at = HasBase ? x.base + row * ld + column : nullptr;
    Vec<T> updated[R], summed[R], base[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        updated[r] = load(updated_plane + r * ld);
        if (kind != LINEAR) summed[r] = load(summed_plane + r * ld);
        if (HasBase) base[r] = load(base_at + r * ld);
    }
    const T *query = x.query + row, *key = x.key + row, *value = x.value + column;
    T* out = HasOutput ? x.out + column : nullptr;
    for (int64_t t = 0; t < count; t++) {
        Vec<T> v = load(value);
        if (kind == MOMENTUM && !DecayEachToken) v *= powers.inverse_power[t];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            if (kind == MOMENTUM && DecayEachToken) updated[r] *= powers.rounded_beta;
            updated[r] += key[r] * v;
        }
        if (kind != LINEAR) {
            Vec<T> factor = splat(kind == MOMENTUM ? powers.m_to_s[t] : powers.ds_to_dm[t]);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++)
                summed[r] += factor * (HasBase && kind == ADJOINT ? base[r] + updated[r] : updated[r]);
        }
        if (HasOutput) {
            Vec<T> y = FirstRows ? Vec<T>{} : load(out);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                Vec<T> read = kind == LINEAR ? updated[r] : summed[r];
                y += query[r] * (HasBase && kind != ADJOINT ? base[r] + read : read);
            }
            store(out, y);
        }
        if (kind == ADJOINT && DecayEachToken)
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) summed[r] *= powers.rounded_beta;
        query += ld_key;
        key += ld_key;
        value += ld_value;
        if (HasOutput) out += ld_value;
    }
    const Decay<T> decay = powers.decay[count];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        store(updated_plane + r * ld, kind == MOMENTUM ? decay(updated[r]) : updated[r]);
        if (kind != LINEAR) store(summed_plane + r * ld, kind == ADJOINT ? decay(summed[r]) : summed[r]);
    }
}

// All tiles of a state of rows × columns: rows as wide as keys, columns as values.
template <class T, Recurrence kind, bool DecayEachToken, bool HasOutput, bool HasBase>
__attribute__((noinline)) void scan_tiles(T* updated, T* summed, int64_t rows, int64_t columns,
                                          const TokenBlock<T>& x) {
    constexpr int R = kind == LINEAR && !HasBase ? TILE_ROWS : REGISTER_ROWS;
    const int64_t lines = x.prefetch.lines / (columns / width<T> * ((rows + R - 1) / R)) + 1;
    for (int64_t column = 0; column < columns; column += width<T>) {
        x.prefetch.issue(lines);
        scan_tile<T, kind, DecayEachToken, HasOutput, HasBase, true, R>(updated + column, summed + column, columns, x,
                                                                        0, column);
        for (int64_t row = R; row < rows; row += R) {
            int64_t at = row * columns + column;
            x.prefetch.issue(lines);
            scan_tile<T, kind, DecayEachToken, HasOutput, HasBase, false, R>(updated + at, summed + at, columns, x, row,
                                                                             column);
        }
    }
}
template <class T, Recurrence kind, bool HasOutput, bool HasBase>
void scan_planes(T* const* plane, const Sizes<T>& size, int64_t rows, int64_t columns, const TokenBlock<T>& x) {
    T *s = plane[0], *m = plane[1], *updated = kind == MOMENTUM ? m : s, *summed = kind == MOMENTUM ? s : m;
    if (size.planes == 1)
        scan_tiles<T, LINEAR, false, HasOutput, HasBase>(s, s, rows, columns, x);
    else if (x.powers.decay_each_token)
        scan_tiles<T, kind, true, HasOutput, HasBase>(updated, summed, rows, columns, x);
    else
        scan_tiles<T, kind, false, HasOutput, HasBase>(updated, summed, rows, columns, x);
}
// A block of tokens through the planes s and m. With one plane this is LINEAR, whatever `kind` says.
template <class T, Recurrence kind>
inline void scan(T* const* plane, const Sizes<T>& size, int64_t rows, int64_t columns, const TokenBlock<T>& x) {
    if (!x.out)
        scan_planes<T, kind, false, false>(plane, size, rows, columns, x);
    else if (!x.base)
        scan_planes<T, kind, true, false>(plane, size, rows, columns, x);
    else
        scan_planes<T, kind, true, true>(plane, size, rows, columns, x);
}

template <class T> inline void add_to(T* to, const T* from, int64_t count) {
    for (int64_t i = 0; i < count; i += width<T>) store(to + i, load(to + i) + load(from + i));
}

// Combines segments, as a parallel scan does: the state after `tokens` tokens, from the state `before` them and from
// what they alone would leave, starting from zero (`local`).
template <class T>
inline void combine_forward(State<T>& to, const State<T>& before, const State<T>& local, int64_t tokens,
                            const Powers<T>& powers, const Sizes<T>& size) {
    constexpr int W = width<T>;
    T momentum_sum = size.planes == 2 ? powers.momentum_sum(tokens) : T(0);
    const Decay<T> decay(std::pow(powers.beta, double(tokens)));
    for (int64_t i = 0; i < size.plane; i += W) {
        Vec<T> s = load(before.plane[0] + i) + load(local.plane[0] + i);
        if (size.planes == 2) {
            Vec<T> m = load(before.plane[1] + i);
            s += momentum_sum * m;
            store(to.plane[1] + i, decay(m) + load(local.plane[1] + i));
        }
        store(to.plane[0] + i, s);
    }
    for (int64_t i = 0; i < size.dp; i += W) store(to.z + i, load(before.z + i) + load(local.z + i));
}

// The same for gradients, from the last segment to the first: the gradient of the state before `tokens` tokens, from
// that of the state `after` them and from what they alone contribute (`local`).
template <class T>
inline void combine_backward(State<T>& to, const State<T>& after, const State<T>& local, int64_t tokens,
                             const Powers<T>& powers, const Sizes<T>& size) {
    constexpr int W = width<T>;
    T momentum_sum = size.planes == 2 ? powers.momentum_sum(tokens) : T(0);
    const Decay<T> decay(std::pow(powers.beta, double(tokens)));
    for (int64_t i = 0; i < size.plane; i += W) {
        Vec<T> s = load(after.plane[0] + i);
        if (size.planes == 2) {
            Vec<T> m = load(after.plane[1] + i);
            store(to.plane[1] + i, decay(m) + momentum_sum * s + load(local.plane[1] + i));
        }
        store(to.plane[0] + i, s + load(local.plane[0] + i));
    }
    for (int64_t i = 0; i < size.dp; i += W) store(to.z + i, load(after.z + i) + load(local.z + i));
}

}  // namespace
