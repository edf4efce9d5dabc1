/* float32 exp, log, tanh and erf as straight-line code that compilers vectorise. Polynomials
 * of exp, log and tanh as in Moshier's Cephes 2.8 (expf, logf, tanhf). Errors, checked by
 * tests/test_fastmath.py: exp, log and erf 2 ulp, tanh 3 ulp. */
#ifndef AC_CPU_ELEMENTWISE_FASTMATH_H
#define AC_CPU_ELEMENTWISE_FASTMATH_H

#include "base/half.h"

static inline float ac_power_of_two(int32_t n) { return ac_from_bits((uint32_t)(n + 127) << 23); }

/* e^r near 0 */
static inline float ac_expf_part(float r) {
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * r * r + r + 1.0f;
}

static inline float ac_expf(float x) {
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    x = x > 89.0f ? 89.0f : x;       /* a nan passes both comparisons */
    x = x < -104.0f ? -104.0f : x;
    float shifted = x * 1.44269504088896341f + shift;
    float n = shifted - shift;
    int32_t k = (int32_t)(ac_bits(shifted) - 0x4B400000u);
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = ac_expf_part(r);
    int32_t half = k >> 1; /* in two steps, so that subnormal results and 2^128 come out right */
    return p * ac_power_of_two(half) * ac_power_of_two(k - half);
}

static inline float ac_logf(float x) {
    float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;
    float bias = x < 1.17549435e-38f ? -23.0f : 0.0f;
    uint32_t u = ac_bits(scaled);
    float e = (float)((int32_t)(u >> 23) - 126) + bias;
    float m = ac_from_bits((u & 0x007FFFFFu) | 0x3F000000u); /* [0.5, 1) */
    float low = m < 0.707106781186547524f ? 1.0f : 0.0f;
    e -= low;
    m = m + low * m - 1.0f;
    float z = m * m, p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float y = m * z * p + e * -2.12194440e-4f - 0.5f * z;
    float result = m + y + e * 0.693359375f;
    const float infinity = ac_from_bits(0x7F800000u), nan = ac_from_bits(0x7FC00000u);
    result = x == infinity ? infinity : result;
    result = x == 0.0f ? -infinity : result;
    return x < 0.0f ? nan : x != x ? x : result;
}

static inline float ac_tanhf(float x) {
    float a = x < 0.0f ? -x : x, z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float near = p * z * x + x;
    float far = 1.0f - 2.0f / (ac_expf(2.0f * a) + 1.0f);
    far = x < 0.0f ? -far : far;
    near = x == 0.0f ? x : near; /* keeps the sign of -0 */
    return a < 0.625f ? near : far;
}

/* Of x in [-87, 0], or nan: the same, without what smaller and larger results take. */
static inline float ac_expf_near(float x) {
    float shifted = x * 1.44269504088896341f + 12582912.0f, n = shifted - 12582912.0f;
    return ac_expf_part((x - n * 0.693359375f) - n * -2.12194440e-4f) *
           ac_power_of_two((int32_t)(ac_bits(shifted) - 0x4B400000u));
}

/* Below 0.92 an odd polynomial, above 1 - e^(polynomial): minimax fits to erf and to log(erfc). */
static inline float ac_erff(float x) {
    float a = ac_from_bits(ac_bits(x) & 0x7FFFFFFFu), z = x * x;
    float near = -5.99085297e-4f;
    near = near * z + 4.99318002e-3f;
    near = near * z - 2.6766616e-2f;
    near = near * z + 1.12818162e-1f;
    near = near * z - 3.76124937e-1f;
    near = near * z + 1.2837915e-1f;
    near = near * x + x;
    float b = a > 4.0f ? 4.0f : a; /* erf is 1 to the last bit from there on; a nan stays */
    float far = 1.95860248e-4f;
    far = far * b - 3.04267474e-3f;
    far = far * b + 2.222567e-2f;
    far = far * b - 1.03931017e-1f;
    far = far * b - 6.37180502e-1f;
    far = far * b - 1.12767814f;
    far = far * b - 1.94702857e-4f;
    far = 1.0f - ac_expf_near(far); /* 0 at 0 and below, where it is not taken */
    far = ac_from_bits(ac_bits(far) | (ac_bits(x) & 0x80000000u));
    return a < 0.921875f ? near : far;
}

#endif
