/* The loss scale's arithmetic. The rules for the order of calls are in the Python class (ampc/amp/grad_scaler.py). */
#ifndef AC_AMP_SCALER_H
#define AC_AMP_SCALER_H

#include "tensor/tensor.h"

/* Dynamic loss scaling (Micikevicius et al., ICLR 2018). Overflow multiplies the scale by the backoff factor, once
 * `hysteresis` of them have come in a row; `growth_interval` good steps in a row multiply it by the growth factor. It
 * stays in [least, most], which are normal float32: it never becomes 0, infinite or nan. */
typedef struct {
    float scale;
    double growth_factor, backoff_factor;
    int64_t growth_interval, growth_tracker;
    float least, most;
    int64_t hysteresis, overflows; /* overflows in a row, so far */
} ac_scaler;

void ac_scaler_update(ac_scaler *s, bool found_inf);
/* 1 / scale, computed in float64 and rounded once. */
float ac_scaler_inverse(const ac_scaler *s);

#endif
