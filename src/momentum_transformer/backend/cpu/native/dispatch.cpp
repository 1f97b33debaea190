// CPU dispatch: which of the compiled variants this processor can run, and whether library.py matches this library.
#include <cstdint>
#include <pthread.h>
#include "program.h"
#include "surroundings.h"
#ifdef WITH_X86
#include <cpuid.h>
#endif

extern "C" {
bool momentum_forked = false;
}
static void note_fork() { momentum_forked = true; }
__attribute__((constructor)) static void watch_forks() { pthread_atfork(nullptr, nullptr, note_fork); }

// A bit mask: 1 generic, 2 AVX2, 4 AVX-512.
extern "C" int momentum_variants() {
    int found = 1;
#ifdef WITH_X86
    __builtin_cpu_init();
    unsigned a, b, c = 0, d;
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c) found |= 2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        found |= 4;
#endif
    return found;
}

// The sizes of the structures in the order of STRUCTURES in library.py, then a checksum of the sources (build.py).
// Before Python calls anything, it compares both with its own.
extern "C" int64_t momentum_sizes(int which) {
    const int64_t sizes[] = {
        sizeof(Problem), sizeof(FamilyProblem), sizeof(Step), sizeof(ResidualNorm), sizeof(Linear),
        sizeof(Gates), sizeof(Convolution), sizeof(NormAndGate), sizeof(CachedAttention), sizeof(Task),
        sizeof(Program), sizeof(LineConvolution), sizeof(RowNorm), sizeof(ConvolutionStep), sizeof(StateStep),
        int64_t(DIGEST)};
    return sizes[which];
}
