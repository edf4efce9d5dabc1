/* float64 products by OpenBLAS, which is opened at first use. Each call runs on one thread, because our own pool
 * splits the work. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "backend/backend.h"

#include "base/system.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* CBLAS */

typedef void (*dgemm_fn)(int, int, int, int, int, int, double, const double *, int, const double *, int, double,
                         double *, int);

/* Whom a waiting fork keeps out: else it would wait for ever beside threads that come one after the other. */
#if defined(PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP)
#define NOBODY_INSIDE PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
#else
#define NOBODY_INSIDE PTHREAD_RWLOCK_INITIALIZER
#endif

static struct {
    char path[4096];
    pthread_rwlock_t inside; /* for reading by those who call it, for writing by who opens it or forks */
    _Atomic bool opened;
    dgemm_fn dgemm;
    void *library;
    char name[160];
} blas = {.inside = NOBODY_INSIDE};

void ac_blas_enter(void) { (void)pthread_rwlock_rdlock(&blas.inside); }
void ac_blas_leave(void) { (void)pthread_rwlock_unlock(&blas.inside); }

void ac_blas_around_fork(ac_fork_moment moment) {
    if (moment == AC_FORK_BEFORE) (void)pthread_rwlock_wrlock(&blas.inside);
    else if (moment == AC_FORK_PARENT) (void)pthread_rwlock_unlock(&blas.inside);
    else blas.inside = (pthread_rwlock_t)NOBODY_INSIDE; /* those who wait for it are not there */
}

void ac_blas_set_path(const char *path) { (void)snprintf(blas.path, sizeof blas.path, "%s", path); }

static void *symbol(void *library, const char *name) { return library ? ac_library_symbol(library, name) : NULL; }

/* OpenBLAS starts a thread for each core while it is opened, and raises SIGINT where it cannot; one is told to do
 * before that, by the only means there is. */
static void *open_alone(const char *path) {
#if defined(_WIN32)
    return ac_open_library(path);
#else
    static const char variable[] = "OPENBLAS_NUM_THREADS";
    const char *old = getenv(variable);
    char *kept = old ? strdup(old) : NULL;
    (void)setenv(variable, "1", 1);
    void *library = ac_open_library(path);
    if (kept) (void)setenv(variable, kept, 1);
    else (void)unsetenv(variable);
    free(kept);
    return library;
#endif
}

static void open_blas(void) {
    (void)snprintf(blas.name, sizeof blas.name, "own loops");
    void *library = blas.path[0] ? open_alone(blas.path) : NULL;
    void *d = symbol(library, "scipy_cblas_dgemm");
    void *threads = symbol(library, "scipy_openblas_set_num_threads");
    void *config = symbol(library, "scipy_openblas_get_config");
    void *core = symbol(library, "scipy_openblas_get_corename");
    if (!d || !threads || !config || !core) return;
    void (*set_threads)(int);
    char *(*get_config)(void), *(*get_core)(void);
    memcpy(&set_threads, &threads, sizeof threads); /* ISO C has no cast from data to function */
    memcpy(&get_config, &config, sizeof config);
    memcpy(&get_core, &core, sizeof core);
    memcpy(&blas.dgemm, &d, sizeof d);
    set_threads(1);
    blas.library = library;
    const char *text = get_config();
    (void)snprintf(blas.name, sizeof blas.name, "%.*s (%s)", (int)strcspn(text, " ") + 9, text, get_core());
}

const char *ac_blas_name(void) {
    if (!atomic_load_explicit(&blas.opened, memory_order_acquire)) {
        (void)pthread_rwlock_wrlock(&blas.inside);
        if (!blas.opened) open_blas();
        blas.opened = true;
        (void)pthread_rwlock_unlock(&blas.inside);
    }
    return blas.name;
}

void *ac_lapack(const char *name) {
    char full[64];
    (void)ac_blas_name();
    (void)snprintf(full, sizeof full, "scipy_%s_", name);
    ac_blas_enter(); /* the loader has a lock, too */
    void *found = symbol(blas.library, full);
    ac_blas_leave();
    return found;
}

static void own_gemm(const ac_dgemm *g) {
    for (int64_t i = 0; i < g->m; i++) {
        double *c = g->c + i * g->c_row;
        for (int64_t j = 0; j < g->n && !g->add; j++) c[j] = 0;
        for (int64_t p = 0; p < g->k && g->b_col == 1; p++) {
            double x = g->a[i * g->a_row + p * g->a_col];
            for (int64_t j = 0; j < g->n; j++) c[j] += x * g->b[p * g->b_row + j];
        }
        for (int64_t j = 0; j < g->n && g->b_col != 1; j++) /* b transposed: dot products */
            for (int64_t p = 0; p < g->k; p++)
                c[j] += g->a[i * g->a_row + p * g->a_col] * g->b[p * g->b_row + j * g->b_col];
    }
}

/* CBLAS's view of a matrix with one unit stride. */
static int leading(int64_t rows, int64_t cols, int64_t row, int64_t col, int *trans) {
    bool by_row = col == 1 && (row >= cols || rows == 1);
    *trans = by_row ? NO_TRANS : TRANS;
    int64_t lead = by_row ? row : col, least = by_row ? cols : rows;
    return (int)(lead > least ? lead : least > 0 ? least : 1);
}

/* Whether BLAS can read a matrix: rows or columns are runs of memory, and do not overlap, as those of an expanded one.
 */
static bool is_readable(int64_t rows, int64_t cols, int64_t row, int64_t col) {
    if (col == 1 && (row >= cols || rows == 1)) return true;
    return row == 1 && (col >= rows || cols == 1);
}

void ac_blas_dgemm(const ac_dgemm *g) {
    if (g->m == 0 || g->n == 0) return;
    (void)ac_blas_name();
    bool readable = is_readable(g->m, g->k, g->a_row, g->a_col) && is_readable(g->k, g->n, g->b_row, g->b_col);
    bool tiny = g->m * g->n * g->k <= 1024, huge = (g->m | g->n | g->k | g->a_row | g->b_row | g->c_row) >> 31;
    if (!blas.dgemm || !readable || tiny || huge || g->k == 0) {
        own_gemm(g);
        return;
    }
    int ta, tb, m = (int)g->m, n = (int)g->n, k = (int)g->k;
    int lda = leading(g->m, g->k, g->a_row, g->a_col, &ta), ldb = leading(g->k, g->n, g->b_row, g->b_col, &tb);
    ac_blas_enter();
    blas.dgemm(ROW_MAJOR, ta, tb, m, n, k, 1.0, g->a, lda, g->b, ldb, g->add ? 1.0 : 0.0, g->c, (int)g->c_row);
    ac_blas_leave();
}
