/* Determines the device that a call runs on. */
#ifndef AC_DISPATCH_PLACEMENT_H
#define AC_DISPATCH_PLACEMENT_H

#include "ops/op.h"

/* The device where a call's results lie; RuntimeError when its inputs are on several. */
int ac_device_sought(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_device *device) AC_CHECKED;
static inline int ac_device_for(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_device *device) {
    int some = AC_CPU;
    for (int i = 0; i < n_in; i++) some |= in[i] ? ac_device_of(in[i]) : AC_CPU;
    *device = AC_CPU;
    return some == AC_CPU && ac_ops[op].device_at < 0 ? 0 : ac_device_sought(op, in, n_in, attrs, device);
}
int ac_check_target_device(ac_op op, ac_tensor *const *in, int n_in, const void *attrs,
                           const ac_tensor *target) AC_CHECKED;
/* new: t itself when it is on the CPU, else a copy there, off the tape. */
ac_tensor *ac_on_cpu(ac_tensor *t) AC_CHECKED;

#endif
