/* What the loss scaler and gradient clipping ask of the GPU without waiting for it: results stay on the device. */
#ifndef AC_CUDA_FOREACH_H
#define AC_CUDA_FOREACH_H

#include "cuda/gpu.h"

/* What a pass over gradients notes beside their statistics, each where it is not NULL. */
typedef struct {
    double *inverse;  /* 1 / *scale */
    float *used;      /* the scale itself, as it was */
    float *found_inf; /* [2]: 1 where a value is not finite, and where it is infinite, else 0 */
} ac_gpu_stats_also;

/* The statistics of grads * factors (1 each where NULL) / *scale (NULL: 1), waiting factors included, into ledger[n];
 * nothing of the gradients is written. One launch over the list, one more to join the ledger. */
int ac_gpu_grad_stats(ac_tensor *const *grads, int n, const double *factors, const float *scale, ac_gpu_found *ledger,
                      const ac_gpu_stats_also *also) AC_CHECKED;
/* The norm of the gradients that a ledger of n tells, into a number of float32 or float64; and the factor that clips
 * them: limit / (norm + 1e-6), at most 1. The limit is a number of a floating dtype on the device, or `most` where it
 * is NULL. */
int ac_gpu_norm(const ac_gpu_found *ledger, int n, ac_tensor *norm) AC_CHECKED;
int ac_gpu_clip_factor(const ac_tensor *norm, const ac_tensor *limit, double most, double *factor) AC_CHECKED;
/* ac_scaler_update of amp/scaler.h on the device. */
int ac_gpu_scale_update(ac_device d, const ac_gpu_scale *how) AC_CHECKED;

#endif
