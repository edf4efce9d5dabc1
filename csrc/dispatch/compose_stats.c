/* Composite statistics: sums without nan, variances with means, differences and integrals, covariance. */
#include "dispatch/compose_read.h"

/* -- sums ------------------------------------------------------------------------------------------- */

static T sum_without_nan(ac_scratch *s, T x, const ac_attrs_reduce *a) {
    T plain = ac_is_floating(x->dtype) ? WHERE(UN(isnan, x), ac_c_real(s, 0), x) : x;
    return ac_c_call(s, AC_OP_sum, a, 1, plain);
}

COMPOSE(nansum) { return sum_without_nan(s, in[0], attrs); }

COMPOSE(nanmean) {
    ATTRS(reduce);
    ac_attrs_reduce count = {a->dim, a->keepdim, AC_NO_DTYPE};
    if (!ac_is_floating(in[0]->dtype))
        REFUSE(AC_RUNTIME, "nanmean: needs a floating point dtype, got %s; convert it with .float()",
               ac_dtypes[in[0]->dtype].name);
    T there = ac_c_call(s, AC_OP_sum, &count, 1, UN(logical_not, UN(isnan, in[0])));
    return DIV(sum_without_nan(s, in[0], a), there);
}

COMPOSE(trace) {
    ac_attrs_diagonal main = {0, 0, 1};
    if (in[0]->ndim != 2) REFUSE(AC_RUNTIME, "trace: expected a matrix, got %d dimensions", in[0]->ndim);
    return ac_c_sum_all(s, ac_c_call(s, AC_OP_diagonal, &main, 1, in[0]));
}

COMPOSE(frobenius_norm) {
    ATTRS(reduce_dim);
    ac_attrs_norm two = {{AC_INT, {2}}, a->dim, a->keepdim, AC_NO_DTYPE};
    return ac_c_call(s, AC_OP_norm, &two, 1, in[0]);
}

/* -- variances with means --------------------------------------------------------------------------- */

static T with_mean(ac_scratch *s, ac_op spread, T x, const ac_attrs_var *a) {
    s->also[1] = ac_c_mean(s, x, &a->dim, a->keepdim);
    return s->also[1] ? ac_c_call(s, spread, a, 1, x) : NULL;
}

static T with_mean_unbiased(ac_scratch *s, ac_op spread, T x, const ac_attrs_unbiased *a) {
    ac_attrs_var how = {a->dim, {AC_INT, {a->unbiased}}, a->keepdim};
    return with_mean(s, spread, x, &how);
}

static T with_mean_all(ac_scratch *s, ac_op spread, T x, const ac_attrs_all_unbiased *a) {
    ac_attrs_var how = {{.n = -1}, {AC_INT, {a->unbiased}}, 0};
    return with_mean(s, spread, x, &how);
}

COMPOSE(var_mean) { return with_mean(s, AC_OP_var, in[0], attrs); }
COMPOSE(std_mean) { return with_mean(s, AC_OP_std, in[0], attrs); }
COMPOSE(var_mean_unbiased) { return with_mean_unbiased(s, AC_OP_var, in[0], attrs); }
COMPOSE(std_mean_unbiased) { return with_mean_unbiased(s, AC_OP_std, in[0], attrs); }
COMPOSE(var_mean_all) { return with_mean_all(s, AC_OP_var, in[0], attrs); }
COMPOSE(std_mean_all) { return with_mean_all(s, AC_OP_std, in[0], attrs); }

/* -- neighbours ------------------------------------------------------------------------------------- */

/* Differences of neighbours along dim, of truth values whether they differ. */
static T differences(ac_scratch *s, T x, int64_t dim) {
    int64_t n = x->shape[dim];
    T later = ac_c_slice(s, x, dim, n > 0, n), earlier = ac_c_slice(s, x, dim, 0, n > 0 ? n - 1 : 0);
    return x->dtype == AC_bool ? BIN(logical_xor, later, earlier) : SUB(later, earlier);
}

COMPOSE(diff) {
    ATTRS(diff);
    T parts[3], x = in[0], out[AC_MAX_OUT] = {NULL};
    int64_t dim = a->dim;
    int n_parts = 0;
    if (x->ndim == 0) REFUSE(AC_RUNTIME, "diff: a 0-d tensor has no neighbours");
    NEED(ac_dim_wrap(&dim, x->ndim, "diff"));
    if (a->n < 0) REFUSE(AC_RUNTIME, "diff: `n` must be 0 or more, got %" PRId64, a->n);
    if (a->n == 0) return x; /* not even joined */
    if (in[1]) parts[n_parts++] = in[1];
    parts[n_parts++] = x;
    if (in[2]) parts[n_parts++] = in[2];
    ac_attrs_one_dim along = {dim};
    if (n_parts > 1 && ac_c_call_many(s, AC_OP_cat, &along, parts, n_parts, out) < 0) return NULL;
    if (n_parts > 1) x = out[0];
    for (int64_t i = 0; i < a->n && x && x->shape[dim]; i++) x = differences(s, x, dim);
    return x;
}

/* Integers as int64, in which neighbours add up without wrapping; 16-bit types as float32. */
static T summable(ac_scratch *s, T x) { return ac_is_floating(x->dtype) ? ac_c_wide(s, x) : ac_c_cast(s, x, AC_int64); }

/* Rounded once, at the end, to what the inputs promote to. */
static T rounded(ac_scratch *s, T const *in, int n_in, T y) {
    ac_dtype dtype = ac_result_type(in, n_in);
    return ac_is_half(dtype) ? ac_c_cast(s, y, dtype) : y;
}

/* The integral of each step along dim, which is wrapped. */
static T trapezoids(ac_scratch *s, T const *in, const ac_attrs_trapezoid *a, int64_t *dim) {
    T y = in[0], x = in[1];
    *dim = a->dim;
    if (y->ndim == 0) REFUSE(AC_INDEX, "trapezoid: a 0-d tensor has no dimension to integrate along");
    NEED(ac_dim_wrap(dim, y->ndim, "trapezoid"));
    int64_t n = y->shape[*dim], along = a->dim;
    if (x && x->ndim == 1 && x->shape[0] != n)
        REFUSE(AC_RUNTIME, "trapezoid: %" PRId64 " positions `x` for %" PRId64 " values", x->shape[0], n);
    y = summable(s, y);
    T both = ADD(ac_c_slice(s, y, *dim, n > 0, n), ac_c_slice(s, y, *dim, 0, n > 0 ? n - 1 : 0));
    if (!x) return MUL(both, ac_c_constant(ac_c_real(s, a->dx / 2)));
    if (x->ndim == 0) REFUSE(AC_RUNTIME, "trapezoid: `x` must have a dimension");
    x = summable(s, x);
    if (x && x->ndim > 1) NEED(ac_dim_wrap(&along, x->ndim, "trapezoid"));
    T steps = x ? differences(s, x, x->ndim > 1 ? along : 0) : NULL;
    ac_dims shape = {.n = y ? y->ndim : 0};
    for (int64_t d = 0; d < shape.n; d++) shape.v[d] = d == *dim ? -1 : 1;
    if (steps && x->ndim == 1) steps = ac_c_reshape(s, steps, &shape);
    return DIV(MUL(both, steps), NUM(2));
}

COMPOSE(trapezoid) {
    int64_t dim;
    T each = trapezoids(s, in, attrs, &dim);
    return each ? rounded(s, in, 2, ac_c_sum(s, each, dim)) : NULL;
}

COMPOSE(cumulative_trapezoid) {
    int64_t dim;
    T each = trapezoids(s, in, attrs, &dim);
    ac_attrs_cumulative along = {dim, AC_NO_DTYPE};
    return each ? rounded(s, in, 2, ac_c_call(s, AC_OP_cumsum, &along, 1, each)) : NULL;
}

/* -- covariance ------------------------------------------------------------------------------------- */

/* Weights of n observations: whole numbers, or floating point ones. */
static int check_weights(ac_scratch *s, T w, int64_t n, bool whole) {
    const char *name = whole ? "fweights" : "aweights";
    char shape[AC_SHAPE_TEXT];
    if (!w) return 0;
    if (w->ndim > 1 || w->numel != n)
        return ac_fail(AC_RUNTIME, "cov: `%s` must be a vector of %" PRId64 ", one for each observation, got shape %s",
                       name, n, ac_shape_text(w, shape));
    if (w->dtype == AC_bool || ac_is_floating(w->dtype) == whole)
        return ac_fail(AC_RUNTIME, "cov: `%s` must be %s, got %s", name, whole ? "integers" : "floating point",
                       ac_dtypes[w->dtype].name);
    if (ac_c_any(s, BIN(lt, w, NUM(0)))) return ac_fail(AC_RUNTIME, "cov: `%s` must not be negative", name);
    return s->failed ? -1 : 0;
}

static T weighted(ac_scratch *s, T x, T w) { return w ? MUL(x, w) : x; }

/* In torch's words, by which scripts filter it. */
static const char few_observations[] =
    "cov(): degrees of freedom is <= 0. The weights of the observations, or their number, are no more than the "
    "correction, so the result is nan or infinite; give a smaller `correction`";

COMPOSE(cov) {
    ATTRS(correction);
    ac_dims row = {2, {1, in[0]->numel}};
    ac_attrs_reduce rows = {{1, {1}}, 1, AC_NO_DTYPE};
    if (in[0]->ndim > 2) REFUSE(AC_RUNTIME, "cov: expected at most 2 dimensions, got %d", in[0]->ndim);
    if (in[0]->dtype == AC_bool) REFUSE(AC_RUNTIME, "cov: bool has no covariance; convert with .long()");
    T x = in[0]->ndim < 2 ? ac_c_reshape(s, in[0], &row) : in[0], often = in[1], much = in[2];
    x = x ? ac_c_wide(s, x) : NULL;
    if (!x) return NULL;
    NEED(check_weights(s, often, x->shape[1], true));
    NEED(check_weights(s, much, x->shape[1], false));
    much = much ? ac_c_wide(s, much) : NULL;
    T w = often && much ? MUL(often, much) : often ? often : much;
    T total = w ? ac_c_sum_all(s, w) : NUM((double)x->shape[1]);
    if (w && ac_c_read(s, total) == 0) REFUSE(AC_RUNTIME, "cov: the weights sum to zero");
    x = SUB(x, DIV(ac_c_call(s, AC_OP_sum, &rows, 1, weighted(s, x, w)), total));
    T taken = NUM((double)a->correction);
    if (much && a->correction != 0) taken = DIV(MUL(taken, ac_c_sum_all(s, MUL(w, much))), total);
    T left = SUB(total, taken), room = ac_c_clamp_min(s, left, 0),
      product = ac_c_product(s, x, ac_c_transpose(s, weighted(s, x, w), 0, 1));
    ac_attrs_maybe_dims every = {{.n = -1}};
    if (product && room && ac_warn && ac_c_read(s, left) <= 0) NEED(ac_warn(few_observations));
    return rounded(s, in, 3, ac_c_call(s, AC_OP_squeeze, &every, 1, DIV(product, room)));
}

COMPOSE(corrcoef) {
    ac_attrs_correction one = {1};
    ac_attrs_diagonal main = {0, 0, 1};
    T c = ac_c_call(s, AC_OP_cov, &one, 3, in[0], ABSENT, ABSENT);
    if (!c || c->ndim == 0) return DIV(c, c);
    T root = UN(sqrt, ac_c_call(s, AC_OP_diagonal, &main, 1, c));
    return ac_c_clamp(s, DIV(DIV(c, ac_c_unsqueeze(s, root, 1)), root), -1, 1);
}

/* -- gradients -------------------------------------------------------------------------------------- */

/* Neighbours along a dimension of x, which has n values there. */
typedef struct {
    T x;
    int64_t dim, n;
} line;

static T from(ac_scratch *s, const line *l, int64_t start, int64_t n) {
    return ac_c_slice(s, l->x, l->dim, start, start + n);
}

/* p x + q y + r z */
static T blended(ac_scratch *s, T p, T x, T q, T y, T r, T z) { return ADD(ADD(MUL(p, x), MUL(q, y)), MUL(r, z)); }

static T constant(ac_scratch *s, double x) { return ac_c_constant(NUM(x)); }

static T by_step(ac_scratch *s, const line *l, double h, int order, T *begin, T *end) {
    T first = from(s, l, 0, 1), second = from(s, l, 1, 1), last = from(s, l, l->n - 1, 1);
    T before = from(s, l, l->n - 2, 1);
    if (order == 1) *begin = DIV(SUB(second, first), constant(s, h)), *end = DIV(SUB(last, before), constant(s, h));
    else {
        T third = from(s, l, 2, 1), earlier = from(s, l, l->n - 3, 1);
        *begin =
            DIV(blended(s, constant(s, -1.5), first, constant(s, 2), second, constant(s, -0.5), third), constant(s, h));
        *end =
            DIV(blended(s, constant(s, 1.5), last, constant(s, -2), before, constant(s, 0.5), earlier), constant(s, h));
    }
    if (l->n < 3) return from(s, l, 0, 0);
    return DIV(SUB(from(s, l, 2, l->n - 2), from(s, l, 0, l->n - 2)), constant(s, 2 * h));
}

/* The slope of the parabola through three neighbours p and q apart, at the first of them. */
static T outer_slope(ac_scratch *s, T p, T q, T x, T y, T z) {
    T both = ADD(p, q);
    T one = UN(neg, DIV(ADD(TIMES(p, 2), q), MUL(p, both))), three = UN(neg, DIV(p, MUL(q, both)));
    return blended(s, one, x, DIV(both, MUL(p, q)), y, three, z);
}

static T by_coordinates(ac_scratch *s, const line *l, T where, int order, T *begin, T *end) {
    ac_attrs_diff once = {1, 0};
    ac_dims shape = {.n = l->x->ndim};
    int64_t n = l->n, dim = l->dim;
    for (int d = 0; d < l->x->ndim; d++) shape.v[d] = d == dim ? n - 1 : 1;
    T steps = ac_c_reshape(s, ac_c_call(s, AC_OP_diff, &once, 3, where, ABSENT, ABSENT), &shape);
    line gaps = {steps, dim, n - 1};
    T p = from(s, &gaps, 0, n - 2), q = from(s, &gaps, 1, n - 2), both = ADD(p, q);
    T first = from(s, l, 0, 1), second = from(s, l, 1, 1), last = from(s, l, n - 1, 1), before = from(s, l, n - 2, 1);
    T one = from(s, &gaps, 0, 1), other = from(s, &gaps, n - 2, 1);
    if (order == 1) *begin = DIV(SUB(second, first), one), *end = DIV(SUB(last, before), other);
    else {
        *begin = outer_slope(s, one, from(s, &gaps, 1, 1), first, second, from(s, l, 2, 1));
        *end = UN(neg, outer_slope(s, other, from(s, &gaps, n - 3, 1), last, before, from(s, l, n - 3, 1)));
    }
    return blended(s, UN(neg, DIV(q, MUL(p, both))), from(s, l, 0, n - 2), DIV(SUB(q, p), MUL(p, q)),
                   from(s, l, 1, n - 2), DIV(p, MUL(q, both)), from(s, l, 2, n - 2));
}

COMPOSE(gradient) {
    ATTRS(gradient);
    int64_t dim = a->dim;
    int order = (int)a->edge_order;
    T x = in[0], where = in[1], ends[2] = {NULL};
    NEED(ac_dim_wrap(&dim, x->ndim, "gradient"));
    if (order != 1 && order != 2) REFUSE(AC_RUNTIME, "gradient: `edge_order` must be 1 or 2, got %d", order);
    int64_t n = x->ndim ? x->shape[dim] : 1;
    if (n < order + 1)
        REFUSE(AC_RUNTIME, "gradient: dimension %" PRId64 " needs at least %d values, got %" PRId64, dim, order + 1, n);
    if (where && (where->ndim != 1 || where->shape[0] != n))
        REFUSE(AC_RUNTIME, "gradient: the coordinates of dimension %" PRId64 " must be a vector of %" PRId64, dim, n);
    line along = {ac_c_wide(s, x), dim, n};
    if (!along.x) return NULL;
    T inner = where ? by_coordinates(s, &along, ac_c_wide(s, where), order, &ends[0], &ends[1])
                    : by_step(s, &along, a->step, order, &ends[0], &ends[1]);
    T parts[] = {ends[0], inner, ends[1]};
    T y = ac_c_cat(s, parts, 3, dim);
    ac_dtype dtype = ac_result_type(in, where ? 2 : 1);
    return ac_is_floating(dtype) ? ac_c_cast(s, y, dtype) : y;
}
