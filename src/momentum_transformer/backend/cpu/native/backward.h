// Causal attention, backward pass: three more recurrences, one forwards for dq, and two backwards for dk and dv. The
// forward pass saves nothing but its inputs, y, the denominators and the states before segments; everything else is
// recomputed. docs/derivations.md has the formulas.
#pragma once
#include "forward.h"

namespace {

// The derivative of the feature map in terms of its value: φ' = min(φ, 1).
template <class T> inline Vec<T> feature_derivative(Vec<T> feature) {
    return feature < T(1) ? feature : splat(T(1));
}

// Gradients of the numerators (G, a row per query) and of the denominators (g_den, up to a multiple of TILE_ROWS), from
// those of y = numerator / denominator.
template <class T>
inline void pack_output_gradients(T* G, T* g_den, const Problem& p, const RowView<T>& dy, const RowView<T>& y,
                                  const T* denominator, int64_t begin, int64_t rows, int64_t columns,
                                  int64_t width_padded) {
    T factor[BLOCK];
    for (int64_t i = 0; i < rows; i++) factor[i] = p.normalize ? T(1) / (denominator[i] + T(p.eps)) : T(1);
    if (dy.storage == FULL_WIDTH)
        pack_gradients<T, T>(G, g_den, dy, y, begin, rows, columns, width_padded, factor);
    else if constexpr (sizeof(T) == sizeof(float)) {
        if (dy.storage == BFLOAT16)
            pack_gradients<T, bfloat16>(G, g_den, dy, y, begin, rows, columns, width_padded, factor);
        else
            pack_gradients<T, float16>(G, g_den, dy, y, begin, rows, columns, width_padded, factor);
    }
    for (int64_t i = 0; i < rows; i++) g_den[i] = p.normalize ? -g_den[i] * factor[i] : T(0);
}
template <class T>
inline void pack_output_gradients(T* G, T* g_den, const Problem& p, const Sequence<T>& x, int64_t begin, int64_t rows,
                                  int64_t columns, int64_t width_padded) {
    RowView<T> dy(p.dy, p, x.b, x.h), y(p.normalize ? p.y : p.dy, p, x.b, x.h);
    const T* denominator = static_cast<const T*>(p.denominator) + x.index() * p.n + begin;
    pack_output_gradients(G, g_den, p, dy, y, denominator, begin, rows, columns, width_padded);
}

// Packed rows of what the backward pass reads, padded like the state.
template <class T> struct PackedRows {
    const Problem& p;
    Sizes<T> size;
    T *Q, *K, *V;  // features of queries and keys, values
    T *G, *g_den;  // gradients of the numerators (a row per token) and of the denominators (a number per token)

    PackedRows(const Problem& p, Arena& arena, int64_t most)
        : p(p), size(p), Q(arena.take<T>(most * size.dp)), K(arena.take<T>(most * size.dp)),
          V(arena.take<T>(most * size.ep)), G(arena.take<T>(most * size.ep)), g_den(arena.take<T>(most)) {}

    void pack_keys(const Sequence<T>& x, int64_t begin, int64_t rows) {
        int64_t padded = round_up(rows, TILE_ROWS);
        pack_features(K, size.dp, x.k, begin, rows, padded, size.d, p.elu);
        pack<T, false>(V, size.ep, x.v, begin, rows, padded, size.e);
    }
    void pack_queries(const Sequence<T>& x, int64_t begin, int64_t rows) {
        int64_t padded = round_up(rows, TILE_ROWS);
        pack_features(Q, size.dp, x.q, begin, rows, padded, size.d, p.elu);
        pack_output_gradients(G, g_den, p, x, begin, rows, size.e, size.ep);
        memset(G + rows * size.ep, 0, (padded - rows) * size.ep * sizeof(T));
        for (int64_t i = rows; i < padded; i++) g_den[i] = T(0);
    }
    void advance(int64_t rows) {
        Q += rows * size.dp;
        K += rows * size.dp;
        V += rows * size.ep;
        G += rows * size.ep;
        g_den += rows;
    }
};

template <class T> struct Backward {
    const Problem& p;
    Sizes<T> size;
    Powers<T> powers;
    PackedRows<T> packed;       // of one segment
    T* out;                     // what a scan of one block writes
    State<T> state_transposed;  // before the block at hand, planes transposed (e × d)
    State<T> temporary;
    State<T> grad;              // gradient of the state after the block at hand
    State<T> local;             // what the segment has added to it so far: to z, and with `sum_segments` to plane s
    T* grad_transposed[2];      // the planes of `grad`, transposed
    Prefetch prefetch;

    Backward(const Problem& p, Arena& arena)
        : p(p), size(p), packed(p, arena, min(p.segment, round_up(p.n, TILE_ROWS)) + TILE_ROWS),
          out(arena.take<T>(BLOCK * (size.dp > size.ep ? size.dp : size.ep))), state_transposed(arena, size),
          temporary(arena, size), grad(arena, size), local(arena, size),
          grad_transposed{arena.take<T>(size.plane), size.planes == 2 ? arena.take<T>(size.plane) : nullptr} {}

    // dφ(q) = s g: the forward recurrence on the transposed state; keys and values change roles, and G are the queries.
    void query_gradients(const Sequence<T>& x, int64_t begin, int64_t rows) {
        constexpr int W = width<T>;
        int64_t dp = size.dp;
        TokenBlock<T> tokens{packed.G, packed.V, packed.K, out, size.ep, dp, rows, powers, prefetch, nullptr};
        scan<T, MOMENTUM>(state_transposed.plane, size, size.e, dp, tokens);
        RowView<T> dq(p.dq, p, x.b, x.h);
        for (int64_t i0 = 0; i0 < rows; i0 += TILE_ROWS)
            for_each_tile<T>(0, dp, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                Vec<T> z[N];
                for (int j = 0; j < N; j++) z[j] = load(state_transposed.z + column + j * W);
                load_tile(acc, out + i0 * dp + column, dp);
                for_each_in_tile<N>([&](int r, int j) INLINE {
                    int64_t at = (i0 + r) * dp + column + j * W;
                    z[j] += load(packed.K + at);
                    acc[r][j] += packed.g_den[i0 + r] * z[j];
                    if (p.elu) acc[r][j] *= feature_derivative<T>(load(packed.Q + at));
                });
                for (int j = 0; j < N; j++) store(state_transposed.z + column + j * W, z[j]);
                write_rows<T, N>(acc, dq, begin + i0, min<int64_t>(TILE_ROWS, rows - i0), column, size.d);
            });
    }

    // The adjoint recurrence, from the last token of the block to the first.
    void scan_backward(T* const* plane, int64_t rows, int64_t columns, TokenBlock<T> tokens) {
        int64_t last = tokens.count - 1;
        tokens.query += last * tokens.ld_key;
        tokens.key += last * tokens.ld_key;
        tokens.value += last * tokens.ld_value;
        if (tokens.out) tokens.out += last * tokens.ld_value;
        tokens.ld_key = -tokens.ld_key;
        tokens.ld_value = -tokens.ld_value;
        scan<T, ADJOINT>(plane, size, rows, columns, tokens);
    }
    // dφ(k) = dm v and the denominator's part, on the transposed gradient. The scan leaves β⁻ᵗdm, hence the power.
    void key_gradients(const Sequence<T>& x, int64_t begin, int64_t rows) {
        constexpr int W = width<T>;
        int64_t dp = size.dp;
        scan_backward(grad_transposed, size.e, dp,
                      {packed.V, packed.G, packed.Q, out, size.ep, dp, rows, powers, prefetch, nullptr});
        RowView<T> dk(p.dk, p, x.b, x.h);
        for (int64_t i0 = round_down(rows - 1, TILE_ROWS); i0 >= 0; i0 -= TILE_ROWS)
            for_each_tile<T>(0, dp, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                Vec<T> z[N];
                for (int j = 0; j < N; j++) z[j] = load(local.z + column + j * W);
                load_tile(acc, out + i0 * dp + column, dp);
                for_each_in_tile<N>([&](int reversed, int j) INLINE {
                    int r = TILE_ROWS - 1 - reversed;
                    int64_t at = (i0 + r) * dp + column + j * W;
                    z[j] += packed.g_den[i0 + r] * load(packed.Q + at);
                    acc[r][j] = acc[r][j] * power_or_zero(rows - 1 - i0 - r) + (load(grad.z + column + j * W) + z[j]);
                    if (p.elu) acc[r][j] *= feature_derivative<T>(load(packed.K + at));
                });
                for (int j = 0; j < N; j++) store(local.z + column + j * W, z[j]);
                write_rows<T, N>(acc, dk, begin + i0, min<int64_t>(TILE_ROWS, rows - i0), column, size.d);
            });
    }
    // dv = φ(k) dm
    void value_gradients(const Sequence<T>& x, int64_t begin, int64_t rows) {
        int64_t ep = size.ep;
        T* plane[2] = {p.sum_segments ? local.plane[0] : grad.plane[0], grad.plane[1]};
        const T* base = p.sum_segments ? grad.plane[0] : nullptr;
        scan_backward(plane, size.d, ep,
                      {packed.K, packed.Q, packed.G, out, size.dp, ep, rows, powers, prefetch, base});
        RowView<T> dv(p.dv, p, x.b, x.h);
        for (int64_t i0 = 0; i0 < rows; i0 += TILE_ROWS)
            for_each_tile<T>(0, ep, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                load_tile(acc, out + i0 * ep + column, ep);
                for_each_in_tile<N>([&](int r, int j) INLINE { acc[r][j] *= power_or_zero(rows - 1 - i0 - r); });
                write_rows<T, N>(acc, dv, begin + i0, min<int64_t>(TILE_ROWS, rows - i0), column, size.e);
            });
    }
    T power_or_zero(int64_t t) const { return t < 0 ? T(0) : powers.power[t]; }  // zero for padding rows of a tile

    void prefetch_block(const Sequence<T>& x, int64_t begin) {
        prefetch.clear();
        prefetch.add(x.k, begin, BLOCK, size.d);
        prefetch.add(x.v, begin, BLOCK, size.e);
        prefetch.add(x.q, begin, BLOCK, size.d);
        prefetch.add(RowView<T>(p.dy, p, x.b, x.h), begin, BLOCK, size.e);
        if (p.normalize) prefetch.add(RowView<T>(p.y, p, x.b, x.h), begin, BLOCK, size.e);
    }

    // `state_transposed` is the state before the segment; `grad` goes from the gradient after it to that before it.
    void segment(const Sequence<T>& x, int64_t index) {
        int64_t begin = index * p.segment, end = min(begin + p.segment, x.count), at = begin, rows = 0;
        local.clear(size);
        for (; at < end; at += rows, packed.advance(rows)) {
            rows = min(powers.block, end - at);
            packed.pack_keys(x, at, rows);
            packed.pack_queries(x, at, rows);
            query_gradients(x, at, rows);
        }
        while (at > begin) {
            at -= rows;
            packed.advance(-rows);
            prefetch_block(x, at - min(p.segment, p.n));  // the same block of the segment before
            key_gradients(x, at, rows);
            value_gradients(x, at, rows);
            rows = powers.block;
        }
        add_to(grad.z, local.z, size.dp);
        if (!p.sum_segments) return;
        add_to(grad.plane[0], local.plane[0], size.plane);
        transpose_grad();
    }

    // The state before segment `index`, transposed.
    void read_prefix(const Sequence<T>& x, int64_t index) {
        int64_t plane = size.d * size.e;
        const T *s = nullptr, *z = nullptr;
        if (p.prefix) {
            s = static_cast<const T*>(p.prefix) + (x.index() * segments(p) + index) * size.unpadded_state();
            z = s + size.planes * plane;
        } else if (p.s) {
            s = static_cast<const T*>(p.s) + x.index() * size.planes * plane;
            z = static_cast<const T*>(p.z) + x.index() * size.d;
        }
        read_state(temporary, s, z, size);
        for (int l = 0; l < size.planes; l++)
            transpose(state_transposed.plane[l], size.dp, temporary.plane[l], size.ep, size.dp, size.ep);
        memcpy(state_transposed.z, temporary.z, size.dp * sizeof(T));
    }
    void transpose_grad() {
        for (int l = 0; l < size.planes; l++)
            transpose(grad_transposed[l], size.dp, grad.plane[l], size.ep, size.dp, size.ep);
    }
    void start(const Sequence<T>& x) {
        powers.set(p, x.h);
        int64_t plane = size.d * size.e * size.planes;
        read_state(grad, p.ds_after ? static_cast<const T*>(p.ds_after) + x.index() * plane : nullptr,
                   p.dz_after ? static_cast<const T*>(p.dz_after) + x.index() * size.d : nullptr, size);
    }
    void finish(const Sequence<T>& x) {
        if (p.ds)
            write_state(static_cast<T*>(p.ds) + x.index() * size.planes * size.d * size.e,
                        static_cast<T*>(p.dz) + x.index() * size.d, grad, size);
    }

    void run(int64_t sequence) {
        Sequence<T> x(p, sequence);
        start(x);
        transpose_grad();
        for (int64_t i = x.segments() - 1; i >= 0 && !stopped(&p); i--) {
            read_prefix(x, i);
            segment(x, i);
        }
        finish(x);
    }

    // The three passes of a sequence that is split across threads, as in the forward pass. `segment_grads` holds
    // one padded state per segment.
    State<T> segment_grad(T* segment_grads, int64_t sequence, int64_t index) const {
        return State<T>(segment_grads + (sequence * segments(p) + index) * State<T>::length(size), size);
    }
    void local_gradient(int64_t sequence, int64_t index, T* segment_grads) {
        Sequence<T> x(p, sequence);
        if (index >= x.segments()) return;
        powers.set(p, x.h);
        State<T> local = segment_grad(segment_grads, sequence, index);
        local.clear(size);
        int64_t begin = index * p.segment, at = min(begin + p.segment, x.count);
        int64_t rows = at - begin - round_down(at - begin - 1, powers.block);
        for (; at > begin; rows = powers.block) {
            at -= rows;
            packed.pack_queries(x, at, rows);
            scan_backward(local.plane, size.d, size.ep,
                          {packed.Q, packed.Q, packed.G, nullptr, size.dp, size.ep, rows, powers, prefetch, nullptr});
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < size.dp; j += width<T>)
                    store(local.z + j, load(local.z + j) + packed.g_den[i] * load(packed.Q + i * size.dp + j));
        }
    }
    void combine_segments(int64_t sequence, T* segment_grads) {
        Sequence<T> x(p, sequence);
        start(x);
        for (int64_t i = x.segments() - 1; i >= 0 && !stopped(&p); i--) {
            State<T> here = segment_grad(segment_grads, sequence, i);
            combine_backward(temporary, grad, here, min(p.segment, x.count - i * p.segment), powers, size);
            here.copy(grad, size);
            grad.copy(temporary, size);
        }
        finish(x);
    }
    void run_segment(int64_t sequence, int64_t index, T* segment_grads) {
        Sequence<T> x(p, sequence);
        if (index >= x.segments()) return;
        powers.set(p, x.h);
        grad.copy(segment_grad(segment_grads, sequence, index), size);
        transpose_grad();
        read_prefix(x, index);
        segment(x, index);
    }
};

}  // namespace
