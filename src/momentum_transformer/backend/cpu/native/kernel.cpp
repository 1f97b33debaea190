// The library's entry points, compiled once per instruction set and type: -DVARIANT=name -DREAL=float or double.
#include <atomic>
#include <memory>
#include <new>
#include "backward.h"
#include "coefficient_gradients.h"
#include "family_backward.h"
#include "parallel.h"
#include "step.h"
#include "team.h"
#include "bidirectional_backward.h"
#include "cached_step.h"
#include "convolution.h"
#include "row_norm.h"

namespace {

// Scratch memory that a thread keeps between calls: allocating it anew costs more than the work on a short sequence.
struct Scratch {
    char* base = nullptr;
    size_t size = 0;
    char* reserve(size_t wanted) {  // null if memory ran out
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

template <class Kernel> struct ThreadKernel {  // a kernel on the scratch memory of this thread; null if memory ran out
    Arena arena;
    Kernel* kernel = nullptr;
    template <class P> explicit ThreadKernel(const P& p) {
        Kernel measure(p, arena);  // only counts how much memory a kernel takes
        arena.base = scratch.reserve(round_up(arena.used, 64));
        arena.used = 0;
        if (arena.base) kernel = new (std::nothrow) Kernel(p, arena);
    }
    ~ThreadKernel() { delete kernel; }
};

// work(kernel, task) for independent tasks, scheduled dynamically. Where there are many, a thread claims several
// consecutive ones at a time (grain): what a task prefetches beyond its end is then what the thread needs next.
template <class Kernel, class P, class F> bool parallel_for(const P& p, int64_t tasks, F work) {
    const int64_t grain = min<int64_t>(8, 1 + tasks / (16 * p.threads));
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    auto body = [&] {
        ThreadKernel<Kernel> own(p);
        if (!own.kernel) {
            failed = true;
            return;
        }
        for (int64_t from = next.fetch_add(grain); from < tasks; from = next.fetch_add(grain))
            for (int64_t i = from; i < min(from + grain, tasks) && !stopped(&p); i++) work(*own.kernel, i);
        nontemporal_fence();
    };
    in_parallel(min<int64_t>(p.threads, tasks), body);
    return !failed;
}

template <class T> bool forward(const Problem& p) {
    using K = Forward<T>;
    int64_t all = p.b * p.h, parts = segments(p);
    if (!p.split_sequence) return parallel_for<K>(p, all, [](K& k, int64_t i) { k.run(i); });
    return parallel_for<K>(p, all * parts, [=](K& k, int64_t i) { k.local_state(i / parts, i % parts); }) &&
           parallel_for<K>(p, all, [](K& k, int64_t i) { k.combine_segments(i); }) &&
           parallel_for<K>(p, all * parts, [=](K& k, int64_t i) { k.run_segment(i / parts, i % parts); });
}

// Attention without causal order, K its forward or backward pass. Where sequences are fewer than threads, threads share
// the pieces of a sequence; sums are the same to the last bit.
template <class T, class K> bool bidirectional(const Problem& p) {
    int64_t all = p.b * p.h, summed = K::summed(p), used = K::used(p);
    Sizes<T> size(p);
    // adds the sums of the other pieces to `state`, which holds that of the first
    auto total = [=](K& k, int64_t sequence, State<T>& state, auto piece) {
        for (int64_t i = 1; i < summed; i++) {
            const State<T>& other = piece(i);
            add_to(state.plane[0], other.plane[0], size.plane);
            add_to(state.z, other.z, size.dp);
        }
        k.keep(sequence, state);
    };
    if (all >= p.threads || (summed == 1 && used == 1))
        return parallel_for<K>(p, all, [=](K& k, int64_t sequence) {
            k.sum(sequence, 0, k.total);
            total(k, sequence, k.total, [&](int64_t i) -> State<T>& {
                k.sum(sequence, i, k.local);
                return k.local;
            });
            for (int64_t i = 0; i < used; i++) k.use(sequence, i, k.total);
        });
    int64_t length = State<T>::length(size);
    T* sums = static_cast<T*>(std::aligned_alloc(64, round_up(all * summed * length * sizeof(T), 64)));
    auto sum_of = [=](int64_t sequence, int64_t i) { return State<T>(sums + (sequence * summed + i) * length, size); };
    bool done = sums && parallel_for<K>(p, all * summed, [=](K& k, int64_t task) {
                    State<T> state = sum_of(task / summed, task % summed);
                    k.sum(task / summed, task % summed, state);
                }) &&
                parallel_for<K>(p, all, [=](K& k, int64_t sequence) {
                    State<T> state = sum_of(sequence, 0);
                    total(k, sequence, state, [=](int64_t i) { return sum_of(sequence, i); });
                }) &&
                parallel_for<K>(p, all * used, [=](K& k, int64_t task) {
                    k.use(task / used, task % used, sum_of(task / used, 0));
                });
    std::free(sums);
    return done;
}

template <class T> bool backward(const Problem& p) {
    using K = Backward<T>;
    int64_t all = p.b * p.h, parts = segments(p);
    using C = CoefficientGradients<T>;
    if (p.d_coefficients && !parallel_for<C>(p, all, [](C& k, int64_t i) { k.run(i); })) return false;
    // from the last sequence to the first, as the backward pass goes through tokens: prefetched rows are used
    if (!p.split_sequence) return parallel_for<K>(p, all, [=](K& k, int64_t i) { k.run(all - 1 - i); });
    int64_t length = State<T>::length(Sizes<T>(p));
    T* grads = static_cast<T*>(std::aligned_alloc(64, round_up(all * parts * length * sizeof(T), 64)));
    bool done = grads && parallel_for<K>(p, all * parts, [=](K& k, int64_t i) {
                    k.local_gradient(i / parts, i % parts, grads);
                }) &&
                parallel_for<K>(p, all, [=](K& k, int64_t i) { k.combine_segments(i, grads); }) &&
                parallel_for<K>(p, all * parts, [=](K& k, int64_t i) { k.run_segment(i / parts, i % parts, grads); });
    std::free(grads);
    return done;
}

template <class T> bool family_forward(const FamilyProblem& p) {
    using K = FamilyForward<T>;
    // columns of the state are independent: threads that share a sequence compute the same bits as one
    int64_t all = p.b * p.h, tiles = FamilySizes<T>(p).tiles(), parts = all < p.threads ? tiles : 1;
    return parallel_for<K>(p, all * parts, [=](K& k, int64_t i) {
        int64_t part = i % parts;
        k.run(i / parts, part, parts == 1 ? tiles : part + 1);
    });
}

template <class T> bool family_backward(const FamilyProblem& p) {
    using K = FamilyBackward<T>;
    int64_t all = p.b * p.h;  // from the last sequence to the first, as in `backward`
    return parallel_for<K>(p, all, [=](K& k, int64_t i) { k.run(all - 1 - i); });
}

template <class T> bool convolution(const LineConvolution& p, bool back) {
    using K = ShortConvolution<T>;
    if (!parallel_for<K>(p, K::tasks(p), [=](K& k, int64_t i) { k.run_task(i, back); })) return false;
    if (back) K::sum_parts(p);
    return true;
}

template <class T> bool row_norm(const RowNorm& p, bool back) {
    using K = RowNorms<T>;
    return parallel_for<K>(p, K::tasks(p), [=](K& k, int64_t i) { k.run(i, back); });
}

template <class T> bool convolution_step(const ConvolutionStep& p) {
    using K = ConvolutionSteps<T>;
    return parallel_for<K>(p, p.b, [](K& k, int64_t i) { k.run(i); });
}

template <class T> bool state_step(const StateStep& p) {
    using K = StateSteps<T>;
    return parallel_for<K>(p, p.b * p.h, [](K& k, int64_t i) { k.run(i); });
}

template <class T> bool decode(const Program& p) {
    Team<T> team(p);
    std::unique_ptr<Progress[]> progress(new (std::nothrow) Progress[p.count]);
    if (!progress) return false;
    auto body = [&] {
        void* memory = scratch.reserve(round_up(team.scratch_size() * sizeof(T) + 64, 64));
        if (memory) team.run(progress.get(), static_cast<T*>(memory));
    };
    in_parallel(p.threads, body);
    return progress[p.count - 1].finished == team.parts(p.count - 1);
}

}  // namespace

#define JOIN_(a, b, c) momentum_##a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define ENTRY(name) JOIN(name, VARIANT, REAL)

// Each returns 0, or 1 if memory ran out.
extern "C" int ENTRY(forward)(const Problem* p) { return !forward<REAL>(*p); }
extern "C" int ENTRY(bidirectional)(const Problem* p) { return !bidirectional<REAL, Bidirectional<REAL>>(*p); }
extern "C" int ENTRY(bidirectional_backward)(const Problem* p) {
    return !bidirectional<REAL, BidirectionalBackward<REAL>>(*p);
}
extern "C" int ENTRY(backward)(const Problem* p) { return !backward<REAL>(*p); }
extern "C" int ENTRY(family_forward)(const FamilyProblem* p) { return !family_forward<REAL>(*p); }
extern "C" int ENTRY(family_backward)(const FamilyProblem* p) { return !family_backward<REAL>(*p); }
extern "C" int ENTRY(convolution)(const LineConvolution* p) { return !convolution<REAL>(*p, false); }
extern "C" int ENTRY(convolution_backward)(const LineConvolution* p) { return !convolution<REAL>(*p, true); }
extern "C" int ENTRY(row_norm)(const RowNorm* p) { return !row_norm<REAL>(*p, false); }
extern "C" int ENTRY(row_norm_backward)(const RowNorm* p) { return !row_norm<REAL>(*p, true); }
extern "C" int ENTRY(convolution_step)(const ConvolutionStep* p) { return !convolution_step<REAL>(*p); }
extern "C" int ENTRY(state_step)(const StateStep* p) { return !state_step<REAL>(*p); }
extern "C" int ENTRY(decode)(const Program* p) { return !decode<REAL>(*p); }
constexpr int64_t OUT_OF_RANGE = 2;  // a coefficient is
extern "C" int ENTRY(step)(const Step* p) {
    if (p->check && !coefficients_in_range<REAL>(*p)) return OUT_OF_RANGE;
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    int64_t all = p->b * p->h, grain = 8;  // heads: one takes about a microsecond
    auto body = [&] {
        void* features = scratch.reserve(round_up(2 * (p->d + 16) * sizeof(REAL), 64));
        if (!features) {
            failed = true;
            return;
        }
        for (int64_t from = next.fetch_add(grain); from < all; from = next.fetch_add(grain))
            for (int64_t i = from; i < min(from + grain, all); i++) step<REAL>(*p, i, static_cast<REAL*>(features));
    };
    in_parallel(min<int64_t>(p->threads, (all + grain - 1) / grain), body);
    return failed;
}
