// Which of the compiled variants this processor can run: bit 0 generic, 1 AVX2, 2 AVX-512.
#include <cstdint>
#include "program.h"
#ifdef WITH_X86
#include <cpuid.h>
#endif

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

// Python checks that it writes the structures that this library reads, and that the sources are those it has.
extern "C" int64_t momentum_sizes(int which) {
    const int64_t sizes[] = {sizeof(Problem), sizeof(Step),   sizeof(Connect), sizeof(Product),
                             sizeof(Recall),  sizeof(Task), sizeof(Program), int64_t(DIGEST)};
    return sizes[which];
}
