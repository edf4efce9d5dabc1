/* Waiting, by Linux's futex. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/wait.h"

#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>

void ac_sleep_on(const void *word, uint32_t seen, int most_ms, bool shared) {
    struct timespec most = {most_ms / 1000, most_ms % 1000 * 1000000L};
    (void)syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen, most_ms ? &most : NULL, NULL, 0);
}

void ac_wake(const void *word, int threads, bool shared) {
    (void)syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}
#else
void ac_sleep_on(const void *word, uint32_t seen, int most_ms, bool shared) {
    (void)word, (void)seen, (void)most_ms, (void)shared;
    (void)usleep(50);
}

void ac_wake(const void *word, int threads, bool shared) { (void)word, (void)threads, (void)shared; }
#endif

int64_t ac_microseconds(void) {
    struct timespec t;
    return clock_gettime(CLOCK_MONOTONIC, &t) == 0 ? t.tv_sec * 1000000 + t.tv_nsec / 1000 : 0;
}
