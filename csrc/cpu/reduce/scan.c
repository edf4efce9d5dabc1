/* Cumulative operators along one dimension. Real numbers are added in double precision, whatever their dtype. */
#include "cpu/kernels.h"

#include "base/ways.h"

#include <math.h>

typedef struct scan {
    const ac_run *r;
    ac_opmath opmath;
    int64_t dim, n;
    bool reverse;
    ac_space from, with, to;
    /* one row, in opmath type: x and (where there is one) the second input, into y, which may be x */
    void (*row)(const struct scan *c, void *x, const void *with);
} scan;

static int64_t row_stride(const ac_tensor *t, int64_t dim) { return t->ndim ? t->strides[dim] : 1; }

static void load_row(const scan *c, const ac_tensor *t, const ac_space *rows, int64_t row, char *to) {
    char *from = (char *)ac_data(t) + ac_space_offset(rows, row) * ac_itemsize(t->dtype);
    ac_cpu_loops()->load[t->dtype][c->opmath](c->n, from, row_stride(t, c->dim), to);
}

static void some_rows(void *context, int64_t begin, int64_t end, char *scratch) {
    const scan *c = context;
    ac_tensor *out = c->r->out[0];
    char *with = scratch + c->n * 8;
    for (int64_t i = begin; i < end; i++) {
        load_row(c, c->r->in[0], &c->from, i, scratch);
        if (c->r->n_in > 1) load_row(c, c->r->in[1], &c->with, i, with);
        c->row(c, scratch, with);
        char *to = (char *)ac_data(out) + ac_space_offset(&c->to, i) * ac_itemsize(out->dtype);
        ac_cpu_loops()->store[c->opmath][out->dtype](c->n, scratch, to, row_stride(out, c->dim));
    }
}

static int run_scan(scan *c, int64_t dim) {
    const ac_run *r = c->r;
    const ac_tensor *x = r->in[0];
    AC_TRY(ac_dim_wrap(&dim, x->ndim, ac_ops[r->op].shown));
    uint32_t kept = x->ndim ? ~(1u << dim) : 0;
    c->opmath = ac_is_floating(r->out[0]->dtype) ? AC_OPMATH_F64 : AC_OPMATH_I64;
    c->dim = dim, c->n = x->ndim ? x->shape[dim] : 1;
    c->from = ac_space_of(x, kept), c->to = ac_space_of(r->out[0], kept);
    if (r->n_in > 1) c->with = ac_space_of(r->in[1], kept);
    size_t bytes = (size_t)(2 * c->n + 1) * 8;
    AC_WAY(scan_rows);
    return ac_for_range_with(c->n ? x->numel / c->n : 0, AC_GRAIN_SLOW / (c->n + 1), bytes, some_rows, c);
}

/* Sums of four values do not wait for those before them. Sums of values of 0 or more rise, and a 0 leaves them as they
 * are. Values of float32 cannot leave float64's range on the way. */
static void sum_by_fours(int64_t n, double *x) {
    double sum = 0;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        double one = x[i], two = one + x[i + 1], three = two + x[i + 2], four = three + x[i + 3];
        x[i] = sum + one, x[i + 1] = sum + two, x[i + 2] = sum + three;
        x[i + 3] = sum += four;
    }
    for (; i < n; i++) x[i] = sum += x[i];
}

static void sum_row(const scan *c, void *values, const void *with) {
    double *x = values, sum = 0;
    int64_t *k = values, count = 0;
    (void)with;
    if (c->opmath == AC_OPMATH_F64 && c->r->in[0]->dtype != AC_float64) sum_by_fours(c->n, x);
    else if (c->opmath == AC_OPMATH_F64)
        for (int64_t i = 0; i < c->n; i++) x[i] = sum += x[i];
    else
        for (int64_t i = 0; i < c->n; i++) k[i] = count = (int64_t)((uint64_t)count + (uint64_t)k[i]);
}

static void product_row(const scan *c, void *values, const void *with) {
    double *x = values, product = 1;
    int64_t *k = values, count = 1;
    (void)with;
    if (c->opmath == AC_OPMATH_F64)
        for (int64_t i = 0; i < c->n; i++) x[i] = product *= x[i];
    else
        for (int64_t i = 0; i < c->n; i++) k[i] = count = (int64_t)((uint64_t)count * (uint64_t)k[i]);
}

static void log_sum_row(const scan *c, void *values, const void *with) {
    double *x = values, sum = -INFINITY;
    (void)with;
    for (int64_t i = 0; i < c->n; i++) {
        double high = sum > x[i] ? sum : x[i], low = sum > x[i] ? x[i] : sum;
        x[i] = sum = isinf(high) && high == low   ? high
                     : x[i] != x[i] || sum != sum ? x[i] + sum
                                                  : high + log1p(exp(low - high));
    }
}

static void linear_row(const scan *c, void *values, const void *with) {
    double *x = values;
    const double *decay = with;
    if (c->reverse)
        for (int64_t i = c->n - 2; i >= 0; i--) x[i] += decay[i + 1] * x[i + 1];
    else
        for (int64_t i = 1; i < c->n; i++) x[i] += decay[i] * x[i - 1];
}

int ac_cpu_cumsum(const ac_run *r) {
    ATTRS(cumulative);
    scan c = {.r = r, .row = sum_row};
    return run_scan(&c, a->dim);
}
int ac_cpu_cumprod(const ac_run *r) {
    ATTRS(cumulative);
    scan c = {.r = r, .row = product_row};
    return run_scan(&c, a->dim);
}
int ac_cpu_logcumsumexp(const ac_run *r) {
    ATTRS(one_dim);
    scan c = {.r = r, .row = log_sum_row};
    return run_scan(&c, a->dim);
}
int ac_cpu_linear_scan(const ac_run *r) {
    ATTRS(linear_scan);
    scan c = {.r = r, .row = linear_row, .reverse = a->reverse != 0};
    return run_scan(&c, a->dim);
}

/* -- extremes so far, and where: the last of equal ones; a nan stays --------------------------------------- */

typedef struct {
    const ac_run *r;
    int64_t dim, n, sign;
    ac_space from, to;
} extremes;

static void extreme_rows(void *context, int64_t begin, int64_t end) {
    const extremes *c = context;
    const ac_tensor *x = c->r->in[0];
    ac_tensor *values = c->r->out[0], *indices = c->r->out[1];
    bool real = ac_is_floating(x->dtype);
    for (int64_t row = begin; row < end; row++) {
        int64_t from = ac_space_offset(&c->from, row), to = ac_space_offset(&c->to, row), best = 0, at = 0;
        double top = 0;
        for (int64_t i = 0; i < c->n && !ac_stop_at(i); i++) {
            int64_t here = from + i * row_stride(x, c->dim), offset = to + i * row_stride(values, c->dim);
            double v = real ? ac_read_double(ac_data(x), x->dtype, here) : 0;
            int64_t k = real ? 0 : ac_read_int(ac_data(x), x->dtype, here);
            bool better = real          ? v != v || (double)c->sign * v >= (double)c->sign * top
                          : c->sign > 0 ? k >= best
                                        : k <= best;
            if (i == 0 || better) top = v, best = k, at = i;
            if (real) ac_write_double(ac_data(values), values->dtype, offset, top);
            else ac_write_int(ac_data(values), values->dtype, offset, best);
            ((int64_t *)ac_data(indices))[offset] = at;
        }
    }
}

static int run_extremes(const ac_run *r, int64_t sign) {
    ATTRS(one_dim);
    const ac_tensor *x = r->in[0];
    int64_t dim = a->dim;
    AC_TRY(ac_dim_wrap(&dim, x->ndim, ac_ops[r->op].shown));
    uint32_t kept = x->ndim ? ~(1u << dim) : 0;
    extremes c = {r, dim, x->ndim ? x->shape[dim] : 1, sign, ac_space_of(x, kept), ac_space_of(r->out[0], kept)};
    ac_for_range(c.n ? x->numel / c.n : 0, AC_GRAIN_SLOW / (c.n + 1), extreme_rows, &c);
    return 0;
}

int ac_cpu_cummax(const ac_run *r) { return run_extremes(r, 1); }
int ac_cpu_cummin(const ac_run *r) { return run_extremes(r, -1); }

/* -- flip: a copy from a view whose strides are negative ----------------------------------------------------- */

int ac_cpu_flip(const ac_run *r) {
    ac_tensor from = ac_flipped(r->in[0], &((const ac_attrs_dims *)r->attrs)->dims);
    ac_cpu_copy_into(r->out[0], &from);
    return 0;
}
