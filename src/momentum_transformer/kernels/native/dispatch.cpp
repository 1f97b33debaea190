// Which of the compiled variants this processor can run: bit 0 generic, 1 AVX2, 2 AVX-512.
#include <cstdint>
#include "problem.h"

extern "C" int momentum_variants() {
    int found = 1;
#ifdef WITH_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found |= 2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        found |= 4;
#endif
    return found;
}

// Python checks that it writes the structures that this library reads.
extern "C" int64_t momentum_sizes(int which) { return which == 0 ? sizeof(Problem) : sizeof(Step); }
