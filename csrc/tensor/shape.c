/* Shape algebra: broadcasting, reshaping, reducing, and shapes as text for messages. */
#include "tensor/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int64_t ac_dims_numel(const ac_dims *d) {
    int64_t numel = 1;
    bool empty = false;
    for (int64_t i = 0; i < d->n; i++) {
        if (d->v[i] < 0)
            return ac_fail(AC_RUNTIME, "negative size %" PRId64 " in dimension %" PRId64 ": sizes must be 0 or more",
                           d->v[i], i);
        if (d->v[i] == 0) empty = true;
        else if (__builtin_mul_overflow(numel, d->v[i], &numel) || numel > (INT64_MAX >> 4)) {
            char text[AC_SHAPE_TEXT];
            return ac_fail(AC_RUNTIME,
                           "a tensor of shape %s has more elements than memory can "
                           "hold",
                           ac_dims_text(d, text));
        }
    }
    return empty ? 0 : numel;
}

bool ac_dims_equal(const ac_dims *a, const ac_dims *b) {
    return a->n == b->n && memcmp(a->v, b->v, (size_t)a->n * sizeof *a->v) == 0;
}

ac_dims ac_dims_contiguous(const ac_dims *shape) {
    ac_dims strides = {.n = shape->n};
    int64_t stride = 1;
    for (int64_t i = shape->n - 1; i >= 0; i--) {
        strides.v[i] = stride;
        stride *= shape->v[i] > 1 ? shape->v[i] : 1;
    }
    return strides;
}

int ac_dims_broadcast(ac_dims *shape, const ac_dims *with, const char *what) {
    ac_dims out = {.n = shape->n > with->n ? shape->n : with->n};
    for (int64_t i = 1; i <= out.n; i++) {
        int64_t a = i <= shape->n ? shape->v[shape->n - i] : 1;
        int64_t b = i <= with->n ? with->v[with->n - i] : 1;
        if (a != b && a != 1 && b != 1) {
            char left[AC_SHAPE_TEXT], right[AC_SHAPE_TEXT];
            return ac_fail(AC_RUNTIME,
                           "%s: shapes %s and %s do not broadcast: sizes %" PRId64 " and %" PRId64
                           " differ in dimension %" PRId64 " from the end and neither is 1",
                           what, ac_dims_text(shape, left), ac_dims_text(with, right), a, b, i);
        }
        out.v[out.n - i] = a == 1 ? b : a;
    }
    *shape = out;
    return 0;
}

int ac_dim_wrap(int64_t *dim, int64_t n, const char *what) {
    int64_t range = n > 0 ? n : 1;
    if (*dim < -range || *dim >= range)
        return ac_fail(AC_INDEX,
                       "%s: dimension %" PRId64 " is out of range for a tensor of %" PRId64
                       " dimensions (expected %" PRId64 " to %" PRId64 ")",
                       what, *dim, n, -range, range - 1);
    if (*dim < 0) *dim += range;
    return 0;
}

const char *ac_index_hint(int64_t i, int64_t size) {
    return i < 0 && i >= -size ? "; here indices below 0 do not count from the end: add the size to them" : "";
}

int ac_dims_mask(const ac_dims *dims, int64_t n, const char *what, uint32_t *mask) {
    *mask = 0;
    if (dims->n <= 0) *mask = n > 0 ? (uint32_t)((1u << n) - 1u) : 0;
    for (int64_t i = 0; i < dims->n; i++) {
        int64_t d = dims->v[i];
        AC_TRY(ac_dim_wrap(&d, n, what));
        if (*mask & (1u << d)) return ac_fail(AC_RUNTIME, "%s: dimension %" PRId64 " appears twice in `dim`", what, d);
        *mask |= 1u << d;
    }
    return 0;
}

int ac_dims_infer(ac_dims *shape, int64_t numel, const char *what) {
    char text[AC_SHAPE_TEXT];
    int64_t known = 1, hole = -1;
    ac_dims filled = *shape;
    for (int64_t i = 0; i < shape->n; i++) {
        if (shape->v[i] != -1) continue;
        if (hole >= 0)
            return ac_fail(AC_RUNTIME,
                           "%s: shape %s has more than one -1; only one size can be "
                           "inferred",
                           what, ac_dims_text(shape, text));
        hole = i;
        filled.v[i] = 1;
    }
    known = ac_dims_numel(&filled);
    if (known < 0) return -1;
    if (hole >= 0) {
        if (known == 0)
            return ac_fail(AC_RUNTIME,
                           "%s: -1 in shape %s cannot be inferred because another "
                           "size is 0",
                           what, ac_dims_text(shape, text));
        filled.v[hole] = numel / known;
        known *= filled.v[hole];
    }
    if (known != numel)
        return ac_fail(AC_RUNTIME, "%s: shape %s does not hold the tensor's %" PRId64 " elements", what,
                       ac_dims_text(shape, text), numel);
    *shape = filled;
    return 0;
}

const char *ac_dims_text(const ac_dims *d, char *buffer) {
    int used = snprintf(buffer, AC_SHAPE_TEXT, "[");
    for (int64_t i = 0; i < d->n && used < AC_SHAPE_TEXT - 24; i++)
        used += snprintf(buffer + used, (size_t)(AC_SHAPE_TEXT - used), i ? ", %" PRId64 : "%" PRId64, d->v[i]);
    (void)snprintf(buffer + used, (size_t)(AC_SHAPE_TEXT - used), "]");
    return buffer;
}
