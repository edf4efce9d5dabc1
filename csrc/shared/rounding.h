/* What a 16-bit parameter does with an update that is smaller than its spacing: float32 masters, stochastic rounding
 * or Kahan summation. For both backends. */
#ifndef AC_SHARED_ROUNDING_H
#define AC_SHARED_ROUNDING_H

#include "base/half.h"
#include "base/inline.h"

/* nearest: it is lost; stochastic: up or down with the probability of what is cut off (Gupta et al. 2015); kahan: what
 * is lost is kept beside, in 16 bits (Kahan 1965); master: a float32 copy takes the update (Micikevicius et al. 2018)
 */
typedef enum { AC_ROUND_nearest, AC_ROUND_stochastic, AC_ROUND_kahan, AC_ROUND_master } ac_rounding;

/* x, rounded to bfloat16 or float16 by 32 random bits; infinities and nan stay. */
AC_INLINE float ac_round_stochastic(float x, int is_bf16, uint32_t random) {
    uint32_t u = ac_bits(x), size = u & 0x7FFFFFFFu, cut = is_bf16 ? 0xFFFFu : 0x1FFFu;
    if (size >= 0x7F800000u) return x;
    if (is_bf16 || size >= 0x38800000u) return ac_from_bits((u + (random & cut)) & ~cut);
    float steps = ac_from_bits(size) * 0x1p24f, whole = (float)(int32_t)steps; /* float16's subnormal numbers */
    if ((float)(random >> 8) * 0x1p-24f < steps - whole) whole += 1;
    return ac_from_bits(ac_bits(whole * 0x1p-24f) | (u & 0x80000000u));
}

#endif
