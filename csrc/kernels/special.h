/* float32 sin, cos and pow, computed in double precision so that compilers vectorise them without any
 * care for the last bit: errors 1 ulp, checked by tests/test_fastmath.py. Arguments out of the ordinary
 * (beyond SIN_LIMIT; zero, negative, subnormal, infinite and nan bases; huge exponents) send the whole
 * run to the C library. Included by loops.inc. */

static inline uint64_t wide_bits(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline double from_wide_bits(uint64_t u) {
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static const double ROUND = 6755399441055744.0; /* 1.5 * 2^52: adding it leaves an integer in the low bits */

/* sin(x + quarter * pi / 2). pi / 2 in three parts of 33 bits: products with n < 2^20 are exact (Cody and Waite 1980).
 */
static inline float sin_from(float x, uint64_t quarter) {
    double wide = (double)x, shifted = wide * 0.63661977236758134308 + ROUND, n = shifted - ROUND;
    double r = ((wide - n * 1.57079632673412561417) - n * 6.07710050630396597660e-11) - n * 2.02226624879595063154e-21;
    uint64_t k = wide_bits(shifted) + quarter;
    double z = r * r; /* Taylor, to 2e-11 at pi / 4 */
    double s =
        r * (1 + z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 - z * (1.0 / 39916800))))));
    double c = 1 + z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 - z * (1.0 / 3628800)))));
    uint64_t odd = 0 - (k & 1), sign = (k & 2) << 62;
    return (float)from_wide_bits(((wide_bits(c) & odd) | (wide_bits(s) & ~odd)) ^ sign);
}

static const float SIN_LIMIT = 1e6f;

static int beyond(int64_t n, const float *x, float low, float high) { /* some magnitude is not within */
    int bad = 0;
    for (int64_t i = 0; i < n; i++) {
        float a = x[i] < 0 ? -x[i] : x[i];
        bad |= !((a >= low) & (a <= high));
    }
    return bad;
}

#define LOOP_SIN(name, quarter)                                                                                        \
    static void loop_##name##_wide(int64_t n, const void *const *in, void *out, const void *a) {                       \
        const float *x = in[0];                                                                                        \
        float *y = out;                                                                                                \
        (void)a;                                                                                                       \
        if (beyond(n, x, 0, SIN_LIMIT)) {                                                                              \
            loop_##name##_f32(n, in, out, a);                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        INDEPENDENT                                                                                                    \
        for (int64_t i = 0; i < n; i++) y[i] = sin_from(x[i], quarter);                                                \
    }
LOOP_SIN(sin, 0)
LOOP_SIN(cos, 1)
#undef LOOP_SIN

/* x^y = 2^(y log2 x) for positive normal x: log2 by the series of atanh around sqrt(1/2) to sqrt(2), the
 * power by Taylor's, both to about 2e-11. */
static inline float pow_ordinary(float x, float y) {
    uint64_t u = wide_bits((double)x), top = u - 0x3FE6A09E667F3BCDu; /* of the quotient by sqrt(1/2) */
    uint64_t e = top & 0xFFF0000000000000u;
    double m = from_wide_bits(u - e); /* [sqrt(1/2), sqrt(2)) */
    double exponent = from_wide_bits(0x4330000000000000u | (top + 0x4000000000000000u) >> 52) - 4503599627371520.0;
    double s = (m - 1) / (m + 1), z = s * s;
    double log_m =
        s * (2 + z * (2.0 / 3 + z * (2.0 / 5 + z * (2.0 / 7 + z * (2.0 / 9 + z * (2.0 / 11 + z * (2.0 / 13)))))));
    double t = (double)y * (exponent + log_m * 1.44269504088896340736);
    t = t > 200 ? 200 : t < -200 ? -200 : t; /* rounds to infinity and to zero */
    double shifted = t + ROUND, f = (t - (shifted - ROUND)) * 0.69314718055994530942;
    double p = 1.0 / 362880;
    p = p * f + 1.0 / 40320;
    p = p * f + 1.0 / 5040;
    p = p * f + 1.0 / 720;
    p = p * f + 1.0 / 120;
    p = p * f + 1.0 / 24;
    p = p * f + 1.0 / 6;
    p = p * f + 0.5;
    p = p * f * f + f + 1;
    return (float)from_wide_bits(wide_bits(p) + (wide_bits(shifted) << 52));
}

/* The usual exponents, as torch has them: products, roots and quotients. False: none of these. */
static int pow_usual(int64_t n, const float *x, float e, float *y) {
#define POWER(exponent, value)                                                                                         \
    if (e == (exponent)) {                                                                                             \
        INDEPENDENT                                                                                                    \
        for (int64_t i = 0; i < n; i++) y[i] = (value);                                                                \
        return 1;                                                                                                      \
    }
    POWER(2.0f, x[i] * x[i])
    POWER(3.0f, x[i] * x[i] * x[i])
    POWER(0.5f, sqrtf(x[i]))
    POWER(1.0f, x[i])
    POWER(-0.5f, 1 / sqrtf(x[i]))
    POWER(-1.0f, 1 / x[i])
    POWER(-2.0f, 1 / (x[i] * x[i]))
#undef POWER
    return 0;
}

static void loop_pow_wide(int64_t n, const void *const *in, void *out, const void *a) {
    const float *x = in[0], *e = in[1];
    float *y = out;
    int mixed = 0;
    for (int64_t i = 1; i < n; i++) mixed |= e[i] != e[0];
    if (n > 0 && !mixed && pow_usual(n, x, e[0], y)) return;
    int negative = 0;
    for (int64_t i = 0; i < n; i++) negative |= x[i] < 0;
    if (negative || beyond(n, x, 1.17549435e-38f, 3.40282347e38f) || beyond(n, e, 0, 1e5f)) {
        loop_pow_f32(n, in, out, a);
        return;
    }
    INDEPENDENT
    for (int64_t i = 0; i < n; i++) y[i] = pow_ordinary(x[i], e[i]);
}

#define loop_sin_f32 loop_sin_wide
#define loop_cos_f32 loop_cos_wide
#define loop_pow_f32 loop_pow_wide
