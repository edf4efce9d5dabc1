/* What losses share on the CPU: sums over samples, their classes, and rows of classes. */
#ifndef AC_CPU_REDUCE_LOSSES_H
#define AC_CPU_REDUCE_LOSSES_H

#include "base/alloc.h"
#include "cpu/kernels.h"

#include <inttypes.h>
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

/* Class c of sample i of x [N, C, ...] lies at (sample's offset) + c * class_stride. */
typedef struct {
    ac_space samples, target;
    int64_t classes, class_stride;
} nll_layout;

static inline nll_layout nll_layout_of(const ac_tensor *x, const ac_tensor *target) {
    int channel = x->ndim > 1;
    return (nll_layout){ac_space_of(x, ~(1u << channel)), ac_space_of(target, UINT32_MAX), x->shape[channel],
                        x->strides[channel]};
}

/* The weight of sample i's class, 0 when it is ignored; its class through `class`; -1 when invalid. */
static inline double sample_weight(const nll_layout *l, const ac_tensor *target, const ac_tensor *weight,
                                   int64_t ignore, int64_t i, int64_t *class) {
    int64_t at = ac_space_offset(&l->target, i);
    *class =
        target->dtype == AC_uint8 ? ((const uint8_t *)ac_data(target))[at] : ((const int64_t *)ac_data(target))[at];
    if (*class == ignore) return 0;
    if (*class < 0 || *class >= l->classes)
        return (double)ac_fail(AC_INDEX, "nll_loss: target %" PRId64 " is out of range for %" PRId64 " classes", *class,
                               l->classes);
    return weight ? ac_read_double(ac_data(weight), weight->dtype, *class * weight->strides[0]) : 1;
}

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
/* Where sample i's row of t is computed: in its place, if it lies there as loops compute it, or else in the buffer. */
static inline void *row_to_write(const class_rows *c, ac_tensor *t, const ac_space *samples, int64_t i, void *buffer) {
    bool fits = t->dtype == ac_opmath_dtype(c->opmath) && t->strides[t->ndim > 1] == 1;
    return fits ? (char *)ac_data(t) + ac_space_offset(samples, i) * ac_itemsize(t->dtype) : buffer;
}
static inline void write_row(const class_rows *c, const void *row, ac_tensor *t, const ac_space *samples, int64_t i) {
    char *to = (char *)ac_data(t) + ac_space_offset(samples, i) * ac_itemsize(t->dtype);
    if (row == to) return;
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
