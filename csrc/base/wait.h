/* How threads and processes wait: a pause between two looks, sleep until a word of memory changes, and the clock. */
#ifndef AC_BASE_WAIT_H
#define AC_BASE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

/* Tells the core that this thread spins. */
#if defined(__x86_64__)
#define AC_PAUSE() __builtin_ia32_pause()
#else
#define AC_PAUSE() ((void)0)
#endif

/* Sleeps until ac_wake is called for the word, at once if it is not `seen` any more, for most_ms milliseconds at most
 * where these are not 0; sometimes for less, so callers look again. `shared`: the word is in memory of several
 * processes. Where the system has no futex, it sleeps for 50 microseconds. */
void ac_sleep_on(const void *word, uint32_t seen, int most_ms, bool shared);

/* Wakes so many of those that sleep on the word. */
void ac_wake(const void *word, int threads, bool shared);

/* Time of a clock that never goes back; it begins anywhere. */
int64_t ac_microseconds(void);

#endif
