/* The facts about this machine that select a way through the core: instruction set, cache sizes, cores, huge pages.
 * They are read here and nowhere else, once per process. An environment variable can set each of them, so that one
 * machine can stand in for another. */
#ifndef AC_BASE_MACHINE_H
#define AC_BASE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define AC_HAVE_X86 1 /* files for single instruction sets are compiled */
#endif

/* Each level includes those before it. */
typedef enum {
    AC_ISA_BASELINE,
    AC_ISA_AVX2,        /* with FMA and F16C */
    AC_ISA_AVX512,      /* F, BW, DQ, VL */
    AC_ISA_AVX512_BF16, /* vdpbf16ps */
    AC_ISA_AMX_BF16,    /* tiles, with the kernel's permission to use them */
    AC_ISA_AMX_FP16,
    AC_ISA_LEVELS
} ac_isa;

/* What can be set: AMPC_CPU, AMPC_L2_BYTES, AMPC_CORES, AMPC_HUGE_PAGES, OMP_NUM_THREADS. */
enum { AC_MOST_THREADS = 256 };

typedef enum { AC_FACT_CPU, AC_FACT_L2, AC_FACT_CORES, AC_FACT_HUGE_PAGES, AC_FACT_THREADS, AC_N_FACTS } ac_fact;

typedef struct {
    ac_isa isa;           /* the CPU's level, or a lower one that AMPC_CPU names */
    ac_isa cpu, asked;    /* the CPU's level, and what AMPC_CPU names, which the CPU may lack */
    bool fast_dot;        /* vdpbf16ps does more a cycle than two float32 FMAs: on AMD's cores, not on Intel's */
    int64_t l2_bytes;     /* of one core's second-level cache */
    int cores;            /* that this process may use: the affinity mask's, less where a quota is smaller */
    int threads;          /* that work on an operator at first: OMP_NUM_THREADS, else a thread a core */
    bool huge_pages;      /* large blocks of memory ask for them */
    bool set[AC_N_FACTS]; /* by the environment */
} ac_machine;

/* This machine, the same facts at every call. */
const ac_machine *ac_this_machine(void);
/* Why a variable of the environment cannot be taken, or NULL. Facts are then as if it were not set. */
const char *ac_machine_fault(void);
/* What of OMP_NUM_THREADS, which is of other libraries, too, is not heeded, or NULL. */
const char *ac_machine_note(void);
/* Stands in for another machine from here on, for tests; no work may be running. The instruction set stays. */
void ac_machine_pretend(const ac_machine *m);

const char *ac_isa_name(ac_isa level);
/* The variable that sets a fact. */
const char *ac_fact_variable(ac_fact fact);

static inline ac_isa ac_cpu_isa(void) { return ac_this_machine()->isa; }
static inline int64_t ac_l2_bytes(void) { return ac_this_machine()->l2_bytes; }

/* The quota in a cpu.max file ("max 100000" or "150000 100000"), rounded up to cores; 0: none. */
int ac_quota_in(const char *cpu_max);
/* The smallest quota, in cores, of the process's control group and of all groups above it; 0: none. `groups` is the
 * text of /proc/self/cgroup, of either version; `root` is where control groups are mounted. */
int ac_quota_of(const char *groups, const char *root);

#endif
