// Several threads: those of the OpenMP runtime that PyTorch has loaded, so that its threads and ours are the same.
#pragma once
#include <cstdint>
#include <pthread.h>

extern "C" void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned) __attribute__((weak));

namespace {

template <class F> void call(void* body) { (*static_cast<F*>(body))(); }
template <class F> void* call_in_thread(void* body) {
    (*static_cast<F*>(body))();
    return nullptr;
}

template <class F> void in_parallel(int64_t threads, F& body) {
    if (threads <= 1) return body();
    if (GOMP_parallel) return GOMP_parallel(call<F>, &body, (unsigned)threads, 0);
    constexpr int64_t MOST = 256;  // no OpenMP: threads of our own
    pthread_t others[MOST];
    int64_t started = 0;
    while (started < threads - 1 && started < MOST && !pthread_create(&others[started], nullptr, call_in_thread<F>, &body))
        started++;
    body();
    for (int64_t i = 0; i < started; i++) pthread_join(others[i], nullptr);
}

}  // namespace
