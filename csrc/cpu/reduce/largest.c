/* The largest magnitude of a tensor, which also tells whether all its values are finite. */
#include "cpu/kernels.h"

#include "base/pool.h"

#include <stdatomic.h>

typedef struct {
    const ac_tensor *t;
    uint64_t (*loop)(int64_t n, const void *x);
    _Atomic uint64_t largest;
} search;

static void some(void *context, int64_t begin, int64_t end) {
    search *s = context;
    uint64_t here = s->loop(end - begin, (const char *)ac_data(s->t) + begin * ac_itemsize(s->t->dtype));
    uint64_t before = atomic_load(&s->largest);
    while (before < here && !atomic_compare_exchange_weak(&s->largest, &before, here)) continue;
}

double ac_cpu_largest(const ac_tensor *t) {
    int64_t bytes = ac_itemsize(t->dtype);
    search s = {t, ac_cpu_loops()->largest[bytes / 4], 0}; /* of 2, 4 and 8 bytes */
    ac_poll_hold();                                        /* all of it */
    ac_for_range(t->numel, AC_GRAIN, some, &s);
    ac_poll_release();
    uint64_t wide = atomic_load(&s.largest);
    uint32_t single = (uint32_t)wide;
    uint16_t half = (uint16_t)wide;
    return ac_read_double(bytes == 8 ? (void *)&wide : bytes == 4 ? (void *)&single : (void *)&half, t->dtype, 0);
}
