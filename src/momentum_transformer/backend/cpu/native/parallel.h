// Parallel regions on the OpenMP runtime that PyTorch has loaded, so that both share one thread pool.
#pragma once
#include <cstdint>
#include <pthread.h>

extern "C" bool momentum_forked;  // whether this process is a fork, in which the threads of OpenMP do not exist
extern "C" void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned) __attribute__((weak));

namespace {

template <class F> void call(void* body) { (*static_cast<F*>(body))(); }
template <class F> void* call_in_thread(void* body) {
    (*static_cast<F*>(body))();
    return nullptr;
}

// Calls `body` once in each of `threads` threads, this one among them.
template <class F> void in_parallel(int64_t threads, F& body) {
    if (threads <= 1) return body();
    if (GOMP_parallel && !momentum_forked) return GOMP_parallel(call<F>, &body, (unsigned)threads, 0);
    constexpr int64_t MAX_THREADS = 256;  // without OpenMP, or after a fork: threads of our own
    pthread_t others[MAX_THREADS];
    int64_t started = 0;
    while (started < threads - 1 && started < MAX_THREADS &&
           !pthread_create(&others[started], nullptr, call_in_thread<F>, &body))
        started++;
    body();
    for (int64_t i = 0; i < started; i++) pthread_join(others[i], nullptr);
}

}  // namespace
