#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "isa.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef AC_HAVE_X86
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#endif

static const char *const names[] = {"baseline", "avx2", "avx512", "avx512bf16", "amx_bf16", "amx_fp16"};

#ifdef AC_HAVE_X86
/* Linux saves tile registers only for processes that have asked; without that they fault. */
static int tiles_permitted(void) {
#if defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return 0;
#endif
}

static ac_isa detect(void) {
    unsigned a = 0, b = 0, c = 0, d = 0, a1 = 0, b1 = 0, c1 = 0, d1 = 0;
    __builtin_cpu_init(); /* looks at what the operating system saves, too */
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return AC_ISA_BASELINE;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 29 & 1)) return AC_ISA_BASELINE; /* F16C */
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return AC_ISA_AVX2;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !__get_cpuid_count(7, 1, &a1, &b1, &c1, &d1)) return AC_ISA_AVX512;
    if (!(a1 >> 5 & 1)) return AC_ISA_AVX512;
    if (!(d >> 22 & 1) || !(d >> 24 & 1) || !tiles_permitted()) return AC_ISA_AVX512_BF16;
    return a1 >> 21 & 1 ? AC_ISA_AMX_FP16 : AC_ISA_AMX_BF16;
}
#else
static ac_isa detect(void) { return AC_ISA_BASELINE; }
#endif

static ac_isa choose(void) {
    ac_isa level = detect();
    const char *cap = getenv("AMPC_CPU");
    for (ac_isa i = AC_ISA_BASELINE; cap && i < level; i++)
        if (strcmp(cap, names[i]) == 0) return i;
    return level;
}

ac_isa ac_cpu_isa(void) {
    static int chosen; /* level + 1, written once with one value: a race writes the same */
    int level = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (!level) __atomic_store_n(&chosen, level = (int)choose() + 1, __ATOMIC_RELAXED);
    return (ac_isa)(level - 1);
}

const char *ac_isa_name(ac_isa level) { return names[level]; }

int ac_dot_is_fast(void) {
#ifdef AC_HAVE_X86
    const char *cap = getenv("AMPC_CPU"); /* asked for by name */
    return (cap && strcmp(cap, "avx512bf16") == 0) || __builtin_cpu_is("amd");
#else
    return 0;
#endif
}

long ac_l2_bytes(void) {
    static long known; /* a race writes the same */
    long bytes = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (bytes) return bytes;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    if (bytes < 128 << 10) bytes = 512 << 10;
    __atomic_store_n(&known, bytes, __ATOMIC_RELAXED);
    return bytes;
}
