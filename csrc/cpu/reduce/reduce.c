/* Reductions, in two loop orders. One goes along rows, where the reduced dimension is closest in memory. The other
 * goes down columns, where a kept dimension is closest, and many results advance together. Chunks depend on sizes
 * alone. */
#include "cpu/kernels.h"

#include "base/alloc.h"
#include "base/ways.h"

#include <math.h>

enum { COLUMNS = 256, ROWS = 16, FLUSH_ROWS = 128, SPLIT = 65536 };

typedef void (*finish_fn)(const ac_total *total, double count, const ac_run *r, ac_tensor *out, int64_t at);

typedef struct {
    const ac_loops *loops;
    ac_opmath opmath;
    ac_fold fold;
    double p;           /* the fold's parameter, */
    const double *each; /* or one for every result */
    const ac_tensor *x;
    ac_space kept, inner;
    finish_fn finish;
    const ac_run *run;
    ac_tensor *out;
    ac_total *partial; /* of a result that several chunks share */
} reduction;

static ac_total start_of(ac_fold fold) {
    switch (fold) {
    case AC_FOLD_PROD: return (ac_total){1, 1};
    case AC_FOLD_MAX: return (ac_total){-INFINITY, INT64_MIN};
    case AC_FOLD_MIN:
    case AC_FOLD_MIN_ABS: return (ac_total){INFINITY, INT64_MAX};
    default: return (ac_total){0, 0};
    }
}

static const char *element(const reduction *c, int64_t offset) {
    return (const char *)ac_data(c->x) + offset * ac_itemsize(c->x->dtype);
}

static void fold_run(const reduction *c, int64_t offset, int64_t n, int64_t stride, double p, ac_total *total) {
    double buffer[AC_TILE];
    for (int64_t at = 0; at < n; at += AC_TILE) {
        int64_t run = n - at < AC_TILE ? n - at : AC_TILE;
        const char *from = element(c, offset + at * stride);
        const void *in = ac_read_run(c->loops, c->opmath, c->x->dtype, run, from, stride, buffer);
        c->loops->fold[c->fold][c->opmath](run, in, p, total);
    }
}

static void rows(void *context, int64_t begin, int64_t end) {
    const reduction *c = context;
    const ac_space *inner = &c->inner;
    int64_t run = inner->size[inner->n - 1], stride = inner->stride[inner->n - 1];
    int64_t runs = run ? inner->numel / run : 0;
    for (int64_t o = begin; o < end; o++) {
        ac_total total = start_of(c->fold);
        int64_t base = ac_space_offset(&c->kept, o);
        double p = c->each ? c->each[o] : c->p;
        for (int64_t i = 0; i < runs; i++) fold_run(c, base + ac_space_offset(inner, i * run), run, stride, p, &total);
        c->finish(&total, (double)inner->numel, c->run, c->out, o);
    }
}

/* Adds a part's total to that of the parts before it. */
static void join_total(ac_fold fold, ac_total *total, const ac_total *part) {
    switch (fold) {
    case AC_FOLD_PROD: total->f *= part->f, total->i = (int64_t)((uint64_t)total->i * (uint64_t)part->i); return;
    case AC_FOLD_MAX:
    case AC_FOLD_MAX_ABS:
        if (part->f > total->f || part->f != part->f) total->f = part->f;
        if (part->i > total->i) total->i = part->i;
        return;
    case AC_FOLD_MIN:
    case AC_FOLD_MIN_ABS:
        if (part->f < total->f || part->f != part->f) total->f = part->f;
        if (part->i < total->i) total->i = part->i;
        return;
    default: total->f += part->f, total->i = (int64_t)((uint64_t)total->i + (uint64_t)part->i);
    }
}

/* Rows [row, row + rows) of a block of columns, as the opmath type, to `to`. */
static void load_rows(const reduction *c, int64_t base, int64_t width, int64_t row, int64_t rows, char *to) {
    int64_t stride = c->kept.stride[c->kept.n - 1], bytes = width * (int64_t)ac_opmath_bytes(c->opmath), together = 1;
    if (c->inner.n == 1 && stride == 1 && c->inner.stride[0] == width) together = rows; /* they follow each other */
    for (int64_t i = 0; i < rows; i += together) {
        const char *from = element(c, base + ac_space_offset(&c->inner, row + i));
        c->loops->load[c->x->dtype][c->opmath](together * width, from, stride, to + i * bytes);
    }
}

/* Adds rows [row, end) of a block of columns, whose first value is at `base`, to `partial`. Rows of the opmath type are
 * read where they lie, and of bfloat16 that is summed. */
static void fold_rows(const reduction *c, int64_t base, int64_t width, int64_t row, int64_t end, double *partial) {
    double buffer[ROWS * COLUMNS];
    bool evenly = c->inner.n == 1,
         low = c->x->dtype == AC_bfloat16 && c->opmath == AC_OPMATH_F32 && c->fold == AC_FOLD_SUM,
         in_place = c->kept.stride[c->kept.n - 1] == 1 && (low || c->x->dtype == ac_opmath_dtype(c->opmath));
    int64_t step = in_place && evenly ? c->inner.stride[0] : width, rows;
    for (; row < end; row += rows) {
        rows = in_place ? evenly ? end - row : 1 : ac_least(ROWS, end - row);
        const void *in = in_place ? element(c, base + ac_space_offset(&c->inner, row)) : (const void *)buffer;
        if (!in_place) load_rows(c, base, width, row, rows, (char *)buffer);
        if (low && in_place) c->loops->columns_sum_bfloat16(rows, width, in, step, (float *)partial);
        else c->loops->fold_columns[c->fold][c->opmath](rows, width, in, step, c->p, partial);
    }
}

/* One block of neighbouring columns over all reduced elements. */
static void column_block(const reduction *c, int64_t first, int64_t width) {
    double partial[COLUMNS];
    ac_total totals[COLUMNS], start = start_of(c->fold);
    int64_t base = ac_space_offset(&c->kept, first);
    for (int64_t j = 0; j < width; j++) totals[j] = start;
    for (int64_t row = 0; row < c->inner.numel; row += FLUSH_ROWS) {
        int64_t end = row + FLUSH_ROWS < c->inner.numel ? row + FLUSH_ROWS : c->inner.numel;
        for (int64_t j = 0; j < width; j++) {
            if (c->opmath == AC_OPMATH_F32) ((float *)partial)[j] = (float)start.f;
            else if (c->opmath == AC_OPMATH_F64) partial[j] = start.f;
            else ((int64_t *)partial)[j] = start.i;
        }
        fold_rows(c, base, width, row, end, partial);
        for (int64_t j = 0; j < width; j++) {
            ac_total part = {.f = c->opmath == AC_OPMATH_F32 ? (double)((float *)partial)[j] : partial[j]};
            if (c->opmath == AC_OPMATH_I64) part = (ac_total){.i = ((int64_t *)partial)[j]};
            join_total(c->fold, &totals[j], &part);
        }
    }
    for (int64_t j = 0; j < width; j++) c->finish(&totals[j], (double)c->inner.numel, c->run, c->out, first + j);
}

static void columns(void *context, int64_t begin, int64_t end) {
    const reduction *c = context;
    int64_t last = c->kept.size[c->kept.n - 1], blocks = (last + COLUMNS - 1) / COLUMNS;
    for (int64_t b = begin; b < end; b++) {
        int64_t at = b % blocks * COLUMNS, width = last - at < COLUMNS ? last - at : COLUMNS;
        column_block(c, b / blocks * last + at, width);
    }
}

static void split_rows(void *context, int64_t begin, int64_t end) {
    const reduction *c = context;
    int64_t n = c->inner.numel, parts = (n + SPLIT - 1) / SPLIT, stride = c->inner.stride[0];
    for (int64_t i = begin; i < end; i++) {
        int64_t o = i / parts, at = i % parts * SPLIT, run = n - at < SPLIT ? n - at : SPLIT;
        c->partial[i] = start_of(c->fold);
        fold_run(c, ac_space_offset(&c->kept, o) + at * stride, run, stride, c->each ? c->each[o] : c->p,
                 &c->partial[i]);
    }
}

/* Few results over long runs: the runs are cut, and the parts joined in order. */
static int reduce_split(reduction *c) {
    int64_t parts = (c->inner.numel + SPLIT - 1) / SPLIT, n = c->kept.numel * parts;
    c->partial = ac_alloc((size_t)n * sizeof *c->partial);
    if (!c->partial) return -1;
    ac_for_range(n, 1, split_rows, c);
    for (int64_t o = 0; o < c->kept.numel; o++) {
        ac_total total = start_of(c->fold);
        for (int64_t i = 0; i < parts; i++) join_total(c->fold, &total, &c->partial[o * parts + i]);
        c->finish(&total, (double)c->inner.numel, c->run, c->out, o);
    }
    ac_free(c->partial, (size_t)n * sizeof *c->partial);
    return 0;
}

static int reduce(reduction *c, uint32_t mask) {
    c->kept = ac_space_of(c->x, ~mask);
    c->inner = ac_space_of(c->x, mask);
    int64_t last = c->kept.size[c->kept.n - 1];
    bool wide = last >= 4 && c->kept.stride[c->kept.n - 1] < c->inner.stride[c->inner.n - 1] && !c->each;
    int64_t per_result = c->inner.numel > 0 ? c->inner.numel : 1;
    if (wide) {
        AC_WAY(reduce_columns);
        int64_t blocks = c->kept.numel / last * ((last + COLUMNS - 1) / COLUMNS);
        ac_for_range(blocks, AC_GRAIN / (per_result * COLUMNS), columns, c);
        return 0;
    }
    if (c->kept.numel < 16 && c->inner.n == 1 && c->inner.numel >= 2 * SPLIT) {
        AC_WAY(reduce_split);
        return reduce_split(c);
    }
    AC_WAY(reduce_rows);
    ac_for_range(c->kept.numel, AC_GRAIN / per_result, rows, c);
    return 0;
}

/* -- what becomes of a total ----------------------------------------------------------------- */

static void write_total(const ac_total *t, double n, const ac_run *r, ac_tensor *out, int64_t at) {
    (void)n;
    bool integer = ac_opmath_of(r->in[0]->dtype) == AC_OPMATH_I64 && r->compute == AC_int64;
    if (integer) ac_write_int(ac_data(out), out->dtype, at, t->i);
    else ac_write_double(ac_data(out), out->dtype, at, t->f);
}

static void write_mean(const ac_total *t, double n, const ac_run *r, ac_tensor *out, int64_t at) {
    (void)r;
    ac_write_double(ac_data(out), out->dtype, at, t->f / n);
}

static void write_root(const ac_total *t, double n, const ac_run *r, ac_tensor *out, int64_t at) {
    (void)n, (void)r;
    ac_write_double(ac_data(out), out->dtype, at, sqrt(t->f));
}

static void write_power_root(const ac_total *t, double n, const ac_run *r, ac_tensor *out, int64_t at) {
    const ac_attrs_norm *a = r->attrs;
    (void)n;
    ac_write_double(ac_data(out), out->dtype, at, pow(t->f, 1 / ac_scalar_double(a->p)));
}

static void write_variance(const ac_total *t, double n, const ac_run *r, ac_tensor *out, int64_t at) {
    const ac_attrs_var *a = r->attrs;
    double rest = n - ac_correction(a), var = t->f / (rest > 0 ? rest : 0);
    ac_write_double(ac_data(out), out->dtype, at, r->op == AC_OP_std ? sqrt(var) : var);
}

static void write_any(const ac_total *t, double n, const ac_run *r, ac_tensor *out, int64_t at) {
    (void)n, (void)r;
    ac_write_int(ac_data(out), out->dtype, at, t->f + (double)t->i > 0);
}

static void write_all(const ac_total *t, double n, const ac_run *r, ac_tensor *out, int64_t at) {
    (void)r;
    ac_write_int(ac_data(out), out->dtype, at, t->f + (double)t->i == n);
}

/* -- kernels ------------------------------------------------------------------------------------ */

/* The opmath type of a reduction into `result`: integers are summed as integers only into integers. */
static ac_opmath opmath_for(const ac_tensor *x, ac_dtype result) {
    ac_opmath own = ac_opmath_of(x->dtype);
    if (result == AC_float64) return AC_OPMATH_F64;
    return own == AC_OPMATH_I64 && ac_is_floating(result) ? AC_OPMATH_F32 : own;
}

static int run_reduce(const ac_run *r, const ac_dims *dim, ac_fold fold, double p, finish_fn finish, ac_opmath opmath) {
    uint32_t mask;
    AC_TRY(ac_dims_mask(dim, r->in[0]->ndim, ac_ops[r->op].shown, &mask));
    if (dim->n == 0 && ac_same_shape(r->out[0], r->in[0])) mask = 0; /* nothing is reduced */
    ac_run run = *r;
    run.compute = ac_opmath_dtype(opmath);
    reduction c = {.loops = ac_cpu_loops(),
                   .opmath = opmath,
                   .fold = fold,
                   .p = p,
                   .x = r->in[0],
                   .finish = finish,
                   .run = &run,
                   .out = r->out[0]};
    return reduce(&c, mask);
}

int ac_cpu_sum(const ac_run *r) {
    ATTRS(reduce);
    return run_reduce(r, &a->dim, AC_FOLD_SUM, 0, write_total, opmath_for(r->in[0], r->out[0]->dtype));
}

int ac_cpu_mean(const ac_run *r) {
    ATTRS(reduce);
    return run_reduce(r, &a->dim, AC_FOLD_SUM, 0, write_mean, opmath_for(r->in[0], r->out[0]->dtype));
}

int ac_cpu_prod(const ac_run *r) {
    ATTRS(reduce);
    return run_reduce(r, &a->dim, AC_FOLD_PROD, 0, write_total, opmath_for(r->in[0], r->out[0]->dtype));
}

int ac_cpu_amax(const ac_run *r) {
    ATTRS(reduce_dim);
    return run_reduce(r, &a->dim, AC_FOLD_MAX, 0, write_total, ac_opmath_of(r->in[0]->dtype));
}

int ac_cpu_amin(const ac_run *r) {
    ATTRS(reduce_dim);
    return run_reduce(r, &a->dim, AC_FOLD_MIN, 0, write_total, ac_opmath_of(r->in[0]->dtype));
}

int ac_cpu_any(const ac_run *r) {
    ATTRS(reduce_dim);
    return run_reduce(r, &a->dim, AC_FOLD_COUNT, 0, write_any, ac_opmath_of(r->in[0]->dtype));
}

int ac_cpu_all(const ac_run *r) {
    ATTRS(reduce_dim);
    return run_reduce(r, &a->dim, AC_FOLD_COUNT, 0, write_all, ac_opmath_of(r->in[0]->dtype));
}

/* Squares are summed in float64, so that values of 1e20 do not overflow the sum. The norm of a single value is its
 * size, whose square could overflow float64. */
int ac_cpu_norm(const ac_run *r) {
    ATTRS(norm);
    double p = ac_scalar_double(a->p);
    ac_opmath opmath = opmath_for(r->in[0], r->out[0]->dtype);
    bool alone = r->out[0]->numel == r->in[0]->numel;
    if (alone && p != 0) return run_reduce(r, &a->dim, AC_FOLD_MAX_ABS, 0, write_total, opmath);
    if (p == 2) return run_reduce(r, &a->dim, AC_FOLD_SUM_SQUARES, 0, write_root, AC_OPMATH_F64);
    if (p == 1) return run_reduce(r, &a->dim, AC_FOLD_SUM_ABS, 0, write_total, opmath);
    if (p == 0) return run_reduce(r, &a->dim, AC_FOLD_COUNT, 0, write_total, opmath);
    if (p == INFINITY) return run_reduce(r, &a->dim, AC_FOLD_MAX_ABS, 0, write_total, opmath);
    if (p == -INFINITY) return run_reduce(r, &a->dim, AC_FOLD_MIN_ABS, 0, write_total, opmath);
    return run_reduce(r, &a->dim, AC_FOLD_SUM_POWERS, p, write_power_root, AC_OPMATH_F64);
}

static void keep_mean(const ac_total *t, double n, const ac_run *r, ac_tensor *out, int64_t at) {
    (void)out;
    ((double *)(uintptr_t)r->attrs)[at] = t->f / n;
}

/* Two passes: the means, then the squares around them. */
static int variances(const ac_run *r, uint32_t mask, ac_opmath opmath, double *means) {
    ac_run first = *r;
    first.attrs = means;
    reduction c = {.loops = ac_cpu_loops(),
                   .opmath = opmath,
                   .fold = AC_FOLD_SUM,
                   .x = r->in[0],
                   .finish = keep_mean,
                   .run = &first,
                   .out = r->out[0]};
    AC_TRY(reduce(&c, mask));
    c.fold = AC_FOLD_SUM_SQUARES, c.each = means, c.finish = write_variance, c.run = r;
    return reduce(&c, mask);
}

/* Whether squares may have left float32's range on the way to these results, though the results need not. */
static bool have_squares_left_range(const ac_tensor *out, bool rooted) {
    for (int64_t i = 0; i < out->numel; i++) {
        double v = ac_read_double(ac_data(out), out->dtype, i);
        if (!(v < INFINITY) || (rooted ? v * v : v) < 1e-30) return true;
    }
    return false;
}

int ac_cpu_var(const ac_run *r) {
    ATTRS(var);
    uint32_t mask;
    AC_TRY(ac_dims_mask(&a->dim, r->in[0]->ndim, ac_ops[r->op].shown, &mask));
    size_t bytes = (size_t)(r->out[0]->numel + 1) * sizeof(double);
    double *means = ac_alloc(bytes);
    if (!means) return -1;
    ac_opmath opmath = ac_opmath_of(r->in[0]->dtype);
    int failed = variances(r, mask, opmath, means);
    if (!failed && opmath == AC_OPMATH_F32 && have_squares_left_range(r->out[0], r->op == AC_OP_std))
        failed = variances(r, mask, AC_OPMATH_F64, means);
    ac_free(means, bytes);
    return failed;
}
