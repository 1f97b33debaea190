// Any member of the family, forward pass: pack a block of tokens, run it through each tile of columns, divide.
#pragma once
#include "blocked_sum.h"
#include "family_pairs.h"

namespace {

template <class T> struct FamilySizes {
    int64_t d, e, dp;        // dp: width of packed rows of q, k, p and α
    int64_t planes, plane;   // of the state, in tiles
    explicit FamilySizes(const FamilyProblem& p)
        : d(p.d), e(p.e), dp(Sizes<T>(p).dp),
          planes(p.coefficients[BETA].heads || p.coefficients[BETA].tokens ? 2 : 1),
          plane(ColumnTile<T>::plane(p.d, p.e, planes)) {}
    ColumnTile<T> tile(int64_t index) const { return ColumnTile<T>(index, d, e, planes); }
    int64_t tiles() const { return ColumnTile<T>::count(e, planes); }
    int64_t matrices() const { return planes * d * e; }           // elements of s and m in a tensor
    int64_t unpadded_state() const { return matrices() + d; }
};

// Resets of the `count` tokens that are not masked. reset[t]: whether a document begins at token t, or at one of the
// masked tokens just before it. reset[count]: whether one begins at a masked token after the last.
template <class T> inline void fill_resets(uint8_t* reset, const FamilyProblem& p, const Sequence<T>& x) {
    int64_t seen = 0;
    for (int64_t t = 0; t <= x.count; t++) {
        int64_t last = t == x.count ? p.n - 1 : x.q.index ? x.q.index[t] : t;
        reset[t] = 0;
        for (; p.reset && seen <= last; seen++) reset[t] |= p.reset[x.b * p.n + seen];
    }
}

// The rows of an α that has a number per channel.
template <class T> inline RowView<T> channel_rows(const FamilyProblem& p, const Sequence<T>& x) {
    RowView<T> rows(p.erase, p, x.b, x.h);  // for its index; α is contiguous, and in the type of the computation
    rows.data = static_cast<char*>(const_cast<void*>(p.coefficients[ALPHA].tokens)) + x.index() * p.n * p.d * sizeof(T);
    rows.stride = p.d * sizeof(T);
    rows.storage = FULL_WIDTH;
    return rows;
}

// The inputs of a block of tokens: read in place where their layout allows it, else packed.
template <class T> struct PackedBlock {
    const FamilyProblem& p;
    FamilySizes<T> size;
    T *Q, *K, *P, *A, *V;
    Rows<const T> q, k, erase, alpha;
    BlockCoefficients<T> c;

    PackedBlock(const FamilyProblem& p, Arena& arena)
        : p(p), size(p), Q(arena.take<T>(BLOCK * size.dp)), K(arena.take<T>((BLOCK + 1) * size.dp)),
          P(p.erase.data ? arena.take<T>((BLOCK + 1) * size.dp) : K),
          A(p.channels ? arena.take<T>(BLOCK * size.dp) : nullptr),
          V(arena.take<T>(BLOCK * ColumnTile<T>::MOST_COLUMNS)), c(p) {}

    static bool readable(const RowView<T>& rows, int64_t columns) {
        return rows.storage == FULL_WIDTH && !rows.index && columns % 4 == 0;
    }
    static Rows<const T> in_place(const RowView<T>& rows, int64_t begin) {
        return {rows.template row<T>(begin), rows.stride / (int64_t)sizeof(T)};
    }
    Rows<const T> features(T* to, const RowView<T>& from, int64_t begin, int64_t count, int64_t padded, bool elu) {
        // Packed are rows of which one would lie behind the tensor (padded > count), and rows that `divide` reads by
        // whole vectors.
        bool stays = readable(from, size.d) && !elu && !p.normalize && count == padded;
        if (stays) return in_place(from, begin);
        pack_features(to, size.dp, from, begin, count, padded, size.d, elu);
        return {to, size.dp};
    }
    void fill(const Sequence<T>& x, int64_t begin, int64_t count) {
        int64_t more = min(count + 1, x.count - begin);  // the token after the block, if there is one
        q = features(Q, x.q, begin, count, count, p.elu);
        k = features(K, x.k, begin, more, count + 1, p.elu);
        erase = p.erase.data ? features(P, RowView<T>(p.erase, p, x.b, x.h), begin, more, count + 1, false) : k;
        if (p.channels) alpha = features(A, channel_rows<T>(p, x), begin, count, count, false);
        c.set_tokens(p, x, begin, more);
    }
    Rows<const T> values(const Sequence<T>& x, int64_t begin, int64_t count, const ColumnTile<T>& tile) {
        RowView<T> rows = x.v;
        rows.data += tile.first * (rows.storage == FULL_WIDTH ? (int64_t)sizeof(T) : 2);
        if (readable(rows, size.e) && tile.columns == tile.ld) return in_place(rows, begin);
        pack<T, false>(V, tile.ld, rows, begin, count, count, tile.columns);
        return {V, tile.ld};
    }
};

// The prediction of a tile for the first token: what its state s (+ ρm) gives for that token's `erase`.
template <class T>
inline void predict(T* prediction, const ColumnTile<T>& tile, const T* s, const T* m, T rho, const T* erase) {
    for (int64_t j = 0; j < tile.ld; j += width<T>) {
        Vec<T> sum{};
        for (int64_t i = 0; i < tile.rows; i++) {
            Vec<T> state = load(s + i * tile.ld + j);
            if (m) state += rho * load(m + i * tile.ld + j);
            sum += erase[i] * state;
        }
        store(prediction + j, sum);
    }
}

template <class T> struct FamilyForward {
    const FamilyProblem& p;
    FamilySizes<T> size;
    PackedBlock<T> packed;
    T *Y, *kept;        // of one tile: numerators, predictions
    T* plane[2];
    BlockedSum<T> sum;  // of s, which plane[0] has the segment of
    T* faded;           // rows of q, times what is left of each feature of s since the segment began
    PairRows<T> pair;
    T *prediction;      // of the token at hand
    T *z, *z_local;     // before the segment, and what it has added
    uint8_t* reset;
    Prefetch prefetch;

    FamilyForward(const FamilyProblem& p, Arena& arena)
        : p(p), size(p), packed(p, arena), Y(arena.take<T>(BLOCK * ColumnTile<T>::MOST_COLUMNS)),
          kept(arena.take<T>(BLOCK * ColumnTile<T>::MOST_COLUMNS)),
          plane{arena.take<T>(size.plane), size.planes == 2 ? arena.take<T>(size.plane) : nullptr},
          sum(p, size.plane, size.dp, arena), faded(arena.take<T>(p.sum_segments ? BLOCK * size.dp : 0)),
          pair{{}, p.channels ? arena.take<T>(BLOCK * size.dp) : nullptr, size.dp},
          prediction(arena.take<T>(size.tiles() * ColumnTile<T>::MOST_COLUMNS)), z(arena.take<T>(size.dp)),
          z_local(arena.take<T>(size.dp)), reset(arena.take<uint8_t>(p.n + 1)) {}

    void read_tile(const ColumnTile<T>& tile, const T* matrices) {
        for (int l = 0; l < size.planes; l++)
            tile.read(tile.in(plane[l]), matrices ? matrices + l * size.d * size.e : nullptr, size.d, size.e);
    }
    void write_tile(const ColumnTile<T>& tile, T* matrices, const T* s) {
        for (int l = 0; l < size.planes; l++)
            tile.write(matrices + l * size.d * size.e, tile.in(const_cast<T*>(l ? plane[1] : s)), size.d, size.e);
    }

    // The reciprocal denominators of a block.
    void divide(T* factor, const Sequence<T>& x, int64_t begin, int64_t count, bool writes) {
        constexpr int W = width<T>;
        for (int64_t t = 0; t < count; t++) {
            if (reset[begin + t]) {
                memset(z, 0, size.dp * sizeof(T));
                memset(z_local, 0, size.dp * sizeof(T));
            }
            Vec<T> product{};
            for (int64_t at = 0; at < size.dp; at += W) {
                Vec<T> local = load(z_local + at) + load(packed.K + t * size.dp + at);
                store(z_local + at, local);
                product += load(packed.Q + t * size.dp + at) * (load(z + at) + local);
            }
            T denominator = horizontal_sum<T>(product);
            factor[t] = T(1) / (denominator + T(p.eps));
            if (writes && p.denominator) static_cast<T*>(p.denominator)[x.index() * p.n + begin + t] = denominator;
        }
    }

    void block(const Sequence<T>& x, int64_t begin, int64_t count, int64_t first_tile, int64_t last_tile) {
        packed.fill(x, begin, count);
        T factor[BLOCK];
        if (p.normalize) divide(factor, x, begin, count, first_tile == 0);
        if (sum.active) fade_queries(count);
        const bool pairs = goes_by_pairs(packed.c, reset + begin, count);
        if (pairs) prefetch_block(x, begin + count);
        const int64_t lines = 1 + prefetch.lines / (count * (last_tile - first_tile));
        for (int64_t index = first_tile; index < last_tile; index++) {
            ColumnTile<T> tile = size.tile(index);
            T *s = tile.in(plane[0]), *m = size.planes == 2 ? tile.in(plane[1]) : nullptr;
            if (begin == 0 && packed.c.erase != ERASE_NOTHING)
                predict(prediction + tile.first, tile, s, m, packed.c.at[LOOKAHEAD][0], packed.erase[0]);
            RowView<T> y(p.y, p, x.b, x.h);
            bool whole = !p.normalize && !sum.active && PackedBlock<T>::readable(y, size.e) && tile.columns == tile.ld;
            T* out = whole ? y.template row<T>(begin) + tile.first : Y;
            T* predictions = static_cast<T*>(p.predictions);
            if (predictions) predictions += (x.index() * p.n + begin) * size.e + tile.first;
            bool in_place = tile.columns == tile.ld;
            FamilyBlock<T> tokens{count, packed.q, packed.k, packed.erase, packed.alpha,
                                  packed.values(x, begin, count, tile),
                                  {out, whole ? y.stride / (int64_t)sizeof(T) : tile.ld},
                                  {predictions && !in_place ? kept : predictions, in_place ? size.e : tile.ld},
                                  reset + begin, packed.c, prefetch, lines};
            if (pairs && index == first_tile) pair.fill(tokens, size.d, tile.rows);
            if (pairs)
                scan_pairs_of_tile(tile, s, m, prediction + tile.first, tokens, pair);
            else
                scan_tile_of_columns(tile, s, m, prediction + tile.first, tokens);
            if (sum.active) read_base(tile.in(sum.base), count, tile, reset + begin);
            if (!whole) write_outputs(y, begin, count, tile, factor);
            for (int64_t t = 0; predictions && !in_place && t < count; t++)
                memcpy(predictions + t * size.e, kept + t * tile.ld, tile.columns * sizeof(T));
        }
    }
    // Prefetches the block from token `first` on. Rows after the sequence belong to the one that is computed next.
    void prefetch_block(const Sequence<T>& x, int64_t first) {
        prefetch.clear();
        if (size.d * (int64_t)sizeof(T) < 256) return;  // the hardware prefetcher is enough for short rows
        prefetch.add(x.k, first, BLOCK, size.d);
        prefetch.add(x.q, first, BLOCK, size.d);
        prefetch.add(x.v, first, BLOCK, size.e);
        if (p.erase.data) prefetch.add(RowView<T>(p.erase, p, x.b, x.h), first, BLOCK, size.d);
    }
    void fade_queries(int64_t count) {
        for (int64_t t = 0; t < count; t++) {
            sum.decay(packed.c.alpha[t], packed.alpha[t]);
            for (int64_t i = 0; i < size.d; i++) faded[t * size.dp + i] = packed.q[t][i] * sum.kept(i);
        }
    }
    // What the state before the segment adds to the outputs.
    void read_base(T* from, int64_t count, const ColumnTile<T>& tile, const uint8_t* reset) {
        for (int64_t t = 0; t < count; t++) {
            if (reset[t]) memset(from, 0, tile.size() * sizeof(T));
            for (int64_t at = 0; at < tile.ld; at += width<T>) {
                Vec<T> read{};
                for (int64_t i = 0; i < size.d; i++) read += faded[t * size.dp + i] * load(from + i * tile.ld + at);
                T* y = Y + t * tile.ld + at;
                store(y, load(y) + read);
            }
        }
    }
    void write_outputs(const RowView<T>& y, int64_t begin, int64_t count, const ColumnTile<T>& tile, const T* factor) {
        for (int64_t t = 0; t < count; t++)
            for (int64_t at = 0; at < tile.columns; at += width<T>) {
                Vec<T> value = load(Y + t * tile.ld + at);
                if (p.normalize) value *= factor[t];
                int64_t column = tile.first + at, left = tile.columns - at;
                if (y.storage == FULL_WIDTH)
                    write_stored<T>(y.template row<T>(begin + t) + column, value, left);
                else
                    write_narrow<T>(y, begin + t, column, value, left);
            }
    }

    // All tokens of one sequence, for some tiles of columns. The call that has the first tile also writes z.
    void run(int64_t sequence, int64_t first_tile, int64_t last_tile) {
        Sequence<T> x(p, sequence);
        packed.c.set_head(p, x.h);
        fill_resets(reset, p, x);
        const T *s = static_cast<const T*>(p.s), *z_before = static_cast<const T*>(p.z);
        for (int64_t i = first_tile; i < last_tile; i++)
            read_tile(size.tile(i), s ? s + x.index() * size.matrices() : nullptr);
        sum.clear(size.plane);
        memset(z, 0, size.dp * sizeof(T));
        memset(z_local, 0, size.dp * sizeof(T));
        if (z_before) memcpy(z, z_before + x.index() * size.d, size.d * sizeof(T));
        for (int64_t begin = 0; begin < x.count && !stopped(&p); begin += p.segment) {
            const int64_t end = min(begin + p.segment, x.count);
            add_to_z();
            merge(first_tile, last_tile, sum.decays_slowly(x, begin, end));
            if (p.prefix) save(static_cast<T*>(p.prefix) +
                                   (x.index() * segments(p) + begin / p.segment) * size.unpadded_state(),
                               first_tile, last_tile);
            for (int64_t at = begin; at < end; at += BLOCK)
                block(x, at, min(BLOCK, end - at), first_tile, last_tile);
        }
        add_to_z();
        if (!p.s_after) return;
        merge(first_tile, last_tile, false);
        bool forgotten = reset[x.count];
        if (forgotten) {
            for (int l = 0; l < size.planes; l++) memset(plane[l], 0, size.plane * sizeof(T));
            memset(z, 0, size.dp * sizeof(T));
        }
        for (int64_t i = first_tile; i < last_tile; i++)
            write_tile(size.tile(i), static_cast<T*>(p.s_after) + x.index() * size.matrices(), plane[0]);
        if (p.z_after && first_tile == 0)
            memcpy(static_cast<T*>(p.z_after) + x.index() * size.d, z, size.d * sizeof(T));
    }
    void merge(int64_t first_tile, int64_t last_tile, bool next) {  // before a segment, and after the last
        for (int64_t i = first_tile; i < last_tile; i++) {
            ColumnTile<T> tile = size.tile(i);
            sum.merge(tile.in(plane[0]), tile.in(sum.base), tile.rows, tile.ld, true, next);
        }
        sum.start(next);
    }
    void add_to_z() {  // segment by segment, which rounds less in long sequences
        for (int64_t at = 0; at < size.dp; at += width<T>) store(z + at, load(z + at) + load(z_local + at));
        memset(z_local, 0, size.dp * sizeof(T));
    }
    void save(T* state, int64_t first_tile, int64_t last_tile) {  // what the backward pass starts a segment from
        const T* whole = sum.active ? sum.base : plane[0];
        for (int64_t i = first_tile; i < last_tile; i++) write_tile(size.tile(i), state, whole);
        if (first_tile == 0) memcpy(state + size.matrices(), z, size.d * sizeof(T));
    }
};

}  // namespace
