/* The view operators: each computes the sizes, strides and offset of its result over the same memory. */
#include "ops/views.h"

#include <inttypes.h>

#define ATTRS(name) const ac_attrs_##name *a = attrs

const ac_view_fn ac_views[AC_N_OPS] = {
#define VIEW(name, ...) [AC_OP_##name] = ac_view_##name,
#include "ops/ops.def"
};

ac_tensor *ac_view_alias(const ac_tensor *x, const void *attrs) {
    (void)attrs;
    return ac_tensor_alias(x);
}
ac_tensor *ac_view_piecewise(const ac_tensor *x, const void *attrs) { return ac_view_alias(x, attrs); }

/* A distance in the base's memory, as the same one if it lay row by row; -1 where it leads between the base's elements.
 * `digits` gets the steps along each of the base's dimensions. */
static int64_t distance_in_rows(const ac_tensor *base, const int *far_first, int64_t distance, int64_t *digits) {
    ac_dims shape = ac_shape_of(base), rows = ac_dims_contiguous(&shape);
    int64_t total = 0;
    for (int i = 0; i < base->ndim; i++) {
        int d = far_first[i];
        digits[d] = base->shape[d] == 1 ? 0 : distance / base->strides[d];
        distance -= digits[d] * base->strides[d];
        total += digits[d] * rows.v[d];
    }
    return distance ? -1 : total;
}

/* The base's dimensions, those whose elements lie farthest apart first. */
static void sort_far_first(const ac_tensor *base, int *dims) {
    for (int i = 0; i < base->ndim; i++) {
        int at = i;
        for (; at > 0 && base->strides[dims[at - 1]] < base->strides[i]; at--) dims[at] = dims[at - 1];
        dims[at] = i;
    }
}

bool ac_place_in_rows(const ac_tensor *t, const ac_tensor *base, ac_attrs_as_strided *at) {
    int far_first[AC_MAX_DIMS];
    int64_t last[AC_MAX_DIMS], steps[AC_MAX_DIMS]; /* of the view's last element in the base; along one of its dims */
    *at = (ac_attrs_as_strided){ac_shape_of(t), ac_strides_of(t), t->offset - base->offset};
    if (ac_is_contiguous(base) || t->numel == 0) return true;
    if (ac_overlaps_itself(base)) return false;
    sort_far_first(base, far_first);
    at->offset = distance_in_rows(base, far_first, at->offset, last);
    if (at->offset < 0) return false;
    for (int d = 0; d < t->ndim; d++) {
        at->stride.v[d] = t->shape[d] == 1 ? 0 : distance_in_rows(base, far_first, t->strides[d], steps);
        if (at->stride.v[d] < 0) return false;
        for (int b = 0; t->shape[d] > 1 && b < base->ndim; b++) last[b] += (t->shape[d] - 1) * steps[b];
    }
    for (int b = 0; b < base->ndim; b++)
        if (last[b] >= base->shape[b]) return false; /* it goes over an end, where rows are not neighbours */
    return true;
}

/* Goes through both shapes from the back. Adjacent old dimensions that are dense in memory form a
 * group, which may be cut into any new dimensions with the same product. */
bool ac_view_strides(const ac_tensor *t, const ac_dims *shape, ac_dims *strides) {
    *strides = ac_dims_contiguous(shape);
    if (t->numel == 0) return true;
    int64_t to = shape->n - 1;
    int d = t->ndim - 1;
    while (d >= 0) {
        int64_t inner = t->strides[d], size = t->shape[d], taken = 1;
        while (d > 0 && (t->shape[d - 1] == 1 || size == 1 || t->strides[d - 1] == size * inner)) {
            if (size == 1) inner = t->strides[d - 1];
            size *= t->shape[--d];
        }
        d--;
        for (; to >= 0 && (taken < size || shape->v[to] == 1); to--) {
            strides->v[to] = inner * taken;
            taken *= shape->v[to];
        }
        if (taken != size) return false;
    }
    return true;
}

ac_tensor *ac_view_view(const ac_tensor *x, const void *attrs) {
    ATTRS(size);
    ac_dims shape = a->size, strides;
    if (ac_dims_infer(&shape, x->numel, "view") < 0) return NULL;
    if (ac_view_strides(x, &shape, &strides)) return ac_tensor_view(x, &shape, &strides, x->offset);
    char from[AC_SHAPE_TEXT], to[AC_SHAPE_TEXT];
    return ac_fail_null(AC_RUNTIME,
                        "view: a tensor of shape %s with these strides cannot be seen as %s without a copy; "
                        "use reshape",
                        ac_shape_text(x, from), ac_dims_text(&shape, to));
}

ac_tensor *ac_view_expand(const ac_tensor *x, const void *attrs) {
    ATTRS(size);
    ac_dims shape = a->size, strides = {.n = a->size.n};
    int64_t lead = shape.n - x->ndim;
    char from[AC_SHAPE_TEXT], to[AC_SHAPE_TEXT];
    if (lead < 0)
        return ac_fail_null(AC_RUNTIME, "expand: %s has fewer dimensions than the tensor's shape %s",
                            ac_dims_text(&a->size, to), ac_shape_text(x, from));
    for (int64_t d = shape.n - 1; d >= 0; d--) {
        int64_t own = d >= lead ? x->shape[d - lead] : 1;
        if (shape.v[d] == -1 && d >= lead) shape.v[d] = own;
        if (shape.v[d] < 0 || (own != 1 && own != shape.v[d]))
            return ac_fail_null(AC_RUNTIME,
                                "expand: size %" PRId64 " in dimension %" PRId64 " does not fit the tensor's shape "
                                "%s; only sizes of 1 can grow",
                                a->size.v[d], d, ac_shape_text(x, from));
        if (own != shape.v[d] || x->ndim == 0) strides.v[d] = 0;
        else strides.v[d] = d >= lead ? x->strides[d - lead] : shape.v[d + 1] * strides.v[d + 1];
    }
    return ac_tensor_view(x, &shape, &strides, x->offset);
}

ac_tensor *ac_view_permute(const ac_tensor *x, const void *attrs) {
    ATTRS(size);
    ac_dims shape = {.n = x->ndim}, strides = {.n = x->ndim};
    uint32_t seen;
    if (a->size.n != x->ndim)
        return ac_fail_null(AC_RUNTIME, "permute: %" PRId64 " dimensions given for a tensor of %d", a->size.n, x->ndim);
    if (x->ndim > 0 && ac_dims_mask(&a->size, x->ndim, "permute", &seen) < 0) return NULL;
    for (int64_t d = 0; d < x->ndim; d++) {
        int64_t from = a->size.v[d] < 0 ? a->size.v[d] + x->ndim : a->size.v[d];
        shape.v[d] = x->shape[from], strides.v[d] = x->strides[from];
    }
    return ac_tensor_view(x, &shape, &strides, x->offset);
}

ac_tensor *ac_view_transpose(const ac_tensor *x, const void *attrs) {
    ATTRS(two_dims);
    int64_t d0 = a->dim0, d1 = a->dim1;
    if (ac_dim_wrap(&d0, x->ndim, "transpose") < 0 || ac_dim_wrap(&d1, x->ndim, "transpose") < 0) return NULL;
    ac_dims shape = ac_shape_of(x), strides = ac_strides_of(x);
    if (x->ndim) {
        shape.v[d0] = x->shape[d1], strides.v[d0] = x->strides[d1];
        shape.v[d1] = x->shape[d0], strides.v[d1] = x->strides[d0];
    }
    return ac_tensor_view(x, &shape, &strides, x->offset);
}

ac_tensor *ac_view_unsqueeze(const ac_tensor *x, const void *attrs) {
    ATTRS(one_dim);
    int64_t dim = a->dim;
    if (ac_dim_wrap(&dim, x->ndim + 1, "unsqueeze") < 0) return NULL;
    if (x->ndim == AC_MAX_DIMS)
        return ac_fail_null(AC_RUNTIME, "unsqueeze: tensors have at most %d dimensions", AC_MAX_DIMS);
    ac_dims shape = {.n = x->ndim + 1}, strides = {.n = x->ndim + 1};
    for (int64_t d = 0, from = 0; d <= x->ndim; d++) {
        bool here = d == dim;
        shape.v[d] = here ? 1 : x->shape[from];
        strides.v[d] = here ? (from < x->ndim ? x->shape[from] * x->strides[from] : 1) : x->strides[from];
        from += !here;
    }
    return ac_tensor_view(x, &shape, &strides, x->offset);
}

ac_tensor *ac_view_squeeze(const ac_tensor *x, const void *attrs) {
    ATTRS(maybe_dims);
    uint32_t mask;
    ac_dims shape = {.n = 0}, strides = {.n = 0};
    if (ac_dims_mask(&a->dim, x->ndim, "squeeze", &mask) < 0) return NULL;
    if (a->dim.n == 0) mask = 0; /* (): none, unlike in reductions */
    for (int d = 0; d < x->ndim; d++) {
        if (x->shape[d] == 1 && (mask & (1u << d))) continue;
        shape.v[shape.n++] = x->shape[d];
        strides.v[strides.n++] = x->strides[d];
    }
    return ac_tensor_view(x, &shape, &strides, x->offset);
}

ac_tensor *ac_view_select(const ac_tensor *x, const void *attrs) {
    ATTRS(select);
    int64_t dim = a->dim, index = a->index;
    if (x->ndim == 0) return ac_fail_null(AC_INDEX, "select: a 0-d tensor has no dimension to index");
    if (ac_dim_wrap(&dim, x->ndim, "select") < 0) return NULL;
    int64_t size = x->shape[dim];
    if (index < -size || index >= size)
        return ac_fail_null(AC_INDEX, "index %" PRId64 " is out of range for dimension %" PRId64 " of size %" PRId64,
                            index, dim, size);
    if (index < 0) index += size;
    ac_dims shape = {.n = 0}, strides = {.n = 0};
    for (int d = 0; d < x->ndim; d++) {
        if (d == dim) continue;
        shape.v[shape.n++] = x->shape[d];
        strides.v[strides.n++] = x->strides[d];
    }
    return ac_tensor_view(x, &shape, &strides, x->offset + index * x->strides[dim]);
}

ac_tensor *ac_view_diagonal(const ac_tensor *x, const void *attrs) {
    ATTRS(diagonal);
    int64_t row = a->dim1, col = a->dim2, most = INT64_MAX / 2;
    if (ac_dim_wrap(&row, x->ndim, "diagonal") < 0 || ac_dim_wrap(&col, x->ndim, "diagonal") < 0) return NULL;
    if (row == col) return ac_fail_null(AC_RUNTIME, "diagonal: dim1 and dim2 must differ, got %" PRId64 " twice", row);
    int64_t offset = a->offset < -most ? -most : a->offset > most ? most : a->offset;
    int64_t rows = x->shape[row] + (offset < 0 ? offset : 0), cols = x->shape[col] - (offset > 0 ? offset : 0);
    int64_t length = rows < cols ? rows : cols, at = x->offset;
    ac_dims shape = {.n = 0}, strides = {.n = 0};
    for (int d = 0; d < x->ndim; d++) {
        if (d == row || d == col) continue;
        shape.v[shape.n++] = x->shape[d];
        strides.v[strides.n++] = x->strides[d];
    }
    shape.v[shape.n++] = length > 0 ? length : 0;
    strides.v[strides.n++] = x->strides[row] + x->strides[col];
    if (length > 0) at += offset < 0 ? -offset * x->strides[row] : offset * x->strides[col];
    return ac_tensor_view(x, &shape, &strides, at);
}

static int64_t clip(int64_t i, int64_t size) {
    if (i < 0) i += size;
    return i < 0 ? 0 : i > size ? size : i;
}

ac_tensor *ac_view_slice(const ac_tensor *x, const void *attrs) {
    ATTRS(slice);
    int64_t dim = a->dim;
    if (x->ndim == 0) return ac_fail_null(AC_INDEX, "slice: a 0-d tensor has no dimension to slice");
    if (ac_dim_wrap(&dim, x->ndim, "slice") < 0) return NULL;
    if (a->step < 1) return ac_fail_null(AC_VALUE, "slice: step must be 1 or more, got %" PRId64, a->step);
    int64_t size = x->shape[dim], start = a->start == AC_ABSENT ? 0 : clip(a->start, size);
    int64_t end = a->end == AC_ABSENT ? size : clip(a->end, size);
    ac_dims shape = ac_shape_of(x), strides = ac_strides_of(x);
    shape.v[dim] = end > start ? (end - start - 1) / a->step + 1 : 0;
    strides.v[dim] *= a->step;
    return ac_tensor_view(x, &shape, &strides, x->offset + start * x->strides[dim]);
}

ac_tensor *ac_view_unfold(const ac_tensor *x, const void *attrs) {
    ATTRS(unfold);
    int64_t dim = a->dim, n = 1, along = 1;
    if (ac_dim_wrap(&dim, x->ndim, "unfold") < 0) return NULL;
    ac_dims shape = ac_shape_of(x), strides = ac_strides_of(x);
    if (x->ndim) n = shape.v[dim], along = strides.v[dim];
    if (a->size < 0 || a->size > n)
        return ac_fail_null(AC_RUNTIME,
                            "unfold: a window of %" PRId64 " does not fit dimension %" PRId64 " of size %" PRId64,
                            a->size, a->dim, n);
    if (a->step < 1) return ac_fail_null(AC_RUNTIME, "unfold: `step` must be above 0, got %" PRId64, a->step);
    if (shape.n == AC_MAX_DIMS)
        return ac_fail_null(AC_RUNTIME, "unfold: the result has more than %d dimensions", AC_MAX_DIMS);
    if (x->ndim) shape.v[dim] = (n - a->size) / a->step + 1, strides.v[dim] = along * a->step;
    shape.v[shape.n++] = a->size;
    strides.v[strides.n++] = along;
    return ac_tensor_view(x, &shape, &strides, x->offset);
}

ac_tensor *ac_view_as_strided(const ac_tensor *x, const void *attrs) {
    ATTRS(as_strided);
    int64_t first = a->offset == AC_ABSENT ? x->offset : a->offset, last = first, numel = ac_dims_numel(&a->size);
    if (numel < 0) return NULL;
    if (a->size.n != a->stride.n)
        return ac_fail_null(AC_RUNTIME, "as_strided: `size` has %" PRId64 " entries and `stride` %" PRId64, a->size.n,
                            a->stride.n);
    for (int64_t d = 0; d < a->size.n; d++) {
        int64_t reach;
        if (a->stride.v[d] < 0)
            return ac_fail_null(AC_RUNTIME, "as_strided: strides must be 0 or more, got %" PRId64, a->stride.v[d]);
        if (numel && (__builtin_mul_overflow(a->stride.v[d], a->size.v[d] - 1, &reach) ||
                      __builtin_add_overflow(last, reach, &last)))
            return ac_fail_null(AC_RUNTIME, "as_strided: the view reaches outside its storage");
    }
    int64_t room = x->storage->bytes / ac_itemsize(x->dtype);
    if (first < 0 || first > room || (numel && last >= room))
        return ac_fail_null(AC_RUNTIME, "as_strided: the view ends at element %" PRId64 " and the storage has %" PRId64,
                            last, room);
    return ac_tensor_view(x, &a->size, &a->stride, first);
}
