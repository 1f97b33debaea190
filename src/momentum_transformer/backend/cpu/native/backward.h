// Gradients of causal attention: three more recurrences, one forwards and two backwards. Nothing is kept from the forward
// pass but its inputs, y, the denominators and the states between segments; docs/derivations.md has the formulas.
#pragma once
#include "forward.h"

namespace {

template <class T> inline Vec<T> slope(Vec<T> feature) {  // φ' = min(φ, 1)
    return feature < T(1) ? feature : splat(T(1));
}

// Rows of features, values and gradients.
template <class T> struct Taken {
    const Problem& p;
    Sizes<T> size;
    T *Q, *K, *V, *G, *g_den;  // G, g_den: the gradients of the numerators and of the denominators

    Taken(const Problem& p, Arena& arena, int64_t most)
        : p(p), size(p), Q(arena.take<T>(most * size.dp)), K(arena.take<T>(most * size.dp)),
          V(arena.take<T>(most * size.ep)), G(arena.take<T>(most * size.ep)), g_den(arena.take<T>(most)) {}

    void keys(const Sequence<T>& x, int64_t begin, int64_t rows) {
        int64_t padded = round_up(rows, ROWS);
        pack_features(K, size.dp, x.k, begin, rows, padded, size.d, p.elu);
        pack<T, false>(V, size.ep, x.v, begin, rows, padded, size.e);
    }
    void queries(const Sequence<T>& x, int64_t begin, int64_t rows) {
        int64_t padded = round_up(rows, ROWS);
        pack_features(Q, size.dp, x.q, begin, rows, padded, size.d, p.elu);
        T factor[BLOCK];
        const T* below = static_cast<const T*>(p.denominator) + x.index() * p.n + begin;
        for (int64_t i = 0; i < rows; i++) factor[i] = p.normalize ? T(1) / (below[i] + T(p.eps)) : T(1);
        Place<T> dy(p.dy, p, x.b, x.h), y(p.normalize ? p.y : p.dy, p, x.b, x.h);
        if (dy.stored == AS_COMPUTED)
            pack_gradients<T, T>(G, g_den, dy, y, begin, rows, size.e, size.ep, factor);
        else if constexpr (sizeof(T) == sizeof(float)) {
            if (dy.stored == BFLOAT16)
                pack_gradients<T, bfloat16>(G, g_den, dy, y, begin, rows, size.e, size.ep, factor);
            else
                pack_gradients<T, float16>(G, g_den, dy, y, begin, rows, size.e, size.ep, factor);
        }
        memset(G + rows * size.ep, 0, (padded - rows) * size.ep * sizeof(T));
        for (int64_t i = 0; i < padded; i++) g_den[i] = p.normalize && i < rows ? -g_den[i] * factor[i] : T(0);
    }
    void move(int64_t rows) {
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
    Pace<T> pace;
    Taken<T> taken;           // of the segment
    T* out;                   // of a block
    State<T> state, turned;   // before the block at hand: turned, and as read
    State<T> later, added;    // the gradient of the state after it; what the segment has added to that
    T* later_turned[2];
    Ahead ahead;

    Backward(const Problem& p, Arena& arena)
        : p(p), size(p), taken(p, arena, smaller(p.segment, round_up(p.n, ROWS)) + ROWS),
          out(arena.take<T>(BLOCK * (size.dp > size.ep ? size.dp : size.ep))), state(arena, size),
          turned(arena, size), later(arena, size), added(arena, size),
          later_turned{arena.take<T>(size.state), size.lanes == 2 ? arena.take<T>(size.state) : nullptr} {}

    // dq = S g, as the forward pass reads S, with values for keys and keys for values
    void query_gradients(const Sequence<T>& x, int64_t begin, int64_t rows) {
        constexpr int W = width<T>;
        int64_t dp = size.dp;
        Tokens<T> tokens{taken.G, taken.V, taken.K, out, size.ep, dp, rows, pace, ahead, nullptr};
        scan<T, MOMENTUM>(state.lane, size, size.e, dp, tokens);
        Place<T> dq(p.dq, p, x.b, x.h);
        for (int64_t i0 = 0; i0 < rows; i0 += ROWS)
            across<T>(0, dp, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                Vec<T> z[N];
                for (int j = 0; j < N; j++) z[j] = load(state.z + column + j * W);
                load_tile(acc, out + i0 * dp + column, dp);
                each<N>([&](int r, int j) INLINE {
                    int64_t at = (i0 + r) * dp + column + j * W;
                    z[j] += load(taken.K + at);
                    acc[r][j] += taken.g_den[i0 + r] * z[j];
                    if (p.elu) acc[r][j] *= slope<T>(load(taken.Q + at));
                });
                for (int j = 0; j < N; j++) store(state.z + column + j * W, z[j]);
                write_rows<T, N>(acc, dq, begin + i0, smaller<int64_t>(ROWS, rows - i0), column, size.d);
            });
    }

    // `tokens` from the last to the first
    void retreat(T* const* lane, int64_t rows, int64_t columns, Tokens<T> tokens) {
        int64_t last = tokens.count - 1;
        tokens.ask += last * tokens.ld_key;
        tokens.key += last * tokens.ld_key;
        tokens.value += last * tokens.ld_value;
        if (tokens.out) tokens.out += last * tokens.ld_value;
        tokens.ld_key = -tokens.ld_key;
        tokens.ld_value = -tokens.ld_value;
        scan<T, ADJOINT>(lane, size, rows, columns, tokens);
    }
    void key_gradients(const Sequence<T>& x, int64_t begin, int64_t rows) {
        constexpr int W = width<T>;
        int64_t dp = size.dp;
        retreat(later_turned, size.e, dp, {taken.V, taken.G, taken.Q, out, size.ep, dp, rows, pace, ahead, nullptr});
        Place<T> dk(p.dk, p, x.b, x.h);
        for (int64_t i0 = round_down(rows - 1, ROWS); i0 >= 0; i0 -= ROWS)
            across<T>(0, dp, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                Vec<T> z[N];
                for (int j = 0; j < N; j++) z[j] = load(added.z + column + j * W);
                load_tile(acc, out + i0 * dp + column, dp);
                each<N>([&](int up, int j) INLINE {
                    int r = ROWS - 1 - up;
                    int64_t at = (i0 + r) * dp + column + j * W;
                    z[j] += taken.g_den[i0 + r] * load(taken.Q + at);
                    acc[r][j] = acc[r][j] * power(rows - 1 - i0 - r) + (load(later.z + column + j * W) + z[j]);
                    if (p.elu) acc[r][j] *= slope<T>(load(taken.K + at));
                });
                for (int j = 0; j < N; j++) store(added.z + column + j * W, z[j]);
                write_rows<T, N>(acc, dk, begin + i0, smaller<int64_t>(ROWS, rows - i0), column, size.d);
            });
    }
    void value_gradients(const Sequence<T>& x, int64_t begin, int64_t rows) {
        int64_t ep = size.ep;
        T* lane[2] = {p.sum_segments ? added.lane[0] : later.lane[0], later.lane[1]};
        const T* base = p.sum_segments ? later.lane[0] : nullptr;
        retreat(lane, size.d, ep, {taken.K, taken.Q, taken.G, out, size.dp, ep, rows, pace, ahead, base});
        Place<T> dv(p.dv, p, x.b, x.h);
        for (int64_t i0 = 0; i0 < rows; i0 += ROWS)
            across<T>(0, ep, [&](auto& acc, int64_t column) INLINE {
                constexpr int N = sizeof(acc[0]) / sizeof(Vec<T>);
                load_tile(acc, out + i0 * ep + column, ep);
                each<N>([&](int r, int j) INLINE { acc[r][j] *= power(rows - 1 - i0 - r); });
                write_rows<T, N>(acc, dv, begin + i0, smaller<int64_t>(ROWS, rows - i0), column, size.e);
            });
    }
    T power(int64_t tokens) const { return tokens < 0 ? T(0) : pace.down[tokens]; }  // of no token there is none

    void look_ahead(const Sequence<T>& x, int64_t begin) {  // at the rows of the segment before this one
        ahead.clear();
        ahead.add(x.k, begin, BLOCK, size.d);
        ahead.add(x.v, begin, BLOCK, size.e);
        ahead.add(x.q, begin, BLOCK, size.d);
        ahead.add(Place<T>(p.dy, p, x.b, x.h), begin, BLOCK, size.e);
        if (p.normalize) ahead.add(Place<T>(p.y, p, x.b, x.h), begin, BLOCK, size.e);
    }

    // `state` is that before the segment, `later` the gradient after it, which becomes that before it.
    void segment(const Sequence<T>& x, int64_t index) {
        int64_t begin = index * p.segment, end = smaller(begin + p.segment, x.count), at = begin, rows = 0;
        added.clear(size);
        for (; at < end; at += rows, taken.move(rows)) {
            rows = smaller(pace.block, end - at);
            taken.keys(x, at, rows);
            taken.queries(x, at, rows);
            query_gradients(x, at, rows);
        }
        while (at > begin) {
            at -= rows;
            taken.move(-rows);
            look_ahead(x, at - smaller(p.segment, p.n));
            key_gradients(x, at, rows);
            value_gradients(x, at, rows);
            rows = pace.block;
        }
        add_to(later.z, added.z, size.dp);
        if (!p.sum_segments) return;
        add_to(later.lane[0], added.lane[0], size.state);
        turn_later();
    }

    void read_prefix(const Sequence<T>& x, int64_t index) {
        int64_t lane = size.d * size.e;
        const T *s = nullptr, *z = nullptr;
        if (p.prefix) {
            s = static_cast<const T*>(p.prefix) + (x.index() * segments(p) + index) * size.plain();
            z = s + size.lanes * lane;
        } else if (p.s) {
            s = static_cast<const T*>(p.s) + x.index() * size.lanes * lane;
            z = static_cast<const T*>(p.z) + x.index() * size.d;
        }
        read_state(turned, s, z, size);
        for (int l = 0; l < size.lanes; l++) turn(state.lane[l], size.dp, turned.lane[l], size.ep, size.dp, size.ep);
        memcpy(state.z, turned.z, size.dp * sizeof(T));
    }
    void turn_later() {
        for (int l = 0; l < size.lanes; l++) turn(later_turned[l], size.dp, later.lane[l], size.ep, size.dp, size.ep);
    }
    void start(const Sequence<T>& x) {
        pace.set(p, x.h);
        int64_t lane = size.d * size.e * size.lanes;
        read_state(later, p.ds_after ? static_cast<const T*>(p.ds_after) + x.index() * lane : nullptr,
                   p.dz_after ? static_cast<const T*>(p.dz_after) + x.index() * size.d : nullptr, size);
    }
    void finish(const Sequence<T>& x) {
        if (p.ds)
            write_state(static_cast<T*>(p.ds) + x.index() * size.lanes * size.d * size.e,
                        static_cast<T*>(p.dz) + x.index() * size.d, later, size);
    }

    void whole(int64_t sequence) {
        Sequence<T> x(p, sequence);
        start(x);
        turn_later();
        for (int64_t i = x.segments() - 1; i >= 0; i--) {
            read_prefix(x, i);
            segment(x, i);
        }
        finish(x);
    }

    // Over several threads per sequence, as in the forward pass. `kept` holds one padded state a segment.
    State<T> kept_at(T* kept, int64_t sequence, int64_t index) const {
        return State<T>(kept + (sequence * segments(p) + index) * State<T>::length(size), size);
    }
    void add(int64_t sequence, int64_t index, T* kept) {
        Sequence<T> x(p, sequence);
        if (index >= x.segments()) return;
        pace.set(p, x.h);
        State<T> local = kept_at(kept, sequence, index);
        local.clear(size);
        int64_t begin = index * p.segment, at = smaller(begin + p.segment, x.count);
        int64_t rows = at - begin - round_down(at - begin - 1, pace.block);
        for (; at > begin; rows = pace.block) {
            at -= rows;
            taken.queries(x, at, rows);
            retreat(local.lane, size.d, size.ep, {taken.Q, taken.Q, taken.G, nullptr, size.dp, size.ep, rows, pace, ahead, nullptr});
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < size.dp; j += width<T>)
                    store(local.z + j, load(local.z + j) + taken.g_den[i] * load(taken.Q + i * size.dp + j));
        }
    }
    void connect(int64_t sequence, T* kept) {
        Sequence<T> x(p, sequence);
        start(x);
        for (int64_t i = x.segments() - 1; i >= 0; i--) {
            State<T> here = kept_at(kept, sequence, i);
            before(turned, later, here, smaller(p.segment, x.count - i * p.segment), pace, size);
            here.copy(later, size);
            later.copy(turned, size);
        }
        finish(x);
    }
    void write(int64_t sequence, int64_t index, T* kept) {
        Sequence<T> x(p, sequence);
        if (index >= x.segments()) return;
        pace.set(p, x.h);
        later.copy(kept_at(kept, sequence, index), size);
        turn_later();
        read_prefix(x, index);
        segment(x, index);
    }
};

}  // namespace
