/* The scalar mathematics that both backends share (shared/scalar.inc, shared/cells.inc), in float32 and float64. */
#pragma once

#include "cuda/device.cuh"

#include "ops/attrs.h"
#include "shared/special_bessel.h"
#include "shared/special_draws.h"
#include "shared/special_polynomials.h"

#define R float
#define S(name) name##_f32
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
