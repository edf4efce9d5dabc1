/* What the scaler and clipping ask of the GPU without waiting for it: results stay on the device. */
#ifndef AC_CUDA_LISTS_H
#define AC_CUDA_LISTS_H

#include "gpu.h"

/* Multiplies the gradients by *factor, or by its inverse, in place (NULL: only looks) and sets *found_inf (unless
 * NULL) to 1 where a value is not finite after that. What it found of each goes to ledger[n], unless NULL. One
 * launch over the list, one more to join the ledger. */
int ac_gpu_unscale(ac_tensor *const *grads, int n, const float *factor, bool invert, float *found_inf,
                   ac_gpu_found *ledger) AC_CHECKED;
/* Only looks, at grads / *scale (NULL: as they are). */
int ac_gpu_look(ac_tensor *const *grads, int n, const float *scale, ac_gpu_found *ledger) AC_CHECKED;
/* ac_scaler_update of amp/scaler.h on the device. */
int ac_gpu_scale_update(ac_device d, const ac_gpu_scale *how) AC_CHECKED;

#endif
