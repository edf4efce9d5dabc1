/* Optimizer steps and gradient norms over lists of tensors. */
#ifndef AC_OPTIM_OPTIM_H
#define AC_OPTIM_OPTIM_H

#include "../backend/backend.h"
#include "../kernels/loops.h"

/* One step of `rule` for every update: shapes and dtypes are checked first, so that a bad list
 * changes nothing; then one pass over memory, which also packs the parameters' kept copies again.
 * May run outside the core's lock; `begin` before it and `end` after it are within, and note what
 * is written. When interrupted, the first `done` updates have been made, whole, and the others not
 * begun. */
void ac_optim_begin(ac_update *updates, int n);
int ac_optim_step(ac_rule rule, ac_update *updates, int n, const ac_step *constants, int *done) AC_CHECKED;
void ac_optim_end(ac_update *updates, int n, int done);

/* Euclidean norm of all tensors together, accumulated in float64. */
int ac_optim_norm(ac_tensor *const *tensors, int n, double *norm) AC_CHECKED;
/* Multiplies every tensor by `factor` in place. */
int ac_optim_scale(ac_tensor *const *tensors, int n, double factor) AC_CHECKED;

#endif
