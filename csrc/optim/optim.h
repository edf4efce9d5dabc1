/* Optimizer steps, statistics and scaling of gradients, over lists of tensors. */
#ifndef AC_OPTIM_OPTIM_H
#define AC_OPTIM_OPTIM_H

#include "backend/backend.h"

/* One step of `rule` for every update: shapes and dtypes are checked first, so that a bad list
 * changes nothing; then one pass over memory, which also packs the parameters' kept copies again.
 * May run outside the core's lock; `begin` before it and `end` after it are within, and note what
 * is written. When interrupted, the first `done` updates have been made, whole, and the others not
 * begun. */
void ac_optim_begin(ac_update *updates, int n);
int ac_optim_step(ac_update_rule rule, ac_update *updates, int n, const ac_step_args *constants, int *done) AC_CHECKED;
void ac_optim_end(ac_update *updates, int n, int done, bool zeroed);

/* Pass A: what each tensor's values are when multiplied by `factor`; nothing is written. May run outside the lock,
 * between `hold` and `let_go`. */
int ac_optim_grad_stats(ac_tensor *const *tensors, int n, double factor, ac_found *found) AC_CHECKED;
/* Multiplies every tensor by `factor`, and by `by`, one float64 that is all of its memory, on the tensors' GPU, or
 * NULL. Where a tensor is all of its memory, and nobody else sees that, the factor is only noted (ac_settle,
 * dispatch/deferred_scale.h): the optimizer's pass, or whoever reads it first, does the work. */
int ac_optim_scale(ac_tensor *const *tensors, int n, double factor, ac_tensor *by) AC_CHECKED;
/* Between these two, pending factors of the tensors stay as they are. Within the lock. */
void ac_optim_hold(ac_tensor *const *tensors, int n);
void ac_optim_let_go(ac_tensor *const *tensors, int n);

#endif
