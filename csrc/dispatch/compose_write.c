/* Composite operators that write at indices, or where a mask is true. */
#include "dispatch/compose_read.h"

#include "dispatch/write.h"

COMPOSE(fill) {
    ATTRS(value);
    T y = UN(clone, in[0]);
    if (y) NEED(ac_fill(y, a->value));
    return y;
}

COMPOSE(fill_tensor) {
    T y = UN(clone, in[0]);
    if (in[1]->ndim)
        REFUSE(AC_RUNTIME, "fill: the value must be a number or a 0-d tensor, got %d dimensions", in[1]->ndim);
    if (y) NEED(ac_copy_into(y, in[1]));
    return y;
}

static ac_dims slice_shape(T x, int64_t dim) {
    ac_dims shape = {.n = 0};
    for (int d = 0; d < x->ndim; d++)
        if (d != dim) shape.v[shape.n++] = x->shape[d];
    return shape;
}

/* The slices along dim that `source` must have as x has them, and as many as indices. */
static int check_slices(T x, T index, T source, int64_t dim) {
    if (index->dtype != AC_int64)
        return ac_fail(AC_RUNTIME, "index_copy: `index` must be int64, got %s; convert it with .long()",
                       ac_dtypes[index->dtype].name);
    if (index->ndim > 1 || (x->ndim && source->ndim && source->ndim != x->ndim))
        return ac_fail(AC_INDEX, "index_copy: needs a vector as `index` and a source of %d dimensions, got %d and %d",
                       x->ndim, index->ndim, source->ndim);
    if (source->dtype != x->dtype)
        return ac_fail(AC_RUNTIME, "index_copy: `source` must be %s, got %s", ac_dtypes[x->dtype].name,
                       ac_dtypes[source->dtype].name);
    int64_t given = source->ndim == 0 ? 1 : source->shape[source->ndim > dim ? dim : 0];
    ac_dims there = slice_shape(x, dim), here = slice_shape(source, dim);
    char want[AC_SHAPE_TEXT], got[AC_SHAPE_TEXT];
    if (!ac_dims_equal(&there, &here) && (source->ndim || index->numel == 1))
        return ac_fail(AC_RUNTIME, "index_copy: slices have shape %s, and those of `source` %s",
                       ac_dims_text(&there, want), ac_dims_text(&here, got));
    if (index->numel == given) return 0;
    return ac_fail(AC_INDEX, "index_copy: `index` names %" PRId64 " slices, `source` has %" PRId64, index->numel,
                   given);
}

COMPOSE(index_copy) {
    ATTRS(index_dim);
    T x = in[0], index = in[1], source = in[2], all[AC_MAX_DIMS + 2], out[AC_MAX_OUT] = {NULL};
    int64_t dim = a->dim;
    NEED(ac_dim_wrap(&dim, x->ndim, "index_copy"));
    NEED(check_slices(x, index, source, dim));
    ac_dims shape = ac_shape_of(x);
    int n = (int)dim;
    all[0] = x->ndim ? x : ac_c_flat(s, x);
    for (int d = 0; d < n; d++) all[1 + d] = ABSENT;
    all[1 + n] = ac_c_flat(s, index);
    all[2 + n] = x->ndim > 1 ? source : ac_c_flat(s, source);
    ac_attrs_index_put over = {.from_start = 1};
    if (ac_c_call_many(s, AC_OP_index_put, &over, all, n + 3, out) < 0) return NULL;
    return ac_c_reshape(s, out[0], &shape);
}

/* True along dim of x at the indices, in a shape that broadcasts to x's. */
static T named(ac_scratch *s, T x, T index, int64_t dim) {
    NEED(ac_dim_wrap(&dim, x->ndim, "index_fill"));
    int64_t n = x->ndim ? x->shape[dim] : 1;
    if (index->dtype != AC_int64)
        REFUSE(AC_INDEX, "index_fill: `index` must be int64, got %s; convert it with .long()",
               ac_dtypes[index->dtype].name);
    if (index->ndim > 1) REFUSE(AC_RUNTIME, "index_fill: `index` must have one dimension or none, got %d", index->ndim);
    ac_device device = ac_device_of(x);
    ac_attrs_index_put over = {0};
    ac_dims line = {1, {n}}, number = {0}, shape = {.n = x->ndim};
    T met = ac_c_call(s, AC_OP_index_put, &over, 3, ac_c_full(s, &line, 0, AC_bool, device), ac_c_flat(s, index),
                      ac_c_full(s, &number, 1, AC_bool, device));
    for (int d = 0; d < x->ndim; d++) shape.v[d] = d == dim ? n : 1;
    return ac_c_reshape(s, met, &shape);
}

COMPOSE(index_fill) {
    ATTRS(index_fill);
    ac_attrs_value value = {a->value};
    T there = named(s, in[0], in[1], a->dim);
    return there ? ac_c_call(s, AC_OP_masked_fill, &value, 2, in[0], there) : NULL;
}

COMPOSE(index_fill_tensor) {
    ATTRS(index_dim);
    T there = named(s, in[0], in[1], a->dim);
    return there ? ac_c_call(s, AC_OP_masked_fill_tensor, NULL, 3, in[0], there, in[2]) : NULL;
}

COMPOSE(masked_scatter) {
    ac_dims shape = ac_shape_of(in[0]), other = ac_shape_of(in[1]);
    ac_attrs_index_put over = {0};
    if (in[1]->dtype != AC_bool)
        REFUSE(AC_RUNTIME, "masked_scatter: `mask` must be bool, got %s", ac_dtypes[in[1]->dtype].name);
    NEED(ac_dims_broadcast(&shape, &other, "masked_scatter"));
    T x = ac_c_flat(s, ac_c_expand(s, in[0], &shape)), rows = UN(nonzero, ac_c_flat(s, ac_c_expand(s, in[1], &shape)));
    if (!x || !rows) return NULL;
    int64_t n = rows->shape[0];
    if (in[2]->numel < n)
        REFUSE(AC_RUNTIME, "masked_scatter: %" PRId64 " elements are wanted, `source` has %" PRId64, n, in[2]->numel);
    T values = ac_c_slice(s, ac_c_flat(s, in[2]), 0, 0, n);
    return ac_c_reshape(s, ac_c_call(s, AC_OP_index_put, &over, 3, x, ac_c_select(s, rows, 1, 0), values), &shape);
}
