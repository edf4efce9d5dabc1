/* The scalar mathematics that both backends share (shared/scalar.inc, shared/cells.inc), in float32 and float64. */
#pragma once

#include "cuda/device.cuh"

#include "ops/attrs.h"
#include "shared/special_bessel.h"
#include "shared/special_draws.h"
#include "shared/special_polynomials.h"

/* The normal distribution within 5e-8: what lies beyond |x| is 2^Q(|x|), where Q is fitted to |x| up to 5.5 and falls
 * behind that. A third of erff's instructions. */
DEV float normal_cdf_of(float x) {
    const float q[] = {-1.0f,
                       -1.1511051655f,
                       -0.45921224356f,
                       -0.052467700094f,
                       0.0069861663505f,
                       -3.1863375625e-5f,
                       -0.00026466802228f,
                       7.2277231084e-5f,
                       -1.0290902537e-5f,
                       8.0047391293e-7f,
                       -2.6772323025e-8f};
    float at = fabsf(x), sum = q[10];
#pragma unroll
    for (int k = 9; k >= 0; k--) sum = fmaf(sum, at, q[k]);
    float beyond = power_of_2(sum);
    return x < 0 ? beyond : 1.0f - beyond;
}

#define R float
#define S(name) name##_f32
#define M_NORMAL_CDF normal_cdf_of
#define M(name) name##f
#define M_EXP expf
#define M_LOG logf
#define M_TANH tanhf
#define M_ERF erff
#define M_SQRT sqrtf
#define M_SIN sinf
#define M_COS cosf
#define M_POW powf
#define M_FMOD fmodf
#define M_FLOOR floorf
#define M_CEIL ceilf
#define M_RINT rintf
#define M_TRUNC truncf
#include "shared/scalar.inc"
#include "shared/cells.inc"
#include "shared/math_undef.inc"

#define R double
#define S(name) name##_f64
#define M(name) name
#define M_EXP exp
#define M_LOG log
#define M_TANH tanh
#define M_ERF erf
#define M_SQRT sqrt
#define M_SIN sin
#define M_COS cos
#define M_POW pow
#define M_FMOD fmod
#define M_FLOOR floor
#define M_CEIL ceil
#define M_RINT rint
#define M_TRUNC trunc
#include "shared/scalar.inc"
#include "shared/cells.inc"
#include "shared/math_undef.inc"
