/* Backward formulas of the elementwise operators. A gradient of a broadcast operand may come back
 * in the broadcast shape: the engine sums it to the operand's. */
#include "autograd/formula_list.h"

#include <math.h>

FORMULA(zero) {
    for (int i = 0; i < c->node->n_in; i++) GIVE(i, ac_c_zeros(s, ac_f_input(c, i)));
    DONE;
}

/* -- one operand ------------------------------------------------------------------------------ */

FORMULA(neg) {
    GIVE(0, UN(neg, G));
    DONE;
}
FORMULA(abs) {
    GIVE(0, MUL(G, UN(sign, SAVED(0))));
    DONE;
}
FORMULA(square) {
    GIVE(0, MUL(G, TIMES(SAVED(0), 2)));
    DONE;
}
FORMULA(exp) {
    GIVE(0, MUL(G, RESULT(0)));
    DONE;
}
FORMULA(log) {
    GIVE(0, DIV(G, SAVED(0)));
    DONE;
}
FORMULA(sqrt) {
    GIVE(0, DIV(G, TIMES(RESULT(0), 2)));
    DONE;
}
FORMULA(reciprocal) {
    GIVE(0, UN(neg, MUL(G, UN(square, RESULT(0)))));
    DONE;
}
FORMULA(sin) {
    GIVE(0, MUL(G, UN(cos, SAVED(0))));
    DONE;
}
FORMULA(cos) {
    GIVE(0, UN(neg, MUL(G, UN(sin, SAVED(0)))));
    DONE;
}

FORMULA(rsqrt) {
    T r = RESULT(0);
    GIVE(0, MUL(TIMES(G, -0.5), MUL(r, UN(square, r)))); /* halved first: the product may be too large for 16 bits */
    DONE;
}

FORMULA(erf) { /* 2 / sqrt(pi) exp(-x^2) */
    GIVE(0, MUL(G, TIMES(UN(exp, UN(neg, UN(square, SAVED(0)))), 1.1283791670955126)));
    DONE;
}

FORMULA(tanh) {
    T y = RESULT(0);
    if (c->graph) GIVE(0, MUL(G, SUB(NUM(1), UN(square, y))));
    else GIVE(0, BIN(tanh_backward, G, y));
    DONE;
}

FORMULA(sigmoid) {
    T y = RESULT(0);
    if (c->graph) GIVE(0, MUL(G, MUL(y, SUB(NUM(1), y))));
    else GIVE(0, BIN(sigmoid_backward, G, y));
    DONE;
}

FORMULA(relu) {
    T y = RESULT(0);
    if (c->graph) GIVE(0, WHERE(BIN(le, y, NUM(0)), NUM(0), G));
    else GIVE(0, BIN(relu_backward, G, y));
    DONE;
}

FORMULA(silu) {
    T x = SAVED(0);
    if (!c->graph) {
        GIVE(0, BIN(silu_backward, G, x));
        DONE;
    }
    T gate = UN(sigmoid, x);
    GIVE(0, MUL(G, MUL(gate, ADD(MUL(x, SUB(NUM(1), gate)), NUM(1)))));
    DONE;
}

FORMULA(tan) { /* 1 + tan^2 */
    GIVE(0, MUL(G, ADD(UN(square, RESULT(0)), NUM(1))));
    DONE;
}
static T one_minus_square(ac_formula *c) {
    ac_scratch *s = &c->scratch;
    return SUB(NUM(1), UN(square, SAVED(0)));
}
FORMULA(asin) {
    GIVE(0, MUL(G, UN(rsqrt, one_minus_square(c))));
    DONE;
}
FORMULA(acos) {
    GIVE(0, UN(neg, MUL(G, UN(rsqrt, one_minus_square(c)))));
    DONE;
}
FORMULA(atan) {
    GIVE(0, DIV(G, ADD(UN(square, SAVED(0)), NUM(1))));
    DONE;
}
FORMULA(sinh) {
    GIVE(0, MUL(G, UN(cosh, SAVED(0))));
    DONE;
}
FORMULA(cosh) {
    GIVE(0, MUL(G, UN(sinh, SAVED(0))));
    DONE;
}
FORMULA(asinh) {
    GIVE(0, MUL(G, UN(rsqrt, ADD(UN(square, SAVED(0)), NUM(1)))));
    DONE;
}
FORMULA(acosh) {
    GIVE(0, MUL(G, UN(rsqrt, SUB(UN(square, SAVED(0)), NUM(1)))));
    DONE;
}
FORMULA(atanh) {
    GIVE(0, DIV(G, one_minus_square(c)));
    DONE;
}
FORMULA(exp2) {
    GIVE(0, MUL(G, TIMES(RESULT(0), 0.69314718055994530942)));
    DONE;
}
FORMULA(expm1) {
    GIVE(0, MUL(G, ADD(RESULT(0), NUM(1))));
    DONE;
}
FORMULA(log1p) {
    GIVE(0, DIV(G, ADD(SAVED(0), NUM(1))));
    DONE;
}
FORMULA(log2) {
    GIVE(0, DIV(G, TIMES(SAVED(0), 0.69314718055994530942)));
    DONE;
}
FORMULA(log10) {
    GIVE(0, DIV(G, TIMES(SAVED(0), 2.30258509299404568402)));
    DONE;
}
FORMULA(erfc) {
    GIVE(0, MUL(G, TIMES(UN(exp, UN(neg, UN(square, SAVED(0)))), -1.1283791670955126)));
    DONE;
}
FORMULA(erfinv) { /* sqrt(pi) / 2 exp(r^2) */
    GIVE(0, MUL(G, TIMES(UN(exp, UN(square, UN(erfinv, SAVED(0)))), 0.88622692545275801365)));
    DONE;
}

FORMULA(softplus) {
    ATTR(softplus);
    T scaled = a->beta == 1 ? SAVED(0) : TIMES(SAVED(0), a->beta);
    GIVE(0, WHERE(BIN(gt, scaled, NUM(a->threshold)), G, MUL(G, UN(sigmoid, scaled))));
    DONE;
}
FORMULA(logsigmoid) {
    GIVE(0, MUL(G, UN(sigmoid, UN(neg, SAVED(0)))));
    DONE;
}
FORMULA(mish) { /* t + x (1 - t^2) sigmoid(x), t = tanh(softplus(x)) */
    ac_attrs_softplus exact = {1, INFINITY};
    T x = SAVED(0), t = UN(tanh, ac_c_call(s, AC_OP_softplus, &exact, 1, x));
    T slope = MUL(MUL(x, UN(sigmoid, x)), SUB(NUM(1), UN(square, t)));
    GIVE(0, MUL(G, ADD(t, slope)));
    DONE;
}
FORMULA(softsign) {
    GIVE(0, DIV(G, UN(square, ADD(UN(abs, SAVED(0)), NUM(1)))));
    DONE;
}

/* Whether x lies strictly between. */
FORMULA(hardsigmoid) {
    T x = SAVED(0), inside = BIN(logical_and, BIN(gt, x, NUM(-3)), BIN(lt, x, NUM(3)));
    GIVE(0, WHERE(inside, TIMES(G, 1.0 / 6), NUM(0)));
    DONE;
}
FORMULA(hardswish) {
    T x = SAVED(0), slope = MUL(G, ADD(TIMES(x, 1.0 / 3), NUM(0.5)));
    GIVE(0, WHERE(BIN(le, x, NUM(-3)), NUM(0), WHERE(BIN(lt, x, NUM(3)), slope, G)));
    DONE;
}
FORMULA(hardtanh) {
    ATTR(bounds);
    T x = SAVED(0), outside = BIN(logical_or, BIN(le, x, NUM(a->low)), BIN(ge, x, NUM(a->high)));
    GIVE(0, WHERE(outside, NUM(0), G)); /* nan is inside */
    DONE;
}
FORMULA(elu) {
    ATTR(elu);
    T x = SAVED(0);
    T low = WHERE(BIN(lt, x, NUM(0)), x, NUM(0)); /* exp of a large x must not meet the 0 of the other side */
    T slope = MUL(UN(exp, TIMES(low, a->input_scale)), REAL(a->alpha * a->scale * a->input_scale));
    GIVE(0, WHERE(BIN(le, x, NUM(0)), MUL(G, slope), MUL(G, REAL(a->scale))));
    DONE;
}
FORMULA(leaky_relu) {
    ATTR(slope);
    GIVE(0, WHERE(BIN(gt, SAVED(0), NUM(0)), G, MUL(G, REAL(a->slope))));
    DONE;
}
FORMULA(hardshrink) { /* softshrink's too */
    ATTR(lambd);
    GIVE(0, WHERE(BIN(le, UN(abs, SAVED(0)), NUM(a->lambd)), NUM(0), G));
    DONE;
}
FORMULA(threshold) {
    ATTR(threshold);
    GIVE(0, WHERE(BIN(le, SAVED(0), NUM(a->threshold)), NUM(0), G));
    DONE;
}
FORMULA(nan_to_num) {
    GIVE(0, WHERE(UN(isfinite, SAVED(0)), G, NUM(0)));
    DONE;
}

/* Phi(x) + x phi(x), and the derivative of the tanh approximation. */
FORMULA(gelu) {
    ATTR(approximate);
    T x = SAVED(0);
    if (!c->graph) {
        GIVE(0, ac_c_call(s, AC_OP_gelu_backward, a, 2, G, x));
        DONE;
    }
    T square = UN(square, x);
    if (!a->tanh) {
        T cdf = TIMES(ADD(UN(erf, TIMES(x, 0.70710678118654752440)), NUM(1)), 0.5);
        T density = TIMES(UN(exp, TIMES(square, -0.5)), 0.39894228040143267794);
        GIVE(0, MUL(G, ADD(cdf, MUL(x, density))));
        DONE;
    }
    T inner = TIMES(MUL(x, ADD(TIMES(square, 0.044715), NUM(1))), 0.79788456080286535588);
    T slope = TIMES(ADD(TIMES(square, 3 * 0.044715), NUM(1)), 0.79788456080286535588);
    T h = UN(tanh, inner), half_x = TIMES(x, 0.5);
    T rest = MUL(MUL(half_x, SUB(NUM(1), UN(square, h))), slope);
    GIVE(0, MUL(G, ADD(TIMES(ADD(h, NUM(1)), 0.5), rest)));
    DONE;
}

FORMULA(clamp) {
    ATTR(clamp);
    T x = SAVED(0), inside = NULL;
    if (a->min.kind != AC_NONE) inside = BIN(ge, x, NUM(ac_scalar_double(a->min)));
    if (a->max.kind != AC_NONE) {
        T below = BIN(le, x, NUM(ac_scalar_double(a->max)));
        inside = inside ? BIN(logical_and, inside, below) : below;
    }
    GIVE(0, WHERE(inside, G, NUM(0)));
    DONE;
}

/* -- two operands -------------------------------------------------------------------------------- */

FORMULA(add) {
    ATTR(alpha);
    double alpha = ac_scalar_double(a->alpha);
    GIVE(0, G);
    GIVE(1, alpha == 1 ? G : MUL(G, REAL(alpha)));
    DONE;
}

FORMULA(sub) {
    ATTR(alpha);
    GIVE(0, G);
    GIVE(1, MUL(G, REAL(-ac_scalar_double(a->alpha))));
    DONE;
}

FORMULA(mul) {
    GIVE(0, MUL(G, SAVED(1)));
    GIVE(1, MUL(G, SAVED(0)));
    DONE;
}

FORMULA(div) { /* g / y and x / y may be too large for 16 bits where g x / y^2 is not */
    T y = SAVED(1), by = DIV(WANTS(1) ? ac_c_wide(s, G) : G, y);
    GIVE(0, by);
    GIVE(1, UN(neg, MUL(by, DIV(ac_c_wide(s, SAVED(0)), y)))); /* not the result, which may be written to */
    DONE;
}

FORMULA(remainder) {
    GIVE(0, G);
    GIVE(1, UN(neg, MUL(G, BIN(floor_divide, SAVED(0), SAVED(1)))));
    DONE;
}

/* log(x) in the gradient's dtype: of an integer it would be of the default one. */
static T log_of(ac_formula *c, T x) {
    ac_scratch *s = &c->scratch;
    return UN(log, x && !ac_is_floating(x->dtype) ? ac_c_cast(s, x, G->dtype) : x);
}

/* y x^(y-1), which is 0 and not nan at x = 0, y = 0; x^y log x, 0 where x is 0 and y is not negative. */
FORMULA(pow) {
    T x = SAVED(0), y = SAVED(1);
    if (WANTS(0)) {
        bool is_truth = y && y->dtype == AC_bool; /* x ** True is x */
        T slope = MUL(y, is_truth ? NUM(1) : POW(x, SUB(y, NUM(1))));
        ac_f_give(c, 0, MUL(G, WHERE(BIN(eq, y, NUM(0)), NUM(0), slope)));
    }
    if (WANTS(1)) {
        T flat = BIN(logical_and, BIN(eq, x, NUM(0)), BIN(ge, y, NUM(0)));
        ac_f_give(c, 1, MUL(G, WHERE(flat, NUM(0), MUL(RESULT(0), log_of(c, x)))));
    }
    DONE;
}

/* What is not chosen gets nothing, equal operands half each; beside a nan both get all. */
static void give_chosen(ac_formula *c, T left, T right) {
    ac_scratch *s = &c->scratch;
    T shared = WHERE(BIN(eq, SAVED(0), SAVED(1)), TIMES(G, 0.5), G);
    GIVE(0, WHERE(left, NUM(0), shared));
    GIVE(1, WHERE(right, NUM(0), shared));
}

FORMULA(maximum) {
    give_chosen(c, BIN(lt, SAVED(0), SAVED(1)), BIN(lt, SAVED(1), SAVED(0)));
    DONE;
}

FORMULA(minimum) {
    give_chosen(c, BIN(gt, SAVED(0), SAVED(1)), BIN(gt, SAVED(1), SAVED(0)));
    DONE;
}

FORMULA(fmax) {
    T first = BIN(logical_or, BIN(ge, SAVED(0), SAVED(1)), UN(isnan, SAVED(1)));
    GIVE(0, WHERE(first, G, NUM(0)));
    GIVE(1, WHERE(first, NUM(0), G));
    DONE;
}
FORMULA(fmin) {
    T first = BIN(logical_or, BIN(le, SAVED(0), SAVED(1)), UN(isnan, SAVED(1)));
    GIVE(0, WHERE(first, G, NUM(0)));
    GIVE(1, WHERE(first, NUM(0), G));
    DONE;
}
FORMULA(fmod) {
    GIVE(0, G);
    if (WANTS(1)) ac_f_give(c, 1, UN(neg, MUL(G, UN(trunc, DIV(SAVED(0), SAVED(1))))));
    DONE;
}
/* x, or 1 where it is 0: a divisor of what is 0 there itself. */
static T not_zero(ac_scratch *s, T x) { return WHERE(BIN(eq, x, NUM(0)), NUM(1), x); }

FORMULA(atan2) {
    T x = SAVED(0), y = SAVED(1), far = not_zero(s, BIN(hypot, x, y)), by = DIV(ac_c_wide(s, G), far);
    GIVE(0, MUL(by, DIV(y, far)));
    GIVE(1, UN(neg, MUL(by, DIV(x, far))));
    DONE;
}
FORMULA(hypot) { /* |x / r| <= 1; g / r may be too small for 16 bits, or too large */
    T r = not_zero(s, RESULT(0));
    GIVE(0, MUL(G, DIV(SAVED(0), r)));
    GIVE(1, MUL(G, DIV(SAVED(1), r)));
    DONE;
}
FORMULA(copysign) {
    if (WANTS(0)) {
        T x = SAVED(0);
        ac_f_give(c, 0, WHERE(BIN(eq, x, NUM(0)), NUM(0), MUL(G, MUL(UN(sign, x), UN(sign, RESULT(0))))));
    }
    if (WANTS(1)) ac_f_give(c, 1, ac_c_zeros(s, ac_f_input(c, 1)));
    DONE;
}
FORMULA(logaddexp) {
    GIVE(0, MUL(G, UN(sigmoid, SUB(SAVED(0), SAVED(1)))));
    GIVE(1, MUL(G, UN(sigmoid, SUB(SAVED(1), SAVED(0)))));
    DONE;
}
FORMULA(logaddexp2) {
    const double ln2 = 0.69314718055994530942;
    GIVE(0, MUL(G, UN(sigmoid, TIMES(SUB(SAVED(0), SAVED(1)), ln2))));
    GIVE(1, MUL(G, UN(sigmoid, TIMES(SUB(SAVED(1), SAVED(0)), ln2))));
    DONE;
}
FORMULA(xlogy) {
    T x = SAVED(0), y = SAVED(1);
    if (WANTS(0))
        ac_f_give(c, 0, MUL(G, WHERE(BIN(logical_and, BIN(eq, x, NUM(0)), BIN(le, y, NUM(0))), NUM(0), log_of(c, y))));
    GIVE(1, MUL(ac_c_wide(s, G), DIV(ac_c_wide(s, x), y)));
    DONE;
}

FORMULA(masked_fill) {
    ac_attrs_value zero = {{AC_INT, {0}}};
    GIVE(0, ac_c_call(s, AC_OP_masked_fill, &zero, 2, G, SAVED(1)));
    DONE;
}

/* -- three operands --------------------------------------------------------------------------------- */

FORMULA(where) {
    T condition = SAVED(0);
    GIVE(1, WHERE(condition, G, NUM(0)));
    GIVE(2, WHERE(condition, NUM(0), G));
    DONE;
}

FORMULA(addcmul) {
    ATTR(value);
    GIVE(0, G);
    if (!WANTS(1) && !WANTS(2)) DONE;
    T g = MUL(G, REAL(ac_scalar_double(a->value)));
    GIVE(1, MUL(g, SAVED(2)));
    GIVE(2, MUL(g, SAVED(1)));
    DONE;
}

FORMULA(addcdiv) {
    ATTR(value);
    GIVE(0, G);
    if (!WANTS(1) && !WANTS(2)) DONE;
    T z = SAVED(2), by = DIV(MUL(ac_c_wide(s, G), REAL(ac_scalar_double(a->value))), z); /* as in div */
    GIVE(1, by);
    GIVE(2, UN(neg, MUL(by, DIV(ac_c_wide(s, SAVED(1)), z))));
    DONE;
}

FORMULA(lerp) {
    GIVE(0, MUL(G, SUB(NUM(1), SAVED(2))));
    GIVE(1, MUL(G, SAVED(2)));
    GIVE(2, MUL(G, SUB(SAVED(1), SAVED(0))));
    DONE;
}

/* -- copies -------------------------------------------------------------------------------------------- */

FORMULA(cast) {
    GIVE(0, ac_c_cast(s, G, ac_f_input(c, 0)->dtype));
    DONE;
}
FORMULA(to_device) {
    ac_attrs_to_device back = {ac_f_input(c, 0)->device, 0};
    GIVE(0, ac_c_call(s, AC_OP_to_device, &back, 1, G));
    DONE;
}
FORMULA(clone) {
    GIVE(0, G);
    DONE;
}
FORMULA(dropout_mask) {
    GIVE(0, ac_c_call(s, AC_OP_dropout_mask, c->node->attrs, 1, G));
    DONE;
}
