/* Storages with a deferred factor, and how to apply it before the memory is read. */
#ifndef AC_DISPATCH_DEFERRED_SCALE_H
#define AC_DISPATCH_DEFERRED_SCALE_H

#include "dispatch/waiting.h"

/* A tensor's memory may wait to be multiplied by a factor (optim/optim.h), and a result may wait to be computed
 * (waiting.h). Whoever reads or writes the memory itself, rather than by ac_call, settles that first. */
int ac_settle_now(ac_storage *s) AC_CHECKED;
int ac_settle_all(ac_tensor *const *tensors, int n) AC_CHECKED;     /* NULL among them is passed over */
int ac_settle_factors(ac_tensor *const *tensors, int n) AC_CHECKED; /* the same, but for a result that waits */
static inline int ac_settle_storage(ac_storage *s) {
    ac_compute_waiting();
    return s->deferred ? ac_settle_now(s) : 0;
}
/* The memory alone, for code that may write parts of tensors: an optimizer's pass. */
static inline int ac_settle_memory(const ac_tensor *t) { return ac_settle_storage(t->storage); }
int ac_refuse_part(void) AC_CHECKED; /* fails */
static inline int ac_settle(const ac_tensor *t) { return t->is_part ? ac_refuse_part() : ac_settle_memory(t); }
int ac_refuse_parts(ac_tensor *const *tensors, int n) AC_CHECKED;
/* For those who multiply it in themselves: a factor is of the storage's own dtype, so bytes seen as another are
 * settled. */
static inline int ac_settle_unless_own(const ac_tensor *t) {
    ac_compute_waiting();
    return t->storage->deferred_dtype != t->dtype ? ac_settle_memory(t) : 0;
}

#endif
