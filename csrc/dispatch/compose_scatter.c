/* Composite operators that write at indices along a dimension, and join what meets in one element. */
#include "dispatch/compose_read.h"

enum { SUM, PROD, MEAN, AMAX, AMIN, MAX, MIN };

/* -- what the tensors must be ----------------------------------------------------------------------- */

static int one_at_least(const ac_tensor *t) { return t->ndim > 1 ? t->ndim : 1; }

static int check_index(const char *what, const ac_tensor *x, const ac_tensor *index, int64_t *dim) {
    char have[AC_SHAPE_TEXT], got[AC_SHAPE_TEXT];
    AC_TRY(ac_dim_wrap(dim, x->ndim, what));
    if (index->numel == 0) return 0; /* of any shape and dtype: nothing is written */
    if (index->dtype != AC_int64 && index->dtype != AC_int32)
        return ac_fail(AC_RUNTIME, "%s: `index` must be int64, got %s; convert it with .long()", what,
                       ac_dtypes[index->dtype].name);
    if (one_at_least(x) != one_at_least(index))
        return ac_fail(AC_RUNTIME, "%s: `index` has %d dimensions, the tensor %d", what, index->ndim, x->ndim);
    for (int d = 0; d < x->ndim && d < index->ndim; d++)
        if (d != *dim && index->shape[d] > x->shape[d])
            return ac_fail(AC_RUNTIME, "%s: `index` %s is larger than the tensor %s, apart from dimension %" PRId64,
                           what, ac_shape_text(index, got), ac_shape_text(x, have), *dim);
    return 0;
}

static int check_dtype(const char *what, const char *name, const ac_tensor *x, const ac_tensor *src) {
    if (src->dtype == x->dtype) return 0;
    return ac_fail(AC_RUNTIME, "%s: the tensor and `%s` must have the same dtype, got %s and %s", what, name,
                   ac_dtypes[x->dtype].name, ac_dtypes[src->dtype].name);
}

/* src, which may be larger than index, without what is beyond. */
static T cut(ac_scratch *s, const char *what, T src, T index) {
    char have[AC_SHAPE_TEXT], got[AC_SHAPE_TEXT];
    if (src->ndim != index->ndim)
        REFUSE(AC_RUNTIME, "%s: `src` must have the dimensions of `index`, %d, got %d", what, index->ndim, src->ndim);
    for (int d = 0; d < index->ndim && src; d++) {
        if (src->shape[d] < index->shape[d])
            REFUSE(AC_RUNTIME, "%s: `index` %s is larger than `src` %s", what, ac_shape_text(index, have),
                   ac_shape_text(src, got));
        if (src->shape[d] > index->shape[d]) src = ac_c_slice(s, src, d, 0, index->shape[d]);
    }
    return src;
}

/* Where each element of index points along dimension d: there itself along dim, elsewhere to its own place. */
static T pointing(ac_scratch *s, T index, int64_t dim, int d) {
    ac_dims line = {.n = index->ndim};
    if (d == dim) return index;
    for (int k = 0; k < index->ndim; k++) line.v[k] = k == d ? index->shape[d] : 1;
    return ac_c_reshape(s, ac_c_arange(s, index->shape[d], ac_device_of(index)), &line);
}

static T written_at(ac_scratch *s, T x, int64_t dim, T index, T values) {
    T all[AC_MAX_DIMS + 2], out[AC_MAX_OUT] = {NULL};
    ac_attrs_index_put over = {.from_start = 1};
    all[0] = x;
    for (int d = 0; d < index->ndim; d++) all[1 + d] = pointing(s, index, dim, d);
    all[1 + index->ndim] = values;
    return ac_c_call_many(s, AC_OP_index_put, &over, all, index->ndim + 2, out) < 0 ? NULL : out[0];
}

static T at_least_1d(ac_scratch *s, T x) { return x->ndim ? x : ac_c_flat(s, x); }

/* -- joining what meets in one element ---------------------------------------------------------------- */

static T added_at(ac_scratch *s, T x, int64_t dim, T index, T src) {
    ac_attrs_index_dim along = {dim};
    return ac_c_call(s, AC_OP_scatter_add, &along, 3, x, index, src);
}
static T sum_or_mean(ac_scratch *s, T x, int64_t dim, T index, T src, bool mean, bool include_self) {
    ac_device device = ac_device_of(x);
    ac_dims shape = ac_shape_of(x), many = ac_shape_of(index);
    T count =
        added_at(s, ac_c_full(s, &shape, 0, AC_int64, device), dim, index, ac_c_full(s, &many, 1, AC_int64, device));
    T start = include_self ? x : WHERE(BIN(gt, count, NUM(0)), NUM(0), x);
    T total = added_at(s, start, dim, index, src);
    if (!mean || !total) return total;
    T n = include_self ? PLUS(count, 1) : BIN(maximum, count, NUM(1));
    return ac_is_floating(x->dtype) ? DIV(total, n) : ac_c_cast(s, BIN(floor_divide, total, n), x->dtype);
}

/* Where the indices point in the flattened x. */
static T flat_index(ac_scratch *s, T x, int64_t dim, T index) {
    ac_dims shape = ac_shape_of(index);
    T flat = NUM(0);
    for (int d = 0; d < index->ndim; d++)
        flat = ADD(TIMES(flat, (double)x->shape[d]), ac_c_cast(s, pointing(s, index, dim, d), AC_int64));
    return flat ? ac_c_flat(s, ac_c_expand(s, flat, &shape)) : NULL;
}

static int check_range(ac_scratch *s, T index, int64_t n) {
    ac_attrs_reduce_dim all = {{.n = -1}, 0};
    double low = ac_c_read(s, ac_c_call(s, AC_OP_amin, &all, 1, index));
    double high = ac_c_read(s, ac_c_call(s, AC_OP_amax, &all, 1, index));
    if (s->failed || (low >= 0 && high < (double)n)) return s->failed ? -1 : 0;
    return ac_fail(AC_INDEX, "scatter_reduce: `index` must be from 0 to %" PRId64 ", got %.0f to %.0f", n - 1, low,
                   high);
}

/* Elements that any value came to, what the values make that came to each of them, and how many came to every one. */
typedef struct {
    T met, made, count;
} runs;

/* One step: each value takes in the one `step` behind it if that came to the same element, else the neutral one (itself
 * where that is NULL: of equal values the extreme is the same). */
static T taken_in(ac_scratch *outer, T y, T left, T here, int64_t step, ac_op join, T neutral) {
    ac_scratch inner, *s = &inner;
    ac_scratch_start(s);
    T behind = ac_c_at(s, y, BIN(minimum, PLUS(here, (double)step), NUM((double)(here->numel - 1))));
    T joined = ac_c_call(s, join, NULL, 2, y, WHERE(BIN(gt, left, NUM((double)step)), behind, neutral ? neutral : y));
    T kept = ac_c_hand_up(outer, s, joined);
    ac_scratch_release(s);
    return kept;
}

/* Values that meet in one of `size` elements, joined: in order of index, each value takes in the one 1, 2, 4, ...
 * behind it (Hillis and Steele 1986). */
static runs joined_runs(ac_scratch *s, T values, T at, int64_t size, ac_op join, T neutral) {
    ac_device device = ac_device_of(at);
    ac_dims all = {1, {size}}, many = {1, {at->numel}};
    ac_attrs_sort up = {0, 0, 1};
    ac_attrs_cumulative first = {0, AC_NO_DTYPE};
    ac_attrs_reduce_dim every = {{.n = -1}, 0};
    T sorted[AC_MAX_OUT] = {NULL};
    if (ac_c_call_many(s, AC_OP_sort, &up, &at, 1, sorted) < 0) return (runs){NULL, NULL, NULL};
    T count =
        added_at(s, ac_c_full(s, &all, 0, AC_int64, device), 0, sorted[0], ac_c_full(s, &many, 1, AC_int64, device));
    T end = ac_c_call(s, AC_OP_cumsum, &first, 1, count), here = ac_c_arange(s, at->numel, device);
    T left = SUB(ac_c_at(s, end, sorted[0]), here), y = ac_c_at(s, values, sorted[1]);
    double most = ac_c_read(s, ac_c_call(s, AC_OP_amax, &every, 1, count));
    for (int64_t step = 1; (double)step < most && y; step *= 2) y = taken_in(s, y, left, here, step, join, neutral);
    T rows = UN(nonzero, BIN(gt, count, NUM(0)));
    T met = rows ? ac_c_select(s, rows, 1, 0) : NULL;
    return (runs){met, ac_c_at(s, y, ac_c_at(s, SUB(end, count), met)), count};
}

static T product(ac_scratch *s, T own, T at, T values, bool include_self) {
    ac_dims number = {0};
    ac_attrs_index_put over = {0};
    runs r = joined_runs(s, values, at, own->numel, AC_OP_mul, ac_c_full(s, &number, 1, own->dtype, ac_device_of(own)));
    return ac_c_call(s, AC_OP_index_put, &over, 3, own, r.met,
                     include_self ? MUL(ac_c_at(s, own, r.met), r.made) : r.made);
}

/* Which values are the extreme of those that they were joined with: nan is, wherever it stands. */
static T is_extreme(ac_scratch *s, T values, T joined) {
    T same = BIN(eq, values, joined);
    return same && ac_is_floating(values->dtype) ? BIN(logical_or, same, UN(isnan, values)) : same;
}

/* `joined` with a gradient that those share in equal parts that are equal to it. */
static T shared(ac_scratch *s, T joined, T own, T at, T values, T stays) {
    T ties = is_extreme(s, values, ac_c_at(s, joined, at));
    T sharers = added_at(s, ac_c_cast(s, stays, AC_int64), 0, at, ac_c_cast(s, ties, AC_int64));
    sharers = BIN(maximum, sharers, NUM(1)); /* where nothing was joined */
    T parts = WHERE(ties, DIV(values, ac_c_at(s, sharers, at)), NUM(0));
    return BIN(stands_for, joined, added_at(s, WHERE(stays, DIV(own, sharers), NUM(0)), 0, at, parts));
}

static T extreme(ac_scratch *s, T own, T at, T values, bool include_self, ac_op join) {
    ac_attrs_index_put over = {0};
    T start = ac_c_detach(s, own), given = ac_c_detach(s, values);
    runs r = joined_runs(s, given, at, own->numel, join, NULL);
    T best = include_self ? ac_c_call(s, join, NULL, 2, ac_c_at(s, start, r.met), r.made) : r.made;
    T joined = ac_c_call(s, AC_OP_index_put, &over, 3, start, r.met, best);
    if (!joined || (!ac_c_records(own) && !ac_c_records(values))) return joined;
    T stays = include_self ? is_extreme(s, start, joined) : BIN(eq, r.count, NUM(0));
    return shared(s, joined, own, at, values, stays);
}

static T reduced(ac_scratch *s, T x, int64_t dim, T index, T src, int64_t how, bool include_self) {
    if (!x || !src) return NULL;
    if (x->dtype == AC_bool) { /* sums are "or", products "and" */
        T whole = reduced(s, ac_c_cast(s, x, AC_int64), dim, index, ac_c_cast(s, src, AC_int64), how, include_self);
        return ac_c_cast(s, whole, AC_bool);
    }
    if (ac_is_half(x->dtype) && how < AMAX) { /* rounded once */
        T whole = reduced(s, ac_c_wide(s, x), dim, index, ac_c_wide(s, src), how, include_self);
        return ac_c_cast(s, whole, x->dtype);
    }
    ac_dims shape = ac_shape_of(x);
    x = at_least_1d(s, x), index = at_least_1d(s, index), src = at_least_1d(s, src);
    if (!x || !index || !src) return NULL;
    if (index->numel == 0) return ac_c_reshape(s, added_at(s, x, dim, index, src), &shape); /* src takes part */
    if (!(src = cut(s, "scatter_reduce", src, index))) return NULL;
    if (how == SUM || how == MEAN)
        return ac_c_reshape(s, sum_or_mean(s, x, dim, index, src, how == MEAN, include_self), &shape);
    NEED(check_range(s, index, x->shape[dim]));
    T at = flat_index(s, x, dim, index), own = ac_c_flat(s, x), given = ac_c_flat(s, src);
    if (!at || !own || !given) return NULL;
    T y = how == PROD ? product(s, own, at, given, include_self)
                      : extreme(s, own, at, given, include_self, how == AMAX ? AC_OP_maximum : AC_OP_minimum);
    return ac_c_reshape(s, y, &shape);
}

/* -- the operators ------------------------------------------------------------------------------------ */

COMPOSE(scatter_reduce) {
    ATTRS(scatter_reduce);
    int64_t dim = a->dim;
    NEED(check_index("scatter_reduce", in[0], in[1], &dim));
    NEED(check_dtype("scatter_reduce", "src", in[0], in[2]));
    int64_t how = a->reduce < MAX ? a->reduce : a->reduce - MAX + AMAX; /* max is another word for amax, min for amin */
    return reduced(s, in[0], dim, in[1], in[2], how, a->include_self);
}

COMPOSE(index_reduce) {
    ATTRS(scatter_reduce);
    T x = in[0], source = in[2];
    int64_t dim = a->dim;
    NEED(ac_dim_wrap(&dim, x->ndim, "index_reduce"));
    NEED(check_dtype("index_reduce", "source", x, source));
    bool fits = source->ndim == x->ndim;
    for (int d = 0; d < x->ndim && fits; d++) fits = d == dim || source->shape[d] == x->shape[d];
    char have[AC_SHAPE_TEXT], got[AC_SHAPE_TEXT];
    if (!fits)
        REFUSE(AC_RUNTIME, "index_reduce: source must have x's shape but in dimension %" PRId64 ", got %s and %s", dim,
               ac_shape_text(source, got), ac_shape_text(x, have));
    ac_dims line = {.n = source->ndim}, shape = ac_shape_of(source);
    for (int d = 0; d < source->ndim; d++) line.v[d] = d == dim ? -1 : 1;
    T at = ac_c_expand(s, ac_c_reshape(s, in[1], &line), &shape);
    if (!at) return NULL;
    NEED(check_index("index_reduce", x, at, &dim));
    return reduced(s, x, dim, at, source, a->reduce + PROD, a->include_self);
}

/* The number or the tensor src, written or (reduce) joined. */
static T scattered(ac_scratch *s, T x, T index, T src, ac_scalar number, int64_t dim, int64_t reduce) {
    ac_dims shape = ac_shape_of(x), many = ac_shape_of(index), one = {0};
    ac_device device = ac_device_of(x);
    NEED(check_index("scatter", x, index, &dim));
    T values = src ? src : ac_c_filled(s, reduce ? &many : &one, number, x->dtype, device);
    if (!values) return NULL;
    NEED(check_dtype("scatter", "src", x, values));
    if (reduce) return reduced(s, x, dim, index, values, reduce == 1 ? SUM : PROD, true);
    x = at_least_1d(s, x), index = at_least_1d(s, index);
    if (index && index->numel == 0)
        return ac_c_reshape(s, values->ndim ? added_at(s, x, dim, index, values) : x, &shape);
    if (index && values->ndim) values = cut(s, "scatter", values, index);
    return x && index && values ? ac_c_reshape(s, written_at(s, x, dim, index, values), &shape) : NULL;
}

COMPOSE(scatter) {
    ATTRS(scatter);
    bool number = in[2]->is_scalar;
    ac_scalar value = number ? ac_c_scalar(in[2]) : (ac_scalar){AC_NONE, {0}};
    return scattered(s, in[0], in[1], number ? NULL : in[2], value, a->dim, a->reduce);
}

COMPOSE(scatter_value) {
    ATTRS(scatter_value);
    return scattered(s, in[0], in[1], NULL, a->value, a->dim, a->reduce);
}
