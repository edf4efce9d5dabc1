/* Operators on rows along one dimension: softmax and its relatives. A row that is not contiguous in the
 * opmath type is first gathered into a buffer of the thread's own. */
#include "cpu/kernels.h"

#include "base/alloc.h"
#include "base/ways.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROW_IN = 2 };

/* One call: rows of `n` along `dim` of inputs and result, all of the shape of in[0]. */
typedef struct rowwise {
    const ac_loops *loops;
    const ac_run *r;
    ac_opmath opmath;
    int64_t dim, n, rows;
    int inputs;
    ac_space kept[MAX_ROW_IN + 1]; /* of each input, then of the result */
    void (*row)(const struct rowwise *c, const void *const *in, void *out, int64_t index);
    bool has_result; /* the row function fills n values that are stored to out[0] */
} rowwise;

static size_t row_bytes(const rowwise *c) { return (size_t)(c->n * ac_opmath_bytes(c->opmath)) + AC_ALIGNMENT; }

static int64_t row_stride(const ac_tensor *t, int64_t dim) { return t->ndim ? t->strides[dim] : 1; }

static const void *row_in(const rowwise *c, int k, int64_t index, char *buffer) {
    const ac_tensor *t = c->r->in[k];
    int64_t at = ac_space_offset(&c->kept[k], index);
    return ac_read_run(c->loops, c->opmath, t->dtype, c->n, (char *)ac_data(t) + at * ac_itemsize(t->dtype),
                       row_stride(t, c->dim), buffer);
}

/* Whether rows are made where they belong. */
static bool makes_in_place(const rowwise *c) {
    const ac_tensor *out = c->r->out[0];
    return c->has_result && out->dtype == ac_opmath_dtype(c->opmath) && row_stride(out, c->dim) == 1;
}

static void some_rows(void *context, int64_t begin, int64_t end, char *buffer) {
    const rowwise *c = context;
    size_t bytes = row_bytes(c);
    ac_tensor *out = c->r->out[0];
    bool direct = makes_in_place(c);
    for (int64_t i = begin; i < end; i++) {
        const void *in[MAX_ROW_IN];
        for (int k = 0; k < c->inputs; k++) in[k] = row_in(c, k, i, buffer + bytes * (size_t)k);
        char *to = (char *)ac_data(out);
        void *result = buffer + bytes * MAX_ROW_IN;
        if (c->has_result) to += ac_space_offset(&c->kept[MAX_ROW_IN], i) * ac_itemsize(out->dtype);
        if (direct) result = to;
        c->row(c, in, result, i);
        if (c->has_result && !direct) c->loops->store[c->opmath][out->dtype](c->n, result, to, row_stride(out, c->dim));
    }
}

static int run_rows(rowwise *c, int64_t dim) {
    const ac_tensor *x = c->r->in[0];
    AC_TRY(ac_dim_wrap(&dim, x->ndim, ac_ops[c->r->op].shown));
    uint32_t kept = x->ndim ? ~(1u << dim) : 0;
    c->loops = ac_cpu_loops();
    c->dim = dim, c->n = x->ndim ? x->shape[dim] : 1;
    c->rows = c->n ? x->numel / c->n : 0;
    for (int k = 0; k < c->inputs; k++) c->kept[k] = ac_space_of(c->r->in[k], kept);
    if (c->has_result) c->kept[MAX_ROW_IN] = ac_space_of(c->r->out[0], kept);
    if (makes_in_place(c)) AC_WAY(rows_in_place);
    else AC_WAY(rows_scattered);
    return ac_for_range_with(c->rows, AC_GRAIN_SLOW / (c->n + 1), (MAX_ROW_IN + 1) * row_bytes(c), some_rows, c);
}

static ac_opmath real_opmath(const ac_run *r) {
    return r->out[0]->dtype == AC_float64 || r->in[0]->dtype == AC_float64 ? AC_OPMATH_F64 : AC_OPMATH_F32;
}

/* -- softmax ------------------------------------------------------------------------------------ */

static void softmax_one(const rowwise *c, const void *const *in, void *out, int64_t i) {
    (void)i;
    c->loops->softmax[c->opmath](c->n, in[0], out);
}

static void safe_softmax_one(const rowwise *c, const void *const *in, void *out, int64_t i) {
    (void)i;
    c->loops->safe_softmax[c->opmath](c->n, in[0], out);
}

static void log_softmax_one(const rowwise *c, const void *const *in, void *out, int64_t i) {
    (void)i;
    c->loops->log_softmax[c->opmath](c->n, in[0], out);
}

static void softmax_backward_one(const rowwise *c, const void *const *in, void *out, int64_t i) {
    (void)i;
    c->loops->softmax_backward[c->opmath](c->n, in[0], in[1], out);
}

static void log_softmax_backward_one(const rowwise *c, const void *const *in, void *out, int64_t i) {
    (void)i;
    c->loops->log_softmax_backward[c->opmath](c->n, in[0], in[1], out);
}

int ac_cpu_softmax(const ac_run *r) {
    ATTRS(softmax);
    rowwise c = {.r = r, .opmath = real_opmath(r), .inputs = 1, .row = softmax_one, .has_result = true};
    return run_rows(&c, a->dim);
}

int ac_cpu_safe_softmax(const ac_run *r) {
    ATTRS(softmax);
    rowwise c = {.r = r, .opmath = real_opmath(r), .inputs = 1, .row = safe_softmax_one, .has_result = true};
    return run_rows(&c, a->dim);
}

int ac_cpu_log_softmax(const ac_run *r) {
    ATTRS(softmax);
    rowwise c = {.r = r, .opmath = real_opmath(r), .inputs = 1, .row = log_softmax_one, .has_result = true};
    return run_rows(&c, a->dim);
}

int ac_cpu_softmax_backward(const ac_run *r) {
    ATTRS(softmax_backward);
    rowwise c = {.r = r, .opmath = real_opmath(r), .inputs = 2, .row = softmax_backward_one, .has_result = true};
    return run_rows(&c, a->dim);
}

int ac_cpu_log_softmax_backward(const ac_run *r) {
    ATTRS(softmax_backward);
    rowwise c = {.r = r, .opmath = real_opmath(r), .inputs = 2, .row = log_softmax_backward_one, .has_result = true};
    return run_rows(&c, a->dim);
}

/* -- logsumexp over any dimensions ---------------------------------------------------------------- */

typedef struct {
    const ac_run *r;
    ac_opmath opmath;
    ac_space kept, inner;
} lse_call;

static void lse_rows(void *context, int64_t begin, int64_t end, char *row) {
    const lse_call *c = context;
    const ac_loops *loops = ac_cpu_loops();
    const ac_tensor *x = c->r->in[0];
    int64_t n = c->inner.numel, run = c->inner.size[c->inner.n - 1], item = ac_itemsize(x->dtype);
    for (int64_t o = begin; o < end; o++) {
        int64_t base = ac_space_offset(&c->kept, o);
        for (int64_t i = 0; i < n; i += run) {
            int64_t at = base + ac_space_offset(&c->inner, i);
            loops->load[x->dtype][c->opmath](run, (char *)ac_data(x) + at * item, c->inner.stride[c->inner.n - 1],
                                             row + i * ac_opmath_bytes(c->opmath));
        }
        ac_write_double(ac_data(c->r->out[0]), c->r->out[0]->dtype, o, loops->logsumexp[c->opmath](n, row));
    }
}

int ac_cpu_logsumexp(const ac_run *r) {
    ATTRS(reduce_dim);
    uint32_t mask;
    AC_TRY(ac_dims_mask(&a->dim, r->in[0]->ndim, "logsumexp", &mask));
    lse_call c = {
        .r = r, .opmath = real_opmath(r), .kept = ac_space_of(r->in[0], ~mask), .inner = ac_space_of(r->in[0], mask)};
    size_t bytes = (size_t)((c.inner.numel + 1) * ac_opmath_bytes(c.opmath));
    return ac_for_range_with(c.kept.numel, AC_GRAIN_SLOW / (c.inner.numel + 1), bytes, lse_rows, &c);
}
