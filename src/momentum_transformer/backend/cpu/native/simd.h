// SIMD vectors as wide as the target's registers, written with the vector extensions of GCC and Clang.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define FORCE_INLINE inline __attribute__((always_inline))
#define INLINE __attribute__((always_inline))  // for lambdas

// REGISTER_ROWS: how many rows of a tile can be accumulated at once without spilling vector registers.
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define REGISTER_ROWS 8
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#define REGISTER_ROWS 4
#else
#define VECTOR_BYTES 16
#define REGISTER_ROWS 4
#endif

namespace {

template <class T> struct Simd;
template <> struct Simd<float> {
    typedef float V __attribute__((vector_size(VECTOR_BYTES)));
    typedef int32_t I __attribute__((vector_size(VECTOR_BYTES)));
    using Int = int32_t;
};
template <> struct Simd<double> {
    typedef double V __attribute__((vector_size(VECTOR_BYTES)));
    typedef int64_t I __attribute__((vector_size(VECTOR_BYTES)));
    using Int = int64_t;
};
template <class T, int N> struct VectorOf {
    typedef T V __attribute__((vector_size(N * sizeof(T))));
};
template <class T> using Vec = typename Simd<T>::V;
template <class T> using Mask = typename Simd<T>::I;
template <class T> constexpr int width = VECTOR_BYTES / sizeof(T);

template <class T> inline Vec<T> load(const T* p) {
    Vec<T> x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}
template <class T> inline void store(T* p, Vec<T> x) { __builtin_memcpy(p, &x, sizeof x); }

// A non-temporal store bypasses the caches: a cache line that is written as a whole need not be read first. Other
// threads may rely on these stores only after `nontemporal_fence`.
template <class T> inline void store_nontemporal(T* p, Vec<T> x) {
#if defined(__clang__)
    __builtin_nontemporal_store(x, reinterpret_cast<Vec<T>*>(p));
#elif defined(__AVX512F__)
    __builtin_ia32_movntps512(reinterpret_cast<float*>(p), (Vec<float>)x);
#elif defined(__AVX2__)
    __builtin_ia32_movntps256(reinterpret_cast<float*>(p), (Vec<float>)x);
#else
    store(p, x);
#endif
}
inline void nontemporal_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

template <class T> inline Vec<T> splat(T x) { return x - Vec<T>{}; }  // x - 0 keeps the sign of -0; x + 0 would not

// x in all lanes, kept in a register: compilers tend to reload it at every use.
template <class T> FORCE_INLINE Vec<T> broadcast(T x) {
    Vec<T> lanes = splat(x);
#if defined(__AVX512F__)
    asm("" : "+v"(lanes));
#elif defined(__SSE2__)
    asm("" : "+x"(lanes));
#elif defined(__aarch64__)
    asm("" : "+w"(lanes));
#endif
    return lanes;
}

template <class T> inline Mask<T> iota() {
    typename Simd<T>::Int lanes[width<T>];
    for (int i = 0; i < width<T>; i++) lanes[i] = i;
    Mask<T> x;
    __builtin_memcpy(&x, lanes, sizeof x);
    return x;
}

template <class T> inline Mask<T> lane_mask(int64_t count) {  // true in the first `count` lanes
    return iota<T>() < (Mask<T>{} + (typename Simd<T>::Int)count);
}

// Memory may hold a narrower type (S) than the kernels compute with (T): bfloat16 and float16 are widened to float32.
struct bfloat16 {
    uint16_t bits;
};
#if defined(__aarch64__)
using float16 = __fp16;  // GCC 12 has no _Float16 on this architecture
#else
using float16 = _Float16;
#endif

template <class T, class S> inline Vec<T> load_as(const S* p) {
    constexpr int W = width<T>;
    (void)W;
    if constexpr (sizeof(S) == sizeof(T)) {
        return load(p);
    } else if constexpr (std::is_same_v<S, bfloat16>) {
        using Narrow = typename VectorOf<uint16_t, W>::V;
        using Wide = typename VectorOf<uint32_t, W>::V;
        Narrow x;
        __builtin_memcpy(&x, p, sizeof x);
        return (Vec<T>)(__builtin_convertvector(x, Wide) << 16);
    } else {
        using Narrow = typename VectorOf<float16, W>::V;
        Narrow x;
        __builtin_memcpy(&x, p, sizeof x);
        return __builtin_convertvector(x, Vec<T>);
    }
}
template <class T, class S> inline void store_as(S* p, Vec<T> x) {
    constexpr int W = width<T>;
    (void)W;
    if constexpr (sizeof(S) == sizeof(T)) {
        store(p, x);
    } else if constexpr (std::is_same_v<S, bfloat16>) {
        using Narrow = typename VectorOf<uint16_t, W>::V;
        using Wide = typename VectorOf<uint32_t, W>::V;
        Wide bits = (Wide)x;
        bits = (x != x) ? (Wide{} + 0x7fc00000u) : bits + 0x7fffu + ((bits >> 16) & 1u);  // round to nearest even
        Narrow y = __builtin_convertvector(bits >> 16, Narrow);
        __builtin_memcpy(p, &y, sizeof y);
    } else {
        using Narrow = typename VectorOf<float16, W>::V;
        Narrow y = __builtin_convertvector(x, Narrow);
        __builtin_memcpy(p, &y, sizeof y);
    }
}
template <class T, class S> inline Vec<T> load_partial(const S* p, int64_t count) {  // `count` elements, then zeros
    S x[width<T>] = {};
    for (int64_t i = 0; i < count; i++) x[i] = p[i];
    return load_as<T>(x);
}
template <class T, class S> inline void store_partial(S* p, Vec<T> x, int64_t count) {
    S lanes[width<T>];
    store_as<T>(lanes, x);
    for (int64_t i = 0; i < count; i++) p[i] = lanes[i];
}

// The sum of all lanes, always in the same order: the upper half is added to the lower until one lane is left.
template <class T, int N, int... L>
inline T sum_halves(typename VectorOf<T, N>::V x, std::integer_sequence<int, L...>) {
    auto half = __builtin_shufflevector(x, x, L...) + __builtin_shufflevector(x, x, (L + N / 2)...);
    if constexpr (N == 2)
        return half[0];
    else
        return sum_halves<T, N / 2>(half, std::make_integer_sequence<int, N / 4>{});
}
template <class T> inline T horizontal_sum(Vec<T> x) {
    return sum_halves<T, width<T>>(x, std::make_integer_sequence<int, width<T> / 2>{});
}

// eˣ for x ≤ 0, to about one unit in the last place: range reduction x = n ln 2 + r, a polynomial in r, and n added to
// the exponent. Undefined for x > 0.
inline Vec<float> exp_negative(Vec<float> x) {
    const float magic = 12582912.f;  // 1.5 · 2²³: adding it rounds to an integer, left in the low bits
    Vec<float> t = x * 1.44269504088896341f + magic;
    Vec<float> n = t - magic;
    Vec<float> r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    // Minimax polynomial with leading terms 1 + r; its relative error is 3e-9 on |r| ≤ ln 2 / 2.
    Vec<float> p = splat(1.381443115e-3f);
    p = p * r + 8.368796669e-3f;
    p = p * r + 4.166839644e-2f;
    p = p * r + 1.666651964e-1f;
    p = p * r + 4.999999404e-1f;
    p = p * r + 1.f;
    p = p * r + 1.f;
    using Bits = typename VectorOf<uint32_t, width<float>>::V;  // far below -87.3 this overflows, and is not used
    Bits bits = (Bits)p + ((Bits)t << 23);
    return x < -87.3f ? Vec<float>{} : (Vec<float>)bits;
}
inline Vec<double> exp_negative(Vec<double> x) {
    const double magic = 6755399441055744.0;  // 1.5 · 2⁵²
    Vec<double> t = x * 1.4426950408889634074 + magic;
    Vec<double> n = t - magic;
    Vec<double> r = x - n * 6.93147180369123816490e-1;
    r = r - n * 1.90821492927058770002e-10;
    // Taylor polynomial; its remainder is below the rounding error on |r| ≤ ln 2 / 2.
    const double inverse_factorials[] = {1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880,
                                         1. / 40320,      1. / 5040,      1. / 720,      1. / 120,     1. / 24,
                                         1. / 6,          0.5,            1.,            1.};
    Vec<double> p = splat(inverse_factorials[0]);
    for (int i = 1; i < 14; i++) p = p * r + inverse_factorials[i];
    using Bits = typename VectorOf<uint64_t, width<double>>::V;
    Bits bits = (Bits)p + ((Bits)t << 52);
    return x < -708. ? Vec<double>{} : (Vec<double>)bits;
}

template <class T> inline Vec<T> elu_plus_one(Vec<T> x) {  // NaN fails the comparison, and stays NaN
    return x <= T(0) ? exp_negative(x) : x + T(1);
}

// Transposes a W × W block held in W registers: swap off-diagonal blocks of W/2, then W/4, …, 1 rows. `from_low` and
// `from_high` are the indices of the shuffles of two rows a and b, whose lanes are numbered 0 … W - 1 and W … 2W - 1.
template <int S, int W> constexpr int from_low(int lane) { return (lane & S) ? W + lane - S : lane; }
template <int S, int W> constexpr int from_high(int lane) { return (lane & S) ? W + lane : lane + S; }

template <class T, int S, int... L> inline void swap_blocks(Vec<T>* rows, std::integer_sequence<int, L...>) {
    constexpr int W = width<T>;
#pragma GCC unroll 16
    for (int i = 0; i < W; i++) {
        if (i & S) continue;
        Vec<T> a = rows[i], b = rows[i + S];
        rows[i] = __builtin_shufflevector(a, b, from_low<S, W>(L)...);
        rows[i + S] = __builtin_shufflevector(a, b, from_high<S, W>(L)...);
    }
}
template <class T, int S = width<T> / 2> inline void transpose_registers(Vec<T>* rows) {
    swap_blocks<T, S>(rows, std::make_integer_sequence<int, width<T>>{});
    if constexpr (S > 1) transpose_registers<T, S / 2>(rows);
}

}  // namespace
