// The kernels for one instruction set; compiled once for each, with -DVARIANT=name.
#include <atomic>
#include <new>
#include "backward.h"
#include "parallel.h"
#include "step.h"

namespace {

template <class Kernel> struct Pass {  // a kernel with its scratch memory, for as long as one thread works
    Arena arena;
    Kernel* kernel;
    explicit Pass(const Problem& p) {
        Kernel measure(p, arena);
        arena.size = round_up(arena.used, 64);
        arena.base = static_cast<char*>(std::aligned_alloc(64, arena.size));
        arena.used = 0;
        kernel = arena.base ? new (std::nothrow) Kernel(p, arena) : nullptr;
    }
    ~Pass() {
        delete kernel;
        std::free(arena.base);
    }
};

// F(kernel, task) for each task, in any order on any thread: no task sees another.
template <class Kernel, class F> bool run(const Problem& p, int64_t tasks, F work) {
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    auto body = [&] {
        Pass<Kernel> pass(p);
        if (!pass.kernel) {
            failed = true;
            return;
        }
        for (int64_t i = next++; i < tasks; i = next++) work(*pass.kernel, i);
    };
    in_parallel(smaller<int64_t>(p.threads, tasks), body);
    return !failed;
}

int64_t segments(const Problem& p) { return (p.n + p.segment - 1) / p.segment; }
bool divide(const Problem& p) { return p.b * p.h < p.threads && segments(p) > 1; }

template <class T> bool forward(const Problem& p) {
    using K = Forward<T>;
    int64_t all = p.b * p.h, parts = segments(p);
    if (!divide(p)) return run<K>(p, all, [](K& k, int64_t i) { k.whole(i); });
    return run<K>(p, all * parts, [=](K& k, int64_t i) { k.add(i / parts, i % parts); }) &&
           run<K>(p, all, [](K& k, int64_t i) { k.connect(i); }) &&
           run<K>(p, all * parts, [=](K& k, int64_t i) { k.write(i / parts, i % parts); });
}

template <class T> bool backward(const Problem& p) {
    using K = Backward<T>;
    int64_t all = p.b * p.h, parts = segments(p);
    if (!divide(p) || p.d_tables) return run<K>(p, all, [](K& k, int64_t i) { k.whole(i); });
    int64_t length = State<T>::length(Sizes<T>(p));
    T* kept = static_cast<T*>(std::aligned_alloc(64, round_up(all * parts * length * sizeof(T), 64)));
    bool done = kept && run<K>(p, all * parts, [=](K& k, int64_t i) { k.add(i / parts, i % parts, kept); }) &&
                run<K>(p, all, [=](K& k, int64_t i) { k.connect(i, kept); }) &&
                run<K>(p, all * parts, [=](K& k, int64_t i) { k.write(i / parts, i % parts, kept); });
    std::free(kept);
    return done;
}

}  // namespace

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

// zero, or one where memory ran out
extern "C" int JOIN(momentum_forward, VARIANT)(const Problem* p) {
    return !(p->dtype == 1 ? forward<double>(*p) : forward<float>(*p));
}
extern "C" int JOIN(momentum_backward, VARIANT)(const Problem* p) {
    return !(p->dtype == 1 ? backward<double>(*p) : backward<float>(*p));
}
extern "C" int JOIN(momentum_step, VARIANT)(const Step* p) {
    std::atomic<int64_t> next{0};
    int64_t all = p->b * p->h;
    auto body = [&] {
        for (int64_t i = next++; i < all; i = next++) p->is_double ? step<double>(*p, i) : step<float>(*p, i);
    };
    in_parallel(smaller<int64_t>(p->threads, all), body);
    return 0;
}
