/* Composite elementwise operators. */
#include "dispatch/compose_read.h"

#include <math.h>

/* `bound`, of x's dtype, where x is beyond it; nan, which has no gradient, where either is nan. The gradient is x's
 * where they are equal. */
static T bounded(ac_scratch *s, T x, T bound, bool below) {
    if (!x || !bound) return NULL;
    T beyond = below ? BIN(lt, x, bound) : BIN(gt, x, bound);
    if (!ac_is_floating(x->dtype)) return WHERE(beyond, bound, x);
    T inside = below ? BIN(ge, x, bound) : BIN(le, x, bound);
    return WHERE(beyond, bound, WHERE(inside, x, NUM(NAN)));
}

/* Without a gradient where it does not lie below `max`. */
static T below_max(ac_scratch *s, T min, T max) {
    return ac_is_floating(min->dtype) ? WHERE(BIN(lt, min, max), min, ac_c_detach(s, min)) : min;
}

COMPOSE(clamp_tensor) {
    if (!in[1] && !in[2]) REFUSE(AC_RUNTIME, "clamp: give `min`, `max` or both");
    ac_dtype to = ac_result_type(in, 3); /* bounds wrap in it as x does */
    T y = ac_c_cast(s, in[0], to), min = in[1] ? ac_c_cast(s, in[1], to) : NULL;
    T max = in[2] ? ac_c_cast(s, in[2], to) : NULL;
    if (s->failed) return NULL;
    if (min) y = bounded(s, y, max ? below_max(s, min, max) : min, true);
    return max ? bounded(s, y, max, false) : y;
}

COMPOSE(clamp_min_tensor) { return ac_c_call(s, AC_OP_clamp_tensor, NULL, 3, in[0], in[1], ABSENT); }
COMPOSE(clamp_max_tensor) { return ac_c_call(s, AC_OP_clamp_tensor, NULL, 3, in[0], ABSENT, in[1]); }
COMPOSE(clamp_min) {
    ATTRS(value);
    ac_attrs_clamp bounds = {a->value, {.kind = AC_NONE}};
    return ac_c_call(s, AC_OP_clamp, &bounds, 1, in[0]);
}
COMPOSE(clamp_max) {
    ATTRS(value);
    ac_attrs_clamp bounds = {{.kind = AC_NONE}, a->value};
    return ac_c_call(s, AC_OP_clamp, &bounds, 1, in[0]);
}

COMPOSE(masked_fill_tensor) {
    T value = in[2];
    if (value->ndim)
        REFUSE(AC_RUNTIME, "masked_fill: `value` must be a number or a 0-d tensor, got %d dimensions", value->ndim);
    if (in[1]->dtype != AC_bool)
        REFUSE(AC_RUNTIME, "masked_fill: `mask` must be bool, got %s", ac_dtypes[in[1]->dtype].name);
    NEED(ac_number_held(value, in[0]->dtype, "masked_fill"));
    return UN(contiguous, WHERE(in[1], ac_c_cast(s, value, in[0]->dtype), in[0]));
}

COMPOSE(prelu) {
    T x = ac_c_low(s, in, n_in, in[0]), weight = ac_c_low(s, in, n_in, in[1]);
    if (!x || !weight) return NULL;
    if (x->dtype != weight->dtype)
        REFUSE(AC_RUNTIME, "prelu: `x` and `weight` must have the same dtype, got %s and %s", ac_dtypes[x->dtype].name,
               ac_dtypes[weight->dtype].name);
    int64_t channels = x->ndim > 1 ? x->shape[1] : 1;
    if (weight->numel != 1 && (weight->ndim != 1 || weight->numel != channels))
        REFUSE(AC_RUNTIME,
               "prelu: `weight` must hold one number or one for each of the %" PRId64 " channels, got %" PRId64,
               channels, weight->numel);
    ac_dims column = {.n = x->ndim};
    for (int64_t d = 0; d < column.n; d++) column.v[d] = d == 1 ? weight->numel : 1;
    if (weight->numel == 1) column = (ac_dims){0};
    x = ac_c_piecewise(s, x);
    T positive = BIN(gt, x, NUM(0)), rest = WHERE(positive, NUM(0), x); /* whose product has no gradient where x > 0 */
    return WHERE(positive, x, MUL(rest, ac_c_reshape(s, weight, &column)));
}

COMPOSE(glu) {
    ATTRS(one_dim);
    int64_t dim = a->dim;
    NEED(ac_dim_wrap(&dim, in[0]->ndim, "glu"));
    if (in[0]->ndim == 0) REFUSE(AC_RUNTIME, "glu: a 0-d tensor has no halves");
    int64_t size = in[0]->shape[dim];
    if (size % 2) REFUSE(AC_RUNTIME, "glu: dimension %" PRId64 " must have an even size, got %" PRId64, dim, size);
    T gate = UN(sigmoid, ac_c_wide(s, ac_c_slice(s, in[0], dim, size / 2, size)));
    T y = MUL(ac_c_slice(s, in[0], dim, 0, size / 2), gate);
    return ac_is_half(in[0]->dtype) ? ac_c_cast(s, y, in[0]->dtype) : y;
}

COMPOSE(tanhshrink) {
    T x = ac_c_wide(s, in[0]), y = SUB(x, UN(tanh, x));
    return ac_is_half(in[0]->dtype) ? ac_c_cast(s, y, in[0]->dtype) : y;
}

COMPOSE(logit) {
    ATTRS(eps);
    double eps = ac_scalar_double(a->eps);
    T given = ac_is_floating(in[0]->dtype) ? in[0] : ac_c_cast(s, in[0], ac_default_dtype());
    T wide = ac_c_wide(s, given), x = a->eps.kind == AC_NONE ? wide : ac_c_clamp(s, wide, eps, 1 - eps);
    T y = UN(log, DIV(x, SUB(NUM(1), x)));
    return ac_is_half(in[0]->dtype) ? ac_c_cast(s, y, in[0]->dtype) : y;
}

COMPOSE(positive) {
    if (in[0]->dtype == AC_bool) REFUSE(AC_RUNTIME, "positive: bool has no sign");
    return in[0];
}

COMPOSE(rsub) { return ac_c_call(s, AC_OP_sub, attrs, 2, in[1], in[0]); }

static const double PI = 3.14159265358979323846;
COMPOSE(deg2rad) { return MUL(in[0], ac_c_constant(ac_c_real(s, PI / 180))); }
COMPOSE(rad2deg) { return MUL(in[0], ac_c_constant(ac_c_real(s, 180 / PI))); }

/* 16-bit numbers in float32, where pi x keeps its digits. At 0 it is 1 - (pi x)^2 / 6, as far as two derivatives go. */
COMPOSE(sinc) {
    T wide = ac_c_wide(s, in[0]), zero = BIN(eq, wide, NUM(0));
    T x = MUL(WHERE(zero, ac_c_real(s, 1), wide), ac_c_real(s, PI));
    T near = SUB(ac_c_real(s, 1), MUL(UN(square, WHERE(zero, wide, NUM(0))), ac_c_real(s, PI * PI / 6)));
    T y = WHERE(zero, near, DIV(UN(sin, x), x));
    return ac_is_half(in[0]->dtype) ? ac_c_cast(s, y, in[0]->dtype) : y;
}

/* The part of the power n that one finite factor of float64 can have. */
static T one_power(ac_scratch *s, T n) {
    ac_attrs_clamp most = {{AC_INT, {-1022}}, {AC_INT, {1023}}};
    return ac_c_call(s, AC_OP_clamp, &most, 1, n);
}

/* By whole numbers in float64 and three steps: 2^n may overflow where x 2^n does not, 0 times an infinity is nan, and
 * only the last step may round. */
COMPOSE(ldexp) {
    ac_dtype dtype = ac_result_type(in, 2);
    if (ac_is_floating(in[1]->dtype)) return MUL(in[0], UN(exp2, in[1]));
    if (!ac_is_floating(dtype)) dtype = ac_default_dtype();
    T x = ac_c_cast(s, ac_c_cast(s, in[0], dtype), AC_float64), n = ac_c_cast(s, in[1], AC_float64);
    T last = one_power(s, n), rest = SUB(n, last), middle = one_power(s, rest), first = one_power(s, SUB(rest, middle));
    return ac_c_cast(s, MUL(MUL(MUL(x, UN(exp2, first)), UN(exp2, middle)), UN(exp2, last)), dtype);
}

COMPOSE(float_power) {
    T x = in[0]->is_scalar ? in[0] : ac_c_cast(s, in[0], AC_float64);
    T y = in[1]->is_scalar ? in[1] : ac_c_cast(s, in[1], AC_float64);
    return BIN(pow, x, y);
}

COMPOSE(isposinf) { return BIN(eq, in[0], ac_c_real(s, INFINITY)); }
COMPOSE(isneginf) { return BIN(eq, in[0], ac_c_real(s, -INFINITY)); }

COMPOSE(nan_to_num_limits) {
    ATTRS(nan_to_num_limits);
    if (!ac_is_floating(in[0]->dtype)) return UN(clone, in[0]);
    double most = ac_dtype_largest(in[0]->dtype);
    ac_attrs_nan_to_num by = {a->nan.kind == AC_NONE ? 0 : ac_scalar_double(a->nan),
                              a->posinf.kind == AC_NONE ? most : ac_scalar_double(a->posinf),
                              a->neginf.kind == AC_NONE ? -most : ac_scalar_double(a->neginf)};
    return ac_c_call(s, AC_OP_nan_to_num, &by, 1, in[0]);
}

COMPOSE(selu) {
    ac_attrs_elu how = {1.6732632423543772, 1.0507009873554805, 1};
    return ac_c_call(s, AC_OP_elu, &how, 1, in[0]);
}

COMPOSE(celu) {
    ATTRS(alpha_only);
    if (a->alpha == 0) REFUSE(AC_RUNTIME, "celu: `alpha` must not be 0");
    ac_attrs_elu how = {a->alpha, 1, 1 / a->alpha};
    return ac_c_call(s, AC_OP_elu, &how, 1, in[0]);
}

COMPOSE(rrelu) {
    ATTRS(rrelu);
    T x = ac_c_piecewise(s, in[0]), slope = REAL((a->lower + a->upper) / 2);
    if (!x) return NULL;
    if (!isfinite(a->lower) || !isfinite(a->upper) || a->lower > a->upper)
        REFUSE(AC_RUNTIME, "rrelu: `lower` must be at most `upper`, both finite, got %g and %g", a->lower, a->upper);
    ac_attrs_random drawn = {ac_shape_of(x), a->lower, a->upper, x->dtype, ac_device_of(x)};
    if (a->training) slope = ac_c_call(s, AC_OP_uniform, &drawn, 0);
    return UN(contiguous, WHERE(BIN(gt, x, NUM(0)), x, MUL(x, slope)));
}

COMPOSE(isclose) {
    ATTRS(isclose);
    T x = in[0], y = in[1];
    if (x->dtype != y->dtype)
        REFUSE(AC_RUNTIME, "isclose: both tensors must have one dtype, got %s and %s", ac_dtypes[x->dtype].name,
               ac_dtypes[y->dtype].name);
    if (!(a->rtol >= 0 && a->atol >= 0))
        REFUSE(AC_RUNTIME, "isclose: `rtol` and `atol` must be 0 or more, got %g and %g", a->rtol, a->atol);
    T same = BIN(eq, x, y);
    if (!ac_is_floating(x->dtype)) /* whose differences may be beyond them */
        x = ac_c_cast(s, x, AC_float64), y = ac_c_cast(s, y, AC_float64);
    if (a->equal_nan && ac_is_floating(x->dtype))
        same = BIN(logical_or, same, BIN(logical_and, UN(isnan, x), UN(isnan, y)));
    T off = UN(abs, SUB(x, y)), room = PLUS(TIMES(UN(abs, y), a->rtol), a->atol);
    return BIN(logical_or, same, BIN(logical_and, UN(isfinite, off), BIN(le, off, room)));
}

COMPOSE(rdiv) {
    ATTRS(value);
    return DIV(NUM(ac_scalar_double(a->value)), in[0]);
}

COMPOSE(div_rounded) {
    ATTRS(rounding);
    enum { EXACT, TOWARDS_ZERO, DOWN };
    T x = in[0], y = in[1];
    if (a->mode == EXACT) return DIV(x, y);
    if (a->mode == DOWN) return BIN(floor_divide, x, y);
    bool real = ac_is_floating(x->dtype) || ac_is_floating(y->dtype);
    if (real) return UN(trunc, DIV(x, y));
    if (x->dtype == AC_bool) x = ac_c_cast(s, x, y->dtype == AC_bool ? AC_int64 : y->dtype);
    return BIN(floor_divide, SUB(x, BIN(fmod, x, y)), y); /* exact: nothing is left to round down */
}

COMPOSE(round_decimals) {
    ATTRS(decimals);
    if (a->decimals < -300 || a->decimals > 300)
        REFUSE(AC_RUNTIME, "round: `decimals` must be from -300 to 300, got %" PRId64, a->decimals);
    double power = pow(10, (double)(a->decimals < 0 ? -a->decimals : a->decimals));
    if (!ac_is_floating(in[0]->dtype)) REFUSE(AC_RUNTIME, "round: `decimals` goes with floating point");
    if (a->decimals >= 0) return DIV(UN(round, TIMES(in[0], power)), NUM(power));
    return TIMES(UN(round, DIV(in[0], NUM(power))), power);
}

COMPOSE(var_unbiased) {
    ATTRS(unbiased);
    ac_attrs_var how = {a->dim, {AC_INT, {a->unbiased}}, a->keepdim};
    return ac_c_call(s, AC_OP_var, &how, 1, in[0]);
}
COMPOSE(std_unbiased) {
    ATTRS(unbiased);
    ac_attrs_var how = {a->dim, {AC_INT, {a->unbiased}}, a->keepdim};
    return ac_c_call(s, AC_OP_std, &how, 1, in[0]);
}
COMPOSE(var_all) {
    ATTRS(all_unbiased);
    ac_attrs_var how = {{.n = -1}, {AC_INT, {a->unbiased}}, 0};
    return ac_c_call(s, AC_OP_var, &how, 1, in[0]);
}
COMPOSE(std_all) {
    ATTRS(all_unbiased);
    ac_attrs_var how = {{.n = -1}, {AC_INT, {a->unbiased}}, 0};
    return ac_c_call(s, AC_OP_std, &how, 1, in[0]);
}
