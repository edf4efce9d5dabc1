/* Determines the device that a call runs on. */
#ifndef AC_DISPATCH_PLACEMENT_H
#define AC_DISPATCH_PLACEMENT_H

#include "dispatch/call.h"

/* The device where a call's results lie; RuntimeError when its inputs are on several. */
int ac_device_sought(const ac_op_call *c, ac_device *device) AC_CHECKED;
static inline int ac_device_for(const ac_op_call *c, ac_device *device) {
    int some = AC_CPU;
    for (int i = 0; i < c->n_in; i++) some |= c->operands[i] ? ac_device_of(c->operands[i]) : AC_CPU;
    *device = AC_CPU;
    return some == AC_CPU && c->info->device_at < 0 ? 0 : ac_device_sought(c, device);
}
/* An operator within a composite one has failed with AC_DEVICES: says so of the composite operator's own inputs, if
 * they are on several devices. */
void ac_name_devices(const ac_op_call *c);
int ac_check_target_device(const ac_op_call *c, const ac_tensor *target) AC_CHECKED;
/* new: t itself when it is on the CPU, else a copy there, off the tape. */
ac_tensor *ac_on_cpu(ac_tensor *t) AC_CHECKED;

/* Tensors that the core makes once and keeps, for whoever needs them: on a GPU any stream may read those whose making
 * was waited for, */
int ac_wait_for_kept(ac_device device) AC_CHECKED;
/* and t is about to be read on the current one; a graph that captures that reads it at each replay. */
int ac_lend_kept(ac_tensor *t) AC_CHECKED;

#endif
