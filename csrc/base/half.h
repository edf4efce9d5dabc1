/* Conversions between float32 and the 16-bit types. They round to nearest even and keep infinities, nans and
 * subnormals. They have few enough branches for a compiler to vectorise them. */
#ifndef AC_BASE_HALF_H
#define AC_BASE_HALF_H

#include "base/inline.h"

#include <stdint.h>
#include <string.h>

AC_INLINE uint32_t ac_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

AC_INLINE float ac_from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

AC_INLINE float ac_bf16_to_f32(uint16_t h) { return ac_from_bits((uint32_t)h << 16); }

AC_INLINE uint16_t ac_f32_to_bf16(float x) {
    uint32_t u = ac_bits(x);
    uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    uint32_t quiet = (u >> 16) | 0x40u; /* keep a nan a nan when its low payload bits are cut */
    return (uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

/* The exponent is rebiased by one exact multiplication, which also normalises subnormals. */
AC_INLINE float ac_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = (uint32_t)(h & 0x7FFFu);
    float finite = ac_from_bits(magnitude << 13) * ac_from_bits(0x77800000u); /* 2^112 */
    uint32_t special = 0x7F800000u | (magnitude << 13);
    uint32_t bits = magnitude >= 0x7C00u ? special : ac_bits(finite);
    return ac_from_bits(sign | bits);
}

/* Two cases by magnitude: below 2^-14 the addition of 0.5 lets the adder round to a multiple of
 * 2^-24; above, integer rounding of the mantissa carries into the exponent and up to infinity. */
AC_INLINE uint16_t ac_f32_to_f16(float x) {
    uint32_t u = ac_bits(x), sign = (u >> 16) & 0x8000u, a = u & 0x7FFFFFFFu;
    uint32_t subnormal = ac_bits(ac_from_bits(a) + 0.5f) - 0x3F000000u;
    uint32_t normal = (a - 0x38000000u + 0xFFFu + ((a >> 13) & 1u)) >> 13;
    uint32_t finite = a < 0x38800000u ? subnormal : normal;
    uint32_t special = a > 0x7F800000u ? 0x7E00u | ((a >> 13) & 0x3FFu) : 0x7C00u;
    return (uint16_t)(sign | (a >= 0x47800000u ? special : finite));
}

#endif
