/* Composite operators by the order of values: the k-th, medians, the most frequent, counts; and elements by their
 * index. */
#include "dispatch/compose_read.h"

#include "autograd/node.h"

#include <math.h>

/* -- in order --------------------------------------------------------------------------------------- */

COMPOSE(argsort) {
    T out[AC_MAX_OUT] = {NULL};
    return ac_c_call_many(s, AC_OP_sort, attrs, in, 1, out) < 0 ? NULL : out[1];
}

COMPOSE(msort) {
    ac_attrs_sort first = {0, 0, 1};
    return ac_c_call(s, AC_OP_sort, &first, 1, in[0]);
}

COMPOSE(argwhere) { return UN(nonzero, in[0]); }

/* -- one value along a dimension, and where it is --------------------------------------------------- */

/* The number of values along dim, which is wrapped; of a 0-d tensor 1. There must be some: 0 is an error. */
static int64_t values_along(ac_scratch *s, T x, int64_t *dim, const char *what) {
    int failed = ac_dim_wrap(dim, x->ndim, what);
    int64_t n = failed ? 0 : x->ndim ? x->shape[*dim] : 1;
    if (!failed && n == 0)
        failed = ac_fail(AC_INDEX, "%s: dimension %" PRId64 " has no elements to choose from", what, *dim);
    if (failed) (void)ac_c_refuse(s, failed);
    return n;
}

/* What lies at index `at`, which keeps dim, of sorted values and of where they were. */
static T picked(ac_scratch *s, T const *sorted, T at, int64_t dim, bool keepdim) {
    ac_attrs_index_dim along = {dim};
    T value = ac_c_call(s, AC_OP_gather, &along, 2, sorted[0], at);
    T index = ac_c_call(s, AC_OP_gather, &along, 2, sorted[1], at);
    s->also[1] = keepdim ? index : ac_c_squeeze(s, index, dim);
    return keepdim ? value : ac_c_squeeze(s, value, dim);
}

/* The value and place of what is alone. */
static T alone(ac_scratch *s, T x) {
    s->also[1] = ac_c_full(s, &(ac_dims){0}, 0, AC_int64, ac_device_of(x));
    return s->also[1] ? UN(clone, x) : NULL;
}

/* `value` at every place of x, of which dim has but one. */
static T index_of(ac_scratch *s, T x, int64_t dim, int64_t value) {
    ac_dims shape = ac_shape_of(x);
    shape.v[dim] = 1;
    return ac_c_full(s, &shape, (double)value, AC_int64, ac_device_of(x));
}

static int sorted_along(ac_scratch *s, T x, int64_t dim, T *sorted) {
    ac_attrs_sort how = {dim, 0, 1};
    return ac_c_call_many(s, AC_OP_sort, &how, &x, 1, sorted);
}

static T count_along(ac_scratch *s, T truth, int64_t dim) {
    ac_attrs_reduce keeping = {{1, {dim}}, 1, AC_NO_DTYPE};
    return ac_c_call(s, AC_OP_sum, &keeping, 1, truth);
}

COMPOSE(kthvalue) {
    ATTRS(kthvalue);
    T sorted[AC_MAX_OUT] = {NULL};
    int64_t dim = a->dim, n = values_along(s, in[0], &dim, "kthvalue");
    if (!n) return NULL;
    if (a->k < 1 || a->k > n) REFUSE(AC_RUNTIME, "kthvalue: `k` must be from 1 to %" PRId64 ", got %" PRId64, n, a->k);
    if (in[0]->ndim == 0) return alone(s, in[0]);
    if (sorted_along(s, in[0], dim, sorted) < 0) return NULL;
    return picked(s, sorted, index_of(s, in[0], dim, a->k - 1), dim, a->keepdim);
}

/* nans sort last: the first of them is the median where there are any */
COMPOSE(median_dim) {
    ATTRS(dim);
    T x = in[0], sorted[AC_MAX_OUT] = {NULL};
    int64_t dim = a->dim, n = values_along(s, x, &dim, "median");
    if (!n) return NULL;
    if (x->ndim == 0) return alone(s, x);
    if (sorted_along(s, x, dim, sorted) < 0) return NULL;
    T middle = index_of(s, x, dim, (n - 1) / 2);
    if (ac_is_floating(x->dtype)) {
        T nans = count_along(s, UN(isnan, x), dim);
        middle = WHERE(BIN(gt, nans, NUM(0)), SUB(NUM((double)n), nans), middle);
    }
    return picked(s, sorted, middle, dim, a->keepdim);
}

COMPOSE(nanmedian_dim) {
    ATTRS(dim);
    T x = in[0], sorted[AC_MAX_OUT] = {NULL};
    int64_t dim = a->dim;
    if (!values_along(s, x, &dim, "nanmedian")) return NULL;
    if (x->ndim == 0) return alone(s, x);
    if (sorted_along(s, x, dim, sorted) < 0) return NULL;
    T last = ac_c_clamp_min(s, SUB(count_along(s, UN(logical_not, UN(isnan, x)), dim), NUM(1)), 0);
    return picked(s, sorted, ac_c_cast(s, BIN(floor_divide, last, NUM(2)), AC_int64), dim, a->keepdim);
}

/* The median of all values. Its gradient goes to all that are equal, in equal parts, as torch's does. */
static T median_of_all(ac_scratch *s, T x, ac_op along) {
    ac_attrs_dim first = {0, 0};
    T all = ac_c_flat(s, x);
    if (!all) return NULL;
    if (all->numel == 0) return ac_c_full(s, &(ac_dims){0}, NAN, x->dtype, ac_device_of(x));
    T value = ac_c_call(s, along, &first, 1, all);
    if (!value || !ac_requires_grad(value)) return value;
    ac_attrs_reduce_dim every = {{.n = -1}, 0};
    ac_attrs_reduce mean = {{.n = -1}, 0, AC_NO_DTYPE};
    if (ac_c_read(s, UN(isnan, value)) != 0)
        return ac_c_call(s, AC_OP_mean, &mean, 1, BIN(masked_select, all, UN(isnan, all)));
    return ac_c_call(s, AC_OP_amax, &every, 1, BIN(masked_select, all, BIN(eq, all, value)));
}

COMPOSE(median) { return median_of_all(s, in[0], AC_OP_median_dim); }
COMPOSE(nanmedian) { return median_of_all(s, in[0], AC_OP_nanmedian_dim); }

/* The longest run of equal values in order; where it ends is how often it was met. */
COMPOSE(mode) {
    ATTRS(dim);
    T x = in[0], sorted[AC_MAX_OUT] = {NULL}, running[AC_MAX_OUT] = {NULL};
    int64_t dim = a->dim, n = values_along(s, x, &dim, "mode");
    if (!n) return NULL;
    if (x->ndim == 0) return alone(s, x);
    if (sorted_along(s, x, dim, sorted) < 0) return NULL;
    ac_dims line = {.n = x->ndim}, shape = ac_shape_of(x);
    for (int d = 0; d < x->ndim; d++) line.v[d] = d == dim ? n : 1;
    ac_attrs_roll on = {{1, {1}}, {1, {dim}}};
    ac_attrs_one_dim along = {dim};
    ac_attrs_maybe_dim best = {dim, 1};
    T index = ac_c_expand(s, ac_c_reshape(s, ac_c_arange(s, n, ac_device_of(x)), &line), &shape);
    T fresh = BIN(logical_or, BIN(ne, sorted[0], ac_c_call(s, AC_OP_roll, &on, 1, sorted[0])), BIN(eq, index, NUM(0)));
    T start = WHERE(fresh, index, NUM(0));
    if (ac_c_call_many(s, AC_OP_cummax, &along, &start, 1, running) < 0) return NULL;
    return picked(s, sorted, ac_c_call(s, AC_OP_argmax, &best, 1, SUB(index, running[0])), dim, a->keepdim);
}

/* -- quantiles -------------------------------------------------------------------------------------- */

enum { LINEAR, LOWER, HIGHER, NEAREST, MIDPOINT };

/* The parts asked for as a tensor of x's dtype. */
static T parts_of(ac_scratch *s, const char *what, T x, T q) {
    if (x->dtype != AC_float32 && x->dtype != AC_float64)
        REFUSE(AC_RUNTIME, "%s: expected float32 or float64, got %s", what, ac_dtypes[x->dtype].name);
    T part = q->is_scalar ? ac_c_as_tensor(s, q, x->dtype, ac_device_of(x)) : q;
    if (!part) return NULL;
    if (part->ndim > 1 || part->dtype != x->dtype)
        REFUSE(AC_RUNTIME, "%s: `q` must be a number or a vector of %s, got %d dimensions of %s", what,
               ac_dtypes[x->dtype].name, part->ndim, ac_dtypes[part->dtype].name);
    T inside = BIN(logical_and, BIN(ge, part, NUM(0)), BIN(le, part, NUM(1)));
    if (ac_c_any(s, UN(logical_not, inside))) REFUSE(AC_RUNTIME, "%s: `q` must lie in [0, 1]", what);
    return part;
}

/* What lies at positions between the values of rows in order: at the one below, above, near, or in between. */
static T between(ac_scratch *s, T values, T at, int64_t interpolation) {
    ac_attrs_index_dim last = {-1};
    if (!at) return NULL;
    T low = interpolation == HIGHER ? UN(ceil, at) : interpolation == NEAREST ? UN(round, at) : UN(floor, at);
    T below = ac_c_call(s, AC_OP_gather, &last, 2, values, ac_c_cast(s, low, AC_int64));
    if (interpolation != LINEAR && interpolation != MIDPOINT) return below;
    T above = ac_c_call(s, AC_OP_gather, &last, 2, values, ac_c_cast(s, UN(ceil, at), AC_int64));
    T weight = interpolation == LINEAR ? SUB(at, low) : TIMES(ac_c_cast(s, BIN(ne, at, low), at->dtype), 0.5);
    return ac_c_call(s, AC_OP_lerp, NULL, 3, below, above, weight);
}

static T quantiles(ac_scratch *s, const char *what, T x, T q, const ac_attrs_quantile *a, bool ignore_nan) {
    T part = parts_of(s, what, x, q), sorted[AC_MAX_OUT] = {NULL};
    int64_t dim = a->dim == AC_ABSENT ? 0 : a->dim;
    NEED(ac_dim_wrap(&dim, x->ndim, what));
    bool whole = a->dim == AC_ABSENT || x->ndim == 0;
    ac_dims flat = {2, {1, x->numel}}, shape = {.n = 0};
    ac_attrs_movedim to_end = {{1, {dim}}, {1, {-1}}}, to_front = {{1, {-1}}, {1, {0}}};
    T rows = whole ? ac_c_reshape(s, x, &flat) : ac_c_call(s, AC_OP_movedim, &to_end, 1, x);
    if (!rows || !part) return NULL;
    int64_t n = rows->shape[rows->ndim - 1];
    if (n == 0) REFUSE(AC_RUNTIME, "%s: needs at least one element", what);
    if (sorted_along(s, rows, -1, sorted) < 0) return NULL;
    T nans = count_along(s, UN(isnan, rows), -1);
    T count = SUB(NUM((double)n), ignore_nan ? nans : TIMES(nans, 0));
    T steps = ac_c_cast(s, BIN(maximum, SUB(count, NUM(1)), NUM(0)), x->dtype);
    T at = MUL(ac_c_flat(s, part), steps);
    if (!ignore_nan) at = WHERE(BIN(gt, nans, NUM(0)), ac_c_real(s, (double)(n - 1)), at); /* nan stands last */
    T y = ac_c_call(s, AC_OP_movedim, &to_front, 1, between(s, sorted[0], at, a->interpolation));
    if (!y) return NULL;
    if (part->ndim) shape.v[shape.n++] = y->shape[0];
    for (int d = 0; d < x->ndim; d++) {
        bool gone = whole || d == dim;
        if (!gone || a->keepdim) shape.v[shape.n++] = gone ? 1 : x->shape[d];
    }
    return ac_c_reshape(s, y, &shape);
}

COMPOSE(quantile) { return quantiles(s, "quantile", in[0], in[1], attrs, false); }
COMPOSE(nanquantile) { return quantiles(s, "nanquantile", in[0], in[1], attrs, true); }

/* -- extremes and counts ---------------------------------------------------------------------------- */

COMPOSE(aminmax) {
    ATTRS(maybe_dim);
    ac_attrs_reduce_dim over = {{.n = -1}, a->keepdim};
    if (a->dim != AC_ABSENT) over.dim = (ac_dims){1, {a->dim}};
    s->also[1] = ac_c_call(s, AC_OP_amax, &over, 1, in[0]);
    return s->also[1] ? ac_c_call(s, AC_OP_amin, &over, 1, in[0]) : NULL;
}

COMPOSE(count_nonzero) {
    ATTRS(maybe_dims);
    ac_attrs_reduce over = {a->dim, 0, AC_NO_DTYPE};
    return ac_c_call(s, AC_OP_sum, &over, 1, BIN(ne, in[0], NUM(0)));
}

COMPOSE(bincount) {
    ATTRS(bincount);
    T x = in[0], weights = in[1];
    int64_t size = a->minlength;
    ac_attrs_reduce_dim all = {{.n = -1}, 0};
    ac_attrs_index_dim first = {0};
    if (x->ndim != 1 || ac_is_floating(x->dtype) || x->dtype == AC_bool)
        REFUSE(AC_RUNTIME, "bincount: expected a vector of integers, got %d dimensions of %s", x->ndim,
               ac_dtypes[x->dtype].name);
    if (size < 0) REFUSE(AC_RUNTIME, "bincount: `minlength` must be 0 or more, got %" PRId64, size);
    if (weights && !ac_same_shape(weights, x))
        REFUSE(AC_RUNTIME, "bincount: `weights` must have the shape of the values, [%" PRId64 "]", x->numel);
    if (x->numel) {
        double low = ac_c_read(s, ac_c_call(s, AC_OP_amin, &all, 1, x));
        double high = ac_c_read(s, ac_c_call(s, AC_OP_amax, &all, 1, x));
        if (low < 0) REFUSE(AC_RUNTIME, "bincount: values must be 0 or more, got %g", low);
        if (high + 1 > (double)size) size = (int64_t)high + 1;
    }
    ac_dtype dtype = !weights ? AC_int64 : weights->dtype == AC_float32 ? AC_float32 : AC_float64;
    ac_dims one = {1, {x->numel}}, bins = {1, {size}};
    T each = weights ? ac_c_cast(s, weights, dtype) : ac_c_full(s, &one, 1, dtype, ac_device_of(x));
    T none = ac_c_full(s, &bins, 0, dtype, ac_device_of(x));
    return ac_c_call(s, AC_OP_scatter_add, &first, 3, none, ac_c_cast(s, x, AC_int64), each);
}

COMPOSE(nonzero_static) {
    ATTRS(nonzero_static);
    T rows = UN(nonzero, in[0]);
    if (a->size < 0) REFUSE(AC_RUNTIME, "nonzero_static: `size` must be 0 or more, got %" PRId64, a->size);
    if (!rows) return NULL;
    int64_t found = rows->shape[0] < a->size ? rows->shape[0] : a->size;
    ac_dims rest = {2, {a->size - found, in[0]->ndim}};
    ac_attrs_one_dim first = {0};
    T fill = ac_c_full(s, &rest, (double)a->fill_value, AC_int64, ac_device_of(in[0]));
    return ac_c_call(s, AC_OP_cat, &first, 2, ac_c_slice(s, rows, 0, 0, found), fill);
}

/* -- elements by their index ------------------------------------------------------------------------ */

COMPOSE(take) {
    if (in[1]->dtype != AC_int64)
        REFUSE(AC_RUNTIME, "take: `index` must be int64, got %s; convert it with .long()",
               ac_dtypes[in[1]->dtype].name);
    return BIN(index, ac_c_flat(s, in[0]), in[1]);
}

COMPOSE(put) {
    ATTRS(accumulate);
    ac_attrs_index_put how = {.accumulate = a->accumulate};
    ac_dims shape = ac_shape_of(in[0]);
    if (in[1]->numel != in[2]->numel)
        REFUSE(AC_INDEX, "put: %" PRId64 " indices for %" PRId64 " values", in[1]->numel, in[2]->numel);
    if (in[1]->dtype != AC_int64 || in[2]->dtype != in[0]->dtype)
        REFUSE(AC_RUNTIME, "put: needs int64 as `index` and a source of %s, got %s and %s",
               ac_dtypes[in[0]->dtype].name, ac_dtypes[in[1]->dtype].name, ac_dtypes[in[2]->dtype].name);
    T y = ac_c_call(s, AC_OP_index_put, &how, 3, ac_c_flat(s, in[0]), ac_c_flat(s, in[1]), ac_c_flat(s, in[2]));
    return ac_c_reshape(s, y, &shape);
}

COMPOSE(take_along_dim) {
    ATTRS(maybe_one_dim);
    ac_attrs_index_dim along = {a->dim};
    if (a->dim == AC_ABSENT) {
        along.dim = 0;
        return ac_c_call(s, AC_OP_gather, &along, 2, ac_c_flat(s, in[0]), ac_c_flat(s, in[1]));
    }
    NEED(ac_dim_wrap(&along.dim, in[0]->ndim, "take_along_dim"));
    ac_dims shape = ac_shape_of(in[0]), index = ac_shape_of(in[1]);
    if (index.n != shape.n)
        REFUSE(AC_RUNTIME, "take_along_dim: `indices` must have %" PRId64 " dimensions, got %" PRId64, shape.n,
               index.n);
    for (int64_t d = 0; d < shape.n; d++) {
        if (d == along.dim) continue;
        if (index.v[d] == 1) index.v[d] = shape.v[d];
        else if (shape.v[d] == 1) shape.v[d] = index.v[d];
        if (index.v[d] != shape.v[d])
            REFUSE(AC_RUNTIME,
                   "take_along_dim: in dimension %" PRId64 " `indices` must have the size of the tensor, %" PRId64
                   ", or 1, got %" PRId64 "; gather takes fewer",
                   d, shape.v[d], index.v[d]);
    }
    if (in[1]->dtype == AC_bool) REFUSE(AC_RUNTIME, "take_along_dim: `indices` must be integers, got bool");
    double size = (double)shape.v[along.dim];
    T from_end = BIN(logical_and, BIN(lt, in[1], NUM(0)), BIN(ge, in[1], NUM(-size)));
    T counted = WHERE(from_end, PLUS(in[1], size), in[1]); /* what is out of range stays as it was given */
    return ac_c_call(s, AC_OP_gather, &along, 2, ac_c_expand(s, in[0], &shape), ac_c_expand(s, counted, &index));
}

/* -- views in memory of their own: the table's `memory` makes the copy ------------------------------ */

#define COPY_OF(view)                                                                                                  \
    COMPOSE(view##_copy) { return ac_c_call(s, AC_OP_##view, attrs, 1, in[0]); }
COPY_OF(alias)
COMPOSE(detach_copy) { return UN(clone, ac_c_detach(s, in[0])); }
COPY_OF(as_strided)
COPY_OF(diagonal)
COPY_OF(expand)
COPY_OF(narrow)
COPY_OF(permute)
COPY_OF(select)
COPY_OF(slice)
COPY_OF(squeeze)
COPY_OF(t)
COPY_OF(transpose)
COPY_OF(unfold)
COPY_OF(unsqueeze)
