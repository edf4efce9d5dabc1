/* Composite operators that resample one dimension after the other: padding, interpolation, means over channels. */
#include "dispatch/compose_read.h"

#include "dispatch/resample_tables.h"

/* -- padding ---------------------------------------------------------------------------------------------- */

enum { CONSTANT, REFLECT, REPLICATE, CIRCULAR };
static const int64_t most_padding = (int64_t)1 << 48;

/* Values around x; negative numbers cut. The lists begin with the last dimension. */
static T pad_constant(ac_scratch *s, T x, const ac_attrs_pad *a) {
    ac_dims shape, given;
    int64_t at = 0;
    for (int64_t i = 0, d = x->ndim - 1; i < a->before.n && x; i++, d--) {
        int64_t front = a->before.v[i] < 0 ? -a->before.v[i] : 0, back = a->after.v[i] < 0 ? -a->after.v[i] : 0;
        ac_attrs_narrow part = {d, front, x->shape[d] - front - back};
        if (front || back) x = ac_c_call(s, AC_OP_narrow, &part, 1, x);
    }
    if (!x) return NULL;
    given = shape = ac_shape_of(x);
    for (int64_t i = 0, d = x->ndim - 1; i < a->before.n; i++, d--)
        shape.v[d] += (a->before.v[i] > 0 ? a->before.v[i] : 0) + (a->after.v[i] > 0 ? a->after.v[i] : 0);
    if (ac_dims_equal(&shape, &given)) return UN(clone, x);
    ac_attrs_full full = {shape, a->value, x->dtype, ac_device_of(x)};
    T room = ac_c_call(s, AC_OP_full, &full, 0);
    if (!room) return NULL;
    for (int64_t i = 0, d = x->ndim - 1; i < a->before.n && x->numel; i++, d--) /* nothing may lie behind the memory */
        at += (a->before.v[i] > 0 ? a->before.v[i] : 0) * room->strides[d];
    ac_attrs_as_strided_scatter into = {given, ac_strides_of(room), at, 0};
    return ac_c_call(s, AC_OP_as_strided_scatter, &into, 2, room, x);
}

/* Where the value at position p of a padded dimension comes from. */
static int64_t source_of(int64_t p, int64_t size, int64_t mode) {
    if (mode == REPLICATE) return p < 0 ? 0 : p < size ? p : size - 1;
    int64_t off = size - 1 - (p < 0 ? -p : p);
    return size - 1 - (off < 0 ? -off : off);
}

static T positions(ac_scratch *s, int64_t n, ac_device device, int64_t first, int64_t size, int64_t start,
                   int64_t mode) {
    ac_dims line = {1, {n > 0 ? n : 0}};
    ac_attrs_to_device to = {device, 0};
    T at = ac_c_keep(s, ac_tensor_new(AC_int64, &line));
    for (int64_t i = 0; i < line.v[0] && at; i++) {
        int64_t p = first + i, whole = size > 0 ? size : 1;
        ((int64_t *)ac_data(at))[i] = mode == CIRCULAR ? start + (p % whole + whole) % whole : source_of(p, size, mode);
    }
    return device == AC_CPU ? at : ac_c_call(s, AC_OP_to_device, &to, 1, at);
}

/* Values to repeat or to mirror, and channels; samples there may be none of. */
static int need_values(T x, int64_t n, int64_t mode, const char *name) {
    char text[AC_SHAPE_TEXT];
    for (int64_t d = x->ndim - n - 1; mode != CIRCULAR && d < x->ndim; d++)
        if (x->shape[d] == 0)
            return ac_fail(AC_RUNTIME,
                           "pad: %s padding needs values in all dimensions but that of the samples, got shape %s", name,
                           ac_shape_text(x, text));
    return 0;
}

/* One dimension padded with values of its own. */
static T pad_with_own(ac_scratch *s, T x, int64_t d, int64_t before, int64_t after, int64_t mode) {
    int64_t size = x->shape[d], most = before > after ? before : after, first = -before, n = size + before + after;
    int64_t start = 0;
    if (n < (mode != CIRCULAR))
        REFUSE(AC_RUNTIME, "pad: %" PRId64 " and %" PRId64 " leave %" PRId64 " of %" PRId64 " values", before, after, n,
               size);
    if (mode == REFLECT && most > size - 1)
        REFUSE(AC_RUNTIME,
               "pad: reflect padding of %" PRId64 " is more than the %" PRId64 " that %" PRId64 " values allow", most,
               size - 1, size);
    if (mode == CIRCULAR) { /* negative numbers cut first, and what is left repeats */
        start = before < 0 ? -before : 0, size -= start + (after < 0 ? -after : 0);
        if (most > (size > 0 ? size : 0))
            REFUSE(AC_RUNTIME,
                   "pad: circular padding of %" PRId64 " is more than the %" PRId64 " values that it repeats", most,
                   size > 0 ? size : 0);
        first = before > 0 ? -before : 0;
    }
    ac_attrs_index_dim along = {d};
    return ac_c_call(s, AC_OP_index_select, &along, 2, x, positions(s, n, ac_device_of(x), first, size, start, mode));
}

COMPOSE(pad) {
    ATTRS(pad);
    T x = in[0];
    static const char *modes[] = {"constant", "reflect", "replicate", "circular"};
    char text[AC_SHAPE_TEXT];
    int64_t n = a->before.n;
    if (n != a->after.n || n > x->ndim)
        REFUSE(AC_RUNTIME, "pad: %" PRId64 " pairs of numbers do not fit shape %s", n, ac_shape_text(x, text));
    for (int64_t i = 0; i < n; i++)
        if (a->before.v[i] > most_padding || a->before.v[i] < -most_padding || a->after.v[i] > most_padding ||
            a->after.v[i] < -most_padding)
            REFUSE(AC_RUNTIME, "pad: dimension %" PRId64 " is too large", x->ndim - 1 - i);
    if (a->mode == CONSTANT) return pad_constant(s, x, a);
    if ((n != x->ndim - 1 && n != x->ndim - 2) || n < 1 || n > 3)
        REFUSE(AC_NOT_IMPLEMENTED, "pad: %s padding of %" PRId64 " dimensions does not fit shape %s", modes[a->mode], n,
               ac_shape_text(x, text));
    NEED(need_values(x, n, a->mode, modes[a->mode]));
    if (a->mode != CIRCULAR) x = ac_c_piecewise(s, x);
    for (int64_t i = 0; i < n && x; i++)
        x = pad_with_own(s, x, in[0]->ndim - 1 - i, a->before.v[i], a->after.v[i], a->mode);
    return x;
}

/* -- interpolation ---------------------------------------------------------------------------------------- */

enum { NEAREST, NEAREST_EXACT, LINEAR, BILINEAR, TRILINEAR, BICUBIC, AREA };

static ac_table table_of(const ac_attrs_interpolate *a, int64_t size, int64_t d) {
    ac_table t = {.size = size, .out = a->size.v[d], .scale = ac_scalar_double(a->scale[d])};
    if (a->scale[d].kind == AC_NONE) t.scale = (double)size / (double)t.out;
    if (a->mode == AREA) return (ac_table){.kind = AC_TABLE_PARTS, .size = size, .out = t.out};
    if (a->mode == NEAREST || a->mode == NEAREST_EXACT) {
        t.kind = AC_TABLE_NEAREST, t.half = a->mode == NEAREST_EXACT ? 0.5 : 0;
        return t;
    }
    if (a->align_corners) t.scale = t.out > 1 ? (double)(size - 1) / (double)(t.out - 1) : 0;
    if (a->antialias) t.kind = AC_TABLE_SMOOTHED, t.cubic = a->mode == BICUBIC;
    else t.kind = a->mode == BICUBIC ? AC_TABLE_CUBIC : AC_TABLE_LINEAR, t.corners = a->align_corners;
    return t;
}

/* Each result is one value: for dtypes that are not summed. */
static T picked(ac_scratch *s, T x, const ac_attrs_interpolate *a) {
    for (int64_t d = 0; d < a->size.n && x; d++) {
        ac_attrs_index_dim along = {d + 2};
        ac_table t = table_of(a, x->shape[d + 2], d);
        x = ac_c_call(s, AC_OP_index_select, &along, 2, x, ac_c_table_index(s, x, &t));
    }
    return x;
}

/* Weights are whole numbers of 16 bits, as in images' usual libraries, and each dimension is rounded to bytes, the last
 * one first. */
static T of_bytes(ac_scratch *s, T x, const ac_attrs_interpolate *a) {
    for (int64_t d = a->size.n - 1; d >= 0 && x; d--) {
        ac_table t = table_of(a, x->shape[d + 2], d);
        if (t.size == t.out && t.kind != AC_TABLE_SMOOTHED) continue;
        t.bits = ac_table_bits(&t);
        if (t.bits < 0) return NULL;
        double unit = (double)((int64_t)1 << t.bits);
        T sum = ac_c_resample(s, ac_c_cast(s, x, AC_float64), d + 2, &t);
        T whole = UN(floor, DIV(PLUS(sum, unit / 2), NUM(unit)));
        x = ac_c_cast(s, ac_c_clamp(s, whole, 0, 255), AC_uint8);
    }
    return x;
}

COMPOSE(interpolate) {
    ATTRS(interpolate);
    T x = in[0];
    bool whole = a->mode == NEAREST || a->mode == NEAREST_EXACT;
    char given[AC_SHAPE_TEXT], wanted[AC_SHAPE_TEXT];
    if (a->size.n != x->ndim - 2 || a->size.n > 3)
        REFUSE(AC_RUNTIME, "interpolate: sizes %s do not fit shape %s", ac_dims_text(&a->size, wanted),
               ac_shape_text(x, given));
    for (int64_t d = 0; d < a->size.n; d++)
        if (a->size.v[d] < 1 || x->shape[d + 2] < 1)
            REFUSE(AC_RUNTIME, "interpolate: sizes must be 1 or more, got %s and %s", ac_shape_text(x, given),
                   ac_dims_text(&a->size, wanted));
    if (!ac_is_floating(x->dtype) && whole) return picked(s, x, a);
    if (x->dtype == AC_uint8 && (a->mode == BILINEAR || a->mode == BICUBIC)) return of_bytes(s, x, a);
    if (a->mode == AREA) x = ac_c_piecewise(s, x); /* as torch's, which is a pooling */
    for (int64_t d = 0; d < a->size.n && x; d++) {
        ac_table t = table_of(a, x->shape[d + 2], d);
        x = ac_c_resample(s, x, d + 2, &t);
    }
    return x;
}

/* x / (k + alpha * mean of x^2 over neighbouring channels) ^ beta */
COMPOSE(local_response_norm) {
    ATTRS(local_response);
    T x = in[0], squares = MUL(x, x);
    if (x->ndim < 3) REFUSE(AC_VALUE, "local_response_norm: expected at least 3 dimensions, got %d", x->ndim);
    if (a->size < 1) REFUSE(AC_RUNTIME, "local_response_norm: `size` must be 1 or more, got %" PRId64, a->size);
    ac_attrs_pad around = {{x->ndim - 1, {0}}, {x->ndim - 1, {0}}, CONSTANT, {AC_FLOAT, {0}}};
    around.before.v[x->ndim - 2] = a->size / 2, around.after.v[x->ndim - 2] = (a->size - 1) / 2;
    ac_table t = {.kind = AC_TABLE_WINDOWS,
                  .size = x->shape[1] + a->size - 1,
                  .out = x->shape[1],
                  .window = a->size,
                  .step = 1,
                  .counts_padding = 1};
    T mean = ac_c_resample(s, ac_c_call(s, AC_OP_pad, &around, 1, squares), 1, &t);
    return DIV(x, POW(ADD(TIMES(mean, a->alpha), REAL(a->k)), REAL(a->beta)));
}
