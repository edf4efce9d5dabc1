/* The largest or smallest value along a dimension and where it is: of equal ones the first, and a nan before all. Rows
 * are folded tile by tile, and only the tile that holds the best is searched; columns advance together. */
#include "cpu/kernels.h"

#include "base/inline.h"
#include "base/ways.h"

#include <math.h>
#include <string.h>

enum { COLUMNS = 256, FEW = 48 };

typedef struct {
    const ac_run *r;
    const ac_loops *loops;
    ac_opmath opmath;
    ac_space kept, along;
    bool smallest;
    ac_tensor *values, *indices; /* values may be NULL */
} picking;

static const char *element(const picking *c, int64_t offset) {
    const ac_tensor *x = c->r->in[0];
    return (const char *)ac_data(x) + offset * ac_itemsize(x->dtype);
}

static const void *read_run(const picking *c, int64_t offset, int64_t n, int64_t stride, void *buffer) {
    return ac_read_run(c->loops, c->opmath, c->r->in[0]->dtype, n, element(c, offset), stride, buffer);
}

static int64_t offset_of(const picking *c, int64_t index) {
    return c->along.n == 1 ? index * c->along.stride[0] : ac_space_offset(&c->along, index);
}

/* Result o is the index-th along the reduced dimensions of what begins at `base`. */
static void store(const picking *c, int64_t o, int64_t base, int64_t index) {
    ((int64_t *)ac_data(c->indices))[o] = index;
    if (!c->values) return;
    size_t item = (size_t)ac_itemsize(c->values->dtype);
    memcpy((char *)ac_data(c->values) + o * (int64_t)item, element(c, base + offset_of(c, index)), item);
}

/* -- rows ----------------------------------------------------------------------------------------------- */

static ac_total worst(const picking *c) {
    return c->smallest ? (ac_total){INFINITY, INT64_MAX} : (ac_total){-INFINITY, INT64_MIN};
}

static bool is_better(const picking *c, const ac_total *a, const ac_total *b) {
    if (c->opmath == AC_OPMATH_I64) return c->smallest ? a->i < b->i : a->i > b->i;
    if (b->f != b->f) return false;
    return (c->smallest ? a->f < b->f : a->f > b->f) || a->f != a->f;
}

/* The first place of the best of what begins at `base`. */
static int64_t best_of(const picking *c, int64_t base) {
    double buffer[AC_TILE];
    int64_t run = c->along.size[c->along.n - 1], stride = c->along.stride[c->along.n - 1], begin = 0, count = 0;
    ac_fold fold = c->smallest ? AC_FOLD_MIN : AC_FOLD_MAX;
    ac_total best = worst(c);
    if (c->along.numel <= FEW && c->along.n == 1)
        return c->loops->best_of_few[c->opmath](run, read_run(c, base, run, stride, buffer), c->smallest);
    for (int64_t at = 0, n; at < c->along.numel && !ac_stop_at(at / AC_TILE); at += n) {
        n = ac_least(AC_TILE, run - at % run);
        ac_total tile = worst(c);
        const void *x = read_run(c, base + offset_of(c, at), n, stride, buffer);
        c->loops->fold[fold][c->opmath](n, x, 0, &tile);
        if (count == 0 || is_better(c, &tile, &best)) best = tile, begin = at, count = n;
    }
    const void *x = read_run(c, base + offset_of(c, begin), count, stride, buffer);
    return begin + c->loops->find[c->opmath](count, x, &best);
}

static void pick_rows(void *context, int64_t begin, int64_t end) {
    const picking *c = context;
    for (int64_t o = begin; o < end; o++) {
        int64_t base = ac_space_offset(&c->kept, o);
        store(c, o, base, best_of(c, base));
    }
}

/* -- columns -------------------------------------------------------------------------------------------- */

static void pick_block(const picking *c, int64_t first, int64_t width) {
    double buffer[COLUMNS], best[COLUMNS];
    int64_t index[COLUMNS] = {0}, base = ac_space_offset(&c->kept, first), stride = c->kept.stride[c->kept.n - 1];
    c->loops->load[c->r->in[0]->dtype][c->opmath](width, element(c, base), stride, best);
    for (int64_t row = 1; row < c->along.numel; row++) {
        const void *x = read_run(c, base + offset_of(c, row), width, stride, buffer);
        c->loops->best_columns[c->opmath](width, x, c->smallest, row, best, index);
    }
    for (int64_t j = 0; j < width; j++) store(c, first + j, base + j * stride, index[j]);
}

static void pick_columns(void *context, int64_t begin, int64_t end) {
    const picking *c = context;
    int64_t last = c->kept.size[c->kept.n - 1], blocks = ac_ceil_div(last, COLUMNS);
    for (int64_t b = begin; b < end; b++) {
        int64_t at = b % blocks * COLUMNS;
        pick_block(c, b / blocks * last + at, ac_least(COLUMNS, last - at));
    }
}

/* -- kernels ------------------------------------------------------------------------------------------------ */

static int run_pick(const ac_run *r, const ac_dims *dim, bool smallest, ac_tensor *values, ac_tensor *indices) {
    uint32_t mask;
    const ac_tensor *x = r->in[0];
    AC_TRY(ac_dims_mask(dim, x->ndim, ac_ops[r->op].shown, &mask));
    picking c = {.r = r,
                 .loops = ac_cpu_loops(),
                 .opmath = ac_opmath_of(x->dtype),
                 .kept = ac_space_of(x, ~mask),
                 .along = ac_space_of(x, mask),
                 .smallest = smallest,
                 .values = values,
                 .indices = indices};
    int64_t per_result = ac_most(c.along.numel, 1), last = c.kept.size[c.kept.n - 1];
    if (c.kept.numel == 0 || c.along.numel == 0) return 0;
    bool close = c.along.numel == 1 || c.kept.stride[c.kept.n - 1] < c.along.stride[c.along.n - 1];
    if (last >= 4 && close) {
        AC_WAY(pick_columns);
        int64_t blocks = c.kept.numel / last * ac_ceil_div(last, COLUMNS);
        ac_for_range(blocks, AC_GRAIN / (per_result * COLUMNS), pick_columns, &c);
    } else {
        AC_WAY(pick_rows);
        ac_for_range(c.kept.numel, AC_GRAIN / per_result, pick_rows, &c);
    }
    return 0;
}

static int arg(const ac_run *r, bool smallest) {
    ATTRS(maybe_dim);
    ac_dims dim = {a->dim == AC_ABSENT ? -1 : 1, {a->dim}};
    return run_pick(r, &dim, smallest, NULL, r->out[0]);
}

static int pair(const ac_run *r, bool smallest) {
    ATTRS(dim);
    ac_dims dim = {1, {a->dim}};
    return run_pick(r, &dim, smallest, r->out[0], r->out[1]);
}

int ac_cpu_argmax(const ac_run *r) { return arg(r, false); }
int ac_cpu_argmin(const ac_run *r) { return arg(r, true); }
int ac_cpu_max_dim(const ac_run *r) { return pair(r, false); }
int ac_cpu_min_dim(const ac_run *r) { return pair(r, true); }
