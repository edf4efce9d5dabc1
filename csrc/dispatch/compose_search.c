/* Composite operators that look values up: places in rows that are in order, membership, what weights draw,
 * histograms, unique values. */
#include "dispatch/compose_read.h"

#include <math.h>

/* -- places in rows that are in order ----------------------------------------------------------------- */

/* What a bisection has left of each search: [low, high). */
typedef struct {
    T low, high;
} range;

static range halved(ac_scratch *outer, T rows, T values, range r, bool right) {
    ac_scratch inner, *s = &inner;
    ac_attrs_index_dim last = {-1};
    ac_scratch_start(s);
    T open = BIN(lt, r.low, r.high), mid = BIN(floor_divide, ADD(r.low, r.high), NUM(2));
    T safe = BIN(minimum, mid, NUM((double)(rows->shape[rows->ndim - 1] - 1)));
    T there = rows->ndim == 1 ? ac_c_at(s, rows, safe) : ac_c_call(s, AC_OP_gather, &last, 2, rows, safe);
    T behind = right ? BIN(gt, there, values) : BIN(ge, there, values);
    T on = BIN(logical_and, UN(logical_not, behind), open); /* so nan goes behind all */
    T low = WHERE(on, PLUS(mid, 1), r.low);
    T high = WHERE(BIN(logical_and, open, UN(logical_not, on)), mid, r.high);
    range next = {ac_c_hand_up(outer, s, low), ac_c_hand_up(outer, s, high)};
    ac_scratch_release(s);
    return next;
}

static T searched(ac_scratch *s, T rows, T values, bool right, bool narrow) {
    ac_dims shape = ac_shape_of(values);
    int64_t n = rows->shape[rows->ndim - 1];
    ac_device device = ac_device_of(rows);
    range r = {ac_c_full(s, &shape, 0, AC_int64, device), ac_c_full(s, &shape, (double)n, AC_int64, device)};
    for (int64_t left = n; left > 0 && r.low && r.high; left /= 2) r = halved(s, rows, values, r, right);
    return narrow ? ac_c_cast(s, r.low, AC_int32) : r.low;
}

/* A number beside integers is compared as it is. Beside floating point it becomes an infinity where it is too large. */
static T number_beside(ac_scratch *s, T number, T rows) {
    if (!ac_is_floating(rows->dtype)) return ac_c_as_tensor(s, number, number->dtype, ac_device_of(rows));
    return ac_c_cast(s, ac_c_as_tensor(s, number, AC_float64, ac_device_of(rows)), rows->dtype);
}

COMPOSE(searchsorted) {
    ATTRS(searchsorted);
    enum { LEFT = 1, RIGHT };
    ac_attrs_index_dim last = {-1};
    T rows = in[0], sorter = in[2];
    if (a->side == LEFT && a->right)
        REFUSE(AC_RUNTIME, "searchsorted: side='left' and right=True contradict each other");
    if (rows->ndim == 0) REFUSE(AC_RUNTIME, "searchsorted: a 0-d tensor has no order to search");
    char one[AC_SHAPE_TEXT], other[AC_SHAPE_TEXT];
    if (sorter && !ac_same_shape(sorter, rows))
        REFUSE(AC_RUNTIME, "searchsorted: `sorter` has shape %s, the values %s", ac_shape_text(sorter, one),
               ac_shape_text(rows, other));
    T values = in[1]->is_scalar ? number_beside(s, in[1], rows) : in[1];
    if (sorter) rows = ac_c_call(s, AC_OP_gather, &last, 2, rows, sorter);
    if (!values || !rows) return NULL;
    bool fits = rows->ndim == 1 || rows->ndim == values->ndim;
    for (int d = 0; d < rows->ndim - 1 && fits; d++) fits = rows->shape[d] == values->shape[d];
    if (!fits)
        REFUSE(AC_RUNTIME, "searchsorted: rows %s and values %s must agree in all but the last dimension",
               ac_shape_text(rows, one), ac_shape_text(values, other));
    return searched(s, rows, values, a->right || a->side == RIGHT, a->out_int32);
}

COMPOSE(bucketize) {
    ATTRS(bucketize);
    T rows = in[1];
    if (rows->ndim != 1) REFUSE(AC_RUNTIME, "bucketize: `boundaries` must be a vector, got %d dimensions", rows->ndim);
    T values = in[0]->is_scalar ? number_beside(s, in[0], rows) : in[0];
    return values ? searched(s, rows, values, a->right, a->out_int32) : NULL;
}

COMPOSE(isin) {
    ATTRS(isin);
    ac_attrs_sort up = {-1, 0, 1};
    if (in[0]->is_scalar && in[1]->is_scalar) REFUSE(AC_TYPE, "isin: one of the two must be a Tensor, got two numbers");
    if (in[1]->is_scalar) return UN(contiguous, a->invert ? BIN(ne, in[0], in[1]) : BIN(eq, in[0], in[1]));
    ac_dtype common = ac_result_type(in, 2);
    T x = ac_c_as_tensor(s, in[0], common, ac_device_of(in[1])), known = ac_c_flat(s, ac_c_cast(s, in[1], common));
    if (ac_is_floating(common)) /* nan equals nothing, and does not tell where others would be */
        known = BIN(masked_select, known, BIN(eq, known, known));
    if (!known || !x) return NULL;
    ac_dims shape = ac_shape_of(x);
    if (known->numel == 0) return ac_c_full(s, &shape, a->invert ? 1 : 0, AC_bool, ac_device_of(known));
    T sorted = ac_c_call(s, AC_OP_sort, &up, 1, known);
    T at = sorted ? BIN(minimum, searched(s, sorted, x, false, false), NUM((double)(known->numel - 1))) : NULL;
    T found = UN(contiguous, BIN(eq, ac_c_at(s, sorted, at), x));
    return a->invert ? UN(logical_not, found) : found;
}

/* -- drawing by weights ------------------------------------------------------------------------------- */

/* 0 where every row of weights can be drawn from. A nan is the least and the largest of what holds it. */
static int check_weights(ac_scratch *s, T weights) {
    ac_attrs_reduce_dim all = {{.n = -1}, 0}, last = {{1, {1}}, 0};
    if (weights->shape[0] == 0) return 0;
    double low = ac_c_read(s, ac_c_call(s, AC_OP_amin, &all, 1, weights));
    double high = ac_c_read(s, ac_c_call(s, AC_OP_amax, &all, 1, weights));
    double least = ac_c_read(s, ac_c_call(s, AC_OP_amin, &all, 1, ac_c_call(s, AC_OP_amax, &last, 1, weights)));
    if (s->failed) return -1;
    if (low >= 0 && high < INFINITY && least > 0) return 0;
    return ac_fail(AC_RUNTIME, "multinomial: values must be finite, 0 or more, and not all 0 in a row");
}

static T uniform(ac_scratch *s, int64_t rows, int64_t columns, ac_device device) {
    ac_attrs_random a = {{2, {rows, columns}}, 0, 1, AC_float64, device};
    return ac_c_call(s, AC_OP_uniform, &a, 0);
}

/* Where in the running sums of a row a number below the last of them lies. For one number of a row that is how many
 * sums it has reached. */
static T drawn_again(ac_scratch *s, T weights, int64_t times) {
    ac_attrs_cumulative along = {1, AC_float64};
    ac_attrs_reduce keeping = {{1, {1}}, 1, AC_NO_DTYPE};
    int64_t n = weights->shape[1];
    T edges = ac_c_call(s, AC_OP_cumsum, &along, 1, weights);
    T at = MUL(uniform(s, weights->shape[0], times, ac_device_of(weights)), ac_c_slice(s, edges, 1, n - 1, n));
    if (!at) return NULL;
    T place =
        times == 1 ? ac_c_call(s, AC_OP_sum, &keeping, 1, BIN(le, edges, at)) : searched(s, edges, at, true, false);
    return place ? BIN(minimum, place, NUM((double)(n - 1))) : NULL;
}

/* The smallest of exponential waiting times (Efraimidis and Spirakis 2006). */
static T drawn_once(ac_scratch *s, T weights, int64_t times) {
    T out[AC_MAX_OUT] = {NULL};
    ac_attrs_topk smallest = {times, -1, 0, 1};
    T chance = uniform(s, weights->shape[0], weights->shape[1], ac_device_of(weights));
    T wait = DIV(UN(neg, UN(log, ac_c_clamp_min(s, chance, 1e-300))), ac_c_cast(s, weights, AC_float64));
    return ac_c_call_many(s, AC_OP_topk, &smallest, &wait, 1, out) < 0 ? NULL : out[1];
}

COMPOSE(multinomial) {
    ATTRS(multinomial);
    T x = in[0];
    int64_t times = a->num_samples;
    if (x->ndim != 1 && x->ndim != 2) REFUSE(AC_RUNTIME, "multinomial: expected 1 or 2 dimensions, got %d", x->ndim);
    if (!ac_is_floating(x->dtype))
        REFUSE(AC_RUNTIME, "multinomial: expected floating point, got %s", ac_dtypes[x->dtype].name);
    ac_dims shape = ac_shape_of(x);
    int64_t n = shape.v[shape.n - 1];
    if (times < 1 || (!a->replacement && times > n))
        REFUSE(AC_RUNTIME, "multinomial: cannot draw %" PRId64 " of %" PRId64 " values%s", times, n,
               a->replacement ? "" : " without replacement");
    ac_dims rows = {2, {x->ndim == 2 ? x->shape[0] : 1, n}};
    T weights = ac_c_reshape(s, ac_c_detach(s, x), &rows);
    bool again = a->replacement || times == 1; /* one draw is the same either way */
    if (!weights) return NULL;
    NEED(check_weights(s, weights));
    shape.v[shape.n - 1] = times;
    return ac_c_reshape(s, again ? drawn_again(s, weights, times) : drawn_once(s, weights, times), &shape);
}

/* -- histograms --------------------------------------------------------------------------------------- */

/* Sums of `each` by the bin that `at` names. */
static T summed(ac_scratch *s, T at, T each, int64_t bins) {
    ac_dims shape = {1, {bins}};
    ac_attrs_index_dim first = {0};
    T none = each ? ac_c_full(s, &shape, 0, each->dtype, ac_device_of(each)) : NULL;
    return bins ? ac_c_call(s, AC_OP_scatter_add, &first, 3, none, at, each) : none;
}

COMPOSE(histc) {
    ATTRS(histc);
    double low = ac_scalar_double(a->min), high = ac_scalar_double(a->max);
    ac_attrs_reduce_dim all = {{.n = -1}, 0};
    if (in[0]->dtype == AC_bool) REFUSE(AC_NOT_IMPLEMENTED, "histc: needs numbers, got bool; convert it with .int()");
    if (a->bins < 1) REFUSE(AC_RUNTIME, "histc: `bins` must be above 0, got %" PRId64, a->bins);
    T x = ac_c_flat(s, ac_c_detach(s, in[0]));
    if (!x) return NULL;
    if (low == high && x->numel) {
        low = ac_c_read(s, ac_c_call(s, AC_OP_amin, &all, 1, x));
        high = ac_c_read(s, ac_c_call(s, AC_OP_amax, &all, 1, x));
    }
    if (low == high) low -= 1, high += 1;
    if (!isfinite(low) || !isfinite(high))
        REFUSE(AC_RUNTIME, "histc: the range from %g to %g is not finite", low, high);
    if (low > high) REFUSE(AC_RUNTIME, "histc: `max` %g must be above `min` %g", high, low);
    T inside = BIN(logical_and, BIN(ge, x, NUM(low)), BIN(le, x, NUM(high)));
    T place = TIMES(SUB(ac_c_cast(s, x, AC_float64), ac_c_real(s, low)), (double)a->bins);
    place = DIV(place, NUM(high - low)); /* last, so that a whole number on an edge lies exactly there */
    T at = ac_c_clamp(s, WHERE(inside, place, ac_c_real(s, 0)), 0, (double)(a->bins - 1));
    return summed(s, ac_c_cast(s, at, AC_int64), ac_c_cast(s, inside, x->dtype), a->bins);
}

/* Moves the cells of all points on by one dimension, and notes which points lie within its edges. */
static int place_along(ac_scratch *s, T x, T edges, T *cell, T *inside) {
    int64_t n = edges->shape[0];
    if (!x) return -1;
    T begin = ac_c_select(s, edges, 0, 0), end = ac_c_select(s, edges, 0, n - 1);
    T here = BIN(logical_and, BIN(ge, x, begin), BIN(le, x, end));
    T at = ac_c_clamp(s, SUB(searched(s, edges, x, true, false), NUM(1)), 0, n > 2 ? (double)(n - 2) : 0);
    *inside = BIN(logical_and, *inside, here);
    *cell = ADD(TIMES(*cell, (double)(n - 1)), ac_c_cast(s, at, AC_int64));
    return s->failed ? -1 : 0;
}

/* The part of all that lies in each cell, for each unit of its size. */
static T density_of(ac_scratch *s, T hist, T const *edges, int d) {
    T y = DIV(hist, ac_c_sum_all(s, hist));
    for (int k = 0; k < d && y; k++) {
        ac_dims line = {.n = d};
        for (int i = 0; i < d; i++) line.v[i] = i == k ? -1 : 1;
        int64_t n = edges[k]->shape[0];
        T width = SUB(ac_c_slice(s, edges[k], 0, 1, n), ac_c_slice(s, edges[k], 0, 0, n - 1));
        y = DIV(y, ac_c_reshape(s, width, &line));
    }
    return y;
}

COMPOSE(histogram) {
    ATTRS(histogram);
    T points = in[0], weight = in[1], inside, cell;
    int d = n_in - 2;
    int64_t n = points->shape[0], cells = 1;
    ac_dims rows = {1, {n}}, shape = {.n = d};
    ac_device device = ac_device_of(points);
    if (!ac_is_floating(points->dtype))
        REFUSE(AC_NOT_IMPLEMENTED, "histogram: expected floating point, got %s", ac_dtypes[points->dtype].name);
    if (weight && (weight->numel != n || weight->dtype != points->dtype))
        REFUSE(AC_RUNTIME, "histogram: `weight` must hold %" PRId64 " values of %s, got %" PRId64 " of %s", n,
               ac_dtypes[points->dtype].name, weight->numel, ac_dtypes[weight->dtype].name);
    if (d > AC_MAX_DIMS) REFUSE(AC_RUNTIME, "histogram: more than %d dimensions", AC_MAX_DIMS);
    cell = ac_c_full(s, &rows, 0, AC_int64, device), inside = ac_c_full(s, &rows, 1, AC_bool, device);
    for (int k = 0; k < d; k++) {
        shape.v[k] = in[2 + k]->shape[0] - 1, cells *= shape.v[k];
        NEED(place_along(s, UN(contiguous, ac_c_select(s, points, 1, k)), in[2 + k], &cell, &inside));
    }
    T each = ac_c_cast(s, inside, points->dtype);
    if (weight) each = MUL(each, ac_c_flat(s, weight));
    T hist = ac_c_reshape(s, summed(s, cell, each, cells), &shape);
    return a->density ? density_of(s, hist, in + 2, d) : hist;
}

/* -- unique values ------------------------------------------------------------------------------------ */

/* The slices of x along dim, a row each. */
static T slices(ac_scratch *s, T x, int64_t dim) {
    int64_t n = x->shape[dim];
    ac_attrs_movedim front = {{1, {dim}}, {1, {0}}};
    ac_dims shape = {2, {n, n ? x->numel / n : 0}};
    if (x->numel == 0 && n) {
        char text[AC_SHAPE_TEXT];
        REFUSE(AC_RUNTIME, "unique: the slices along dimension %" PRId64 " of shape %s are empty", dim,
               ac_shape_text(x, text));
    }
    return ac_c_reshape(s, ac_c_call(s, AC_OP_movedim, &front, 1, x), &shape);
}

/* `order` after a stable sort by one column of the rows. */
static T sorted_by(ac_scratch *outer, T rows, int64_t column, T order) {
    ac_scratch inner, *s = &inner;
    ac_attrs_sort up = {0, 0, 1};
    T found[AC_MAX_OUT] = {NULL};
    ac_scratch_start(s);
    T key = ac_c_at(s, ac_c_select(s, rows, 1, column), order);
    if (key && ac_c_call_many(s, AC_OP_sort, &up, &key, 1, found) < 0) found[1] = NULL;
    T kept = ac_c_hand_up(outer, s, ac_c_at(s, order, found[1]));
    ac_scratch_release(s);
    return kept;
}

/* True where a row differs from the one before. */
static T fresh_rows(ac_scratch *s, T rows) {
    int64_t n = rows->shape[0];
    ac_dims one = {1, {n ? 1 : 0}};
    ac_attrs_reduce_dim across = {{1, {1}}, 0};
    T first = ac_c_full(s, &one, 1, AC_bool, ac_device_of(rows));
    if (n < 2) return first;
    T differs = BIN(ne, ac_c_slice(s, rows, 0, 1, n), ac_c_slice(s, rows, 0, 0, n - 1));
    T parts[] = {first, ac_c_call(s, AC_OP_any, &across, 1, differs)};
    return ac_c_cat(s, parts, 2, 0);
}

static T inverse_of(ac_scratch *s, T fresh, T order, const ac_dims *shape) {
    ac_attrs_cumulative first = {0, AC_NO_DTYPE};
    ac_attrs_scatter over = {0, 0};
    ac_dims line = ac_shape_of(order);
    T group = SUB(ac_c_call(s, AC_OP_cumsum, &first, 1, ac_c_cast(s, fresh, AC_int64)), NUM(1));
    T back = ac_c_full(s, &line, 0, AC_int64, ac_device_of(order));
    return ac_c_reshape(s, ac_c_call(s, AC_OP_scatter, &over, 3, back, order, group), shape);
}

static T counts_of(ac_scratch *s, T starts, int64_t n) {
    int64_t found = starts->shape[0];
    ac_dims one = {1, {found ? 1 : 0}};
    T ends[] = {ac_c_slice(s, starts, 0, found ? 1 : 0, found),
                ac_c_full(s, &one, (double)n, AC_int64, ac_device_of(starts))};
    return SUB(ac_c_cat(s, ends, 2, 0), starts);
}

/* The rows that are kept, in the shape of x but along dim; of the flattened x a vector. */
static T kept_values(ac_scratch *s, T x, T rows, T starts, int64_t dim) {
    ac_attrs_movedim back = {{1, {0}}, {1, {dim}}};
    T kept = ac_c_at(s, rows, starts);
    if (dim == AC_ABSENT) return ac_c_flat(s, kept);
    ac_dims shape = {.n = x->ndim, .v = {starts->shape[0]}};
    for (int d = 0, next = 1; d < x->ndim; d++)
        if (d != dim) shape.v[next++] = x->shape[d];
    return ac_c_call(s, AC_OP_movedim, &back, 1, ac_c_reshape(s, kept, &shape));
}

COMPOSE(unique) {
    ATTRS(unique);
    T x = in[0], order;
    int64_t dim = a->dim;
    ac_dims column = {2, {x->numel, 1}}, none = {1, {0}};
    if (dim != AC_ABSENT && x->ndim == 0) REFUSE(AC_INDEX, "unique: a 0-d tensor has no dimension %" PRId64, dim);
    if (dim != AC_ABSENT) NEED(ac_dim_wrap(&dim, x->ndim, "unique"));
    T rows = dim == AC_ABSENT ? ac_c_reshape(s, x, &column) : slices(s, x, dim);
    if (!rows) return NULL;
    int64_t n = rows->shape[0];
    ac_device device = ac_device_of(x);
    order = ac_c_arange(s, n, device);
    if (!a->consecutive) { /* the last column decides least */
        for (int64_t k = rows->shape[1] - 1; k >= 0 && order; k--) order = sorted_by(s, rows, k, order);
        rows = ac_c_at(s, rows, order);
    }
    T fresh = rows ? fresh_rows(s, rows) : NULL, places = UN(nonzero, fresh);
    T starts = places ? ac_c_flat(s, places) : NULL;
    if (!starts) return NULL;
    ac_dims shape = dim == AC_ABSENT ? ac_shape_of(x) : ac_shape_of(order);
    s->also[1] = a->inverse ? inverse_of(s, fresh, order, &shape) : ac_c_full(s, &none, 0, AC_int64, device);
    s->also[2] = a->counts ? counts_of(s, starts, n) : ac_c_full(s, &none, 0, AC_int64, device);
    return s->also[1] && s->also[2] ? kept_values(s, x, rows, starts, dim) : NULL;
}
