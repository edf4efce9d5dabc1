// clang-format off
/* Special functions in double, shared by both backends: the error function's relatives, gamma functions and zeta. Narrower types compute in
 * double and round once. Coefficients lie in special_tables.h, Bessel functions in special_bessel.h.
 *
 * "DLMF" is the NIST Digital Library of Mathematical Functions. */
#ifndef AC_SHARED_SPECIAL_H
#define AC_SHARED_SPECIAL_H

#include "base/inline.h"
#include "shared/special_tables.h"

#include <math.h>

/* Too large to be inlined in every loop. */
#if defined(__CUDACC__)
#define AC_SPECIAL static __host__ __device__ __noinline__
#else
#define AC_SPECIAL static __attribute__((noinline, unused))
#endif

#define AC_PI 3.14159265358979323846
#define AC_SQRT_HALF 0.70710678118654752440
#define AC_COUNT(table) ((int)(sizeof(table) / sizeof(table)[0]))

/* c[0] / 2 + sum of c[k] T_k(t), by Clenshaw's recurrence. */
AC_INLINE double ac_chebyshev(const double *c, int n, double t) {
    double b0 = 0, b1 = 0, b2 = 0;
    for (int k = n - 1; k >= 0; k--) b2 = b1, b1 = b0, b0 = 2 * t * b1 - b2 + c[k];
    return 0.5 * (b0 - b2);
}
#define AC_SERIES(name, t)                                                                                             \
    static const double name[] = {AC_TABLE_##name};                                                                    \
    double name##_sum = ac_chebyshev(name, AC_COUNT(name), t)

/* exp(sign x^2) with the digits of x^2 that a double does not hold: high^2 is exact. */
AC_INLINE double ac_exp_square(double x, double sign) {
    double high = (double)(float)x;
    return exp(sign * high * high) * exp(sign * (x - high) * (x + high));
}

/* -- the error function's relatives -------------------------------------------------------------------- */

/* exp(x^2) erfc(x), for x >= 0 by Shepherd and Laframboise (1981), else 2 exp(x^2) - erfcx(-x) */
AC_SPECIAL double ac_erfcx(double x) {
    if (x != x) return x;
    if (x < -27) return INFINITY;
    double far = fabs(x);
    if (far > 1e10) return 0.56418958354775628695 / far;
    AC_SERIES(erfcx, (far - 3.75) / (far + 3.75));
    double y = erfcx_sum / (1 + 2 * far);
    return x < 0 ? 2 * ac_exp_square(x, 1) - y : y;
}

/* exp(-x^2 / 2) */
AC_INLINE double ac_bell(double x) {
    double high = (double)(float)x;
    return exp(-0.5 * high * high) * exp(-0.5 * (x - high) * (x + high));
}

AC_SPECIAL double ac_ndtr(double x) {
    if (fabs(x) <= 1) return 0.5 * erfc(-x * AC_SQRT_HALF);
    if (x < -40 || x > 40) return x < 0 ? 0 : 1;
    double tail = 0.5 * ac_erfcx(fabs(x) * AC_SQRT_HALF) * ac_bell(x);
    return x < 0 ? tail : x != x ? x : 1 - tail;
}

AC_SPECIAL double ac_log_ndtr(double x) {
    if (x < -1) return log(0.5 * ac_erfcx(-x * AC_SQRT_HALF)) - 0.5 * x * x;
    return log1p(x <= 1 ? -0.5 * erfc(x * AC_SQRT_HALF) : -ac_ndtr(-x));
}

/* Newton's steps on log(erfc), or on erf near the middle, from the first guess of erfinv, for the smaller of p and 1 - p */
AC_SPECIAL double ac_ndtri(double p) {
    double less = p < 0.5 ? p : 1 - p;
    if (!(less > 0)) return less == 0 ? (p < 0.5 ? -INFINITY : INFINITY) : NAN;
    double l = log(4 * less) + log1p(-less), half = 4.3307467508 + l / 2; /* 2 / (pi 0.147) */
    double inside = sqrt(half * half - l / 0.147) - half, z = inside > 0 ? sqrt(inside) : 0, goal = log(2 * less);
    for (int step = 0; step < 4; step++) {
        double e = ac_erfcx(z); /* the derivative of log(erfc) is -2 / (sqrt(pi) erfcx) */
        if (less > 0.25) z -= (erf(z) - (1 - 2 * less)) * exp(z * z) * 0.88622692545275801365;
        else z += (log(e) - z * z - goal) * e * 0.88622692545275801365;
    }
    return (p < 0.5 ? -z : z) / AC_SQRT_HALF;
}

/* -- gamma functions ------------------------------------------------------------------------------------- */

/* pi / tan(pi x), by the distance to the nearest integer */
AC_INLINE double ac_pi_cot(double x) { return AC_PI / tan(AC_PI * (x - rint(x))); }

/* Of x > 0: DLMF 5.5.2 and 5.11.2; around the root a series that keeps its digits. */
AC_SPECIAL double ac_digamma_positive(double x) {
    double shift = 0;
    if (x >= 10) {
        double z = 1 / (x * x);
        double series = z * (1. / 12 - z * (1. / 120 - z * (1. / 252 - z * (1. / 240 - z * (1. / 132 - z * (691. / 32760 - z / 12))))));
        return log(x) - 0.5 / x - (x > 1e17 ? 0 : series);
    }
    for (; x > 2; shift += 1 / x) x -= 1;
    if (x < 1) shift = -1 / x, x += 1;
    AC_SERIES(digamma, 2 * x - 3);
    return (x - 1.4616321449683622 - 9.549995429965697e-17) * digamma_sum + shift;
}

/* The derivative of lgamma; left of 0 by reflection, DLMF 5.5.4. */
AC_SPECIAL double ac_digamma(double x) {
    if (x == 0) return copysign(INFINITY, -x);
    if (x < 0) return x == floor(x) ? NAN : ac_digamma_positive(1 - x) - ac_pi_cot(x);
    return ac_digamma_positive(x);
}

/* Sum of (q + k)^-s for q > 0, s > 1: Euler and Maclaurin's formula, DLMF 25.11.5 */
AC_SPECIAL double ac_zeta_positive(double s, double q) {
    static const double bernoulli[] = {1. / 12, -1. / 720, 1. / 30240, -1. / 1209600, 1. / 47900160, -691. / 1307674368000,
                                       1. / 74724249600, -3617. / 10670622842880000, 43867. / 5109094217170944000}; /* B_2k / (2 k)! */
    double sum = 0, a = q;
    for (; a < 12 + s; a += 1) {
        double term = pow(a, -s);
        sum += term;
        if (term <= sum * 1e-18 || term - term != 0) return sum; /* 0 <= 0: all vanish */
    }
    double power = pow(a, -s), factor = s / a, tail = 0;
    sum += a * power / (s - 1) + 0.5 * power;
    for (int k = 0; k < AC_COUNT(bernoulli); k++) {
        tail += bernoulli[k] * factor;
        factor *= (s + 2 * k + 1) * (s + 2 * k + 2) / (a * a);
    }
    return sum + power * tail;
}

/* Hurwitz's zeta. Below 0 the first terms count up from |q|, and s must be whole: all terms are then those of three zetas of positive q. */
AC_SPECIAL double ac_zeta(double s, double q) {
    if (s == 1) return INFINITY;
    if (!(s > 1) || q != q) return NAN;
    if (q - q != 0) return q > 0 ? 0 : NAN;
    if (q > 0) return ac_zeta_positive(s, q);
    if (q == floor(q)) return INFINITY;
    if (s != floor(s)) return NAN;
    double below = ceil(-q), nearest = -q - (below - 1);
    double first = ac_zeta_positive(s, nearest) - ac_zeta_positive(s, 1 - q);
    return (fmod(s, 2.0) == 0 ? first : -first) + ac_zeta_positive(s, 1 - nearest);
}

/* The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x), DLMF 25.11.12 */
AC_SPECIAL double ac_polygamma(double n, double x) {
    if (n == 0) return ac_digamma(x);
    double y = tgamma(n + 1) * ac_zeta(n + 1, x);
    return fmod(n, 2.0) == 0 ? -y : y;
}

/* -- incomplete gamma functions ------------------------------------------------------------------------------ */

/* lgamma(a + 1) - (a + 1 / 2) log(a) + a - log(2 pi) / 2 for a >= 10: Stirling's series, DLMF 5.11.1 */
AC_INLINE double ac_stirling_rest(double a) {
    double z = 1 / (a * a);
    return (1. / 12 - z * (1. / 360 - z * (1. / 1260 - z * (1. / 1680 - z * (1. / 1188 - z * (691. / 360360 - z / 156)))))) / a;
}

/* a log(a / x) + x - a, without cancellation (Loader 2000) */
AC_SPECIAL double ac_deviance(double a, double x) {
    double difference = a - x, v = difference / (a + x);
    if (fabs(v) > 0.1) return a * log(a / x) - difference;
    double sum = difference * v, term = 2 * a * v, before;
    for (int j = 1;; j++) {
        term *= v * v, before = sum, sum += term / (2 * j + 1);
        if (sum == before) return sum;
    }
}

/* x^a exp(-x) / gamma(a + 1) */
AC_SPECIAL double ac_gamma_density(double a, double x) {
    if (a >= 10) return exp(-ac_stirling_rest(a) - ac_deviance(a, x)) / sqrt(2 * AC_PI * a);
    double half = exp(-0.5 * x);
    return half == 0 ? 0 : pow(x, a) * half / tgamma(a + 1) * half; /* the power of such x may be infinite */
}

/* P / density: sum of x^n / ((a + 1) ... (a + n)), DLMF 8.11.4 */
AC_INLINE double ac_gamma_series(double a, double x) {
    double sum = 1, term = 1;
    for (double n = 1; n < 10000 && term > sum * 1e-17; n++) term *= x / (a + n), sum += term;
    return sum;
}

/* Q / (a density): the continued fraction DLMF 8.9.2 in its even form, from its end, which lets errors fade */
AC_INLINE double ac_gamma_fraction(double a, double x) {
    double b = x + 1 - a, n = floor(30 + 100 / x + 10 * sqrt(a < 400 ? a : 400)), y = b + 2 * n;
    for (; n > 0; n--) y = b + 2 * (n - 1) + n * (a - n) / y;
    return 1 / y;
}

/* Q for small x and a: 1 - x^a / gamma(1 + a) (1 + a sum of (-x)^n / ((a + n) n!)), DLMF 8.7.1, without cancellation */
AC_INLINE double ac_gamma_upper_series(double a, double x) {
    double sum = 0, term = 1;
    for (double n = 1; n < 200 && fabs(term) > 1e-18; n++) term *= -x / n, sum += term / (a + n);
    AC_SERIES(lgamma1p, 2 * a - 1);
    double l = a * log(x) - (a <= 1 ? a * lgamma1p_sum : lgamma(1 + a));
    return -expm1(l) - exp(l) * a * sum;
}

/* The smaller of P and Q for large a and x near it (Temme 1979, DLMF 8.12). */
AC_SPECIAL double ac_gamma_temme(double a, double x) {
    static const double d[] = {AC_TABLE_temme0 AC_TABLE_temme1 AC_TABLE_temme2 AC_TABLE_temme3 AC_TABLE_temme4 AC_TABLE_temme5 AC_TABLE_temme6};
    double far = ac_deviance(a, x), eta = sqrt(2 * far / a), sum = 0, power = 1;
    if (x < a) eta = -eta;
    for (int k = 0; k < AC_TEMME_ORDERS; k++) {
        double row = 0;
        for (int n = AC_TEMME_TERMS - 1; n >= 0; n--) row = row * eta + d[k * AC_TEMME_TERMS + n];
        sum += row * power, power /= a;
    }
    sum /= sqrt(2 * AC_PI * a);
    return exp(-far) * (0.5 * ac_erfcx(sqrt(far)) + (x < a ? -sum : sum));
}

/* P (upper false) or Q of a and x: the regularised incomplete gamma functions. */
AC_SPECIAL double ac_gamma_part(double a, double x, bool upper) {
    double part;
    bool is_upper;
    if (!(x >= 0 && a >= 0) || (a == 0 && x == 0) || (a - a != 0 && x - x != 0)) return NAN;
    if (x == 0 || a - a != 0) return upper ? 1 : 0;
    if (a == 0 || x - x != 0) return upper ? 0 : 1;
    if (a > 200 && fabs(x - a) < 0.3 * a) part = ac_gamma_temme(a, x), is_upper = x >= a;
    else if (x > 1.1 && x > (a < 1 ? a : a + 1)) part = ac_gamma_fraction(a, x) * a * ac_gamma_density(a, x), is_upper = true;
    else if (x > 1.1 || (x <= 0.5 ? -0.4 / log(x) < a : x * 1.1 < a)) part = ac_gamma_series(a, x) * ac_gamma_density(a, x), is_upper = false;
    else part = ac_gamma_upper_series(a, x), is_upper = true;
    return is_upper == upper ? part : 1 - part;
}

#endif
