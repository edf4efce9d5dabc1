// clang-format off
/* Orthogonal polynomials and Airy's function in double, shared by both backends. A degree is cut to an integer. Below 0 the value is 0. */
#ifndef AC_SHARED_SPECIAL_POLYNOMIALS_H
#define AC_SHARED_SPECIAL_POLYNOMIALS_H

#include "shared/special.h"

/* What the operator `_polynomial` computes. */
typedef enum {
    AC_CHEBYSHEV_T, AC_CHEBYSHEV_U, AC_CHEBYSHEV_V, AC_CHEBYSHEV_W,
    AC_SHIFTED_T, AC_SHIFTED_U, AC_SHIFTED_V, AC_SHIFTED_W, /* those of Chebyshev, at 2 x - 1 */
    AC_HERMITE_H, AC_HERMITE_HE, AC_LAGUERRE_L, AC_LEGENDRE_P
} ac_polynomial_family;

/* Beyond degree 8, x >= 0 and not 1, by the angle x = cos(a), or cosh(a) beyond 1 (DLMF 18.5.1 to 18.5.4). */
AC_SPECIAL double ac_chebyshev_closed(double x, double n, int family) {
    bool waves = x < 1;
    double a = waves ? acos(x) : acosh(x);
    double top = family == AC_CHEBYSHEV_T ? n * a : family == AC_CHEBYSHEV_U ? (n + 1) * a : (n + 0.5) * a;
    if (x - x != 0) return x;
    if (family == AC_CHEBYSHEV_T) return waves ? cos(top) : cosh(top);
    if (family == AC_CHEBYSHEV_U) return waves ? sin(top) / sin(a) : sinh(top) / sinh(a);
    if (family == AC_CHEBYSHEV_V) return waves ? cos(top) / cos(a / 2) : cosh(top) / cosh(a / 2);
    return waves ? sin(top) / sin(a / 2) : sinh(top) / sinh(a / 2);
}

/* n >= 1, x >= 0 */
AC_SPECIAL double ac_chebyshev_right(double x, double n, int family) {
    if (x == 1) return family == AC_CHEBYSHEV_U ? n + 1 : family == AC_CHEBYSHEV_W ? 2 * n + 1 : 1;
    if (n > 8 || x - x != 0) return ac_chebyshev_closed(x, n, family);
    double before = 1, here = family == AC_CHEBYSHEV_T ? x : family == AC_CHEBYSHEV_U ? 2 * x : family == AC_CHEBYSHEV_V ? 2 * x - 1 : 2 * x + 1;
    for (int k = 1; k < n; k++) {
        double next = 2 * x * here - before;
        before = here, here = next;
    }
    return here;
}

/* n >= 1; left of 0 by symmetry, where V and W change places (DLMF 18.6.1) */
AC_SPECIAL double ac_chebyshev_polynomial(double x, double n, int family) {
    if (!(x < 0)) return ac_chebyshev_right(x, n, family);
    int mirrored = family == AC_CHEBYSHEV_V ? AC_CHEBYSHEV_W : family == AC_CHEBYSHEV_W ? AC_CHEBYSHEV_V : family;
    double y = ac_chebyshev_right(-x, n, mirrored);
    return fmod(n, 2.0) == 0 ? y : -y;
}

/* The polynomial of degree k + 1 from those of degree k and k - 1 (DLMF 18.9.1). */
AC_INLINE double ac_next_polynomial(double x, double k, double here, double before, int family) {
    if (family == AC_HERMITE_H) return 2 * (x * here - k * before);
    if (family == AC_HERMITE_HE) return x * here - k * before;
    if (family == AC_LAGUERRE_L) return here + ((k - x) * here - k * before) / (k + 1);
    return ((2 * k + 1) * x * here - k * before) / (k + 1);
}

/* Of degree n, by recurrence from 1; nan where a value on the way leaves float64's range. */
AC_SPECIAL double ac_recurrent_polynomial(double x, double n, int family) {
    const double most = 1048576; /* 2^20 steps take milliseconds; more of them are not taken, and give nan */
    if (n > most) return NAN;
    double before = 0, here = 1;
    for (double k = 0; k < n && here == here; k++) {
        double next = ac_next_polynomial(x, k, here, before, family);
        before = here, here = next;
    }
    return here;
}

AC_SPECIAL double ac_polynomial(double x, double n, int family) {
    n = trunc(n);
    if (!(n > 0)) return n == 0 ? 1 : n < 0 ? 0 : n;
    if (x != x) return x;
    if (n - n != 0) return NAN;
    if (family <= AC_CHEBYSHEV_W) return ac_chebyshev_polynomial(x, n, family);
    if (family <= AC_SHIFTED_W) return ac_chebyshev_polynomial(2 * x - 1, n, family - AC_SHIFTED_T);
    if (family == AC_LEGENDRE_P && fabs(x) == 1) return x > 0 || fmod(n, 2.0) == 0 ? 1 : -1;
    return ac_recurrent_polynomial(x, n, family);
}

/* Ai. Left of -6 it is (P sin(z + pi / 4) - Q cos(z + pi / 4)) / (sqrt(pi) |x|^(1/4)), right of 2 exp(-z) / (2 sqrt(pi) x^(1/4)) times
 * a series of 1 / z, with z = 2 / 3 |x|^(3/2) (DLMF 9.7). */
AC_SPECIAL double ac_airy_ai(double x) {
    if (x - x != 0) return x != x ? x : 0;
    double far = fabs(x), z = 2.0 / 3 * far * sqrt(far), scale = 0.56418958354775628695 / sqrt(sqrt(far)); /* 1 / sqrt(pi) */
    if (x > 2) {
        AC_SERIES(airy_far, 3.7712361663282537 / z - 1); /* twice z at 2 */
        return 0.5 * scale * exp(-z) * airy_far_sum;
    }
    if (x >= 0) {
        AC_SERIES(airy_right, x - 1);
        return airy_right_sum * exp(-x);
    }
    if (x >= -6) {
        AC_SERIES(airy_left, x / 3 + 1);
        return airy_left_sum;
    }
    double t = 192 / (z * z) - 1; /* twice the square of z at -6 */
    AC_SERIES(airy_p, t);
    AC_SERIES(airy_q, t);
    return scale * AC_SQRT_HALF * ((sin(z) + cos(z)) * airy_p_sum - (cos(z) - sin(z)) * airy_q_sum / z);
}

#endif
