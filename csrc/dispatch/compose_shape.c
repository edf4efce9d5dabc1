/* Composite operators of views, copies, joining and selection. */
#include "dispatch/compose.h"

#include "base/rng.h"

static T extremum(ac_scratch *s, ac_op op, T x) {
    ac_attrs_reduce_dim all = {{.n = -1}, 0};
    if (x->numel == 0)
        REFUSE(AC_RUNTIME, "%s: a tensor without elements has none; give `dim`", op == AC_OP_amax ? "max" : "min");
    return ac_c_call(s, op, &all, 1, x);
}

COMPOSE(max) { return extremum(s, AC_OP_amax, in[0]); }
COMPOSE(min) { return extremum(s, AC_OP_amin, in[0]); }
COMPOSE(max_other) { return BIN(maximum, in[0], in[1]); }
COMPOSE(min_other) { return BIN(minimum, in[0], in[1]); }

/* -- views and copies ------------------------------------------------------------------------------- */

COMPOSE(reshape) {
    ac_attrs_size a = *(const ac_attrs_size *)attrs;
    ac_dims strides;
    NEED(ac_dims_infer(&a.size, in[0]->numel, "reshape"));
    if (ac_view_strides(in[0], &a.size, &strides)) return ac_c_call(s, AC_OP_view, &a, 1, in[0]);
    return ac_c_call(s, AC_OP_view, &a, 1, UN(in_rows, in[0]));
}

COMPOSE(view_as) {
    ac_attrs_size a = {ac_shape_of(in[1])};
    return ac_c_call(s, AC_OP_view, &a, 1, in[0]);
}

COMPOSE(reshape_as) {
    ac_attrs_size a = {ac_shape_of(in[1])};
    return ac_c_call(s, AC_OP_reshape, &a, 1, in[0]);
}

COMPOSE(expand_as) {
    ac_attrs_size a = {ac_shape_of(in[1])};
    return ac_c_call(s, AC_OP_expand, &a, 1, in[0]);
}

COMPOSE(sum_to_size) {
    ATTRS(size);
    T x = in[0];
    char have[AC_SHAPE_TEXT], want[AC_SHAPE_TEXT];
    int64_t lead = x->ndim - a->size.n;
    bool fits = lead >= 0;
    ac_dims over = {0, {0}};
    for (int64_t d = 0; d < x->ndim && fits; d++) {
        int64_t size = d < lead ? 1 : a->size.v[d - lead];
        fits = size == 1 || size == x->shape[d];
        if (d < lead || size != x->shape[d]) over.v[over.n++] = d;
    }
    if (!fits)
        REFUSE(AC_RUNTIME, "sum_to_size: %s does not broadcast to %s", ac_dims_text(&a->size, want),
               ac_shape_text(x, have));
    if (a->size.n == 0) return ac_c_sum_all(s, x);
    return over.n == 0 ? x : ac_c_reshape(s, ac_c_sum_over(s, x, &over, true), &a->size);
}

COMPOSE(flatten) {
    ATTRS(flatten);
    const ac_tensor *x = in[0];
    int64_t first = a->start_dim, last = a->end_dim;
    NEED(ac_dim_wrap(&first, x->ndim, "flatten"));
    NEED(ac_dim_wrap(&last, x->ndim, "flatten"));
    if (first > last)
        REFUSE(AC_RUNTIME, "flatten: start_dim %" PRId64 " is behind end_dim %" PRId64, a->start_dim, a->end_dim);
    ac_dims size = {.n = 0};
    int64_t joined = 1;
    for (int64_t d = 0; d < x->ndim; d++) {
        if (d < first || d > last) size.v[size.n++] = x->shape[d];
        else joined *= x->shape[d];
        if (d == last) size.v[size.n++] = joined;
    }
    if (x->ndim == 0) size = (ac_dims){1, {1}};
    else if (first == last) return in[0];
    return ac_c_reshape(s, in[0], &size);
}

COMPOSE(contiguous) { return ac_is_contiguous(in[0]) ? in[0] : UN(in_rows, in[0]); }

COMPOSE(t) {
    if (in[0]->ndim > 2)
        REFUSE(AC_RUNTIME, "t: needs a tensor of at most 2 dimensions, got %d; use transpose", in[0]->ndim);
    return ac_c_transpose(s, in[0], 0, in[0]->ndim > 1 ? 1 : 0);
}

COMPOSE(narrow) {
    ATTRS(narrow);
    int64_t dim = a->dim, start = a->start;
    if (in[0]->ndim == 0) REFUSE(AC_RUNTIME, "narrow: a 0-d tensor has no dimension to cut");
    if (a->length < 0) REFUSE(AC_RUNTIME, "narrow: length must be 0 or more, got %" PRId64, a->length);
    NEED(ac_dim_wrap(&dim, in[0]->ndim, "narrow"));
    int64_t size = in[0]->shape[dim];
    if (start < -size || start > size)
        REFUSE(AC_INDEX, "narrow: start %" PRId64 " is out of range for dimension %" PRId64 " of size %" PRId64, start,
               dim, size);
    if (start < 0) start += size;
    if (a->length > size - start)
        REFUSE(AC_RUNTIME,
               "narrow: start %" PRId64 " and length %" PRId64 " do not fit dimension %" PRId64 " of size %" PRId64,
               a->start, a->length, dim, size);
    return ac_c_slice(s, in[0], dim, start, start + a->length);
}

COMPOSE(stack) {
    ATTRS(one_dim);
    ac_list wide;
    T out[AC_MAX_OUT] = {NULL};
    ac_attrs_one_dim at = *a;
    if (n_in == 0) REFUSE(AC_RUNTIME, "stack: needs at least one tensor, got an empty list");
    NEED(ac_dim_wrap(&at.dim, in[0]->ndim + 1, "stack"));
    for (int i = 1; i < n_in; i++)
        if (!ac_same_shape(in[i], in[0])) {
            char first[AC_SHAPE_TEXT], other[AC_SHAPE_TEXT];
            REFUSE(AC_RUNTIME, "stack: all tensors must have one shape, got %s and %s (tensor %d)",
                   ac_shape_text(in[0], first), ac_shape_text(in[i], other), i);
        }
    NEED(ac_list_start(&wide, n_in));
    int failed = 0;
    for (int i = 0; i < n_in && !failed; i++) failed = ac_call(AC_OP_unsqueeze, &in[i], 1, &at, &wide.at[i]);
    if (!failed) failed = ac_call(AC_OP_cat, wide.at, n_in, &at, out);
    ac_list_release(&wide);
    return failed ? ac_c_refuse(s, failed) : ac_c_keep(s, out[0]);
}

/* -- indices ---------------------------------------------------------------------------------------- */

COMPOSE(index_add_alpha) {
    ATTRS(index_add_alpha);
    ac_attrs_index_dim along = {a->dim};
    double alpha = ac_c_factor(a->alpha, in[2]->dtype);
    T source = ac_c_cast(s, TIMES(in[2], alpha), in[2]->dtype);
    return ac_c_call(s, AC_OP_index_add, &along, 3, in[0], in[1], source);
}

COMPOSE(masked_select) {
    ac_dims shape = ac_shape_of(in[0]), other = ac_shape_of(in[1]), flat = {1, {-1}};
    if (in[1]->dtype != AC_bool)
        REFUSE(AC_RUNTIME, "masked_select: `mask` must be bool, got %s", ac_dtypes[in[1]->dtype].name);
    NEED(ac_dims_broadcast(&shape, &other, "masked_select"));
    flat.v[0] = ac_dims_numel(&shape);
    T x = ac_c_reshape(s, ac_c_expand(s, in[0], &shape), &flat);
    T where = UN(nonzero, ac_c_reshape(s, ac_c_expand(s, in[1], &shape), &flat));
    ac_attrs_index_dim first = {0};
    return ac_c_call(s, AC_OP_index_select, &first, 2, x, ac_c_select(s, where, 1, 0));
}

/* The indices where a mask is true, one a dimension of the mask, behind the `n` that are there. */
static int push_mask(ac_scratch *s, T mask, T x, T *all, int n) {
    for (int d = 0; d < mask->ndim; d++)
        if (n + d >= x->ndim || mask->shape[d] != x->shape[n + d]) {
            char m[AC_SHAPE_TEXT], v[AC_SHAPE_TEXT];
            (void)ac_fail(AC_INDEX, "index_put: the mask's shape %s does not fit the indexed dimensions of %s",
                          ac_shape_text(mask, m), ac_shape_text(x, v));
            return s->failed = true, -1;
        }
    T where = UN(nonzero, mask);
    for (int d = 0; d < mask->ndim; d++) all[n + d] = ac_c_select(s, where, 1, d);
    return s->failed ? -1 : mask->ndim;
}

/* What lies on the CPU goes to the GPU of what it is written into, or names places of. */
static T beside(ac_scratch *s, T part, T x) {
    ac_attrs_to_device there = {ac_device_of(x), 0};
    if (!part || ac_device_of(part) != AC_CPU || there.device == AC_CPU) return part;
    return ac_c_call(s, AC_OP_to_device, &there, 1, part);
}

COMPOSE(index_put_masks) {
    ATTRS(accumulate);
    ac_attrs_index_put how = {.accumulate = a->accumulate};
    T all[AC_MAX_DIMS + 2], out[AC_MAX_OUT] = {NULL};
    int n = 1;
    all[0] = in[0];
    for (int i = 1; i < n_in - 1; i++) {
        T index = beside(s, in[i], in[0]);
        bool mask = index && (index->dtype == AC_bool || index->dtype == AC_uint8) && index->ndim > 0;
        if (s->failed) return NULL;
        if (n > AC_MAX_DIMS)
            REFUSE(AC_INDEX, "index_put: %d indices for a tensor of %d dimensions", n_in - 2, in[0]->ndim);
        if (!mask) all[n++] = index ? index : ABSENT;
        else {
            int more = push_mask(s, index, in[0], all + 1, n - 1);
            if (more < 0) return NULL;
            n += more;
        }
    }
    T values = in[n_in - 1];
    all[n++] = values->ndim ? values : beside(s, values, in[0]);
    return s->failed || ac_c_call_many(s, AC_OP_index_put, &how, all, n, out) < 0 ? NULL : out[0];
}

/* -- dropout ---------------------------------------------------------------------------------------- */

/* The mask is an offset in the random stream, so backward draws it again and none is kept. */
int ac_c_draw_mask(double p, int64_t numel, ac_attrs_dropout_mask *mask) {
    if (!(p >= 0 && p <= 1)) return ac_fail(AC_VALUE, "dropout: `p` must be between 0 and 1, got %g", p);
    ac_generator *g = ac_default_generator();
    *mask = (ac_attrs_dropout_mask){p, (int64_t)g->seed, (int64_t)ac_generator_take(g, numel)};
    return 0;
}

COMPOSE(dropout) {
    ATTRS(dropout);
    bool drops = a->training && a->p != 0;
    ac_attrs_dropout_mask mask;
    NEED(ac_c_draw_mask(a->p, drops ? in[0]->numel : 0, &mask));
    return drops ? ac_c_call(s, AC_OP_dropout_mask, &mask, 1, in[0]) : in[0];
}
