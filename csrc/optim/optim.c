/* Optimizer steps, statistics and scaling of gradients over lists of tensors: checks, then the backend's kernels.
 * Also the factors that are stored with a gradient instead of multiplied in at once. */
#include "optim/optim.h"

#include "base/alloc.h"
#include "base/pool.h"
#include "cuda/gpu.h"

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
            return ac_fail(
                AC_RUNTIME,
                "optimizer: parameter %d is on %s and its state on %s; move the model before the first step, or "
                "let optimizer.load_state_dict(optimizer.state_dict()) bring the state along",
                i, ac_device_name(ac_device_of(u->param)), ac_device_name(ac_device_of(u->state[k])));
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
int ac_optim_step(ac_update_rule rule, ac_update *updates, int n, const ac_step_args *constants, int *done) {
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
        ac_tensor *param = updates[i].param;
        ac_packed_weights_take(param, ac_gpu_stream_for(ac_device_of(param)), updates[i].kept);
        updates[i].at.factor = ac_waiting_factor(updates[i].grad->storage);
        updates[i].grad->storage->readers++;
    }
}

static bool is_all_of_its_memory(const ac_tensor *t) { return t->numel * ac_itemsize(t->dtype) == t->storage->bytes; }

void ac_optim_end(ac_update *updates, int n, int done, bool zeroed) {
    for (int i = 0; i < n; i++) {
        ac_update *u = &updates[i];
        u->grad->storage->readers--;
        if (i < done) ac_wrote(u->param);
        if (i < done && zeroed) {
            ac_wrote(u->grad);
            if (is_all_of_its_memory(u->grad)) ac_storage_settled(u->grad->storage); /* 0 times any factor */
        }
        if (i < done && u->extra) ac_wrote(u->extra);
        ac_packed_weights_give_back(u->param, u->kept, i < done);
        for (int k = 0; k < AC_MAX_STATE; k++)
            if (i < done && u->state[k]) ac_wrote(u->state[k]);
    }
}

/* -- pass A, and factors that wait for pass B ------------------------------------------------------------- */

int ac_optim_grad_stats(ac_tensor *const *tensors, int n, double factor, ac_found *found) {
    size_t bytes = (size_t)(n + 1) * sizeof(double);
    double *factors = ac_alloc(bytes);
    if (!factors) return -1;
    for (int i = 0; i < n; i++) factors[i] = factor * ac_waiting_factor(tensors[i]->storage);
    ac_poll_hold();
    int failed = 0;
    for (int i = 0, run; i < n && !failed; i += run) {
        run = ac_same_device(tensors + i, n - i);
        failed = ac_backend_of(ac_device_of(tensors[i]))->grad_stats(tensors + i, run, factors + i, found + i);
    }
    ac_poll_release();
    ac_free(factors, bytes);
    return failed;
}

/* 16-bit values are multiplied at once: whoever reads them is to see them rounded. */
static bool can_wait(const ac_tensor *t) {
    const ac_storage *s = t->storage;
    return !s->exported && !s->addressed && (!s->replayed || ac_note_write) && !s->readers && !ac_is_half(t->dtype) &&
           is_all_of_its_memory(t) && !ac_overlaps_itself(t);
}

/* A factor on a GPU, and the product of it and one that waited before, made once for all that had that one. */
typedef struct {
    ac_tensor *by, *product; /* product: owned */
    const ac_storage *before;
} factor_there;

static int multiply_there(factor_there *f, ac_storage *before) {
    ac_dims none = {0};
    if (f->product && f->before == before) return 0;
    ac_tensor *old = ac_tensor_from_storage(ac_storage_retain(before), AC_float64, &none, &none), *product = NULL;
    int failed = old ? ac_call(AC_OP_mul, (ac_tensor *[]){old, f->by}, 2, NULL, &product) : -1;
    ac_tensor_clear(&old);
    ac_tensor_clear(&f->product);
    f->product = product, f->before = before;
    return failed;
}

static int note_factor(ac_tensor *t, double factor, factor_there *there) {
    ac_storage *s = t->storage;
    ac_tensor *by = there->by;
    if (by && s->deferred && s->factor_at) {
        AC_TRY(multiply_there(there, s->factor_at));
        by = there->product;
    }
    if (!s->deferred)
        s->factor = 1, s->factor_at = NULL, s->deferred_dtype = t->dtype, s->deferred = true, ac_deferred_scales++;
    s->factor *= factor;
    if (!by) return 0;
    ac_storage *old = s->factor_at;
    s->factor_at = ac_storage_retain(by->storage);
    if (old) ac_storage_release(old);
    return 0;
}

/* The first `run` of these, which do not wait. */
static int scale_now(ac_tensor *const *tensors, int n, double factor, const ac_tensor *by, int *run) {
    *run = ac_same_device(tensors, n);
    for (int k = 1; k < *run; k++)
        if (can_wait(tensors[k])) *run = k;
    return ac_backend_of(ac_device_of(tensors[0]))->scale(tensors, *run, factor, by ? ac_data(by) : NULL);
}

int ac_optim_scale(ac_tensor *const *tensors, int n, double factor, ac_tensor *by) {
    factor_there there = {.by = by};
    int failed = 0;
    ac_poll_hold(); /* gradients scaled in part would be of no use */
    for (int i = 0, run; i < n && !failed; i += run) {
        run = 1;
        if (can_wait(tensors[i])) failed = note_factor(tensors[i], factor, &there);
        else failed = scale_now(tensors + i, n - i, factor, by, &run);
        for (int k = 0; k < run; k++) ac_wrote(tensors[i + k]);
    }
    ac_tensor_clear(&there.product);
    ac_poll_release();
    return failed;
}

void ac_optim_hold(ac_tensor *const *tensors, int n) {
    for (int i = 0; i < n; i++) tensors[i]->storage->readers++;
}

void ac_optim_let_go(ac_tensor *const *tensors, int n) {
    for (int i = 0; i < n; i++) tensors[i]->storage->readers--;
}
