/* Records which ways through the kernels this process has taken; ways.def lists them. A kernel that selects a way by
 * a fact about the machine notes it once per call. Tests and `ampc selftest` read this to show that each way was
 * taken and gave right numbers. */
#ifndef AC_BASE_WAYS_H
#define AC_BASE_WAYS_H

#include "base/machine.h"

#include <stdatomic.h>

typedef enum {
#define WAY(name, fact, needs, sentence) AC_WAY_##name,
#include "base/ways.def"
#undef WAY
    AC_N_WAYS
} ac_way;

/* What chooses a way. */
typedef enum {
    AC_BY_ISA,
    AC_BY_L2,
    AC_BY_THREADS,
    AC_BY_HUGE_PAGES,
    AC_BY_LAYOUT,
    AC_BY_DTYPE,
    AC_BY_SIZES,
    AC_BY_VALUES
} ac_way_fact;

typedef struct {
    const char *name, *sentence;
    ac_way_fact fact;
    ac_isa needs; /* the lowest instruction set on which the way can be chosen */
} ac_way_entry;

extern const ac_way_entry ac_ways[AC_N_WAYS];
const char *ac_way_fact_name(ac_way_fact fact);
/* The variable of the environment that sets the fact, or NULL where the operands decide. */
const char *ac_way_variable(ac_way_fact fact);

extern _Atomic bool ac_ways_entered[AC_N_WAYS];
void ac_ways_reset(void);

/* A way that has been entered is only read again, so threads do not take its line of the cache from each other. */
static inline void ac_way_enter(ac_way way) {
    if (!atomic_load_explicit(&ac_ways_entered[way], memory_order_relaxed))
        atomic_store_explicit(&ac_ways_entered[way], true, memory_order_relaxed);
}
#define AC_WAY(name) ac_way_enter(AC_WAY_##name)

#endif
