// clang-format off
/* Random variates that one number decides (the key, in [0, 1), seeds a stream of its own), and how variates move with their parameters, shared
 * by both backends, in double.
 *
 * A variate x of density p moves by dx/da = -(dF/da) / p. As E[d log p / da] is 0, that is the integral of d log p / da over the values above x,
 * divided by p(x), or minus that over the values below (Figurnov, Mohamed and Mnih 2018). The side is taken on which terms have one sign. */
#ifndef AC_SHARED_SPECIAL_DRAWS_H
#define AC_SHARED_SPECIAL_DRAWS_H

#include "base/rng.h"
#include "shared/special.h"

/* -- slopes -------------------------------------------------------------------------------------------------- */

/* exp(u) times density, relative to x, at t with log(t / x) = *moved, where u moves by w from log(x) (total 0: gamma), or log(x / (1 - x)) (beta) */
AC_INLINE double ac_tilt(double a, double total, double x, double w, double *moved, double *slope) {
    double grown = x * expm1(w), l = log1p(grown);
    *moved = total > 0 ? w - l : w;
    *slope = total > 0 ? a - total * (x + grown) / (1 + grown) : a - (x + grown);
    return a * w - (total > 0 ? total * l : grown);
}

/* The integral of sign (start + log(t / x)) times that density over the side, by Gauss and Legendre's rule up to where it has fallen to exp(-40). */
AC_SPECIAL double ac_tail_integral(double a, double total, double x, double start, double sign) {
    static const double node[] = {AC_TABLE_legendre_nodes}, weight[] = {AC_TABLE_legendre_weights};
    double moved, slope, sum = 0, end = sqrt(80 / (total > 0 ? total * x * (1 - x) : x));
    for (int step = 0; step < 40; step++) {
        double over = ac_tilt(a, total, x, sign * end, &moved, &slope) + 40, by = over / (sign * slope);
        if (!(fabs(by) > 0.01 * end)) break;
        end -= by;
    }
    for (int k = 0; k < 2 * AC_COUNT(node); k++) {
        double at = k % 2 ? 1 - node[k / 2] : node[k / 2];
        double height = ac_tilt(a, total, x, sign * end * at, &moved, &slope);
        sum += weight[k / 2] * sign * (start + moved) * exp(height);
    }
    return sum * end;
}

/* dx/da of a gamma variate of shape a, from the series of P (DLMF 8.11.4) below a, or the integral above. */
AC_SPECIAL double ac_gamma_slope(double a, double x) {
    if (!(a > 0 && x >= 0)) return NAN;
    if (x == 0 || x - x != 0) return x;
    if (x > a + 0.5 || (a > 100 && x > 0.5 * a)) {
        double sign = x < a ? -1 : 1;
        return x * ac_tail_integral(a, 0, x, log(x) - ac_digamma_positive(a), sign);
    }
    double sum = 1, term = 1, harmonic = 0, rest = 0, before = -1;
    for (double n = 1; n < 10000 && sum + rest != before; n++) {
        before = sum + rest, harmonic += 1 / (a + n);
        term *= x / (a + n), sum += term, rest += term * harmonic;
    }
    return x / a * (sum * (ac_digamma_positive(a + 1) - log(x)) + rest);
}

/* (dx/da) / (1 - x) of a beta variate of parameters a and b, total = a + b: by the series of its distribution function (DLMF 8.17.8) in x or
 * in 1 - x, or by the integral where one of them has many terms. */
AC_SPECIAL double ac_beta_slope(double x, double a, double total) {
    double b = total - a, y = 1 - x, l = log(x);
    if (!(a > 0 && b > 0 && x >= 0 && x <= 1)) return NAN;
    if (x == 0) return 0;
    double own = ac_digamma_positive(a), all = ac_digamma_positive(total);
    bool below = x <= 0.5 ? l <= own + 1 / a - all : l < own - all && (b >= 1 || a > 30);
    if (y == 0) return 0 * below + (1 / b) * (l - own + all); /* the first term above */
    if ((below ? a : b) > 30) return x * ac_tail_integral(a, total, x, l - own + all, below ? -1 : 1);
    double first = below ? a : b, step = below ? x : y, sum = 1, term = 1, harmonic = 0, rest = 0, before = -1;
    for (double n = 0; n < 1e6 && sum + fabs(rest) != before; n++) {
        before = sum + fabs(rest);
        harmonic += below ? 1 / (a + 1 + n) - 1 / (total + n) : 1 / (total + n);
        term *= (total + n) / (first + 1 + n) * step, sum += term, rest += term * harmonic;
    }
    double start = below ? own + 1 / a - all - l : l - own + all;
    return x / first * (sum * start + rest);
}

/* -- draws ---------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t seed, block;
} ac_stream;

AC_INLINE ac_stream ac_stream_of(double key) {
    ac_stream s = {(uint64_t)(key * 0x1p53), 0};
    return s;
}

/* Two numbers, uniform in (0, 1] and [0, 1). */
AC_INLINE void ac_draw_two(ac_stream *s, double *u, double *v) {
    ac_philox_block b = ac_philox(s->seed, s->block++);
    *u = 1 - ac_uniform53(b.v[0], b.v[1]), *v = ac_uniform53(b.v[2], b.v[3]);
}

AC_INLINE double ac_draw_normal(ac_stream *s) { /* Box and Muller 1958 */
    double u, v;
    ac_draw_two(s, &u, &v);
    return sqrt(-2 * log(u)) * cos(2 * AC_PI * v);
}

/* The logarithm of a gamma variate of shape a (Marsaglia and Tsang 2000), which does not underflow where the variate would. */
AC_SPECIAL double ac_log_gamma_draw(double a, double key) {
    if (!(a > 0)) return a == 0 ? -INFINITY : NAN;
    if (a - a != 0) return a;
    ac_stream s = ac_stream_of(key);
    double u, v, d = (a < 1 ? a + 1 : a) - 1. / 3, c = 1 / sqrt(9 * d), smaller = 0;
    ac_draw_two(&s, &u, &v);
    if (a < 1) smaller = log(u) / a;
    for (int tries = 0; tries < 1000; tries++) {
        double z = ac_draw_normal(&s), l = 3 * log1p(c * z);
        ac_draw_two(&s, &u, &v);
        if (c * z > -1 && log(u) < 0.5 * z * z + d * (l - expm1(l))) return log(d) + l + smaller;
    }
    return log(d) + smaller; /* no seed leads here */
}

/* Inversion from 0 on, whose probability is p: that of k + 1 is that of k times (by - k * less) / (k + 1). */
AC_INLINE double ac_draw_upward(double u, double p, double by, double less) {
    double k = 0;
    while (u > p && k < 1000) u -= p, p *= (by - k * less) / (k + 1), k++;
    return k;
}

/* A count of rate r: inversion, or transformed rejection (PTRS, Hoermann 1993). */
AC_SPECIAL double ac_poisson_draw(double r, double key) {
    if (!(r >= 0) || r - r != 0) return NAN;
    ac_stream s = ac_stream_of(key);
    double u, v;
    if (r < 10) return ac_draw_two(&s, &u, &v), ac_draw_upward(v, exp(-r), r, 0);
    double b = 0.931 + 2.53 * sqrt(r), a = -0.059 + 0.02483 * b, high = 1.1239 + 1.1328 / (b - 3.4);
    for (int tries = 0; tries < 1000; tries++) {
        ac_draw_two(&s, &v, &u);
        u -= 0.5;
        double near = 0.5 - fabs(u), k = floor((2 * a / near + b) * u + r + 0.43);
        if (near >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2)) return k;
        if (k < 0 || (near < 0.013 && v > near)) continue;
        if (v * high / (a / (near * near) + b) <= ac_gamma_density(k, r)) return k;
    }
    return floor(r); /* no seed leads here */
}

/* How many of n trials of chance p succeed: inversion, or transformed rejection (BTRS, Hoermann 1993). */
AC_SPECIAL double ac_binomial_draw(double n, double p, double key) {
    if (n != n || !(p >= 0 && p <= 1)) return NAN;
    n = n > 0 ? floor(n) : 0;
    if (n - n != 0) return p > 0 ? n : 0;
    ac_stream s = ac_stream_of(key);
    double less = p > 0.5 ? 1 - p : p, rest = 1 - less, odds = less / rest, u, v, k = -1;
    if (n * less < 10) {
        ac_draw_two(&s, &u, &v);
        k = ac_draw_upward(v, exp(n * log1p(-less)), n * odds, odds);
        return p > 0.5 ? n - k : k;
    }
    double spread = sqrt(n * less * rest), b = 1.15 + 2.53 * spread, a = -0.0873 + 0.0248 * b + 0.01 * less;
    double mode = floor((n + 1) * less), top = lgamma(mode + 1) + lgamma(n - mode + 1);
    for (int tries = 0; tries < 1000; tries++) {
        ac_draw_two(&s, &v, &u);
        u -= 0.5;
        double near = 0.5 - fabs(u);
        k = floor((2 * a / near + b) * u + n * less + 0.5);
        if (near >= 0.07 && v <= 0.92 - 4.2 / b) break;
        if (k < 0 || k > n) continue;
        v *= (2.83 + 5.1 / b) * spread / (a / (near * near) + b);
        if (log(v) <= top - lgamma(k + 1) - lgamma(n - k + 1) + (k - mode) * log(odds)) break;
    }
    return p > 0.5 ? n - k : k;
}

/* An angle of concentration kappa around 0 (Best and Fisher 1979); a normal one where the circle no longer counts. */
AC_SPECIAL double ac_von_mises_draw(double kappa, double key) {
    if (!(kappa >= 0)) return NAN;
    ac_stream s = ac_stream_of(key);
    double u, v, angle, turn;
    ac_draw_two(&s, &u, &turn);
    if (kappa > 1e6) return ac_draw_normal(&s) / sqrt(kappa);
    double root = sqrt(1 + 4 * kappa * kappa), t = sqrt(1 + root);
    double rho = t / (t + sqrt(2.)) * 2 * kappa / (1 + root), r = 0.5 * (1 + rho * rho);
    for (int tries = 0; tries < 1000; tries++) {
        ac_draw_two(&s, &v, &u);
        double z = cos(AC_PI * u), f = (rho + r * z) / (r + rho * z), c = kappa > 0 ? kappa * (r / rho - f) : 1;
        angle = acos(f > 1 ? 1 : f < -1 ? -1 : f);
        if (c * (2 - c) > v || log(c / v) + 1 - c >= 0) return turn < 0.5 ? -angle : angle;
    }
    return 0; /* no seed leads here */
}

#endif
