/* Storages with a deferred factor, and how to apply it before the memory is read. */
#ifndef AC_DISPATCH_DEFERRED_SCALE_H
#define AC_DISPATCH_DEFERRED_SCALE_H

#include "ops/op.h"

/* A tensor's memory may wait to be multiplied by a factor (optim/optim.h). Whoever reads or writes the memory itself,
 * rather than by ac_call, settles that first. */
int ac_settle_now(ac_storage *s) AC_CHECKED;
int ac_settle_all(ac_tensor *const *tensors, int n) AC_CHECKED; /* NULL among them is passed over */
/* The memory alone, for code that may write parts of tensors: an optimizer's pass. */
static inline int ac_settle_memory(const ac_tensor *t) {
    return ac_deferred_scales && t->storage->deferred ? ac_settle_now(t->storage) : 0;
}
int ac_refuse_part(void) AC_CHECKED; /* fails */
static inline int ac_settle(const ac_tensor *t) {
    return ac_deferred_scales && t->is_part ? ac_refuse_part() : ac_settle_memory(t);
}
int ac_refuse_parts(ac_tensor *const *tensors, int n) AC_CHECKED;
/* For those who multiply it in themselves: a factor is of the storage's own dtype, so bytes seen as another are
 * settled. */
static inline int ac_settle_unless_own(const ac_tensor *t) {
    return t->storage->deferred_dtype != t->dtype ? ac_settle_memory(t) : 0;
}

#endif
