#include "optim.h"

#include "../base/alloc.h"
#include "../base/pool.h"

static double factor_of(const ac_tensor *t) { return t->storage->pending ? t->storage->factor : 1; }

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
    ac_dtype wanted = u->rounding == AC_ROUND_master ? AC_float32 : u->param->dtype;
    if (u->extra && (!ac_same_shape(u->param, u->extra) || u->extra->dtype != wanted ||
                     ac_device_of(u->extra) != ac_device_of(u->param)))
        return ac_fail(AC_RUNTIME, "optimizer: parameter %d needs a %s of shape %s beside it, got a %s of shape %s", i,
                       ac_dtypes[wanted].name, ac_shape_text(u->param, want), ac_dtypes[u->extra->dtype].name,
                       ac_shape_text(u->extra, got));
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
    for (int i = 0; i < n; i++) {
        ac_copies_take(updates[i].param, updates[i].kept);
        updates[i].at.factor = factor_of(updates[i].grad);
        updates[i].grad->storage->readers++;
    }
}

void ac_optim_end(ac_update *updates, int n, int done) {
    for (int i = 0; i < n; i++) {
        ac_update *u = &updates[i];
        u->grad->storage->readers--;
        if (i < done) ac_wrote(u->param);
        if (i < done && u->extra) ac_wrote(u->extra);
        ac_copies_give_back(u->param, u->kept, i < done);
        for (int k = 0; k < AC_MAX_STATE; k++)
            if (i < done && u->state[k]) ac_wrote(u->state[k]);
    }
}

/* -- pass A, and factors that wait for pass B ------------------------------------------------------------- */

int ac_optim_look(ac_tensor *const *tensors, int n, double factor, ac_found *found) {
    size_t bytes = (size_t)(n + 1) * sizeof(double);
    double *factors = ac_alloc(bytes);
    if (!factors) return -1;
    for (int i = 0; i < n; i++) factors[i] = factor * factor_of(tensors[i]);
    ac_poll_hold();
    int failed = 0;
    for (int i = 0, run; i < n && !failed; i += run) {
        run = ac_same_device(tensors + i, n - i);
        failed = ac_backend_of(ac_device_of(tensors[i]))->look(tensors + i, run, factors + i, found + i);
    }
    ac_poll_release();
    ac_free(factors, bytes);
    return failed;
}

/* 16-bit values are multiplied at once: whoever reads them is to see them rounded. */
static bool can_wait(const ac_tensor *t) {
    const ac_storage *s = t->storage;
    return s->device == AC_CPU && !s->exported && !s->addressed && !s->readers && !ac_is_half(t->dtype) &&
           t->numel * ac_itemsize(t->dtype) == s->bytes && !ac_overlaps_itself(t);
}

static void note_factor(ac_tensor *t, double factor) {
    ac_storage *s = t->storage;
    if (!s->pending) s->factor = 1, s->pending_dtype = t->dtype, s->pending = true, ac_pending++;
    s->factor *= factor;
}

int ac_optim_scale(ac_tensor *const *tensors, int n, double factor) {
    int failed = 0;
    ac_poll_hold(); /* gradients scaled in part would be of no use */
    for (int i = 0, run; i < n && !failed; i += run) {
        run = 1;
        if (can_wait(tensors[i])) {
            note_factor(tensors[i], factor);
        } else {
            run = ac_same_device(tensors + i, n - i);
            for (int k = 1; k < run; k++)
                if (can_wait(tensors[i + k])) run = k;
            failed = ac_backend_of(ac_device_of(tensors[i]))->scale(tensors + i, run, factor);
        }
        for (int k = 0; k < run; k++) ac_wrote(tensors[i + k]);
    }
    ac_poll_release();
    return failed;
}

void ac_optim_hold(ac_tensor *const *tensors, int n) {
    for (int i = 0; i < n; i++) tensors[i]->storage->readers++;
}

void ac_optim_let_go(ac_tensor *const *tensors, int n) {
    for (int i = 0; i < n; i++) tensors[i]->storage->readers--;
}
