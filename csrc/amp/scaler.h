/* The loss scaler's arithmetic; the call-order rules live with the Python class. */
#ifndef AC_AMP_SCALER_H
#define AC_AMP_SCALER_H

#include "../tensor/tensor.h"

/* Dynamic loss scaling (Micikevicius et al., ICLR 2018):
 *     on overflow:             scale *= backoff, tracker = 0
 *     else, every `interval`:  scale *= growth,  tracker = 0     (only while the result is finite)
 * The scale stays a normal float32: it never becomes 0, infinite or nan. */
typedef struct {
    float scale;
    double growth_factor, backoff_factor;
    int64_t growth_interval, growth_tracker;
} ac_scaler;

void ac_scaler_update(ac_scaler *s, bool found_inf);
/* 1 / scale, computed in float64 and rounded once. */
float ac_scaler_inverse(const ac_scaler *s);

/* Multiplies the gradients by `factor` in one pass over the list; through *bad, how many values
 * were not finite, or became so. May run outside the core's lock, so the caller notes the writes
 * (ac_wrote) afterwards. */
int ac_unscale(ac_tensor *const *grads, int n, double factor, int64_t *bad) AC_CHECKED;

#endif
