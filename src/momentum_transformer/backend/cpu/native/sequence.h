// One head of one sequence: views of its rows, its recurrent state, and the scratch memory they are computed in.
#pragma once
#include <cstdlib>
#include "problem.h"
#include "tiles.h"

namespace {

inline int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
inline int64_t round_down(int64_t x, int64_t unit) { return x / unit * unit; }
template <class X> inline X min(X a, X b) { return a < b ? a : b; }

inline int64_t segments(const Problem& p) { return (p.n + p.segment - 1) / p.segment; }

struct Arena {  // a bump allocator on the scratch memory of one thread; without memory it only measures
    // Arrays of a power of two bytes must not all begin at the same offset of a page: a load that follows a store to
    // the same offset of another page waits for it.
    static constexpr size_t STAGGER = 5 * 64;
    char* base = nullptr;
    size_t used = 0;
    template <class T> T* take(int64_t count) {
        char* p = base ? base + used : nullptr;
        used += round_up(count * sizeof(T), 64) + STAGGER;
        return reinterpret_cast<T*>(p);
    }
};

constexpr int64_t BLOCK = 32;  // tokens that are packed, and go through a tile of the state, at a time

template <class T> struct Sizes {
    static constexpr int64_t ALIGNMENT = width<T> > TILE_ROWS ? width<T> : TILE_ROWS;
    int64_t d, e;    // widths of keys and values
    int64_t dp, ep;  // the same, padded with zeros to a multiple of ALIGNMENT
    int64_t planes;  // of the state: s, or s and m
    int64_t plane;   // elements of a padded plane
    explicit Sizes(const Problem& p)
        : d(p.d), e(p.e), dp(round_up(p.d, ALIGNMENT)), ep(round_up(p.e, ALIGNMENT)), planes(p.beta ? 2 : 1),
          plane(dp * ep) {}
    int64_t unpadded_state() const { return planes * d * e + d; }  // elements of a state in a tensor, z included
};

enum Storage { FULL_WIDTH, BFLOAT16, FLOAT16 };  // how a tensor is stored; FULL_WIDTH: in the type of the computation

template <class T> struct RowView {  // the rows of one batch element and head of a tensor; T is the computation's type
    char* data;
    int64_t stride;        // in bytes
    const int32_t* index;  // row i of the view is row index[i] of the tensor; null: row i
    Storage storage;
    bool nontemporal;      // write past the caches: rows are whole cache lines of a tensor too large to stay cached
    RowView(const TensorView& x, const Problem& p, int64_t b, int64_t h)
        : index(p.token_index ? p.token_index + b * p.n : nullptr),
          storage(p.dtype == DTYPE_BFLOAT16  ? BFLOAT16
                  : p.dtype == DTYPE_FLOAT16 ? FLOAT16
                                             : FULL_WIDTH) {
        int64_t bytes = storage == FULL_WIDTH ? sizeof(T) : 2;
        data = static_cast<char*>(x.data) + (b * x.b + h * x.h) * bytes;
        stride = x.n * bytes;
        nontemporal = storage == FULL_WIDTH && !p.token_index && p.b * p.h * p.n * p.e * bytes >= 1 << 18 &&
                      ((reinterpret_cast<uintptr_t>(data) | stride) & 63) == 0;
    }
    template <class S> S* row(int64_t i) const { return reinterpret_cast<S*>(data + (index ? index[i] : i) * stride); }
};

template <class T> struct Sequence {
    const Problem& p;
    int64_t b, h, count;  // count: tokens that are not masked
    RowView<T> q, k, v;
    Sequence(const Problem& p, int64_t bh)
        : p(p), b(bh / p.h), h(bh % p.h), count(p.token_count ? p.token_count[b] : p.n), q(p.q, p, b, h),
          k(p.k, p, b, h), v(p.v, p, b, h) {}
    int64_t segments() const { return (count + p.segment - 1) / p.segment; }
    int64_t index() const { return b * p.h + h; }
};

template <class T> struct State {  // plane s, perhaps plane m, each dp × ep (or transposed), and z of dp elements
    T* plane[2];
    T* z;
    State(Arena& arena, const Sizes<T>& size)
        : plane{arena.take<T>(size.plane), size.planes == 2 ? arena.take<T>(size.plane) : nullptr},
          z(arena.take<T>(size.dp)) {}
    State(T* memory, const Sizes<T>& size)
        : plane{memory, size.planes == 2 ? memory + size.plane : nullptr}, z(memory + size.planes * size.plane) {}
    static int64_t length(const Sizes<T>& size) { return size.planes * size.plane + size.dp; }
    void clear(const Sizes<T>& size) {
        for (int l = 0; l < size.planes; l++) memset(plane[l], 0, size.plane * sizeof(T));
        memset(z, 0, size.dp * sizeof(T));
    }
    void copy(const State& other, const Sizes<T>& size) {
        for (int l = 0; l < size.planes; l++) memcpy(plane[l], other.plane[l], size.plane * sizeof(T));
        memcpy(z, other.z, size.dp * sizeof(T));
    }
};

template <class T>
inline void transpose(T* to, int64_t ld_to, const T* from, int64_t ld_from, int64_t rows, int64_t columns) {
    constexpr int W = width<T>;
    for (int64_t r = 0; r < rows; r += W)
        for (int64_t x = 0; x < columns; x += W) {
            Vec<T> block[W];
            for (int i = 0; i < W; i++) block[i] = load(from + (r + i) * ld_from + x);
            transpose_registers<T>(block);
            for (int i = 0; i < W; i++) store(to + (x + i) * ld_to + r, block[i]);
        }
}

// Copies between a padded state and the unpadded planes (d × e each) and z (d) of a tensor. A null tensor reads as
// zeros, and is not written.
template <class T> inline void read_state(State<T>& to, const T* s, const T* z, const Sizes<T>& size) {
    to.clear(size);
    if (!s) return;
    for (int l = 0; l < size.planes; l++)
        for (int64_t i = 0; i < size.d; i++)
            memcpy(to.plane[l] + i * size.ep, s + (l * size.d + i) * size.e, size.e * sizeof(T));
    memcpy(to.z, z, size.d * sizeof(T));
}
template <class T> inline void write_state(T* s, T* z, const State<T>& from, const Sizes<T>& size) {
    if (!s) return;
    for (int l = 0; l < size.planes; l++)
        for (int64_t i = 0; i < size.d; i++)
            memcpy(s + (l * size.d + i) * size.e, from.plane[l] + i * size.ep, size.e * sizeof(T));
    memcpy(z, from.z, size.d * sizeof(T));
}

}  // namespace
