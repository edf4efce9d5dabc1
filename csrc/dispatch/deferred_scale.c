/* Applies factors that were deferred. Unscaling and clipping multiply all gradients; done at once, each is a pass
 * over memory that the optimizer's own pass can include (optim/optim.c). So they only store a factor with the
 * storage, and code that reads the memory itself has it multiplied in first. */
#include "dispatch/deferred_scale.h"

#include "dispatch/lock.h"

#include "backend/backend.h"
#include "base/pool.h"

#include <time.h>

/* A step that reads the memory with its factor runs outside the lock, so the lock is let go until it is over. */
static void wait_for_readers(const ac_storage *s) {
    while (s->readers) {
        void *state = ac_lock.release();
        (void)nanosleep(&(struct timespec){0, 50000}, NULL);
        ac_lock.acquire(state);
    }
}

int ac_settle_now(ac_storage *s) {
    if (s->blank && s->moved)
        return ac_fail(AC_VALUE,
                       "a parameter of a sharded module was used while its values are spread over the processes: "
                       "call the module itself, or its unshard(), before");
    if (s->blank)
        return ac_fail(AC_VALUE, "an uninitialized parameter was used: its lazy module takes the size from its first "
                                 "input, so call the module once, or materialize(shape), before");
    wait_for_readers(s);
    if (!s->deferred) return 0;
    int64_t numel = s->bytes / ac_itemsize(s->deferred_dtype);
    ac_tensor all = {.refs = 1, /* ours, beside those that are taken and given back */
                     .storage = s,
                     .numel = numel,
                     .dtype = s->deferred_dtype,
                     .ndim = 1,
                     .shape = {numel},
                     .strides = {1}};
    ac_poll_hold(); /* half of it multiplied would be lost */
    const double *there = s->factor_at ? (const double *)(const void *)s->factor_at->data : NULL;
    int failed = ac_backend_of(s->device)->scale(&(ac_tensor *){&all}, 1, s->factor, there);
    ac_poll_release();
    if (failed) return -1;
    ac_storage_settled(s);
    return 0;
}

int ac_refuse_part(void) {
    return ac_fail(
        AC_NOT_IMPLEMENTED,
        "this tensor is spread over the processes, and operators do not gather it: write to_local() for the part of "
        "this process, or full_tensor() for the whole. Parameters of a sharded module are whole while it runs");
}

int ac_refuse_parts(ac_tensor *const *tensors, int n) {
    for (int i = 0; i < n; i++)
        if (tensors[i] && tensors[i]->is_part) return ac_refuse_part();
    return 0;
}

int ac_settle_factors(ac_tensor *const *tensors, int n) {
    for (int i = 0; i < n && ac_deferred_scales; i++) {
        if (tensors[i] && tensors[i]->is_part) return ac_refuse_part();
        if (tensors[i] && tensors[i]->storage->deferred) AC_TRY(ac_settle_now(tensors[i]->storage));
    }
    return 0;
}

int ac_settle_all(ac_tensor *const *tensors, int n) {
    ac_compute_waiting();
    return ac_settle_factors(tensors, n);
}
