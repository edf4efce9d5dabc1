/* Shape rules of attention. */
#include "infer.h"

#define ATTRS(name) const ac_attrs_##name *a = i->attrs

static int same_lead(const ac_infer *i, int first, int other) {
    const ac_tensor *x = i->in[first], *y = i->in[other];
    bool good = x->ndim == y->ndim && x->ndim >= 2;
    for (int d = 0; good && d + 2 < x->ndim; d++) good = x->shape[d] == y->shape[d];
    if (good) return 0;
    char xt[AC_SHAPE_TEXT], yt[AC_SHAPE_TEXT];
    return ac_fail(
        AC_RUNTIME, "%s: `%s` %s and `%s` %s must have equally many dimensions, all but the last two the same",
        i->info->python, ac_input_name(i, first), ac_shape_text(x, xt), ac_input_name(i, other), ac_shape_text(y, yt));
}

static int need_lines(const ac_infer *i, int input) {
    const ac_tensor *x = i->in[input];
    if (x->shape[x->ndim - 1] <= 1 || x->strides[x->ndim - 1] == 1) return 0;
    return ac_fail(AC_RUNTIME, "%s: `%s` must be contiguous in its last dimension", i->info->python,
                   ac_input_name(i, input));
}

/* query, key, value and mask, the first of them being input `at` */
static int check(ac_infer *i, int at) {
    const ac_tensor *q = i->in[at], *k = i->in[at + 1], *v = i->in[at + 2], *mask = i->in[at + 3];
    for (int n = 0; n < 3; n++) {
        AC_TRY(ac_need_floating(i, at + n));
        AC_TRY(same_lead(i, at, at + n));
        AC_TRY(need_lines(i, at + n));
        if (i->low == AC_NO_DTYPE) AC_TRY(ac_need_same_dtype(i, at, at + n));
    }
    int last = q->ndim - 1;
    ac_dims keys = ac_shape_of(k), values = ac_shape_of(v), scores = ac_shape_of(q);
    keys.v[last] = q->shape[last], values.v[last - 1] = k->shape[last - 1], scores.v[last] = k->shape[last - 1];
    AC_TRY(ac_need_shape(i, at + 1, &keys));
    AC_TRY(ac_need_shape(i, at + 2, &values));
    i->compute = i->low == AC_NO_DTYPE ? q->dtype : (ac_dtype)i->low;
    if (!mask) return 0;
    if (mask->dtype != AC_bool) AC_TRY(ac_need_floating(i, at + 3));
    return ac_need_shape(i, at + 3, &scores);
}

static int out_dtype(const ac_infer *i, int64_t asked, ac_dtype *dtype) {
    *dtype = asked == AC_NO_DTYPE ? i->compute : (ac_dtype)asked;
    if (ac_is_floating(*dtype)) return 0;
    return ac_fail(AC_RUNTIME, "%s: `out_dtype` must be floating point, got %s", i->info->python,
                   ac_dtypes[*dtype].name);
}

int ac_infer_fused_attention(ac_infer *i) {
    ATTRS(fused_attention);
    AC_TRY(check(i, 0));
    AC_TRY(out_dtype(i, a->out_dtype, &i->out[0].dtype));
    i->out[0].shape = ac_shape_of(i->in[0]);
    i->out[0].shape.v[i->in[0]->ndim - 1] = i->in[2]->shape[i->in[2]->ndim - 1];
    return 0;
}

int ac_infer_fused_attention_backward(ac_infer *i) {
    ATTRS(fused_attention);
    AC_TRY(check(i, 1));
    ac_dims shape = ac_shape_of(i->in[1]);
    shape.v[shape.n - 1] = i->in[3]->shape[shape.n - 1];
    AC_TRY(ac_need_floating(i, 0));
    AC_TRY(ac_need_shape(i, 0, &shape));
    AC_TRY(need_lines(i, 0));
    for (int n = 0; n < 3; n++) {
        AC_TRY(out_dtype(i, a->out_dtype, &i->out[n].dtype));
        i->out[n].shape = ac_shape_of(i->in[n + 1]);
    }
    return 0;
}
