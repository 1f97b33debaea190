// One sequence of one head: where its rows are, its weights, its state, and how rows come into a chunk.
#pragma once
#include <cstdlib>
#include "problem.h"
#include "tiles.h"

namespace {

inline int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
inline int64_t round_down(int64_t x, int64_t unit) { return x / unit * unit; }
template <class X> inline X smaller(X a, X b) { return a < b ? a : b; }

inline int64_t segments(const Problem& p) { return (p.n + p.segment - 1) / p.segment; }

struct Arena {  // the scratch memory of one thread
    char* base = nullptr;
    size_t used = 0;
    template <class T> T* take(int64_t count) {
        char* p = base ? base + used : nullptr;
        used += round_up(count * sizeof(T), 64);
        return reinterpret_cast<T*>(p);
    }
};

constexpr int64_t BLOCK = 32;  // tokens that are packed at a time

template <class T> struct Sizes {
    static constexpr int64_t UNIT = width<T> > ROWS ? width<T> : ROWS;
    int64_t d, e, dp, ep;  // as given, and padded with zeros
    int64_t lanes, state;  // of the state, and the padded size of one
    explicit Sizes(const Problem& p)
        : d(p.d), e(p.e), dp(round_up(p.d, UNIT)), ep(round_up(p.e, UNIT)), lanes(p.beta ? 2 : 1), state(dp * ep) {}
    int64_t plain() const { return lanes * d * e + d; }  // a state as tensors hold it
};

enum Stored { AS_COMPUTED, BFLOAT16, FLOAT16 };

template <class T> struct Place {  // rows of one (b, h) of a tensor; T is what is computed with
    char* data;
    int64_t stride;  // in bytes
    const int32_t* rows;
    Stored stored;
    bool streams;  // rows are whole lines, of a tensor that would not stay in the caches
    Place(const Rows& x, const Problem& p, int64_t b, int64_t h)
        : rows(p.rows ? p.rows + b * p.n : nullptr),
          stored(p.dtype == 2 ? BFLOAT16 : p.dtype == 3 ? FLOAT16 : AS_COMPUTED) {
        int64_t bytes = stored == AS_COMPUTED ? sizeof(T) : 2;
        data = static_cast<char*>(x.data) + (b * x.b + h * x.h) * bytes;
        stride = x.n * bytes;
        streams = stored == AS_COMPUTED && !p.rows && p.b * p.h * p.n * p.e * bytes >= 1 << 18 &&
                  ((reinterpret_cast<uintptr_t>(data) | stride) & 63) == 0;
    }
    template <class S> S* row(int64_t i) const { return reinterpret_cast<S*>(data + (rows ? rows[i] : i) * stride); }
};

template <class T> struct Sequence {
    const Problem& p;
    int64_t b, h, count;
    Place<T> q, k, v;
    Sequence(const Problem& p, int64_t bh)
        : p(p), b(bh / p.h), h(bh % p.h), count(p.count ? p.count[b] : p.n), q(p.q, p, b, h), k(p.k, p, b, h),
          v(p.v, p, b, h) {}
    int64_t segments() const { return (count + p.segment - 1) / p.segment; }
    int64_t index() const { return b * p.h + h; }
};

template <class T> struct State {  // lanes s (and m), each dp × ep, or turned, and z
    T* lane[2];
    T* z;
    State(Arena& arena, const Sizes<T>& size)
        : lane{arena.take<T>(size.state), size.lanes == 2 ? arena.take<T>(size.state) : nullptr},
          z(arena.take<T>(size.dp)) {}
    State(T* memory, const Sizes<T>& size)
        : lane{memory, size.lanes == 2 ? memory + size.state : nullptr}, z(memory + size.lanes * size.state) {}
    static int64_t length(const Sizes<T>& size) { return size.lanes * size.state + size.dp; }
    void clear(const Sizes<T>& size) {
        for (int l = 0; l < size.lanes; l++) memset(lane[l], 0, size.state * sizeof(T));
        memset(z, 0, size.dp * sizeof(T));
    }
    void copy(const State& other, const Sizes<T>& size) {
        for (int l = 0; l < size.lanes; l++) memcpy(lane[l], other.lane[l], size.state * sizeof(T));
        memcpy(z, other.z, size.dp * sizeof(T));
    }
};

template <class T>
inline void turn(T* to, int64_t ld_to, const T* from, int64_t ld_from, int64_t rows, int64_t columns) {
    constexpr int W = width<T>;
    for (int64_t r = 0; r < rows; r += W)
        for (int64_t x = 0; x < columns; x += W) {
            Vec<T> block[W];
            for (int i = 0; i < W; i++) block[i] = load(from + (r + i) * ld_from + x);
            transpose<T>(block);
            for (int i = 0; i < W; i++) store(to + (x + i) * ld_to + r, block[i]);
        }
}

// Between the padded state and the plain one of a tensor: lanes of d × e, then z of d.
template <class T> inline void read_state(State<T>& to, const T* s, const T* z, const Sizes<T>& size) {
    to.clear(size);
    if (!s) return;
    for (int l = 0; l < size.lanes; l++)
        for (int64_t i = 0; i < size.d; i++)
            memcpy(to.lane[l] + i * size.ep, s + (l * size.d + i) * size.e, size.e * sizeof(T));
    memcpy(to.z, z, size.d * sizeof(T));
}
template <class T> inline void write_state(T* s, T* z, const State<T>& from, const Sizes<T>& size) {
    if (!s) return;
    for (int l = 0; l < size.lanes; l++)
        for (int64_t i = 0; i < size.d; i++)
            memcpy(s + (l * size.d + i) * size.e, from.lane[l] + i * size.ep, size.e * sizeof(T));
    memcpy(z, from.z, size.d * sizeof(T));
}

// Rows that are needed soon, asked for a few lines at a time: a core waits for a few dozen lines, not for more, and every
// block may begin a new page, where the processor does not look ahead by itself. Beyond the ends they are rows of the
// sequence beside this one, or nothing.
struct Ahead {
    struct Part {
        const char* row;
        int64_t stride, bytes, rows;
    };
    Part parts[5];
    int from = 0, to = 0;
    int64_t lines = 0;
    void clear() { from = to = 0, lines = 0; }
    template <class T> void add(const Place<T>& x, int64_t begin, int64_t rows, int64_t columns) {
        int64_t bytes = columns * (x.stored == AS_COMPUTED ? (int64_t)sizeof(T) : 2);
        const char* row = x.data + begin * x.stride;  // where tokens are left out, this is a guess
        if (bytes == x.stride)  // rows without gaps
            parts[to] = {row, 256, 256, (rows * bytes + 255) / 256};
        else
            parts[to] = {row, x.stride, bytes, rows};
        lines += parts[to].rows * ((parts[to].bytes + 63) / 64);
        to++;
    }
    __attribute__((noinline)) void ask(int64_t least) {
        for (int64_t count = 0; count < least && from < to;) {
            Part& part = parts[from];
            for (int64_t at = 0; at < part.bytes; at += 64, count++) __builtin_prefetch(part.row + at, 0, 1);
            part.row += part.stride;
            if (--part.rows == 0) from++;
        }
    }
};

// Rows `begin` … of a tensor into `to`, φ applied, padded with zeros to `padded` rows.
template <class T, bool Map, class S>
void pack_stored(T* to, int64_t width_padded, const Place<T>& from, int64_t begin, int64_t rows, int64_t columns) {
    constexpr int W = width<T>;
    int64_t whole = round_down(columns, W), left = columns - whole;
    for (int64_t i = 0; i < rows; i++) {
        const S* row = from.template row<S>(begin + i);
        T* out = to + i * width_padded;
        for (int64_t x = 0; x < whole; x += W) {
            Vec<T> value = load_as<T>(row + x);
            store(out + x, Map ? elu_plus_one<T>(value) : value);
        }
    }
    if (whole == width_padded) return;
    for (int64_t i = 0; i < rows; i++) {
        T* out = to + i * width_padded;
        Vec<T> value = load_first<T>(from.template row<S>(begin + i) + whole, left);
        store(out + whole, Map ? (first<T>(left) ? elu_plus_one<T>(value) : Vec<T>{}) : value);
        for (int64_t x = whole + W; x < width_padded; x += W) store(out + x, Vec<T>{});
    }
}
template <class T, bool Map>
inline void pack(T* to, int64_t width_padded, const Place<T>& from, int64_t begin, int64_t rows, int64_t padded,
                 int64_t columns) {
    if (from.stored == AS_COMPUTED)
        pack_stored<T, Map, T>(to, width_padded, from, begin, rows, columns);
    else if constexpr (sizeof(T) == sizeof(float)) {
        if (from.stored == BFLOAT16)
            pack_stored<T, Map, bfloat16>(to, width_padded, from, begin, rows, columns);
        else
            pack_stored<T, Map, float16>(to, width_padded, from, begin, rows, columns);
    }
    if (padded > rows) memset(to + rows * width_padded, 0, (padded - rows) * width_padded * sizeof(T));
}
template <class T>
inline void pack_features(T* to, int64_t width_padded, const Place<T>& from, int64_t begin, int64_t rows,
                          int64_t padded, int64_t columns, bool elu) {
    if (elu)
        pack<T, true>(to, width_padded, from, begin, rows, padded, columns);
    else
        pack<T, false>(to, width_padded, from, begin, rows, padded, columns);
}

// G = rows of dy times `factor`, and the products dy · y of each row
template <class T, class S>
void pack_gradients(T* G, T* products, const Place<T>& dy, const Place<T>& y, int64_t begin, int64_t rows,
                    int64_t columns, int64_t width_padded, const T* factor) {
    constexpr int W = width<T>;
    for (int64_t i0 = 0; i0 < rows; i0 += ROWS) {
        Vec<T> dots[ROWS] = {};
        int64_t real = smaller<int64_t>(ROWS, rows - i0);
        for (int64_t r = 0; r < real; r++) {
            const S *from = dy.template row<S>(begin + i0 + r), *out = y.template row<S>(begin + i0 + r);
            T *to = G + (i0 + r) * width_padded, scale = factor[i0 + r];
            Vec<T> dot{};
            int64_t x = 0;
            for (; x + W <= columns; x += W) {
                Vec<T> g = load_as<T>(from + x);
                dot += g * load_as<T>(out + x);
                store(to + x, g * scale);
            }
            for (; x < width_padded; x += W) {
                int64_t left = columns > x ? columns - x : 0;
                Vec<T> g = load_first<T>(from + x, left);
                dot += g * load_first<T>(out + x, left);
                store(to + x, g * scale);
            }
            dots[r] = dot;
        }
        T sums[ROWS];
        sum_rows<T>(sums, dots);
        memcpy(products + i0, sums, sizeof sums);
    }
}

template <class T> inline void add_rows(T* to, const T* rows, int64_t count, int64_t columns) {
    constexpr int W = width<T>;
    for (int64_t x = 0; x < columns; x += W) {
        Vec<T> total = load(to + x);
        for (int64_t i = 0; i < count; i++) total += load(rows + i * columns + x);
        store(to + x, total);
    }
}

template <class T> inline void scale_rows(T* to, const T* from, int64_t rows, int64_t columns, const T* weight, int step) {
    constexpr int W = width<T>;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t x = 0; x < columns; x += W)
            store(to + i * columns + x, load(from + i * columns + x) * weight[i * step]);
}

template <class T, class S> inline void write_stored(S* to, Vec<T> x, int64_t columns) {
    if (columns >= width<T>)
        store_as<T>(to, x);
    else
        store_first<T>(to, x, columns);
}
template <class T> __attribute__((noinline)) void write_narrow(const Place<T>& to, int64_t row, int64_t at, Vec<T> x, int64_t columns) {
    if constexpr (sizeof(T) == sizeof(float)) {
        if (to.stored == BFLOAT16)
            write_stored<T>(to.template row<bfloat16>(row) + at, x, columns);
        else
            write_stored<T>(to.template row<float16>(row) + at, x, columns);
    }
}
// Rows that are not whole, not in order, or not stored as they are computed.
template <class T, int N>
__attribute__((noinline)) void write_odd_rows(const Vec<T> (&acc)[ROWS][N], const Place<T>& to, int64_t begin,
                                              int64_t rows, int64_t x, int64_t columns) {
    each<N>([&](int r, int j) INLINE {
        int64_t at = x + j * width<T>;
        if (r >= rows || at >= columns) return;
        if (to.stored == AS_COMPUTED)
            write_stored<T>(to.template row<T>(begin + r) + at, acc[r][j], columns - at);
        else
            write_narrow<T>(to, begin + r, at, acc[r][j], columns - at);
    });
}
template <class T, int N>
inline __attribute__((always_inline)) void write_rows(const Vec<T> (&acc)[ROWS][N], const Place<T>& to, int64_t begin,
                                                      int64_t rows, int64_t x, int64_t columns) {
    T* at = reinterpret_cast<T*>(to.data + begin * to.stride) + x;
    int64_t ld = to.stride / (int64_t)sizeof(T);
    bool whole = rows == ROWS && x + N * width<T> <= columns;
    if (N * VECTOR_BYTES >= 64 && whole && to.streams) {
        each<N>([&](int r, int j) INLINE { stream(at + r * ld + j * width<T>, acc[r][j]); });
    } else if (whole && !to.rows && to.stored == AS_COMPUTED) {
        store_tile(acc, at, ld);
    } else {
        Vec<T> tile[ROWS][N];
        each<N>([&](int r, int j) INLINE { tile[r][j] = acc[r][j]; });
        write_odd_rows<T, N>(tile, to, begin, rows, x, columns);
    }
}

}  // namespace
