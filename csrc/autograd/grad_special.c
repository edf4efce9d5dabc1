/* Backward formulas of the special functions: gamma functions, Bessel functions, the error function's relatives. */
#include "autograd/formula_list.h"

/* y, or `value` where x is 0: the limit of what is 0 / 0 there. */
static T at_zero(ac_scratch *s, T x, double value, T y) { return WHERE(BIN(eq, x, NUM(0)), NUM(value), y); }

/* exp(-x^2 / 2) / sqrt(2 pi) */
static T normal_density(ac_scratch *s, T x) {
    return TIMES(UN(exp, TIMES(UN(square, x), -0.5)), 0.39894228040143267794);
}

/* -- gamma functions --------------------------------------------------------------------------------- */

static T polygamma(ac_scratch *s, int64_t n, T x) {
    ac_attrs_order order = {n};
    return ac_c_call(s, AC_OP_polygamma_of, &order, 1, x);
}

FORMULA(lgamma) {
    GIVE(0, MUL(G, UN(digamma, SAVED(0))));
    DONE;
}
FORMULA(digamma) {
    GIVE(0, MUL(G, polygamma(s, 1, SAVED(0))));
    DONE;
}
FORMULA(polygamma) {
    ATTR(order);
    GIVE(0, MUL(G, polygamma(s, a->n + 1, SAVED(0))));
    DONE;
}

static int not_by_first(const char *name) {
    return ac_fail(AC_NOT_IMPLEMENTED, "backward through %s: its first argument has no derivative here", name);
}

FORMULA(zeta) {
    if (WANTS(0)) return not_by_first("zeta");
    T power = SAVED(0), q = SAVED(1);
    GIVE(1, UN(neg, MUL(G, MUL(power, BIN(zeta, ADD(power, NUM(1)), q)))));
    DONE;
}

/* x^(a - 1) exp(-x) / gamma(a) */
static T gamma_density(ac_formula *c) {
    ac_scratch *s = &c->scratch;
    T a = SAVED(0), x = SAVED(1);
    T power = BIN(xlogy, SUB(a, NUM(1)), x);
    return UN(exp, SUB(SUB(power, x), UN(lgamma, a)));
}
FORMULA(igamma) {
    if (WANTS(0)) return not_by_first("igamma");
    GIVE(1, MUL(G, gamma_density(c)));
    DONE;
}
FORMULA(igammac) {
    if (WANTS(0)) return not_by_first("igammac");
    GIVE(1, UN(neg, MUL(G, gamma_density(c))));
    DONE;
}

/* -- draws -------------------------------------------------------------------------------------------- */

FORMULA(slope) {
    (void)c;
    return ac_fail(AC_NOT_IMPLEMENTED, "backward through the gradient of a draw: it has no derivative here");
}
FORMULA(gamma_of) {
    GIVE(1, MUL(G, BIN(gamma_slope, SAVED(1), RESULT(0))));
    DONE;
}
/* A component alone is a beta variate; the others share what it takes, in their proportions. */
FORMULA(dirichlet_of) {
    ac_dims last = {1, {-1}};
    T x = RESULT(0), alpha = SAVED(1), total = ac_c_sum_over(s, alpha, &last, true);
    T mean = ac_c_sum_over(s, MUL(G, x), &last, true);
    GIVE(1, MUL(ac_c_call(s, AC_OP_beta_slope, NULL, 3, x, alpha, total), SUB(G, mean)));
    DONE;
}

/* -- Bessel functions ---------------------------------------------------------------------------------- */

FORMULA(i0) {
    GIVE(0, MUL(G, UN(i1, SAVED(0))));
    DONE;
}
FORMULA(i1) { /* I0 - I1 / x */
    T x = SAVED(0);
    GIVE(0, MUL(G, at_zero(s, x, 0.5, SUB(UN(i0, x), DIV(RESULT(0), x)))));
    DONE;
}
FORMULA(i0e) {
    T x = SAVED(0);
    GIVE(0, MUL(G, SUB(UN(i1e, x), MUL(UN(sign, x), RESULT(0)))));
    DONE;
}
FORMULA(i1e) {
    T x = SAVED(0), rest = MUL(RESULT(0), ADD(UN(sign, x), UN(reciprocal, x)));
    GIVE(0, MUL(G, at_zero(s, x, 0.5, SUB(UN(i0e, x), rest))));
    DONE;
}
FORMULA(bessel_k0) {
    GIVE(0, UN(neg, MUL(G, UN(modified_bessel_k1, SAVED(0)))));
    DONE;
}
FORMULA(bessel_k1) { /* -K0 - K1 / x */
    T x = SAVED(0);
    GIVE(0, UN(neg, MUL(G, ADD(UN(modified_bessel_k0, x), DIV(RESULT(0), x)))));
    DONE;
}
FORMULA(scaled_k0) {
    GIVE(0, MUL(G, SUB(RESULT(0), UN(scaled_modified_bessel_k1, SAVED(0)))));
    DONE;
}
FORMULA(scaled_k1) {
    T x = SAVED(0), y = RESULT(0);
    GIVE(0, MUL(G, SUB(SUB(y, UN(scaled_modified_bessel_k0, x)), DIV(y, x))));
    DONE;
}
FORMULA(bessel_j0) {
    GIVE(0, UN(neg, MUL(G, UN(bessel_j1, SAVED(0)))));
    DONE;
}
FORMULA(bessel_j1) { /* J0 - J1 / x */
    T x = SAVED(0);
    GIVE(0, MUL(G, at_zero(s, x, 0.5, SUB(UN(bessel_j0, x), DIV(RESULT(0), x)))));
    DONE;
}
FORMULA(bessel_y0) {
    GIVE(0, UN(neg, MUL(G, UN(bessel_y1, SAVED(0)))));
    DONE;
}
FORMULA(bessel_y1) {
    T x = SAVED(0);
    GIVE(0, MUL(G, SUB(UN(bessel_y0, x), DIV(RESULT(0), x))));
    DONE;
}
FORMULA(spherical_bessel_j0) { /* (cos x - sin(x) / x) / x */
    T x = SAVED(0), slope = DIV(SUB(UN(cos, x), UN(spherical_bessel_j0, x)), x);
    GIVE(0, MUL(G, at_zero(s, x, 0, slope)));
    DONE;
}

/* -- the error function's relatives, entropy --------------------------------------------------------------- */

FORMULA(erfcx) { /* 2 x y - 2 / sqrt(pi) */
    GIVE(0, MUL(G, SUB(TIMES(MUL(SAVED(0), RESULT(0)), 2), NUM(1.1283791670955125739))));
    DONE;
}
FORMULA(ndtr) {
    GIVE(0, MUL(G, normal_density(s, SAVED(0))));
    DONE;
}
FORMULA(log_ndtr) { /* the density over the probability: sqrt(2 / pi) / erfcx(-x / sqrt(2)) */
    T scaled = UN(erfcx, TIMES(SAVED(0), -0.70710678118654752440));
    GIVE(0, MUL(G, TIMES(UN(reciprocal, scaled), 0.79788456080286535588)));
    DONE;
}
FORMULA(ndtri) {
    GIVE(0, DIV(G, normal_density(s, RESULT(0))));
    DONE;
}
FORMULA(entr) { /* -log(x) - 1 */
    GIVE(0, MUL(G, SUB(NUM(-1), UN(log, SAVED(0)))));
    DONE;
}
FORMULA(xlog1py) {
    T x = SAVED(0), y = SAVED(1);
    if (WANTS(0)) {
        T flat = BIN(logical_and, BIN(eq, x, NUM(0)), BIN(le, y, NUM(-1)));
        ac_f_give(c, 0, MUL(G, WHERE(flat, NUM(0), UN(log1p, y))));
    }
    GIVE(1, MUL(G, DIV(x, ADD(y, NUM(1)))));
    DONE;
}
FORMULA(frexp_mantissa) { /* by the power of two that was divided out */
    GIVE(0, DIV(G, UN(exp2, UN(frexp_exponent, SAVED(0)))));
    DONE;
}
FORMULA(nextafter) { /* x and a step; at the other number it ends */
    GIVE(0, WHERE(BIN(eq, SAVED(0), SAVED(1)), NUM(0), G));
    GIVE(1, ac_c_zeros(s, ac_f_input(c, 1)));
    DONE;
}
