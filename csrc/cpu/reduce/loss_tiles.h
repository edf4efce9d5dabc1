/* Samples of a loss side by side. Where classes are few, or lie apart while samples lie side by side, samples go in
 * tiles, all of one in step: loops are over samples then, not over the few classes of one. */
#ifndef AC_CPU_REDUCE_LOSS_TILES_H
#define AC_CPU_REDUCE_LOSS_TILES_H

#include "cpu/reduce/losses.h"

enum { TILE = 64, FEW_CLASSES = 64, MOST_CLASSES = 512 };

#define R float
#define S(name) name##_f32
#include "cpu/reduce/tile_loops.inc"
#undef R
#undef S
#define R double
#define S(name) name##_f64
#include "cpu/reduce/tile_loops.inc"
#undef R
#undef S

/* Calls name_f32 or name_f64. */
#define BY_OPMATH(opmath, name, ...)                                                                                   \
    do {                                                                                                               \
        if ((opmath) == AC_OPMATH_F64) name##_f64(__VA_ARGS__);                                                        \
        else name##_f32(__VA_ARGS__);                                                                                  \
    } while (0)

/* Samples [i, i + n), which lie at one distance from each other. */
typedef struct {
    int64_t i, n, bytes; /* bytes: of a class in the tile */
} tile;

/* For each sample of a tile, in the type that the call computes in. */
typedef struct {
    double v[TILE];
} per_sample;

static inline int64_t innermost(const ac_space *s) { return s->size[s->n - 1]; }

/* Whether rows of x go in tiles, whose samples are of these spaces, the first being x's. */
static inline bool goes_in_tiles(const class_rows *c, const ac_tensor *x, const ac_space *const *samples, int spaces) {
    bool apart = x->strides[x->ndim > 1] != 1 && samples[0]->stride[samples[0]->n - 1] == 1;
    bool fits = c->classes > 0 && c->classes <= (apart ? MOST_CLASSES : FEW_CLASSES);
    for (int k = 0; k < spaces; k++) fits = fits && innermost(samples[k]) >= TILE / 4;
    return fits;
}

/* Over n samples, by tiles or one by one, with scratch memory for so many tiles or rows. */
static inline int each_sample_of(const class_rows *c, int64_t n, bool tiles, int rooms, ac_scratch_fn by, void *call) {
    int64_t grain = AC_GRAIN_SLOW / (c->classes + 1);
    if (tiles && grain < TILE) grain = TILE;
    return ac_for_range_with(n, grain, (size_t)(tiles ? rooms * TILE : rooms) * row_room(c), by, call);
}

/* The tile at i: no longer than what each space has at one distance. */
static inline tile tile_at(const class_rows *c, int64_t i, int64_t end, const ac_space *const *samples, int spaces) {
    int64_t n = end - i < TILE ? end - i : TILE;
    for (int k = 0; k < spaces; k++) {
        int64_t left = innermost(samples[k]) - i % innermost(samples[k]);
        if (left < n) n = left;
    }
    return (tile){i, n, n * (int64_t)ac_opmath_bytes(c->opmath)};
}

static inline void read_tile(const class_rows *c, const tile *t, const ac_tensor *x, const ac_space *samples,
                             char *to) {
    const char *from = (const char *)ac_data(x) + ac_space_offset(samples, t->i) * ac_itemsize(x->dtype);
    int64_t step = x->strides[x->ndim > 1] * ac_itemsize(x->dtype), stride = samples->stride[samples->n - 1];
    for (int64_t k = 0; k < c->classes; k++)
        c->loops->load[x->dtype][c->opmath](t->n, from + k * step, stride, to + k * t->bytes);
}
static inline void write_tile(const class_rows *c, const tile *t, const char *from, ac_tensor *x,
                              const ac_space *samples) {
    char *to = (char *)ac_data(x) + ac_space_offset(samples, t->i) * ac_itemsize(x->dtype);
    int64_t step = x->strides[x->ndim > 1] * ac_itemsize(x->dtype), stride = samples->stride[samples->n - 1];
    for (int64_t k = 0; k < c->classes; k++)
        c->loops->store[c->opmath][x->dtype](t->n, from + k * t->bytes, to + k * step, stride);
}

static inline void fold_tile(const class_rows *c, const tile *t, ac_fold fold, double start, const void *x,
                             per_sample *to) {
    per_sample from;
    for (int64_t j = 0; j < t->n; j++) from.v[j] = start;
    BY_OPMATH(c->opmath, from_double, t->n, from.v, (void *)to->v);
    c->loops->fold_columns[fold][c->opmath](c->classes, t->n, x, t->n, 0, to->v);
}

/* Reads logits: what is left of them without the largest of each sample, which `top` has. */
static inline void read_below(const class_rows *c, const tile *t, const ac_tensor *x, const ac_space *samples, char *to,
                              per_sample *top) {
    read_tile(c, t, x, samples, to);
    fold_tile(c, t, AC_FOLD_MAX, -INFINITY, to, top);
    BY_OPMATH(c->opmath, below, c->classes, t->n, (void *)top->v, (void *)to);
}

static inline void exponentials(const class_rows *c, const tile *t, const void *x, void *e, per_sample *sum) {
    c->loops->point[AC_OP_exp][c->opmath](c->classes * t->n, &x, e, NULL);
    fold_tile(c, t, AC_FOLD_SUM, 0, e, sum);
}

/* The logarithm of that sum. */
static inline void log_of_sum(const class_rows *c, const tile *t, const void *x, void *e, per_sample *rest) {
    per_sample sum;
    const void *of = sum.v;
    exponentials(c, t, x, e, &sum);
    c->loops->point[AC_OP_log][c->opmath](t->n, &of, rest->v, NULL);
}

#endif
