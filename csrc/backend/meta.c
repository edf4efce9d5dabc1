/* The backend of the device "meta": tensors with a shape and a dtype, and without values. Kernels do nothing, as the
 * shape functions have done all there is to do. What would need values is an error. */
#include "backend/backend.h"

static int refuse(const char *what) {
    return ac_fail(AC_NOT_IMPLEMENTED,
                   "%s: tensors on 'meta' have no values; make room for some with "
                   "empty_like(t, device='cpu') or module.to_empty(device='cpu')",
                   what);
}

/* Results on another device, and results whose size depends on values, cannot be had. */
static int nothing(const ac_run *run) {
    for (int i = 0; i < run->n_out; i++)
        if (!run->out[i] || ac_device_of(run->out[i]) != AC_META) return refuse(ac_ops[run->op].shown);
    return 0;
}

static int64_t panels_bytes(const ac_tensor *w, ac_dtype round, bool out_first) {
    (void)w, (void)round, (void)out_first;
    return 0;
}

static bool pack(const ac_tensor *w, ac_dtype round, bool out_first, ac_tensor *panels) {
    (void)w, (void)round, (void)out_first, (void)panels;
    return false;
}

static int grad_stats(ac_tensor *const *tensors, int n, const double *factors, ac_found *found) {
    (void)tensors, (void)n, (void)factors, (void)found;
    return refuse("the statistics of gradients");
}

static int scale(ac_tensor *const *tensors, int n, double factor, const double *there) {
    (void)tensors, (void)n, (void)factor, (void)there;
    return 0;
}

static int step(ac_update_rule rule, ac_update *updates, int n, const ac_step_args *constants) {
    (void)rule, (void)updates, (void)n, (void)constants;
    return 0;
}

const ac_backend ac_no_values = {.name = "meta",
                                 .kernels = {[0 ... AC_N_OPS - 1] = nothing},
                                 .panels_bytes = panels_bytes,
                                 .pack = pack,
                                 .grad_stats = grad_stats,
                                 .scale = scale,
                                 .step = step};
