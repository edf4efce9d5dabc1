#include "scaler.h"

#include <float.h>
#include <math.h>

void ac_scaler_update(ac_scaler *s, bool found_inf) {
    if (found_inf) {
        float shrunk = (float)((double)s->scale * s->backoff_factor);
        s->scale = shrunk >= FLT_MIN ? shrunk : FLT_MIN;
        s->growth_tracker = 0;
        return;
    }
    if (++s->growth_tracker < s->growth_interval) return;
    float grown = (float)((double)s->scale * s->growth_factor);
    if (isfinite(grown)) s->scale = grown;
    s->growth_tracker = 0;
}

float ac_scaler_inverse(const ac_scaler *s) { return (float)(1.0 / (double)s->scale); }
