/* Which loops this machine runs. */
#include "loops.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAVE_ISA 1
#endif

static const ac_loops *choose(void) {
#ifdef HAVE_ISA
    const char *cap = getenv("AMPC_CPU");
    int level = !cap ? 2 : strcmp(cap, "baseline") == 0 ? 0 : strcmp(cap, "avx2") == 0 ? 1 : 2;
    __builtin_cpu_init();
    if (level >= 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &ac_loops_avx512;
    if (level >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &ac_loops_avx2;
#endif
    return &ac_loops_baseline;
}

const ac_loops *ac_cpu_loops(void) {
    static const ac_loops *chosen; /* written once with one value: a race writes the same */
    const ac_loops *loops = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (!loops) __atomic_store_n(&chosen, loops = choose(), __ATOMIC_RELAXED);
    return loops;
}

const char *ac_cpu_features(void) {
#ifdef HAVE_ISA
    static char text[128];
    text[0] = '\0';
#define FEATURE(name)                                                                                                  \
    if (__builtin_cpu_supports(name)) strcat(strcat(text, text[0] ? " " : ""), name)
    FEATURE("avx2");
    FEATURE("fma");
    FEATURE("avx512f");
    FEATURE("avx512bw");
    FEATURE("avx512vnni");
    FEATURE("avx512bf16");
#undef FEATURE
    return text;
#else
    return "none known";
#endif
}
