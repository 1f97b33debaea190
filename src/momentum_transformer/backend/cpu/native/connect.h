// Between the matrix multiplications of a decoded token: x + γv with v = βv + update (eq. 15), and its normalisation.
#pragma once
#include <cmath>
#include "sequence.h"

namespace {

template <class T> struct Row {  // f(vector, offset, how many of its lanes count)
    int64_t width_;
    template <class F> inline __attribute__((always_inline)) void each_vector(F f) const {
        constexpr int W = width<T>;
        int64_t x = 0;
        for (; x + W <= width_; x += W) f(x, int64_t(W));
        if (x < width_) f(x, width_ - x);
    }
};
template <class T> inline Vec<T> read_part(const T* p, int64_t count) {
    return count == width<T> ? load(p) : load_first<T>(p, count);
}
template <class T> inline void write_part(T* p, Vec<T> x, int64_t count) {
    count == width<T> ? store(p, x) : store_first<T>(p, x, count);
}

template <class T> void connect(const Connect& p, int64_t i) {
    int64_t w = p.width, at = i * w;
    const T *x = static_cast<const T*>(p.x) + at, *update = p.update ? static_cast<const T*>(p.update) + at : nullptr;
    T *out = static_cast<T*>(p.out) + at, *velocity = p.velocity ? static_cast<T*>(p.velocity) + at : nullptr;
    Row<T> row{w};
    T beta = T(p.beta), gamma = T(p.gamma);
    if (p.previous) {  // adaptive (eq. 18); where a norm vanishes or the ratio is large, the projection is at its end
        const T* previous = static_cast<const T*>(p.previous) + at;
        Vec<T> difference2{}, base2{};
        row.each_vector([&](int64_t j, int64_t count) {
            Vec<T> base = read_part(previous + j, count), change = read_part(update + j, count) - base;
            difference2 += change * change;
            base2 += base * base;
        });
        T up = sum<T>(difference2), down = sum<T>(base2), tiny = T(1e-30);
        beta = T(p.beta);
        if (up != up || down != down)
            beta = up + down;
        else if (down > tiny && up > tiny * down && up < 16 * down) {
            T root = 1 - std::sqrt(std::sqrt(up / down));
            beta = root * root < beta ? root * root : beta;
        }
    }
    Vec<T> total{};
    row.each_vector([&](int64_t j, int64_t count) {
        Vec<T> v = update ? read_part(update + j, count) : Vec<T>{};
        if (velocity) {
            if (!p.first) v += beta * read_part<T>(velocity + j, count);
            write_part(velocity + j, v, count);
        }
        Vec<T> moved = read_part(x + j, count) + gamma * v;
        write_part(out + j, moved, count);
        total += moved;
    });
    if (!p.weight) return;
    const T *weight = static_cast<const T*>(p.weight), *bias = static_cast<const T*>(p.bias);
    T mean = sum<T>(total) / T(w);
    Vec<T> spread{};
    row.each_vector([&](int64_t j, int64_t count) {
        Vec<T> centred = read_part<T>(out + j, count) - mean;
        spread += (first<T>(count) ? centred * centred : Vec<T>{});
    });
    T factor = 1 / std::sqrt(sum<T>(spread) / T(w) + T(p.eps));
    row.each_vector([&](int64_t j, int64_t count) {
        Vec<T> value = (read_part<T>(out + j, count) - mean) * factor;
        write_part(out + j, value * read_part(weight + j, count) + read_part(bias + j, count), count);
    });
}

}  // namespace
