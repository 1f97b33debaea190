// The kernels for one instruction set and one type of number: compiled with -DVARIANT=name -DREAL=float or double.
#include <atomic>
#include <memory>
#include <new>
#include "backward.h"
#include "learned.h"
#include "parallel.h"
#include "step.h"
#include "team.h"
#include "bidirectional.h"

namespace {

// The scratch memory of a thread stays with it: fresh memory costs more than the work on a short sequence.
struct Scratch {
    char* base = nullptr;
    size_t size = 0;
    char* grown(size_t wanted) {
        if (wanted > size) {
            std::free(base);
            base = static_cast<char*>(std::aligned_alloc(64, wanted));
            size = base ? wanted : 0;
        }
        return base;
    }
    ~Scratch() { std::free(base); }
};
thread_local Scratch scratch;

template <class Kernel> struct Pass {  // a kernel on the scratch memory of this thread
    Arena arena;
    Kernel* kernel = nullptr;
    explicit Pass(const Problem& p) {
        Kernel measure(p, arena);
        arena.base = scratch.grown(round_up(arena.used, 64));
        arena.used = 0;
        if (arena.base) kernel = new (std::nothrow) Kernel(p, arena);
    }
    ~Pass() { delete kernel; }
};

// F(kernel, task) for each task, in any order on any thread: no task sees another. Where there are many, a thread
// takes some that follow each other: what it reads next then lies where it has asked for it.
template <class Kernel, class F> bool run(const Problem& p, int64_t tasks, F work) {
    const int64_t group = smaller<int64_t>(8, 1 + tasks / (16 * p.threads));
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    auto body = [&] {
        Pass<Kernel> pass(p);
        if (!pass.kernel) {
            failed = true;
            return;
        }
        for (int64_t from = next.fetch_add(group); from < tasks; from = next.fetch_add(group))
            for (int64_t i = from; i < smaller(from + group, tasks); i++) work(*pass.kernel, i);
        streamed();
    };
    in_parallel(smaller<int64_t>(p.threads, tasks), body);
    return !failed;
}

template <class T> bool forward(const Problem& p) {
    using K = Forward<T>;
    int64_t all = p.b * p.h, parts = segments(p);
    if (!p.divide) return run<K>(p, all, [](K& k, int64_t i) { k.whole(i); });
    return run<K>(p, all * parts, [=](K& k, int64_t i) { k.add(i / parts, i % parts); }) &&
           run<K>(p, all, [](K& k, int64_t i) { k.connect(i); }) &&
           run<K>(p, all * parts, [=](K& k, int64_t i) { k.write(i / parts, i % parts); });
}

template <class T> bool bidirectional(const Problem& p) {
    using K = Bidirectional<T>;
    return run<K>(p, p.b * p.h, [](K& k, int64_t i) { k.whole(i); });
}

template <class T> bool backward(const Problem& p) {
    using K = Backward<T>;
    int64_t all = p.b * p.h, parts = segments(p);
    if (p.d_coefficients && !run<Learned<T>>(p, all, [](Learned<T>& k, int64_t i) { k.whole(i); })) return false;
    // from the last to the first, as inside a sequence
    if (!p.divide) return run<K>(p, all, [=](K& k, int64_t i) { k.whole(all - 1 - i); });
    int64_t length = State<T>::length(Sizes<T>(p));
    T* kept = static_cast<T*>(std::aligned_alloc(64, round_up(all * parts * length * sizeof(T), 64)));
    bool done = kept && run<K>(p, all * parts, [=](K& k, int64_t i) { k.add(i / parts, i % parts, kept); }) &&
                run<K>(p, all, [=](K& k, int64_t i) { k.connect(i, kept); }) &&
                run<K>(p, all * parts, [=](K& k, int64_t i) { k.write(i / parts, i % parts, kept); });
    std::free(kept);
    return done;
}

template <class T> bool decode(const Program& p) {
    Team<T> team(p);
    std::unique_ptr<Progress[]> progress(new (std::nothrow) Progress[p.count]);
    if (!progress) return false;
    auto body = [&] {
        void* memory = scratch.grown(round_up(team.scratch() * sizeof(T) + 64, 64));
        if (memory) team.member(progress.get(), static_cast<T*>(memory));
    };
    in_parallel(p.threads, body);
    return progress[p.count - 1].done == team.parts(p.count - 1);
}

}  // namespace

#define JOIN_(a, b, c) momentum_##a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define ENTRY(name) JOIN(name, VARIANT, REAL)

// zero, or one where memory ran out
extern "C" int ENTRY(forward)(const Problem* p) { return !forward<REAL>(*p); }
extern "C" int ENTRY(bidirectional)(const Problem* p) { return !bidirectional<REAL>(*p); }
extern "C" int ENTRY(backward)(const Problem* p) { return !backward<REAL>(*p); }
extern "C" int ENTRY(program)(const Program* p) { return !decode<REAL>(*p); }
extern "C" int ENTRY(step)(const Step* p) {
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    int64_t all = p->b * p->h, group = 8;  // several heads at a time: one is a microsecond's work
    auto body = [&] {
        void* features = scratch.grown(round_up(2 * (p->d + 16) * sizeof(REAL), 64));
        if (!features) {
            failed = true;
            return;
        }
        for (int64_t from = next.fetch_add(group); from < all; from = next.fetch_add(group))
            for (int64_t i = from; i < smaller(from + group, all); i++) step<REAL>(*p, i, static_cast<REAL*>(features));
    };
    in_parallel(smaller<int64_t>(p->threads, (all + group - 1) / group), body);
    return failed;
}
