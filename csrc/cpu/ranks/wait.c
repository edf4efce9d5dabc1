/* How ranks wait for each other: they look at a counter for a while, then sleep until it moves. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cpu/ranks/ranks.h"

#include <limits.h>
#include <sched.h>
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

enum { SLICE_MS = 100, YIELDS = 100 };

static int64_t now_ms(void) {
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The half of a counter that changes each time, which the kernel compares. */
static const void *word_of(const _Atomic uint64_t *counter) {
    bool low_first = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    return (const char *)counter + (low_first ? 0 : sizeof(uint32_t));
}

/* Until the counter is another than `seen`, or a slice of time is over. */
static void sleep_on(const _Atomic uint64_t *counter, uint64_t seen) {
#if defined(__linux__)
    struct timespec slice = {0, SLICE_MS * 1000000L};
    (void)syscall(SYS_futex, word_of(counter), FUTEX_WAIT, (uint32_t)seen, &slice, NULL, 0);
#else
    (void)counter, (void)seen, (void)word_of;
    (void)usleep(50);
#endif
}

static int wait_asleep(ac_ranks *g, ac_rank_line *line, const _Atomic uint64_t *counter, uint64_t value) {
    for (int64_t asked = now_ms();;) {
        (void)atomic_fetch_add(&line->sleepers, 1);
        uint64_t seen = atomic_load(counter);
        if (seen < value) sleep_on(counter, seen);
        (void)atomic_fetch_sub(&line->sleepers, 1);
        if (seen >= value) return 0;
        if (now_ms() - asked < SLICE_MS) continue;
        asked = now_ms();
        if (g->waits && g->waits(g->context) != 0) return -1;
    }
}

/* Looks at the counter, and between two looks leaves the core to who can use it. */
static bool comes_soon(const ac_ranks *g, const _Atomic uint64_t *counter, uint64_t value) {
    for (int i = 0; i < (g->spins > 0 ? YIELDS : 0); i++) {
        if (atomic_load_explicit(counter, memory_order_acquire) >= value) return true;
        (void)sched_yield();
    }
    return false;
}

int ac_ranks_wait(ac_ranks *g, int other, const _Atomic uint64_t *counter, uint64_t value) {
    for (int i = 0; i <= g->spins; i++) {
        if (atomic_load_explicit(counter, memory_order_acquire) >= value) return 0;
        RELAX();
    }
    if (g->rests) g->rests(g->context, true);
    int result = comes_soon(g, counter, value) ? 0 : wait_asleep(g, &g->lines[other], counter, value);
    if (g->rests) g->rests(g->context, false);
    return result;
}

void ac_ranks_set(ac_ranks *g, _Atomic uint64_t *counter, uint64_t value) {
    atomic_store(counter, value);
#if defined(__linux__)
    if (atomic_load(&g->lines[g->rank].sleepers) != 0)
        (void)syscall(SYS_futex, word_of(counter), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#else
    (void)g;
#endif
}
