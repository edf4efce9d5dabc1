/* How ranks wait for each other: they look at a counter for a while, then sleep until it moves. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cpu/ranks/ranks.h"

#include <limits.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() ((void)0)
#endif

enum { SLICE_MS = 100 };

static int64_t now_ms(void) {
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Until the number is another than `seen`, or a slice of time is over. */
static void sleep_on(_Atomic uint32_t *word, uint32_t seen) {
#if defined(__linux__)
    struct timespec slice = {0, SLICE_MS * 1000000L};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &slice, NULL, 0);
#else
    (void)word, (void)seen;
    (void)usleep(50);
#endif
}

int ac_ranks_wait(ac_ranks *g, int other, const _Atomic uint64_t *counter, uint64_t value) {
    ac_rank_line *line = &g->lines[other];
    for (int i = 0; i < g->spins; i++) {
        if (atomic_load_explicit(counter, memory_order_acquire) >= value) return 0;
        RELAX();
    }
    int64_t asked = now_ms();
    for (;;) {
        uint32_t seen = atomic_load(&line->moves);
        (void)atomic_fetch_add(&line->sleepers, 1);
        bool there = atomic_load(counter) >= value;
        if (!there) sleep_on(&line->moves, seen);
        (void)atomic_fetch_sub(&line->sleepers, 1);
        if (there) return 0;
        if (now_ms() - asked < SLICE_MS) continue;
        asked = now_ms();
        if (g->waits && g->waits(g->context) != 0) return -1;
    }
}

void ac_ranks_moved(ac_ranks *g) {
    ac_rank_line *line = &g->lines[g->rank];
    (void)atomic_fetch_add(&line->moves, 1);
#if defined(__linux__)
    if (atomic_load(&line->sleepers) != 0) (void)syscall(SYS_futex, &line->moves, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#endif
}
