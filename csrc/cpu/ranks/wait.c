/* How ranks wait for each other: they look at a counter for a while, then sleep until it moves. */
#include "cpu/ranks/ranks.h"

#include "base/wait.h"

#include <limits.h>

/* Some 10 microseconds of looks before it sleeps. It does not yield its core between them: where others compute on the
 * core they would keep it for milliseconds, and who sleeps is woken at once. */
enum { SLICE_MS = 100, LOOKS = 100, PAUSES = 10 };

/* The half of a counter that changes each time, which the kernel compares. */
static const void *word_of(const _Atomic uint64_t *counter) {
    bool low_first = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    return (const char *)counter + (low_first ? 0 : sizeof(uint32_t));
}

static int wait_asleep(ac_ranks *g, ac_rank_line *line, const _Atomic uint64_t *counter, uint64_t value) {
    for (int64_t asked = ac_microseconds();;) {
        (void)atomic_fetch_add(&line->sleepers, 1);
        uint64_t seen = atomic_load(counter);
        if (seen < value) ac_sleep_on(word_of(counter), (uint32_t)seen, SLICE_MS, true);
        (void)atomic_fetch_sub(&line->sleepers, 1);
        if (seen >= value) return 0;
        if (ac_microseconds() - asked < 1000 * SLICE_MS) continue;
        asked = ac_microseconds();
        if (g->waits && g->waits(g->context) != 0) return -1;
    }
}

static bool comes_soon(const ac_ranks *g, const _Atomic uint64_t *counter, uint64_t value) {
    for (int i = 0; i < (g->spins > 0 ? LOOKS : 0); i++) {
        if (atomic_load_explicit(counter, memory_order_acquire) >= value) return true;
        for (int k = 0; k < PAUSES; k++) AC_PAUSE();
    }
    return false;
}

int ac_ranks_wait(ac_ranks *g, int other, const _Atomic uint64_t *counter, uint64_t value) {
    for (int i = 0; i <= g->spins; i++) {
        if (atomic_load_explicit(counter, memory_order_acquire) >= value) return 0;
        AC_PAUSE();
    }
    if (g->rests) g->rests(g->context, true);
    int result = comes_soon(g, counter, value) ? 0 : wait_asleep(g, &g->lines[other], counter, value);
    if (g->rests) g->rests(g->context, false);
    return result;
}

void ac_ranks_set(ac_ranks *g, _Atomic uint64_t *counter, uint64_t value) {
    atomic_store(counter, value);
    if (atomic_load(&g->lines[g->rank].sleepers) != 0) ac_wake(word_of(counter), INT_MAX, true);
}
