/* Sources: values of a result that waits, computed when they are read. The result of an elementwise operator has one.
 */
#include "cpu/kernels.h"

#include "base/alloc.h"

#include <string.h>

const void *ac_cpu_read_source(const ac_loops *loops, const ac_source *s, int64_t at, int64_t n, void *to) {
    ac_opmath opmath = ac_opmath_of(s->dtype);
    uint16_t half[AC_SOURCE_RUN];
    bool direct = ac_opmath_dtype(opmath) == s->dtype;
    s->read(s, at, n, direct ? to : half);
    if (!direct) loops->load[s->dtype][opmath](n, half, 1, to);
    return to;
}

typedef struct {
    const ac_source *source;
    char *to;
    int64_t numel;
} writing;

static void write_runs(void *context, int64_t begin, int64_t end) {
    const writing *w = context;
    const ac_source *s = w->source;
    for (int64_t at = begin * AC_SOURCE_RUN; at < w->numel && at < end * AC_SOURCE_RUN; at += AC_SOURCE_RUN)
        s->read(s, at, ac_least(w->numel - at, AC_SOURCE_RUN), w->to + at * ac_itemsize(s->dtype));
}

void ac_cpu_compute(ac_source *s, const ac_tensor *result) {
    writing w = {s, ac_data(result), result->numel};
    ac_for_range(ac_ceil_div(w.numel, AC_SOURCE_RUN), ac_grain_now(AC_GRAIN) / AC_SOURCE_RUN, write_runs, &w);
    s->computed = true;
}

/* -- of an elementwise operator ------------------------------------------------------------------------------ */

typedef struct {
    ac_source source;
    const ac_loops *loops;
    ac_opmath opmath;
    ac_op op;
    ac_bits_fn bits;
    int n_in;
    const char *data[AC_MAX_OPERANDS];
    ac_dtype dtypes[AC_MAX_OPERANDS];
    double attrs[]; /* aligned for any */
} point_source;

static void read_point(const ac_source *s, int64_t at, int64_t n, void *to) {
    const point_source *p = (const void *)s;
    double buffers[AC_MAX_OPERANDS][AC_SOURCE_RUN], result[AC_SOURCE_RUN];
    const void *in[AC_MAX_OPERANDS];
    for (int k = 0; k < p->n_in; k++) in[k] = p->data[k] + at * ac_itemsize(p->dtypes[k]);
    if (p->bits) {
        p->bits(n, in, to);
        return;
    }
    for (int k = 0; k < p->n_in; k++) in[k] = ac_read_run(p->loops, p->opmath, p->dtypes[k], n, in[k], 1, buffers[k]);
    bool direct = ac_opmath_dtype(p->opmath) == s->dtype;
    p->loops->point[p->op][p->opmath](n, in, direct ? to : result, p->attrs);
    if (!direct) p->loops->store[p->opmath][s->dtype](n, result, to, 1);
}

static size_t bytes_of(ac_op op) { return sizeof(point_source) + ac_ops[op].attrs_size + sizeof(double); }

static void release_point(ac_source *s) { ac_free(s, bytes_of(((point_source *)(void *)s)->op)); }

bool ac_cpu_in_rows(const ac_run *r) {
    if (!ac_is_contiguous(r->out[0])) return false;
    for (int k = 0; k < r->n_in; k++)
        if (!ac_is_contiguous(r->in[k]) || !ac_same_shape(r->in[k], r->out[0])) return false;
    return true;
}

ac_bits_fn ac_cpu_bits_of(const ac_run *r) {
    ac_dtype dtype = r->out[0]->dtype;
    ac_bits_fn bits = ac_is_half(dtype) ? ac_cpu_loops()->point16[r->op][dtype == AC_bfloat16] : NULL;
    for (int k = 0; k < r->n_in; k++)
        if (r->in[k]->dtype != dtype) return NULL;
    for (int k = 0; k < r->n_in && bits; k++)
        if (!ac_lie_alike(r->out[0], r->in[k])) return NULL;
    return bits;
}

int ac_cpu_leave_point(const ac_run *r) {
    point_source *p = ac_alloc(bytes_of(r->op));
    if (!p) return -1;
    *p = (point_source){.source = {read_point, release_point, r->out[0]->dtype, false},
                        .loops = ac_cpu_loops(),
                        .opmath = ac_opmath_of(r->compute),
                        .op = r->op,
                        .bits = ac_cpu_bits_of(r),
                        .n_in = r->n_in};
    for (int k = 0; k < r->n_in; k++) p->data[k] = ac_data(r->in[k]), p->dtypes[k] = r->in[k]->dtype;
    if (r->attrs) memcpy(p->attrs, r->attrs, ac_ops[r->op].attrs_size);
    *r->rest = &p->source;
    return 0;
}
