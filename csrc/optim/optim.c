#include "optim.h"

#include "../amp/scaler.h"
#include "../base/alloc.h"
#include "../base/pool.h"

#include <math.h>

static int check(const ac_update *u, int i) {
    char want[AC_SHAPE_TEXT], got[AC_SHAPE_TEXT];
    if (!ac_is_floating(u->param->dtype))
        return ac_fail(AC_RUNTIME, "optimizer: parameter %d is %s; only floating point can be trained", i,
                       ac_dtypes[u->param->dtype].name);
    if (ac_device_of(u->grad) != ac_device_of(u->param))
        return ac_fail(AC_RUNTIME, "optimizer: parameter %d is on %s and its gradient on %s", i,
                       ac_device_name(ac_device_of(u->param)), ac_device_name(ac_device_of(u->grad)));
    for (int k = 0; k < AC_MAX_STATE; k++)
        if (u->state[k] && ac_device_of(u->state[k]) != ac_device_of(u->param))
            return ac_fail(AC_RUNTIME, "optimizer: parameter %d is on %s and its state on %s", i,
                           ac_device_name(ac_device_of(u->param)), ac_device_name(ac_device_of(u->state[k])));
    if (!ac_same_shape(u->param, u->grad))
        return ac_fail(AC_RUNTIME, "optimizer: parameter %d has shape %s and its gradient %s", i,
                       ac_shape_text(u->param, want), ac_shape_text(u->grad, got));
    if (ac_overlaps_itself(u->param))
        return ac_fail(AC_RUNTIME, "optimizer: elements of parameter %d share memory (expanded?)", i);
    for (int k = 0; k < AC_MAX_STATE; k++)
        if (u->state[k] && !ac_same_shape(u->param, u->state[k]))
            return ac_fail(AC_RUNTIME, "optimizer: state %d of parameter %d has shape %s, the parameter %s", k, i,
                           ac_shape_text(u->state[k], got), ac_shape_text(u->param, want));
    return 0;
}

/* Updates are done whole, in slices of some 20 ms; between slices somebody may stop it. */
int ac_optim_step(ac_rule rule, ac_update *updates, int n, const ac_step *constants, int *done) {
    enum { SLICE = 1 << 24 };
    *done = 0;
    for (int i = 0; i < n; i++) AC_TRY(check(&updates[i], i));
    while (*done < n) {
        int end = *done;
        int64_t elements = 0;
        ac_device device = ac_device_of(updates[end].param);
        bool whole = device != AC_CPU; /* a GPU takes the list in one launch */
        while (end < n && ac_device_of(updates[end].param) == device &&
               (end == *done || whole || elements + updates[end].param->numel <= SLICE))
            elements += updates[end++].param->numel;
        ac_poll_hold();
        int failed = ac_backend_of(device)->step(rule, updates + *done, end - *done, constants);
        ac_poll_release();
        if (failed) return -1;
        *done = end;
        if (end < n && ac_poll()) {
            (void)ac_interrupted();
            return ac_fail(AC_PYTHON, "interrupted");
        }
    }
    return 0;
}

void ac_optim_begin(ac_update *updates, int n) {
    for (int i = 0; i < n; i++) ac_copies_take(updates[i].param, updates[i].kept);
}

void ac_optim_end(ac_update *updates, int n, int done) {
    for (int i = 0; i < n; i++) {
        ac_update *u = &updates[i];
        if (i < done) ac_wrote(u->param);
        ac_copies_give_back(u->param, u->kept, i < done);
        for (int k = 0; k < AC_MAX_STATE; k++)
            if (i < done && u->state[k]) ac_wrote(u->state[k]);
    }
}

int ac_optim_norm(ac_tensor *const *tensors, int n, double *norm) {
    size_t bytes = (size_t)(n + 1) * sizeof(double);
    double *sums = ac_alloc(bytes), total = 0;
    if (!sums) return -1;
    ac_poll_hold();
    int failed = 0;
    for (int i = 0, run; i < n && !failed; i += run) {
        run = ac_same_device(tensors + i, n - i);
        failed = ac_backend_of(ac_device_of(tensors[i]))->squares(tensors + i, run, sums + i);
    }
    ac_poll_release();
    for (int i = 0; i < n && !failed; i++) total += sums[i];
    ac_free(sums, bytes);
    *norm = sqrt(total);
    return failed;
}

int ac_optim_scale(ac_tensor *const *tensors, int n, double factor) {
    int64_t ignored;
    AC_TRY(ac_unscale(tensors, n, factor, &ignored));
    for (int i = 0; i < n; i++) ac_wrote(tensors[i]);
    return 0;
}
