/* Preloaded by tests/test_missing_memory.py: the n-th allocation of the thread that asks for it fails, Python's and the
 * core's alike. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stddef.h>
#include <string.h>

static void *(*real_malloc)(size_t), *(*real_calloc)(size_t, size_t), *(*real_realloc)(void *, size_t);
static int (*real_memalign)(void **, size_t, size_t);
static void (*real_free)(void *);

static __thread int counting, of_core;
static __thread long count, fails_at;

/* The n-th allocation from now on fails; with 0 none does. */
void missing_begin(long n) {
    void *some[2];
    (void)backtrace(some, 2); /* which asks for memory when it is first used */
    count = 0, of_core = 0, fails_at = n;
    counting = 1;
}
long missing_end(void) {
    counting = 0;
    return count;
}
/* Whether the allocation that failed was asked for within a call of the core, and not by the interpreter itself. */
int missing_of_core(void) { return of_core; }

static void note_who_asks(void) {
    void *callers[40];
    int n = backtrace(callers, 40);
    for (int i = 0; i < n && !of_core; i++) {
        Dl_info info;
        if (!dladdr(callers[i], &info)) continue;
        if (info.dli_sname && strcmp(info.dli_sname, "_PyEval_EvalFrameDefault") == 0) return;
        of_core = info.dli_fname && strstr(info.dli_fname, "/ampc/_C.") != NULL;
    }
}

static int fails(void) {
    if (!counting || ++count != fails_at) return 0;
    counting = 0;
    note_who_asks();
    counting = 1;
    return 1;
}

static char early[1 << 16]; /* what dlsym() asks for before it has found calloc */
static size_t taken;

static void find(void) {
    static int finding;
    if (real_free || finding) return;
    finding = 1;
    real_malloc = dlsym(RTLD_NEXT, "malloc");
    real_calloc = dlsym(RTLD_NEXT, "calloc");
    real_realloc = dlsym(RTLD_NEXT, "realloc");
    real_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    real_free = dlsym(RTLD_NEXT, "free");
}

static void *before_found(size_t bytes) {
    void *p = early + taken;
    taken += (bytes + 15) & ~(size_t)15;
    return taken <= sizeof early ? p : NULL;
}

static void *refused(void) {
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t bytes) {
    find();
    if (!real_malloc) return before_found(bytes);
    return fails() ? refused() : real_malloc(bytes);
}

void *calloc(size_t n, size_t bytes) {
    find();
    if (!real_calloc) return before_found(n * bytes);
    return fails() ? refused() : real_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes) {
    find();
    return fails() ? refused() : real_realloc(p, bytes);
}

int posix_memalign(void **p, size_t alignment, size_t bytes) {
    find();
    return fails() ? ENOMEM : real_memalign(p, alignment, bytes);
}

void free(void *p) {
    find();
    if (!p || ((char *)p >= early && (char *)p < early + sizeof early)) return;
    real_free(p);
}
