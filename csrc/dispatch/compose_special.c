/* Composite special functions, and those that look at the bits of numbers. */
#include "dispatch/compose.h"
#include "shared/special_polynomials.h"

#include <math.h>

static T polygamma(ac_scratch *s, T x, const void *attrs) {
    ATTRS(order);
    if (a->n < 0) REFUSE(AC_RUNTIME, "polygamma: `n` must be 0 or more, got %" PRId64, a->n);
    return ac_c_call(s, AC_OP_polygamma_of, a, 1, x);
}
COMPOSE(polygamma) { return polygamma(s, in[0], attrs); }
/* Of a copy: in place, x is written, and backward needs it. */
COMPOSE(polygamma_method) { return polygamma(s, UN(clone, in[0]), attrs); }

/* p (p - 1) / 4 log(pi) + sum of lgamma(x - j / 2), j = 0 ... p - 1 */
COMPOSE(mvlgamma) {
    ATTRS(p_order);
    enum { LARGEST = 65536 }; /* each of them is an operator, and a tensor */
    if (a->p < 1 || a->p > LARGEST)
        REFUSE(AC_RUNTIME, "mvlgamma: `p` must be from 1 to %d, got %" PRId64, LARGEST, a->p);
    if (in[0]->dtype == AC_bool) REFUSE(AC_RUNTIME, "mvlgamma: `x` must hold numbers, got bool");
    ac_dtype dtype = ac_is_floating(in[0]->dtype) ? in[0]->dtype : ac_default_dtype();
    T x = ac_c_wide(s, ac_c_cast(s, in[0], dtype)), y = NULL;
    for (int64_t j = 0; j < a->p && !s->failed; j++) {
        T one = UN(lgamma, PLUS(x, -0.5 * (double)j));
        y = y ? ADD(y, one) : one;
    }
    return ac_c_cast(s, PLUS(y, 0.25 * (double)(a->p * (a->p - 1)) * log(3.14159265358979323846)), dtype);
}

COMPOSE(nextafter) {
    ac_dtype dtype = ac_result_type(in, 2);
    if (!ac_is_floating(dtype))
        REFUSE(AC_NOT_IMPLEMENTED, "nextafter: needs floating point, got %s", ac_dtypes[dtype].name);
    ac_attrs_dtype which = {dtype};
    T x = in[0]->is_scalar ? in[0] : UN(clone, in[0]); /* backward needs x, nextafter_ writes it */
    return ac_c_call(s, AC_OP_nextafter_in, &which, 2, x, in[1]);
}

COMPOSE(frexp) {
    if (!ac_is_floating(in[0]->dtype))
        REFUSE(AC_RUNTIME, "frexp: needs floating point, got %s", ac_dtypes[in[0]->dtype].name);
    s->also[1] = ac_c_cast(s, UN(frexp_exponent, in[0]), AC_int32);
    return s->also[1] ? UN(frexp_mantissa, in[0]) : NULL;
}

static T polynomial(ac_scratch *s, ac_tensor *const *in, ac_polynomial_family family) {
    ac_attrs_family which = {family};
    return ac_c_call(s, AC_OP_polynomial, &which, 2, in[0], in[1]);
}
#define OF_FAMILY(name, family)                                                                                        \
    COMPOSE(name) {                                                                                                    \
        (void)attrs;                                                                                                   \
        return polynomial(s, in, family);                                                                              \
    }
OF_FAMILY(chebyshev_polynomial_t, AC_CHEBYSHEV_T)
OF_FAMILY(chebyshev_polynomial_u, AC_CHEBYSHEV_U)
OF_FAMILY(chebyshev_polynomial_v, AC_CHEBYSHEV_V)
OF_FAMILY(chebyshev_polynomial_w, AC_CHEBYSHEV_W)
OF_FAMILY(shifted_chebyshev_polynomial_t, AC_SHIFTED_T)
OF_FAMILY(shifted_chebyshev_polynomial_u, AC_SHIFTED_U)
OF_FAMILY(shifted_chebyshev_polynomial_v, AC_SHIFTED_V)
OF_FAMILY(shifted_chebyshev_polynomial_w, AC_SHIFTED_W)
OF_FAMILY(hermite_polynomial_h, AC_HERMITE_H)
OF_FAMILY(hermite_polynomial_he, AC_HERMITE_HE)
OF_FAMILY(laguerre_polynomial_l, AC_LAGUERRE_L)
OF_FAMILY(legendre_polynomial_p, AC_LEGENDRE_P)
