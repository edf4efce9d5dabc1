/* Composite operators that normalise, and that drop at random. */
#include "dispatch/compose.h"

#include "autograd/node.h"

#include <math.h>

/* x / sqrt(mean(x^2) + eps) * weight, in float32; under autocast it stays float32. */
COMPOSE(rms_norm) {
    ATTRS(rms_norm);
    const ac_dims *last = &a->normalized_shape;
    int64_t lead = in[0]->ndim - last->n;
    ac_dims shape = ac_shape_of(in[0]), over = {.n = last->n}, given = in[1] ? ac_shape_of(in[1]) : *last;
    char text[AC_SHAPE_TEXT], want[AC_SHAPE_TEXT];
    bool fits = last->n > 0 && lead >= 0;
    for (int64_t d = 0; d < last->n && fits; d++) fits = shape.v[lead + d] == last->v[d], over.v[d] = lead + d;
    if (!fits)
        REFUSE(AC_RUNTIME, "rms_norm: input %s does not end in normalized_shape %s", ac_dims_text(&shape, text),
               ac_dims_text(last, want));
    if (!ac_dims_equal(&given, last))
        REFUSE(AC_RUNTIME, "rms_norm: weight %s is not of normalized_shape %s", ac_dims_text(&given, text),
               ac_dims_text(last, want));
    T planned = UN(wide, in[0]), x = ac_c_wide(s, planned);
    if (!x) return NULL;
    double spacing = x->dtype == AC_float64 ? 0x1p-52 : 0x1p-23;
    T eps = REAL(a->eps.kind == AC_NONE ? spacing : ac_scalar_double(a->eps));
    T y = MUL(x, UN(rsqrt, ADD(ac_c_mean(s, MUL(x, x), &over, true), eps)));
    return ac_c_cast(s, in[1] ? MUL(y, in[1]) : y, planned->dtype);
}

/* -- running statistics -------------------------------------------------------------------------------------- */

/* own * (1 - momentum) + momentum * the mean of `now` over the samples, off the tape. */
static int move_toward(ac_scratch *s, T own, T now, double momentum) {
    ac_dims samples = {1, {0}};
    ac_attrs_alpha part = {{AC_FLOAT, .f = momentum}};
    T scaled[2] = {own, NUM(1 - momentum)}, added[2] = {own, ac_c_mean(s, now, &samples, false)};
    if (s->failed) return -1;
    AC_TRY(ac_call_into(AC_OP_mul, scaled, 2, NULL, own));
    return ac_call_into(AC_OP_add, added, 2, &part, own);
}

static int track(ac_scratch *s, T x, T mean, T var, double momentum) {
    ac_grad_mode mode = ac_mode;
    ac_attrs_var spread = {.dim = {.n = x->ndim - 2}, .correction = {AC_INT, {1}}};
    for (int d = 2; d < x->ndim; d++) spread.dim.v[d - 2] = d;
    ac_mode.no_grad = true;
    T found = ac_c_wide(s, x);
    T middle = ac_c_mean(s, found, &spread.dim, false), width = ac_c_call(s, AC_OP_var, &spread, 1, found);
    int failed = move_toward(s, mean, middle, momentum);
    if (!failed) failed = move_toward(s, var, width, momentum);
    ac_mode = mode;
    return failed;
}

static int need_statistics(const ac_tensor *x, const ac_tensor *mean, const ac_tensor *var) {
    if (!mean != !var) return ac_fail(AC_VALUE, "instance_norm: running_mean and running_var go together");
    if (!mean || (mean->ndim == 1 && var->ndim == 1 && mean->shape[0] == x->shape[1] && var->shape[0] == x->shape[1] &&
                  mean->dtype == var->dtype))
        return 0;
    return ac_fail(AC_RUNTIME, "instance_norm: running statistics must be [%" PRId64 "] and of one dtype", x->shape[1]);
}

COMPOSE(instance_norm_tracked) {
    ATTRS(instance_norm);
    T x = in[0], out[AC_MAX_OUT];
    char text[AC_SHAPE_TEXT];
    int64_t each = 1;
    if (!a->use_input_stats) {
        ac_attrs_batch_norm how = {0, a->momentum, a->eps};
        T all[5] = {x, in[1] ? in[1] : ABSENT, in[2] ? in[2] : ABSENT, in[3] ? in[3] : ABSENT, in[4] ? in[4] : ABSENT};
        return ac_c_call_many(s, AC_OP_batch_norm, &how, all, 5, out) < 0 ? NULL : out[0];
    }
    for (int d = 2; d < x->ndim; d++) each *= x->shape[d];
    if (each == 1)
        REFUSE(AC_VALUE,
               "instance_norm: needs more than 1 value per channel, got shape %s; it norms each sample by itself, over "
               "its positions, so leave it out where there is only one",
               ac_shape_text(x, text));
    if (x->ndim < 3) REFUSE(AC_RUNTIME, "instance_norm: expected at least 3 dimensions ([N, C, ...]), got %d", x->ndim);
    NEED(need_statistics(x, in[1], in[2]));
    ac_attrs_group_norm how = {x->shape[1], a->eps};
    T y = ac_c_call(s, AC_OP_instance_norm, &how, 3, x, in[3] ? in[3] : ABSENT, in[4] ? in[4] : ABSENT);
    if (in[1] && y) NEED(track(s, x, in[1], in[2], a->momentum));
    return y;
}

/* -- dropping whole channels ------------------------------------------------------------------------------------ */

/* One for what is kept, scaled, and zero for what is dropped, in the first `lead` dimensions of x. */
static T kept_of(ac_scratch *s, T x, int64_t lead, double p) {
    ac_dims shape = {.n = x->ndim};
    ac_attrs_dropout how = {p, 1};
    for (int64_t d = 0; d < x->ndim; d++) shape.v[d] = d < lead ? x->shape[d] : 1;
    return ac_c_call(s, AC_OP_dropout, &how, 1, ac_c_full(s, &shape, 1, x->dtype, ac_device_of(x)));
}

static int need_share(const char *what, double p) {
    if (p >= 0 && p <= 1) return 0;
    return ac_fail(AC_VALUE, "%s: `p` must be between 0 and 1, got %g", what, p);
}

/* `lead` dimensions index the channels; at most as many as x has. */
static T drop_channels(ac_scratch *s, T x, const ac_attrs_dropout *a, int64_t lead, const char *what) {
    NEED(need_share(what, a->p));
    if (lead > x->ndim) REFUSE(AC_RUNTIME, "%s: needs dimensions [N, C, ...], got %d", what, x->ndim);
    if (!a->training || a->p == 0) return x;
    return MUL(x, kept_of(s, x, lead, a->p));
}
/* torch's rules for other ranks: one of two dimensions is [C, L] for dropout1d; dropout2d takes the first two of any;
   dropout3d takes all but [N, C, D, H, W] as one sample. */
COMPOSE(dropout1d) {
    if (in[0]->ndim != 2 && in[0]->ndim != 3)
        REFUSE(AC_RUNTIME, "dropout1d: needs [C, L] or [N, C, L], got %d dimensions", in[0]->ndim);
    return drop_channels(s, in[0], attrs, in[0]->ndim - 1, "dropout1d");
}
COMPOSE(dropout2d) { return drop_channels(s, in[0], attrs, 2, "dropout2d"); }
COMPOSE(dropout3d) { return drop_channels(s, in[0], attrs, in[0]->ndim == 5 ? 2 : 1, "dropout3d"); }
COMPOSE(feature_dropout) { return drop_channels(s, in[0], attrs, 2, "feature_dropout"); }

static T alpha_drop(ac_scratch *s, T x, const ac_attrs_dropout *a, int64_t lead, const char *what) {
    const double low = -1.0507009873554805 * 1.6732632423543772, p = a->p;
    NEED(need_share(what, p));
    if (!a->training || p == 0) return x;
    double scale = p == 1 ? 0 : pow((1 - p) * (1 + p * low * low), -0.5);
    T kept = BIN(ne, kept_of(s, x, lead, p), NUM(0));
    return SUB(MUL(WHERE(kept, x, REAL(low)), REAL(scale)), REAL(scale * p * low));
}
COMPOSE(alpha_dropout) { return alpha_drop(s, in[0], attrs, in[0]->ndim, "alpha_dropout"); }
COMPOSE(feature_alpha_dropout) {
    ATTRS(dropout);
    if (a->training && in[0]->ndim < 2)
        REFUSE(AC_RUNTIME, "feature_alpha_dropout: needs at least 2 dimensions, got %d", in[0]->ndim);
    return alpha_drop(s, in[0], a, 2, "feature_alpha_dropout");
}
