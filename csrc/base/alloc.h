/* The allocator of all memory that the core owns. It caches freed blocks by size class, because fresh pages cost more
 * than the arithmetic done on them, and it counts what is in use. Tests can make the n-th allocation from now fail.
 * Safe from any thread. */
#ifndef AC_BASE_ALLOC_H
#define AC_BASE_ALLOC_H

#include "base/error.h"
#include "base/fork.h"

#include <stddef.h>
#include <stdint.h>

enum { AC_ALIGNMENT = 64 };

/* New block of at least `bytes`, 64-byte aligned, contents undefined; free with ac_free(p, bytes). */
void *ac_alloc(size_t bytes) AC_CHECKED;
/* The same, zeroed. */
void *ac_calloc(size_t bytes) AC_CHECKED;
/* `bytes` must be what was asked for. NULL is allowed. */
void ac_free(void *block, size_t bytes);
/* The same of a block that holds `data` bytes of tensor data, which are counted as such. */
void *ac_alloc_data(size_t bytes, int64_t data) AC_CHECKED;
void ac_free_data(void *block, size_t bytes, int64_t data);

typedef struct {
    int64_t current, peak; /* bytes of live tensor data */
    int64_t blocks;        /* live blocks of any kind */
    int64_t cached;        /* bytes held for reuse */
    int64_t system_calls;  /* blocks asked of the system so far */
} ac_memory_stats;

ac_memory_stats ac_memory(void);
void ac_memory_reset_peak(void);
/* Returns every cached block to the system. */
void ac_memory_trim(void);

/* The n-th allocation from now fails (1 = the next one), and every one after it while
 * `forever`; 0 turns this off. */
void ac_alloc_fail_at(int64_t n, int forever);
int64_t ac_alloc_calls(void); /* allocations asked for since the last ac_alloc_fail_at */

/* Around fork (base/fork.h): no other thread is inside while the process is copied. */
void ac_alloc_around_fork(ac_fork_moment moment);

#endif
