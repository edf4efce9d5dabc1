/* Calls that compute in another dtype than their inputs'. */
#ifndef AC_DISPATCH_UPCAST_H
#define AC_DISPATCH_UPCAST_H

#include "ops/op.h"

bool ac_wants_float32(ac_op op, ac_tensor *const *in, int n);
int ac_run_in_float32(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out) AC_CHECKED;
bool ac_casts_first(ac_op op, ac_tensor *const *in, const void *attrs);
/* ac_call_out of inputs that need no cast first; in call.c. */
int ac_call_targets(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor *const *targets,
                    int n) AC_CHECKED;
int ac_run_cast_first(ac_op op, ac_tensor *x, const void *attrs, ac_tensor **out) AC_CHECKED;

#endif
