/* The table of ways through the kernels, and which of them this process has entered. */
#include "base/ways.h"

const ac_way_entry ac_ways[AC_N_WAYS] = {
#define WAY(name, fact, needs, sentence) {#name, sentence, AC_BY_##fact, AC_ISA_##needs},
#include "base/ways.def"
#undef WAY
};

_Atomic bool ac_ways_entered[AC_N_WAYS];

void ac_ways_reset(void) {
    for (int i = 0; i < AC_N_WAYS; i++) atomic_store_explicit(&ac_ways_entered[i], false, memory_order_relaxed);
}

const char *ac_way_fact_name(ac_way_fact fact) {
    static const char *const names[] = {
        "instruction set", "second-level cache", "threads", "huge pages", "layout", "dtype", "sizes", "values"};
    return names[fact];
}

const char *ac_way_variable(ac_way_fact fact) {
    switch (fact) {
    case AC_BY_ISA: return ac_fact_variable(AC_FACT_CPU);
    case AC_BY_L2: return ac_fact_variable(AC_FACT_L2);
    case AC_BY_THREADS: return ac_fact_variable(AC_FACT_THREADS);
    case AC_BY_HUGE_PAGES: return ac_fact_variable(AC_FACT_HUGE_PAGES);
    default: return NULL;
    }
}
