/* How a loss scale shrinks after an overflow and grows after good steps. */
#include "amp/scaler.h"

void ac_scaler_update(ac_scaler *s, bool found_inf) {
    if (found_inf) {
        s->growth_tracker = 0;
        if (++s->overflows < s->hysteresis) return;
        float shrunk = (float)((double)s->scale * s->backoff_factor);
        s->scale = shrunk >= s->least ? shrunk : s->least;
        return;
    }
    s->overflows = 0;
    if (++s->growth_tracker < s->growth_interval) return;
    double grown = (double)s->scale * s->growth_factor;
    if (grown <= (double)s->most) s->scale = (float)grown;
    else if (s->scale < s->most) s->scale = s->most;
    s->growth_tracker = 0;
}

float ac_scaler_inverse(const ac_scaler *s) { return (float)(1.0 / (double)s->scale); }
