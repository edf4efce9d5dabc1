/* The allocator: blocks cached by size class, counters of what is in use, and failures that tests ask for. */
#include "base/alloc.h"

#include "base/machine.h"
#include "base/system.h"
#include "base/ways.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NO_CACHE 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define NO_CACHE 1
#endif

/* Classes are 64, 128, then four steps to each doubling, up to 2^40 bytes. */
enum { STEPS = 4, N_CLASSES = 37 * STEPS };
#ifdef NO_CACHE /* let the sanitizer see every use after free, and what is beyond the bytes asked for */
static const size_t CACHE_LIMIT = 0;
#else
static const size_t CACHE_LIMIT = (size_t)1 << 30; /* bytes kept for reuse at most */
#endif

typedef struct block {
    struct block *next;
} block;

static struct {
    atomic_flag busy;
    block *cached[N_CLASSES];
    ac_memory_stats stats;
    int64_t calls, fail_at;
    int fail_forever;
} heap = {.busy = ATOMIC_FLAG_INIT};

static void lock(void) {
    while (atomic_flag_test_and_set_explicit(&heap.busy, memory_order_acquire)) {
    }
}

static void unlock(void) { atomic_flag_clear_explicit(&heap.busy, memory_order_release); }

/* The class that holds `bytes`, and through `size` its block size. */
static int class_of(size_t bytes, size_t *size) {
    size_t units = bytes <= AC_ALIGNMENT ? 1 : (bytes + AC_ALIGNMENT - 1) / AC_ALIGNMENT;
    if (units <= STEPS) {
        *size = units * AC_ALIGNMENT;
        return (int)units - 1;
    }
    int log = 63 - __builtin_clzll((unsigned long long)(units - 1));
    size_t step = (size_t)1 << (log - 2);
    size_t quarter = (units - 1) / step - STEPS; /* 0..3 within this doubling */
    *size = (STEPS + quarter + 1) * step * AC_ALIGNMENT;
    return STEPS + (log - 2) * STEPS + (int)quarter;
}

static bool must_fail(void) {
    heap.calls++;
    if (heap.fail_at == 0) return false;
    return heap.fail_forever ? heap.calls >= heap.fail_at : heap.calls == heap.fail_at;
}

static void *take_cached(int class, size_t size) {
    block *b = heap.cached[class];
    if (!b) return NULL;
    heap.cached[class] = b->next;
    heap.stats.cached -= (int64_t)size;
    return b;
}

/* Asks the system for huge pages for large blocks. A product walks a matrix by columns of panels and
 * touches a page in every row, so with small pages it would wait for the page tables. */
static void *from_system(size_t size) {
    enum { HUGE_PAGE = 2 << 20 };
    if (size < 2 * HUGE_PAGE) return ac_system_alloc(AC_ALIGNMENT, size);
    void *p = ac_system_alloc(HUGE_PAGE, size);
    if (!ac_this_machine()->huge_pages) {
        AC_WAY(memory_plain_pages);
        return p;
    }
    AC_WAY(memory_huge_pages);
#if defined(MADV_HUGEPAGE) && !defined(NO_CACHE)
    if (p) (void)madvise(p, size, MADV_HUGEPAGE); /* a wish */
#endif
    return p;
}

void ac_alloc_around_fork(ac_fork_moment moment) {
    if (moment == AC_FORK_BEFORE) lock();
    else unlock();
}

/* One more block, with so much tensor data. */
static void count(int64_t data) {
    heap.stats.blocks++;
    heap.stats.current += data;
    if (heap.stats.current > heap.stats.peak) heap.stats.peak = heap.stats.current;
}

void *ac_alloc_data(size_t bytes, int64_t data) {
    size_t size = 0;
    if (bytes > ((size_t)1 << 40))
        return ac_fail_null(AC_MEMORY,
                            "cannot allocate %zu bytes: that is more than this "
                            "machine can address",
                            bytes);
    int class = class_of(bytes, &size);
#ifdef NO_CACHE
    size = bytes;
#endif
    lock();
    bool fail = must_fail();
    void *p = fail ? NULL : take_cached(class, size);
    if (p) count(data);
    unlock();
    if (p) return p;
    if (!fail) p = from_system(size);
    if (!p && !fail) { /* perhaps what is cached would do */
        ac_memory_trim();
        p = from_system(size);
    }
    if (!p) {
        ac_memory_stats now = ac_memory();
        return ac_fail_null(AC_MEMORY,
                            "cannot allocate %zu bytes (tensors hold %lld bytes, peak "
                            "%lld)",
                            bytes, (long long)now.current, (long long)now.peak);
    }
    lock();
    count(data);
    heap.stats.system_calls++;
    unlock();
    return p;
}

void *ac_alloc(size_t bytes) { return ac_alloc_data(bytes, 0); }

void *ac_calloc(size_t bytes) {
    void *p = ac_alloc(bytes);
    if (p) memset(p, 0, bytes);
    return p;
}

void ac_free_data(void *p, size_t bytes, int64_t data) {
    if (!p) return;
    size_t size = 0;
    int class = class_of(bytes, &size);
    lock();
    heap.stats.blocks--;
    heap.stats.current -= data;
    bool keep = (size_t)heap.stats.cached + size <= CACHE_LIMIT;
    if (keep) {
        block *b = p;
        b->next = heap.cached[class];
        heap.cached[class] = b;
        heap.stats.cached += (int64_t)size;
    }
    unlock();
    if (!keep) ac_system_free(p);
}

void ac_free(void *p, size_t bytes) { ac_free_data(p, bytes, 0); }

void ac_memory_trim(void) {
    block *all = NULL;
    lock();
    for (int class = 0; class < N_CLASSES; class++) {
        while (heap.cached[class]) {
            block *b = heap.cached[class];
            heap.cached[class] = b->next;
            b->next = all;
            all = b;
        }
    }
    heap.stats.cached = 0;
    unlock();
    while (all) {
        block *next = all->next;
        ac_system_free(all);
        all = next;
    }
}

ac_memory_stats ac_memory(void) {
    lock();
    ac_memory_stats now = heap.stats;
    unlock();
    return now;
}

void ac_memory_reset_peak(void) {
    lock();
    heap.stats.peak = heap.stats.current;
    unlock();
}

void ac_alloc_fail_at(int64_t n, int forever) {
    lock();
    heap.calls = 0;
    heap.fail_at = n;
    heap.fail_forever = forever;
    unlock();
}

int64_t ac_alloc_calls(void) {
    lock();
    int64_t n = heap.calls;
    unlock();
    return n;
}
