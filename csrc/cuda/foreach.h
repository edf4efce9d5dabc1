/* What the loss scaler and gradient clipping ask of the GPU without waiting for it: results stay on the device. */
#ifndef AC_CUDA_FOREACH_H
#define AC_CUDA_FOREACH_H

#include "cuda/gpu.h"

/* The statistics of grads * factors (1 each where NULL) / *scale (NULL: 1), waiting factors included; nothing of them
 * is written. Notes 1 / *scale at `inverse`, sets *found_inf to 1 where a value is not finite, and puts what it found
 * of each into ledger[n], unless these are NULL. One launch over the list, one more to join the ledger. */
int ac_gpu_grad_stats(ac_tensor *const *grads, int n, const double *factors, const float *scale, double *inverse,
                      float *found_inf, ac_gpu_found *ledger) AC_CHECKED;
/* ac_scaler_update of amp/scaler.h on the device. */
int ac_gpu_scale_update(ac_device d, const ac_gpu_scale *how) AC_CHECKED;

#endif
