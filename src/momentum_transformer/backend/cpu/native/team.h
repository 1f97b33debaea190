// The thread team that decodes a token: one parallel region runs all tasks, with a spin barrier after each of them.
// Tasks that work head by head can form a chain, with one barrier after the whole chain.
//
// A task is divided into parts, which threads claim from a shared counter (dynamic scheduling). The next task begins
// when all parts are finished, not when all threads have arrived: a suspended thread delays only the part it has.
#pragma once
#include <atomic>
#include <sched.h>
#include "parallel.h"
#include "linear.h"
#include "head_parts.h"
#include "kv_cache.h"
#include "step.h"

namespace {

struct alignas(64) Progress {  // parts of one task; each counter on a cache line of its own
    std::atomic<int64_t> claimed{0};
    alignas(64) std::atomic<int64_t> finished{0};
};

template <class T> struct Team {
    const Program& p;
    explicit Team(const Program& p) : p(p) {}

    // One head or row takes about a microsecond or less, too little for a part of its own.
    static constexpr int64_t HEADS_PER_PART = 4, ROWS_PER_PART = 4;

    template <class P> const P& params(int64_t i) const { return *static_cast<const P*>(p.tasks[i].params); }
    int64_t heads(int64_t i) const { return params<Heads>(i).b * params<Heads>(i).h; }
    static int64_t ceil_div(int64_t all, int64_t size) { return (all + size - 1) / size; }
    int64_t chain_end(int64_t i) const {  // the first task after i that is not chained to it
        for (i++; i < p.count && p.tasks[i].chained;) i++;
        return i;
    }
    int64_t heads_per_part(int64_t i, int64_t end) const {  // attention over a KV cache takes long
        for (; i < end; i++)
            if (p.tasks[i].kind == TASK_CACHED_ATTENTION) return 1;
        return HEADS_PER_PART;
    }
    int64_t parts(int64_t i) const {  // of the chain that begins with task i
        switch (p.tasks[i].kind) {
            case TASK_LINEAR: return ceil_div(params<Linear>(i).out_features, PANEL_COLUMNS);
            case TASK_RESIDUAL_NORM: return ceil_div(params<ResidualNorm>(i).rows, ROWS_PER_PART);
            default: return ceil_div(heads(i), heads_per_part(i, chain_end(i)));
        }
    }
    void run_head(int64_t i, int64_t bh, T* scratch) const {
        switch (p.tasks[i].kind) {
            case TASK_STEP: return step<T>(params<Step>(i), bh, scratch);
            case TASK_CACHED_ATTENTION: return cached_attention<T>(params<CachedAttention>(i), bh, scratch);
            case TASK_CONVOLUTION: return convolve<T>(params<Convolution>(i), bh);
            case TASK_GATES: return open_gates<T>(params<Gates>(i), bh);
            default: return norm_and_gate<T>(params<NormAndGate>(i), bh);
        }
    }
    void run_part(int64_t i, int64_t part, int64_t next, T* scratch) const {
        if (p.tasks[i].kind == TASK_LINEAR) return Panel<T>(params<Linear>(i), part, next).run();
        if (p.tasks[i].kind == TASK_RESIDUAL_NORM) {
            const ResidualNorm& norm = params<ResidualNorm>(i);
            for (int64_t x = part * ROWS_PER_PART; x < min(norm.rows, (part + 1) * ROWS_PER_PART); x++)
                residual_norm<T>(norm, x);
            return;
        }
        int64_t end = chain_end(i), each = heads_per_part(i, end);
        for (int64_t bh = part * each; bh < min(heads(i), (part + 1) * each); bh++)
            for (int64_t task = i; task < end; task++) run_head(task, bh, scratch);
    }
    int64_t scratch_size() const {  // elements of T that a thread needs
        int64_t most = 0;
        for (int64_t i = 0; i < p.count; i++) {
            int64_t wanted = p.tasks[i].kind == TASK_STEP               ? 2 * (params<Step>(i).d + width<T>)
                             : p.tasks[i].kind == TASK_CACHED_ATTENTION ? params<CachedAttention>(i).capacity
                                                                        : 0;
            most = wanted > most ? wanted : most;
        }
        return most;
    }

    static void spin_until(const std::atomic<int64_t>& finished, int64_t all) {
        for (int64_t spins = 0; finished.load(std::memory_order_acquire) < all; spins++)
            if (spins > 4096)
                sched_yield();
            else
#if defined(__x86_64__)
                __builtin_ia32_pause();
#else
                std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
    }
    void run(Progress* progress, T* scratch) const {  // called by every thread of the team
        for (int64_t i = 0; i < p.count; i = chain_end(i)) {
            int64_t all = parts(i), mine = 0;
            for (int64_t x = progress[i].claimed++, next; x < all; x = next, mine++) {
                next = progress[i].claimed++;
                run_part(i, x, next < all ? next : x, scratch);
            }
            progress[i].finished.fetch_add(mine, std::memory_order_acq_rel);
            spin_until(progress[i].finished, all);
        }
    }
};

}  // namespace
