// clang-format off
/* Bessel functions of order 0 and 1 in double, shared by both backends: Chebyshev series of x^2 near 0 and of 1 / x beyond. */
#ifndef AC_SHARED_SPECIAL_BESSEL_H
#define AC_SHARED_SPECIAL_BESSEL_H

#include "shared/special.h"

/* -- modified, of the first kind: exp(-|x|) I(x) ------------------------------------------------------- */

AC_SPECIAL double ac_i0e(double x) {
    double far = fabs(x);
    if (far <= 8) {
        AC_SERIES(i0e, far / 4 - 1);
        return i0e_sum;
    }
    AC_SERIES(i0e_far, 16 / far - 1);
    return i0e_far_sum / sqrt(far);
}

AC_SPECIAL double ac_i1e(double x) {
    double far = fabs(x);
    if (far <= 8) {
        AC_SERIES(i1e, far / 4 - 1);
        return x * i1e_sum;
    }
    AC_SERIES(i1e_far, 16 / far - 1);
    return copysign(i1e_far_sum / sqrt(far), x);
}

/* In two factors: exp(|x|) overflows before I does. */
AC_INLINE double ac_grown(double scaled, double x) {
    double half = exp(0.5 * fabs(x));
    return half - half != 0 ? half * scaled + (scaled < 0 ? -half : half) : half * scaled * half;
}
AC_SPECIAL double ac_i0(double x) { return x - x != 0 ? x * x : ac_grown(ac_i0e(x), x); }
AC_SPECIAL double ac_i1(double x) { return x - x != 0 ? x : ac_grown(ac_i1e(x), x); }

/* -- modified, of the second kind: exp(x) K(x) -------------------------------------------------------------- */

AC_SPECIAL double ac_k0e(double x) {
    if (!(x > 0)) return x == 0 ? INFINITY : NAN;
    if (x <= 2) {
        AC_SERIES(k0, x * x / 2 - 1);
        return (k0_sum - log(0.5 * x) * ac_i0(x)) * exp(x);
    }
    AC_SERIES(k0e_far, 4 / x - 1);
    return k0e_far_sum / sqrt(x);
}

AC_SPECIAL double ac_k1e(double x) {
    if (!(x > 0)) return x == 0 ? INFINITY : NAN;
    if (x <= 2) {
        AC_SERIES(k1, x * x / 2 - 1);
        return (x * k1_sum + log(0.5 * x) * ac_i1(x) + 1 / x) * exp(x);
    }
    AC_SERIES(k1e_far, 4 / x - 1);
    return k1e_far_sum / sqrt(x);
}

AC_INLINE double ac_shrunk(double scaled, double x) {
    double half = exp(-0.5 * x);
    return x > 0 ? scaled * half * half : scaled;
}
AC_SPECIAL double ac_k0(double x) { return ac_shrunk(ac_k0e(x), x); }
AC_SPECIAL double ac_k1(double x) { return ac_shrunk(ac_k1e(x), x); }

/* -- J and Y ------------------------------------------------------------------------------------------------- */

/* Beyond 8: sqrt(2 / (pi x)) (P cos u - Q sin u), u = x - pi / 4 (order 0) or x - 3 pi / 4; for Y (P sin u + Q cos u). The angle's
 * addition theorem leaves sin and cos of x itself. */
AC_INLINE double ac_bessel_wave(double x, double p, double q, bool odd, bool second) {
    double s = sin(x), c = cos(x), plus = s + c, minus = s - c;
    double cos_u = odd ? minus : plus, sin_u = odd ? -plus : minus;
    return (second ? p * sin_u + q * cos_u : p * cos_u - q * sin_u) / sqrt(AC_PI * x);
}
AC_SPECIAL double ac_bessel_far0(double x, bool second) {
    double t = 128 / (x * x) - 1;
    AC_SERIES(p0, t);
    AC_SERIES(q0, t);
    return ac_bessel_wave(x, p0_sum, q0_sum * 8 / x, false, second);
}
AC_SPECIAL double ac_bessel_far1(double x, bool second) {
    double t = 128 / (x * x) - 1;
    AC_SERIES(p1, t);
    AC_SERIES(q1, t);
    return ac_bessel_wave(x, p1_sum, q1_sum * 8 / x, true, second);
}

AC_SPECIAL double ac_j0(double x) {
    x = fabs(x);
    if (x < 1e-5) return 1 - 0.25 * x * x;
    if (x > 8) return x - x != 0 ? 0 : ac_bessel_far0(x, false);
    AC_SERIES(j0, x * x / 32 - 1);
    return j0_sum;
}
AC_SPECIAL double ac_j1(double x) {
    double far = fabs(x);
    if (far > 8) return far - far != 0 ? 0 : copysign(1.0, x) * ac_bessel_far1(far, false);
    AC_SERIES(j1, x * x / 32 - 1);
    return x * j1_sum;
}
AC_SPECIAL double ac_y0(double x) {
    if (!(x > 0)) return x == 0 ? -INFINITY : NAN;
    if (x > 8) return x - x != 0 ? 0 : ac_bessel_far0(x, true);
    AC_SERIES(y0, x * x / 32 - 1);
    return 2 / AC_PI * log(x) * ac_j0(x) + y0_sum;
}
AC_SPECIAL double ac_y1(double x) {
    if (!(x > 0)) return x == 0 ? -INFINITY : NAN;
    if (x > 8) return x - x != 0 ? 0 : ac_bessel_far1(x, true);
    AC_SERIES(y1, x * x / 32 - 1);
    return 2 / AC_PI * (log(x) * ac_j1(x) - 1 / x) + x * y1_sum;
}

#endif
