// All tasks of a token in one go. Threads take parts of the task at hand, as many threads as there are; the next task
// begins when every part is done. A thread that sleeps or comes late holds up nobody but the part it has.
#pragma once
#include <atomic>
#include <sched.h>
#include "parallel.h"
#include "product.h"
#include "recall.h"
#include "step.h"

namespace {

struct alignas(64) Progress {
    std::atomic<int64_t> taken{0};
    alignas(64) std::atomic<int64_t> done{0};
};

template <class T> struct Team {
    const Program& p;
    explicit Team(const Program& p) : p(p) {}

    // several heads or rows at a time: one is a microsecond's work
    static constexpr int64_t HEADS = 4, ROWS_AT_A_TIME = 4;

    template <class What> const What& of(int64_t i) const { return *static_cast<const What*>(p.tasks[i].what); }
    static int64_t pieces(int64_t all, int64_t size) { return (all + size - 1) / size; }
    int64_t parts(int64_t i) const {
        switch (p.tasks[i].kind) {
            case 0: return pieces(of<Product>(i).outer, PANEL);
            case 1: return pieces(of<Step>(i).b * of<Step>(i).h, HEADS);
            case 2: return of<Recall>(i).b * of<Recall>(i).h;
            default: return pieces(of<Connect>(i).rows, ROWS_AT_A_TIME);
        }
    }
    void work(int64_t i, int64_t part, int64_t next, T* scratch) const {
        auto each = [&](int64_t all, int64_t size, auto f) {
            for (int64_t x = part * size; x < smaller(all, (part + 1) * size); x++) f(x);
        };
        switch (p.tasks[i].kind) {
            case 0: return Panel<T>(of<Product>(i), part, next).all();
            case 1:
                return each(of<Step>(i).b * of<Step>(i).h, HEADS, [&](int64_t x) { step<T>(of<Step>(i), x, scratch); });
            case 2: return recall<T>(of<Recall>(i), part, scratch);
            default: return each(of<Connect>(i).rows, ROWS_AT_A_TIME, [&](int64_t x) { connect<T>(of<Connect>(i), x); });
        }
    }
    int64_t scratch() const {  // in numbers
        int64_t most = 0;
        for (int64_t i = 0; i < p.count; i++) {
            int64_t wanted = p.tasks[i].kind == 1   ? 2 * (of<Step>(i).d + width<T>)
                             : p.tasks[i].kind == 2 ? *of<Recall>(i).count + 1
                                                    : 0;
            most = wanted > most ? wanted : most;
        }
        return most;
    }

    static void wait(const std::atomic<int64_t>& done, int64_t all) {
        for (int64_t turns = 0; done.load(std::memory_order_acquire) < all; turns++)
            if (turns > 4096)
                sched_yield();
            else
#if defined(__x86_64__)
                __builtin_ia32_pause();
#else
                std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
    }
    void member(Progress* progress, T* scratch) const {
        for (int64_t i = 0; i < p.count; i++) {
            int64_t all = parts(i), mine = 0;
            for (int64_t x = progress[i].taken++, next; x < all; x = next, mine++) {
                next = progress[i].taken++;
                work(i, x, next < all ? next : x, scratch);
            }
            progress[i].done.fetch_add(mine, std::memory_order_acq_rel);
            wait(progress[i].done, all);
        }
    }
};

}  // namespace
