/* What losses share on the CPU: sums over samples, and rows of classes. */
#ifndef AC_CPU_REDUCE_LOSSES_H
#define AC_CPU_REDUCE_LOSSES_H

#include "base/alloc.h"
#include "cpu/kernels.h"

#include <math.h>

/* A sum of many numbers in blocks: its error grows with the number of blocks, not with that of numbers. */
typedef struct {
    double whole, block;
    int64_t n;
} blocked;

static inline void add_number(blocked *b, double x) {
    enum { BLOCK = 1024 };
    b->block += x;
    if (++b->n % BLOCK == 0) b->whole += b->block, b->block = 0;
}
static inline double sum_of(const blocked *b) { return b->whole + b->block; }

/* Rows of classes, one a sample, and the type that they are computed in. */
typedef struct {
    const ac_loops *loops;
    ac_opmath opmath;
    int64_t classes;
} class_rows;

static inline size_t row_bytes(const class_rows *c) { return (size_t)(c->classes * ac_opmath_bytes(c->opmath)); }
static inline size_t row_room(const class_rows *c) { return row_bytes(c) + AC_ALIGNMENT; }

/* Sample i's row of t [N, C, ...]. */
static inline const void *read_row(const class_rows *c, const ac_tensor *t, const ac_space *samples, int64_t i,
                                   void *buffer) {
    const char *row = (const char *)ac_data(t) + ac_space_offset(samples, i) * ac_itemsize(t->dtype);
    return ac_read_run(c->loops, c->opmath, t->dtype, c->classes, row, t->strides[t->ndim > 1], buffer);
}
static inline void write_row(const class_rows *c, const void *row, ac_tensor *t, const ac_space *samples, int64_t i) {
    char *to = (char *)ac_data(t) + ac_space_offset(samples, i) * ac_itemsize(t->dtype);
    c->loops->store[c->opmath][t->dtype](c->classes, row, to, t->strides[t->ndim > 1]);
}

static inline double fold_row(const class_rows *c, ac_fold fold, double start, const void *row) {
    ac_total total = {.f = start};
    c->loops->fold[fold][c->opmath](c->classes, row, 0, &total);
    return total.f;
}

/* log p of the logits x in `log_p`, and the largest logit and the logarithm of the sum in lse: minus the largest log p,
 * which keeps its digits beside huge logits. */
static inline void log_shares(const class_rows *c, const void *x, void *log_p, double *lse) {
    c->loops->log_softmax[c->opmath](c->classes, x, log_p);
    lse[0] = fold_row(c, AC_FOLD_MAX, -INFINITY, x);
    lse[1] = -fold_row(c, AC_FOLD_MAX, -INFINITY, log_p);
}

#endif
