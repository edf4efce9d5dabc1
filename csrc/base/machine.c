/* Reads the facts about this machine from the CPU, the system and the environment's variables. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/machine.h"

#include "base/system.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#endif
#if !defined(_WIN32)
#include <unistd.h>
#endif
#ifdef AC_HAVE_X86
#include <cpuid.h>
#endif

static const char *const levels[AC_ISA_LEVELS] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx_bf16", "amx_fp16"};
static const char *const variables[AC_N_FACTS] = {"AMPC_CPU", "AMPC_L2_BYTES", "AMPC_CORES", "AMPC_HUGE_PAGES",
                                                  "OMP_NUM_THREADS"};

const char *ac_isa_name(ac_isa level) { return levels[level]; }
const char *ac_fact_variable(ac_fact fact) { return variables[fact]; }

/* -- instruction set ------------------------------------------------------------------------------------------- */

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

static ac_isa cpu_level(void) {
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

static bool dot_is_fast(void) { return __builtin_cpu_is("amd"); }
#else
static ac_isa cpu_level(void) { return AC_ISA_BASELINE; }
static bool dot_is_fast(void) { return false; }
#endif

/* -- cores ----------------------------------------------------------------------------------------------------- */

static int cores_of(int64_t quota, int64_t period) {
    if (quota <= 0 || period <= 0) return 0;
    int64_t cores = quota / period + (quota % period != 0);
    return cores < INT_MAX ? (int)cores : INT_MAX;
}

int ac_quota_in(const char *cpu_max) {
    char *rest;
    int64_t quota = strtoll(cpu_max, &rest, 10);
    return rest == cpu_max ? 0 : cores_of(quota, strtoll(rest, NULL, 10));
}

#if defined(__linux__)
enum { PATH = 4096, GROUPS = 16384 }; /* a line of /proc/self/cgroup for each of a dozen controllers */

static bool read_file(const char *folder, const char *name, char *text, size_t size) {
    char path[PATH];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    FILE *f = fopen(path, "r");
    if (!f) return false;
    size_t n = fread(text, 1, size - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    return n > 0;
}

static int quota_v2(const char *folder) {
    char text[64];
    return read_file(folder, "cpu.max", text, sizeof text) ? ac_quota_in(text) : 0;
}

static int quota_v1(const char *folder) {
    char quota[64], period[64];
    if (!read_file(folder, "cpu.cfs_quota_us", quota, sizeof quota)) return 0;
    if (!read_file(folder, "cpu.cfs_period_us", period, sizeof period)) return 0;
    return cores_of(strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

/* Whether the list "cpu,cpuacct:..." has the name; version 2 names no controller, so its list has "". */
static bool lists(const char *names, const char *name) {
    for (;; names++) {
        size_t n = strcspn(names, ",:");
        if (n == strlen(name) && strncmp(names, name, n) == 0) return true;
        names += n;
        if (*names != ',') return false;
    }
}

/* The path in that line of "number:controllers:path" whose controllers have the name; "" where there is none. */
static void group_of(const char *groups, const char *controller, char path[PATH]) {
    path[0] = '\0';
    for (const char *line = groups; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) return;
        if (!lists(names + 1, controller)) continue;
        size_t n = strcspn(++group, "\n");
        if (n < PATH) memcpy(path, group, n), path[n] = '\0';
        return;
    }
}

/* Of two quotas, where 0 is none. */
static int tighter(int a, int b) { return !a || (b && b < a) ? b : a; }

/* From the process's own group up to the root of the mount. A container sees its own group as that root. */
static int tightest(const char *root, const char *mount, const char *own, int (*quota_of)(const char *)) {
    char group[PATH], folder[PATH];
    int least = 0;
    (void)snprintf(group, sizeof group, "%s", own);
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = '\0';
        if (snprintf(folder, sizeof folder, "%s%s%s", root, mount, group) < (int)sizeof folder)
            least = tighter(least, quota_of(folder));
    }
    return least;
}

int ac_quota_of(const char *groups, const char *root) {
    char own[PATH];
    group_of(groups, "", own);
    int least = tighter(tightest(root, "", own, quota_v2), tightest(root, "/unified", own, quota_v2));
    group_of(groups, "cpu", own);
    least = tighter(least, tightest(root, "/cpu", own, quota_v1));
    return tighter(least, tightest(root, "/cpu,cpuacct", own, quota_v1));
}

static int usable_cores(void) {
    char groups[GROUPS] = "";
    (void)read_file("/proc/self", "cgroup", groups, sizeof groups);
    int cores = ac_system_cores(), quota = ac_quota_of(groups, "/sys/fs/cgroup");
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
    return quota && quota < cores ? quota : cores;
}
#else
static int usable_cores(void) { return ac_system_cores(); }
#endif

/* -- caches ---------------------------------------------------------------------------------------------------- */

/* What the system says of a cache, where it can be true; else `otherwise`. */
static int64_t cache_bytes(int name, int64_t least, int64_t otherwise) {
#if defined(_SC_LEVEL2_CACHE_SIZE)
    int64_t bytes = sysconf(name);
    return bytes < least ? otherwise : bytes;
#else
    (void)name, (void)least;
    return otherwise;
#endif
}

#if defined(_SC_LEVEL2_CACHE_SIZE)
enum { L2 = _SC_LEVEL2_CACHE_SIZE };
#else
enum { L2 };
#endif

static int at_most(int64_t threads) { return (int)(threads < AC_MOST_THREADS ? threads : AC_MOST_THREADS); }

static ac_machine detect(void) {
    ac_machine m = {.isa = cpu_level(), .fast_dot = dot_is_fast(), .cores = usable_cores(), .huge_pages = true};
    m.cpu = m.asked = m.isa;
    m.l2_bytes = cache_bytes(L2, 128 << 10, 512 << 10);
    m.threads = at_most(m.cores);
    return m;
}

/* -- the environment ------------------------------------------------------------------------------------------- */

static char fault[240], note[240];

/* Whether the variable is set to a whole number between least and most, which goes to *number. */
static bool take_number(ac_machine *m, ac_fact fact, int64_t least, int64_t most, int64_t *number) {
    const char *text = getenv(variables[fact]);
    if (!text || !*text) return false;
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*end || value < least || value > most) {
        (void)snprintf(fault, sizeof fault, "%s is %.80s; expected a whole number from %lld to %lld, or leave it unset",
                       variables[fact], text, (long long)least, (long long)most);
        return false;
    }
    *number = value;
    return m->set[fact] = true;
}

static void take_level(ac_machine *m) {
    const char *text = getenv(variables[AC_FACT_CPU]);
    ac_isa level = 0;
    if (!text || !*text) return;
    while (level < AC_ISA_LEVELS && strcmp(text, levels[level]) != 0) level++;
    if (level == AC_ISA_LEVELS) {
        (void)snprintf(fault, sizeof fault,
                       "AMPC_CPU is %.80s; expected baseline, avx2, avx512, avx512_bf16, amx_bf16 "
                       "or amx_fp16, or leave it unset",
                       text);
        return;
    }
    m->set[AC_FACT_CPU] = true, m->asked = level;
    if (level == AC_ISA_AVX512_BF16) m->fast_dot = true; /* asked for by name */
    if (level < m->isa) m->isa = level;
}

/* OpenMP's list of a number for each depth of nesting: the first counts. */
static void take_threads(ac_machine *m) {
    const char *text = getenv(variables[AC_FACT_THREADS]);
    if (!text || !*text) return;
    char *end;
    long long asked = strtoll(text, &end, 10);
    end += strspn(end, " ");
    if (asked < 1 || end == text || (*end && *end != ',')) {
        (void)snprintf(note, sizeof note, "OMP_NUM_THREADS is %.80s, which is no number of threads: %d are used", text,
                       m->threads);
        return;
    }
    if (asked > AC_MOST_THREADS)
        (void)snprintf(note, sizeof note, "OMP_NUM_THREADS is %.80s; %d threads, the most there can be, are used", text,
                       AC_MOST_THREADS);
    m->threads = at_most(asked), m->set[AC_FACT_THREADS] = true;
}

static void take_environment(ac_machine *m) {
    int64_t number;
    take_level(m);
    if (take_number(m, AC_FACT_L2, 64 << 10, (int64_t)1 << 30, &number)) m->l2_bytes = number;
    if (take_number(m, AC_FACT_CORES, 1, 4096, &number)) m->cores = (int)number, m->threads = at_most(number);
    if (take_number(m, AC_FACT_HUGE_PAGES, 0, 1, &number)) m->huge_pages = number != 0;
    take_threads(m);
}

/* -- asked once ------------------------------------------------------------------------------------------------ */

static ac_machine machine;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic bool is_read; /* asked before `once`: every product asks several times */

static void read_once(void) {
    machine = detect();
    take_environment(&machine);
    atomic_store_explicit(&is_read, true, memory_order_release);
}

const ac_machine *ac_this_machine(void) {
    if (!atomic_load_explicit(&is_read, memory_order_acquire)) (void)pthread_once(&once, read_once);
    return &machine;
}

const char *ac_machine_fault(void) {
    (void)ac_this_machine();
    return *fault ? fault : NULL;
}

const char *ac_machine_note(void) {
    (void)ac_this_machine();
    return *note ? note : NULL;
}

void ac_machine_pretend(const ac_machine *m) {
    ac_isa isa = ac_this_machine()->isa;
    machine = *m, machine.isa = isa;
}
