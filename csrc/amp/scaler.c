#include "scaler.h"

#include "../backend/backend.h"
#include "../base/alloc.h"
#include "../base/pool.h"

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

int ac_unscale(ac_tensor *const *grads, int n, double factor, int64_t *bad) {
    size_t bytes = (size_t)(n + 1) * sizeof(int64_t);
    int64_t *each = ac_calloc(bytes);
    if (!each) return -1;
    ac_poll_hold(); /* gradients scaled in part would be of no use */
    int failed = 0;
    for (int i = 0, run; i < n && !failed; i += run) {
        run = ac_same_device(grads + i, n - i);
        failed = ac_backend_of(ac_device_of(grads[i]))->unscale(grads + i, run, factor, each + i);
    }
    ac_poll_release();
    *bad = 0;
    for (int i = 0; i < n; i++) *bad += each[i];
    ac_free(each, bytes);
    return failed;
}
